"""Usage (contract 8): buckets under each convention, ranks of reports, running totals, what stands."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.fold.events import Story, checks, told
from turnledger.fold.model import Row
from turnledger.fold.usage import COUNTERS, buckets


def raw(**counters: int) -> tuple[int | None, ...]:
    return tuple(counters.get(name) for name in COUNTERS)


# (uncached, read, 5m, 1h, other, output, reasoning, total_input), negative
BUCKETS: list[tuple[str, str, dict[str, int], tuple[int | None, ...], bool]] = [
    (
        "exclusive adds its caches to the total",
        "exclusive",
        {"input": 10, "output": 5, "cache_read": 2, "cache_write": 3, "reasoning": 2},
        (10, 2, None, None, 3, 5, 2, 15),
        False,
    ),
    (
        "exclusive without a cache read has no total",
        "exclusive",
        {"input": 10, "cache_write": 3},
        (10, None, None, None, 3, None, None, None),
        False,
    ),
    (
        "writes nobody reported count as none",
        "exclusive",
        {"input": 10, "cache_read": 2},
        (10, 2, None, None, None, None, None, 12),
        False,
    ),
    (
        "inclusive takes its caches out of the input",
        "inclusive",
        {"input": 100, "output": 7, "cache_read": 30, "cache_write": 20},
        (50, 30, None, None, 20, 7, None, 100),
        False,
    ),
    (
        "inclusive without a cache read keeps its total",
        "inclusive",
        {"input": 100},
        (None, None, None, None, None, None, None, 100),
        False,
    ),
    (
        "a cache read above an inclusive input nulls the uncached input alone",
        "inclusive",
        {"input": 10, "output": 1, "cache_read": 11},
        (None, 11, None, None, None, 1, None, 10),
        True,
    ),
    (
        "thoughts are added to a separate output",
        "inclusive_thoughts_separate",
        {"input": 100, "output": 7, "cache_read": 0, "reasoning": 5},
        (100, 0, None, None, None, 12, 5, 100),
        False,
    ),
    (
        "an output without reported thoughts stands",
        "inclusive_thoughts_separate",
        {"output": 7},
        (None, None, None, None, None, 7, None, None),
        False,
    ),
    (
        "an unknown convention says nothing about input",
        "unknown",
        {"input": 100, "output": 7, "cache_read": 3},
        (None, 3, None, None, None, 7, None, None),
        False,
    ),
    (
        "only writes that no lifetime covers are other",
        "exclusive",
        {"input": 1, "cache_read": 0, "cache_write": 10, "cache_write_5m": 4, "cache_write_1h": 5},
        (1, 0, 4, 5, 1, None, None, 11),
        False,
    ),
    (
        "lifetimes alone leave other unknown and count",
        "inclusive",
        {"input": 20, "cache_read": 1, "cache_write_5m": 4},
        (15, 1, 4, None, None, None, None, 20),
        False,
    ),
    (
        "lifetimes above the writes null what is computed from them",
        "exclusive",
        {"input": 1, "cache_read": 0, "cache_write": 3, "cache_write_5m": 4, "output": 2},
        (1, 0, 4, None, None, 2, None, None),
        True,
    ),
    (
        "and the uncached part of an inclusive input",
        "inclusive",
        {"input": 9, "cache_read": 0, "cache_write": 3, "cache_write_5m": 4},
        (None, 0, 4, None, None, None, None, 9),
        True,
    ),
]


@pytest.mark.parametrize(
    ("rule", "convention", "counters", "expected", "negative"), BUCKETS, ids=[b[0] for b in BUCKETS]
)
def test_buckets(
    rule: str, convention: str, counters: dict[str, int], expected: tuple[int | None, ...], negative: bool
) -> None:
    assert buckets(raw(**counters), convention) == (expected, negative)


@pytest.mark.parametrize(
    ("provider", "convention"),
    [
        ("anthropic", "exclusive"),
        ("openai", "inclusive"),
        ("google", "inclusive_thoughts_separate"),
        ("OpenAI", "unknown"),
        ("bedrock", "unknown"),
        (None, "unknown"),
    ],
)
def test_without_a_convention_the_provider_decides_exactly(provider: str | None, convention: str) -> None:
    story = Story(turn="t")
    story("turn.started")
    story("model_call.completed", call="1", provider=provider, model="m", usage={"input": 1, "output": 1})
    story("turn.completed")
    turn = story.turn()
    assert turn.calls[0]["token_convention"] == convention
    assert ("usage_unknown_convention" in checks(turn)) is (convention == "unknown")


def one_call(*reports: Row) -> Row:
    """The row of a call that several events report on, and nothing else in the turn."""
    story = Story(turn="t", provider="anthropic", model="m", call="c")
    for report in reports:
        story("usage.reported", **report)
    (row,) = story.turn().calls
    return row


@pytest.mark.parametrize(
    ("rule", "reports", "output"),
    [
        (
            "a better source beats a later and greater report",
            [
                {"source": "response", "usage": {"output": 1}},
                {"source": "event", "final": True, "usage": {"output": 9}},
            ],
            1,
        ),
        (
            "a message id makes a response of a report without source",
            [{"message_id": "m", "usage": {"output": 1}}, {"source": "event", "usage": {"output": 9}}],
            1,
        ),
        (
            "final beats greater",
            [{"final": True, "usage": {"output": 1}}, {"usage": {"output": 9}}],
            1,
        ),
        ("greater beats later", [{"usage": {"output": 9}}, {"usage": {"output": 1}}], 9),
        ("any output beats none", [{"usage": {"output": 0}}, {"usage": {"input": 5}}], 0),
        (
            "an unlisted source is read as none",
            [{"source": "guess", "usage": {"output": 1}}, {"source": "event", "usage": {"output": 2}}],
            2,
        ),
    ],
)
def test_rank_of_several_reports(rule: str, reports: list[Row], output: int) -> None:
    assert one_call(*reports)["output_tokens"] == output


def test_equal_reports_are_told_apart_by_their_place_and_the_last_wins() -> None:
    row = one_call({"usage": {"output": 5, "input": 1}}, {"usage": {"output": 5, "input": 2}})
    assert row["input_uncached_tokens"] == 2


def test_a_missing_counter_is_filled_from_the_next_best_of_the_same_convention() -> None:
    row = one_call(
        {"final": True, "usage": {"input": 4, "output": 9}},
        {"token_convention": "inclusive", "usage": {"output": 8, "cache_read": 100}},
        {"usage": {"output": 7, "cache_read": 3}},
    )
    assert (row["input_uncached_tokens"], row["cache_read_tokens"], row["total_input_tokens"]) == (4, 3, 7)


@pytest.mark.parametrize(
    ("report", "fidelity"),
    [
        ({"source": "response"}, "exact"),
        ({"source": "event"}, "exact"),
        ({"source": "transcript", "stop_reason": "end_turn"}, "exact"),
        ({"source": "transcript"}, "lower_bound"),
        ({"source": "estimate"}, "estimated"),
    ],
)
def test_fidelity_of_a_report(report: Row, fidelity: str) -> None:
    assert one_call({**report, "usage": {"output": 1}})["fidelity"] == fidelity


def test_figures_of_a_failed_call_count_as_a_lower_bound_and_without_any_it_has_none() -> None:
    story = Story(turn="t", provider="anthropic", model="m")
    story("turn.started")
    story("model_call.failed", call="1", error_class="cut", usage={"output": 4})
    story("model_call.failed", call="2", error_class="cut")
    story("turn.completed")
    turn = story.turn()
    assert [(row["output_tokens"], row["fidelity"], row["counts"]) for row in turn.calls] == [
        (4, "lower_bound", True),
        (None, "unknown", False),
    ]
    assert (turn.record["usage"]["reported"], turn.record["usage"]["total"]) == (1, 1)
    assert turn.record["grade"] == "partial"


@pytest.mark.parametrize("odd", ["[REDACTED]", 12.5, -5, 10**30, True, [], 2**63])
def test_a_wrong_type_is_null_and_a_finding_and_the_rest_of_the_report_stands(odd: Any) -> None:
    story = Story(turn="t", provider="anthropic", model="m")
    story("turn.started")
    story("model_call.completed", call="1", usage={"input": odd, "output": 4})
    story("turn.completed")
    turn = story.turn()
    assert told(turn.record["model_calls"][0]["usage"]) == {"output": 4}
    assert checks(turn) == ["wrong_type_in_payload"]
    assert turn.findings[0]["row"]["field"] == "usage.input"


@pytest.mark.parametrize(("value", "integer"), [(12.0, 12), (1e3, 1000), (-0.0, 0)])
def test_an_integer_is_judged_on_its_canonical_value(value: float, integer: int) -> None:
    assert one_call({"usage": {"output": value}})["output_tokens"] == integer


def test_a_report_without_a_known_counter_is_none() -> None:
    story = Story(turn="t", provider="anthropic")
    story("turn.started")
    story("usage.reported", message_id="m", usage={"output": "many"})
    story("turn.completed")
    assert story.turn().calls == []


def climb(*reports: Row, **always: Any) -> Any:
    """The turn of one counter's reports; input figures are inclusive."""
    story = Story(turn="t", provider="openai", counter_kind="cumulative", **always)
    story("turn.started", provider=None, counter_kind=None)
    for report in reports:
        story("usage.reported", **report)
    story("turn.completed", provider=None, counter_kind=None)
    return story.turn()


