"""Design 3.1: every case of usage, tools, records and sums says the same by the quick ways, by the whole rule, and event by event."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.property.fold_sessions import Projection, extend, fresh, taken
from tests.unit.contract_cases import (
    test_buckets,
    test_cost,
    test_one_call,
    test_reports,
    test_running_totals,
    test_several_sessions,
    test_sums,
    test_tool_pairing,
    test_turn_fields,
    test_where_rules_meet,
)
from tests.unit.contract_cases.envelopes import CASES, Case, Object, found, numbered
from turnledger.fold import turnfold
from turnledger.fold.dedupe import dedupe
from turnledger.fold.session import fold_session
from turnledger.fold.state import SessionState

SUBJECTS = (
    *(test_buckets, test_cost, test_one_call, test_reports, test_running_totals, test_several_sessions),
    *(test_sums, test_tool_pairing, test_turn_fields, test_where_rules_meet),
)
every_case = pytest.mark.parametrize("case", CASES, ids=[f"{n}: {case.rule}" for n, case in enumerate(CASES)])


def test_the_cases_are_those_of_every_subject() -> None:
    assert len(CASES) > 20 * len(SUBJECTS)


@every_case
def test_the_whole_rule_says_what_the_quick_ways_say(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> Object | None:
        return None

    monkeypatch.setattr(turnfold, "quick_calls", none)
    monkeypatch.setattr(turnfold, "quick_tools", none)
    assert found(case) == case.expected


@every_case
def test_event_by_event_gives_what_the_set_gives(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnledger.fold.state.CLOSED_BUDGET", 1500)
    lines = [json.dumps(event).encode() for event in numbered(case.events)]
    for key, events in dedupe(enumerate(lines, 1)).sessions.items():
        whole = Projection.of(fold_session(*key, fresh(events)))
        for seed in range(2):
            arrival = random.Random(seed).sample(events, len(events)) if seed else list(events)
            state, projection = SessionState(*key), Projection()
            for n, event in enumerate(arrival):
                extend(state, fresh([event]), arrival[:n])
                projection.apply(taken(state, True, arrival[: n + 1]))
            assert projection.tidy() == whole
