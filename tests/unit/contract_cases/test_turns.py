"""Contract 7: to which turn an event belongs, by which rule, what the turn is called and how it stands."""

from __future__ import annotations

import random

import pytest

from tests.unit.contract_cases.cases import (
    Event,
    checks,
    end,
    ev,
    fold,
    mark,
    named,
    rules,
    start,
    statuses,
    user,
    where,
)

BUS = {"stream": "bus"}
Where = dict[str, str | None]


# name: events, which turn each named guard belongs to, which rule each turn needed
CASES: dict[str, tuple[list[Event], Where, dict[str, str]]] = {
    # 1 and 2
    "its id": ([named(0, "n", turn_id="a")], {"n": "a"}, {"a": "id"}),
    "its index": ([named(0, "n", turn_index=3)], {"n": "#3"}, {"#3": "index"}),
    "index 0 is an index": ([named(0, "n", turn_index=0)], {"n": "#0"}, {"#0": "index"}),
    "an index belongs to the id that carries it": (
        [named(0, "n", turn_index=3), named(1, "m", turn_id="a", turn_index=3)],
        {"n": "a", "m": "a"},
        {"a": "index"},
    ),
    "an id decides, its index is data": (
        [named(0, "n", turn_id="a", turn_index=3)],
        {"n": "a"},
        {"a": "id"},
    ),
    "an index that two ids carry belongs to neither": (
        [
            named(0, "n", turn_index=3),
            named(1, "m", turn_id="a", turn_index=3),
            named(2, "o", turn_id="b", turn_index=3),
        ],
        {"n": "#3", "m": "a", "o": "b"},
        {"#3": "index", "a": "id", "b": "id"},
    ),
    "an id with two indexes owns both": (
        [
            named(0, "n", turn_id="a", turn_index=3),
            named(1, "m", turn_id="a", turn_index=4),
            named(2, "o", turn_index=4),
            named(3, "p", turn_index=3),
        ],
        dict.fromkeys("nmop", "a"),
        {"a": "index"},
    ),
    "an id beats a window around it": (
        [start(0, "a"), named(1, "n", turn_id="b"), named(2, "m")],
        {"n": "b", "m": "a"},
        {"a": "boundary", "b": "id"},
    ),
    "an index beats a window around it": (
        [start(0, "a"), named(1, "n", turn_index=7)],
        {"n": "#7"},
        {"a": "id", "#7": "index"},
    ),
    # 3
    "a model call links": (
        [named(0, "n", turn_id="a", model_call_id="m"), named(0, "l", model_call_id="m", **BUS)],
        {"n": "a", "l": "a"},
        {"a": "link"},
    ),
    "a tool call links": (
        [named(0, "n", turn_id="a", tool_call_id="m"), named(0, "l", tool_call_id="m", **BUS)],
        {"n": "a", "l": "a"},
        {"a": "link"},
    ),
    "a trace links": (
        [named(0, "n", turn_id="a", trace_id="m"), named(0, "l", trace_id="m", **BUS)],
        {"n": "a", "l": "a"},
        {"a": "link"},
    ),
    "an id of one kind links no id of another": (
        [
            named(0, "n", turn_id="a", tool_call_id="m"),
            named(0, "l", trace_id="m", **BUS),
            named(1, "t", at="05", **BUS),
        ],
        {"n": "a", "l": None, "t": None},
        {"a": "id"},
    ),
    "the model call is asked before the trace": (
        [
            named(0, "n", turn_id="a", model_call_id="m"),
            named(1, "o", turn_id="b", trace_id="t"),
            named(0, "l", model_call_id="m", trace_id="t", **BUS),
        ],
        {"n": "a", "o": "b", "l": "a"},
        {"a": "link", "b": "id"},
    ),
    "an id that two turns hold is passed over for the next": (
        [
            named(0, "n", turn_id="a", model_call_id="m"),
            named(1, "o", turn_id="b", model_call_id="m", tool_call_id="x"),
            named(0, "l", model_call_id="m", tool_call_id="x", **BUS),
        ],
        {"n": "a", "o": "b", "l": "b"},
        {"a": "id", "b": "link"},
    ),
    "links go on in rounds": (
        [
            named(0, "n", turn_id="a", trace_id="t"),
            named(0, "l", trace_id="t", tool_call_id="x", **BUS),
            named(1, "k", tool_call_id="x", model_call_id="m", **BUS),
            named(2, "j", model_call_id="m", **BUS),
        ],
        dict.fromkeys("nlkj", "a"),
        {"a": "link"},
    ),
    "a round is decided on the state before it": (
        [
            named(0, "n", turn_id="a", trace_id="t"),
            named(1, "o", turn_id="b", tool_call_id="x"),
            named(0, "k", tool_call_id="x", trace_id="t", **BUS),
            named(1, "l", trace_id="t", **BUS),
        ],
        {"n": "a", "o": "b", "k": "b", "l": "a"},
        {"a": "link", "b": "link"},
    ),
    "what became ambiguous in a round links no more": (
        [
            named(0, "n", turn_id="a", trace_id="t"),
            named(1, "o", turn_id="b", tool_call_id="x"),
            named(0, "k", tool_call_id="x", trace_id="t", model_call_id="m", **BUS),
            named(1, "l", model_call_id="m", tool_call_id="y", **BUS),
            named(2, "j", tool_call_id="y", **BUS),
        ],
        {"n": "a", "o": "b", "k": "b", "l": "b", "j": "b"},
        {"a": "id", "b": "link"},
    ),
    "an index turn links too": (
        [named(0, "n", turn_index=2, trace_id="t"), named(0, "l", trace_id="t", **BUS)],
        {"n": "#2", "l": "#2"},
        {"#2": "link"},
    ),
    "what session-level work carries links nothing": (
        [ev(0, "session.started", trace_id="t", turn_id="a"), named(0, "l", trace_id="t", at="05", **BUS)],
        {"l": None},
        {},
    ),
    # 4: starts and ends
    "from the start to the end": (
        [named(0, "x"), start(1, "a"), named(2, "n"), end(3), named(4, "y"), start(5, "b"), named(6, "m")],
        {"x": None, "n": "a", "y": None, "m": "b"},
        {"a": "boundary", "b": "boundary"},
    ),
    "a start replaces the open turn": (
        [start(0, "a"), named(1, "n"), start(2, "b"), named(3, "m"), end(4), named(5, "y")],
        {"n": "a", "m": "b", "y": None},
        {"a": "boundary", "b": "boundary"},
    ),
    "an end with another id closes nothing": (
        [start(0, "a"), end(1, "b"), named(2, "n"), end(3, "a"), named(4, "y")],
        {"n": "a", "y": None},
        {"a": "boundary", "b": "id"},
    ),
    "an end by index closes the turn of that index": (
        [start(0, turn_index=1), named(1, "n"), end(2, turn_index=1), named(3, "y")],
        {"n": "#1", "y": None},
        {"#1": "boundary"},
    ),
    "an end without an id closes whatever is open": (
        [start(0, "a"), end(1), named(2, "y")],
        {"y": None},
        {"a": "boundary"},
    ),
    "a start without id or index opens a turn of its own": (
        [start(0), named(1, "n"), end(2), named(3, "y"), start(4), named(5, "m")],
        {"n": "@harness/0/ledger/0", "y": None, "m": "@harness/0/ledger/4"},
        {"@harness/0/ledger/0": "boundary", "@harness/0/ledger/4": "boundary"},
    ),
    "an end with nothing open makes a turn from the previous boundary on": (
        [start(0, "a"), end(1, "a"), named(2, "n"), end(3, "b"), named(4, "y")],
        {"n": "b", "y": None},
        {"a": "id", "b": "boundary"},
    ),
    "an end without an id and with nothing open makes a turn from the previous boundary on": (
        [start(0, "a"), end(1), named(2, "n"), end(3), named(4, "y")],
        {"n": "@harness/0/ledger/2", "y": None},
        {"a": "boundary", "@harness/0/ledger/2": "boundary"},
    ),
    "an end with nothing open takes nothing where its turn started earlier in the stream": (
        [start(0, "a"), end(1, "a"), named(2, "n"), end(3, "a"), named(4, "y")],
        {"n": None, "y": None},
        {"a": "id"},
    ),
    "an end before every start takes what precedes it": (
        [named(0, "n"), end(1, "a"), start(2, "b"), named(3, "m")],
        {"n": "a", "m": "b"},
        {"a": "boundary", "b": "boundary"},
    ),
    "an end of a turn that another replaced closes nothing": (
        [start(0, "a"), start(1, "b"), end(2, "a"), named(3, "n")],
        {"n": "b"},
        {"a": "id", "b": "boundary"},
    ),
    "each stream has its own open turn": (
        [start(0, "a"), start(0, "b", **BUS), named(1, "n"), named(1, "m", **BUS)],
        {"n": "a", "m": "b"},
        {"a": "boundary", "b": "boundary"},
    ),
    "each epoch has its own boundaries": (
        [start(0, "a", epoch=0), named(0, "n", epoch=1)],
        {"n": None},
        {"a": "id"},
    ),
    "each producer has its own boundaries": (
        [
            start(0, "a", at="01"),
            start(0, "b", at="02", producer="p"),
            named(1, "n", at="03"),
            named(1, "m", producer="p"),
        ],
        {"n": "a", "m": "b"},
        {"a": "boundary", "b": "boundary"},
    ),
    "session-level work inside stays the session's": (
        [
            start(0, "a"),
            ev(1, "session.tools_changed", {"tools": []}),
            ev(2, "driver.claimed", {"generation": 1}),
            end(3, "a"),
        ],
        {},
        {"a": "id"},
    ),
    "a link beats a boundary": (
        [start(0, "a"), named(1, "n", trace_id="t"), named(0, "m", turn_id="b", trace_id="t", **BUS)],
        {"n": "b", "m": "b"},
        {"a": "id", "b": "link"},
    ),
    "a user's message opens nothing where there are starts": (
        [start(0, "a"), user(1), named(2, "n"), end(3, "a"), user(4), named(5, "y")],
        {"n": "a", "y": None},
        {"a": "boundary"},
    ),
    "numbers decide, not arrival": (
        [named(2, "n"), end(3), start(1, "a"), named(4, "y")],
        {"n": "a", "y": None},
        {"a": "boundary"},
    ),
    # 4: ends only
    "ends alone close everything since the last": (
        [named(0, "a"), named(1, "b"), end(2), named(3, "c"), named(4, "d"), end(5), named(6, "e")],
        {
            **dict.fromkeys("ab", "@harness/0/ledger/0"),
            **dict.fromkeys("cd", "@harness/0/ledger/3"),
            "e": "@harness/0/ledger/6",
        },
        dict.fromkeys(("@harness/0/ledger/0", "@harness/0/ledger/3", "@harness/0/ledger/6"), "boundary"),
    ),
    "ends alone with ids": (
        [named(0, "n"), end(1, "a"), named(2, "m"), end(3, "b")],
        {"n": "a", "m": "b"},
        {"a": "boundary", "b": "boundary"},
    ),
    "ends alone with indexes": (
        [named(0, "n"), end(1, turn_index=0), named(2, "m"), end(3, turn_index=1)],
        {"n": "#0", "m": "#1"},
        {"#0": "boundary", "#1": "boundary"},
    ),
    "ends alone with nothing before": (
        [end(0), end(1)],
        {},
        {"@harness/0/ledger/0": "boundary", "@harness/0/ledger/1": "boundary"},
    ),
    "a user's message opens nothing where there are ends": (
        [user(0), named(1, "n"), user(2), named(3, "m"), end(4)],
        {"n": "@harness/0/ledger/0", "m": "@harness/0/ledger/0"},
        {"@harness/0/ledger/0": "boundary"},
    ),
    "the turn of ends alone opens with its first event, not with the session's": (
        [ev(0, "session.started"), named(1, "n"), end(2)],
        {"n": "@harness/0/ledger/1"},
        {"@harness/0/ledger/1": "boundary"},
    ),
    "no tail where only session-level work follows": (
        [named(0, "n"), end(1, "a"), ev(2, "session.ended", {"status": "stopped"})],
        {"n": "a"},
        {"a": "boundary"},
    ),
    # 4: neither
    "a user's message opens the next turn": (
        [user(0), named(1, "n"), user(2), named(3, "m")],
        {"n": "@harness/0/ledger/0", "m": "@harness/0/ledger/2"},
        {"@harness/0/ledger/0": "boundary", "@harness/0/ledger/2": "boundary"},
    ),
    "what precedes the first user's message falls back, for the stream has neither starts nor ends": (
        [named(0, "x"), user(1), user(2)],
        {"x": "@harness/0/ledger/1"},
        {"@harness/0/ledger/1": "fallback", "@harness/0/ledger/2": "boundary"},
    ),
    "what precedes the first user's message in a stream with times is the session's": (
        [named(0, "x", at="01"), user(1, at="02"), user(2, at="03")],
        {"x": None},
        {"@harness/0/ledger/1": "boundary", "@harness/0/ledger/2": "boundary"},
    ),
    "a user's message with a tool call opens nothing": (
        [user(0), ev(1, "message.recorded", {"role": "user"}, tool_call_id="t"), named(2, "n")],
        {"n": "@harness/0/ledger/0"},
        {"@harness/0/ledger/0": "boundary"},
    ),
    "a user's message of tool results opens nothing": (
        [
            user(0),
            ev(
                1,
                "message.recorded",
                {"role": "user", "content": [{"type": "text"}, {"type": "tool_result"}]},
            ),
            named(2, "n"),
        ],
        {"n": "@harness/0/ledger/0"},
        {"@harness/0/ledger/0": "boundary"},
    ),
    "a user's message of other content opens": (
        [
            user(0),
            ev(1, "message.recorded", {"role": "user", "content": [{"type": "text"}, "x", {"type": 1}]}),
            named(2, "n"),
        ],
        {"n": "@harness/0/ledger/1"},
        {"@harness/0/ledger/0": "boundary", "@harness/0/ledger/1": "boundary"},
    ),
    "an assistant's message opens nothing": (
        [user(0), ev(1, "message.recorded", {"role": "assistant"}), named(2, "n")],
        {"n": "@harness/0/ledger/0"},
        {"@harness/0/ledger/0": "boundary"},
    ),
    "a user's message with an id opens that turn": (
        [user(0, turn_id="a"), named(1, "n"), user(2, turn_id="b"), named(3, "m")],
        {"n": "a", "m": "b"},
        {"a": "boundary", "b": "boundary"},
    ),
    "a user's message with the id of the open turn goes on with it": (
        [user(0, turn_id="a"), user(1, turn_id="a"), named(2, "n")],
        {"n": "a"},
        {"a": "boundary"},
    ),
    # 4: more of ends
    "an end that takes nothing is still a boundary": (
        [start(0, "a"), end(1, "a"), named(2, "n"), end(3, "a"), named(4, "m"), end(5, "b")],
        {"n": None, "m": "b"},
        {"a": "id", "b": "boundary"},
    ),
    "an end before its own start takes what precedes it": (
        [named(0, "n"), end(1, "a"), start(2, "a"), named(3, "m")],
        {"n": "a", "m": "a"},
        {"a": "boundary"},
    ),
    "an end of a turn that started in another stream takes what precedes it": (
        [start(0, "b", **BUS), start(0, "a"), end(1, "a"), named(2, "n"), end(3, "b")],
        {"n": "b"},
        {"a": "id", "b": "boundary"},
    ),
    "a second start of the open turn changes nothing": (
        [start(0, "a"), named(1, "n"), start(2, "a"), named(3, "m"), end(4, "a"), named(5, "y")],
        {"n": "a", "m": "a", "y": None},
        {"a": "boundary"},
    ),
    "after another's end an end without an id closes what is open": (
        [start(0, "a"), end(1, "b"), named(2, "n"), end(3), named(4, "y")],
        {"n": "a", "y": None},
        {"a": "boundary", "b": "id"},
    ),
    "an end by the index that the open id owns closes it": (
        [start(0, "a", turn_index=1), named(1, "n"), end(2, turn_index=1), named(3, "y")],
        {"n": "a", "y": None},
        {"a": "boundary"},
    ),
    "an end that tells the id of an index": (
        [start(0, turn_index=1), named(1, "n"), end(2, "a", turn_index=1), named(3, "y")],
        {"n": "a", "y": None},
        {"a": "boundary"},
    ),
    "ends alone: what carries another id stays there": (
        [named(0, "n"), named(1, "m", turn_id="b"), end(2, "a")],
        {"n": "a", "m": "b"},
        {"a": "boundary", "b": "id"},
    ),
    "ends alone: two ends of one turn": (
        [named(0, "n"), end(1, "a"), named(2, "m"), end(3, "a"), named(4, "t", turn_id="b")],
        {"n": "a", "m": "a", "t": "b"},
        {"a": "boundary", "b": "id"},
    ),
    "ends alone in one stream, the start in another": (
        [
            start(0, "a", at="10"),
            *(named(0, "v", at="05", **BUS), named(1, "n", at="15", **BUS), end(2, "a", at="20", **BUS)),
            named(1, "m", at="30"),
        ],
        {"v": "a", "n": "a", "m": "a"},
        {"a": "boundary"},
    ),
    # 4: more of messages
    "messages open in each stream": (
        [user(0, at="01"), user(0, at="02", **BUS), named(1, "n"), named(1, "m", **BUS)],
        {"n": "@harness/0/ledger/0", "m": "@harness/0/bus/0"},
        {"@harness/0/bus/0": "boundary", "@harness/0/ledger/0": "boundary"},
    ),
    "a message that a link brings into a turn opens that one": (
        [
            named(0, "q", turn_id="a", trace_id="t", **BUS),
            user(0, trace_id="t"),
            named(1, "n"),
            user(2),
            named(3, "m"),
        ],
        {"q": "a", "n": "a", "m": "@harness/0/ledger/2"},
        {"a": "boundary", "@harness/0/ledger/2": "boundary"},
    ),
    "a start that a link brings into a turn opens that one": (
        [
            named(0, "q", turn_id="a", trace_id="t", **BUS),
            start(0, trace_id="t"),
            named(1, "n"),
            end(2),
            named(3, "y"),
        ],
        {"q": "a", "n": "a", "y": None},
        {"a": "boundary"},
    ),
    "a user's message makes a window": (
        [user(0, at="10"), user(1, at="20"), named(0, "n", at="15", **BUS), named(1, "m", at="25", **BUS)],
        {"n": "@harness/0/ledger/0", "m": "@harness/0/ledger/1"},
        {"@harness/0/ledger/0": "window", "@harness/0/ledger/1": "window"},
    ),
    "receipts stand between boundaries by their own time": (
        [
            *(start(0, "a", at="10"), end(1, "a", at="20")),
            *(named(None, "n", receipt_key="r", at="15"), named(None, "y", receipt_key="q", at="25")),
            named(None, "z", receipt_key="p"),
        ],
        {"n": "a", "y": None, "z": None},
        {"a": "boundary"},
    ),
    "boundaries may be receipts": (
        [
            *(start(None, "a", receipt_key="4", at="10"), named(None, "n", receipt_key="3", at="15")),
            *(end(None, "a", receipt_key="2", at="20"), named(None, "y", receipt_key="1", at="25")),
        ],
        {"n": "a", "y": None},
        {"a": "boundary"},
    ),
    "an end that a link brings into another turn does not close the open one": (
        [
            named(0, "q", turn_id="b", trace_id="t", **BUS),
            *(start(0, "a"), named(1, "n"), end(2, trace_id="t"), named(3, "m")),
        ],
        {"q": "b", "n": "a", "m": "a"},
        {"a": "boundary", "b": "link"},
    ),
    "an index that only session-level work ties to an id is nobody's": (
        [ev(0, "session.started", turn_id="a", turn_index=3), named(1, "n", turn_index=3)],
        {"n": "#3"},
        {"#3": "index"},
    ),
    # link once more
    "what the boundary gave links once more": (
        [
            start(0, "a"),
            named(1, "n", trace_id="t"),
            named(0, "l", trace_id="t", tool_call_id="x", **BUS),
            named(1, "k", tool_call_id="x", **BUS),
        ],
        {"n": "a", "l": "a", "k": "a"},
        {"a": "boundary"},
    ),
    # 5
    "a window between start and end": (
        [
            start(0, "a", at="10"),
            end(1, "a", at="20"),
            named(0, "v", at="09", **BUS),
            named(1, "n", at="15", **BUS),
            named(2, "y", at="21", **BUS),
        ],
        {"v": None, "n": "a", "y": None},
        {"a": "window"},
    ),
    "a window of an open turn has no end": (
        [start(0, "a", at="10"), named(0, "v", at="09", **BUS), named(1, "n", at="59", **BUS)],
        {"v": None, "n": "a"},
        {"a": "window"},
    ),
    "a window ends with what abandoned the turn": (
        [
            start(0, "a", at="10"),
            start(1, "b", at="20"),
            named(0, "n", at="15", **BUS),
            named(1, "m", at="25", **BUS),
        ],
        {"n": "a", "m": "b"},
        {"a": "window", "b": "window"},
    ),
    "a window ends with the session": (
        [
            start(0, "a", at="10"),
            ev(1, "session.ended", {}, at="20"),
            named(0, "n", at="15", **BUS),
            named(1, "y", at="25", **BUS),
        ],
        {"n": "a", "y": None},
        {"a": "window"},
    ),
    "two windows give none": (
        [
            *(start(0, "a", at="10"), end(1, "a", at="30")),
            *(start(0, "b", at="20", producer="p"), end(1, "b", at="40", producer="p")),
            *(named(0, "n", at="15", **BUS), named(1, "y", at="25", **BUS), named(2, "m", at="35", **BUS)),
        ],
        {"n": "a", "y": None, "m": "b"},
        {"a": "window", "b": "window"},
    ),
    "at the time of the start the order decides: after it": (
        [
            start(0, "a", at="10", stream="a"),
            end(1, "a", at="20", stream="a"),
            named(0, "n", at="10", stream="b"),
        ],
        {"n": "a"},
        {"a": "window"},
    ),
    "at the time of the start the order decides: before it": (
        [
            start(0, "a", at="10", stream="b"),
            end(1, "a", at="20", stream="b"),
            named(0, "n", at="10", stream="a"),
        ],
        {"n": None},
        {"a": "id"},
    ),
    "at the time of the end the order decides: after it": (
        [
            start(0, "a", at="10", stream="a"),
            end(1, "a", at="20", stream="a"),
            named(0, "n", at="20", stream="b"),
        ],
        {"n": None},
        {"a": "id"},
    ),
    "at the time of the end the order decides: before it": (
        [
            start(0, "a", at="10", stream="b"),
            end(1, "a", at="20", stream="b"),
            named(0, "n", at="20", stream="a"),
        ],
        {"n": "a"},
        {"a": "window"},
    ),
    "a receipt has a window by its own time": (
        [
            start(0, "a", at="10"),
            end(1, "a", at="20"),
            named(None, "n", receipt_key="r", at="15", **BUS),
            named(None, "y", receipt_key="q", at="25", **BUS),
        ],
        {"n": "a", "y": None},
        {"a": "window"},
    ),
    "a turn without a start has no window": (
        [named(0, "m", turn_id="a", at="10"), end(1, "a", at="20"), named(0, "n", at="15", **BUS)],
        {"m": "a", "n": None},
        {"a": "id"},
    ),
    "a stream with boundaries of its own takes no window": (
        [
            *(start(0, "a", at="10"), end(1, "a", at="20")),
            *(start(0, "b", at="05", **BUS), end(1, "b", at="06", **BUS), named(2, "y", at="15", **BUS)),
        ],
        {"y": None},
        {"a": "id", "b": "id"},
    ),
    "another epoch's boundaries are none of its own": (
        [start(0, "a", at="10"), named(0, "n", at="15", epoch=1)],
        {"n": "a"},
        {"a": "window"},
    ),
    "an event that the running time dates has a window": (
        [start(0, "a", at="10"), end(1, "a", at="20"), named(0, "n", at="15", **BUS), named(1, "m", **BUS)],
        {"n": "a", "m": "a"},
        {"a": "window"},
    ),
    "a turn whose boundaries have no times has no window": (
        [start(0, "a"), end(1, "a"), named(0, "n", at="15", **BUS)],
        {"n": None},
        {"a": "id"},
    ),
    # 6
    "a stream with neither boundaries nor times: the first turn": (
        [start(0, "a"), end(1, "a"), start(2, "b"), named(0, "n", **BUS)],
        {"n": "a"},
        {"a": "fallback", "b": "id"},
    ),
    "the first turn in order, not by its name": (
        [named(0, "m", turn_id="z"), named(1, "o", turn_id="a"), named(0, "n", **BUS)],
        {"m": "z", "o": "a", "n": "z"},
        {"z": "fallback", "a": "id"},
    ),
    "the stream where ids stand has no boundaries either": (
        [named(0, "m", turn_id="z"), named(1, "n")],
        {"m": "z", "n": "z"},
        {"z": "fallback"},
    ),
    "a stream with a time anywhere has no fallback": (
        [start(0, "a"), named(0, "n", **BUS), named(0, "m", at="05", epoch=1, **BUS)],
        {"n": None, "m": None},
        {"a": "id"},
    ),
    "a stream with a boundary in any epoch has no fallback": (
        [start(0, "a"), named(0, "n", epoch=1)],
        {"n": None},
        {"a": "id"},
    ),
    "no turn, no fallback": ([named(0, "n")], {"n": None}, {}),
    "a receipt without a time falls back": (
        [start(0, "a"), named(None, "n", receipt_key="r", **BUS)],
        {"n": "a"},
        {"a": "fallback"},
    ),
    "session-level work never falls back": (
        [start(0, "a"), ev(0, "capture.recorded", {"capture_id": "c"}, **BUS)],
        {},
        {"a": "id"},
    ),
}


