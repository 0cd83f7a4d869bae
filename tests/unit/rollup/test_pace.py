"""How long sessions that move all the time are left alone."""

from __future__ import annotations

import pytest

from turnledger.rollup.pace import LEAST_SECONDS, MOST_SECONDS, SHARE, Pace


def steady(pace: Pace, round_seconds: float, since: float, seconds: float) -> float:
    """A while in which a round of all who move takes so long, and comes once in a pause; when it ended."""
    now = since
    while now < since + seconds:
        now += pace.pause
        pace.worked(round_seconds, now)
    return now


@pytest.mark.parametrize(
    ("round_seconds", "pause"),
    [
        (0.005, LEAST_SECONDS),
        (LEAST_SECONDS * SHARE, LEAST_SECONDS),
        (0.46, 0.46 / SHARE),
        (MOST_SECONDS * SHARE * 3, MOST_SECONDS),
    ],
    ids=["one that moves", "as many as a second holds", "more", "too many"],
)
def test_all_who_move_take_no_more_than_their_share(round_seconds: float, pause: float) -> None:
    pace = Pace(0.0)
    steady(pace, round_seconds, 0.0, 60.0)
    assert pace.pause == pytest.approx(pause, rel=0.02)


def test_after_a_flood_the_second_comes_back_soon() -> None:
    pace = Pace(0.0)
    for now in range(1, 61):
        pace.worked(1.0, float(now))
    assert pace.pause == pytest.approx(MOST_SECONDS, rel=0.01)
    steady(pace, 0.005, 60.0, 15.0)
    assert pace.pause == LEAST_SECONDS


def test_a_clock_that_stands_still_changes_nothing() -> None:
    pace = Pace(5.0)
    pace.worked(1.0, 5.0)
    assert pace.pause == LEAST_SECONDS
