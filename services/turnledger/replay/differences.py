"""What differs between two generations, field by field, and the events behind it: for people, a session at a time (`turnledger replay diff`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from decimal import Decimal
from typing import Any

import orjson
from psycopg import sql

from turnledger.contract.event import Event
from turnledger.doctor.rows import load
from turnledger.fold.order import ordered
from turnledger.fold.turns import membership, superseded_streams
from turnledger.replay import compare
from turnledger.replay.generation import Connection, NotNow, Rebuild
from turnledger.store.instants import load_as_microseconds
from turnledger.store.read import session_events

Row = dict[str, Any]

EVENTS_SHOWN = 10
LONGEST = 200
"""Characters of a value that are shown."""

_KEYS: dict[str, tuple[str, ...]] = {
    "turns": ("turn_key",),
    "turn_records": ("turn_key",),
    "model_calls": ("call_key",),
    "tool_calls": ("tool_key",),
    "usage_parts": ("part_key",),
    "session_facts": (),
    "findings": ("turn_key", "source", "check"),
    "call_overlay": ("call_key",),
    "part_overlay": ("part_key",),
    "turn_overlay": ("turn_key",),
    "repriced": ("call_key", "part_key", "run_no"),
    "hour_parts": ("hour", "provider", "model"),
    "sessions": (),
    "ai_usage": ("provider", "model"),
    "tool_usage": ("tool_name", "origin"),
    "mcp_usage": ("server_name", "tool_name"),
    "model_items": ("stream_no", "seq", "item_type"),
    "tool_responses": ("stream_no", "seq", "response_index"),
}
"""What tells the rows of a session apart; of all others their position."""
_POSITION = ("stream_no", "seq")


class Differences:
    """Of the rebuild that is open."""

    def __init__(self, connection: Connection, rebuild: Rebuild | None) -> None:
        """Raises ``NotNow`` where none is."""
        if rebuild is None:
            raise NotNow(
                "no rebuild is open, so that there is nothing to compare: `turnledger replay projections` begins one."
            )
        self.connection = connection
        self.rebuild = rebuild
        load_as_microseconds(connection)

    def told(self, count: int, session: str | None = None) -> Row:
        """How many sessions differ, the digest of their list, and ``count`` of them (or the one asked for) field by field."""
        found = compare.diff(self.connection)
        chosen = [
            one for one in found.sessions if session is None or session in (f"{one[1]}/{one[2]}", one[2])
        ][:count]
        return {
            "generation": self.rebuild.generation,
            "sessions": len(found.sessions),
            "digest": None if found.digest is None else found.digest.hex(),
            "differences": [
                {
                    "tenant": tenant,
                    "session_id": session_id,
                    "tables": tables,
                    "fields": self.fields(number, tables),
                }
                for number, tenant, session_id, tables in chosen
            ],
        }

    def fields(self, session_no: int, tables: Iterable[str]) -> list[Row]:
        """Every field of a session that differs, ordered by table and key."""
        behind = _Behind(session_events(self.connection, session_no))
        rows: list[Row] = []
        for table in tables:
            live, rebuilt = (
                self._rows(schema, table, session_no) for schema in (self.rebuild.live, self.rebuild.slot)
            )
            for key in sorted({*live, *rebuilt}, key=repr):
                rows += self._of_row(table, key, live.get(key), rebuilt.get(key), behind)
        return rows

    def _of_row(
        self, table: str, key: Hashable, live: Row | None, rebuilt: Row | None, behind: _Behind
    ) -> list[Row]:
        some = live or rebuilt or {}
        events = behind.of(some)
        named = {
            "table": table,
            "key": " ".join(map(str, key)) if isinstance(key, tuple) else str(key),
            "events": [_place(event) for event in events[:EVENTS_SHOWN]],
            "event_count": len(events),
        }
        if live is None or rebuilt is None:
            word = {True: "there", False: "not there"}
            return [
                {
                    **named,
                    "field": "row",
                    "live": word[live is not None],
                    "rebuilt": word[rebuilt is not None],
                }
            ]
        return [
            {**named, "field": name, "live": _shown(one), "rebuilt": _shown(other)}
            for name, one, other in _unequal(live, rebuilt)
        ]

    def _rows(self, schema: str, table: str, session_no: int) -> dict[Hashable, Row]:
        names = (compare.FOLDED | compare.SUMMED)[table]
        numbered = table in ("turn_records", "turn_overlay", "findings")
        listed = [*names, *(["turn_no"] if numbered else [])]
        where = sql.SQL("source in ('fold', 'rollup')") if table == "findings" else None
        found = load(self.connection, schema, table, listed, [session_no], where)
        if numbered:
            keys = {
                row["turn_no"]: row["turn_key"]
                for row in load(self.connection, schema, "turns", ["turn_no", "turn_key"], [session_no])
            }
            for row in found:
                row["turn_key"] = keys.get(row.pop("turn_no"))
        for row in found:
            if table == "turn_records":
                row["record"] = orjson.loads(bytes(row["record"]))
        key = _key_of(_KEYS.get(table, _POSITION))
        return {key(row): row for row in found}


def _key_of(names: tuple[str, ...]) -> Callable[[Row], Hashable]:
    return lambda row: tuple(row[name] for name in names)


def _unequal(
    live: Mapping[str, Any], rebuilt: Mapping[str, Any], prefix: str = ""
) -> Iterable[tuple[str, Any, Any]]:
    """Fields that differ, inside documents too."""
    for name in sorted({*live, *rebuilt}):
        one, other = live.get(name), rebuilt.get(name)
        if one == other:
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _unequal(one, other, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", one, other


def _shown(value: Any) -> Any:
    if isinstance(value, bytes | memoryview):
        value = bytes(value).hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    if value is None or isinstance(value, bool | int):
        return value
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _place(event: Event) -> Row:
    return {
        "producer": event.producer,
        "epoch": event.epoch,
        "stream": event.stream,
        "seq": event.seq,
        "receipt_key": None if event.seq is not None else event.receipt_key,
        "type": event.type,
    }


class _Behind:
    """The events of a session, by what rows follow from them."""

    def __init__(self, events: list[Event]) -> None:
        left_out = superseded_streams(events)
        self.events = ordered(
            event for event in events if (event.producer, event.epoch, event.stream) not in left_out
        )
        members = membership(self.events)
        self.turns = {turn.key: turn.events for turn in members.turns}

    def of(self, row: Row) -> list[Event]:
        """Those behind a row: of its turn, and of its call or tool where it names one. Session-level rows follow from all of them."""
        among = self.turns.get(row.get("turn_key") or "", self.events)
        for name, wanted in (
            ("model_call_id", row.get("model_call_id")),
            ("tool_call_id", row.get("call_id")),
        ):
            if wanted is not None:
                named = [event for event in among if getattr(event, name) == wanted]
                if named:
                    return named
        message = row.get("message_id")
        if message is not None:
            named = [event for event in among if event.payload.get("message_id") == message]
            if named:
                return named
        return among
