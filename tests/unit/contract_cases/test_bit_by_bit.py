"""Contract 5: every case of gaps, order and turns gives the same when it comes bit by bit, in any order and batches, with history let go of."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.property.fold_sessions import Projection, extend, fresh, taken
from tests.unit.contract_cases import cases, test_gaps, test_order, test_sums, test_turns
from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.fold.dedupe import EventKey, event_key
from turnledger.fold.session import fold_session
from turnledger.fold.state import SessionState

TABLES: dict[str, dict[str, Any]] = {
    "gaps": test_gaps.CASES,
    "grades": test_gaps.GRADES,
    "order": test_order.CASES,
    "membership": test_turns.CASES,
    "status": test_turns.STATUSES,
    "times": test_turns.TIMES,
    "findings": test_turns.FINDINGS,
    "grades of turns": test_turns.GRADES,
    "processes": test_sums.EXEC,
    "sums": test_sums.SESSION,
}
SESSIONS = {f"{table}: {name}": case[0] for table, named in TABLES.items() for name, case in named.items()}
SESSIONS |= {
    "a receipt of another stream may be the earlier start": [
        cases.user(None, receipt_key="r0", at="01", turn_id="b"),
        cases.named(None, "n", receipt_key="r1", at="02", turn_id="a"),
        cases.user(None, receipt_key="r2", at="01", turn_id="b", stream="bus"),
    ],
}
ARRIVALS = 8


def read(events: list[cases.Event]) -> list[Event]:
    """The accepted events: no two of one key."""
    reader = FastReader()
    kept: dict[EventKey, Event] = {}
    for event in events:
        found = reader.read(json.dumps(event).encode())
        assert isinstance(found, Event)
        kept.setdefault(event_key(found), found)
    return list(kept.values())


@pytest.mark.parametrize("events", SESSIONS.values(), ids=SESSIONS.keys())
def test_arriving_bit_by_bit_gives_what_the_set_gives(
    events: list[cases.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnledger.fold.state.CLOSED_BUDGET", 1)
    everything = read(events)
    whole = Projection.of(fold_session("default", "s", fresh(everything)))
    for number in range(ARRIVALS):
        chance = random.Random(number)
        arrival = everything if number < 4 else chance.sample(everything, len(everything))
        state, projection = SessionState("default", "s"), Projection()
        at = 0
        while at < len(arrival):
            size = 1 if number % 2 else chance.randint(1, 4)
            extend(state, fresh(arrival[at : at + size]), arrival[:at])
            at += size
            action = chance.randrange(4) if number else 0
            if action < 2:
                projection.apply(taken(state, True, arrival[:at]))
                assert projection.tidy() == Projection.of(fold_session("default", "s", fresh(arrival[:at])))
            if action == 1:
                state.drop_closed()
            elif action == 2:
                projection.apply(taken(state, False, arrival[:at]))
                projection.apply(taken(state, True, arrival[:at]))
                state = SessionState.from_history("default", "s", fresh(arrival[:at]), written=True)
        projection.apply(taken(state, True, arrival))
        assert projection.tidy() == whole
