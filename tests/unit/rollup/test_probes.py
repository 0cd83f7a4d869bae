"""Health of the rollup worker: red for a database that fails or marks that nobody takes, green for idling."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from turnledger.errors import TurnledgerError
from turnledger.rollup.probes import Health, Metrics, server


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(20.0, clock)


def test_a_worker_that_makes_progress_is_green(health: Health, clock: Clock) -> None:
    clock.now = 100
    health.progress()
    clock.now = 119
    assert health.reasons() == []


def test_marks_that_nobody_takes_turn_it_red(health: Health, clock: Clock) -> None:
    health.marks = 7
    clock.now = 21
    assert health.reasons() == ["nothing was rolled up for 21 s, and 7 marks wait"]


def test_a_database_may_fail_for_five_seconds_and_progress_heals_it(health: Health, clock: Clock) -> None:
    health.failed("gone")
    clock.now = 4
    health.failed("still gone")
    assert health.reasons() == []
    clock.now = 6
    assert health.reasons() == ["the database fails for 6 s: still gone"]
    health.progress()
    assert health.reasons() == []


def test_a_session_that_cannot_be_set_is_named(health: Health) -> None:
    health.refused[12] = "SQLSTATE 22003"
    assert health.reasons() == ["session_no 12 cannot be rolled up: SQLSTATE 22003"]


def test_the_server_answers_while_the_worker_does_something_else(health: Health) -> None:
    beside = server(health, Metrics(), "127.0.0.1", 0)
    beside.run()
    try:
        address = f"http://127.0.0.1:{beside.server.port}"
        health.marks = 3
        with urllib.request.urlopen(f"{address}/healthz") as answer:
            assert json.load(answer) == {
                "status": "green",
                "reasons": [],
                "marks": 3,
                "oldest_mark_seconds": 0.0,
            }
        health.refused[1] = "why"
        with pytest.raises(urllib.error.HTTPError) as red:
            urllib.request.urlopen(f"{address}/healthz")
        assert red.value.code == 503
        with urllib.request.urlopen(f"{address}/metrics") as answer:
            assert b"turnledger_rollup_healthy 0.0" in answer.read()
        taken = server(health, Metrics(), "127.0.0.1", beside.server.port)
        with pytest.raises(TurnledgerError, match="cannot listen"):
            taken.run()
        taken.end()
    finally:
        beside.end()