@pytest.mark.parametrize(("events", "turns", "assigned"), CASES.values(), ids=CASES.keys())
def test_membership(events: list[Event], turns: Where, assigned: dict[str, str]) -> None:
    for round_ in range(3):
        arrival = list(events)
        if round_:
            random.Random(round_).shuffle(arrival)
        found = fold(*arrival)
        assert where(found) == {name: key for name, key in turns.items() if key is not None}
        assert rules(found) == assigned


KEYS = {
    "#3": "@id:#3",
    "@x": "@id:@x",
    "@id:x": "@id:@id:x",
    "a/b%c": "a/b%c",
    "a#": "a#",
    " ": " ",
}


@pytest.mark.parametrize(("turn_id", "key"), KEYS.items())
def test_the_key_of_a_turn_is_its_id(turn_id: str, key: str) -> None:
    (turn,) = fold(start(0, turn_id))["turns"]
    assert (turn["turn_key"], turn["turn_id"]) == (key, turn_id)


PLACES: dict[str, tuple[Event, str]] = {
    "plain": (start(7), "@harness/0/ledger/7"),
    "another epoch": (start(7, epoch=12), "@harness/12/ledger/7"),
    "escaped": (start(0, producer="a/b%c:d", stream="x/y%z:w"), "@a%2Fb%25c%3Ad/0/x%2Fy%25z:w/0"),
    "other characters as they are": (start(0, producer="é #@", stream="?&\u2028"), "@é #@/0/?&\u2028/0"),
    "a receipt": (start(None, receipt_key="k/1%:é"), "@harness/0/ledger/r:k%2F1%25:é"),
}


