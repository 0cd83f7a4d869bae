"""Gaps (contract 4): what is missing, and what was declared about it."""

from __future__ import annotations

import pytest

from tests.unit.fold.events import Story, checks
from turnledger.fold.model import Row


def gaps(story: Story) -> list[tuple[str, int, str, int, int, str]]:
    return [
        (row["producer"], row["epoch"], row["stream"], row["from_seq"], row["to_seq"], row["state"])
        for row in story.fold().gaps
    ]


def plain(story: Story) -> list[tuple[int, int, str]]:
    return [gap[3:] for gap in gaps(story)]


def numbered(*numbers: int, **always: object) -> Story:
    story = Story(**always)
    for number in numbers:
        story("recorder.settled", seq=number)
    return story


def test_a_stream_is_dense_from_zero_unless_declared() -> None:
    assert plain(numbered(2, 3, 6)) == [(0, 1, "open"), (4, 5, "open")]


def test_first_seq_says_where_a_stream_begins() -> None:
    story = numbered(8, 11)
    story("stream.declared", seq=12, density="dense", first_seq=7)
    assert plain(story) == [(7, 7, "open"), (9, 10, "open")]


@pytest.mark.parametrize("density", ["sparse", "unknown"])
def test_a_sparse_or_unknown_stream_has_no_gaps(density: str) -> None:
    story = numbered(1, 9)
    story("stream.declared", seq=10, density=density)
    story("stream.lost", seq=12, from_seq=2, to_seq=4, reason="r")
    assert plain(story) == []


def test_a_declaration_holds_for_later_epochs_until_redeclared() -> None:
    story = Story()
    story("stream.declared", seq=5, density="sparse", epoch=1)
    story("recorder.settled", seq=3, epoch=0)
    story("recorder.settled", seq=3, epoch=2)
    story("stream.declared", seq=4, density="dense", epoch=3)
    story("recorder.settled", seq=1, epoch=4)
    assert gaps(story) == [
        ("harness", 0, "ledger", 0, 2, "open"),
        ("harness", 3, "ledger", 0, 3, "open"),
        ("harness", 4, "ledger", 0, 0, "open"),
    ]


def test_the_last_declaration_in_order_wins() -> None:
    story = numbered(0, 9)
    story("stream.declared", seq=10, density="dense")
    story("stream.declared", seq=11, density="sparse")
    assert plain(story) == []


def test_a_declaration_concerns_its_own_stream_but_for_what_it_names() -> None:
    story = Story()
    story("recorder.settled", seq=2, stream="bus")
    story(
        "stream.elided",
        seq=0,
        stream="ledger",
        payload={"stream": "bus", "from_seq": 0, "to_seq": 1, "reason": "r"},
    )
    story(
        "stream.lost",
        seq=1,
        stream="ledger",
        payload={"producer": "vm", "from_seq": 0, "to_seq": 3, "reason": "r"},
    )
    assert gaps(story) == [
        ("harness", 0, "bus", 0, 1, "declared_elided"),
        ("vm", 0, "ledger", 0, 3, "declared_lost"),
    ]


def test_lost_beats_elided_and_runs_are_of_one_state() -> None:
    story = numbered(0, 12)
    story("stream.elided", seq=13, from_seq=2, to_seq=8, reason="r")
    story("stream.lost", seq=14, from_seq=4, to_seq=5, reason="r")
    story("stream.lost", seq=15, from_seq=6, to_seq=6, reason="r")
    assert plain(story) == [
        (1, 1, "open"),
        (2, 3, "declared_elided"),
        (4, 6, "declared_lost"),
        (7, 8, "declared_elided"),
        (9, 11, "open"),
    ]


def test_a_declared_end_extends_what_is_expected() -> None:
    story = numbered(0, 1)
    story("stream.lost", seq=2, from_seq=5, to_seq=6, reason="r")
    story("stream.closed", seq=3, last_seq=8)
    assert plain(story) == [(4, 4, "open"), (5, 6, "declared_lost"), (7, 8, "open")]


def test_an_event_above_the_last_number_is_a_finding() -> None:
    story = numbered(0, 1)
    story("stream.closed", seq=2, last_seq=2)
    story("recorder.settled", seq=3)
    story("recorder.settled", seq=5)
    fold = story.fold()
    found = [finding for finding in fold.findings if finding["check"] == "event_after_close"]
    assert [(one["row"]["from_seq"], one["row"]["to_seq"], one["count"]) for one in found] == [
        (3, 3, 1),
        (5, 5, 1),
    ]
    assert [(row["from_seq"], row["to_seq"]) for row in fold.gaps] == [(4, 4)]


@pytest.mark.parametrize(
    "said",
    [
        {"from_seq": 1},
        {"to_seq": 1},
        {"from_seq": 2, "to_seq": 1},
        {"from_seq": "1", "to_seq": 2},
        {"from_seq": -1, "to_seq": 2},
        {"from_seq": 1, "to_seq": 2.5},
    ],
)
def test_an_incomplete_or_reversed_range_does_nothing_but_a_finding(said: Row) -> None:
    story = numbered(0, 3)
    story("stream.lost", seq=4, payload=said)
    fold = story.fold()
    assert [(row["from_seq"], row["to_seq"], row["state"]) for row in fold.gaps] == [(1, 2, "open")]
    assert checks(fold) == ["open_gap", "wrong_type_in_payload"]


def test_events_with_a_receipt_alone_take_part_in_no_gap_and_leave_the_grade_unknown() -> None:
    story = Story()
    story("recorder.settled", seq=None, receipt_key="a")
    fold = story.fold()
    assert fold.gaps == []
    assert fold.facts["stream_grade"] == "unknown"


def test_a_superseded_stream_is_left_out_and_shown() -> None:
    story = Story()
    story("recorder.settled", seq=4, stream="old")
    story("net.requested", seq=9, stream="old", domain="d", decision="allowed")
    story("recorder.settled", seq=0, stream="new")
    story(
        "stream.superseded",
        seq=1,
        stream="new",
        payload={"producer": "harness", "epoch": 0, "stream": "old", "reason": "r"},
    )
    fold = story.fold()
    assert fold.gaps == []
    assert fold.points == {}
    assert fold.facts["event_count"] == 2
    assert "superseded_stream" in checks(fold)


def test_a_stream_cannot_leave_itself_out_nor_half_name_another() -> None:
    story = Story()
    story(
        "stream.superseded",
        seq=0,
        payload={"producer": "harness", "epoch": 0, "stream": "ledger", "reason": "r"},
    )
    story("stream.superseded", seq=1, payload={"stream": "other", "reason": "r"})
    story("recorder.settled", seq=0, stream="other")
    fold = story.fold()
    assert fold.facts["event_count"] == 3
    assert "superseded_stream" not in checks(fold)
