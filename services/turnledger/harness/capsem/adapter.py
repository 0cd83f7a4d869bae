"""Owns what the rows of a Capsem ``session.db`` mean in events: one stream a table, a row's number is its id.

``README.md`` beside this file says where each figure comes from.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from turnledger.contract.times import instant
from turnledger.harness import saying
from turnledger.harness.capsem import points
from turnledger.harness.facts import (
    GREATEST,
    ID_LIMIT,
    Envelope,
    Notes,
    count,
    cut,
    identifier,
    instant_text,
    known,
    mapping,
    moment_of,
    money,
    named,
    parsed,
    put_text,
    put_value,
    text,
)
from turnledger.harness.format import Format
from turnledger.harness.sources import DAMAGE, Source, is_key, rows_of, tables_of
from turnledger.harness.telling import EVENTS_A_RECORD, Numbered

PRODUCER = "capsem"
OUTPUT_VERSION = 1
TABLES = {"model_calls", "net_events", "tool_calls"}
CONVENTIONS = {
    "anthropic": "exclusive",
    "openai": "inclusive",
    "ollama": "inclusive",
    "google": "inclusive_thoughts_separate",
}
ORIGINS = {"native": "native", "local": "local", "builtin": "builtin", "mcp": "mcp", "mcp_proxy": "mcp"}
UNTOLD = frozenset(
    {
        "model_items",
        "event_body_blobs",
        "snapshot_events",
        "profile_mutation_events",
        "transport_events",
        "host_events",
    }
)
"""Tables that repeat what others tell, hold bodies (which stay where they are), or are no activity of the session."""
OF_A_CALL = ("timestamp", "timestamp_unix_ms", "duration_ms", "turn_id", "trace_id")
"""Columns that other rows need of a model call."""
SIDES = {"asked": "tool_calls", "answered": "tool_responses"}
"""Where a call uses tools' ids: asking for their work, and answered by it."""
MOST_ROWS = GREATEST // EVENTS_A_RECORD - 1
"""Ids from here on have no number among the events."""
_EVENT_ID = re.compile(r"(?!0{12})[0-9a-f]{12}", re.ASCII)

Row = Mapping[str, Any]


