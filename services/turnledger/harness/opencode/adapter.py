"""Owns what OpenCode's rows mean in events: sessions, messages and parts, each by itself, wherever they are stored.

``README.md`` beside this file says where each figure comes from.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from turnledger.harness import saying
from turnledger.harness.documents import Document
from turnledger.harness.facts import (
    SESSION_LIMIT,
    Envelope,
    Notes,
    count,
    digest,
    each_object,
    identifier,
    known,
    mapping,
    moment_of,
    money,
    objects,
    text,
)
from turnledger.harness.format import Format
from turnledger.harness.reading import quarantine
from turnledger.harness.sources import DAMAGE, Source, indexed, rows_of, tables_of
from turnledger.harness.telling import ANSWERED, ENDED, STARTED, Told

PRODUCER = "opencode"
OUTPUT_VERSION = 1
UNTOLD_PARTS = frozenset(
    {"step-start", "step-finish", "reasoning", "snapshot", "patch", "file", "agent", "subtask", "retry"}
)
"""Parts that tell nothing of their own; ``step-finish`` repeats the message's usage."""
ENDINGS = frozenset({"stop", "length", "content-filter"})


def is_document(document: Document) -> bool:
    """Whether a JSON value is an export, or one of the files of the older store."""
    top = mapping(document.top)
    if isinstance(top.get("messages"), list) and _is("ses_", mapping(top.get("info")).get("id")):
        return True
    key = top.get("id")
    if _is("ses_", key):
        return "projectID" in top or "directory" in top
    if _is("msg_", key):
        return _is("ses_", top.get("sessionID")) and "role" in top
    return _is("prt_", key) and _is("msg_", top.get("messageID")) and "type" in top


