"""Contract 9: micro-USD of known prices (claude-opus-4-5: input 5, output 25, cache read 0.5, write 6.25, write for an hour 10 $ a million)."""

from __future__ import annotations

from typing import Any

from tests.unit.contract_cases.envelopes import Case, Envelope, done, ev, found, report, running, table, turn

COST = "model_calls/0/cost_micro_usd"
HOW = "model_calls/0/cost_fidelity"


def opus(usage: dict[str, Any] | None, **given: Any) -> Envelope:
    return done(usage, **{"model": "claude-opus-4-5", **given})


@table(
    Case(
        "every bucket at its own price",
        turn(
            "t",
            opus(
                {
                    "input": 1000,
                    "output": 100,
                    "cache_read": 2000,
                    "cache_write_5m": 400,
                    "cache_write_1h": 300,
                }
            ),
        ),
        {COST: 5000 + 2500 + 1000 + 2500 + 3000, HOW: "exact"},
    ),
    Case(
        "a write of unknown lifetime takes the price of five minutes",
        turn("t", opus({"input": 0, "output": 0, "cache_read": 0, "cache_write": 400})),
        {COST: 2500, HOW: "exact"},
    ),
    Case(
        "reasoning is in the output and not priced again",
        turn("t", opus({"input": 0, "output": 100, "cache_read": 0, "reasoning": 90})),
        {COST: 2500},
    ),
    Case(
        "half a micro-dollar is rounded away from zero",
        turn("t", opus({"input": 0, "output": 0, "cache_read": 1})),
        {COST: 1},
    ),
    Case(
        "the call is rounded once, not its buckets",
        turn("t", opus({"input": 0, "output": 0, "cache_read": 1, "cache_write": 2})),
        {COST: 13},
    ),
    Case(
        "less than half is rounded down",
        turn("t", opus({"input": 0, "output": 0, "cache_read": 0, "cache_write": 1})),
        {COST: 6},
    ),
    Case(
        "each call is rounded, the sum adds whole figures",
        turn("t", *(opus({"input": 0, "output": 0, "cache_read": 1}, call=c) for c in "123")),
        {
            "sessions/0/cost_micro_usd": 3,
            "turns/0/cost_micro_usd": 3,
            "ai_usage/0/cost_micro_usd": 3,
            "usage_hourly/0/cost_micro_usd": 3,
        },
    ),
    Case(
        "a bucket that is missing makes a lower bound",
        turn("t", opus({"input": 1000, "output": 10})),
        {COST: 5250, HOW: "lower_bound"},
    ),
    Case(
        "a missing output, too",
        turn("t", opus({"input": 1000, "cache_read": 0})),
        {COST: 5000, HOW: "lower_bound"},
    ),
    Case(
        "an unsplit inclusive input is priced as uncached: an upper bound",
        turn("t", opus({"input": 1000, "output": 10}, token_convention="inclusive")),
        {COST: 5250, HOW: "upper_bound"},
    ),
    Case(
        "no known bucket: no cost, and not unpriced",
        turn("t", opus({})),
        {
            COST: None,
            HOW: None,
            "sessions/0/unpriced_calls": 0,
            "sessions/0/usage_total": 1,
            "sessions/0/usage_reported": 0,
            "checks/unpriced_model": None,
        },
    ),
    Case(
        "an unknown model: no cost, one unpriced, a finding",
        turn(
            "t",
            done({"input": 500, "output": 1, "cache_read": 0}, model="nobody-knows"),
            opus({"input": 1000, "output": 0, "cache_read": 0}, call="2"),
        ),
        {
            "model_calls/*/cost_micro_usd": [None, 5000],
            "sessions/0/cost_micro_usd": 5000,
            "sessions/0/unpriced_calls": 1,
            "ai_usage/model=nobody-knows/cost_micro_usd": [None],
            "ai_usage/model=nobody-knows/unpriced_calls": [1],
            "usage_hourly/model=nobody-knows/unpriced_calls": [1],
            "checks/unpriced_model": 1,
        },
    ),
    Case(
        "a call of tokens without a model is unpriced",
        turn("t", ev("model_call.completed", provider="anthropic", usage={"output": 1})),
        {COST: None, "sessions/0/unpriced_calls": 1, "checks/null_model": 1},
    ),
    Case(
        "zero tokens cost nothing, which is known",
        turn("t", opus({"input": 0, "output": 0, "cache_read": 0})),
        {COST: 0, HOW: "exact"},
    ),
    Case(
        "a reported cost is stored beside ours",
        turn("t", opus({"input": 1000, "output": 0, "cache_read": 0}, reported_cost_usd=9)),
        {COST: 5000},
    ),
    Case(
        "a failed call that reported is priced",
        turn(
            "t",
            ev(
                "model_call.failed",
                provider="anthropic",
                model="claude-opus-4-5",
                error_class="cut",
                usage={"input": 1000, "output": 0, "cache_read": 0},
            ),
        ),
        {COST: 5000},
    ),
    Case(
        "a failed call that did not is not unpriced",
        turn("t", ev("model_call.failed", provider="anthropic", model="nobody-knows", error_class="cut")),
        {COST: None, "sessions/0/unpriced_calls": 0},
    ),
    Case(
        "a dated price: before the thirteenth of March a long prompt costs the tier",
        turn(
            "t",
            opus(
                {"input": 300_000, "output": 0, "cache_read": 0},
                model="claude-sonnet-4-6",
                at="2026-03-01T00:00:00Z",
            ),
        ),
        {COST: 1_800_000},
    ),
    Case(
        "a dated price: afterwards it does not",
        turn("t", opus({"input": 300_000, "output": 0, "cache_read": 0}, model="claude-sonnet-4-6")),
        {COST: 900_000},
    ),
    Case(
        "a tier counts the whole input, cached, too",
        turn(
            "t",
            opus(
                {"input": 1000, "output": 1000, "cache_read": 200_000},
                model="claude-sonnet-4-6",
                at="2026-03-01T00:00:00Z",
            ),
        ),
        {COST: 6000 + 22_500 + 120_000},
    ),
    Case(
        "an inherited copy costs its session nothing",
        [
            *turn("t", opus({"input": 1000, "output": 0, "cache_read": 0}, message_id="a"), s="a"),
            *turn("t", opus({"input": 1000, "output": 0, "cache_read": 0}, message_id="a"), s="b"),
        ],
        {
            "sessions/*/cost_micro_usd": [5000, None],
            "usage_hourly/*/cost_micro_usd": [5000],
            "turns/*/cost_micro_usd": [5000, None],
        },
    ),
    Case(
        "a contribution is priced once, as a whole",
        turn("t", *(running(n, 0, model="claude-opus-4-5", provider="anthropic") for n in (100, 1000))),
        {
            "turns/0/cost_micro_usd": 5000,
            "sessions/0/cost_micro_usd": 5000,
            "ai_usage/0/cost_micro_usd": 5000,
            "ai_usage/0/call_count": 0,
        },
    ),
    Case(
        "calls that a contribution covers cost nothing beside it",
        turn(
            "t",
            running(1000, 100, model="claude-opus-4-5", provider="anthropic"),
            opus({"input": 500, "output": 50, "cache_read": 0}, call="1"),
        ),
        {
            "turns/0/cost_micro_usd": 7500,
            "sessions/0/cost_micro_usd": 7500,
            "usage_hourly/0/cost_micro_usd": 7500,
        },
    ),
    Case(
        "a contribution that greater calls cover costs nothing beside them",
        turn(
            "t",
            running(100, 10, model="claude-opus-4-5", provider="anthropic"),
            opus({"input": 1000, "output": 100, "cache_read": 0}, call="1"),
        ),
        {"turns/0/cost_micro_usd": 7500, "sessions/0/cost_micro_usd": 7500},
    ),
    Case(
        "an unpriced contribution counts as one",
        turn("t", running(100, 10, model="nobody-knows")),
        {"sessions/0/cost_micro_usd": None, "sessions/0/unpriced_calls": 1},
    ),
    Case(
        "a rollup costs nothing",
        turn(
            "t",
            opus({"input": 1000, "output": 0, "cache_read": 0}),
            report({"input": 1000}, counter_kind="rollup", provider="anthropic", model="claude-opus-4-5"),
        ),
        {"sessions/0/cost_micro_usd": 5000},
    ),
    Case(
        "a call without any time takes the first version that has the model",
        turn("t", opus({"input": 1000, "output": 0, "cache_read": 0}), at=None),
        {COST: 5000},
    ),
)
def test_cost(case: Case) -> None:
    assert found(case) == case.expected
