"""The sums of one session (contract 12, 13) from rows made by hand; expected values are written down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from turnledger.fold import columns
from turnledger.fold.model import Row
from turnledger.fold.rollup import INT64_MAX, SessionRollup, SessionRows, hourly, overlay, roll_up
from turnledger.pricing import Price

HOUR = 3_600_000_000


def row(listed: tuple[columns.Column, ...], **known: Any) -> Row:
    """A row with nulls where nothing is said."""
    made: Row = dict.fromkeys((name for name, _ in listed), None)
    assert not known.keys() - made.keys()
    return {**made, **known}


def facts(**known: Any) -> Row:
    counts = {name: 0 for name, kind in columns.FACTS if kind == "int8"}
    return row(
        columns.FACTS, **{**counts, "kind": "live", "status": "running", "stream_grade": "complete", **known}
    )


def call(key: str, *, given: int | None = 10, output: int | None = 5, **known: Any) -> Row:
    return row(
        columns.MODEL_CALLS,
        **{
            "call_key": key,
            "turn_key": "t",
            "provider": "p",
            "model": "m",
            "kind": "live",
            "status": "completed",
            "counts": True,
            "inherited_event": False,
            "fidelity": "exact",
            "hour_at": 0,
            "input_uncached_tokens": given,
            "output_tokens": output,
            "order_key": key.encode(),
            **known,
        },
    )


def contribution(key: str, given: int, **known: Any) -> Row:
    return row(
        columns.USAGE_PARTS,
        **{
            "part_key": key,
            "turn_key": "t",
            "provider": "p",
            "model": "m",
            "kind": "live",
            "fidelity": "exact",
            "hour_at": 0,
            "input_uncached_tokens": given,
            "usage_reported": 1,
            "usage_total": 1,
            "inherited_event": False,
            **known,
        },
    )


def tool(name: str | None, status: str = "ok", **known: Any) -> Row:
    return row(
        columns.TOOL_CALLS,
        **{
            "tool_key": name or "-",
            "turn_key": "t",
            "tool_name": name,
            "status": status,
            "pairing": "paired",
            "kind": "live",
            "inherited_event": False,
            **known,
        },
    )


def turn(key: str = "t", **known: Any) -> Row:
    return row(
        columns.TURNS, **{"turn_key": key, "kind": "live", "inherited": False, "grade": "complete", **known}
    )


def a_token_each(
    provider: str | None,
    model: str | None,
    usage: Mapping[str, int | None],
    at: int | None,
    convention: str | None,
    *,
    one_request: bool,
) -> Price:
    """1 µ$ for an input token, 100 on top for a whole request."""
    given = usage["input_uncached"]
    if given is None:
        return Price(None, None, None, None)
    return Price(given + (100 if one_request else 0), "exact", "p/m", 1)


def rolled(owner: Mapping[str, str] | None = None, **known: Any) -> SessionRollup:
    rows = {"facts": facts(), "turns": [turn()], "calls": [], "tools": [], "contributions": [], **known}
    return roll_up(
        SessionRows(tenant="default", session_id="s", **rows),
        lambda key: (owner or {}).get(key, "s"),
        a_token_each,
    )


def figures(made: Row, *names: str) -> list[Any]:
    return [made[name] for name in names]


def test_a_session_without_calls_has_null_sums_and_zero_counts() -> None:
    made = rolled().session
    assert figures(made, "total_input_tokens", "output_tokens", "cost_micro_usd") == [None, None, None]
    assert figures(made, "usage_reported", "usage_total", "model_call_count", "unpriced_calls") == [
        0,
        0,
        0,
        0,
    ]
    assert made["inherited_usage"] is None


def test_every_bucket_is_the_sum_of_what_is_known() -> None:
    calls = [call("1", cache_read_tokens=3), call("2", given=None, output=7), call("3", cache_read_tokens=4)]
    made = rolled(calls=calls).session
    assert figures(
        made, "input_uncached_tokens", "cache_read_tokens", "output_tokens", "reasoning_tokens"
    ) == [20, 7, 17, None]


def test_total_is_every_call_that_did_not_fail_or_that_reported() -> None:
    calls = [
        call("1"),
        call("2", given=None, output=None),  # completed, nothing reported
        call("3", given=None, output=None, status="started"),  # still running
        call("4", given=None, output=None, status="failed"),
        call("5", status="failed", fidelity="lower_bound"),  # failed, and said what it had used
    ]
    made = rolled(calls=calls).session
    assert figures(made, "usage_reported", "usage_total", "model_call_count", "failed_model_calls") == [
        2,
        4,
        5,
        2,
    ]


def test_a_call_that_a_contribution_covers_is_shown_priced_and_not_summed() -> None:
    made = rolled(calls=[call("1", counts=False)], contributions=[contribution("c", 40)])
    assert figures(made.session, "input_uncached_tokens", "usage_total", "cost_micro_usd") == [40, 1, 40]
    assert [one["cost_micro_usd"] for one in made.calls] == [110]
    assert [one["cost_micro_usd"] for one in made.parts] == [40]
    assert made.session["model_call_count"] == 1


def test_an_inherited_call_is_in_no_sum_but_in_inherited_usage() -> None:
    made = rolled({"2": "other"}, calls=[call("1"), call("2", given=70)])
    assert figures(
        made.session, "input_uncached_tokens", "model_call_count", "cost_micro_usd", "usage_total"
    ) == [10, 1, 110, 1]
    assert made.session["inherited_usage"]["input_uncached"] == 70
    assert [(one["inherited"], one["owner_session_id"]) for one in made.calls] == [
        (False, "s"),
        (True, "other"),
    ]
    assert [one["call_count"] for one in made.ai_usage] == [1]
    assert [one["calls"] for one in made.hour_parts] == [1]


def test_a_contribution_of_an_inherited_report_is_inherited_whoever_holds_it() -> None:
    made = rolled(contributions=[contribution("c", 40, inherited_event=True)])
    assert figures(made.session, "input_uncached_tokens", "usage_total") == [None, 0]
    assert made.session["inherited_usage"]["input_uncached"] == 40


def test_ai_usage_has_a_row_for_each_provider_and_model_and_unknown_for_null() -> None:
    calls = [
        call("1", latency_ms=5),
        call("2", model="n", status="failed"),
        call("3", provider=None, model=None),
    ]
    made = rolled(calls=calls, contributions=[contribution("c", 40, model="thread")])
    assert [
        (one["provider"], one["model"], one["call_count"], one["failed_count"]) for one in made.ai_usage
    ] == [
        ("p", "m", 1, 0),
        ("p", "n", 1, 1),
        ("p", "thread", 0, 0),
        ("unknown", "unknown", 1, 0),
    ]
    assert [one["total_duration_ms"] for one in made.ai_usage] == [5, None, None, None]


def test_tool_usage_counts_logical_calls_errors_and_denials_apart() -> None:
    tools = [
        tool("bash", origin="native", duration_ms=3, bytes_sent=1, bytes_received=2),
        tool("bash", "error", origin="native", duration_ms=4),
        tool("bash", "denied", origin="native"),
        tool(None),
    ]
    made = rolled(tools=tools)
    assert [tuple(one.values()) for one in made.tool_usage] == [
        ("bash", "native", "live", 3, 1, 1, 3, 7),
        ("unknown", "unknown", "live", 1, 0, 0, None, None),
    ]
    assert figures(made.session, "total_tool_calls", "tool_errors") == [4, 1]


@pytest.mark.parametrize("name", ["x", "srv__x", "mcp__srv__x"])
def test_mcp_usage_names_a_tool_without_its_servers_prefix(name: str) -> None:
    (made,) = rolled(tools=[tool(name, server_name="srv"), tool("bash")]).mcp_usage
    assert figures(made, "server_name", "tool_name", "call_count") == ["srv", "x", 1]


def test_turns_and_tools_that_are_inherited_whole_are_not_counted() -> None:
    turns = [turn("t"), turn("old", inherited=True)]
    tools = [tool("a"), tool("b", turn_key="old"), tool("c", inherited_event=True)]
    made = rolled(turns=turns, tools=tools).session
    assert figures(made, "turn_count", "total_tool_calls") == [1, 1]


@pytest.mark.parametrize(("kind", "summed", "hours"), [("live", 10, 1), ("import", 10, 1), ("eval", 80, 0)])
def test_a_mixed_session_leaves_eval_out_and_an_eval_session_sums_it(
    kind: str, summed: int, hours: int
) -> None:
    calls = [call("1", kind="eval" if kind == "eval" else kind), call("2", given=70, kind="eval")]
    made = rolled(facts=facts(kind=kind), calls=calls)
    assert made.session["input_uncached_tokens"] == summed
    assert len(made.hour_parts) == hours


def test_an_hour_is_that_of_the_winning_report_and_null_a_row_of_its_own() -> None:
    calls = [
        call("1", hour_at=HOUR - 1),
        call("2", hour_at=HOUR),
        call("3", hour_at=None),
        call("4", hour_at=-1),
    ]
    made = rolled(calls=calls).hour_parts
    assert [(one["hour"], one["calls"]) for one in made] == [(None, 1), (-HOUR, 1), (0, 1), (HOUR, 1)]


def test_hours_of_several_sessions_add_up_and_count_each_session_once() -> None:
    first = rolled(calls=[call("1"), call("2", model="n")]).hour_parts
    second = rolled(calls=[call("1", given=None, output=None)]).hour_parts
    made = hourly([("a", one) for one in first] + [("b", one) for one in second])
    assert [(one["model"], one["calls"], one["input_uncached_tokens"], one["sessions"]) for one in made] == [
        ("m", 2, 10, 2),
        ("n", 1, 10, 1),
    ]


def test_a_sum_that_no_column_can_hold_is_null_not_wrong() -> None:
    made = rolled(calls=[call("1", given=INT64_MAX), call("2", given=1)]).session
    assert made["input_uncached_tokens"] is None
    assert made["output_tokens"] == 10


@pytest.mark.parametrize(
    ("known", "grade"),
    [
        ({}, "complete"),
        ({"facts": facts(stream_grade="unknown")}, "unknown"),
        ({"turns": [turn(grade="partial")], "facts": facts(stream_grade="unknown")}, "partial"),
        ({"calls": [call("1", turn_key=None, fidelity="lower_bound")]}, "partial"),
        ({"calls": [call("1", turn_key=None, given=None, output=None)]}, "partial"),
        ({"calls": [call("1", turn_key=None, given=None, output=None, status="failed")]}, "complete"),
        ({"tools": [tool("a", turn_key=None, pairing="orphan_result")]}, "partial"),
        ({"tools": [tool("a", turn_key=None, pairing="pending")]}, "complete"),
        ({"loose_checks": frozenset({"usage_counter_reset"})}, "partial"),
        ({"loose_checks": frozenset({"declared_loss"})}, "complete"),
        ({"open_gaps": 1, "turns": [turn(grade="partial")]}, "gaps"),
        ({"open_gaps": 1, "conflicts": 1}, "disputed"),
        ({"dead_letters": 3}, "complete"),
    ],
)
def test_the_worst_grade_wins(known: dict[str, Any], grade: str) -> None:
    assert rolled(**known).session["grade"] == grade


def test_a_disputed_turn_says_so_over_its_own_grade() -> None:
    made = rolled(conflicts=1, disputed_turns=frozenset({"t"}), turns=[turn("t"), turn("u")])
    assert [made.turns[key].row["grade"] for key in ("t", "u")] == ["disputed", None]


def test_what_is_laid_over_a_record() -> None:
    made = rolled({"2": "other"}, calls=[call("2", given=70), call("1")])
    record = {
        "model_calls": [{"model_call_id": "1", "index": 0}, {"model_call_id": "2", "index": 1}],
        "usage": {"output": 10},
    }
    laid = overlay(record, made.turns["t"])
    assert laid["model_calls"] == [
        {
            "model_call_id": "1",
            "index": 0,
            "cost_micro_usd": 110,
            "cost_fidelity": "exact",
            "price_id": "p/m",
            "inherited": False,
        },
        {
            "model_call_id": "2",
            "index": 1,
            "cost_micro_usd": 170,
            "cost_fidelity": "exact",
            "price_id": "p/m",
            "inherited": True,
        },
    ]
    assert (laid["usage"]["input_uncached"], laid["usage"]["reported"]) == (10, 1)
    assert laid["inherited_usage"]["input_uncached"] == 70
    assert laid["cost_micro_usd"] == 110


def test_without_anything_inherited_usage_is_the_records_own() -> None:
    made = rolled(calls=[call("1")])
    assert overlay({"model_calls": [{}]}, made.turns["t"]).keys() == {"model_calls", "cost_micro_usd"}
    assert overlay({"model_calls": []}, rolled().turns["t"]) == {}


def test_a_record_of_another_fold_is_refused() -> None:
    with pytest.raises(ValueError, match="0 model calls and 1 rows"):
        overlay({"model_calls": []}, rolled(calls=[call("1")]).turns["t"])


def test_unpriced_calls_are_named_by_provider_and_model() -> None:
    def unpriced(*given: Any, one_request: bool) -> Price:
        return Price(None, None, None, None, unpriced=True)

    rows = SessionRows(
        tenant="default",
        session_id="s",
        facts=facts(),
        turns=[turn()],
        calls=[call("1"), call("2"), call("3", model=None)],
        tools=[],
        contributions=[],
    )
    made = roll_up(rows, lambda key: "s", unpriced)
    assert made.session["unpriced_calls"] == 3
    assert made.session["cost_micro_usd"] is None
    assert [one["row"] for one in made.findings] == [
        {"provider": "p", "model": None, "calls": 1},
        {"provider": "p", "model": "m", "calls": 2},
    ]
