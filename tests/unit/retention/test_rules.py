"""Which sessions a retention run chooses: the pinned examples of the harness that had it first, without its faults."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from turnledger.errors import TurnledgerError
from turnledger.retention.rules import Candidate, Rules, choose

NOW = datetime(2026, 6, 1, tzinfo=UTC)
MONTH = timedelta(days=30)


def session(number: int, *, days: int, content: bool = False, **more: Any) -> Candidate:
    """A stopped session of which the last came so many days ago; empty unless said otherwise."""
    given = {"status": "stopped", "silent": not content, **more}
    return Candidate(
        number, "default", f"s{number}", last_arrival=NOW - timedelta(days=days), content=content, **given
    )


def went(
    candidates: list[Candidate], rules: Rules, persistent: set[int] | None = None
) -> list[tuple[int, str]]:
    choice = choose(candidates, rules, NOW, persistent or set())
    return [(one.candidate.session_no, one.rule) for one in choice.chosen]


def test_the_empty_go_before_those_with_content() -> None:
    some = [
        session(1, days=9, content=True),
        session(2, days=3),
        session(3, days=5),
        session(4, days=1),
        session(5, days=2, content=True),
    ]
    assert went(some, Rules(max_sessions=3)) == [(3, "count"), (2, "count")]


def test_protection_of_the_newest_with_content_wins_over_the_count() -> None:
    some = [session(number, days=10 - number, content=True) for number in range(1, 6)]
    choice = choose(some, Rules(max_sessions=3, keep_content=4), NOW)
    assert [one.candidate.session_no for one in choice.chosen] == [1]
    assert choice.unmet == ["1 sessions more than 3 stay: they run, are persistent or are protected"]


def test_of_old_sessions_with_content_the_oldest_beyond_the_protected_go() -> None:
    some = [session(number, days=100 - number, content=True) for number in range(1, 4)]
    assert went(some, Rules(age=MONTH, keep_content=2)) == [(1, "age")]


def test_old_sessions_without_content_go_whether_they_made_requests_or_not() -> None:
    some = [session(1, days=31), session(2, days=31, silent=False), session(3, days=29)]
    assert went(some, Rules(age=MONTH)) == [(1, "age"), (2, "age")]


def test_of_those_without_content_the_ones_that_made_no_request_go_first() -> None:
    some = [session(1, days=9, silent=False), session(2, days=2)]
    assert went(some, Rules(max_sessions=1)) == [(2, "count")]


def test_running_and_persistent_sessions_never_go_by_any_rule() -> None:
    some = [
        session(1, days=400, status="running", bytes=10),
        session(2, days=400, bytes=10),
        session(3, days=400, bytes=10),
    ]
    rules = Rules(age=MONTH, max_sessions=0, max_bytes=0)
    choice = choose(some, rules, NOW, {2})
    assert [one.candidate.session_no for one in choice.chosen] == [3]
    assert (choice.running, choice.persistent) == (1, 1)
    assert len(choice.unmet) == 2


def test_the_oldest_go_until_the_rest_fits() -> None:
    some = [session(1, days=3, bytes=40), session(2, days=9, bytes=30), session(3, days=6, bytes=50)]
    assert went(some, Rules(max_bytes=50)) == [(2, "size"), (3, "size")]
    assert went(some, Rules(max_bytes=120)) == []


def test_what_one_rule_chose_counts_for_the_next() -> None:
    some = [session(1, days=40, bytes=60), session(2, days=9, bytes=30), session(3, days=6, bytes=50)]
    assert went(some, Rules(age=MONTH, max_sessions=2, max_bytes=80)) == [(1, "age")]


def test_nothing_goes_by_itself() -> None:
    with pytest.raises(TurnledgerError, match="say what may go"):
        Rules()
