"""Contract 8: conventions, buckets, null rules, cache writes with and without lifetimes, sums of parts."""

from __future__ import annotations

from tests.unit.contract_cases.envelopes import Case, done, found, report, running, table, turn

USAGE = "turns/0/usage"
BIG = 2**63 - 1
NULLS = dict.fromkeys(("cache_write_5m", "cache_write_1h", "cache_write_other", "reasoning"))


@table(
    Case(
        "exclusive: cache reads and writes come on top of the input",
        turn("t", done({"input": 10, "output": 5, "cache_read": 2, "cache_write": 3})),
        {
            USAGE: {
                **NULLS,
                "input_uncached": 10,
                "cache_read": 2,
                "cache_write_other": 3,
                "total_input": 15,
                "output": 5,
                "reported": 1,
                "total": 1,
            }
        },
    ),
    Case(
        "exclusive: an unknown cache read makes the total unknown, not the input",
        turn("t", done({"input": 10, "output": 5, "cache_write": 3})),
        {f"{USAGE}/input_uncached": 10, f"{USAGE}/total_input": None, f"{USAGE}/cache_read": None},
    ),
    Case(
        "exclusive: cache writes that nobody reported count as none and stay null",
        turn("t", done({"input": 10, "output": 5, "cache_read": 0})),
        {f"{USAGE}/total_input": 10, f"{USAGE}/cache_write_other": None},
    ),
    Case(
        "exclusive: an unknown input makes the total unknown",
        turn("t", done({"output": 5, "cache_read": 2})),
        {f"{USAGE}/input_uncached": None, f"{USAGE}/total_input": None, f"{USAGE}/cache_read": 2},
    ),
    Case(
        "inclusive: the input holds the cache",
        turn("t", done({"input": 20, "output": 5, "cache_read": 5, "cache_write": 3}, provider="openai")),
        {f"{USAGE}/input_uncached": 12, f"{USAGE}/total_input": 20, f"{USAGE}/cache_write_other": 3},
    ),
    Case(
        "inclusive: an unknown cache read makes the uncached input unknown, not the total",
        turn("t", done({"input": 20, "output": 5}, provider="openai")),
        {f"{USAGE}/input_uncached": None, f"{USAGE}/total_input": 20},
    ),
    Case(
        "google: thoughts are added to the output",
        turn("t", done({"input": 20, "output": 5, "reasoning": 3, "cache_read": 4}, provider="google")),
        {
            f"{USAGE}/output": 8,
            f"{USAGE}/reasoning": 3,
            f"{USAGE}/input_uncached": 16,
            f"{USAGE}/total_input": 20,
        },
    ),
    Case(
        "reasoning is a subset of the output elsewhere",
        turn("t", done({"input": 20, "output": 5, "reasoning": 3, "cache_read": 4}, provider="openai")),
        {f"{USAGE}/output": 5, f"{USAGE}/reasoning": 3},
    ),
    Case(
        "a provider that decides nothing: input unknown, the rest stands, a finding",
        turn("t", done({"input": 10, "output": 5, "cache_read": 2}, provider="acme")),
        {
            f"{USAGE}/input_uncached": None,
            f"{USAGE}/total_input": None,
            f"{USAGE}/cache_read": 2,
            f"{USAGE}/output": 5,
            "checks/usage_unknown_convention": 1,
        },
    ),
    Case(
        "the provider decides by its exact lower-case name",
        turn("t", done({"input": 10, "output": 5, "cache_read": 2}, provider="OpenAI")),
        {f"{USAGE}/total_input": None, "checks/usage_unknown_convention": 1},
    ),
    Case(
        "a convention that was given beats the provider",
        turn(
            "t",
            done(
                {"input": 10, "output": 5, "cache_read": 2}, provider="openai", token_convention="exclusive"
            ),
        ),
        {f"{USAGE}/total_input": 12, "checks/usage_unknown_convention": None},
    ),
    Case(
        "any other word is an unknown convention",
        turn("t", done({"input": 10, "output": 5, "cache_read": 2}, token_convention="gross")),
        {f"{USAGE}/total_input": None, f"{USAGE}/input_uncached": None, f"{USAGE}/output": 5},
    ),
    Case(
        "only what lifetimes do not cover is a cache write of another lifetime",
        turn(
            "t",
            done(
                {
                    "input": 1,
                    "output": 1,
                    "cache_read": 0,
                    "cache_write": 10,
                    "cache_write_5m": 4,
                    "cache_write_1h": 3,
                }
            ),
        ),
        {
            f"{USAGE}/cache_write_5m": 4,
            f"{USAGE}/cache_write_1h": 3,
            f"{USAGE}/cache_write_other": 3,
            f"{USAGE}/total_input": 11,
        },
    ),
    Case(
        "lifetimes that cover the whole leave nothing",
        turn("t", done({"input": 1, "output": 1, "cache_read": 0, "cache_write": 10, "cache_write_5m": 10})),
        {f"{USAGE}/cache_write_5m": 10, f"{USAGE}/cache_write_other": 0, f"{USAGE}/total_input": 11},
    ),
    Case(
        "lifetimes alone are all that was written",
        turn("t", done({"input": 1, "output": 1, "cache_read": 0, "cache_write_1h": 4})),
        {f"{USAGE}/cache_write_1h": 4, f"{USAGE}/cache_write_other": None, f"{USAGE}/total_input": 5},
    ),
    Case(
        "lifetimes above the whole: exclusive input stands, the total does not",
        turn(
            "t",
            done(
                {
                    "input": 10,
                    "output": 1,
                    "cache_read": 0,
                    "cache_write": 5,
                    "cache_write_5m": 4,
                    "cache_write_1h": 3,
                }
            ),
        ),
        {
            f"{USAGE}/input_uncached": 10,
            f"{USAGE}/cache_write_5m": 4,
            f"{USAGE}/cache_write_1h": 3,
            f"{USAGE}/cache_write_other": None,
            f"{USAGE}/total_input": None,
            "checks/usage_negative_bucket": 1,
        },
    ),
    Case(
        "lifetimes above the whole: inclusive total stands, the uncached input does not",
        turn(
            "t",
            done(
                {"input": 10, "output": 1, "cache_read": 0, "cache_write": 3, "cache_write_5m": 4},
                provider="openai",
            ),
        ),
        {
            f"{USAGE}/input_uncached": None,
            f"{USAGE}/total_input": 10,
            f"{USAGE}/cache_write_5m": 4,
            "checks/usage_negative_bucket": 1,
        },
    ),
    Case(
        "a cache read larger than an inclusive input nulls the uncached input alone",
        turn("t", done({"input": 5, "output": 1, "cache_read": 9}, provider="openai")),
        {
            f"{USAGE}/input_uncached": None,
            f"{USAGE}/cache_read": 9,
            f"{USAGE}/total_input": 5,
            f"{USAGE}/output": 1,
            "checks/usage_negative_bucket": 1,
        },
    ),
    Case(
        "cache reads and writes larger than an inclusive input together null it, too",
        turn("t", done({"input": 5, "output": 1, "cache_read": 3, "cache_write": 3}, provider="openai")),
        {f"{USAGE}/input_uncached": None, f"{USAGE}/total_input": 5, "checks/usage_negative_bucket": 1},
    ),
    Case(
        "a sum's total is the sum of its parts' own totals",
        turn(
            "t",
            done({"input": 10, "output": 1}, call="1"),
            done({"input": 7, "output": 1, "cache_read": 3}, call="2"),
        ),
        {
            f"{USAGE}/input_uncached": 17,
            f"{USAGE}/cache_read": 3,
            f"{USAGE}/total_input": 10,
            f"{USAGE}/reported": 2,
        },
    ),
    Case(
        "C17: sums skip nulls and say how many reported",
        turn("t", done({"input": 10, "output": 20, "cache_read": 0}, call="1"), done({}, call="2")),
        {
            f"{USAGE}/total_input": 10,
            f"{USAGE}/output": 20,
            f"{USAGE}/reported": 1,
            f"{USAGE}/total": 2,
            "turns/0/grade": "partial",
            "checks/null_tokens": 1,
        },
    ),
    Case(
        "a sum of nothing known is null, not zero",
        turn("t", done(None, call="1")),
        {
            f"{USAGE}/output": None,
            f"{USAGE}/reported": 0,
            f"{USAGE}/total": 1,
            "sessions/0/output_tokens": None,
        },
    ),
    Case(
        "a reported zero is zero",
        turn("t", done({"input": 0, "output": 0, "cache_read": 0}, call="1")),
        {f"{USAGE}/output": 0, f"{USAGE}/total_input": 0, f"{USAGE}/reported": 1},
    ),
    Case(
        "a count of a wrong type is unknown, a finding; an integral spelling is a count",
        turn("t", done({"input": 12.0, "output": 12.5, "cache_read": -5, "cache_write": 10**30})),
        {
            f"{USAGE}/input_uncached": 12,
            f"{USAGE}/output": None,
            f"{USAGE}/cache_read": None,
            f"{USAGE}/cache_write_other": None,
        },
    ),
    Case(
        "a text for a count is unknown, a finding",
        turn("t", done({"input": "[REDACTED]", "output": 5, "cache_read": 0})),
        {f"{USAGE}/input_uncached": None, f"{USAGE}/output": 5, "checks/wrong_type_in_payload": 1},
    ),
    Case(
        "an unlisted counter kind is absent: per call, a finding",
        turn(
            "t", report({"input": 1, "output": 2, "cache_read": 0}, provider="anthropic", counter_kind="sum")
        ),
        {f"{USAGE}/output": 2, "checks/wrong_type_in_payload": 1, "model_calls/*/output_tokens": [2]},
    ),
    Case(
        "a total beyond int64 is unknown, its parts are not",
        turn("t", done({"input": BIG, "output": BIG, "cache_read": BIG})),
        {
            f"{USAGE}/input_uncached": BIG,
            f"{USAGE}/cache_read": BIG,
            f"{USAGE}/output": BIG,
            f"{USAGE}/total_input": None,
            "model_calls/*/total_input_tokens": [None],
        },
    ),
    Case(
        "an output beyond int64 with its thoughts is unknown",
        turn("t", done({"input": 1, "output": BIG, "reasoning": BIG, "cache_read": 0}, provider="google")),
        {f"{USAGE}/output": None, f"{USAGE}/reasoning": BIG},
    ),
    Case(
        "a turn's sum beyond int64 is unknown, as its session's is",
        turn("t", *(done({"input": BIG, "output": 1, "cache_read": 0}, call=c) for c in "123")),
        {
            f"{USAGE}/input_uncached": None,
            f"{USAGE}/output": 3,
            f"{USAGE}/reported": 3,
            "sessions/0/input_uncached_tokens": None,
            "sessions/0/output_tokens": 3,
        },
    ),
    Case(
        "a running total that begins again beyond int64 is unknown",
        turn(
            "t",
            *(running(n, 1, provider="openai") for n in (BIG, BIG - 1)),
        ),
        {f"{USAGE}/total_input": None, f"{USAGE}/output": 2, "checks/usage_counter_reset": 1},
    ),
    Case(
        "C3: a sample and the final message of one call are 20 tokens",
        turn(
            "t",
            *(
                maker(
                    {"input": 10, "output": 5, "cache_read": 2, "cache_write": 3, "reasoning": 2},
                    provider="anthropic",
                    message_id="a",
                    **more,
                )
                for maker, more in ((report, {"counter_kind": "snapshot"}), (done, {}))
            ),
        ),
        {f"{USAGE}/total_input": 15, f"{USAGE}/output": 5, f"{USAGE}/total": 1},
    ),
)
def test_buckets(case: Case) -> None:
    assert found(case) == case.expected
