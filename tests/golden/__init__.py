"""Events of every envelope version as they were once written, and what each fold version says of them (contract 3 and 10).

``v1/``: fleets of version 1, a partition's records each, which together hold every event type and let every rule of the fold speak; small ones for each case
of usage and of contract 16 stand in one file. ``fold-1.json``: by
fleet, the digest of each turn's record and the hash of the whole document, as fold version 1 says them. Neither changes any more.

A change of the fold that moves a digest raises ``FOLD_VERSION``; ``python -m tests.golden`` then writes the file of the new version, and a note in
`docs/decisions/` tells what moved and why, with the file's hash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from turnledger.contract.canonical import dumps
from turnledger.contract.upcast import CHAIN
from turnledger.fold.document import document
from turnledger.fold.version import FOLD_VERSION

FOLDER = Path(__file__).parent
BETWEEN = b"\n%%\n"
"""Between the fleets of a file."""


@dataclass(frozen=True)
class Unpriced:
    """The price of every call, here: prices have versions of their own."""

    cost_micro_usd: int | None = None
    cost_fidelity: str | None = None
    price_id: str | None = None
    catalog_version: int | None = None
    unpriced: bool = True


def price(
    provider: str | None,
    model: str | None,
    usage: Mapping[str, int | None],
    at: int | None,
    convention: str | None,
    *,
    one_request: bool,
) -> Unpriced:
    return Unpriced()


def fleets(version: int) -> dict[str, list[bytes]]:
    """The records of each fleet of an envelope version, by name: a partition each."""
    found: dict[str, list[bytes]] = {}
    for path in sorted((FOLDER / f"v{version}").glob("*.ndjson")):
        for number, part in enumerate(path.read_bytes().split(BETWEEN), 1):
            found[f"{path.stem}:{number}"] = part.split(b"\n")
    return found


def said(records: list[bytes]) -> dict[str, Any]:
    """What the fold says of a fleet, as hashes: what differs is told by turn."""
    told = document(records, price)
    turns = {
        f"{turn['tenant']}/{turn['session_id']}/{turn['turn_key']}": turn["digest"] for turn in told["turns"]
    }
    return {"turns": dict(sorted(turns.items())), "document": sha256(dumps(told)).hexdigest()}


def versions() -> list[int]:
    """The envelope versions that there were: the corpus of each is folded by every fold."""
    return list(range(1, CHAIN.current + 1))


def everything() -> dict[str, dict[str, Any]]:
    """What this fold says of the whole corpus."""
    return {
        f"v{version}/{name}": said(records)
        for version in versions()
        for name, records in fleets(version).items()
    }


def golden(fold_version: int = FOLD_VERSION) -> Path:
    return FOLDER / f"fold-{fold_version}.json"


def written(found: Mapping[str, Any]) -> bytes:
    return (json.dumps(found, indent=1, sort_keys=True) + "\n").encode()