@pytest.mark.parametrize(("event", "key"), PLACES.values(), ids=PLACES.keys())
def test_a_turn_without_id_and_index_is_named_by_its_opening_event(event: Event, key: str) -> None:
    (turn,) = fold(event)["turns"]
    assert turn["turn_key"] == key
    assert "turn_id" not in turn
    assert "turn_index" not in turn


def test_a_turn_without_an_id_does_not_meet_an_id_of_the_same_text() -> None:
    found = fold(start(0, "#0"), end(1, "#0"), start(2, turn_index=0), end(3, turn_index=0))
    assert [turn["turn_key"] for turn in found["turns"]] == ["@id:#0", "#0"]


def test_the_first_index_in_order_is_shown_and_the_second_is_a_finding() -> None:
    found = fold(start(0, "a", turn_index=4), named(1, "n", turn_id="a", turn_index=3))
    assert found["turns"][0]["turn_index"] == 4
    assert checks(found) == {"turn_two_indexes": 1}


def test_an_index_that_two_ids_carry_is_a_finding_where_events_have_it_alone() -> None:
    ids = [start(0, "a", turn_index=3), end(1, "a"), start(2, "b", turn_index=3), end(3, "b")]
    assert checks(fold(*ids, start(4, turn_index=3), end(5, turn_index=3))) == {"turn_index_ambiguous": 1}


