"""What a VM sandbox's own ledger counted and priced, with the values that our rules give: each difference is named where it stands (contract 8, 9, 12).

Numbers in names are those of the scenario list that platform teams keep for a harness ledger; what a harness does inside itself is not a ledger's to decide.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnledger.fold.document import document
from turnledger.pricing import Prices, Published, packaged

PRICE = Prices([Published(packaged(), None)])
Event = dict[str, Any]
Document = dict[str, Any]


def event(kind: str, at: str = "2026-02-27T10:00:00Z", **given: Any) -> Event:
    """One event; envelope fields are named, the rest is its payload."""
    envelope = {"occurred_at": at, "turn_id": "t", "type": kind}
    for name in ("model_call_id", "tool_call_id", "trace_id", "turn_id", "epoch", "session_id", "event_id"):
        if name in given:
            envelope[name] = given.pop(name)
    return {**envelope, "payload": given}


def told(*events: Event) -> Document:
    """The fold of these events of one session, in one turn."""
    records, seqs = [], dict[tuple[str, int], int]()
    for one in (event("turn.started"), *events, event("turn.completed", status="completed")):
        place = (one.get("session_id", "s"), one.get("epoch", 0))
        seqs[place] = seqs.get(place, -1) + 1
        records.append(json.dumps({"session_id": "s", "seq": seqs[place], **one}).encode())
    return document(records, PRICE)


def session(*events: Event) -> Event:
    (row,) = told(*events)["sessions"]
    return dict(row)


def done(model: str | None, usage: Event | None, *, provider: str = "anthropic", **more: Any) -> Event:
    payload = {"provider": provider, "usage": usage, **more}
    if model is not None:
        payload["model"] = model
    return event("model_call.completed", **payload)


def tool(call_id: str, name: str, origin: str = "native", **more: Any) -> Event:
    return event("tool_call.requested", tool_name=name, call_tool_origin=origin, tool_call_id=call_id, **more)


def result(call_id: str, **more: Any) -> Event:
    return event("tool_call.completed", status="ok", tool_call_id=call_id, **more)


def mcp(method: str, server: str, name: str | None = None, request: str = "1") -> list[Event]:
    more = {} if name is None else {"tool_name": name}
    return [
        event("mcp.observed", method=method, direction=way, server_name=server, request_id=request, **more)
        for way in ("request", "response")
    ]


# --- prices: the golden examples --------------------------------------------------------------------------------------------------


def gemini(input: int, read: int | None, output: int, thoughts: int = 0) -> Event:
    """As Gemini tells it: cached tokens inside the prompt, thoughts beside the candidates."""
    usage = {"input": input, "output": output, "reasoning": thoughts}
    return usage if read is None else {**usage, "cache_read": read}


@pytest.mark.parametrize(
    ("provider", "model", "usage", "at", "expected", "fidelity"),
    [
        # 861 × 0.1 + 867 × 0.01 + 71 × 0.4 = 123.17. The source said 114.5: it left the cached tokens out, which cost a tenth, not nothing.
        ("google", "gemini-2.5-flash-lite", gemini(1728, 867, 71), None, 123, "exact"),
        # The same exchange thought for 314 tokens, which are billed as output: + 125.6. The source priced the 71 alone.
        ("google", "gemini-2.5-flash-lite", gemini(1728, 867, 71, 314), None, 249, "exact"),
        # 9086 × 0.5 + 94 × 3: as the source. Nothing was said of a cache, so a part may have cost less: an upper bound.
        ("google", "gemini-3-flash-preview", gemini(9086, None, 94), None, 4825, "upper_bound"),
        ("google", "gemini-3-flash-preview", gemini(9086, 0, 94), None, 4825, "exact"),
        # 4789.5: the source kept the half as a float; money is whole micro-dollars, rounded once, half away from zero.
        ("google", "gemini-3-flash-preview", gemini(9363, 0, 36), None, 4790, "exact"),
        # The source's matcher needs the name alone and gave 0 for this spelling. 1000 × 0.3 + 10 × 2.5.
        ("google", "models/gemini-2.5-flash", gemini(1000, 0, 10), None, 325, "exact"),
        # 1000 × 3 + 500 × 15: as the source.
        ("anthropic", "claude-sonnet-4-20250514", {"input": 1000, "cache_read": 0, "output": 500}, None, 10_500, "exact"),
        # Anthropic's input has no cached tokens in it. The source took the 800 off again (8,100) and gave the reading away; it costs 800 × 0.3.
        ("anthropic", "claude-sonnet-4-20250514", {"input": 1000, "cache_read": 800, "output": 500}, None, 10_740, "exact"),
        # The source said 0: nothing was left after the subtraction. 1000 × 3 + 1000 × 0.3.
        ("anthropic", "claude-sonnet-4-20250514", {"input": 1000, "cache_read": 1000, "output": 0}, None, 3300, "exact"),
        # 100 × 3 + 800 × 0.3 + 50 × 15. The source said 750.
        ("anthropic", "claude-sonnet-4-20250514", {"input": 100, "cache_read": 800, "output": 50}, None, 1290, "exact"),
        # Cache writes had no price at all: 100 × 3 + 1000 × 3.75 + 1000 × 6 + 10 × 15.
        ("anthropic", "claude-sonnet-4-20250514",
         {"input": 100, "cache_read": 0, "cache_write_5m": 1000, "cache_write_1h": 1000, "output": 10}, None, 10_200, "exact"),
        # 300k tokens of one request are above the tier of 200k: 300,000 × 6. The source took the base price of 3 ($0.90).
        ("anthropic", "claude-sonnet-4-5", {"input": 300_000, "cache_read": 0, "output": 0}, None, 1_800_000, "exact"),
        # Dated prices go by the call's own day; the source took the first of the list for ever.
        ("openai", "o3", {"input": 1_000_000, "cache_read": 0, "output": 0}, "2025-06-09T23:59:59Z", 10_000_000, "exact"),
        ("openai", "o3", {"input": 1_000_000, "cache_read": 0, "output": 0}, "2025-06-10T00:00:00Z", 2_000_000, "exact"),
        # Since 2026-03-13 long prompts of these two cost what short ones do: 300,000 × 5, and × 3.
        ("anthropic", "claude-opus-4-6", {"input": 300_000, "cache_read": 0, "output": 0}, "2026-03-12T00:00:00Z", 3_000_000, "exact"),
        ("anthropic", "claude-opus-4-6", {"input": 300_000, "cache_read": 0, "output": 0}, "2026-03-13T00:00:00Z", 1_500_000, "exact"),
        ("anthropic", "claude-sonnet-4-6", {"input": 300_000, "cache_read": 0, "output": 0}, "2026-06-01T00:00:00Z", 900_000, "exact"),
        # 1000 × 2.5 + 500 × 10: as the source.
        ("openai", "gpt-4o", {"input": 1000, "cache_read": 0, "output": 500}, None, 7500, "exact"),
        # Resold models are found by their reseller's names; the source gave mostly 0. 1000 × 3 + 500 × 15.
        ("bedrock", "us.anthropic.claude-sonnet-4-20250514-v1:0", {"input": 1000, "cache_read": 0, "output": 500}, None, 10_500, "exact"),
        ("vertex", "claude-sonnet-4@20250514", {"input": 1000, "cache_read": 0, "output": 500}, None, 10_500, "exact"),
        # Nothing used costs nothing, and is known to.
        ("openai", "gpt-4o", {"input": 0, "cache_read": 0, "output": 0}, None, 0, "exact"),
        # Nobody said what was used: that is not 0. The source said 0.
        ("openai", "gpt-4o", None, None, None, None),
        # Nobody knows the price: that is not 0 either. The source said 0 for both.
        ("openai", "gpt-5-private-fork", {"input": 1000, "cache_read": 0, "output": 5}, None, None, None),
        ("ollama", "llama3", {"input": 1000, "cache_read": 0, "output": 5}, None, None, None),
    ],
)  # fmt: skip
def test_a_golden_example_of_the_source_with_the_right_price(
    provider: str, model: str, usage: Event | None, at: str | None, expected: int | None, fidelity: str | None
) -> None:
    convention = {"bedrock": "exclusive", "vertex": "exclusive", "ollama": "inclusive"}.get(provider)
    named = {} if convention is None else {"token_convention": convention}
    one = done(model, usage, provider=provider, **named)
    if at is not None:
        one["occurred_at"] = at
    (row,) = told(one)["model_calls"]
    assert (row["cost_micro_usd"], row["cost_fidelity"]) == (expected, fidelity)


def test_an_unknown_price_shows_in_unpriced_calls_and_an_unknown_use_in_usage_total() -> None:
    row = session(
        done("gpt-5-private-fork", {"input": 1000, "cache_read": 0, "output": 5}, provider="openai"),
        done("gpt-4o", None, provider="openai"),
        done("gpt-4o", {"input": 1000, "cache_read": 0, "output": 500}, provider="openai"),
    )
    assert (row["cost_micro_usd"], row["unpriced_calls"], row["usage_reported"], row["usage_total"]) == (
        7500,
        1,
        2,
        3,
    )


def test_what_the_harness_says_it_cost_is_never_our_cost() -> None:
    call = done(
        "claude-sonnet-4-20250514", {"input": 10, "cache_read": 0, "output": 20}, reported_cost_usd=0.25
    )
    found = told(call)
    assert found["model_calls"][0]["cost_micro_usd"] == 330  # 10 × 3 + 20 × 15
    assert found["sessions"][0]["cost_micro_usd"] == 330


# --- the numeric example of a rollup ----------------------------------------------------------------------------------------------


def rolled_up() -> Document:
    calls = [
        done(
            "claude-sonnet-4-20250514", {"input": 10, "output": 20}, model_call_id="1", reported_cost_usd=0.25
        ),
        done(None, {"input": 0, "output": 3}, model_call_id="2", reported_cost_usd=0.05),
    ]
    return told(
        *(
            event("net.requested", domain="a.example", port=443, decision=said)
            for said in ("allowed", "denied", "error")
        ),
        *calls,
        tool("n", "bash"),
        result("n"),
        tool("p", "srv__x", "mcp"),
        result("p"),
        *mcp("tools/call", "github", "search", "1"),
        *mcp("tools/call", "linear", "search", "2"),
        *(
            event("fs.changed", action=action, path="/a")
            for action in ("created", "modified", "deleted", "overflow")
        ),
        event("process.started", exec_id="1", command="ls"),
        *(event("process.audited", pid=pid, ppid=1, uid=0, exe="/bin/ls", argv=["ls"]) for pid in (7, 8)),
    )


def test_the_rollup_example_counts_requests_files_execs_and_audits_as_the_source_does() -> None:
    row = rolled_up()["sessions"][0]
    assert [row[name] for name in ("total_requests", "allowed_requests", "denied_requests")] == [3, 1, 1]
    assert row["error_requests"] == 1  # the source had no word for it
    assert (row["total_file_events"], row["exec_count"], row["audit_event_count"]) == (3, 1, 2)
    assert (row["input_uncached_tokens"], row["output_tokens"]) == (10, 23)
    assert row["total_input_tokens"] is None  # nobody said what was read from a cache


def test_the_rollup_example_has_four_tool_calls_a_proxy_entry_without_its_transport_is_one() -> None:
    # The source said 3, native and MCP alone: it left the proxy entry out, whether its transport was seen or not.
    found = rolled_up()
    assert found["sessions"][0]["total_tool_calls"] == 4
    assert sum(row["call_count"] for row in found["tool_usage"]) == 4
    assert [(row["server_name"], row["tool_name"], row["call_count"]) for row in found["mcp_usage"]] == [
        ("github", "search", 1),
        ("linear", "search", 1),
    ]


def test_the_rollup_example_keeps_a_call_without_a_model_under_unknown() -> None:
    # The source had one row of the provider; a model that nobody named is not the one beside it.
    rows = [
        (row["provider"], row["model"], row["call_count"], row["output_tokens"])
        for row in rolled_up()["ai_usage"]
    ]
    assert rows == [("anthropic", "claude-sonnet-4-20250514", 1, 20), ("anthropic", "unknown", 1, 3)]


def test_the_rollup_example_costs_what_its_tokens_cost_not_what_the_harness_said() -> None:
    # 10 × 3 + 20 × 15 = 330 of the known model (its input may have a cached part beside it: a lower bound); the source added up 0.30 dollars.
    row = rolled_up()["sessions"][0]
    assert (row["cost_micro_usd"], row["unpriced_calls"]) == (330, 1)


def test_the_second_example_is_two_calls_for_the_user_and_no_proxy_name_among_its_tools() -> None:
    found = told(
        tool("n", "bash"),
        tool("p", "mcp__capsem__fetch_http", "mcp", server_name="capsem"),
        *mcp("tools/call", "capsem", "fetch_http"),
        *mcp("tools/list", "capsem", request="2"),
        result("n"),
        result("p"),
    )
    assert found["sessions"][0]["total_tool_calls"] == 2
    assert [(row["server_name"], row["tool_name"], row["call_count"]) for row in found["mcp_usage"]] == [
        ("capsem", "fetch_http", 1)
    ]


# --- scenarios about counting ------------------------------------------------------------------------------------------------------


def test_s1_native_proxy_entry_and_its_transport_are_two_calls() -> None:
    row = session(
        tool("n", "bash"), tool("p", "srv__x", "mcp", server_name="srv"), *mcp("tools/call", "srv", "x")
    )
    assert row["total_tool_calls"] == 2


def test_s2_listing_tools_or_reading_resources_is_no_tool_call() -> None:
    listed = [one for method in ("tools/list", "initialize", "resources/read") for one in mcp(method, "srv")]
    row = session(*listed)
    assert row["total_tool_calls"] == 0


def test_s3_an_error_is_a_request_neither_allowed_nor_denied() -> None:
    row = session(
        *(
            event("net.requested", domain="a.example", decision=said)
            for said in ("allowed", "denied", "error")
        )
    )
    assert [row[f"{word}_requests"] for word in ("total", "allowed", "denied", "error")] == [3, 1, 1, 1]


def test_s4_null_tokens_are_summed_by_nobody_and_stay_null() -> None:
    found = told(done("m", {"input": 10, "output": 20}), done("m", None))
    row = found["sessions"][0]
    assert (row["input_uncached_tokens"], row["output_tokens"], row["model_call_count"]) == (10, 20, 2)
    assert [call["output_tokens"] for call in found["model_calls"]] == [20, None]


def test_s5_two_servers_with_one_tool_name_are_two_rows() -> None:
    found = told(*mcp("tools/call", "github", "search", "1"), *mcp("tools/call", "linear", "search", "2"))
    assert [row["server_name"] for row in found["mcp_usage"]] == ["github", "linear"]


def test_s6_an_overflow_marker_is_no_file_event_and_is_kept() -> None:
    found = told(
        event("fs.changed", action="overflow", size=12), event("fs.changed", action="created", path="/a")
    )
    assert found["sessions"][0]["total_file_events"] == 1
    assert [(row["action"], row["size"]) for row in found["fs_events"]] == [
        ("overflow", 12),
        ("created", None),
    ]


def test_s7_an_exec_is_counted_by_its_start_and_an_old_process_run_is_not_touched() -> None:
    found = told(
        event("process.started", exec_id="1", command="a"),
        event("process.exited", exec_id="1", exit_code=0),
        event("process.exited", exec_id="1", exit_code=9),
        event("process.exited", exec_id="5", exit_code=1),
        event("process.exited", exec_id="1", exit_code=3, epoch=1),
    )
    assert found["sessions"][0]["exec_count"] == 1
    (first, *others) = found["exec_events"]
    assert (first["command"], first["exit_code"]) == ("a", 0)
    # The source left exits without a start out; they happened, so they are kept as such, and counted as no exec.
    assert all(row["command"] is None for row in others)


def test_s9_a_cost_is_the_sum_of_calls_rounded_one_by_one() -> None:
    # 3 × 4789.5, each rounded away from zero, is 14,370; rounding the sum would give 14,369.
    calls = [done("gemini-3-flash-preview", gemini(9363, 0, 36), provider="google") for _ in range(3)]
    assert session(*calls)["cost_micro_usd"] == 14_370


def test_s10_no_key_is_folded_into_another_however_many_there_are() -> None:
    # The source kept 256 models and tools, and named the rest `(other)`.
    calls = [done(f"model-{number}", {"input": 1, "cache_read": 0, "output": 1}) for number in range(300)]
    tools = [tool(f"t{number}", f"tool-{number}") for number in range(300)]
    found = told(*calls, *tools)
    assert len(found["ai_usage"]) == len(found["tool_usage"]) == 300
    assert sum(row["call_count"] for row in found["ai_usage"]) == 300


def test_s11_a_call_with_two_results_is_one_call() -> None:
    found = told(tool("a", "read"), result("a", duration_ms=5), result("a", duration_ms=7))
    assert [(row["tool_name"], row["call_count"]) for row in found["tool_usage"]] == [("read", 1)]


def test_s12_two_exchanges_that_use_one_id_are_two_calls_and_the_unanswered_one_is_missing() -> None:
    found = told(
        tool("gemini_read_file_0", "read_file", model_call_id="1"),
        result("gemini_read_file_0", model_call_id="1"),
        tool("gemini_read_file_0", "read_file", model_call_id="2"),
    )
    assert sorted(row["pairing"] for row in found["tool_calls"]) == ["missing_result", "paired"]


def test_s13_an_mcp_call_with_its_own_response_is_no_orphan() -> None:
    found = told(*mcp("tools/call", "srv", "x"))
    assert [row["pairing"] for row in found["tool_calls"]] == ["paired"]


def test_s16_what_comes_twice_counts_once() -> None:
    once = done(
        "claude-sonnet-4-20250514", {"input": 1000, "cache_read": 0, "output": 500}, model_call_id="1"
    )
    lines = [json.dumps({"session_id": "s", "seq": 0, **once}).encode()] * 2
    found = document(lines, PRICE)
    assert found["records"]["duplicates"] == 1
    assert found["sessions"][0]["cost_micro_usd"] == 10_500


def test_s17_attempts_that_failed_are_calls_without_tokens() -> None:
    failed = [
        event("model_call.failed", provider="anthropic", model="m", error_class="rate_limit", status_code=429, model_call_id=number)
        for number in ("1", "2")
    ]  # fmt: skip
    found = told(*failed, done("m", {"input": 20, "cache_read": 0, "output": 5}, model_call_id="3"))
    row = found["sessions"][0]
    assert (row["model_call_count"], row["failed_model_calls"], row["output_tokens"]) == (3, 2, 5)
    assert (row["usage_reported"], row["usage_total"]) == (1, 1)
    assert [call["output_tokens"] for call in found["model_calls"]] == [None, None, 5]


def test_s18_a_denied_exchange_is_a_denied_request_and_a_call_whose_model_nobody_knows() -> None:
    found = told(
        event("net.requested", domain="api.example", decision="denied", status_code=403),
        event(
            "model_call.failed", provider="openai", error_class="refused", status_code=403, model_call_id="1"
        ),
    )
    row = found["sessions"][0]
    assert (row["denied_requests"], row["model_call_count"], row["failed_model_calls"]) == (1, 1, 1)
    assert [(usage["provider"], usage["model"]) for usage in found["ai_usage"]] == [("openai", "unknown")]


def test_s44_a_session_without_counters_has_null_tokens_and_no_cost_not_zeros() -> None:
    row = session(event("net.requested", domain="a.example", decision="allowed"))
    assert (row["input_uncached_tokens"], row["cost_micro_usd"], row["model_call_count"]) == (None, None, 0)