def is_database(tables: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether these are the tables of OpenCode's database."""
    return (
        "session" in tables
        and {"id", "session_id", "data"} <= set(tables.get("message", ()))
        and {"id", "message_id", "data"} <= set(tables.get("part", ()))
    )


def usage_of(value: Any) -> tuple[dict[str, int] | None, str]:
    """(counters, source). The contract's output holds the reasoning; whether the given one does, the total says, else it is an estimate.

    Zeros everywhere are a call that was aborted or is not over: unknown.
    """
    tokens = mapping(value)
    cache = mapping(tokens.get("cache"))
    found = known(
        {
            "input": count(tokens.get("input")),
            "output": count(tokens.get("output")),
            "cache_read": count(cache.get("read")),
            "cache_write": count(cache.get("write")),
            "reasoning": count(tokens.get("reasoning")),
            "total": count(tokens.get("total")),
        }
    )
    if not any(found.values()):
        return None, "event"
    reasoning = found.get("reasoning", 0)
    if not reasoning or "output" not in found:
        return found, "event"
    inside = sum(found.get(name, 0) for name in ("input", "output", "cache_read", "cache_write"))
    if found.get("total") == inside:
        return found, "event"
    found["output"] += reasoning
    return found, "event" if found.get("total") == inside + reasoning else "estimate"


class _Store:
    """Rows of any number of sessions being told."""

    def __init__(self, source: Source, notes: Notes) -> None:
        self._source = source
        self._notes = notes
        self._tellers: dict[str, Told] = {}
        self._turns: dict[str, str] = {}

    def _told(self, session: Any) -> Told | None:
        name = identifier(session, SESSION_LIMIT)
        if name is None:
            self._notes.traits["record_without_session"] += 1
            return None
        return self._tellers.setdefault(name, Told(PRODUCER, OUTPUT_VERSION, name))

    def _time(self, value: Any) -> str | None:
        return moment_of(value, self._notes)

    def session(self, info: Mapping[str, Any]) -> Iterator[Envelope]:
        """A session."""
        told = self._told(info.get("id"))
        if told is None:
            return
        yield from told.declared()
        parent = identifier(info.get("parentID"), SESSION_LIMIT)
        facts = known(
            {
                "agent": PRODUCER,
                "agent_version": identifier(info.get("version"), 128),
                "cwd": identifier(info.get("directory"), 4096),
            }
        )
        yield told.event(
            "session.started",
            facts,
            key="session",
            rank=STARTED,
            at=self._time(mapping(info.get("time")).get("created")),
            parent=parent,
        )

    def message(self, info: Mapping[str, Any], said: str | None, tools: bool) -> Iterator[Envelope]:
        """A message. ``said``: its text, where its parts are known; ``tools``: whether it asks for tools."""
        told, key, role = self._told(info.get("sessionID")), identifier(info.get("id")), info.get("role")
        if told is None or key is None or role not in ("user", "assistant"):
            if told is not None:
                self._notes.traits["message_without_id_or_role"] += 1
            return
        yield from told.declared()
        at = self._time(mapping(info.get("time")).get("created"))
        if role == "user":
            self._turns[key] = key
            yield told.event(
                "turn.started", saying.started(said), key=f"{key}:turn", rank=STARTED, at=at, turn=key
            )
            yield told.event("message.recorded", saying.message("user", said), key=key, at=at, turn=key)
            return
        turn = identifier(info.get("parentID"))
        if turn is not None:
            self._turns[key] = turn
        unfinished = mapping(info.get("time")).get("completed") is None and not info.get("error")
        if unfinished and self._source.unsettled:
            self._source.hold()
            return
        yield from self._call(told, info, key, at, turn)
        done = self._time(mapping(info.get("time")).get("completed")) or at
        if said is not None and said.strip():
            yield told.event(
                "message.recorded",
                saying.message("assistant", said),
                key=f"{key}:text",
                at=done,
                call=key,
                turn=turn,
            )
        yield from self._end(told, info, key, done, turn, said, tools)

    def _call(
        self, told: Told, info: Mapping[str, Any], key: str, at: str | None, turn: str | None
    ) -> Iterator[Envelope]:
        time, error = mapping(info.get("time")), mapping(info.get("error"))
        provider, model = identifier(info.get("providerID"), 128), identifier(info.get("modelID"), 256)
        usage, source = usage_of(info.get("tokens"))
        done = self._time(time.get("completed"))
        copied = [time.get("created"), time.get("completed"), provider, model]
        fields = known(
            {
                "provider": provider,
                "model": model,
                # A fork copies its messages under new ids with the old times: they name the call wherever it stands.
                "message_id": f"opencode:{digest(copied)}" if done is not None and at is not None else None,
                "token_convention": "exclusive",
                "source": source,
                "usage": usage,
                "reported_cost_usd": money(info.get("cost")),
            }
        )
        if error:
            name = text(error.get("name")) or ""
            aborted = name == "MessageAbortedError"
            data = mapping(error.get("data"))
            failed = saying.failure(
                text(data.get("message")) or text(error.get("message")) or name or None,
                status=count(data.get("statusCode")),
                kind="cut" if aborted else None,
                **fields,
            )
            yield told.event("model_call.failed", failed, key=key, at=done or at, call=key, turn=turn)
            if failed["error_class"] == "rate_limit":
                yield told.event(
                    "limit.reached", {"limit": "rate"}, key=f"{key}:limit", at=done or at, turn=turn
                )
        elif done is not None or usage is not None:
            fields.update(known({"stop_reason": text(info.get("finish"))}))
            yield told.event("model_call.completed", fields, key=key, at=done or at, call=key, turn=turn)
        else:
            begun = known({"provider": provider or "unknown", "model": model})
            yield told.event("model_call.started", begun, key=f"{key}:start", at=at, call=key, turn=turn)
        if info.get("summary") is True:
            yield told.event(
                "context.compacted", {"strategy": "summary"}, key=f"{key}:compacted", at=done or at, turn=turn
            )

    def _end(
        self,
        told: Told,
        info: Mapping[str, Any],
        key: str,
        at: str | None,
        turn: str | None,
        said: str | None,
        tools: bool,
    ) -> Iterator[Envelope]:
        if turn is None:
            return
        error = mapping(info.get("error"))
        if error:
            status = "interrupted" if error.get("name") == "MessageAbortedError" else "failed"
            reason = text(mapping(error.get("data")).get("message"))
            yield told.event(
                "turn.completed", saying.ended(status, reason), key=f"{key}:end", rank=ENDED, at=at, turn=turn
            )
        elif text(info.get("finish")) in ENDINGS and not tools:
            if said is not None and said.strip():
                yield told.event(
                    "answer.finalized",
                    saying.answer(said),
                    key=f"{key}:answer",
                    rank=ANSWERED,
                    at=at,
                    call=key,
                    turn=turn,
                )
            yield told.event(
                "turn.completed", saying.ended("completed"), key=f"{key}:end", rank=ENDED, at=at, turn=turn
            )

    def part(self, part: Mapping[str, Any]) -> Iterator[Envelope]:
        """A part of a message. Texts are told with their message, where its file holds them."""
        kind = text(part.get("type")) or "?"
        if kind in UNTOLD_PARTS or kind == "text":
            if kind != "text":
                self._notes.untold[kind] += 1
            return
        told, key = self._told(part.get("sessionID")), identifier(part.get("id"))
        if told is None:
            return
        call = identifier(part.get("messageID"))
        turn = self._turns.get(call or "")
        if kind == "tool" and key is not None:
            yield from told.declared()
            yield from self._tool(told, part, key, call, turn)
        elif kind == "compaction":
            self._notes.untold[kind] += 1
        else:
            yield from told.declared()
            self._notes.unknown[kind] += 1
            name, payload = saying.unknown(PRODUCER, kind, dict(part))
            yield told.event(name, payload, key=key or kind, call=call, turn=turn)

    def _tool(
        self, told: Told, part: Mapping[str, Any], key: str, call: str | None, turn: str | None
    ) -> Iterator[Envelope]:
        state = mapping(part.get("state"))
        if self._source.unsettled and state.get("status") not in ("completed", "error"):
            self._source.hold()
            return
        time, metadata = mapping(state.get("time")), mapping(state.get("metadata"))
        tool, status = identifier(part.get("callID")) or key, state.get("status")
        begun = self._time(time.get("start"))
        asked = saying.requested(part.get("tool"), state.get("input"))
        if status in (None, "pending") and not state.get("input"):
            asked.pop("arguments", None)  # they are still being written
        yield told.event(
            "tool_call.requested", asked, key=f"{key}:request", at=begun, call=call, tool=tool, turn=turn
        )
        child = identifier(metadata.get("sessionId"), SESSION_LIMIT) or identifier(
            metadata.get("sessionID"), SESSION_LIMIT
        )
        if child is not None:
            agent = identifier(mapping(state.get("input")).get("subagent_type"), 128) or "agent"
            yield told.event(
                "subagent.started",
                {"agent": agent, "child_session_id": child},
                key=f"{key}:child",
                at=begun,
                tool=tool,
                turn=turn,
            )
        if status not in ("completed", "error"):
            return
        code = metadata.get("exit")
        failed = status == "error" or part.get("tool") == "invalid" or (type(code) is int and code != 0)
        said = text(state.get("error")) if status == "error" else text(state.get("output"))
        start, end = count(time.get("start")), count(time.get("end"))
        duration = end - start if start is not None and end is not None and end >= start else None
        at = self._time(time.get("end"))
        if said is not None and said.startswith("The user rejected permission"):
            yield told.event(
                "tool_call.denied",
                saying.denied("user", said),
                key=f"{key}:result",
                rank=6,
                at=at,
                tool=tool,
                turn=turn,
            )
            return
        result = saying.completed(failed, said, duration_ms=duration, name=part.get("tool"))
        yield told.event(
            "tool_call.completed", result, key=f"{key}:result", rank=6, at=at, tool=tool, turn=turn
        )


def _is(prefix: str, value: Any) -> bool:
    return isinstance(value, str) and value.startswith(prefix)


def _said(parts: list[dict[str, Any]]) -> str | None:
    return saying.text_of(
        [part for part in parts if part.get("type") == "text" and part.get("synthetic") is not True]
    )


def read_document(source: Source, notes: Notes) -> Iterator[Envelope]:
    """The events of an export, or of one file of the older store."""
    document, store = source.document(), _Store(source, notes)
    if document is None:
        return
    top = mapping(document.top)
    key = top.get("id")
    if _is("ses_", key):
        yield from store.session(mapping(document.whole()))
    elif _is("msg_", key):
        yield from store.message(mapping(document.whole()), None, False)
    elif _is("prt_", key):
        yield from store.part(mapping(document.whole()))
    else:
        info, summed = mapping(top.get("info")), Counter[str]()
        yield from store.session(info)
        for message in each_object(document.items("messages")):
            own, parts = mapping(message.get("info")), objects(message.get("parts"))
            tools = any(part.get("type") == "tool" for part in parts)
            yield from store.message(own, _said(parts), tools)
            for part in parts:
                yield from store.part(part)
            summed.update(_flat(own.get("tokens")))
        _reconcile(info, summed, notes)


def _reconcile(info: Mapping[str, Any], summed: Counter[str], notes: Notes) -> None:
    """The session's own sums against those of its messages: never added, only compared, and here, since an older export is no error."""
    if any(summed[name] != value for name, value in _flat(info.get("tokens")).items()):
        notes.traits["session_sum_differs"] += 1


def _flat(value: Any) -> dict[str, int]:
    tokens = mapping(value)
    cache = mapping(tokens.get("cache"))
    given = {**{name: tokens.get(name) for name in ("input", "output", "reasoning")}, **dict(cache)}
    return {name: figure for name, each in given.items() if (figure := count(each)) is not None}


def read_database(source: Source, notes: Notes) -> Iterator[Envelope]:
    """The events of a database, all its sessions."""
    store = _Store(source, notes)
    with source.database() as connection:
        tables = tables_of(connection)
        for row in rows_of(connection, "session", source.condition):
            info = {
                "id": row.get("id"),
                "parentID": row.get("parent_id"),
                "version": row.get("version"),
                "directory": row.get("directory"),
                "time": {"created": row.get("time_created")},
            }
            yield from store.session(info)
        parts = _Parts(connection, source)
        for row in rows_of(connection, "message", source.condition):
            info = {**_data(row, source), "id": row.get("id"), "sessionID": row.get("session_id")}
            own = parts.of(row.get("id"))
            if source.unsettled and info.get("role") == "user" and not own:
                source.hold()  # its text comes as rows of their own
                continue
            yield from store.message(info, _said(own), any(part.get("type") == "tool" for part in own))
            for part in own:
                yield from store.part(part)
        for part in parts.left():
            yield from store.part(part)
        if "event" in tables:
            notes.untold["event"] += connection.execute("SELECT count(*) FROM event").fetchone()[0]


def _odd_ids(connection: sqlite3.Connection) -> bool:
    """Whether messages have ids that do not find their parts again once they were read: no texts, or damaged ones."""
    odd = "SELECT 1 FROM message WHERE typeof(id) <> 'text' OR id GLOB '*[^ -~]*' LIMIT 1"
    try:
        return connection.execute(odd).fetchone() is not None
    except DAMAGE:
        return True


class _Parts:
    """The parts of a database by their message: looked up one message after another where the database has an index for that, else held."""

    def __init__(self, connection: sqlite3.Connection, source: Source) -> None:
        self._connection, self._source = connection, source
        self._held: dict[str, list[dict[str, Any]]] | None = None
        if not indexed(connection, "part", "message_id") or _odd_ids(connection):
            self._held = {}
            for row in rows_of(connection, "part", source.condition):
                self._held.setdefault(str(row.get("message_id")), []).append(self._part(row))

    def _part(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **_data(row, self._source),
            "id": row.get("id"),
            "messageID": row.get("message_id"),
            "sessionID": row.get("session_id"),
        }

    def of(self, message: Any) -> list[dict[str, Any]]:
        """Of one message, in the order of their rows."""
        if self._held is not None:
            return self._held.pop(str(message), [])
        return [
            self._part(row)
            for row in rows_of(
                self._connection, "part", self._source.condition, where="message_id = ?", values=(message,)
            )
        ]

    def left(self) -> Iterator[dict[str, Any]]:
        """Of messages that are not there."""
        if self._held is not None:
            for parts in self._held.values():
                yield from parts
            return
        where = "NOT EXISTS (SELECT 1 FROM message WHERE message.id = part.message_id)"
        for row in rows_of(self._connection, "part", self._source.condition, where=where):
            yield self._part(row)


def _data(row: Mapping[str, Any], source: Source) -> dict[str, Any]:
    raw = row.get("data")
    try:
        value = orjson.loads(raw) if isinstance(raw, (str, bytes)) else None
    except orjson.JSONDecodeError:
        value = None
    if isinstance(value, dict):
        return value
    condition = source.condition
    condition.quarantined.append(quarantine(len(condition.quarantined), 0, str(raw).encode(), "json"))
    return {}


FORMAT = Format(
    name=PRODUCER,
    title="OpenCode",
    files="~/.local/share/opencode/opencode*.db, `opencode export`, older storage/{session,message,part}/**/*.json",
    versions="1.17.18 (real export), the database and the older store (described)",
    usage="exact, per message; estimated where no total tells whether reasoning stands inside the output",
    cost="reported, per message; 0 is unknown",
    latency="of tools",
    tools="requests, results, exit codes, refusals",
    turns="user messages; ends by finish reason or error",
    cannot="retries; how a forked session relates to its origin, except by equal times; latency of calls",
    document=read_document,
    database=read_database,
    is_document=is_document,
    is_database=is_database,
    hints=((b'"info"', b'"ses_'), (b'"sessionID"', b'"ses_')),
)
