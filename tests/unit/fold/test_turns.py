"""Membership and turns (contract 7): rule after rule, on the whole set."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.fold.events import Story, checks
from turnledger.contract.event import Event
from turnledger.fold.fields import place_key
from turnledger.fold.model import Turn
from turnledger.fold.order import ordered
from turnledger.fold.turns import RULES, membership


def owners(story: Story) -> list[str | None]:
    """The turn of each event as told, decided on the set in another order."""
    events = ordered(reversed(story.events))
    found = membership(events)
    by_event = {id(event): key for event, key in zip(events, found.owners, strict=True)}
    return [by_event[id(event)] for event in story.events]


def rules(story: Story) -> list[str]:
    events = ordered(story.events)
    found = membership(events)
    names = (*RULES, "none")
    by_event = {id(event): names[rule] for event, rule in zip(events, found.rules, strict=True)}
    return [by_event[id(event)] for event in story.events]


def turns(story: Story) -> dict[str, Turn]:
    return {turn.key: turn for turn in membership(ordered(story.events)).turns}


def states(story: Story) -> list[tuple[str, str, str]]:
    return [(turn.key, turn.status, turn.assigned_by) for turn in membership(ordered(story.events)).turns]


def test_session_level_types_belong_to_no_turn_whatever_they_carry() -> None:
    story = Story(turn="t")
    for type_ in (
        "session.started",
        "stream.declared",
        "driver.claimed",
        "capture.recorded",
        "session.of_tomorrow",
    ):
        story(type_)
    story("net.requested")
    assert owners(story) == [None] * 5 + ["t"]


# 1 and 2: id and index


def test_an_id_comes_before_everything() -> None:
    story = Story()
    story("turn.started")
    story("net.requested", turn="other", turn_index=3)
    assert owners(story) == ["@harness/0/ledger/0", "other"]


def test_an_index_belongs_to_the_only_id_that_carries_it() -> None:
    story = Story()
    story("net.requested", turn_index=3)
    story("net.requested", turn="t", turn_index=3)
    story("net.requested", turn_index=4)
    assert owners(story) == ["t", "t", "#4"]
    assert rules(story) == ["index", "id", "index"]
    assert states(story)[0] == ("t", "open", "index")


def test_an_index_of_two_ids_keeps_a_turn_of_its_own() -> None:
    story = Story()
    story("net.requested", turn="a", turn_index=1)
    story("net.requested", turn="b", turn_index=1)
    story("net.requested", turn_index=1)
    assert owners(story) == ["a", "b", "#1"]
    found = [one for one in story.fold().findings if one["check"] == "turn_index_ambiguous"]
    assert [one["row"] for one in found] == [{"turn_key": "#1", "turn_index": 1, "turn_ids": ["a", "b"]}]


def test_one_id_with_two_indexes_shows_the_first_and_owns_both() -> None:
    story = Story()
    story("net.requested", turn="a", turn_index=5)
    story("net.requested", turn="a", turn_index=2)
    story("net.requested", turn_index=2)
    story("net.requested", turn_index=5)
    assert owners(story) == ["a"] * 4
    assert turns(story)["a"].turn_index == 5
    assert "turn_two_indexes" in checks(story.fold())


@pytest.mark.parametrize(
    ("turn_id", "key"), [("t", "t"), ("#1", "@id:#1"), ("@x", "@id:@x"), ("a/b%", "a/b%"), ("x#", "x#")]
)
def test_an_id_that_looks_like_another_key_is_spelt_apart(turn_id: str, key: str) -> None:
    story = Story()
    story("net.requested", turn=turn_id)
    assert owners(story) == [key]


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"producer": "p", "stream": "s", "epoch": 2, "seq": 7}, "@p/2/s/7"),
        ({"producer": "id:a/b%", "stream": "file:x/y", "seq": 0}, "@id%3Aa%2Fb%25/0/file:x%2Fy/0"),
        ({"seq": None, "receipt_key": "r/é:1"}, "@harness/0/ledger/r:r%2Fé:1"),
        ({"seq": 4, "receipt_key": "data"}, "@harness/0/ledger/4"),
    ],
)
def test_a_position_is_spelt_with_its_parts_escaped(given: dict[str, Any], key: str) -> None:
    assert place_key(Event(session_id="s", type="turn.started", **given)) == key


# 3: link


def test_a_link_is_the_first_id_that_exactly_one_turn_holds() -> None:
    story = Story()
    story("net.requested", turn="a", call="1", trace="t")
    story("net.requested", turn="b", tool="x", trace="t")
    story("net.requested", turn="c", call="1", tool="y")
    story("net.requested", call="1", tool="x", trace="t")  # the call is of two turns, the tool call of one
    story("net.requested", call="1", trace="t")  # both are of two
    assert owners(story) == ["a", "b", "c", "b", None]


def test_links_are_followed_in_rounds_each_on_the_state_before_it() -> None:
    story = Story()
    story("net.requested", turn="a", call="1")
    story("net.requested", turn="b", trace="t")
    story("net.requested", call="1", tool="x")
    story("net.requested", tool="x", trace="u")
    story("net.requested", trace="u")
    # In one round both carry `both` into a turn, so that it is of two turns and links nobody.
    story("net.requested", call="1", tool="both")
    story("net.requested", trace="t", tool="both")
    story("net.requested", tool="both")
    assert owners(story) == ["a", "b", "a", "a", "a", "a", "b", None]


def test_a_link_comes_before_a_boundary_and_once_more_after_it() -> None:
    story = Story()
    story("net.requested", turn="a", trace="t", stream="bus")
    story("turn.started")
    story("net.requested", trace="t")
    story("net.requested", tool="x")
    story("turn.completed")
    story("net.requested", tool="x", stream="bus", second=1000)
    assert owners(story) == ["a", "@harness/0/ledger/0", "a"] + ["@harness/0/ledger/0"] * 3
    assert rules(story)[-1] == "link"


# 4: boundaries


def test_a_start_opens_an_end_closes_and_outside_there_is_none() -> None:
    story = Story()
    story("net.requested")
    story("turn.started")
    story("net.requested")
    story("turn.completed")
    story("net.requested")
    assert owners(story) == [None, *["@harness/0/ledger/1"] * 3, None]
    assert states(story) == [("@harness/0/ledger/1", "completed", "boundary")]


def test_a_start_replaces_the_open_turn_and_abandons_it() -> None:
    story = Story()
    story("turn.started")
    story("turn.started")
    story("net.requested")
    assert owners(story) == ["@harness/0/ledger/0", "@harness/0/ledger/1", "@harness/0/ledger/1"]
    assert [state[:2] for state in states(story)] == [
        ("@harness/0/ledger/0", "abandoned"),
        ("@harness/0/ledger/1", "open"),
    ]


def test_an_end_with_an_id_closes_only_its_own_turn() -> None:
    story = Story()
    story("turn.started", turn="a")
    story("turn.completed", turn="b", status="failed")
    story("net.requested")
    story("turn.completed")
    assert owners(story) == ["a", "b", "a", "a"]
    assert [state[:2] for state in states(story)] == [("a", "completed"), ("b", "failed")]


def test_an_end_with_nothing_open_has_what_came_since_the_previous_boundary() -> None:
    story = Story()
    story("turn.started")
    story("turn.completed")
    story("net.requested")
    story("turn.completed", status="aborted")
    story("net.requested")
    assert owners(story)[2:] == ["@harness/0/ledger/2", "@harness/0/ledger/2", None]
    assert "turn_without_start" in checks(story.fold())


def test_an_end_whose_turn_started_earlier_in_the_stream_takes_nothing() -> None:
    story = Story()
    story("turn.started", turn="a")
    story("turn.completed", turn="a")
    story("net.requested")
    story("turn.completed", turn="a", status="failed")
    assert owners(story) == ["a", "a", None, "a"]
    assert states(story)[0][1] == "failed"


def test_with_ends_alone_an_end_closes_everything_and_the_tail_is_open() -> None:
    story = Story()
    story("net.requested")
    story("turn.completed")
    story("net.requested")
    story("turn.completed", turn="b")
    story("net.requested")
    assert owners(story) == ["@harness/0/ledger/0"] * 2 + ["b", "b", "@harness/0/ledger/4"]
    assert [state[1] for state in states(story)] == ["completed", "completed", "open"]


def test_with_neither_a_user_message_opens_and_counts_as_the_start() -> None:
    story = Story()
    story("net.requested")
    story("message.recorded", role="user", text="one")
    story("message.recorded", role="user", tool="x", text="a result")
    story("message.recorded", role="user", content=[{"type": "tool_result"}])
    story("message.recorded", role="assistant", text="well")
    story("message.recorded", role="user", content=[{"type": "text"}])
    assert owners(story)[1:] == ["@harness/0/ledger/1"] * 4 + ["@harness/0/ledger/5"]
    assert turns(story)["@harness/0/ledger/1"].started is story.events[1]
    assert states(story)[0][1] == "abandoned"


def test_each_epoch_of_a_stream_has_boundaries_of_its_own() -> None:
    story = Story()
    story("turn.started", epoch=0)
    story("net.requested", epoch=1)
    assert owners(story) == ["@harness/0/ledger/0", "@harness/0/ledger/0"]
    assert rules(story) == ["boundary", "window"]
    # A restart begins a turn anew: the old one is abandoned, (producer, stream) being the same.
    story("turn.started", epoch=1)
    assert states(story)[0][1] == "abandoned"


# 5: window


def test_a_window_is_the_only_turn_around_an_events_place_in_time() -> None:
    story = Story()
    story("turn.started", second=10)
    story("turn.completed", second=20)
    story("turn.started", second=30)
    for second in (5, 15, 25, 35):
        story("net.requested", stream="vm", second=second)
    assert owners(story)[3:] == [None, "@harness/0/ledger/0", None, "@harness/0/ledger/2"]
    assert rules(story)[3:] == ["none", "window", "none", "window"]


def test_two_turns_around_an_event_are_no_window() -> None:
    story = Story()
    story("turn.started", second=0)
    story("turn.started", stream="bus", second=5)
    story("net.requested", stream="vm", second=3)
    story("net.requested", stream="vm", second=8)
    assert owners(story)[2:] == ["@harness/0/ledger/0", None]


def test_what_abandoned_a_turn_ends_its_window() -> None:
    story = Story()
    story("turn.started", second=0)
    story("session.ended", second=10)
    story("net.requested", stream="vm", second=5)
    story("net.requested", stream="vm", second=15)
    assert owners(story)[2:] == ["@harness/0/ledger/0", None]


def test_a_stream_with_boundaries_takes_part_in_no_window() -> None:
    story = Story()
    story("turn.started", second=0)
    story("turn.started", stream="bus", second=50)
    story("net.requested", stream="bus", second=5, seq=7)
    assert owners(story)[2] == "@harness/0/bus/0"
    story("net.requested", stream="bus", second=5, epoch=1)
    assert rules(story)[-1] == "none"  # carried over epochs its place is 50: two turns are open there


# 6 and 7


def test_a_stream_without_times_and_boundaries_falls_back_to_the_first_turn() -> None:
    story = Story()
    story("turn.started", second=10)
    story("turn.started", stream="bus", second=5)
    story("net.requested", stream="vm", second=None)
    assert owners(story)[2] == "@harness/0/bus/0"
    assert states(story)[0] == ("@harness/0/bus/0", "open", "fallback")


def test_without_turns_there_is_nothing_to_fall_back_to() -> None:
    story = Story()
    story("net.requested", second=None)
    assert owners(story) == [None]


# what became of a turn


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"status": "failed"}, "failed"),
        ({"status": "interrupted"}, "interrupted"),
        ({"status": "aborted"}, "aborted"),
        ({}, "completed"),
        ({"status": "paused"}, "completed"),
        ({"status": 7}, "completed"),
    ],
)
def test_the_last_end_says_what_became_of_a_turn(said: dict[str, Any], status: str) -> None:
    story = Story(turn="t")
    story("turn.started")
    story("turn.completed", status="completed")
    story("turn.completed", **said)
    assert turns(story)["t"].status == status


def test_a_turn_without_end_is_abandoned_when_its_session_ends_after_its_start() -> None:
    story = Story()
    story("turn.started", turn="before", stream="a")
    story("session.ended")
    story("turn.started", turn="after", stream="b")
    story("net.requested", turn="neither", stream="c")
    assert [state[:2] for state in states(story)] == [
        ("before", "abandoned"),
        ("after", "open"),
        ("neither", "open"),
    ]
    found = checks(story.fold())
    assert found.count("turn_open_in_ended_session") == 2
    assert found.count("turn_without_end") == 1
    assert found.count("turn_without_start") == 1


def test_a_start_in_another_stream_abandons_nobody() -> None:
    story = Story()
    story("turn.started", turn="a")
    story("turn.started", turn="b", stream="bus")
    assert [state[1] for state in states(story)] == ["open", "open"]


def test_a_second_start_of_the_same_turn_does_not_abandon_it() -> None:
    story = Story(turn="a")
    story("turn.started")
    story("turn.started")
    assert states(story) == [("a", "open", "id")]


def test_turns_are_ordered_by_their_start_else_by_their_first_event() -> None:
    story = Story()
    story("net.requested", turn="late start", second=0, stream="a")
    story("net.requested", turn="no start", second=5, stream="b")
    story("turn.started", turn="late start", second=9, stream="a")
    assert [state[0] for state in states(story)] == ["no start", "late start"]
