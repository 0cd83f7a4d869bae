"""A state read anew after a crash reports everything, also that there is nothing: what is stored may be older than the events."""

from __future__ import annotations

from turnledger.contract.event import Event
from turnledger.fold.state import SessionState


def numbered(*seqs: int) -> list[Event]:
    return [Event(session_id="s", type="note", seq=seq) for seq in seqs]


def test_a_hole_that_was_filled_before_the_crash_is_reported_as_gone() -> None:
    state = SessionState.from_history("default", "s", numbered(0, 1, 2), written=False)
    assert state.take_changes(True, force=True).gaps == []


def test_a_hole_that_is_still_there_is_reported() -> None:
    state = SessionState.from_history("default", "s", numbered(0, 2), written=False)
    assert state.take_changes(True, force=True).gaps == [
        {"producer": "harness", "epoch": 0, "stream": "ledger", "from_seq": 1, "to_seq": 1, "state": "open"}
    ]


def test_what_was_written_is_not_reported_again() -> None:
    state = SessionState.from_history("default", "s", numbered(0, 2), written=True)
    assert state.take_changes(True, force=True).gaps is None
