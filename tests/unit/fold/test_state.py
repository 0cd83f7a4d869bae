"""The incremental path: what it takes event by event, when it folds whole, what it reports."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.fold.events import Story
from turnledger.contract.event import Event
from turnledger.fold import state as module
from turnledger.fold.items import ItemKey, item_key
from turnledger.fold.session import fold_session
from turnledger.fold.state import NeedsHistory, SessionState


class Counted(SessionState):
    """Says how often the whole set was folded."""

    def __init__(self, tenant: str, session_id: str) -> None:
        super().__init__(tenant, session_id)
        self.whole = 0

    def _fold_whole(self, written: bool) -> None:
        self.whole += 1
        super()._fold_whole(written)


def turn_of(story: Story, number: int, bounded: bool, **given: Any) -> None:
    always = given if bounded else {"turn": f"t{number}", **given}
    story("turn.started", **always)
    call = f"c{number}"
    story("model_call.started", call=call, provider="p", model="m", **always)
    story(
        "model_call.completed",
        call=call,
        provider="p",
        model="m",
        message_id=f"m{number}",
        usage={"output": 1},
        **always,
    )
    story("tool_call.requested", call=call, tool=f"x{number}", tool_name="bash", **always)
    story("tool_call.completed", tool=f"x{number}", status="ok", **always)
    story("net.requested", domain="d", decision="allowed", **always)
    story("turn.completed", **always)


def told(shape: str) -> Story:
    story = Story()
    story("session.started")
    for number in range(6):
        if shape == "streams":
            first = len(story.events)
            turn_of(story, number, False)
            for place, event in enumerate(story.events[first:]):
                event.stream = ("ledger", "bus", "trace")[place % 3]
        else:
            turn_of(story, number, shape == "boundaries")
    following: dict[str, int] = {}
    for event in story.events:
        event.seq = following.get(event.stream, 0)
        following[event.stream] = event.seq + 1
    return story


@pytest.mark.parametrize("shape", ["ids", "boundaries", "streams"])
def test_the_usual_shapes_are_never_folded_whole(shape: str) -> None:
    state = Counted("default", "s")
    reported: list[str] = []
    for event in told(shape).events:
        state.extend([event])
        reported += [fold.turn.key for fold in state.take_changes(False).turns]
        state.drop_closed()
    assert state.whole == 0
    assert len(reported) == 6
    assert len(set(reported)) == 6


def test_side_streams_without_ids_are_never_folded_whole() -> None:
    story = Story()
    for number in range(4):
        story("turn.started", turn=f"t{number}")
        story("net.requested", stream="vm", domain="d", decision="allowed")
        story("message.recorded", turn=f"t{number}", role="assistant", text="done")
        story("turn.completed", turn=f"t{number}")
        story("net.requested", stream="vm", domain="between", decision="allowed")
    state = Counted("default", "s")
    found = {}
    for event in story.events:
        state.extend([event])
        found |= {fold.turn.key: fold.record for fold in state.take_changes(True).turns}
        state.drop_closed()
    assert state.whole == 0
    assert [(key, record["counts"]["net"], record["assigned_by"]) for key, record in found.items()] == [
        (f"t{number}", 1, "window") for number in range(4)
    ]


def test_an_event_that_an_end_leaves_behind_goes_to_no_turn() -> None:
    story = Story()
    state = Counted("default", "s")
    state.extend([story("turn.started", turn="t"), story("net.requested", stream="vm", second=50)])
    (fold,) = state.take_changes(True).turns
    assert fold.record["counts"]["net"] == 1
    state.extend([story("turn.completed", turn="t", second=20)])
    (fold,) = state.take_changes(True).turns
    assert fold.record["counts"]["net"] == 0
    assert state.whole == 0


def test_starts_without_numbers_in_any_order_of_their_times_are_not_folded_whole() -> None:
    story = Story()
    for number, second in enumerate((0, 100, 50)):
        for type_ in ("turn.started", "message.recorded"):
            story(type_, turn=f"t{number}", seq=None, receipt_key=f"{type_} {number}", second=second)
    state = Counted("default", "s")
    statuses = {}
    for event in story.events:
        state.extend([event])
        statuses |= {fold.turn.key: fold.record["status"] for fold in state.take_changes(True).turns}
    assert statuses == {"t0": "abandoned", "t1": "open", "t2": "abandoned"}
    assert state.whole == 0


def test_a_hole_that_never_fills_costs_no_whole_fold() -> None:
    events = told("ids").events
    del events[3]
    state = Counted("default", "s")
    gaps = []
    for event in events:
        state.extend([event])
        changes = state.take_changes(True)
        if changes.gaps is not None:
            gaps.append([(row["from_seq"], row["to_seq"]) for row in changes.gaps])
    assert state.whole == 0
    assert gaps == [[(3, 3)]]


def test_an_open_turn_is_folded_only_when_open_turns_are_asked_for() -> None:
    story = Story(turn="t")
    state = SessionState("default", "s")
    state.extend([story("turn.started"), story("message.recorded", role="user", text="hi")])
    assert state.take_changes(False).turns == []
    assert state.has_open_changes
    (fold,) = state.take_changes(True).turns
    assert fold.record["status"] == "open"
    assert not state.has_open_changes
    state.extend([story("turn.completed")])
    assert state.has_changes
    (fold,) = state.take_changes(False).turns
    assert fold.record["status"] == "completed"


def test_a_late_result_right_after_an_end_needs_no_history() -> None:
    story = Story(turn="t")
    state = SessionState("default", "s")
    state.extend(
        [
            story("turn.started"),
            story("tool_call.requested", tool="x", tool_name="n"),
            story("turn.completed"),
        ]
    )
    (fold,) = state.take_changes(False).turns
    assert fold.record["tool_calls"][0]["pairing"] == "missing_result"
    state.drop_closed()
    state.extend([story("tool_call.completed", tool="x", status="ok")])
    (fold,) = state.take_changes(False).turns
    assert fold.record["tool_calls"][0]["pairing"] == "late_result"


def test_what_was_let_go_of_is_asked_for_and_only_what_differs_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CLOSED_BUDGET", 0)
    events = told("ids").events
    late = events.pop(10)
    state = SessionState("default", "s")
    state.extend(events)
    state.take_changes(True)
    state.drop_closed()
    with pytest.raises(NeedsHistory):
        state.extend([late])
    state.restore(events)
    changes = state.take_changes(True)
    assert [fold.turn.key for fold in changes.turns] == [late.turn_id]
    assert changes.gaps == []
    assert changes.removed_turns == []


def test_a_turn_that_is_no_more_is_removed() -> None:
    story = Story()
    state = SessionState("default", "s")
    state.extend([story("turn.started", trace="x"), story("turn.completed")])
    assert [fold.turn.key for fold in state.take_changes(True).turns] == ["@harness/0/ledger/0"]
    # The start is linked to a turn with an id, and the end closes that one.
    state.extend([story("net.requested", turn="t", trace="x", stream="bus")])
    changes = state.take_changes(True, force=True)
    assert changes.removed_turns == ["@harness/0/ledger/0"]
    assert [fold.turn.key for fold in changes.turns] == ["t"]


def test_the_first_facts_come_with_the_first_turn_and_later_ones_wait_for_open_turns() -> None:
    story = Story(turn="t")
    state = SessionState("default", "s")
    state.extend([story("turn.started")])
    assert state.take_changes(False, first_facts=True).facts is None
    state.extend([story("turn.completed")])
    changes = state.take_changes(False, first_facts=True)
    assert changes.facts is not None
    assert [fold.turn.key for fold in changes.turns] == ["t"]
    # A session of one turn is done: nothing waits.
    assert not state.has_changes and not state.has_open_changes
    state.extend([story("turn.started", turn="u"), story("turn.completed", turn="u")])
    changes = state.take_changes(False, first_facts=True)
    assert [fold.turn.key for fold in changes.turns] == ["u"]
    assert changes.facts is None and state.has_open_changes
    assert state.take_changes(True).facts is not None


def test_point_rows_are_reported_once_and_an_exit_replaces_its_start() -> None:
    story = Story(turn="t")
    state = SessionState("default", "s")
    state.extend([story("net.requested", domain="d"), story("process.started", exec_id="1", command="c")])
    changes = state.take_changes(False)
    assert {table: len(rows) for table, rows in changes.points.items()} == {"net_events": 1, "exec_events": 1}
    assert changes.replaced_points == {}
    state.extend([story("process.exited", exec_id="1", exit_code=0)])
    changes = state.take_changes(False)
    assert changes.replaced_points == {"exec_events": [("harness", 0, "ledger", 1, None)]}
    assert [row["exit_code"] for row in changes.points["exec_events"]] == [0]
    assert "net_events" not in changes.points


def test_rows_of_a_stream_that_is_superseded_later_are_taken_back() -> None:
    story = Story()
    state = SessionState("default", "s")
    state.extend([story("net.requested", stream="old", domain="d")])
    state.take_changes(True)
    named = {"producer": "harness", "epoch": 0, "stream": "old", "reason": "r"}
    state.extend([story("stream.superseded", stream="new", payload=named)])
    changes = state.take_changes(True, force=True)
    assert changes.replaced_points == {"net_events": [("harness", 0, "old", 0, None)]}
    state.extend([story("net.requested", stream="old", domain="e")])
    assert state.take_changes(True, force=True).points == {}


def test_superseded_streams_are_told_in_one_order_however_the_session_goes_on() -> None:
    story = Story()
    state = SessionState("default", "s")

    def names(stream: str) -> dict[str, Any]:
        return {"producer": "harness", "epoch": 0, "stream": stream, "reason": "r"}

    state.extend(
        [
            story("stream.superseded", stream="c", payload=names("b")),
            story("stream.superseded", stream="b", payload=names("a")),
        ]
    )
    state.take_changes(True, force=True)
    state.extend([story("stream.closed", stream="c", payload={"last_seq": 5})])
    changes = state.take_changes(True, force=True)
    assert changes.findings == story.fold().findings
    assert [row["row"]["stream"] for row in changes.findings if row["check"] == "superseded_stream"] == [
        "a",
        "b",
    ]


def test_rows_that_were_taken_back_are_not_taken_back_again_when_history_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CLOSED_BUDGET", 0)
    story = Story()
    state = SessionState("default", "s")
    named = {"producer": "harness", "epoch": 0, "stream": "old", "reason": "r"}
    state.extend([story("net.requested", stream="old", domain="d")])
    state.take_changes(True, force=True)
    state.extend([story("stream.superseded", stream="new", payload=named)])
    assert "net_events" in state.take_changes(True, force=True).replaced_points
    state.extend([story("turn.started", turn="t"), story("turn.completed", turn="t")])
    state.take_changes(True, force=True)
    state.drop_closed()
    with pytest.raises(NeedsHistory):
        state.extend([story("tool_call.completed", turn="t", tool="x", status="ok", seq=0, epoch=1)])
        state.take_changes(True, force=True)
    state.restore(story.events)
    assert state.take_changes(True, force=True).replaced_points == {}


def test_a_message_id_in_two_turns_is_one_call_of_the_first() -> None:
    story = Story()
    state = SessionState("default", "s")
    given = {"provider": "p", "model": "m", "message_id": "same", "usage": {"output": 5}}
    for turn in ("a", "b"):
        state.extend([story("turn.started", turn=turn), story("model_call.completed", turn=turn, **given)])
        changes = state.take_changes(True, force=True)
    assert {fold.turn.key: len(fold.calls) for fold in story.fold().turns} == {"a": 1, "b": 0}
    assert {fold.turn.key: len(fold.calls) for fold in changes.turns}["b"] == 0


def test_a_session_that_keeps_needing_whole_folds_waits_as_long_as_the_last_one_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]

    def ticking() -> float:
        clock[0] += 0.25
        return clock[0]

    monkeypatch.setattr(module, "monotonic", ticking)
    story = Story()
    state = SessionState("default", "s")
    events: list[Event] = [story("turn.started"), story("net.requested"), story("turn.completed")]
    state.extend(events[1:])
    state.extend(events[:1])
    assert state.take_changes(True).turns != []  # the first is never late; it took 0.25 s
    state.extend([story("net.requested", seq=9)])
    state.extend([story("net.requested", seq=7)])
    due = state.refold_due
    assert due == pytest.approx(clock[0] + 0.25)
    clock[0] = due - 0.3
    assert state.take_changes(True).gaps is None
    assert state.has_open_changes
    assert state.take_changes(True, force=True).gaps is not None
    assert state.refold_due == 0.0


def exchange(story: Story, number: int, trace: str) -> list[Event]:
    """A turn whose message and answer have rows of ``model_items``."""
    first = len(story.events)
    own = {"turn": f"t{number}", "trace": trace}
    story("turn.started", **own)
    story("message.recorded", role="user", text=f"question {number}", **own)
    story("message.recorded", role="user", text="the same in each turn", **own)
    story(
        "model_call.completed",
        call=f"c{number}",
        provider="p",
        model="m",
        message_id=f"m{number}",
        text=f"answer {number}",
        usage={"output": 1},
        **own,
    )
    story("turn.completed", **own)
    return story.events[first:]


def items_of(state: SessionState, events: list[Event], rows: dict[ItemKey, int]) -> None:
    """Extend, take and commit; ``rows``: the item rows that a database would hold."""
    state.extend(events)
    changes = state.take_changes(False)
    for key in changes.replaced_items:
        del rows[key]
    new = [(item.key, item.index) for item in changes.items]
    new += [(item_key(row), row["item_index"]) for row in changes.points.get("model_items", ())]
    for key, index in new:
        assert key not in rows
        rows[key] = index
    state.drop_closed()


def of_the_set(story: Story) -> dict[ItemKey, int]:
    fold = fold_session("default", "s", story.events)
    return {item_key(row): row["item_index"] for row in fold.points["model_items"]}


@pytest.mark.parametrize(("budget", "growth"), [(2_000, 150), (10**9, 3_200)])
def test_a_state_lets_go_of_what_was_said_with_the_turns_that_said_it(
    budget: int, growth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLOSED_BUDGET", budget)
    story, state = Story(), Counted("default", "s")
    rows: dict[ItemKey, int] = {}
    held: list[int] = []
    for number in range(60):
        items_of(state, exchange(story, number, f"trace-{number}"), rows)
        held.append(state._items.size_bytes + state._items_taken.size_bytes)
    assert state.whole == 0
    assert rows == of_the_set(story)
    # What is left of a turn is the name of its trace.
    assert (held[59] - held[29]) / 30 == growth


def test_a_trace_that_goes_on_after_it_was_let_go_of_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSED_BUDGET", 0)
    story, state = Story(), Counted("default", "s")
    rows: dict[ItemKey, int] = {}
    for number in range(3):
        items_of(state, exchange(story, number, f"trace-{number}"), rows)
    state.extend(exchange(story, 3, "trace-0"))
    with pytest.raises(NeedsHistory):
        state.take_changes(False)
    state.restore(list(story.events))
    items_of(state, [], rows)
    assert rows == of_the_set(story)
    # "the same in each turn" was said in this trace before: the exchange counts it, and has no row of it.
    assert len(rows) == 4 * 3 - 1
    for number in range(4, 8):
        items_of(state, exchange(story, number, f"trace-{number % 3}"), rows)
    assert state.whole == 1
    assert rows == of_the_set(story)