@pytest.mark.parametrize(
    ("rule", "reports", "total", "found"),
    [
        ("a first total without last is known from its start", [{"usage": {"input": 7}}], 7, []),
        (
            "start_known false without last observes nothing yet",
            [{"usage": {"input": 7}, "start_known": False}, {"usage": {"input": 9}}],
            2,
            ["usage_unknown_start"],
        ),
        (
            "start_known true beats a last that differs",
            [{"usage": {"input": 7}, "last": {"input": 2}, "start_known": True}],
            7,
            [],
        ),
        (
            "a last above the total starts at zero",
            [{"usage": {"input": 7}, "last": {"input": 9}}],
            7,
            ["usage_unknown_start"],
        ),
        (
            "only the stream's first report is asked for its start",
            [{"usage": {"input": 7}}, {"usage": {"input": 9}, "start_known": False}],
            9,
            [],
        ),
        (
            "a fall with a last equal to the total is a reset",
            [{"usage": {"input": 7}}, {"usage": {"input": 3}, "last": {"input": 3}}],
            10,
            ["usage_counter_reset"],
        ),
        (
            "a fall with another last is a contradiction",
            [{"usage": {"input": 7}}, {"usage": {"input": 3}, "last": {"input": 1}}, {"usage": {"input": 8}}],
            8,
            ["usage_counter_contradiction"],
        ),
    ],
)
def test_a_running_total(rule: str, reports: list[Row], total: int, found: list[str]) -> None:
    turn = climb(*reports)
    assert turn.record["usage"]["total_input"] == total
    assert checks(turn) == found


