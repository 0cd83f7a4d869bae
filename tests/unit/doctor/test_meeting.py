"""Rows that pass each other say what rows that are held say (doctor.meeting, doctor.held.Muster)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from turnledger.contract.event import Event
from turnledger.doctor.faults import Fault
from turnledger.doctor.held import HeldEvent, Muster, StoredStream, events_faults
from turnledger.doctor.meeting import Faults, Meeting
from turnledger.doctor.rows import Row, compare
from turnledger.fold.seen import StreamSeen
from turnledger.store.keys import receipt_hash
from turnledger.store.read import SessionRef

COLUMNS = (("a", "int8"), ("b", "text"))
NAMED = {"tenant": "t", "session_id": "s"}


def key(row: Row) -> Any:
    return row["key"]


def told(faults: list[Fault]) -> list[str]:
    return sorted(repr(fault) for fault in faults)


ROWS = st.dictionaries(
    st.integers(0, 12), st.tuples(st.integers(0, 1), st.sampled_from("xy")), max_size=12
).map(lambda found: [{"key": name, "a": a, "b": b} for name, (a, b) in found.items()])


@given(computed=ROWS, stored=ROWS, data=st.data())
def test_rows_that_pass_each_other_say_what_rows_that_are_held_say(
    computed: list[Row], stored: list[Row], data: st.DataObject
) -> None:
    """In any order, in portions of any size, with rows that stand twice."""
    doubled = data.draw(st.lists(st.sampled_from(stored), max_size=3)) if stored else []
    passing = data.draw(st.permutations([*stored, *doubled]))
    ahead = data.draw(st.integers(1, 5))
    portion = data.draw(st.integers(1, 5))
    each = data.draw(st.integers(1, 5))

    def portions() -> Iterator[list[Row]]:
        for at in range(0, len(passing), portion):
            yield passing[at : at + portion]

    meeting = Meeting("I4", "turns", NAMED, COLUMNS, key, portions(), 100, ahead)
    for at in range(0, len(computed), each):
        meeting.add(computed[at : at + each])
    assert told([*meeting.end()]) == told(compare("I4", "turns", NAMED, COLUMNS, key, computed, passing))


def test_what_waits_is_what_may_wait_whatever_is_missing() -> None:
    """One row that never comes does not have all others read."""
    read = 0

    def portions() -> Iterator[list[Row]]:
        nonlocal read
        for name in range(1, 1000):
            read += 1
            yield [{"key": name, "a": 0, "b": "x"}]

    meeting = Meeting("I4", "turns", NAMED, COLUMNS, key, portions(), 10, ahead=5)
    meeting.add([{"key": 0, "a": 0, "b": "x"}])
    assert read == 5
    meeting.add([{"key": name, "a": 0, "b": "x"} for name in range(1, 10)])
    assert read == 14
    meeting.add([{"key": name, "a": 0, "b": "x"} for name in range(10, 1000)])
    (fault,) = meeting.end()
    assert (fault.what, fault.row["key"]) == ("turns lacks a row", 0)


def test_a_key_that_is_computed_twice_lacks_a_row_once() -> None:
    """Findings of turns that have lost their numbers have the keys of those outside turns."""
    meeting = Meeting("I4", "findings", NAMED, COLUMNS, key, iter([[{"key": 0, "a": 0, "b": "x"}]]), 10, 5)
    meeting.add([{"key": 0, "a": 0, "b": "x"}, {"key": 0, "a": 0, "b": "x"}])
    assert [(one.what, one.row["key"]) for one in meeting.end()] == [("findings lacks a row", 0)]


def test_the_first_faults_of_a_sentence_are_kept_and_all_are_counted() -> None:
    faults = Faults(shown=2)
    for n in range(5):
        faults.add(Fault("I4", "turns lacks a row", {"key": n}))
    faults.add(Fault("I4", "turns has a row that should not be", {"key": 9}))
    assert [(one.what, one.row["key"], one.faults) for one in faults] == [
        ("turns lacks a row", 0, 1),
        ("turns lacks a row", 1, 4),
        ("turns has a row that should not be", 9, 1),
    ]


DAY = date(2026, 3, 1)
REF = SessionRef(1, "t", "s")


def event(seq: int) -> Event:
    """As the ledger has it: below 0 without a number."""
    return Event(
        tenant="t",
        session_id="s",
        producer="p",
        epoch=0,
        stream="ledger",
        seq=seq if seq >= 0 else None,
        receipt_key=None if seq >= 0 else f"r{-1 - seq}",
        type="x",
    )


@given(
    numbers=st.sets(st.integers(0, 20)),
    receipts=st.integers(0, 3),
    lost=st.sets(st.integers(-4, 20), max_size=2),
    hi=st.integers(-1, 1),
    counted=st.integers(-1, 1),
    moved=st.integers(0, 2),
    twice=st.booleans(),
    vacuumed=st.booleans(),
)
def test_a_session_that_passes_says_what_one_that_is_held_says(
    numbers: set[int],
    receipts: int,
    lost: set[int],
    hi: int,
    counted: int,
    moved: int,
    twice: bool,
    vacuumed: bool,
) -> None:
    """Whatever of a stream's row, its days, its receipts and its events is not what it was."""
    seen = StreamSeen()
    for seq in sorted(numbers):
        seen.add(seq)
    stream = StoredStream(
        7,
        ("p", 0, "ledger"),
        low=seen.low,
        hi=seen.hi + hi,
        holes=seen.missing + counted * (len(lost) == 1),
        receipts=receipts + counted,
        open_gaps=0,
        vacuumed=int(vacuumed),
        chunks=seen.chunks(),
        days={DAY: (min(numbers, default=0), max(numbers, default=0) - moved)},
        known={
            at: (receipt_hash(f"r{at}" if at != moved else "other"), DAY + timedelta(days=0))
            for at in range(receipts)
        },
    )
    there = [*sorted(numbers - lost), *(-1 - at for at in range(receipts) if -1 - at not in lost)]
    events = [HeldEvent(event(seq), 7, seq, DAY) for seq in there]
    if twice and events:
        events.insert(1, events[0]._replace(day=DAY + timedelta(days=1)))
    muster = Muster(REF, [stream])
    for one in events:
        muster.add([one])
    assert told(muster.faults()) == told(events_faults(REF, [stream], events))