STATUSES: dict[str, tuple[list[Event], dict[str, str]]] = {
    "open until its end": ([start(0, "a")], {"a": "open"}),
    "completed": ([start(0, "a"), end(1, "a", "completed")], {"a": "completed"}),
    "failed": ([start(0, "a"), end(1, "a", "failed")], {"a": "failed"}),
    "interrupted": ([start(0, "a"), end(1, "a", "interrupted")], {"a": "interrupted"}),
    "aborted": ([start(0, "a"), end(1, "a", "aborted")], {"a": "aborted"}),
    "absent": ([start(0, "a"), end(1, "a")], {"a": "completed"}),
    "unlisted": ([start(0, "a"), end(1, "a", "done")], {"a": "completed"}),
    "abandoned is no status of an end": ([start(0, "a"), end(1, "a", "abandoned")], {"a": "completed"}),
    "of a wrong type": (
        [start(0, "a"), ev(1, "turn.completed", {"status": 1}, turn_id="a")],
        {"a": "completed"},
    ),
    "the last in order": (
        [start(0, "a"), end(1, "a", "failed"), end(2, "a", "completed")],
        {"a": "completed"},
    ),
    "the last in order, not in arrival": (
        [end(2, "a", "failed"), end(1, "a", "completed"), start(0, "a")],
        {"a": "failed"},
    ),
    "the last in order between streams": (
        [end(1, "a", "failed", at="05"), end(0, "a", "aborted", at="09", **BUS), start(0, "a", at="01")],
        {"a": "aborted"},
    ),
    "an end without a start": ([end(0, "a", "failed")], {"a": "failed"}),
    "neither start nor end": ([named(0, "n", turn_id="a"), ev(1, "session.ended", {})], {"a": "open"}),
    "the session ended": ([start(0, "a"), ev(1, "session.ended", {})], {"a": "abandoned"}),
    "the session ended before": ([ev(0, "session.ended", {}), start(1, "a")], {"a": "open"}),
    "the session ended in another stream": (
        [start(0, "a", at="01"), ev(0, "session.ended", {}, at="02", **BUS)],
        {"a": "abandoned"},
    ),
    "the session ended and was resumed": (
        [start(0, "a"), ev(1, "session.ended", {}), ev(2, "session.resumed", {})],
        {"a": "abandoned"},
    ),
    "the session ended after its end": (
        [start(0, "a"), end(1, "a"), ev(2, "session.ended", {})],
        {"a": "completed"},
    ),
    "another start follows": ([start(0, "a"), start(1, "b")], {"a": "abandoned", "b": "open"}),
    "another start in the next epoch follows": (
        [start(0, "a"), start(0, "b", epoch=1)],
        {"a": "abandoned", "b": "open"},
    ),
    "another start in another stream": (
        [start(0, "a", at="01"), start(0, "b", at="02", **BUS)],
        {"a": "open", "b": "open"},
    ),
    "its own second start": ([start(0, "a"), start(1, "a")], {"a": "open"}),
    "another start follows, then its end": (
        [start(0, "a"), start(1, "b"), end(2, "a")],
        {"a": "completed", "b": "open"},
    ),
    "a user's message counts as a start": (
        [user(0), user(1)],
        {"@harness/0/ledger/0": "abandoned", "@harness/0/ledger/1": "open"},
    ),
    "a user's message and the session's end": (
        [user(0), ev(1, "session.ended", {})],
        {"@harness/0/ledger/0": "abandoned"},
    ),
    "the open tail of ends alone": (
        [named(0, "n"), end(1, "a"), named(2, "m")],
        {"a": "completed", "@harness/0/ledger/2": "open"},
    ),
    "the tail of ends alone in an ended session": (
        [named(0, "n"), end(1, "a"), named(2, "m"), ev(3, "session.ended", {})],
        {"a": "completed", "@harness/0/ledger/2": "open"},
    ),
    "no outcome implies the turn's": (
        [
            start(0, "a"),
            ev(1, "attempt.finished", {"attempt_id": "x", "outcome": "failed"}),
            ev(2, "recorder.settled", {"outcome": "completed"}),
            ev(3, "driver.exited", {"generation": 1, "outcome": "interrupted"}),
            ev(4, "process.exited", {"exec_id": 1, "exit_code": 1}),
        ],
        {"a": "open"},
    ),
}


