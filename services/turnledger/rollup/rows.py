"""Reads one session's projected rows as the pure sums take them, and puts back what they say. One COPY a table, only what moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import psycopg
from psycopg import sql

from turnledger.fold import columns
from turnledger.fold.model import Row
from turnledger.fold.order import ordered
from turnledger.fold.rollup import SessionRollup, SessionRows, overlay
from turnledger.fold.turns import membership, superseded_streams
from turnledger.store.named import query
from turnledger.store.read import session_events
from turnledger.store.write import FINDINGS, copy
from turnledger.store.write_binary import RowEncoder

Connection = psycopg.Connection[Any]

_SESSION = (("session_no", "int8"),)
CALL_OVERLAY = RowEncoder(_SESSION, columns.CALL_OVERLAY)
PART_OVERLAY = RowEncoder(_SESSION, columns.PART_OVERLAY)
TURN_OVERLAY = RowEncoder((*_SESSION, ("turn_no", "int4"), ("digest", "text")), columns.TURN_OVERLAY)
ROLLUPS = {
    "sessions": RowEncoder(_SESSION, columns.SESSIONS),
    "ai_usage": RowEncoder(_SESSION, columns.AI_USAGE),
    "tool_usage": RowEncoder(_SESSION, columns.TOOL_USAGE),
    "mcp_usage": RowEncoder(_SESSION, columns.MCP_USAGE),
}
HOUR_PARTS = RowEncoder((*_SESSION, ("tenant", "text")), columns.HOUR_PARTS)
HOUR_MARK = RowEncoder((("tenant", "text"),), columns.HOUR_PARTS[:3])

DERIVED = ("call_overlay", "part_overlay", "turn_overlay", *ROLLUPS)
"""Tables of which a session's rows follow from its projected rows, its family and prices alone, beside ``hour_parts`` and findings."""


class Torn(Exception):
    """Rows of one session are of two commits: ingest wrote in between. Its mark is there already; read again."""


@dataclass(slots=True)
class Loaded:
    """One session as the projections hold it."""

    session_no: int
    rows: SessionRows
    turn_numbers: dict[str, int]
    """turn_key: turn_no."""
    digests: dict[str, str]
    """turn_key: digest of its record."""
    conflicts: list[Row]
    dead_letters: list[Row]


