"""Owns what Aider's two files mean in events: the chat history for people, and the analytics log with exact figures.

``README.md`` beside this file says where each figure comes from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from turnledger.harness import saying
from turnledger.harness.facts import (
    SESSION_LIMIT,
    Envelope,
    Notes,
    clean,
    count,
    cut,
    identified,
    identifier,
    known,
    mapping,
    moment_of,
    money,
    named,
    text,
)
from turnledger.harness.format import Format
from turnledger.harness.reading import Record
from turnledger.harness.sources import Source
from turnledger.harness.telling import Numbered

PRODUCER = "aider"
OUTPUT_VERSION = 1
BEHIND_THE_END = 16
"""Place of a prompt's own events in its line: the first ones belong to the end of the turn before it."""
START = "# aider chat started at "
_TOKENS = re.compile(
    r"> Tokens: (?P<sent>[\d.,]+[kM]?) sent"
    r"(?:, (?P<write>[\d.,]+[kM]?) cache write)?"
    r"(?:, (?P<hit>[\d.,]+[kM]?) cache hit)?"
    r"(?:, (?P<received>[\d.,]+[kM]?) received)?"
    r"\.(?: Cost: \$(?P<cost>[\d.,]+) message)?",
    re.ASCII,
)
_MODEL = re.compile(r"> (?:Main model|Model): (\S+)")
_RETRY = re.compile(r"> litellm\.(\w+Error|\w+Exception)|> Retrying in ([\d.]+) seconds")
_CLASSES = {
    "RateLimitError": "rate_limit",
    "Timeout": "timeout",
    "APITimeoutError": "timeout",
    "AuthenticationError": "auth",
    "ServiceUnavailableError": "overloaded",
    "InternalServerError": "overloaded",
    "APIConnectionError": "cut",
}


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether a record can only be a line of the analytics log."""
    return record.keys() >= {"event", "properties", "user_id", "time"} and isinstance(
        record.get("properties"), dict
    )


def is_text(head: str) -> bool:
    """Whether a text is a chat history."""
    return any(line.startswith(START) for line in head.split("\n"))


def rounded(figure: str | None) -> int | None:
    """A figure as people read it: ``9.8k`` is about 9,800."""
    if figure is None:
        return None
    unit = {"k": 1_000, "M": 1_000_000}.get(figure[-1], 1)
    digits = figure.rstrip("kM").replace(",", "")
    if len(digits) > 18 or not re.fullmatch(r"\d+(?:\.\d+)?", digits, re.ASCII):
        return None
    return count(int(Decimal(digits) * unit))


class _History:
    """One chat history being told, line by line; a line's number counts from the start of its run."""

    def __init__(self, name: str, notes: Notes) -> None:
        self._name = name
        self._notes = notes
        self._told: Numbered | None = None
        self._start = 0
        self._turn: str | None = None
        self._prompt: list[str] = []
        self._opened = 0
        self._answer: list[str] = []
        self._model: str | None = None
        self._calls = 0
        self._failures = 0

    def lines(self, lines: list[str]) -> Iterator[Envelope]:
        """Everything that the history tells."""
        for number, line in enumerate(lines):
            if line.startswith(START):
                yield from self._flushed(number)
                yield from self._run(number, line)
            elif self._told is None:
                if line.strip():
                    self._notes.traits["line_before_a_run"] += 1
            elif line.startswith("#### "):
                if not self._prompt:
                    yield from self._flushed(number)
                    self._opened = number
                self._prompt.append(line[5:].rstrip())
            else:
                if self._prompt:
                    yield from self._prompted()
                yield from self._other(number, line)
        if self._prompt:
            self._notes.traits["prompt_still_open"] += 1  # it may go on: told when another line follows it

    def _run(self, number: int, line: str) -> Iterator[Envelope]:
        began = clean(line[len(START) :].strip())
        session = cut(f"{self._name}/{began}", SESSION_LIMIT)[0]
        self._told = told = Numbered(PRODUCER, OUTPUT_VERSION, session, "history")
        self._start, self._turn, self._model, self._calls = number, None, None, 0
        told.at(0)
        at = moment_of(began, self._notes)
        yield told.event("stream.declared", {"density": "sparse"}, at=at)
        yield told.event("session.started", {"agent": PRODUCER}, at=at)

    def _flushed(self, number: int) -> Iterator[Envelope]:
        """The next prompt, or the next run, proves the end of the turn before it."""
        if self._prompt:
            yield from self._prompted()
        if self._told is not None and self._turn is not None:
            self._told.at(number - self._start)
            answer = text("\n".join(self._answer).strip())
            if answer is not None and not self._failures:
                yield self._told.event("answer.finalized", saying.answer(answer), turn=self._turn)
            status = "failed" if self._failures else "completed"
            yield self._told.event(
                "turn.completed", saying.ended(status), turn=self._turn, provenance="derived"
            )
        self._turn, self._answer, self._failures = None, [], 0

    def _prompted(self) -> Iterator[Envelope]:
        told = self._told
        if told is None:
            return
        said = text("\n".join(self._prompt))
        line = self._opened - self._start
        self._prompt, self._turn = [], f"line-{line}"
        told.at(line, BEHIND_THE_END)
        yield told.event("turn.started", saying.started(said), turn=self._turn)
        yield told.event("message.recorded", saying.message("user", said), turn=self._turn)

    def _other(self, number: int, line: str) -> Iterator[Envelope]:
        told = self._told
        if told is None:
            return
        told.at(number - self._start)
        if not line.startswith("> "):
            if self._turn is not None:
                self._answer.append(line)
            return
        tokens, model, retry = _TOKENS.match(line), _MODEL.match(line), _RETRY.match(line)
        if tokens is not None:
            yield self._call(told, tokens)
        elif model is not None:
            self._model = identifier(model.group(1), 256)
        elif retry is not None:
            name = retry.group(1)
            if name is not None:
                self._failures += 1
                payload = {"attempt": self._failures, "error_class": _CLASSES.get(name, "other")}
                yield told.event(
                    "model_call.retried", payload, call=f"call-{self._calls + 1}", turn=self._turn
                )
        else:
            self._notes.untold["> line"] += 1

    def _call(self, told: Numbered, tokens: re.Match[str]) -> Envelope:
        """The line behind an answer: figures for people, so an estimate."""
        self._calls += 1
        self._failures = 0
        cost = tokens.group("cost")
        usage = known(
            {
                "input": rounded(tokens.group("sent")),
                "output": rounded(tokens.group("received")),
                "cache_read": rounded(tokens.group("hit")),
                "cache_write": rounded(tokens.group("write")),
            }
        )
        fields = known(
            {
                "model": self._model,
                "token_convention": "inclusive",
                "source": "estimate",
                "usage": usage if any(usage.values()) else None,
                "reported_cost_usd": money(float(cost.replace(",", "")))
                if cost and cost.count(".") <= 1 and cost.strip(".,")
                else None,
            }
        )
        return told.event("model_call.completed", fields, call=f"call-{self._calls}", turn=self._turn)