def is_database(tables: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether these are the tables of a session ledger of Capsem."""
    return tables.keys() >= TABLES and "decision" in tables["net_events"]


class _Call(NamedTuple):
    """What other rows need of a model call."""

    at: str | None
    began: str | None
    turn: str | None

    @classmethod
    def of(cls, row: Row, notes: Notes) -> _Call:
        """That of a row of ``model_calls``."""
        at = _time(row, notes)
        return cls(at, _before(at, row.get("duration_ms")), identifier(row.get("turn_id")) or _trace(row))


class _Calls:
    """The model calls by their numbers: looked up in the database where their table is ordered by them, else held."""

    def __init__(self, connection: sqlite3.Connection, columns: Collection[str]) -> None:
        self._connection = connection
        self._names = ", ".join(name for name in OF_A_CALL if name in columns)
        self._held: dict[int, _Call] | None = None if is_key(connection, "model_calls", "id") else {}
        self._last: tuple[int, _Call | None] = (-1, None)

    def add(self, number: int, call: _Call) -> None:
        """A call that was read."""
        if self._held is not None:
            self._held[number] = call

    def of(self, number: int | None) -> _Call | None:
        """The call of a number, where there is one."""
        if number is None or self._held is not None:
            return self._held.get(number) if self._held is not None and number is not None else None
        if self._last[0] != number:
            self._last = number, self._found(number)
        return self._last[1]

    def _found(self, number: int) -> _Call | None:
        if not self._names or number >= MOST_ROWS:
            return None
        try:
            row = self._connection.execute(
                f"SELECT {self._names} FROM model_calls WHERE id = ?", (number,)
            ).fetchone()
        except DAMAGE:
            return None
        return _Call.of(dict(row), Notes()) if row is not None else None


@dataclass(slots=True)
class _Ledger:
    """One database being told."""

    source: Source
    notes: Notes
    session: str
    calls: _Calls
    emitting: set[int] = field(default_factory=set)
    """Calls whose response asked for tools."""
    last_asked: int = -1
    """The greatest of them."""
    began: set[str] = field(default_factory=set)
    several: dict[str, frozenset[tuple[int, str]] | None] = field(default_factory=dict)
    """By side (asking, answering) the calls that use one tool's id more than once, with that id: early versions take the tool's name for it. None: it
    may be any."""
    used: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    """How often such a call used it so far."""
    asked: Counter[str] = field(default_factory=Counter)
    """How often one response asked under an id, at most. More answers than that are the same request sent again."""

    def stream(self, name: str) -> Numbered:
        return Numbered(PRODUCER, OUTPUT_VERSION, self.session, name)

    def number(self, row: Row) -> int | None:
        number = count(row.get("id"))
        if number is None or number >= MOST_ROWS:
            self.notes.traits["row_without_number"] += 1
            return None
        return number

    def tool_id(self, side: str, call: int, value: Any) -> str | None:
        """The id of a tool call; a name that one response used several times is told apart by its place."""
        name = identifier(value, ID_LIMIT - 24)
        if name is None:
            return None
        several = self.several.get(side)
        if several is not None and (call, name) not in several:
            return name
        self.used[side, call, name] += 1
        place = self.used[side, call, name]
        if side == "asked":
            self.asked[name] = max(self.asked[name], place)
        else:
            place = min(place, max(1, self.asked[name]))
        return name if place == 1 else f"{name}#{place}"


def read(source: Source, notes: Notes) -> Iterator[Envelope]:
    """The events of one database."""
    notes.traits["session_from_name"] += source.session is None
    session = named(source.session, source.path.absolute().parent.name)
    with source.database() as connection:
        tables = tables_of(connection)
        ledger = _Ledger(source, notes, session, _Calls(connection, tables.get("model_calls", ())))
        for side, table in SIDES.items():
            ledger.several[side] = _used_again(connection, table) if table in tables else None

        def rows(table: str) -> Iterator[Row]:
            return rows_of(connection, table, source.condition) if table in tables else iter(())

        for row in rows("tool_calls"):
            emitter = count(row.get("model_call_id"))
            if emitter is not None:
                ledger.emitting.add(emitter)
                ledger.last_asked = max(ledger.last_asked, emitter)
        yield from _table(ledger, "model_calls", rows("model_calls"), _model_call)
        yield from _table(ledger, "tool_calls", rows("tool_calls"), _tool_call)
        yield from _table(ledger, "tool_responses", rows("tool_responses"), _tool_response)
        yield from _table(ledger, "mcp_calls", rows("mcp_calls"), _mcp_call)
        for table, tell in points.TABLES.items():
            yield from _table(ledger, table, rows(table), _point(tell))
        for table in sorted(tables.keys() & UNTOLD):
            notes.untold[table] += int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
        for table in sorted(tables.keys() - UNTOLD - points.TABLES.keys() - KNOWN - {"sqlite_sequence"}):
            notes.unknown[f"table {table}"] += 1


KNOWN = frozenset({"model_calls", "tool_calls", "tool_responses", "mcp_calls"})
Tell = Callable[[_Ledger, Numbered, Row, int, str | None], Iterator[Envelope]]


def _table(ledger: _Ledger, name: str, rows: Iterator[Row], tell: Tell) -> Iterator[Envelope]:
    told, declared = ledger.stream(name), False
    for row in rows:
        number = ledger.number(row)
        if number is None:
            continue
        if not declared:
            declared = True
            told.at(0)
            yield told.event("stream.declared", {"density": "sparse"})
        told.at(number + 1)
        yield from tell(ledger, told, row, number, _time(row, ledger.notes))


def _event_id(row: Row) -> str | None:
    """A join key inside the session. Ledgers that were migrated carry a constant in old rows: no key at all."""
    value = row.get("event_id")
    return value if isinstance(value, str) and _EVENT_ID.fullmatch(value) else None


def _time(row: Row, notes: Notes) -> str | None:
    value = row.get("timestamp")
    return moment_of(value if value is not None else row.get("timestamp_unix_ms"), notes)


def _used_again(connection: sqlite3.Connection, table: str) -> frozenset[tuple[int, str]] | None:
    """(call, tool's id) that stand together in several rows; None where the database may tell apart what a reader does not, or cannot be asked."""
    odd = (
        f"SELECT 1 FROM {table} WHERE typeof(call_id) NOT IN ('text', 'null') OR call_id GLOB '*[^ -~]*'"
        " OR typeof(model_call_id) NOT IN ('integer', 'null') OR model_call_id <= 0 LIMIT 1"
    )
    again = f"SELECT model_call_id, call_id FROM {table} GROUP BY 1, 2 HAVING count(*) > 1"
    try:
        if connection.execute(odd).fetchone() is not None:
            return None
        found = [(row[0] or 0, row[1]) for row in connection.execute(again)]
    except DAMAGE:
        return None
    return frozenset(found)


def _trace(row: Row) -> str | None:
    return identifier(row.get("trace_id"))


def _model_call(ledger: _Ledger, told: Numbered, row: Row, number: int, at: str | None) -> Iterator[Envelope]:
    _at, began, turn = own = _Call.of(row, Notes())
    ledger.calls.add(number, own)
    protocol = text(row.get("protocol")) or text(row.get("provider")) or ""
    status = count(row.get("status_code"))
    facts: dict[str, Any] = known(
        {
            "provider": identifier(row.get("provider"), 128),
            "protocol": identifier(row.get("protocol"), 128),
            "model": identifier(row.get("model"), 256),
            "message_id": identifier(row.get("message_id")),
            "status_code": status,
            "stop_reason": text(row.get("stop_reason")),
            "latency_ms": count(row.get("duration_ms")),
            "request_bytes": count(row.get("request_bytes")),
            "response_bytes": count(row.get("response_bytes")),
            "token_convention": CONVENTIONS.get(protocol, "unknown"),
            "source": "response",
            "usage": usage_of(row),
            "reported_cost_usd": money(row.get("estimated_cost_usd")),
        }
    )
    if turn is not None and turn not in ledger.began:
        ledger.began.add(turn)
        yield told.event("turn.started", {}, at=began, turn=turn, trace=_trace(row), provenance="derived")
    call, failed = str(number), status is not None and status >= 400
    asked = known(
        {
            "provider": facts.get("provider"),
            "model": facts.get("model"),
            "method": text(row.get("method")),
            "path": text(row.get("path")),
            "messages_count": count(row.get("messages_count")),
            "tools_count": count(row.get("tools_count")),
        }
    )
    yield told.event("model_call.started", asked, at=began, call=call, turn=turn, trace=_trace(row))
    if failed:
        reason = text(row.get("text_content"))
        payload = (
            saying.failure(reason, **facts)
            if status is None
            else {**facts, **saying.failure(reason, status=status)}
        )
        yield told.event(
            "model_call.failed",
            payload,
            at=at,
            call=call,
            turn=turn,
            trace=_trace(row),
            event_id=_event_id(row),
        )
        return
    put_text(facts, "text", text(row.get("text_content")))
    put_text(facts, "thinking", text(row.get("thinking_content")))
    yield told.event(
        "model_call.completed", facts, at=at, call=call, turn=turn, trace=_trace(row), event_id=_event_id(row)
    )
    stop = text(row.get("stop_reason")) or ""
    if turn is not None and ledger.source.unsettled and number > ledger.last_asked:
        ledger.source.hold()  # it ends the turn, unless the rows of its tools are still to come
    elif turn is not None and number not in ledger.emitting and "tool" not in stop:
        said = text(row.get("text_content"))
        if said is not None and said.strip():
            yield told.event("answer.finalized", saying.answer(said), at=at, call=call, turn=turn)
        yield told.event("turn.completed", saying.ended("completed"), at=at, turn=turn, provenance="derived")


def usage_of(row: Row) -> dict[str, int] | None:
    """The counters of a row; None where neither is known. What the details leave out was not used: Capsem stores what it read."""
    details = mapping(parsed(row.get("usage_details")))
    found = known({"input": count(row.get("input_tokens")), "output": count(row.get("output_tokens"))})
    if not found:
        return None
    for ours, theirs in (("cache_read", "cache_read"), ("reasoning", "thinking")):
        value = count(details.get(theirs)) if theirs in details else 0
        if value is not None:
            found[ours] = value
    return found


def _before(at: str | None, duration_ms: Any) -> str | None:
    """When a call began: a row's time is that of its end."""
    when, duration = instant(at) if at is not None else None, count(duration_ms)
    return instant_text(when - duration * 1000) if when is not None and duration is not None else at


def _tool_call(ledger: _Ledger, told: Numbered, row: Row, number: int, at: str | None) -> Iterator[Envelope]:
    origin = text(row.get("origin")) or "native"
    emitter = count(row.get("model_call_id"))
    if emitter is None:
        yield from _observed(told, row, number, at)
        return
    call = ledger.calls.of(emitter)
    at = at or (call.at if call is not None else None)
    name, extra = text(row.get("tool_name")), {}
    if origin == "mcp_proxy" and name is not None and "__" in name:
        # The model's side of an MCP call. Its transport is another row with no key in common but the tool's own name.
        extra = {"proxy_name": cut(name, 256)[0]}
        name = name.removeprefix("mcp__").split("__", 1)[-1] or name
    payload = known(
        {
            "tool_name": identifier(name, 256),
            "call_tool_origin": ORIGINS.get(origin, "unknown"),
            "call_index": count(row.get("call_index")),
            **extra,
        }
    )
    given = saying.requested(None, parsed(row.get("arguments")))
    payload.update({key: value for key, value in given.items() if key != "call_tool_origin"})
    turn = identifier(row.get("turn_id")) or _trace(row) or (call.turn if call is not None else None)
    linked = count(row.get("mcp_call_id"))
    yield told.event(
        "tool_call.requested",
        payload,
        at=at,
        call=str(emitter),
        tool=ledger.tool_id("asked", emitter, row.get("call_id")) if linked is None else f"mcp:{linked}",
        turn=turn,
        trace=_trace(row),
        event_id=_event_id(row),
    )


def _observed(
    told: Numbered, row: Row, number: int, at: str | None, *, tool: str | None = None
) -> Iterator[Envelope]:
    """What the gateway saw of an MCP exchange: request and response in one row."""
    fields = known(
        {
            "method": text(row.get("method")) or "tools/call",
            "server_name": identifier(row.get("server_name"), 256),
            "tool_name": identifier(row.get("tool_name"), 256),
            "request_id": identifier(row.get("request_id")) or f"row-{number}",
        }
    )
    request: dict[str, Any] = {**fields, "direction": "request"}
    put_value(request, "arguments", parsed(row.get("arguments") or row.get("request_preview")))
    began = _before(at, row.get("duration_ms"))
    trace, own = _trace(row), _event_id(row)
    yield told.event("mcp.observed", request, at=began, tool=tool, trace=trace, event_id=own)
    decision, error = text(row.get("decision")), text(row.get("error_message"))
    response = known(
        {
            **fields,
            "direction": "response",
            "status": "error" if error is not None or decision in ("error", "denied") else "ok",
            "duration_ms": count(row.get("duration_ms")),
            "bytes_sent": count(row.get("bytes_sent")),
            "bytes_received": count(row.get("bytes_received")),
            "transport": text(row.get("transport")),
            "decision": decision,
        }
    )
    put_text(response, "error_message", error, saying.MESSAGE_LIMIT)
    put_text(response, "preview", text(row.get("response_preview")))
    yield told.event("mcp.observed", response, at=at, tool=tool, trace=trace, event_id=own)


def _mcp_call(ledger: _Ledger, told: Numbered, row: Row, number: int, at: str | None) -> Iterator[Envelope]:
    yield from _observed(
        told, row, number, at, tool=f"mcp:{number}" if row.get("method") == "tools/call" else None
    )


def _tool_response(
    ledger: _Ledger, told: Numbered, row: Row, number: int, at: str | None
) -> Iterator[Envelope]:
    """What a later request carried back to the model: no time of its own, so that of the beginning of the call that consumed it."""
    consumer = count(row.get("model_call_id"))
    call = ledger.calls.of(consumer)
    tool = ledger.tool_id("answered", consumer or 0, row.get("call_id"))
    turn = identifier(row.get("turn_id")) or _trace(row) or (call.turn if call is not None else None)
    when = at or (call.began if call is not None else None)
    result = saying.completed(row.get("is_error") == 1, text(row.get("content_preview")))
    yield told.event(
        "tool_call.completed",
        result,
        at=when,
        tool=tool,
        turn=turn,
        trace=_trace(row),
        event_id=_event_id(row),
    )
    if tool is not None and consumer is not None:
        yield told.event(
            "tool_results.submitted", {"tool_call_ids": [tool]}, at=when, call=str(consumer), turn=turn
        )


def _point(tell: points.Tell) -> Tell:
    def told_by(
        ledger: _Ledger, told: Numbered, row: Row, _number: int, at: str | None
    ) -> Iterator[Envelope]:
        for kind, payload in tell(row):
            # A security row's event_id is that of the row that triggered it.
            own = None if kind.startswith("security.") else _event_id(row)
            yield told.event(kind, payload, at=at, trace=_trace(row), event_id=own)

    return told_by


FORMAT = Format(
    name=PRODUCER,
    title="Capsem",
    files="<run>/<vm>/session.db",
    versions="B1 of spring 2026 (real database), B2 of August 2026 (described)",
    usage="exact, per call; null where the response did not say; Anthropic cache writes are never stored",
    cost="reported, per call (an estimate of Capsem's own)",
    latency="of calls, requests and tools",
    tools="requests, results, MCP exchanges",
    turns="traces; begun by their first call, ended by a response without tools (both derived)",
    cannot="its own session id (name it with --session); which MCP exchange a model's call led to, except by name and time",
    database=read,
    is_database=is_database,
)
