"""The identity graph: what hangs under what, parts of it, and a tree that fits its terminal."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from typing import Any

import pytest
from rich.cells import cell_len

from turnledger.contract.event import Event
from turnledger.contract.reader import read
from turnledger.doctor.graph import Chosen, all_events, choose, graph
from turnledger.doctor.line import Page
from turnledger.doctor.showing import with_bodies_alone
from turnledger.doctor.tree import session_node, write_tree

Row = dict[str, Any]


def row(**given: Any) -> defaultdict[str, Any]:
    """A row whose other columns are null."""
    return defaultdict(lambda: None, given)


def turn(key: str, **given: Any) -> Row:
    return {
        **dict.fromkeys(
            ("turn_id", "turn_index", "status", "started_at", "duration_ms", "total_input_tokens", "output_tokens", "cache_read_tokens",
             "cost_micro_usd", "unpriced_calls", "grade", "stop_why", "event_count")
        ),
        "turn_key": key,
        "record": {"large": True},
        **given,
    }  # fmt: skip


CALL = dict.fromkeys(
    ("model_call_id", "message_id", "request_id", "call_key", "trace_id", "provider", "model", "kind", "status", "error_class", "status_code",
     "stop_reason", "started_at", "completed_at", "latency_ms", "retries", "fidelity", "total_input_tokens", "output_tokens",
     "cache_read_tokens", "inherited", "owner_session_id", "cost_micro_usd", "cost_fidelity", "unpriced")
)  # fmt: skip
TOOL = dict.fromkeys(
    ("tool_key", "turn_key", "call_id", "tool_name", "server_name", "status", "pairing", "requested_by", "consumed_by", "denied_by",
     "error_message", "duration_ms", "requested_at", "completed_at", "trace_id")
)  # fmt: skip


def call(turn_key: str | None, model_call_id: str, **given: Any) -> Row:
    return {
        **CALL,
        "turn_key": turn_key,
        "model_call_id": model_call_id,
        "call_key": f"{turn_key}/{model_call_id}",
        **given,
    }


def tool(turn_key: str | None, call_id: str, **given: Any) -> Row:
    return {
        **TOOL,
        "turn_key": turn_key,
        "call_id": call_id,
        "tool_key": f"{turn_key}/{call_id}",
        "tool_name": "bash",
        **given,
    }


def event(seq: int, type_: str = "note", /, payload: Row | None = None, **fields: Any) -> Event:
    found = read(
        json.dumps(
            {"session_id": "s", "seq": seq, "type": type_, "payload": payload or {}, **fields}
        ).encode()
    )
    assert isinstance(found, Event), found
    return found


def shape(traces: list[Row]) -> Any:
    """Ids alone: {trace: {turn: [calls {id: [tools]}, tools]}}."""
    return {
        trace["trace_id"]: {
            part["turn_key"]: (
                {
                    one["model_call_id"]: [each["call_id"] for each in one["tool_calls"]]
                    for one in part["model_calls"]
                },
                [one["call_id"] for one in part["tool_calls"]],
            )
            for part in trace["turns"]
        }
        for trace in traces
    }


def test_tools_hang_under_the_call_of_their_turn_that_asked_for_them() -> None:
    traces = graph(
        [turn("a"), turn("b")],
        [call("a", "1"), call("b", "1")],
        [
            tool("a", "t", requested_by="1"),
            tool("b", "t", requested_by="1"),
            tool("b", "u", requested_by="9"),
            tool("b", "v"),
        ],
    )
    assert shape(traces) == {None: {"a": ({"1": ["t"]}, []), "b": ({"1": ["t"]}, ["u", "v"])}}


def test_a_turn_stands_in_each_trace_with_its_part_of_the_work() -> None:
    traces = graph(
        [turn("a"), turn("b")],
        [call("a", "1", trace_id="T"), call("a", "2", trace_id="U"), call("b", "3", trace_id="U")],
        [tool("a", "t", requested_by="2"), tool("a", "loose", trace_id="T")],
    )
    assert shape(traces) == {
        "T": {"a": ({"1": []}, ["loose"])},
        "U": {"a": ({"2": ["t"]}, []), "b": ({"3": []}, [])},
    }
    assert [[part["continued"] for part in trace["turns"]] for trace in traces] == [[False], [True, False]]


def test_work_without_a_trace_belongs_to_the_only_one_of_its_turn() -> None:
    traces = graph([turn("a")], [call("a", "1", trace_id="T"), call("a", "2")], [tool("a", "t")])
    assert shape(traces) == {"T": {"a": ({"1": [], "2": []}, ["t"])}}


def test_a_turn_without_work_and_work_without_a_turn_are_shown() -> None:
    traces = graph([turn("idle")], [call(None, "1")], [])
    assert shape(traces) == {None: {"idle": ({}, []), None: ({"1": []}, [])}}


def test_an_event_hangs_under_the_nearest_thing_that_it_names() -> None:
    traces = graph(
        [turn("a")],
        [call("a", "1", message_id="m1"), call("a", "1", message_id="m2", call_key="second")],
        [tool("a", "t", requested_by="1")],
        [
            (event(0, turn_id="a"), "a"),
            (event(1, model_call_id="1"), "a"),
            (event(2, tool_call_id="t", model_call_id="1"), "a"),
            (event(3, payload={"message_id": "m2"}), "a"),
            (event(4, tool_call_id="unknown"), "a"),
            (event(5), None),
        ],
    )
    (trace,) = traces
    first, outside = trace["turns"]
    assert [one["seq"] for one in first["events"]] == [0, 4]
    assert [[one["seq"] for one in each["events"]] for each in first["model_calls"]] == [[1], [3]]
    assert [one["seq"] for one in first["model_calls"][0]["tool_calls"][0]["events"]] == [2]
    assert [one["seq"] for one in outside["events"]] == [5]


def test_events_that_were_not_asked_for_are_not_none() -> None:
    (trace,) = graph([turn("a")], [call("a", "1")], [])
    assert (trace["turns"][0]["events"], trace["turns"][0]["model_calls"][0]["events"]) == (None, None)
    assert "record" not in trace["turns"][0]


def told() -> list[Row]:
    return graph(
        [turn("a", turn_id="a", turn_index=0), turn("b", turn_id="b", turn_index=1)],
        [call("a", "1", trace_id="T", message_id="m1"), call("b", "1", trace_id="U")],
        [tool("a", "t", requested_by="1"), tool("b", "t", requested_by="1")],
        [
            (event(0, tool_call_id="t", event_id="e0"), "a"),
            (event(1, tool_call_id="t"), "b"),
            (event(2, turn_id="b"), "b"),
        ],
    )


@pytest.mark.parametrize(
    ("chosen", "expected", "events"),
    [
        (Chosen(turn="1"), {"U": {"b": ({"1": ["t"]}, [])}}, [1, 2]),
        (Chosen(trace="T"), {"T": {"a": ({"1": ["t"]}, [])}}, [0]),
        (Chosen(call="m1"), {"T": {"a": ({"1": ["t"]}, [])}}, [0]),
        (Chosen(call="t"), {"T": {"a": ({"1": ["t"]}, [])}, "U": {"b": ({"1": ["t"]}, [])}}, [0, 1]),
        (Chosen(call="t", turn="b"), {"U": {"b": ({"1": ["t"]}, [])}}, [1]),
        (Chosen(event="e0"), {"T": {"a": ({"1": ["t"]}, [])}}, [0]),
        (Chosen(event="harness/0/ledger/2"), {"U": {"b": ({}, [])}}, [2]),
        (Chosen(turn="a", trace="U"), {}, []),
        (Chosen(event="e9"), {}, []),
    ],
    ids=str,
)
def test_a_part_keeps_what_stands_above_and_below_it(
    chosen: Chosen, expected: Any, events: list[int]
) -> None:
    part = choose(told(), chosen)
    assert shape(part) == expected
    assert sorted(one["seq"] for one in all_events(part)) == events


HOSTILE = "\x1b[2J\x9b\u202ename 名前" * 20


@pytest.mark.parametrize("columns", [80, 140])
def test_no_line_of_a_tree_is_wider_than_its_terminal_or_moves_its_cursor(columns: int) -> None:
    traces = graph(
        [turn(HOSTILE, status=HOSTILE, grade="gaps", stop_why="failed", event_count=3)],
        [
            call(
                HOSTILE,
                "1",
                model=HOSTILE,
                status="failed",
                error_class=HOSTILE,
                message_id=HOSTILE,
                trace_id=HOSTILE,
            )
        ],
        [
            tool(
                HOSTILE,
                "t",
                tool_name=HOSTILE,
                error_message=HOSTILE,
                requested_by="1",
                status="error",
                server_name=HOSTILE,
            )
        ],
        [
            (
                event(0, "x", {HOSTILE: [HOSTILE, {"deep": HOSTILE}]}, stream=HOSTILE[:80], tool_call_id="t"),
                HOSTILE,
            )
        ],
    )
    out = io.StringIO()
    write_tree(Page(out, columns=columns, colours=False), session_node(HOSTILE, None, traces, whole=True))
    lines = out.getvalue().split("\n")
    assert len(lines) > 10
    for line in lines:
        assert cell_len(line) <= columns, line
        assert line.isprintable()


def test_a_tree_tells_times_tokens_cost_and_grade() -> None:
    sums = row(status="ended", created_at="2026-03-01T10:00:00.000000Z", last_activity_at="2026-03-01T10:00:09.000000Z",
               total_input_tokens=1500, cache_read_tokens=300, output_tokens=80, cost_micro_usd=4890, unpriced_calls=1, grade="gaps")  # fmt: skip
    traces = graph(
        [turn("t1", status="completed", started_at="2026-03-01T10:00:01.000000Z", duration_ms=61_500, total_input_tokens=1500, output_tokens=80,
              cost_micro_usd=None, unpriced_calls=0, grade="partial", stop_why="answered", event_count=7)],
        [call("t1", "c1", model="m", status="completed", completed_at="2026-03-01T10:00:02.000000Z", latency_ms=900, total_input_tokens=1500,
              output_tokens=80, cost_micro_usd=4890, fidelity="lower_bound", retries=2, trace_id="T")],
        [tool("t1", "u1", status="error", pairing="late_result", error_message="no such file", requested_by="c1")],
    )  # fmt: skip
    out = io.StringIO()
    write_tree(Page(out, columns=160, colours=False), session_node("s", sums, traces))
    assert out.getvalue().splitlines() == [
        "session s  ended · 2026-03-01 10:00:00Z → 2026-03-01 10:00:09Z · 1,500 in (300 cached) 80 out · cost $0.00489 +1? · gaps",
        "└─ trace T",
        "   └─ turn t1  completed · 10:00:01 · 1 min 1 s · 1,500 in 80 out · cost – · partial · stop: answered · 7 events",
        "      └─ call c1  m · completed · 10:00:02 · 900 ms · 1,500 in 80 out · $0.00489 · lower_bound · 2 failed before it",
        "         └─ tool bash  error · late_result · u1 · no such file",
    ]


def drawn(traces: list[Row], latest: set[str] | None = None) -> list[str]:
    out = io.StringIO()
    write_tree(Page(out, columns=80, colours=False), session_node("s", None, traces, latest=latest))
    return out.getvalue().splitlines()[1:]


def test_turns_before_the_latest_are_counted() -> None:
    lines = drawn(graph([turn(f"t{n}") for n in range(5)], [], []), {"t3", "t4"})
    assert lines[0] == "├─ … 3 turns before; -n shows more"
    assert [line.split()[2] for line in lines[1:]] == ["t3", "t4"]


def test_the_latest_turns_are_those_of_the_session_wherever_they_worked() -> None:
    # The first turn worked in no trace, which is told last; the third in two.
    traces = graph(
        [turn("a"), turn("b"), turn("c")],
        [
            call("b", "1", trace_id="T"),
            call("c", "2", trace_id="U"),
            call("c", "3", trace_id="V"),
        ],
        [],
    )
    assert [line.split("─ ")[1].split("  ")[0] for line in drawn(traces, {"b", "c"}) if "─ " in line] == [
        "… 1 turn before; -n shows more",
        "trace T",
        "turn b",
        "call 1",
        "trace U",
        "turn c",
        "call 2",
        "trace V",
        "turn c",
        "call 3",
    ]


def test_a_turn_has_its_figures_in_the_first_trace_that_is_shown() -> None:
    work = [call("t", "1", trace_id="T"), call("t", "2", trace_id="U")]
    traces = graph([turn("t", status="completed")], work, [], [])
    assert [line for line in drawn(traces) if "turn t" in line] == [
        "│  └─ turn t  completed · tokens – · cost – · –",
        "   └─ turn t  goes on; its figures stand above",
    ]
    (line,) = [line for line in drawn(choose(traces, Chosen(trace="U"))) if "turn t" in line]
    assert line == "   └─ turn t  completed · tokens – · cost – · –"


def test_with_bodies_nothing_is_left_that_held_other_events_alone() -> None:
    events = [
        (event(0, trace_id="T", turn_id="t", model_call_id="1"), "t"),
        (event(1, turn_id="t"), "t"),
        (event(2), None),
    ]
    work = [call("t", "1", trace_id="T"), call("t", "2", trace_id="U")]
    traces = graph([turn("t")], work, [], events)
    assert [trace["trace_id"] for trace in traces] == ["T", "U", None]
    (told,) = [one for one in all_events(traces) if one["seq"] == 0]
    told["bodies"] = [{"data": b"x"}]
    kept = with_bodies_alone(traces)
    assert [trace["trace_id"] for trace in kept] == ["T", "U"]
    assert [one["seq"] for one in all_events(kept)] == [0]
