"""The case table after an answer that was lost (design 3.1)."""

from __future__ import annotations

import pytest

from turnledger.store.fence import Claim, LogBroken, Standing, Step, Verdict, check_anchor, check_log, judge

STEP = Step(partition=3, from_offset=100, to_offset=150, epoch=7, disturbed=2)


@pytest.mark.parametrize(
    ("standing", "verdict"),
    [
        (Standing(3, 150, 7, 2, 0), Verdict.APPLIED),
        (Standing(3, 100, 7, 2, 0), Verdict.NOT_APPLIED),
        (Standing(3, 100, 7, 3, 0), Verdict.DISTURBED),
        (Standing(3, 100, 8, 2, 0), Verdict.OTHER_OWNER),
        (Standing(3, 150, 8, 2, 0), Verdict.OTHER_OWNER),
        (Standing(3, 100, 6, 2, 0), Verdict.MOVED),
        (Standing(3, 120, 7, 2, 0), Verdict.MOVED),
        (None, Verdict.MOVED),
    ],
)
def test_what_became_of_a_step(standing: Standing | None, verdict: Verdict) -> None:
    assert judge(STEP, standing) is verdict


CLAIM = Claim(
    topic="events",
    partition=3,
    next_offset=900,
    epoch=8,
    disturbed=2,
    anchor_offset=899,
    anchor_crc=5,
    flushed_batch=0,
)


def test_events_that_are_gone_are_counted_in_the_sentence() -> None:
    with pytest.raises(
        LogBroken,
        match="partition 3 of events starts at 1200 but 900 is next: 300 events are gone from Kafka",
    ):
        check_log(CLAIM, 1200, 2000)


def test_a_log_that_ends_before_what_was_applied_is_another_one() -> None:
    with pytest.raises(LogBroken, match="ends at 10 but 900 is next"):
        check_log(CLAIM, 0, 10)


def test_an_anchor_that_is_gone_is_accepted_where_the_log_starts_at_the_next_offset() -> None:
    check_log(CLAIM, 900, 900)


def test_another_record_at_the_anchor_stops() -> None:
    check_anchor(CLAIM, 899, 5)
    check_anchor(CLAIM, 905, 6)
    with pytest.raises(LogBroken, match="another record at 899"):
        check_anchor(CLAIM, 899, 6)


def test_caches_stay_only_when_the_claim_is_the_next_one_and_nothing_moved() -> None:
    assert CLAIM.continues(7, 900, 2)
    assert not CLAIM.continues(6, 900, 2)
    assert not CLAIM.continues(7, 899, 2)
    assert not CLAIM.continues(7, 900, 1)
