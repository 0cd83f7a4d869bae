"""What was superseded is told in the session's order, also where a stream that says it is superseded itself."""

from __future__ import annotations

from turnledger.contract.event import Event
from turnledger.contract.reader import read
from turnledger.fold.session import fold_session
from turnledger.fold.state import SessionState


def superseded(stream: str, seq: int, second: int, named: str) -> Event:
    event = read(
        (
            f'{{"session_id":"s","stream":"{stream}","seq":{seq},"type":"stream.superseded","occurred_at":"2026-05-01T10:00:{second:02d}Z",'
            f'"payload":{{"producer":"harness","epoch":0,"stream":"{named}","reason":"newer"}}}}'
        ).encode()
    )
    assert isinstance(event, Event)
    return event


def story() -> list[Event]:
    # `later` is superseded itself and speaks after `first` did.
    return [
        superseded("first", 0, 1, "old"),
        superseded("first", 1, 2, "later"),
        superseded("later", 0, 3, "older"),
    ]


def test_the_whole_fold_and_one_event_at_a_time_tell_them_alike() -> None:
    whole = fold_session("default", "s", story()).findings
    state = SessionState("default", "s")
    findings = None
    for event in story():
        state.extend([event])
        changes = state.take_changes(True, force=True)
        findings = changes.findings if changes.findings is not None else findings
    assert findings == whole
    # The last one to speak of a stream is told first.
    assert [one["row"]["stream"] for one in whole if one["check"] == "superseded_stream"] == [
        "older",
        "later",
        "old",
    ]