def test_a_counter_first_seen_later_starts_at_zero_when_the_start_is_known() -> None:
    turn = climb({"usage": {"input": 7}}, {"usage": {"input": 7, "output": 5}})
    assert turn.record["usage"]["output"] == 5
    assert turn.parts[0].fidelity == "exact"


def test_a_counter_first_seen_later_makes_a_lower_bound_when_it_is_not() -> None:
    turn = climb(
        {"usage": {"input": 7}, "start_known": False},
        {"usage": {"input": 8, "output": 5}, "last": {"input": 1, "output": 2}},
    )
    assert (turn.record["usage"]["total_input"], turn.record["usage"]["output"]) == (1, 2)
    assert turn.parts[0].fidelity == "lower_bound"
    assert checks(turn) == ["usage_unknown_start"]


def test_an_epoch_does_not_restart_a_counter() -> None:
    turn = climb({"usage": {"input": 7}}, {"usage": {"input": 9}, "epoch": 1})
    assert turn.record["usage"]["total_input"] == 9


def test_two_usage_streams_are_two_counters() -> None:
    turn = climb(
        {"usage": {"input": 7}, "usage_stream": "a"},
        {"usage": {"input": 5}, "usage_stream": "b"},
        {"usage": {"input": 9}, "usage_stream": "a"},
    )
    assert turn.record["usage"]["total_input"] == 14
    assert turn.record["usage"]["total"] == 2