@pytest.mark.parametrize(("events", "expected"), STATUSES.values(), ids=STATUSES.keys())
def test_status(events: list[Event], expected: dict[str, str]) -> None:
    assert statuses(fold(*events)) == expected
    assert statuses(fold(*events[::-1])) == expected


def test_turns_are_ordered_by_their_starts_else_by_their_first_event() -> None:
    found = fold(
        *(
            named(0, "early", turn_id="late"),
            start(1, "b"),
            named(2, "n", turn_id="c"),
            start(3, "a"),
            start(4, "late"),
        ),
    )
    assert [turn["turn_key"] for turn in found["turns"]] == ["b", "c", "a", "late"]


def test_a_superseded_stream_is_left_out_and_told() -> None:
    old = [start(0, "old", stream="file:1"), named(1, "n", turn_id="new", stream="file:1")]
    told = ev(
        9,
        "stream.superseded",
        {"producer": "harness", "epoch": 0, "stream": "file:1", "reason": "newer reader"},
    )
    dense = [ev(seq, "counter.reported") for seq in range(9)]
    found = fold(*old, told, *dense, start(0, "new", stream="file:2"), end(1, "new", stream="file:2"))
    assert [turn["turn_key"] for turn in found["turns"]] == ["new"]
    assert where(found) == {}
    assert found["records"]["accepted"] == 14
    assert checks(found)["superseded_stream"] == 1


