"""The incremental path gives the same bytes as the fold of the set, whatever the order, the batches, what was let go of and restarts."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.property.budget import share
from tests.property.fold_sessions import (
    EVERY_FOURTH,
    NOWHERE,
    NUMBERED,
    RECEIPTS,
    SESSIONS,
    Projection,
    Step,
    build,
    extend,
    fresh,
    mostly_in_order,
    taken,
)
from turnledger.fold.session import fold_session
from turnledger.fold.state import SessionState


@share(150)
@example(  # a turn of which a running total came first starts behind turns that were folded after it, and those are let go of
    session=[
        *([(0, "start", 0, 0, 1, 0)] * 3),
        (0, "total", 2, 0, 1, 0),
        *([(0, "start", 0, 0, 1, 0)] * 2),
        (0, "start", 2, 0, 1, 0),
    ],
    receipts=NUMBERED,
    late=[],
    seed=0,
    batch=1,
)
@example(  # a start that comes after the session's end stands before it
    session=[
        (0, "end", 0, 0, 1, 0),
        (1, "start", 0, 0, 1, 0),
        (1, "start", 0, 0, 0, 0),
        (2, "net", 0, 0, 1, 0),
        *([(0, "start", 0, 0, 1, 0)] * 2),
        (0, "stop", 0, 0, 1, 0),
    ],
    receipts=NUMBERED,
    late=[],
    seed=0,
    batch=1,
)
@example(  # an earlier start without a number, from another stream
    session=[(0, "user", 2, 0, 1, 0), (0, "said", 1, 0, 1, 0), (1, "user", 2, 0, 1, 0)],
    receipts=NOWHERE,
    late=[],
    seed=1,
    batch=1,
)
@example(  # a stream's first number comes after an event without one
    session=[(1, "start", 1, 0, 1, 0)] * 3 + [(0, "start", 1, 0, 1, 0), (0, "said", 1, 0, 1, 0)],
    receipts=EVERY_FOURTH,
    late=[2],
    seed=0,
    batch=1,
)
@example(  # a window opens before an event without number that came earlier
    session=[
        (0, "said", 0, 0, 1, 0),
        (0, "said", 0, 0, 1, 0),
        (1, "start", 0, 1, 1, 0),
        (0, "answer", 0, 1, -1, 0),
        (0, "user", 0, 0, 1, 0),
        (0, "start", 0, 0, 1, 0),
    ],
    receipts=EVERY_FOURTH,
    late=[],
    seed=1,
    batch=1,
)
@given(
    session=SESSIONS,
    receipts=RECEIPTS,
    late=st.lists(st.integers(0, 23), max_size=3),
    seed=st.integers(0, 1 << 20),
    batch=st.integers(1, 7),
)
def test_extending_equals_the_fold_of_the_set(
    session: list[Step], receipts: int, late: list[int], seed: int, batch: int
) -> None:
    chance = random.Random(seed)
    events = mostly_in_order(build(session, receipts), late, chance)
    state = SessionState("t", "s")
    projection = Projection()
    for start in range(0, len(events), batch):
        arrived = fresh(events[start : start + batch])
        before = events[:start]
        extend(state, arrived, before)
        so_far = events[: start + batch]
        action = chance.randrange(6)
        if action == 0:
            projection.apply(taken(state, True, so_far))
            assert not state.has_changes
            assert not state.has_open_changes
            assert projection.tidy() == Projection.of(fold_session("t", "s", fresh(so_far)))
            state.drop_closed()
        elif action == 1:
            projection.apply(taken(state, False, so_far))
        elif action == 2:
            state.drop_closed()
        elif action == 3:
            projection.apply(taken(state, True, so_far))
            state = SessionState.from_history("t", "s", fresh(so_far), written=True)
    projection.apply(taken(state, True, events))
    assert projection.tidy() == Projection.of(fold_session("t", "s", fresh(events)))


@share(50)
@given(session=SESSIONS, receipts=RECEIPTS, seed=st.integers(0, 1 << 20))
def test_any_order_of_arrival_folds_to_the_same_bytes(session: list[Step], receipts: int, seed: int) -> None:
    events = build(session, receipts)
    shuffled = fresh(events)
    random.Random(seed).shuffle(shuffled)
    assert Projection.of(fold_session("t", "s", shuffled)) == Projection.of(
        fold_session("t", "s", fresh(events))
    )


@share(50)
@given(session=SESSIONS, seed=st.integers(0, 1 << 20))
def test_a_cold_load_reports_everything_or_nothing(session: list[Step], seed: int) -> None:
    events = build(session)
    expected = Projection.of(fold_session("t", "s", fresh(events)))
    unwritten = SessionState.from_history("t", "s", fresh(events), written=False)
    projection = Projection()
    projection.apply(unwritten.take_changes(True, force=True))
    assert projection.tidy() == expected
    written = SessionState.from_history("t", "s", fresh(events), written=True)
    assert not written.has_changes
    assert not written.has_open_changes


@pytest.fixture(autouse=True)
def _small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let go of closed turns at once, so that history is needed often."""
    monkeypatch.setattr("turnledger.fold.state.CLOSED_BUDGET", 1500)
