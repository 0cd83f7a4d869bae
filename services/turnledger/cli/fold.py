"""`turnledger fold`: what the worker and the rollup worker would make of NDJSON envelopes, without broker and database."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from turnledger.errors import TurnledgerError

CHUNK = 1 << 20
"""Bytes read at a time."""


def register(app: typer.Typer) -> None:
    """Add ``fold``."""
    app.command("fold")(fold)


def fold(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE…", help="NDJSON envelopes, in this order; - is standard input."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Fold envelopes and print what they mean: turns, calls, usage, cost, gaps, and what could not be read."""
    from functools import partial

    from turnledger.contract.redact import Redactor
    from turnledger.fold.document import document
    from turnledger.pricing import packaged, price_call
    from turnledger.settings import Settings

    settings = Settings()
    found = document(
        _lines(files),
        partial(price_call, packaged()),
        limit=settings.record_limit_bytes,
        redactor=Redactor(slot_key=settings.slot_key()),
    )
    if as_json:
        from turnledger.contract.canonical import dumps

        sys.stdout.buffer.write(dumps(found) + b"\n")
        sys.stdout.buffer.flush()
    else:
        _summary(found)


def _lines(files: Iterable[str]) -> Iterator[bytes]:
    """The lines of all files as those of one partition. Raises :class:`TurnledgerError` where a file cannot be read."""
    from turnledger.fold.document import lines

    for name in files:
        yield from lines(_chunks(name))


def _chunks(name: str) -> Iterator[bytes]:
    try:
        if name == "-":
            if sys.stdin is None:
                raise ValueError("standard input is closed")
            while chunk := sys.stdin.buffer.read(CHUNK):
                yield chunk
            return
        with Path(name).open("rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise TurnledgerError(
            f"cannot read {name} ({reason}): give NDJSON files that exist and may be read, or - for standard input."
        ) from None


def _summary(found: dict[str, Any]) -> None:
    """The same for a person: sums, and everything that is not as it should be."""
    from turnledger.doctor.pages import sessions_page
    from turnledger.doctor.tables import count, show

    out, records = sys.stdout, found["records"]
    read = ", ".join(
        f"{count(records[name])} {name}" for name in ("accepted", "duplicates", "conflicts", "dead")
    )
    out.write(f"{count(records['read'])} records: {read}\n\n")
    if found["sessions"]:
        sessions_page(out, found["sessions"])
    place = ("session_id", "producer", "epoch", "stream")
    show(
        out,
        "gaps",
        ["session", "producer", "epoch>", "stream", "from>", "to>", "state"],
        [[gap[name] for name in (*place, "from_seq", "to_seq", "state")] for gap in found["gaps"]],
    )
    show(
        out,
        "conflicts: the first stays, the other was refused",
        ["session", "producer", "epoch>", "stream", "position", "kept", "refused", "times>"],
        [
            [
                *(row[name] for name in place),
                row["seq"] if row["seq"] is not None else row["receipt_key"],
                row["kept_sha256"][:12],
                row["lost_sha256"][:12],
                row["count"],
            ]
            for row in found["conflicts"]
        ],
    )
    show(
        out,
        "dead letters",
        ["line>", "reason", "field", "detail", "session"],
        [
            [row[name] for name in ("position", "reason", "field", "detail", "session_id")]
            for row in found["dead_letters"]
        ],
    )
    show(
        out,
        "findings",
        ["session", "check", "severity", "count>"],
        [[row[name] for name in ("session_id", "check", "severity", "count")] for row in found["findings"]],
    )
    out.write(f"digest {found['digest']}\n")