def test_another_epoch_of_a_superseded_stream_stays() -> None:
    told = ev(0, "stream.superseded", {"producer": "harness", "epoch": 0, "stream": "old", "reason": "r"})
    found = fold(told, mark(0, "n", stream="old"), mark(0, "m", stream="old", epoch=1))
    assert [row["domain"] for row in found["net_events"]] == ["m"]


def test_one_turn_in_two_sessions_is_two() -> None:
    found = fold(named(0, "n", turn_id="a"), named(0, "m", turn_id="a", session_id="t"))
    assert [(turn["session_id"], turn["counts"]["events"]) for turn in found["turns"]] == [("s", 1), ("t", 1)]


def test_spans_and_counts_of_a_turn() -> None:
    found = fold(
        *(start(0, "a"), mark(1, "n"), ev(2, "dns.queried", {"qname": "x", "qtype": "A"})),
        *(
            ev(3, "fs.changed", {"action": "read", "path": "/x"}),
            ev(4, "process.started", {"exec_id": 1, "command": "x"}),
        ),
        *(ev(5, "security.asked", {"ask_id": 1, "status": "x"}), end(7, "a")),
        mark(4, "m", turn_id="a", epoch=1, stream="bus"),
    )
    (turn,) = found["turns"]
    assert turn["counts"] == {"events": 8, "net": 2, "dns": 1, "fs": 1, "process": 1, "security": 1}
    assert turn["seq_spans"] == [
        {"producer": "harness", "epoch": 1, "stream": "bus", "from": 4, "to": 4},
        {"producer": "harness", "epoch": 0, "stream": "ledger", "from": 0, "to": 7},
    ]


