"""The usual turn without general machinery gives the bytes, rows and findings of the general one, and is really taken."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fold.events import Story
from turnledger.fold.calls import resolve_calls
from turnledger.fold.context import TurnContext
from turnledger.fold.model import Row
from turnledger.fold.quick import quick_calls, quick_tools
from turnledger.fold.record import Scan
from turnledger.fold.session import fold_session
from turnledger.fold.tools import pair_tools, pairing_of, tool_row
from turnledger.fold.turnfold import fold_turn

COUNT = st.sampled_from([None, 0, 1, 7, 7, 7, "x", 12.0])
WORD = st.sampled_from([None, None, "", "a", 1])


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Row]:
    return st.fixed_dictionaries({}, optional=fields)


FIGURES = some(
    **{
        name: COUNT
        for name in ("input", "output", "cache_read", "cache_write", "cache_write_5m", "reasoning", "total")
    }
)
CALLS = st.lists(
    st.fixed_dictionaries(
        {
            "started": st.none()
            | some(
                provider=st.sampled_from(["openai", "anthropic"]),
                model=st.just("m"),
                context_window=COUNT,
                context_tokens=COUNT,
                method=WORD,
                input_tokens_estimate=COUNT,
                provenance=st.just("inherited"),
                trace=st.just("tr"),
            ),
            "completed": some(
                provider=st.sampled_from(["openai", "openai", "other"]),
                model=st.sampled_from(["m2", "m2", ""]),
                usage=FIGURES,
                message_id=st.sampled_from(["m1", "m2", "m3", ""]),
                request_id=st.sampled_from(["r1", "r2", "", 5]),
                source=st.sampled_from(["response", "transcript", "estimate", "guess"]),
                token_convention=st.sampled_from(["exclusive", "inclusive", "odd"]),
                counter_kind=st.sampled_from(["per_call", "per_call", "cumulative"]),
                stop_reason=st.sampled_from(["end_turn", "", 3]),
                status_code=st.sampled_from([200, -1, 10**9, 10**12]),
                latency_ms=COUNT,
                peak_input=COUNT,
                context_window=COUNT,
                reported_cost_usd=st.sampled_from([0, 0.25, 1e-7, "1"]),
                text=WORD,
                second=st.sampled_from([None, 3]),
                provenance=st.just("inherited"),
            ),
        }
    ),
    min_size=1,
    max_size=3,
)
TOOLS = st.lists(
    st.fixed_dictionaries(
        {
            "requested": some(
                tool_name=WORD,
                call=st.sampled_from(["0", "ghost"]),
                call_index=COUNT,
                call_tool_origin=st.sampled_from(["native", "mcp", "unknown", "odd"]),
                server_name=WORD,
                trace=st.just("tr"),
            ),
            "completed": some(
                status=st.sampled_from(["ok", "error", "odd"]),
                tool_name=WORD,
                error_message=WORD,
                duration_ms=COUNT,
                bytes_sent=COUNT,
                request_id=st.sampled_from(["1", 2, 3.0, ""]),
                transport=WORD,
                call=st.just("0"),
                provenance=st.just("inherited"),
            ),
            "consumed": st.sampled_from([None, None, "1"]),
        }
    ),
    max_size=3,
)


def told(calls: list[Row], tools: list[Row]) -> Story:
    story = Story(turn="t")
    story("turn.started")
    for number, call in enumerate(calls):
        if call["started"] is not None:
            story("model_call.started", **{"call": str(number), **call["started"]})
        story("model_call.completed", **{"call": str(number), **call["completed"]})
    for number, tool in enumerate(tools):
        story("tool_call.requested", **{"tool": str(number), **tool["requested"]})
        story("tool_call.completed", **{"tool": str(number), **tool["completed"]})
        if tool["consumed"] is not None:
            story("tool_results.submitted", call=tool["consumed"], tool_call_ids=[str(number)])
    story("turn.completed")
    return story


@settings(max_examples=100, deadline=None)
@given(CALLS, TOOLS)
def test_the_quick_way_answers_as_the_general_one_does(calls: list[Row], tools: list[Row]) -> None:
    story = told(calls, tools)
    (fold,) = fold_session("default", "s", story.events).turns  # resolves the whole session: never quick
    turn = fold.turn
    alone = fold_turn(turn, TurnContext("default", "s"))
    general = fold_turn(turn, TurnContext("default", "s", calls=resolve_calls([turn], [])))
    assert alone.body == general.body == fold.body
    assert alone.calls == general.calls
    assert alone.parts == general.parts
    assert alone.findings == general.findings
    scan = Scan(turn.events)
    quick = quick_tools(scan.tool_events, "t", "live", scan.end)
    if quick is not None:
        wrong: list[Row] = []
        paired = pair_tools(scan.tool_events, wrong)
        assert quick == [
            tool_row(tool, "t", "live", pairing_of(tool, scan.end, False), wrong) for tool in paired
        ]
        assert wrong == []


def test_the_usual_turn_takes_the_quick_way() -> None:
    figures: Row = {"input": 10, "output": 2, "cache_read": 0}
    usual: Row = {
        "started": {"provider": "openai", "model": "m"},
        "completed": {"usage": figures, "message_id": "m1"},
    }
    asked: Row = {
        "requested": {"tool_name": "bash", "call": "0"},
        "completed": {"status": "ok"},
        "consumed": "1",
    }
    events = told([usual, {**usual, "completed": {"usage": figures}}], [asked, asked]).events
    scan = Scan(events)
    calls = quick_calls(scan.call_events, "t", "live")
    assert calls is not None
    assert [row["total_input_tokens"] for row in calls.rows] == [10, 10]
    tools = quick_tools(scan.tool_events, "t", "live", scan.end)
    assert tools is not None
    assert [(row["pairing"], row["consumed_by"]) for row in tools] == [("paired", "1"), ("paired", "1")]
