"""Events for the tables of the fold's tests, and the fold of them in several orders at once."""

from __future__ import annotations

import random
from typing import Any

from turnledger.contract.event import Event
from turnledger.contract.times import instant, utc_text
from turnledger.fold.model import Row, SessionFold, TurnFold
from turnledger.fold.session import fold_session

START = instant("2026-05-04T10:00:00Z") or 0


class Story:
    """Events of one session, told in order: each call adds the next number of its stream, a second after the one before."""

    def __init__(self, **always: Any) -> None:
        self.events: list[Event] = []
        self._always = always
        self._next: dict[tuple[str, int, str], int] = {}

    def __call__(self, type: str, **given: Any) -> Event:
        """Envelope fields by name (``turn`` ``call`` ``tool`` stand for their ids); everything else is payload."""
        known = {**self._always, **given}
        envelope: dict[str, Any] = {}
        for name, field in _FIELDS.items():
            if name in known:
                envelope[field] = known.pop(name)
        key = (
            envelope.get("producer", "harness"),
            envelope.get("epoch", 0),
            envelope.get("stream", "ledger"),
        )
        if "seq" not in envelope and "receipt_key" not in envelope:
            envelope["seq"] = self._next.get(key, 0)
        if envelope.get("seq") is not None:
            self._next[key] = envelope["seq"] + 1
        second = known.pop("second", len(self.events))
        at = None if second is None else START + second * 1_000_000
        event = Event(
            session_id="s",
            type=type,
            at=at,
            occurred_at=None if at is None else utc_text(at),
            payload={**known.pop("payload", {}), **known},
            **envelope,
        )
        self.events.append(event)
        return event

    def fold(self) -> SessionFold:
        """The fold of the story, proven to be the same in other orders of arrival."""
        told = fold_session("default", "s", self.events)
        for seed in range(3):
            other = list(self.events)
            random.Random(seed).shuffle(other)
            assert _essence(fold_session("default", "s", other)) == _essence(told)
        return told

    def turn(self) -> TurnFold:
        """The only turn of the story."""
        (turn,) = self.fold().turns
        return turn


_FIELDS = {
    "turn": "turn_id",
    "call": "model_call_id",
    "tool": "tool_call_id",
    "trace": "trace_id",
    "producer": "producer",
    "epoch": "epoch",
    "stream": "stream",
    "seq": "seq",
    "receipt_key": "receipt_key",
    "kind": "kind",
    "run_id": "run_id",
    "provenance": "provenance",
    "turn_index": "turn_index",
}


def _essence(fold: SessionFold) -> list[Any]:
    return [
        [turn.body for turn in fold.turns],
        [(turn.calls, turn.tools, turn.parts, turn.findings, turn.flat) for turn in fold.turns],
        (fold.calls, fold.tools, fold.parts, fold.findings),
    ]


def told(values: Row) -> Row:
    """The known figures of a ``usage`` object."""
    return {name: value for name, value in values.items() if value is not None}


def checks(*folds: SessionFold | TurnFold) -> list[str]:
    """The names of all findings, one each, sorted."""
    found: list[str] = []
    for fold in folds:
        found += [finding["check"] for finding in fold.findings]
        if isinstance(fold, SessionFold):
            found += [finding["check"] for turn in fold.turns for finding in turn.findings]
    return sorted(found)
