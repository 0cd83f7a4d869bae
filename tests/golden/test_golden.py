"""Old events fold today as they did then; a change of the fold that moves a digest is a new fold version with a note, or is refused here."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.golden import everything, fleets, golden, versions
from turnledger.contract.event import Event
from turnledger.contract.reader import read
from turnledger.contract.types import EVENT_TYPES
from turnledger.fold.version import FOLD_VERSION

DECISIONS = Path(__file__).resolve().parents[2] / "docs" / "decisions"
RECORDED = re.compile(r"fold-([0-9]+)\.json`? *\| *`?([0-9a-f]{64})")


@pytest.fixture(scope="module")
def now() -> dict[str, dict[str, Any]]:
    return everything()


def test_every_digest_of_the_corpus_is_what_this_fold_version_promised(
    now: dict[str, dict[str, Any]],
) -> None:
    then = json.loads(golden().read_bytes())
    moved = sorted(
        f"{fleet} {key}"
        for fleet in then
        for key in {*then[fleet]["turns"], *now.get(fleet, {"turns": {}})["turns"]}
        if then[fleet]["turns"].get(key) != now.get(fleet, {"turns": {}})["turns"].get(key)
    )
    assert moved == [], (
        f"the fold gives these turns another record: raise FOLD_VERSION above {FOLD_VERSION}, run python -m tests.golden, write the note"
    )


def test_what_stands_outside_of_turns_is_what_this_fold_version_promised(
    now: dict[str, dict[str, Any]],
) -> None:
    then = json.loads(golden().read_bytes())
    assert [fleet for fleet in then if now[fleet]["document"] != then[fleet]["document"]] == [], (
        f"calls, tools, findings, gaps or sums differ: raise FOLD_VERSION above {FOLD_VERSION}, run python -m tests.golden, write the note"
    )


def test_each_fold_version_has_its_file_and_a_note_with_its_hash_and_none_was_changed_afterwards() -> None:
    notes = {
        int(version): digest
        for path in sorted(DECISIONS.glob("*.md"))
        for version, digest in RECORDED.findall(path.read_text())
    }
    files = {
        version: sha256(golden(version).read_bytes()).hexdigest() for version in range(1, FOLD_VERSION + 1)
    }
    assert notes == files


def test_the_corpus_of_each_envelope_version_is_there_and_holds_every_event_type() -> None:
    for version in versions():
        found = [read(record) for records in fleets(version).values() for record in records]
        events = [one for one in found if isinstance(one, Event)]
        assert sorted({one.type for one in events} & set(EVENT_TYPES)) == sorted(EVENT_TYPES)
        assert {one.schema_version for one in events} >= {version}
