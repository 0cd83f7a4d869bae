"""What Claude Code files mean: a line is not a call, order is not told by lines, unknown is not zero."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.harness import claude
from tests.fixtures.harness.claude import (
    answer,
    conversation,
    ndjson,
    prompt,
    result,
    system,
    text,
    tool,
    usage,
)
from tests.fixtures.harness.folded import folded, reading, sums

WHOLE = (40, 750, 7, 0, 0, 100)
"""The buckets of ``conversation``: four calls of 10 + 10 + 10 + 10 input, reads 100 + 150 + 200 + 300, one write of 7, outputs 42 + 20 + 30 + 8."""


def calls(found: dict[str, Any]) -> list[tuple[str | None, str, int | None]]:
    return [(row["message_id"], row["status"], row["output_tokens"]) for row in found["model_calls"]]


def test_repeated_lines_of_one_message_are_one_call_with_its_final_output(tmp_path: Path) -> None:
    found = folded(tmp_path, ndjson(conversation()))
    assert sums(found) == WHOLE
    assert calls(found) == [
        ("msg_1", "completed", 42),
        ("msg_2", "completed", 20),
        ("msg_3", "completed", 30),
        ("msg_4", "completed", 8),
    ]


def test_a_call_is_exact_once_a_line_has_a_stop_reason_and_a_lower_bound_without(tmp_path: Path) -> None:
    lines = [
        prompt("u1", None, 0, "go"),
        answer("a1", "u1", 1, "msg_1", text("x"), usage(3)),
        answer("a2", "a1", 2, "msg_1", text("y"), usage(9), stop="end_turn"),
        answer("a3", "a2", 3, "msg_2", text("z"), usage(5)),
    ]
    found = folded(tmp_path, ndjson(lines))
    assert [(row["message_id"], row["fidelity"]) for row in found["model_calls"]] == [
        ("msg_1", "exact"),
        ("msg_2", "lower_bound"),
    ]


def test_turns_have_the_prompts_ids_and_end_as_the_file_says(tmp_path: Path) -> None:
    found = folded(tmp_path, ndjson(conversation()))
    shown = [
        (turn["turn_id"], turn["status"], turn["duration_ms"], turn["round_trips"]) for turn in found["turns"]
    ]
    assert shown == [("u1", "completed", 7100, 2), ("u2", "completed", 6100, 2)]
    assert [turn["user_input"] for turn in found["turns"]] == ["count the primes", "and the squares?"]


def test_a_prompt_id_names_the_turn_where_there_is_one(tmp_path: Path) -> None:
    lines = conversation()
    lines[0]["promptId"] = "prompt-1"
    found = folded(tmp_path, ndjson(lines))
    assert [turn["turn_id"] for turn in found["turns"]] == ["prompt-1", "u2"]


def test_tools_are_paired_by_their_ids(tmp_path: Path) -> None:
    found = folded(tmp_path, ndjson(conversation()))
    shown = [(row["call_id"], row["tool_name"], row["status"], row["pairing"]) for row in found["tool_calls"]]
    assert shown == [("toolu_1", "Bash", "ok", "paired"), ("toolu_2", "Bash", "error", "paired")]


def test_importing_twice_changes_nothing(tmp_path: Path) -> None:
    raw = ndjson(conversation())
    once, twice = folded(tmp_path, raw), folded(tmp_path, raw, raw)
    assert twice["digest"] == once["digest"]
    assert twice["records"]["duplicates"] == once["records"]["accepted"]


@pytest.mark.parametrize("end", range(1, 12))
def test_a_prefix_and_its_longer_copy_are_the_longer_copy_in_any_order(tmp_path: Path, end: int) -> None:
    prefix, whole = ndjson(conversation()[:end]), ndjson(conversation())
    alone = folded(tmp_path, whole)
    for order in ((prefix, whole), (whole, prefix)):
        both = folded(tmp_path, *order)
        assert both["digest"] == alone["digest"]
        assert both["records"]["conflicts"] == 0


@pytest.mark.parametrize("cut", range(1, 12))
def test_two_slices_have_the_sums_of_the_whole_in_any_order(tmp_path: Path, cut: int) -> None:
    first, second = ndjson(conversation()[:cut]), ndjson(conversation()[cut:])
    forward, backward = folded(tmp_path, first, second), folded(tmp_path, second, first)
    assert forward["digest"] == backward["digest"]
    assert sums(forward) == WHOLE
    assert [row["turn_count"] for row in forward["sessions"]] == [2]
    assert [turn["round_trips"] for turn in forward["turns"]] == [2, 2]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_slice_imported_beside_the_whole_moves_no_figure(tmp_path: Path, cut: int) -> None:
    whole = folded(tmp_path, ndjson(conversation()))
    both = folded(tmp_path, ndjson(conversation()), ndjson(conversation()[cut:]))
    for name in (
        "message_count",
        "model_call_count",
        "total_tool_calls",
        "tool_errors",
        "usage_total",
        "output_tokens",
    ):
        assert both["sessions"][0][name] == whole["sessions"][0][name], name
    assert both["records"]["conflicts"] == 0


def test_a_slice_that_begins_mid_session_counts_what_it_holds(tmp_path: Path) -> None:
    found = folded(tmp_path, ndjson(conversation()[5:]))
    assert sums(found) == (30, 650, 0, 0, 0, 58)
    assert [row["message_id"] for row in found["model_calls"]] == ["msg_2", "msg_3", "msg_4"]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_lines_changes_nothing(tmp_path: Path, seed: int) -> None:
    lines = conversation()
    random.Random(seed).shuffle(lines)
    assert folded(tmp_path, ndjson(lines))["digest"] == folded(tmp_path, ndjson(conversation()))["digest"]


def test_a_rewritten_file_that_lost_lines_takes_nothing_back(tmp_path: Path) -> None:
    whole = ndjson(conversation())
    rewritten = ndjson([*conversation()[:3], *conversation()[7:]])
    assert sums(folded(tmp_path, whole, rewritten)) == WHOLE


def test_a_path_is_no_part_of_an_identity(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    here = reading(tmp_path, ndjson(conversation()), "a.jsonl").events
    there = reading(tmp_path / "other", ndjson(conversation()), "b.jsonl").events
    assert here == there


def test_synthetic_messages_are_no_calls(tmp_path: Path) -> None:
    note = answer(
        "a9", "a6", 70, "0b9f", text("No response requested."), usage(0, input=0, read=0), model="<synthetic>"
    )
    found = folded(tmp_path, ndjson([*conversation(), note]))
    assert sums(found) == WHOLE
    assert len(found["model_calls"]) == 4


def test_zero_usage_of_a_proxy_is_unknown_not_zero(tmp_path: Path) -> None:
    lines = [
        prompt("u1", None, 0, "go"),
        answer("a1", "u1", 1, "msg_1", text("x"), usage(0, input=0, read=0), stop="end_turn"),
    ]
    found = folded(tmp_path, ndjson(lines))
    assert sums(found) == (None,) * 6
    assert (found["sessions"][0]["usage_reported"], found["sessions"][0]["usage_total"]) == (0, 1)


def test_a_redacted_counter_is_unknown_and_the_rest_is_kept(tmp_path: Path) -> None:
    used = {
        "input_tokens": "[REDACTED]",
        "output_tokens": 5,
        "cache_read_input_tokens": "7",
        "cache_creation_input_tokens": 0,
    }
    lines = [prompt("u1", None, 0, "go"), answer("a1", "u1", 1, "msg_1", text("x"), used, stop="end_turn")]
    found = folded(tmp_path, ndjson(lines))
    assert sums(found) == (None, None, None, None, 0, 5)


def test_a_write_without_its_split_has_an_unknown_lifetime(tmp_path: Path) -> None:
    used = {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 50,
    }
    split = {**used, "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 30}}
    lines = [
        prompt("u1", None, 0, "go"),
        answer("a1", "u1", 1, "msg_1", text("x"), used, stop="end_turn"),
        answer("a2", "a1", 2, "msg_2", text("x"), split, stop="end_turn"),
    ]
    assert sums(folded(tmp_path, ndjson(lines))) == (2, 6, 10, 30, 60, 4)


def test_retried_attempts_are_no_calls_and_the_next_call_knows_them(tmp_path: Path) -> None:
    retry = {"error": {"status": 529}, "retryAttempt": 1, "maxRetries": 10, "retryInMs": 500.4}
    lines = [
        prompt("u1", None, 0, "go"),
        system("e1", "u1", 1, "api_error", **retry),
        system("e2", "e1", 2, "api_error", **{**retry, "retryAttempt": 2}),
        answer("a1", "e2", 3, "msg_1", text("x"), usage(4), stop="end_turn"),
    ]
    found = folded(tmp_path, ndjson(lines))
    assert [(row["message_id"], row["retries"]) for row in found["model_calls"]] == [("msg_1", 2)]


def test_a_session_of_failures_has_no_usage_and_says_how_it_failed(tmp_path: Path) -> None:
    failed = answer(
        "a1", "u1", 3, "0c1d", text("API Error: 429 out of extra usage"), usage(0, input=0, read=0),
        model="<synthetic>", isApiErrorMessage=True, error="rate_limit",
    )  # fmt: skip
    found = folded(tmp_path, ndjson([prompt("u1", None, 0, "go"), failed]))
    assert [(row["status"], row["error_class"], row["status_code"]) for row in found["model_calls"]] == [
        ("failed", "rate_limit", 429)
    ]
    assert [(turn["status"], turn["stop"]["why"]) for turn in found["turns"]] == [("failed", "failed")]
    assert [limit["limit"] for limit in found["turns"][0]["limits"]] == ["rate"]
    assert sums(found) == (None,) * 6
    assert (found["sessions"][0]["failed_model_calls"], found["sessions"][0]["usage_total"]) == (1, 0)


def test_turn_duration_behind_a_failure_does_not_complete_the_turn(tmp_path: Path) -> None:
    failed = answer(
        "a1", "u1", 3, "0c1d", text("API Error"), usage(0), model="<synthetic>", isApiErrorMessage=True
    )
    lines = [prompt("u1", None, 0, "go"), failed, system("s1", "a1", 3.1, "turn_duration", durationMs=3100)]
    assert [turn["status"] for turn in folded(tmp_path, ndjson(lines))["turns"]] == ["failed"]


def test_an_interrupt_ends_its_turn(tmp_path: Path) -> None:
    lines = [
        prompt("u1", None, 0, "go"),
        answer("a1", "u1", 1, "msg_1", tool("toolu_1"), usage(4)),
        prompt("i1", "a1", 2, "[Request interrupted by user for tool use]"),
        prompt("u2", "i1", 9, "again"),
    ]
    found = folded(tmp_path, ndjson(lines))
    assert [(turn["turn_id"], turn["status"]) for turn in found["turns"]] == [
        ("u1", "interrupted"),
        ("u2", "open"),
    ]
    assert [row["pairing"] for row in found["tool_calls"]] == ["missing_result"]


def test_a_refused_tool_is_denied_not_failed(tmp_path: Path) -> None:
    said = "The user doesn't want to proceed with this tool use. The tool use was rejected"
    lines = [
        prompt("u1", None, 0, "go"),
        answer("a1", "u1", 1, "msg_1", tool("toolu_1"), usage(4), stop="tool_use"),
        result("r1", "a1", 2, "toolu_1", said, error=True, toolUseResult="User rejected tool use"),
    ]
    found = folded(tmp_path, ndjson(lines))
    assert [(row["pairing"], row["denied_by"]) for row in found["tool_calls"]] == [("denied", "user")]
    assert found["sessions"][0]["tool_errors"] == 0


def test_a_compaction_is_told_with_its_tokens(tmp_path: Path) -> None:
    boundary = system(
        "c1",
        None,
        8,
        "compact_boundary",
        logicalParentUuid="a4",
        compactMetadata={"trigger": "auto", "preTokens": 9000, "postTokens": 800},
    )
    found = folded(tmp_path, ndjson([*conversation()[:6], boundary]))
    assert [(each["tokens_before"], each["tokens_after"]) for each in found["turns"][0]["compactions"]] == [
        (9000, 800)
    ]


OTHER = "5e551011-0000-4000-8000-000000000002"


def test_two_sessions_in_one_file_are_two(tmp_path: Path) -> None:
    other = [
        prompt("v1", None, 90, "hi"),
        answer("v2", "v1", 91, "msg_v", text("ho"), usage(5), stop="end_turn"),
    ]
    found = folded(tmp_path, ndjson([*conversation(), *({**each, "sessionId": OTHER} for each in other)]))
    assert [(row["session_id"], row["model_call_count"]) for row in found["sessions"]] == [
        (claude.SESSION, 4),
        (OTHER, 1),
    ]


def test_calls_that_a_fork_copied_are_summed_once(tmp_path: Path) -> None:
    fork = [{**each, "sessionId": OTHER} for each in conversation()]
    fork += [
        {**prompt("u9", "s2", 100, "more"), "sessionId": OTHER},
        {**answer("a9", "u9", 101, "msg_9", text("x"), usage(5), stop="end_turn"), "sessionId": OTHER},
    ]
    found = folded(tmp_path, ndjson(conversation()), ndjson(fork))
    shown = [(row["session_id"], row["model_call_count"], row["output_tokens"]) for row in found["sessions"]]
    assert shown == [(claude.SESSION, 4, 100), (OTHER, 1, 5)]


def test_lines_without_a_session_are_counted_and_harm_nothing(tmp_path: Path) -> None:
    title = {"type": "summary", "summary": "Primes", "leafUuid": "a6"}
    stray = {"type": "user", "message": {"role": "user", "content": "?"}}
    told = reading(tmp_path, ndjson([title, stray, *conversation()]))
    assert {each["check"]: each["count"] for each in told.findings}["record_without_session"] == 1


def test_an_unknown_type_is_kept_as_an_event(tmp_path: Path) -> None:
    told = reading(tmp_path, ndjson([*conversation(), claude.line("hologram", "h1", "a6", 80, beam=3)]))
    kept = [event for event in told.events if event["type"] == "claude_code.hologram"]
    assert [event["payload"]["record"]["beam"] for event in kept] == [3]
    assert [each["rows"] for each in told.findings if each["check"] == "unknown_record_type"] == [
        [{"type": "hologram", "count": 1}]
    ]


def test_a_long_text_is_cut_at_a_character_with_its_size_beside_it(tmp_path: Path) -> None:
    told = reading(tmp_path, ndjson([prompt("u1", None, 0, "é" * 40_000)]))
    (message,) = [event["payload"] for event in told.events if event["type"] == "message.recorded"]
    assert message["text"] == "é" * 32_768
    assert (message["text_bytes"], message["truncated"]) == (80_000, True)


# --- sub-agents -------------------------------------------------------------------------------------------------------------------


def agent_lines(agent: str, start: float, call: str, output: int) -> list[claude.Line]:
    own = {"isSidechain": True, "agentId": agent}
    return [
        prompt(f"{agent}-u", None, start, "look", **own),
        answer(
            f"{agent}-a", f"{agent}-u", start + 1, call, text("seen"), usage(output), stop="end_turn", **own
        ),
    ]


def parent_lines(*agents: str) -> list[claude.Line]:
    lines = [prompt("u1", None, 0, "delegate")]
    for place, agent in enumerate(agents):
        lines.append(
            answer(f"t{place}", "u1", 1, "msg_p", tool(f"toolu_{agent}", "Task"), usage(6), stop="tool_use")
        )
    for place, agent in enumerate(agents):
        outcome = {
            "status": "completed",
            "agentId": agent,
            "totalDurationMs": 900,
            "totalTokens": 999,
            "usage": usage(77),
        }
        lines.append(result(f"r{place}", f"t{place}", 9, f"toolu_{agent}", "done", toolUseResult=outcome))
    lines.append(answer("a9", "r0", 10, "msg_q", text("All done."), usage(3), stop="end_turn"))
    lines.append(prompt("u2", "a9", 20, "thanks"))
    return lines


def test_sub_agents_belong_to_the_turn_whose_tool_call_started_them(tmp_path: Path) -> None:
    files = [
        ndjson(parent_lines("aa", "bb")),
        ndjson(agent_lines("aa", 2, "msg_a", 11)),
        ndjson(agent_lines("bb", 2, "msg_b", 12)),
    ]
    found = folded(tmp_path, *files)
    assert [(turn["turn_id"], turn["round_trips"]) for turn in found["turns"]] == [("u1", 4), ("u2", 0)]
    assert sums(found) == (40, 400, 0, 0, 0, 32)
    assert folded(tmp_path, *reversed(files))["digest"] == found["digest"]


def test_a_sub_agent_whose_parent_is_not_here_has_a_turn_of_its_own(tmp_path: Path) -> None:
    found = folded(tmp_path, ndjson(agent_lines("aa", 2, "msg_a", 11)))
    assert [(turn["round_trips"], turn["usage"]["output"]) for turn in found["turns"]] == [(1, 11)]


def test_a_task_total_is_never_added(tmp_path: Path) -> None:
    assert sums(folded(tmp_path, ndjson(parent_lines("aa"))))[-1] == 9


def progress(agent: str, inner: claude.Line) -> claude.Line:
    kept = {
        name: inner[name] for name in ("type", "message", "uuid", "timestamp", "requestId") if name in inner
    }
    data = {"type": "agent_progress", "agentId": agent, "message": kept}
    return claude.line(
        "progress", f"p-{inner['uuid']}", "t0", 3, data=data, toolUseID="x", parentToolUseID=f"toolu_{agent}"
    )


def test_calls_that_only_the_parents_progress_lines_hold_are_counted(tmp_path: Path) -> None:
    embedded = [progress("aa", each) for each in agent_lines("aa", 2, "msg_a", 11)]
    found = folded(tmp_path, ndjson([*parent_lines("aa"), *embedded]))
    assert sums(found)[-1] == 20
    assert [(turn["turn_id"], turn["round_trips"]) for turn in found["turns"]] == [("u1", 3), ("u2", 0)]


def test_calls_that_progress_lines_repeat_are_counted_once(tmp_path: Path) -> None:
    embedded = [progress("aa", each) for each in agent_lines("aa", 2, "msg_a", 11)]
    found = folded(
        tmp_path, ndjson([*parent_lines("aa"), *embedded]), ndjson(agent_lines("aa", 2, "msg_a", 11))
    )
    assert sums(found)[-1] == 20
    assert len(found["model_calls"]) == 3


def test_a_side_chain_without_an_agent_id_has_a_turn_of_its_own(tmp_path: Path) -> None:
    side = {"isSidechain": True}
    lines = [
        *conversation()[:6],
        prompt("x1", None, 3, "inner", **side),
        answer("x2", "x1", 4, "msg_x", text("y"), usage(2), stop="end_turn", **side),
    ]
    found = folded(tmp_path, ndjson(lines))
    assert {turn["turn_id"]: turn["round_trips"] for turn in found["turns"]} == {"u1": 2, "x1": 1}


def test_the_same_message_under_another_request_id_is_one_call(tmp_path: Path) -> None:
    replay = {**conversation()[5], "uuid": "z1", "requestId": "req_other", "timestamp": claude.at(30)}
    assert sums(folded(tmp_path, ndjson([*conversation(), replay]))) == WHOLE


def test_two_ids_with_equal_content_are_two_calls(tmp_path: Path) -> None:
    lines = [prompt("u1", None, 0, "go")]
    lines += [
        answer(f"a{n}", "u1", 1 + n / 100, f"msg_{n}", text("x"), usage(4), stop="end_turn") for n in (1, 2)
    ]
    assert sums(folded(tmp_path, ndjson(lines)))[-1] == 8