class Statements:
    """The named queries of one generation on one connection. Rows come as dicts, instants in µs."""

    def __init__(self, connection: Connection, slot: str) -> None:
        """``connection`` loads instants as µs (``store.instants``); ``slot``: schema of the generation, from ``store.read.active_slot``."""
        self.connection = connection
        self.slot = slot

    def text(self, name: str) -> bytes:
        return query(f"rollup/{name}").replace(b"{slot}", self.slot.encode())

    def rows(self, name: str, **values: object) -> list[Row]:
        with self.connection.cursor(binary=True) as cursor:
            cursor.execute(self.text(name), values)
            names = [column.name for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def value(self, name: str, **values: object) -> Any:
        """The first column of the first row, None without a row."""
        row = self.connection.execute(self.text(name), values).fetchone()
        return None if row is None else row[0]

    def run(self, name: str, **values: object) -> int:
        """How many rows it touched."""
        return self.connection.execute(self.text(name), values).rowcount


def load(do: Statements, session_no: int) -> Loaded | None:
    """Everything that the sums of a session are made from; None where ingest has not projected it (any more)."""
    found = do.rows("session", session_no=session_no)
    facts = do.rows("facts", session_no=session_no)
    if not found or not facts:
        return None
    tenant, session_id = found[0]["tenant"], found[0]["session_id"]
    turns = do.rows("turns", session_no=session_no)
    conflicts = do.rows("conflicts", session_no=session_no)
    dead_letters = do.rows("dead_letters", tenant=tenant, session_id=session_id)
    rows = SessionRows(
        tenant=tenant,
        session_id=session_id,
        facts=facts[0],
        turns=turns,
        calls=do.rows("model_calls", session_no=session_no),
        tools=do.rows("tool_calls", session_no=session_no),
        contributions=do.rows("contributions", session_no=session_no),
        loose_checks=frozenset(row["check"] for row in do.rows("loose_checks", session_no=session_no)),
        open_gaps=do.value("open_gaps", session_no=session_no),
        conflicts=len(conflicts),
        dead_letters=len(dead_letters),
        disputed_turns=_disputed(do.connection, session_no, conflicts),
    )
    return Loaded(
        session_no,
        rows,
        {turn["turn_key"]: turn["turn_no"] for turn in turns},
        {turn["turn_key"]: turn["digest"] for turn in turns},
        conflicts,
        dead_letters,
    )


def _disputed(connection: Connection, session_no: int, conflicts: Sequence[Row]) -> frozenset[str]:
    """Turns with the kept event of a conflict (contract 13). Membership is decided on the whole set, so a disputed session is read whole."""
    if not conflicts:
        return frozenset()
    places = {
        tuple(row[name] for name in ("producer", "epoch", "stream", "seq", "receipt_key"))
        for row in conflicts
    }
    events = session_events(connection, session_no)
    left_out = superseded_streams(events)
    kept = [event for event in events if (event.producer, event.epoch, event.stream) not in left_out]
    return frozenset(
        turn.key
        for turn in membership(ordered(kept)).turns
        for event in turn.events
        if (
            event.producer,
            event.epoch,
            event.stream,
            event.seq,
            None if event.seq is not None else event.receipt_key,
        )
        in places
    )


# --- writing ----------------------------------------------------------------------------------------------------------------------


def put(do: Statements, loaded: Loaded, rollup: SessionRollup, findings: Iterable[Row]) -> bool:
    """Set all rows of a session that follow from others; True when its share of ``usage_hourly`` moved.

    ``findings``: groups as ``fold.findings.grouped`` gives them.
    """
    moved = _put_calls(do, loaded, rollup)
    _replace_if_moved(do, loaded.session_no, "part_overlay", "laid_parts", PART_OVERLAY, rollup.parts)
    _put_turns(do, loaded, rollup, moved)
    for table, encoder in ROLLUPS.items():
        rows = [rollup.session] if table == "sessions" else getattr(rollup, table)
        _replace(do, loaded.session_no, table, encoder, rows)
    _put_findings(do, loaded.session_no, findings)
    return _put_hours(do, loaded.session_no, loaded.rows.tenant, rollup.hour_parts)


def remove(do: Statements, session_no: int) -> bool:
    """Take back everything of a session that is projected no more; True when its share of ``usage_hourly`` moved."""
    for table in DERIVED:
        _delete(do, table, "session_no = %s", session_no)
    _delete(do, "call_claims", "session_no = %s", session_no)
    _put_findings(do, session_no, ())
    found = do.rows("session", session_no=session_no)
    return _put_hours(do, session_no, found[0]["tenant"], []) if found else False


def _put_calls(do: Statements, loaded: Loaded, rollup: SessionRollup) -> set[str]:
    """Keys of the calls whose overlay moved."""
    before = {row["call_key"]: row for row in do.rows("laid_calls", session_no=loaded.session_no)}
    names = [name for name, _ in columns.CALL_OVERLAY]
    moved = [row for row in rollup.calls if not _same(before.get(row["call_key"]), row, names)]
    gone = before.keys() - {row["call_key"] for row in rollup.calls}
    stale = [key for key in [*gone, *(row["call_key"] for row in moved)] if key in before]
    if stale:
        _delete(do, "call_overlay", "session_no = %s and call_key = any(%s)", loaded.session_no, stale)
    _copy(do, "call_overlay", CALL_OVERLAY, [CALL_OVERLAY.encode(loaded.session_no, row) for row in moved])
    return {row["call_key"] for row in moved}


def _put_turns(do: Statements, loaded: Loaded, rollup: SessionRollup, moved_calls: set[str]) -> None:
    """Overlays of turns whose record, calls or sums moved: only their records are read."""
    before = {row["turn_no"]: row for row in do.rows("laid_turns", session_no=loaded.session_no)}
    names = [name for name, _ in columns.TURN_OVERLAY if name != "overlay"]
    moved: dict[int, str] = {}
    for key, sums in rollup.turns.items():
        turn_no = loaded.turn_numbers[key]
        known = before.get(turn_no)
        if (
            known is None
            or known["digest"] != loaded.digests[key]
            or not _same(known, sums.row, names)
            or known["overlay"].get("inherited_usage") != sums.inherited_usage
            or any(call["call_key"] in moved_calls for call, _ in sums.calls)
        ):
            moved[turn_no] = key
    stale = [no for no in before if no in moved or no not in loaded.turn_numbers.values()]
    if stale:
        _delete(do, "turn_overlay", "session_no = %s and turn_no = any(%s)", loaded.session_no, stale)
    if not moved:
        return
    records = {
        row["turn_no"]: row for row in do.rows("records", session_no=loaded.session_no, turns=list(moved))
    }
    encoded = []
    for turn_no, key in moved.items():
        stored, sums = records.get(turn_no), rollup.turns[key]
        if stored is None or stored["digest"] != loaded.digests[key]:
            raise Torn(key)
        try:
            laid = overlay(orjson.loads(stored["record"]), sums)
        except ValueError as error:
            raise Torn(key) from error
        encoded.append(
            TURN_OVERLAY.encode(loaded.session_no, turn_no, stored["digest"], {**sums.row, "overlay": laid})
        )
    _copy(do, "turn_overlay", TURN_OVERLAY, encoded)


def _put_findings(do: Statements, session_no: int, findings: Iterable[Row]) -> None:
    _delete(do, "findings", "session_no = %s and source = 'rollup'", session_no)
    _copy(do, "findings", FINDINGS, [FINDINGS.encode(session_no, None, "rollup", row) for row in findings])


def _put_hours(do: Statements, session_no: int, tenant: str, parts: Sequence[Row]) -> bool:
    """Replace the session's share where it moved and mark the buckets that are stale now (design 5, step 5)."""
    names = [name for name, _ in columns.HOUR_PARTS]
    key_of = ("hour", "provider", "model")
    before = {
        tuple(row[name] for name in key_of): row for row in do.rows("hour_parts", session_no=session_no)
    }
    after = {tuple(row[name] for name in key_of): row for row in parts}
    moved = [key for key in {**before, **after} if not _same(before.get(key), after.get(key), names)]
    if not moved:
        return False
    _delete(do, "hour_parts", "session_no = %s", session_no)
    _copy(do, "hour_parts", HOUR_PARTS, [HOUR_PARTS.encode(session_no, tenant, row) for row in parts])
    _copy(
        do,
        "hour_marks",
        HOUR_MARK,
        [HOUR_MARK.encode(tenant, dict(zip(key_of, key, strict=True))) for key in moved],
    )
    return True


def _replace_if_moved(
    do: Statements, session_no: int, table: str, name: str, encoder: RowEncoder, rows: Sequence[Row]
) -> None:
    before = do.rows(name, session_no=session_no)
    names = [column for column in encoder.names if column != "session_no"]
    if len(before) != len(rows) or not all(
        _same(old, new, names)
        for old, new in zip(sorted(before, key=_part_key), sorted(rows, key=_part_key), strict=True)
    ):
        _replace(do, session_no, table, encoder, rows)


def _part_key(row: Row) -> str:
    return str(row["part_key"])


def _replace(do: Statements, session_no: int, table: str, encoder: RowEncoder, rows: Iterable[Row]) -> None:
    _delete(do, table, "session_no = %s", session_no)
    _copy(do, table, encoder, [encoder.encode(session_no, row) for row in rows])


def _delete(do: Statements, table: str, where: str, *values: object) -> None:
    statement = sql.SQL("delete from {} where " + where).format(sql.Identifier(do.slot, table))
    do.connection.execute(statement, values)


def _copy(do: Statements, table: str, encoder: RowEncoder, rows: Sequence[bytes]) -> None:
    copy(do.connection, f"{do.slot}.{table}", encoder.names, rows)


def _same(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None, names: Iterable[str]) -> bool:
    if one is None or other is None:
        return one is other
    return all(one[name] == other[name] for name in names)