TIMES: dict[str, tuple[list[Event], tuple[str | None, str | None, int | None, str | None]]] = {
    "the end's own duration": (
        [start(0, "a", at="01"), ev(1, "turn.completed", {"duration_ms": 7}, turn_id="a", at="03")],
        ("2026-05-01T12:00:01.000000Z", "2026-05-01T12:00:03.000000Z", 7, "reported"),
    ),
    "derived from both times": (
        [start(0, "a", at="01"), end(1, "a", at="03.25")],
        ("2026-05-01T12:00:01.000000Z", "2026-05-01T12:00:03.250000Z", 2250, "derived"),
    ),
    "no end": ([start(0, "a", at="01")], ("2026-05-01T12:00:01.000000Z", None, None, None)),
    "no start": ([end(0, "a", at="03")], (None, "2026-05-01T12:00:03.000000Z", None, None)),
    "no times": ([start(0, "a"), end(1, "a")], (None, None, None, None)),
}


@pytest.mark.parametrize(("events", "expected"), TIMES.values(), ids=TIMES.keys())
def test_times_of_a_turn(
    events: list[Event], expected: tuple[str | None, str | None, int | None, str | None]
) -> None:
    (turn,) = fold(*events)["turns"]
    assert (
        tuple(turn.get(name) for name in ("started_at", "completed_at", "duration_ms", "duration_source"))
        == expected
    )


