"""Contract 8, "Several reports of one call": rank, filling, fidelity, gauges."""

from __future__ import annotations

from typing import Any

from tests.unit.contract_cases.envelopes import Case, Envelope, done, ev, found, report, table, turn


def one(*reports: Envelope) -> list[Envelope]:
    return turn("t", *({"model_call_id": "1", **event} for event in reports))


def said(usage: dict[str, Any], **given: Any) -> Envelope:
    """A report beside the call's completion; an event's, not final, of Anthropic's unless given."""
    return report(usage, **{"provider": "anthropic", "model": "m", **given})


ROW = "model_calls/0"


@table(
    Case(
        "the source ranks first: an event beats a greater transcript",
        one(said({"output": 9}, source="transcript"), said({"output": 2}, source="event")),
        {f"{ROW}/output_tokens": 2},
    ),
    Case(
        "a transcript beats a greater estimate",
        one(said({"output": 9}, source="estimate"), said({"output": 2}, source="transcript")),
        {f"{ROW}/output_tokens": 2, f"{ROW}/usage_source": "transcript"},
    ),
    Case(
        "a report with a message_id is a response, one without an event, final or not",
        one(done({"output": 9}), said({"output": 2}, message_id="a")),
        {f"{ROW}/output_tokens": 2, f"{ROW}/usage_source": "response"},
    ),
    Case(
        "then final beats greater",
        one(said({"output": 9}), said({"output": 2}, final=True)),
        {f"{ROW}/output_tokens": 2},
    ),
    Case(
        "a completion's report is final",
        one(said({"output": 9}), done({"output": 2}), said({"output": 8})),
        {f"{ROW}/output_tokens": 2},
    ),
    Case(
        "then the greatest output, null least",
        one(said({"input": 1, "output": 5}), said({"input": 2, "output": 7}), said({"input": 3})),
        {f"{ROW}/output_tokens": 7, f"{ROW}/input_uncached_tokens": 2},
    ),
    Case(
        "an output of zero beats none",
        one(said({"input": 1, "output": 0}), said({"input": 3})),
        {f"{ROW}/output_tokens": 0, f"{ROW}/input_uncached_tokens": 1},
    ),
    Case(
        "then the last in source order",
        one(said({"input": 1, "output": 5}), said({"input": 3, "output": 5})),
        {f"{ROW}/input_uncached_tokens": 3},
    ),
    Case(
        "C2: 3, 120, 358 (final), 120",
        one(
            *(said({"output": n}, counter_kind="snapshot") for n in (3, 120)),
            done({"output": 358}),
            said({"output": 120}, counter_kind="snapshot"),
        ),
        {f"{ROW}/output_tokens": 358},
    ),
    Case(
        "what the best lacks is filled from the next best",
        one(said({"input": 9, "output": 1, "cache_read": 4}), done({"input": 10, "output": 5})),
        {f"{ROW}/input_uncached_tokens": 10, f"{ROW}/cache_read_tokens": 4, f"{ROW}/total_input_tokens": 14},
    ),
    Case(
        "each counter from the next best that has it",
        one(
            said({"cache_read": 4, "reasoning": 1}), said({"output": 2, "reasoning": 2}), done({"input": 10})
        ),
        {f"{ROW}/output_tokens": 2, f"{ROW}/reasoning_tokens": 2, f"{ROW}/cache_read_tokens": 4},
    ),
    Case(
        "not from a report of another convention",
        one(
            said({"input": 9, "output": 1, "cache_read": 4}, token_convention="inclusive"),
            done({"input": 10, "output": 5}),
        ),
        {f"{ROW}/cache_read_tokens": None, f"{ROW}/total_input_tokens": None},
    ),
    Case(
        "from the next of the same convention, past one of another",
        one(
            said({"output": 1, "cache_read": 3}),
            said({"output": 2, "cache_read": 4}, token_convention="inclusive"),
            done({"input": 10, "output": 5}),
        ),
        {f"{ROW}/cache_read_tokens": 3},
    ),
    Case(
        "a report without a known counter is no report",
        one(said({"output": 3}), done({})),
        {f"{ROW}/output_tokens": 3, f"{ROW}/usage_source": "event", f"{ROW}/fidelity": "exact"},
    ),
    Case(
        "a transcript with a stop reason is exact",
        one(said({"output": 3}, source="transcript", stop_reason="end_turn")),
        {f"{ROW}/fidelity": "exact"},
    ),
    Case(
        "a transcript without one is a lower bound, the turn partial",
        one(said({"output": 3}, source="transcript")),
        {f"{ROW}/fidelity": "lower_bound", "turns/0/grade": "partial"},
    ),
    Case(
        "an estimate is estimated",
        one(said({"output": 3}, source="estimate")),
        {f"{ROW}/fidelity": "estimated"},
    ),
    Case("no report is unknown", one(done()), {f"{ROW}/fidelity": "unknown"}),
    Case(
        "gauges count at their greatest, in any report",
        one(
            said({"output": 9}, peak_input=12, context_window=100),
            done({"output": 1}, peak_input=8, context_window=50),
        ),
        {
            f"{ROW}/peak_input_tokens": 12,
            f"{ROW}/context_window": 100,
            "checks/usage_call_total_differs": None,
        },
    ),
    Case(
        "a harness's own cost stands beside ours",
        one(done({"output": 1}, reported_cost_usd=0.25)),
        {f"{ROW}/reported_cost_usd": "0.25", f"{ROW}/cost_micro_usd": None},
    ),
    Case(
        "an unlisted source is absent, a finding",
        one(said({"output": 1}, source="guess")),
        {f"{ROW}/usage_source": "event", "checks/wrong_type_in_payload": 1},
    ),
    Case(
        "status code and latency of the completion",
        one(done({"output": 1}, status_code=200, latency_ms=7, ttft_ms=3, stop_reason="end_turn")),
        {
            "turns/0/model_calls/0/status_code": 200,
            "turns/0/model_calls/0/latency_ms": 7,
            "turns/0/model_calls/0/ttft_ms": 3,
            "turns/0/model_calls/0/stop_reason": "end_turn",
        },
    ),
    Case(
        "a call's hour is that of its winning report",
        one(
            done({"output": 9}, at="2026-05-04T10:59:59Z"),
            said({"output": 1}, counter_kind="snapshot", at="2026-05-04T11:00:00Z"),
        ),
        {"usage_hourly/*/hour": ["2026-05-04T10:00:00.000000Z"]},
    ),
    Case(
        "a call whose report has no time falls into its last known hour",
        one(
            ev("model_call.started", provider="anthropic", model="m", at="2026-05-04T09:10:00Z"),
            done({"output": 9}, at=None),
        ),
        {"usage_hourly/*/hour": ["2026-05-04T09:00:00.000000Z"]},
    ),
    Case(
        "a call without times falls into its stream's hour",
        one(done({"output": 9}, at=None)),
        {"usage_hourly/*/hour": ["2026-05-04T10:00:00.000000Z"]},
    ),
    Case(
        "a call without any time has a row of its own",
        turn("t", done({"output": 9}, call="1"), at=None),
        {"usage_hourly/*/hour": [None], "usage_hourly/*/output_tokens": [9]},
    ),
)
def test_reports_of_one_call(case: Case) -> None:
    assert found(case) == case.expected
