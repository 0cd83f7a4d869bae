"""Owns what a Gemini CLI chat file means in events: a document that is rewritten as it grows, or the journal that newer versions keep.

``README.md`` beside this file says where each figure comes from.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from turnledger.contract.times import instant
from turnledger.harness import saying
from turnledger.harness.documents import Document
from turnledger.harness.facts import (
    SESSION_LIMIT,
    Envelope,
    Notes,
    count,
    identified,
    identifier,
    known,
    listed,
    mapping,
    moment_of,
    objects,
    text,
)
from turnledger.harness.format import Format
from turnledger.harness.sources import Source
from turnledger.harness.telling import ANSWERED, ENDED, STARTED, Told

PRODUCER = "gemini-cli"
OUTPUT_VERSION = 1
TYPES = frozenset({"user", "gemini", "info", "error", "warning"})
CANCELLED = "Request cancelled"
API_ERROR = "API Error"


def is_document(document: Document) -> bool:
    """Whether a JSON value can only be a chat of Gemini CLI."""
    top = mapping(document.top)
    return isinstance(top.get("messages"), list) and "sessionId" in top and "projectHash" in top


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether a record can only be a line of the journal."""
    if "projectHash" in record and "sessionId" in record:
        return True
    if isinstance(record.get("$rewindTo"), str) or isinstance(record.get("$set"), dict):
        return True
    return text(record.get("type")) in TYPES and {"id", "timestamp", "content"} <= record.keys()


def usage_of(value: Any) -> dict[str, int] | None:
    """The provider's counters; None where none is known or all are zero.

    ``tool`` (tokens of tool prompts) belongs to the input; whether it stands inside it, the total says.
    """
    tokens = mapping(value)
    names = {
        "input": "input",
        "output": "output",
        "cache_read": "cached",
        "reasoning": "thoughts",
        "total": "total",
    }
    found = known({ours: count(tokens.get(theirs)) for ours, theirs in names.items()})
    beside = count(tokens.get("tool"))
    parts = [found.get(name) for name in ("input", "output", "reasoning", "total")]
    if beside and None not in parts:
        given, output, thoughts, total = (part or 0 for part in parts)
        if total == given + output + thoughts + beside:
            found["input"] = given + beside
    return found if any(found.values()) else None


@dataclass(slots=True)
class _Turn:
    id: str
    end: str | None = None
    """Time of its latest record so far."""
    status: str = "completed"
    error: str | None = None
    answer: tuple[str, str, str] | None = None
    """(text, call, time) of a model's message without tools: the answer, if nothing follows."""


