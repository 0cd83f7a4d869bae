"""Which offsets a replay means: what was typed, what the log holds, what the ledger has read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnledger.replay.broker import Pace
from turnledger.replay.ranges import (
    Bound,
    Log,
    Missing,
    NotARange,
    Plan,
    Standing,
    chosen_partitions,
    parse_bound,
    plan,
)

NOW = 1_772_000_000.0
EVERYTHING = Bound()
READ = Standing(first_offset=0, next_offset=60, group_id="turnledger", owner="worker@vm-1:7/1", alive=False)


@pytest.mark.parametrize(
    ("option", "typed", "bound"),
    [
        ("--from", "beginning", Bound()),
        ("--to", "now", Bound()),
        ("--from", "0", Bound(offset=0)),
        ("--to", "9223372036854775807", Bound(offset=2**63 - 1)),
        ("--from", "2026-02-25T06:13:20Z", Bound(at=1_772_000_000_000)),
        ("--to", "2026-02-25T07:13:20.5+01:00", Bound(at=1_772_000_000_500)),
        ("--from", "90s", Bound(at=1_771_999_910_000)),
        ("--from", "7d", Bound(at=1_771_395_200_000)),
    ],
)
def test_an_end_is_typed_as_a_word_an_offset_a_time_or_so_long_ago(
    option: str, typed: str, bound: Bound
) -> None:
    assert parse_bound(option, typed, NOW) == bound


@pytest.mark.parametrize(
    ("option", "typed"),
    [
        ("--from", "now"), ("--to", "beginning"), ("--from", "yesterday"), ("--to", "-1"), ("--from", "2026-02-25T06:13:20"),
        ("--from", "9223372036854775808"), ("--to", ""), ("--from", "٣"), ("--from", "5w"),
    ],
)  # fmt: skip
def test_what_is_no_end_is_a_sentence_that_names_it(option: str, typed: str) -> None:
    with pytest.raises(NotARange, match=option):
        parse_bound(option, typed, NOW)


@pytest.mark.parametrize(
    ("log", "standing", "start", "end", "again", "unread", "gone"),
    [
        # All of it was read; some of it; none of it.
        (Log(0, 60), READ, Bound(), Bound(), (0, 60), (60, 60), 0),
        (Log(0, 100), READ, Bound(), Bound(), (0, 60), (60, 100), 0),
        (Log(0, 100), None, Bound(), Bound(), (0, 0), (0, 100), 0),
        # Offsets, inside and outside of the log.
        (Log(0, 100), READ, Bound(20), Bound(40), (20, 40), (60, 60), 0),
        (Log(0, 100), READ, Bound(20), Bound(80), (20, 60), (60, 80), 0),
        (Log(0, 100), READ, Bound(20), Bound(900), (20, 60), (60, 100), 0),
        (Log(0, 100), READ, Bound(900), Bound(), (900, 900), (900, 900), 0),
        (Log(0, 100), READ, Bound(40), Bound(20), (40, 40), (60, 60), 0),
        (Log(0, 100), None, Bound(30), Bound(), (30, 30), (30, 100), 0),
        # What has left Kafka.
        (Log(25, 60), READ, Bound(), Bound(), (25, 60), (60, 60), 25),
        (Log(25, 60), READ, Bound(20), Bound(), (25, 60), (60, 60), 5),
        (Log(25, 60), READ, Bound(5), Bound(15), (15, 15), (60, 60), 10),
        (Log(25, 60), None, Bound(), Bound(), (25, 25), (25, 60), 25),
        # A partition that was first read in its middle.
        (Log(0, 60), replace(READ, first_offset=30), Bound(), Bound(), (30, 60), (60, 60), 0),
        # Times: the first record of then or later; none.
        (Log(0, 60, 20, 40), READ, Bound(at=1), Bound(at=2), (20, 40), (60, 60), 0),
        (Log(0, 60, None, None), READ, Bound(at=1), Bound(), (60, 60), (60, 60), 0),
        (Log(0, 60, 20, None), READ, Bound(at=1), Bound(at=2), (20, 60), (60, 60), 0),
        # An empty log.
        (Log(0, 0), None, Bound(), Bound(), (0, 0), (0, 0), 0),
    ],
)
def test_a_plan_splits_what_was_asked_into_what_was_read_and_what_was_not(
    log: Log,
    standing: Standing | None,
    start: Bound,
    end: Bound,
    again: tuple[int, int],
    unread: tuple[int, int],
    gone: int,
) -> None:
    found = plan(3, log, standing, start, end)
    assert (_span(found.again), _span(found.unread), found.gone) == (_span(again), _span(unread), gone)
    assert found.refused is None or found.unread[0] > 60


def _span(span: tuple[int, int]) -> tuple[int, int] | None:
    return span if span[0] < span[1] else None


def test_a_worker_that_lives_reads_on_by_itself() -> None:
    found = plan(0, Log(0, 100), replace(READ, alive=True), EVERYTHING, EVERYTHING)
    assert (found.unread, found.owner, found.refused) == ((60, 100), "worker@vm-1:7/1", None)


def test_what_another_replay_reads_is_no_workers_and_is_not_left_to_it() -> None:
    other = replace(READ, alive=True, owner="replay@vm-1:7/1")
    found = plan(0, Log(0, 100), other, EVERYTHING, EVERYTHING)
    assert found.owner is None and found.refused is not None and "replay@vm-1:7/1" in found.refused
    assert plan(0, Log(0, 60), other, EVERYTHING, EVERYTHING).refused is None
    assert plan(0, Log(0, 60), replace(other, behind=True), EVERYTHING, EVERYTHING).refused is not None


@pytest.mark.parametrize(
    ("log", "start", "chosen", "said"),
    [
        (Log(0, 100), EVERYTHING, True, "would leave the others out"),
        (Log(0, 100), Bound(70), False, "would leave 10 records out for good"),
        (Log(65, 100), EVERYTHING, False, "5 records are gone from Kafka"),
    ],
)
def test_what_would_leave_records_out_for_good_is_refused(
    log: Log, start: Bound, chosen: bool, said: str
) -> None:
    found = plan(0, log, READ, start, EVERYTHING, chosen=chosen)
    assert found.refused is not None and said in found.refused


def test_a_time_that_may_lie_before_the_log_is_said_to_be_cut() -> None:
    found: Plan = plan(0, Log(25, 60, 25), READ, Bound(at=1), EVERYTHING)
    assert (found.cut, found.gone) == (True, 0)
    assert not plan(0, Log(0, 60, 0), READ, Bound(at=1), EVERYTHING).cut
    assert not plan(0, Log(25, 60, 30), READ, Bound(at=1), EVERYTHING).cut


def test_partitions_are_all_or_those_that_are_named_once_each() -> None:
    there = {0: Log(0, 1), 1: Log(0, 1), 2: Log(0, 1)}
    assert chosen_partitions(there, None, "t") == [0, 1, 2]
    assert chosen_partitions(there, [2, 0, 2], "t") == [0, 2]
    with pytest.raises(NotARange, match="no partition 3"):
        chosen_partitions(there, [3], "t")


def test_offsets_without_a_record_are_named_in_runs_each_once() -> None:
    found = Missing()
    found.read(5, [5, 6, 9], 10)
    found.read(10, [], 14)
    found.read(14, [14, 15], 16)
    assert (found.offsets, found.ranges, found.named) == (6, 2, [(7, 9), (10, 14)])
    # Read again from where a connection broke: told before.
    found.read(10, [14, 15], 18)
    assert (found.offsets, found.ranges, found.named) == (8, 3, [(7, 9), (10, 14), (16, 18)])
    # A run goes on behind the end of a piece.
    found.read(18, [20], 21)
    assert (found.offsets, found.ranges, found.named[-1]) == (10, 3, (16, 20))


def test_of_many_runs_without_a_record_the_first_are_named_and_all_are_counted() -> None:
    found = Missing()
    found.read(0, list(range(0, 100, 2)), 100)
    assert (found.offsets, found.ranges, found.named[-1]) == (50, 50, (39, 40))
    found.read(100, [], 101)
    assert (found.offsets, found.ranges) == (51, 50)


def test_a_pace_lets_no_more_through_than_its_rate() -> None:
    now = 0.0
    pace = Pace(100.0, lambda: now)
    assert pace.at_once == 10
    assert pace.pause(10) == pytest.approx(0.1)
    assert pace.pause(10) == pytest.approx(0.2)
    now = 5.0  # what was not used is not saved up
    assert pace.pause(10) == pytest.approx(0.1)
    assert (Pace(0.0).pause(1_000_000), Pace(0.0).at_once) == (0.0, None)