def test_copies_of_one_counter_count_once_and_the_greatest_whole() -> None:
    story = Story(turn="t", provider="openai", counter_kind="cumulative", usage_stream="u")
    story("usage.reported", usage={"input": 10})
    story("usage.reported", usage={"input": 30})
    story("usage.reported", stream="file:x", usage={"input": 10})
    story("usage.reported", stream="file:x", usage={"input": 34})
    turn = story.turn()
    assert turn.record["usage"]["total_input"] == 34
    assert "usage_copies_differ" in checks(turn)


def test_equal_copies_are_no_finding() -> None:
    story = Story(turn="t", provider="openai", counter_kind="cumulative", usage_stream="u")
    for stream in ("ledger", "file:x"):
        story("usage.reported", stream=stream, usage={"input": 10})
        story("usage.reported", stream=stream, usage={"input": 30})
    turn = story.turn()
    assert turn.record["usage"]["total_input"] == 30
    assert "usage_copies_differ" not in checks(turn)


def test_a_contribution_is_converted_once_by_its_last_report_and_falls_into_its_hour() -> None:
    turn = climb(
        {"usage": {"input": 10, "cache_read": 4}, "second": 10},
        {"usage": {"input": 30, "cache_read": 5}, "second": 20, "token_convention": "exclusive"},
    )
    assert told(turn.record["usage"]) == {
        "input_uncached": 30,
        "cache_read": 5,
        "total_input": 35,
        "reported": 1,
        "total": 1,
    }
    (part,) = turn.parts
    assert part.hour_at == turn.turn.events[2].at


def test_an_inherited_report_moves_the_running_value_and_adds_nothing_to_the_sums() -> None:
    turn = climb(
        {"usage": {"input": 10}, "provenance": "inherited"},
        {"usage": {"input": 25}},
    )
    assert turn.record["usage"]["total_input"] == 15
    assert (turn.record["usage"]["reported"], turn.record["usage"]["total"]) == (1, 1)
    inherited = [part for part in turn.parts if part.inherited_event]
    assert [part.usage["total_input"] for part in inherited] == [10]
    assert "inherited_usage" not in turn.record


def test_after_an_open_turn_the_running_value_holds_as_a_lower_bound() -> None:
    story = Story(provider="openai", counter_kind="cumulative", provider_thread="th")
    story("turn.started", turn="a")
    story("usage.reported", turn="a", usage={"input": 20})
    story("turn.started", turn="b")
    story("usage.reported", turn="b", usage={"input": 50}, last={"input": 30})
    story("turn.completed", turn="b")
    fold = story.fold()
    assert [turn.record["usage"]["total_input"] for turn in fold.turns] == [20, 30]
    assert "usage_open_predecessor" in checks(fold.turns[1])
    assert fold.turns[1].parts[0].fidelity == "lower_bound"


def test_a_thread_that_an_earlier_turn_only_named_has_an_unknown_start() -> None:
    story = Story(provider="openai")
    story("turn.started", turn="a", provider_thread="th")
    story("turn.completed", turn="a")
    story("turn.started", turn="b", provider_thread="th")
    story("usage.reported", turn="b", counter_kind="cumulative", provider_thread="th", usage={"input": 9})
    story("turn.completed", turn="b")
    assert checks(story.fold()) == ["usage_unknown_start"]


def test_reports_outside_turns_are_taken_at_their_own_place() -> None:
    story = Story(provider="openai", counter_kind="cumulative", usage_stream="u")
    story("turn.started", turn="a", provider=None)
    story("usage.reported", turn="a", usage={"input": 20})
    story("turn.completed", turn="a")
    story("usage.reported", usage={"input": 25}, stream="other")
    story("turn.started", turn="b")
    story("usage.reported", turn="b", usage={"input": 40})
    story("turn.completed", turn="b")
    fold = story.fold()
    assert [turn.record["usage"]["total_input"] for turn in fold.turns] == [20, 15]
    assert [part.usage["total_input"] for part in fold.parts] == [5]