def read_history(source: Source, notes: Notes) -> Iterator[Envelope]:
    """The events of a chat history: each run is a session, named by the folder (or the caller) and its start."""
    notes.traits["session_from_name"] += source.session is None
    name = named(source.session, source.path.absolute().parent.name, limit=SESSION_LIMIT - 40)
    said = source.text()
    lines = said.split("\n")[:-1]  # the last one is empty, or has no end and may still grow
    yield from _History(name, notes).lines(lines)


class _Analytics:
    """One analytics log being told; a record's number counts from the start of its run."""

    def __init__(self, notes: Notes, name: str | None) -> None:
        self._notes = notes
        self._name = name
        self._told: Numbered | None = None
        self._start = 0
        self._calls = 0

    def record(self, record: Record) -> Iterator[Envelope]:
        """One record."""
        value, properties = record.value, mapping(record.value.get("properties"))
        kind, at = text(value.get("event")) or "?", moment_of(value.get("time"), self._notes)
        if kind == "launched" or self._told is None:
            if kind != "launched":
                self._notes.traits["run_without_a_start"] += 1
            user = self._name or identifier(value.get("user_id"), 128) or PRODUCER
            self._told = Numbered(PRODUCER, OUTPUT_VERSION, named(f"{user}/{value.get('time')}"), "analytics")
            self._start, self._calls = record.number, 0
            self._told.at(0)
            yield self._told.event("stream.declared", {"density": "sparse"}, at=at)
            yield self._told.event("session.started", {"agent": PRODUCER}, at=at)
        told = self._told
        told.at(record.number - self._start + 1)
        if kind == "message_send":
            self._calls += 1
            yield self._call(told, properties, at)
        elif kind == "message_send_exception":
            self._calls += 1
            failed = saying.failure(
                text(properties.get("exception")), model=identifier(properties.get("main_model"), 256)
            )
            yield told.event("model_call.failed", failed, at=at, call=f"call-{self._calls}")
        elif kind == "exit":
            yield told.event("session.ended", {"status": "stopped"}, at=at)
        else:
            self._notes.untold["command" if kind.startswith("command_") else kind[:64]] += 1

    def _call(self, told: Numbered, properties: Mapping[str, Any], at: str | None) -> Envelope:
        usage = known(
            {
                "input": count(properties.get("prompt_tokens")),
                "output": count(properties.get("completion_tokens")),
                "total": count(properties.get("total_tokens")),
            }
        )
        fields = known(
            {
                "model": identifier(properties.get("main_model"), 256),
                "token_convention": "inclusive",
                "source": "event",
                "usage": usage if any(usage.values()) else None,
                "reported_cost_usd": money(properties.get("cost")),
            }
        )
        return told.event("model_call.completed", fields, at=at, call=identified("call", self._calls))


def read_analytics(source: Source, notes: Notes) -> Iterator[Envelope]:
    """The events of an analytics log: each launch is a session."""
    log = _Analytics(notes, source.session)
    for record in source.records():
        yield from log.record(record)


FORMAT = Format(
    name=PRODUCER,
    title="Aider",
    files="<repository>/.aider.chat.history.md, --analytics-log <file>",
    versions="0.60–0.86 (described)",
    usage="analytics log: exact, per call, cached part unknown; chat history: rounded, so estimated",
    cost="reported, per call (chat history: rounded)",
    latency="none",
    tools="none",
    turns="chat history: prompts, the next one proves the end; analytics log: none",
    cannot="ids; times within a run and their zone (chat history); that both files tell the same run: import one of them",
    lines=read_analytics,
    text=read_history,
    recognises=recognises,
    is_text=is_text,
)
