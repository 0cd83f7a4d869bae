"""What a developer wants to watch (the 13 steps of the debug scenario), as far as the turn record and the ledger carry it.

One scripted turn: the user asks, the model wants two tools at once, one of them fails, the next call meets a rate limit, is tried again and
answers. Each row of the table is one requirement under its number. Step 4.4 and what is pushed to a watcher belong to the stream, not to the fold;
the list of tools (2.3) and a message's own count of tokens (10.3) stand in their events alone. The names of messages and endpoints are ours.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.contract_cases.envelopes import Envelope, at, ev, fold, turn

CALL = {"provider": "anthropic", "model": "claude-sonnet-4-5"}


def script() -> list[Envelope]:
    return [
        ev(
            "session.started",
            agent="helper",
            agent_config_ref="cfg-7",
            mode="task",
            model="claude-sonnet-4-5",
        ),
        ev("session.tools_changed", tools=["search", "write"]),
        ev(
            "message.recorded", turn="t", role="user", text="Find it", token_count=3, token_source="tokenizer"
        ),
        ev("turn.started", turn="t", input_preview="Find it"),
        ev(
            "model_call.started",
            turn="t",
            call="c1",
            input_tokens_estimate=1000,
            context_tokens=1000,
            context_window=200_000,
            **CALL,
        ),
        ev(
            "model_call.completed",
            turn="t",
            call="c1",
            message_id="m1",
            stop_reason="tool_use",
            latency_ms=900,
            ttft_ms=200,
            usage={"input": 400, "output": 60, "cache_read": 500, "cache_write": 100},
            **CALL,
        ),
        ev(
            "tool_call.requested",
            turn="t",
            tool="a",
            call="c1",
            call_index=0,
            tool_name="search",
            arguments={"q": "x"},
        ),
        ev("tool_call.requested", turn="t", tool="b", call="c1", call_index=1, tool_name="write"),
        ev("tool_call.started", turn="t", tool="a", tool_name="search"),
        ev("tool_call.started", turn="t", tool="b", tool_name="write"),
        ev(
            "tool_call.completed",
            turn="t",
            tool="b",
            status="error",
            error_message="read-only",
            duration_ms=4,
        ),
        ev("tool_call.completed", turn="t", tool="a", status="ok", preview="found", duration_ms=30),
        ev("tool_results.submitted", turn="t", call="c2", tool_call_ids=["a", "b"], context_tokens=1300),
        ev("model_call.started", turn="t", call="c2", **CALL),
        ev(
            "model_call.failed",
            turn="t",
            call="c2",
            error_class="rate_limit",
            status_code=429,
            message="slow down",
            **CALL,
        ),
        ev(
            "model_call.retried",
            turn="t",
            call="c3",
            attempt=1,
            max_attempts=5,
            delay_ms=500,
            error_class="rate_limit",
        ),
        ev("model_call.started", turn="t", call="c3", **CALL),
        ev(
            "model_call.completed",
            turn="t",
            call="c3",
            message_id="m3",
            stop_reason="end_turn",
            latency_ms=700,
            ttft_ms=150,
            text="Here it is",
            usage={"input": 100, "output": 20, "cache_read": 1200, "cache_write": 0},
            **CALL,
        ),
        ev("context.compaction_started", turn="t", trigger="window"),
        ev("context.compacted", turn="t", tokens_before=1300, tokens_after=300, strategy="summary"),
        ev("limit.reached", turn="t", limit="token_budget", value=2400, threshold=2000),
        ev("answer.finalized", turn="t", text="Here it is", exact=True),
        ev(
            "message.recorded",
            turn="t",
            role="assistant",
            text="Here it is",
            token_count=20,
            token_source="provider",
        ),
        ev("turn.completed", turn="t", status="completed", duration_ms=21_500),
        ev("session.resumed", mode="task"),
    ]


@pytest.fixture(scope="module")
def told() -> Any:
    return fold(*script())


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("sessions/0/agent", "helper", id="1.1 the selected agent"),
        pytest.param("sessions/0/status", "running", id="1.2 new or resumed: the session runs"),
        pytest.param("sessions/0/session_id", "s", id="1.3 its id"),
        pytest.param("sessions/0/models", ["claude-sonnet-4-5"], id="1.3, 11.5 its models"),
        pytest.param("sessions/0/mode", "task", id="1.3 its mode"),
        pytest.param("sessions/0/message_count", 2, id="2.1, 11.3 messages"),
        pytest.param("sessions/0/total_input_tokens", 2300, id="2.1, 9.5, 11.4 input so far"),
        pytest.param("sessions/0/output_tokens", 80, id="2.1, 9.5, 11.4 output so far"),
        pytest.param("turns/0/context/window", 200_000, id="2.2 the context window"),
        pytest.param("turns/0/context/used_ppm", 6500, id="2.2 how much of it is used, in millionths"),
        pytest.param("turns/0/user_input", "Find it", id="3.1 the message"),
        pytest.param(
            "turns/0/started_at", "2026-05-04T10:00:03.000000Z", id="3.2, 3.3 when work on it began"
        ),
        pytest.param(
            "model_calls/*/started_at",
            ["2026-05-04T10:00:04.000000Z", "2026-05-04T10:00:13.000000Z", "2026-05-04T10:00:16.000000Z"],
            id="4.1 each call's start",
        ),
        pytest.param("turns/0/model_calls/*/model", ["claude-sonnet-4-5"] * 3, id="4.2 each call's model"),
        pytest.param(
            "turns/0/model_calls/*/usage/total_input", [1000, None, 1300], id="4.3 each call's input"
        ),
        pytest.param(
            "turns/0/model_calls/*/status",
            ["completed", "failed", "completed"],
            id="4.5, 12.1 how each ended",
        ),
        pytest.param("turns/0/model_calls/*/usage/output", [60, None, 20], id="4.6 each call's output"),
        pytest.param(
            "turns/0/model_calls/*/usage/cache_read", [500, None, 1200], id="4.7 read from the cache"
        ),
        pytest.param(
            "turns/0/model_calls/*/usage/cache_write_other", [100, None, 0], id="4.7 written to the cache"
        ),
        pytest.param("turns/0/model_calls/*/usage/input_uncached", [400, None, 100], id="4.7 not cached"),
        pytest.param("turns/0/model_calls/*/latency_ms", [900, None, 700], id="4.8 latency"),
        pytest.param("turns/0/model_calls/*/ttft_ms", [200, None, 150], id="4.8 time to the first token"),
        pytest.param("turns/0/tool_calls/*/tool_name", ["search", "write"], id="5.2 which tools"),
        pytest.param(
            "model_items/item_type=tool_call/arguments", [{"q": "x"}, None], id="5.3 with which arguments"
        ),
        pytest.param("turns/0/tool_calls/*/tool_call_id", ["a", "b"], id="5.4 their ids"),
        pytest.param("turns/0/tool_calls/*/requested_by", ["c1", "c1"], id="5.1 which call wanted them"),
        pytest.param("tool_calls/*/call_index", [0, 1], id="5.1 side by side, in the model's order"),
        pytest.param(
            "tool_calls/*/requested_at",
            ["2026-05-04T10:00:06.000000Z", "2026-05-04T10:00:07.000000Z"],
            id="6.1 when",
        ),
        pytest.param("turns/0/tool_calls/*/duration_ms", [30, 4], id="6.2 how long"),
        pytest.param("turns/0/tool_calls/*/pairing", ["paired", "paired"], id="6.3 answered"),
        pytest.param(
            "model_items/item_type=tool_response/content", ["read-only", "found"], id="6.4 what came out"
        ),
        pytest.param("turns/0/tool_calls/*/status", ["ok", "error"], id="6.5 well or not"),
        pytest.param("turns/0/tool_calls/*/error", [None, "read-only"], id="6.6 the error's words"),
        pytest.param("turns/0/tool_calls/*/consumed_by", ["c2", "c2"], id="7.1 which call got the results"),
        pytest.param("turns/0/context/tokens", 1300, id="7.2 the context's size with them"),
        pytest.param("turns/0/round_trips", 3, id="7.3, 9.3 round trips"),
        pytest.param("turns/0/answer", {"text": "Here it is", "exact": True}, id="8.1, 8.2 the answer"),
        pytest.param("turns/0/stop/why", "limit", id="12.3 stopped by the limit reached after the last call"),
        pytest.param("turns/0/usage/total_input", 2300, id="9.1 the turn's input, cache inside, once"),
        pytest.param("turns/0/usage/output", 80, id="9.1 the turn's output"),
        pytest.param("turns/0/usage/reported", 2, id="9.1 of how many calls that is known"),
        pytest.param("turns/0/usage/total", 2, id="9.1 a failed call that reported nothing is none of them"),
        pytest.param("sessions/0/total_tool_calls", 2, id="9.2 tool calls"),
        pytest.param("turns/0/duration_ms", 21_500, id="9.4 how long the turn took"),
        pytest.param("turns/0/duration_source", "reported", id="9.4 and who says so"),
        pytest.param(
            "model_items/*/item_type",
            ["request", "tool_call", "tool_call", "tool_response", "tool_response", "response"],
            id="10.1 the conversation in order",
        ),
        pytest.param(
            "model_items/item_type=request/role", ["user"], id="10.2 who said it; a response is the model's"
        ),
        pytest.param(
            "model_items/item_type=response/occurred_at",
            ["2026-05-04T10:00:17.000000Z"],
            id="8.3, 10.4 when it was said",
        ),
        pytest.param(
            "model_items/item_type=tool_response/call_id", ["b", "a"], id="10.5 which call it answers"
        ),
        pytest.param("sessions/0/created_at", "2026-05-04T10:00:00.000000Z", id="11.1 created"),
        pytest.param("sessions/0/last_activity_at", "2026-05-04T10:00:24.000000Z", id="11.2 last activity"),
        pytest.param(
            "turns/0/errors",
            [
                {
                    "source": "model_call",
                    "model_call_id": "c2",
                    "error_class": "rate_limit",
                    "message": "slow down",
                    "status_code": 429,
                }
            ],
            id="12.1 the failure's class and words",
        ),
        pytest.param("turns/0/model_calls/*/retries", [0, 0, 1], id="12.2 tries before it"),
        pytest.param(
            "turns/0/limits",
            [{"limit": "token_budget", "value": 2400, "threshold": 2000}],
            id="12.3 the limit",
        ),
        pytest.param(
            "turns/0/compactions",
            [{"tokens_before": 1300, "tokens_after": 300, "strategy": "summary"}],
            id="13.1, 13.2, 13.3 compaction",
        ),
        pytest.param("sessions/0/failed_model_calls", 1, id="12.1 failures, counted"),
        pytest.param("sessions/0/tool_errors", 1, id="6.5 tool errors, counted"),
        pytest.param("turns/0/grade", "complete", id="nothing is missing"),
    ],
)
def test_a_step_of_the_scenario(told: Any, path: str, expected: Any) -> None:
    assert at(told, path) == expected


def test_7_3_the_record_tells_its_calls_in_the_order_of_work(told: Any) -> None:
    assert at(told, "turns/0/model_calls/*/model_call_id") == ["c1", "c2", "c3"]
    assert at(told, "turns/0/model_calls/*/index") == [0, 1, 2]


def test_9_4_without_a_reported_duration_the_clock_of_start_and_end_decides() -> None:
    found = fold(*turn("t"))
    assert (at(found, "turns/0/duration_ms"), at(found, "turns/0/duration_source")) == (1000, "derived")


def test_12_4_an_iteration_limit_after_the_last_call_is_why_the_turn_stopped() -> None:
    found = fold(
        *turn(
            "t", ev("model_call.started", call="c", **CALL), ev("limit.reached", limit="iterations", value=25)
        )
    )
    assert at(found, "turns/0/stop/why") == "limit"
    assert at(found, "turns/0/limits") == [{"limit": "iterations", "value": 25}]


def test_g_06_a_session_is_there_before_its_first_message() -> None:
    found = fold(ev("session.started", agent="helper"))
    assert at(found, "sessions/*/turn_count") == [0]
    assert at(found, "sessions/0/message_count") == 0
    assert at(found, "sessions/0/total_input_tokens") is None


@pytest.mark.parametrize(
    "known", [{"context_tokens": 1}, {"context_window": 1}], ids=["no window", "no tokens"]
)
def test_g_13_how_full_the_context_is_needs_both_figures(known: dict[str, int]) -> None:
    found = fold(*turn("t", ev("model_call.started", call="c", **CALL, **known)))
    assert "used_ppm" not in at(found, "turns/0/context")


def test_a_turn_with_unknown_usage_shows_null_not_zero() -> None:
    found = fold(*turn("t", ev("model_call.completed", call="c", **CALL)))
    assert at(found, "turns/0/usage/output") is None
    assert at(found, "turns/0/usage/total_input") is None
    assert (at(found, "turns/0/usage/reported"), at(found, "turns/0/usage/total")) == (0, 1)


def test_a_tool_in_progress_is_pending_and_says_since_when() -> None:
    found = fold(*turn("t", ev("tool_call.started", tool="a", tool_name="search"), end=None))
    assert at(found, "tool_calls/0/pairing") == "pending"
    assert at(found, "tool_calls/0/requested_at") == "2026-05-04T10:00:01.000000Z"
    assert at(found, "tool_calls/0/duration_ms") is None


def test_every_row_of_the_scenario_is_here() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    named = " ".join(" ".join(found) for found in re.findall(r'id="([^"]*)"|def test_(\d+_\d+)_', source))
    steps = {1: 3, 2: 3, 3: 3, 4: 8, 5: 4, 6: 6, 7: 3, 8: 3, 9: 5, 10: 5, 11: 5, 12: 4, 13: 3}
    rows = {f"{step}.{row}" for step, count in steps.items() for row in range(1, count + 1)}
    assert len(rows) == 55
    assert rows - set(re.findall(r"\b\d+\.\d\b", named.replace("_", "."))) == {"2.3", "4.4", "10.3"}