@dataclass(slots=True)
class _Chat:
    """One conversation being told, in the order of its messages."""

    told: Told
    notes: Notes
    targets: Container[str]
    """The messages from which it goes on again."""
    turn: _Turn | None = None
    turns: dict[str, _Turn] = field(default_factory=dict)

    def message(self, record: Mapping[str, Any]) -> Iterator[Envelope]:
        """One message."""
        kind, key = text(record.get("type")) or "?", identifier(record.get("id"))
        at = moment_of(record.get("timestamp"), self.notes)
        if key is None:
            self.notes.traits["message_without_id"] += 1
            return
        if kind == "user":
            yield from self._user(key, at, record)
        elif kind == "gemini":
            yield from self._model(key, at, record)
        elif kind == "error":
            yield from self._error(key, at, saying.text_of(record.get("content")))
        elif kind in TYPES:
            self.notes.untold[kind] += 1
            if self.turn is not None and (saying.text_of(record.get("content")) or "").startswith(CANCELLED):
                self.turn.status = "interrupted"
                self._lasts(at)
        else:
            self.notes.unknown[kind] += 1
            name, payload = saying.unknown(PRODUCER, kind, dict(record))
            yield self.told.event(name, payload, key=key, at=at, turn=self._id())
        if self.turn is not None and key in self.targets:
            self.turns[key] = self.turn

    def rewound(self, key: str | None) -> None:
        """What follows goes on from an earlier message; what was said since stays billed and told."""
        self.notes.traits["rewound"] += 1
        self.turn = self.turns.get(key or "", self.turn)

    def _id(self) -> str | None:
        return self.turn.id if self.turn is not None else None

    def _lasts(self, at: str | None) -> None:
        if self.turn is None or at is None:
            return
        if self.turn.end is None or (instant(at) or 0) > (instant(self.turn.end) or 0):
            self.turn.end = at

    def _user(self, key: str, at: str | None, record: Mapping[str, Any]) -> Iterator[Envelope]:
        yield from self._ended()
        said = saying.text_of(record.get("content"))
        self.turn = _Turn(key, at)
        yield self.told.event(
            "turn.started", saying.started(said), key=f"{key}:turn", rank=STARTED, at=at, turn=key
        )
        yield self.told.event("message.recorded", saying.message("user", said), key=key, at=at, turn=key)

    def _ended(self) -> Iterator[Envelope]:
        """Nothing writes the end of a turn: the next prompt proves it."""
        turn = self.turn
        if turn is None:
            return
        if turn.answer is not None and turn.status == "completed":
            said, call, at = turn.answer
            yield self.told.event(
                "answer.finalized",
                saying.answer(said),
                key=f"{call}:answer",
                rank=ANSWERED,
                at=at,
                call=call,
                turn=turn.id,
            )
        yield self.told.event(
            "turn.completed",
            saying.ended(turn.status, turn.error),
            key=f"{turn.id}:end",
            rank=ENDED,
            at=turn.end,
            turn=turn.id,
            provenance="derived",
        )

    def _model(self, key: str, at: str | None, record: Mapping[str, Any]) -> Iterator[Envelope]:
        self._lasts(at)
        call = known(
            {
                "provider": "google",
                "model": identifier(record.get("model"), 256),
                "message_id": key,
                "token_convention": "inclusive_thoughts_separate",
                "source": "event",
                "usage": usage_of(record.get("tokens")),
            }
        )
        turn = self._id()
        yield self.told.event("model_call.completed", call, key=key, at=at, call=key, turn=turn)
        said = saying.text_of(record.get("content"))
        if said is not None and said.strip():
            yield self.told.event(
                "message.recorded",
                saying.message("assistant", said),
                key=f"{key}:text",
                at=at,
                call=key,
                turn=turn,
            )
        tools = objects(record.get("toolCalls"))
        for place, tool in enumerate(tools):
            yield from self._tool(key, place, at, tool)
        if self.turn is not None:
            self.turn.status, self.turn.error = "completed", None
            self.turn.answer = (said, key, at or "") if said and said.strip() and not tools and at else None

    def _tool(self, call: str, place: int, asked: str | None, tool: Mapping[str, Any]) -> Iterator[Envelope]:
        own = identifier(tool.get("id"))
        key = f"{call}:tool:{own if own is not None else place}"
        ids = own if own is not None else identified(call, place)
        at = moment_of(tool.get("timestamp"), self.notes) or asked
        turn, name = self._id(), tool.get("name")
        self._lasts(at)
        request = saying.requested(name, tool.get("args"))
        yield self.told.event(
            "tool_call.requested", request, key=f"{key}:request", at=asked, call=call, tool=ids, turn=turn
        )
        status, said = tool.get("status"), _output(tool)
        if status == "cancelled":
            yield self.told.event(
                "tool_call.denied",
                saying.denied("user", said),
                key=f"{key}:result",
                rank=6,
                at=at,
                tool=ids,
                turn=turn,
            )
        elif status in ("success", "error"):
            result = saying.completed(status == "error", said, name=name)
            yield self.told.event(
                "tool_call.completed", result, key=f"{key}:result", rank=6, at=at, tool=ids, turn=turn
            )

    def _error(self, key: str, at: str | None, said: str | None) -> Iterator[Envelope]:
        if said is None or API_ERROR not in said[:100]:
            self.notes.untold["error"] += 1
            return
        self._lasts(at)
        failed = saying.failure(said, provider="google")
        yield self.told.event("model_call.failed", failed, key=key, at=at, call=key, turn=self._id())
        if failed["error_class"] == "rate_limit":
            yield self.told.event(
                "limit.reached", {"limit": "rate"}, key=f"{key}:limit", at=at, turn=self._id()
            )
        if self.turn is not None:
            self.turn.status, self.turn.error = "failed", said


def _output(tool: Mapping[str, Any]) -> str | None:
    """What the model saw of a tool's result."""
    for part in objects(tool.get("result")):
        response = mapping(mapping(part.get("functionResponse")).get("response"))
        for name in ("output", "error"):
            said = text(response.get(name))
            if said is not None:
                return said
    return text(tool.get("resultDisplay"))