def test_calls_greater_than_the_running_total_stand_and_the_difference_is_a_finding() -> None:
    story = Story(turn="t", provider="openai")
    story("turn.started")
    story("model_call.completed", call="1", model="m", usage={"input": 60, "output": 1})
    story("usage.reported", counter_kind="cumulative", usage_stream="u", usage={"input": 50, "output": 1})
    story("turn.completed")
    turn = story.turn()
    assert turn.record["usage"]["total_input"] == 60
    assert "unattributed" not in turn.record
    assert checks(turn) == ["usage_call_total_differs"]
    assert [part.call_key is not None for part in turn.parts] == [True]


def test_calls_of_another_provider_are_not_covered_by_a_running_total() -> None:
    story = Story(turn="t")
    story("turn.started")
    story("model_call.completed", call="1", provider="google", model="g", usage={"input": 5, "output": 1})
    story(
        "usage.reported",
        provider="openai",
        counter_kind="cumulative",
        usage_stream="u",
        usage={"input": 50, "output": 1},
    )
    story("turn.completed")
    turn = story.turn()
    assert turn.record["usage"]["total_input"] == 55
    assert told(turn.record["unattributed"]) == {"total_input": 50, "output": 1}


def test_a_running_total_equal_to_its_calls_stands_and_leaves_nothing_unattributed() -> None:
    story = Story(turn="t", provider="openai", model="m")
    story("turn.started")
    story("model_call.completed", call="1", usage={"input": 50, "output": 1})
    story("usage.reported", counter_kind="cumulative", usage_stream="u", usage={"input": 50, "output": 1})
    story("turn.completed")
    turn = story.turn()
    assert [part.call_key for part in turn.parts] == [None]
    assert "unattributed" not in turn.record
    assert checks(turn) == []


@pytest.mark.parametrize(("output", "found"), [(3, []), (4, ["usage_rollup_differs"])])
def test_a_rollup_is_compared_with_its_call_and_never_added(output: int, found: list[str]) -> None:
    story = Story(turn="t", provider="anthropic", model="m")
    story("turn.started")
    story("model_call.completed", call="1", message_id="a", usage={"output": 3})
    story("model_call.completed", call="2", message_id="b", usage={"output": 5})
    story("usage.reported", counter_kind="rollup", message_id="a", usage={"output": output})
    story("turn.completed")
    turn = story.turn()
    assert turn.record["usage"]["output"] == 8
    assert checks(turn) == found


@pytest.mark.parametrize(("output", "found"), [(8, []), (9, ["usage_rollup_differs"])])
def test_a_rollup_that_names_no_call_is_compared_with_its_turn(output: int, found: list[str]) -> None:
    story = Story(turn="t", provider="anthropic", model="m")
    story("turn.started")
    story("model_call.completed", call="1", usage={"output": 3})
    story("model_call.completed", call="2", usage={"output": 5})
    story("usage.reported", counter_kind="rollup", usage={"output": output})
    story("turn.completed")
    turn = story.turn()
    assert checks(turn) == found


@pytest.mark.parametrize(("output", "found"), [(8, []), (9, ["usage_rollup_differs"])])
def test_a_rollup_outside_turns_is_compared_with_the_session(output: int, found: list[str]) -> None:
    story = Story(provider="anthropic", model="m")
    for turn, tokens in (("a", 3), ("b", 5)):
        story("turn.started", turn=turn)
        story("model_call.completed", turn=turn, call="1", usage={"output": tokens})
        story("turn.completed", turn=turn)
    story("usage.reported", stream="totals", second=90, counter_kind="rollup", usage={"output": output})
    fold = story.fold()
    assert checks(fold) == found


def test_gauges_take_the_greatest() -> None:
    story = Story(turn="t", provider="openai", model="m")
    story("turn.started")
    story("model_call.started", call="1", context_tokens=50, context_window=200)
    story("model_call.completed", call="1", usage={"output": 1}, peak_input=70)
    story("model_call.started", call="2", context_tokens=40, context_window=100)
    story("model_call.completed", call="2", usage={"output": 1}, peak_input=60)
    story("turn.completed")
    assert story.turn().record["context"] == {"tokens": 50, "window": 200, "used_ppm": 250_000}