FINDINGS: dict[str, tuple[list[Event], dict[str, int]]] = {
    "a turn with both": ([start(0, "a"), end(1, "a")], {}),
    "open in a running session": ([start(0, "a")], {}),
    "an end without a start": ([end(0, "a")], {"turn_without_start": 1}),
    "no start": ([named(0, "n", turn_id="a")], {"turn_without_start": 1}),
    "abandoned by a start": ([start(0, "a"), start(1, "b")], {"turn_without_end": 1}),
    "abandoned by the session's end": (
        [start(0, "a"), ev(1, "session.ended", {})],
        {"turn_without_end": 1},
    ),
    "neither start nor end in an ended session": (
        [named(0, "n", turn_id="a"), ev(1, "session.ended", {})],
        {"turn_without_start": 1, "turn_open_in_ended_session": 1},
    ),
    "a start after the session's end": (
        [ev(0, "session.ended", {}), start(1, "a")],
        {"turn_open_in_ended_session": 1},
    ),
    "a start after the session's end, in a session that was resumed": (
        [ev(0, "session.ended", {}), start(1, "a"), ev(2, "session.resumed", {})],
        {},
    ),
}


@pytest.mark.parametrize(("events", "expected"), FINDINGS.values(), ids=FINDINGS.keys())
def test_findings_about_turns(events: list[Event], expected: dict[str, int]) -> None:
    assert checks(fold(*events)) == expected


def test_a_conflict_disputes_the_turn_of_the_event_that_stayed() -> None:
    found = fold(start(0, "a"), end(1, "a"), start(2, "b"), end(3, "b"), end(3, "a", "failed"))
    assert [(turn["turn_key"], turn["grade"]) for turn in found["turns"]] == [
        ("a", "complete"),
        ("b", "disputed"),
    ]


def test_a_gap_inside_two_turns_belongs_to_both_and_one_of_another_stream_to_none() -> None:
    found = fold(
        *(start(0, "a"), named(1, "n", turn_id="b"), end(3, "a"), named(4, "m", turn_id="b")),
        *(ev(0, "counter.reported", at="05", **BUS), ev(2, "counter.reported", **BUS)),
    )
    assert [(turn["turn_key"], turn["grade"]) for turn in found["turns"]] == [("a", "gaps"), ("b", "gaps")]
    assert [len(turn["gaps"]) for turn in found["turns"]] == [1, 1]
    assert found["sessions"][0]["open_gaps"] == 2


GRADES: dict[str, tuple[list[Event], str]] = {
    "whole": ([start(0, "a"), end(1, "a")], "complete"),
    "open": ([start(0, "a")], "complete"),
    "failed is a status, not a grade": ([start(0, "a"), end(1, "a", "failed")], "complete"),
    "no start": ([end(0, "a")], "partial"),
    "no end": ([start(0, "a"), ev(1, "session.ended", {})], "partial"),
    "a tool without a result": (
        [start(0, "a"), ev(1, "tool_call.requested", {"tool_name": "x"}), end(2, "a")],
        "partial",
    ),
    "a tool without a result in an open turn": (
        [start(0, "a"), ev(1, "tool_call.requested", {"tool_name": "x"})],
        "complete",
    ),
    "a denied tool": (
        [
            *(start(0, "a"), ev(1, "tool_call.requested", {"tool_name": "x"}, tool_call_id="t")),
            *(ev(2, "tool_call.denied", {"by": "user"}, tool_call_id="t"), end(3, "a")),
        ],
        "complete",
    ),
    "a result without a request": (
        [start(0, "a"), ev(1, "tool_call.completed", {"status": "ok"}, tool_call_id="t"), end(2, "a")],
        "partial",
    ),
    "a late result": (
        [
            *(start(0, "a"), ev(1, "tool_call.requested", {"tool_name": "x"}, tool_call_id="t"), end(2, "a")),
            ev(3, "tool_call.completed", {"status": "ok"}, tool_call_id="t", turn_id="a"),
        ],
        "complete",
    ),
    "a declared loss inside": (
        [start(0, "a"), ev(1, "stream.lost", {"from_seq": 2, "to_seq": 2, "reason": "x"}), end(3, "a")],
        "complete",
    ),
    "a stream that says nothing of its numbers": (
        [ev(0, "stream.declared", {"density": "unknown"}), start(1, "a"), end(2, "a")],
        "unknown",
    ),
}


@pytest.mark.parametrize(("events", "grade"), GRADES.values(), ids=GRADES.keys())
def test_grade_of_a_turn(events: list[Event], grade: str) -> None:
    found = fold(*events)
    assert [turn["grade"] for turn in found["turns"]] == [grade]
    assert found["sessions"][0]["grade"] == grade


def test_two_streams_that_supersede_each_other_are_both_left_out() -> None:
    def told(seq: int, stream: str, named_stream: str) -> Event:
        payload = {"producer": "harness", "epoch": 0, "stream": named_stream, "reason": "r"}
        return ev(seq, "stream.superseded", payload, stream=stream)

    found = fold(told(0, "x", "y"), told(0, "y", "x"), named(1, "n", turn_id="a", stream="x"))
    assert found["turns"] == []
    assert checks(found) == {"superseded_stream": 2}


def test_a_stream_supersedes_no_part_of_itself() -> None:
    payload = {"producer": "harness", "epoch": 0, "stream": "ledger", "reason": "r"}
    assert where(fold(ev(0, "stream.superseded", payload), named(1, "n", turn_id="a"))) == {"n": "a"}


@pytest.mark.parametrize("missing", ["producer", "epoch", "stream"])
def test_a_stream_that_is_not_named_whole_is_not_superseded(missing: str) -> None:
    payload = {"producer": "harness", "epoch": 0, "stream": "old", "reason": "r"}
    del payload[missing]
    found = fold(ev(0, "stream.superseded", payload), named(0, "n", turn_id="a", stream="old"))
    assert where(found) == {"n": "a"}
    assert checks(found) == {"turn_without_start": 1, "wrong_type_in_payload": 1}
