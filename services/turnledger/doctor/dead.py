"""Dead letters for people and scripts: which there are, and one of them whole, its bytes shown safely. Writes nothing."""

from __future__ import annotations

from typing import Any, TextIO

import psycopg

from turnledger.contract.shapes import hide_bytes
from turnledger.doctor.rows import Row, told
from turnledger.doctor.tables import count as figure
from turnledger.doctor.tables import safe, second, show
from turnledger.store.dead import Chosen, NoSuchLetter, choosing
from turnledger.store.named import query

PREVIEW = 2000
"""Characters of a record that are shown."""


def list_letters(connection: psycopg.Connection[Any], chosen: Chosen, *, count: int = 20) -> Row:
    """{dead_letters: the latest ``count`` of those that are chosen, counts: [{reason, open, letters}] of all of them, stops: partitions that
    stand still}. Rows are those of the views."""
    values = chosen.values()
    return {
        "dead_letters": told(connection, choosing("dead/list"), values | {"count": count}),
        "counts": told(connection, choosing("dead/counts"), values),
        "stops": told(connection, query("dead/stops"), {}),
    }


def show_letter(connection: psycopg.Connection[Any], number: int) -> Row:
    """One letter: its row in the view, with ``key`` and ``raw`` as bytes. Raises ``NoSuchLetter``."""
    rows = told(connection, query("dead/show"), {"id": number})
    if not rows:
        raise NoSuchLetter(
            f"there is no dead letter {number}: `turnledger dead list --all` shows those that there are."
        )
    row = rows[0]
    for name in ("key", "raw"):
        row[name] = None if row[name] is None else bytes(row[name])
    return row


def preview(raw: bytes | None, limit: int = PREVIEW) -> str | None:
    """Bytes as text that harms no terminal and tells no secret (contract 14): hidden first, then cut."""
    if raw is None:
        return None
    text = safe(hide_bytes(raw).decode("utf-8", "backslashreplace"))
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more characters)"


def list_page(out: TextIO, found: Row, chosen: Chosen) -> None:
    """The table, counts by reason, and partitions that stand still."""
    letters = found["dead_letters"]
    if not letters:
        out.write(
            "no dead letters are open.\n\n"
            if chosen == Chosen()
            else "no dead letters are meant by that.\n\n"
        )
    settled = not chosen.only_open
    show(
        out,
        "dead letters",
        ["id>", "topic", "partition>", "position>", "reason", "field", "session", "bytes>", "recorded", *(["became"] if settled else [])],
        [
            [
                row["id"],
                row["topic"],
                row["partition"],
                row["position"],
                row["reason"],
                row["field"],
                session_name(row),
                figure(row["raw_bytes"]),
                second(row["recorded_at"]),
                *([row["outcome"]] if settled else []),
            ]
            for row in letters
        ],
    )  # fmt: skip
    show(
        out,
        "by reason",
        ["reason", "dead>", *(["all>"] if settled else [])],
        [
            [row["reason"], figure(row["open"]), *([figure(row["letters"])] if settled else [])]
            for row in found["counts"]
        ],
    )
    if letters and sum(row["letters"] for row in found["counts"]) > len(letters):
        out.write(f"the latest {len(letters)} are shown; -n shows more.\n\n")
    show(
        out,
        "partitions that stand still",
        ["topic", "partition>", "at>", "dead>", "of the last>", "since"],
        [
            [
                row["topic"],
                row["partition"],
                row["at_offset"],
                figure(row["dead"]),
                figure(row["records_window"]),
                second(row["stopped_at"]),
            ]
            for row in found["stops"]
        ],
    )


def letter_page(out: TextIO, row: Row) -> None:
    """One letter."""
    kept = row["raw"]
    cut = "" if kept is None or len(kept) == row["raw_bytes"] else f", {figure(len(kept))} kept"
    size = None if row["raw_bytes"] is None else f"{figure(row['raw_bytes'])} bytes{cut}"
    for name, value in (
        ("letter", row["id"]),
        ("topic", row["topic"]),
        ("partition", row["partition"]),
        ("position", row["position"]),
        ("reason", row["reason"]),
        ("field", row["field"]),
        ("detail", row["detail"]),
        ("session", session_name(row)),
        ("recorded", second(row["recorded_at"])),
        ("tried again", second(row["tried_at"])),
        ("state", _state(row)),
        ("headers", "not kept"),
        ("size", size),
        ("key", preview(row["key"])),
    ):
        out.write(f"{name:<13}{safe(value)}\n")
    shown = preview(kept)
    if shown is None:
        shown = (
            "none: its event is in the ledger, a row of its projection was refused"
            if row["batch_no"] is None
            else "none: a tombstone"
        )
    out.write(f"{'record':<13}{shown}\n")


def session_name(row: Row) -> str | None:
    """``session``, or ``tenant/session`` where the tenant is not the default."""
    if row["session_id"] is None:
        return None
    return str(row["session_id"]) if row["tenant"] == "default" else f"{row['tenant']}/{row['session_id']}"


def _state(row: Row) -> str:
    if row["outcome"] is None:
        return "dead"
    how = ", corrected" if row["fixed"] else ""
    return f"{row['outcome']}{how}: requeued {second(row['requeued_at'])} by {row['requeued_by']}"
