"""Worked cases as data: envelopes written short, the object of ``turnledger fold`` read by path."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from turnledger.fold.document import document
from turnledger.pricing import packaged, price_call

Envelope = dict[str, Any]
Object = dict[str, Any]

START = "2026-05-04T10:%02d:%02dZ"
_ENVELOPE = {
    "s": "session_id",
    "receipt": "receipt_key",
    "turn": "turn_id",
    "index": "turn_index",
    "call": "model_call_id",
    "tool": "tool_call_id",
    "trace": "trace_id",
    "parent": "parent_session_id",
    "run": "run_id",
    "ev_stream": "stream",
    "at": "occurred_at",
    **{name: name for name in ("tenant", "producer", "epoch", "seq", "kind", "provenance", "event_id")},
}
_PRICE = partial(price_call, packaged())


def ev(type_: str, /, **given: Any) -> Envelope:
    """One envelope. ``s`` ``turn`` ``index`` ``call`` ``tool`` ``at`` … are the envelope's; everything else is payload."""
    envelope: Envelope = {"type": type_}
    for short, name in _ENVELOPE.items():
        if short in given:
            envelope[name] = given.pop(short)
    envelope["payload"] = {**given.pop("payload", {}), **given}
    return envelope


def turn(name: str, *events: Envelope, end: str | None = "completed", **always: Any) -> list[Envelope]:
    """Start, events and end of a turn that carries its id; ``end`` None leaves it open."""
    first = ev("turn.started", turn=name, **always)
    last = [] if end is None else [ev("turn.completed", turn=name, status=end, **always)]
    fields = {_ENVELOPE[short]: value for short, value in always.items()}
    return [first, *({"turn_id": name, **fields, **event} for event in events), *last]


def done(usage: dict[str, Any] | None = None, **given: Any) -> Envelope:
    """A completed model call of Anthropic's, unless the case says another provider."""
    given.setdefault("provider", "anthropic")
    given.setdefault("model", "m")
    return ev("model_call.completed", **given, **({} if usage is None else {"usage": usage}))


def report(usage: dict[str, Any], **given: Any) -> Envelope:
    return ev("usage.reported", **given, usage=usage)


def running(input_: int, output: int | None = None, last: Any = None, **given: Any) -> Envelope:
    """A report of a running total in Codex's convention; ``last`` is the latest single request."""
    usage = {"input": input_, "cache_read": 0} | ({} if output is None else {"output": output})
    given.setdefault("token_convention", "inclusive")
    given.setdefault("provider", "openai")
    given.setdefault("model", "m")
    if last is not None:
        given["last"] = last if isinstance(last, dict) else {"input": last, "cache_read": 0}
    return report(usage, counter_kind="cumulative", **given)


def numbered(events: list[Envelope]) -> list[Envelope]:
    """The events with session ``s``, the next number of their stream and a second each, where the case does not say."""
    following: dict[tuple[Any, ...], int] = {}
    told = []
    for second, event in enumerate(events):
        event = {"session_id": "s", "occurred_at": START % divmod(second, 60), **event}
        key = tuple(event.get(name) for name in ("tenant", "session_id", "producer", "epoch", "stream"))
        if "receipt_key" not in event:
            event.setdefault("seq", following.get(key, 0))
            following[key] = event["seq"] + 1
        told.append(event)
    return told


def fold(*events: Envelope, any_order: bool = True) -> Object:
    """The object of ``turnledger fold --json``, proven to be the same for other orders of arrival (where no conflict has a winner)."""
    lines = [json.dumps(event).encode() for event in numbered(list(events))]
    told = document(lines, _PRICE)
    for seed in range(2 if any_order else 0):
        shuffled = lines[::-1] if not seed else random.Random(seed).sample(lines, len(lines))
        assert document(shuffled, _PRICE)["digest"] == told["digest"], "the order of arrival shows"
    plain: Object = json.loads(json.dumps(told))
    plain["checks"] = dict(Counter({row["check"]: row["count"] for row in plain["findings"]}))
    return plain


def at(told: Any, path: str) -> Any:
    """The value at a path: names, positions, ``*`` for every element, ``key=value`` for those elements; what is absent is None."""
    for i, part in enumerate(parts := path.split("/")):
        rest = "/".join(parts[i + 1 :])
        if part == "*" or "=" in part:
            name, _, value = part.partition("=")
            found = [item for item in told if part == "*" or str(item.get(name)) == value]
            return [at(item, rest) for item in found] if rest else found
        if isinstance(told, list):
            told = dict(enumerate(told)).get(int(part))
        elif told is not None:
            told = told.get(part)
    return told


@dataclass(frozen=True)
class Case:
    rule: str
    events: list[Envelope]
    expected: dict[str, Any]
    any_order: bool = True


CASES: list[Case] = []
"""Every case of every table that was loaded."""


def table(*cases: Case) -> pytest.MarkDecorator:
    CASES.extend(cases)
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.rule)


def found(case: Case) -> dict[str, Any]:
    """What the fold says at the paths of the case."""
    told = fold(*case.events, any_order=case.any_order)
    return {path: at(told, path) for path in case.expected}
