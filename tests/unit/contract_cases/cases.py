"""How the cases of this folder are written: events by hand, folded as `turnledger fold --json` folds them, asked for what the rule decides."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from turnledger.fold.document import Document, document, lines
from turnledger.pricing import packaged, price_call

PRICE = partial(price_call, packaged())
Event = dict[str, Any]


def ev(seq: int | None, type_: str, payload: object = None, /, **envelope: Any) -> Event:
    """One envelope of session `s`; `at="05"` stands for five seconds past noon, `at="01:05"` for a minute more."""
    event: Event = {"session_id": "s", "type": type_, **envelope}
    if seq is not None:
        event["seq"] = seq
    if payload is not None:
        event["payload"] = payload
    if "at" in event:
        clock = event.pop("at")
        event["occurred_at"] = f"2026-05-01T12:{clock if ':' in clock else '00:' + clock}Z"
    return event


def mark(seq: int | None, name: str, /, **envelope: Any) -> Event:
    """A request to `name`: a point event, shown in the order of events."""
    return ev(seq, "net.requested", {"domain": name, "port": 443, "decision": "allowed"}, **envelope)


def named(seq: int | None, name: str, /, **envelope: Any) -> Event:
    """The guard `name`: shown by the turn that it belongs to."""
    return ev(seq, "guard.evaluated", {"guard": name, "outcome": "passed"}, **envelope)


def start(seq: int | None, turn_id: str | None = None, /, **envelope: Any) -> Event:
    return ev(seq, "turn.started", turn_id=turn_id, **envelope)


def end(seq: int | None, turn_id: str | None = None, status: str | None = None, /, **envelope: Any) -> Event:
    return ev(
        seq, "turn.completed", {} if status is None else {"status": status}, turn_id=turn_id, **envelope
    )


def user(seq: int | None, /, **envelope: Any) -> Event:
    return ev(seq, "message.recorded", {"role": "user", "text": "hello"}, **envelope)


def fold(*events: Event | bytes) -> Document:
    return document([e if isinstance(e, bytes) else json.dumps(e).encode() for e in events], PRICE)


def fold_text(*chunks: bytes) -> Document:
    return document(lines(chunks), PRICE)


def where(found: Document) -> dict[str, str]:
    """Which turn each named guard belongs to; one outside turns is not there."""
    return {
        guard["guard"]: turn["turn_key"]
        for turn in found["turns"]
        for guard in turn.get("guards_evaluated", ())
    }


def order(found: Document) -> str:
    return "".join(row["domain"] for row in found["net_events"])


def rules(found: Document) -> dict[str, str]:
    return {turn["turn_key"]: turn["assigned_by"] for turn in found["turns"]}


def statuses(found: Document) -> dict[str, str]:
    return {turn["turn_key"]: turn["status"] for turn in found["turns"]}


def checks(found: Document) -> dict[str, int]:
    return {row["check"]: row["count"] for row in found["findings"]}


def gaps(found: Document) -> list[tuple[str, int, int, int, str]]:
    return [(g["stream"], g["epoch"], g["from_seq"], g["to_seq"], g["state"]) for g in found["gaps"]]