def _chat(
    header: Mapping[str, Any], source: Source, notes: Notes, targets: Container[str] = ()
) -> _Chat | None:
    session = identifier(header.get("sessionId"), SESSION_LIMIT) or source.session
    if session is None:
        notes.traits["session_unknown"] += 1
        return None
    return _Chat(Told(PRODUCER, OUTPUT_VERSION, session), notes, targets)


def _opened(chat: _Chat, header: Mapping[str, Any]) -> Iterator[Envelope]:
    yield from chat.told.declared()
    at = moment_of(header.get("startTime"), chat.notes)
    facts = known({"agent": PRODUCER, "mode": identifier(header.get("kind"), 128)})
    yield chat.told.event("session.started", facts, key="session", rank=STARTED, at=at)


def read_document(source: Source, notes: Notes) -> Iterator[Envelope]:
    """The events of one chat document."""
    document = source.document()
    header = mapping(document.top if document is not None else None)
    chat = _chat(header, source, notes)
    if document is None or chat is None:
        return
    yield from _opened(chat, header)
    yield from _messages(chat, _but_unfinished(document.items("messages"), source), notes)


def _but_unfinished(messages: Iterable[Any], source: Source) -> Iterator[Any]:
    """All but a last message that is written again."""
    held: list[Any] = []
    for message in messages:
        yield from held
        held = [message]
    if held and not _unfinished(held[0], source):
        yield held[0]


def _unfinished(message: Any, source: Source) -> bool:
    """Whether a last message may still get its figures and its tools: it is written again with them."""
    if not source.unsettled or not isinstance(message, dict) or message.get("type") != "gemini":
        return False
    if usage_of(message.get("tokens")) is not None:
        return False
    source.hold()
    return True


def _messages(chat: _Chat, messages: Iterable[Any], notes: Notes) -> Iterator[Envelope]:
    for each in messages:
        if isinstance(each, dict):
            yield from chat.message(each)
        else:
            notes.traits["message_not_an_object"] += 1


def read_journal(source: Source, notes: Notes) -> Iterator[Envelope]:
    """The events of one journal: a repeated id replaces the message, in its old place."""
    header: dict[str, Any] = {}
    steps = array("q")  # numbers of records: of a message its last one
    places: dict[str, int] = {}
    targets: set[str] = set()
    for record in source.records():
        value = record.value
        key = identifier(value.get("id"))
        if isinstance(value.get("$set"), dict):
            header.update(value["$set"])
        elif "sessionId" in value and "id" not in value:
            header.update(value)
        elif "$rewindTo" in value:
            targets.add(identifier(value["$rewindTo"]) or "")
            steps.append(record.number)
        elif key is not None and key in places:
            steps[places[key]] = record.number
        else:
            if key is not None:
                places[key] = len(steps)
            steps.append(record.number)
    places.clear()
    chat = _chat(header, source, notes, targets)
    if chat is None:
        return
    yield from _opened(chat, header)
    yield from _messages(chat, listed(header.get("messages")), notes)
    for step in _but_unfinished(_in_order(source, steps), source):
        if "$rewindTo" in step:
            chat.rewound(identifier(step["$rewindTo"]))
        else:
            yield from chat.message(step)


def _in_order(source: Source, numbers: array[int]) -> Iterator[dict[str, Any]]:
    """Records by their numbers; those are held that stand before their turn: messages are written again soon after, so few."""
    wanted = bytearray(max(numbers, default=-1) + 1)
    for number in numbers:
        wanted[number] = True
    ahead: dict[int, dict[str, Any]] = {}
    records = source.records()
    for number in numbers:
        while number not in ahead:
            record = next(records, None)
            if record is None:
                return  # the file was cut meanwhile
            if record.number < len(wanted) and wanted[record.number]:
                ahead[record.number] = record.value
        yield ahead.pop(number)


FORMAT = Format(
    name=PRODUCER,
    title="Gemini CLI",
    files="~/.gemini/tmp/<project>/chats/session-<time>-<id>.json, newer .jsonl",
    versions="0.23–0.24 (real files), the journal of newer ones (described)",
    usage="exact, per message; all zeros is unknown",
    cost="none",
    latency="none",
    tools="requests, results, cancellations",
    turns="user messages; the next one proves the end of the one before",
    cannot="retries and compression (telemetry only); the end of the last turn and of the session; ids of API requests",
    lines=read_journal,
    document=read_document,
    recognises=recognises,
    is_document=is_document,
    hints=((b'"sessionId"', b'"projectHash"'),),
)
