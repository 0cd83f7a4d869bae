"""What Codex rollouts mean: totals run, repeats tell nothing, copied history is not the child's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.fixtures.harness.codex import (
    PARENT,
    THREAD,
    context,
    counted,
    event,
    item,
    line,
    meta,
    ndjson,
    rollout,
    used,
)  # fmt: skip
from tests.fixtures.harness.folded import folded, reading, sums

WHOLE = (150, 300, None, None, None, 37)
"""The buckets of ``rollout``: its last total is 450 with 300 cached and 37 out."""


def checks(found: dict[str, Any]) -> set[str]:
    return {finding["check"] for finding in found["findings"]}


def test_the_sum_is_the_final_total(tmp_path: Path) -> None:
    found = folded(tmp_path, ndjson(rollout()))
    assert sums(found) == WHOLE
    assert found["sessions"][0]["reasoning_tokens"] == 6


def test_each_changed_total_is_one_derived_call_with_its_own_figures(tmp_path: Path) -> None:
    found = folded(tmp_path, ndjson(rollout()))
    shown = [
        (row["model_call_id"], row["total_input_tokens"], row["output_tokens"])
        for row in found["model_calls"]
    ]
    assert shown == [("call-1", 100, 10), ("call-2", 150, 20), ("call-3", 200, 7)]


def test_doubled_counts_add_nothing(tmp_path: Path) -> None:
    doubled = []
    for each in rollout():
        doubled += [each, each] if each["payload"].get("type") == "token_count" else [each]
    assert sums(folded(tmp_path, ndjson(doubled))) == WHOLE


def test_turns_begin_and_end_as_the_file_says(tmp_path: Path) -> None:
    found = folded(tmp_path, ndjson(rollout()))
    shown = [(t["turn_id"], t["status"], t["usage"]["total_input"], t["user_input"]) for t in found["turns"]]
    assert shown == [("turn-a", "completed", 250, "find the bug"), ("turn-b", "interrupted", 200, "fix it")]
    assert found["turns"][0]["answer"]["text"] == "It is in a.py."


def test_tools_are_paired_and_their_exit_codes_read(tmp_path: Path) -> None:
    found = folded(tmp_path, ndjson(rollout()))
    shown = [
        (row["call_id"], row["tool_name"], row["status"], row["duration_ms"]) for row in found["tool_calls"]
    ]
    assert shown == [("call_1", "shell", "ok", 500), ("call_2", "apply_patch", "error", None)]


@pytest.mark.parametrize("end", range(1, 18))
def test_a_longer_copy_extends_the_shorter_one_in_any_order(tmp_path: Path, end: int) -> None:
    prefix, whole = ndjson(rollout()[:end]), ndjson(rollout())
    alone = folded(tmp_path, whole)
    for order in ((prefix, whole), (whole, prefix), (whole, whole)):
        both = folded(tmp_path, *order)
        assert both["digest"] == alone["digest"]
        assert both["records"]["conflicts"] == 0


def test_a_torn_last_line_does_not_shift_the_numbers_of_the_longer_copy(tmp_path: Path) -> None:
    whole = ndjson(rollout())
    torn = whole[: whole.rindex(b'"turn_aborted"')]
    both = folded(tmp_path, torn, whole)
    assert both["digest"] == folded(tmp_path, whole)["digest"]
    assert both["records"]["conflicts"] == 0


def test_a_rollout_and_its_zst_are_one_import(tmp_path: Path) -> None:
    whole = ndjson(rollout())
    both = folded(tmp_path, whole, zstandard.compress(whole))
    assert both["digest"] == folded(tmp_path, whole)["digest"]
    assert both["records"]["duplicates"] == both["records"]["accepted"]


def test_a_count_without_figures_is_no_call(tmp_path: Path) -> None:
    lines = [
        meta(),
        event("user_message", 1, message="hi"),
        event("token_count", 2, info=None, rate_limits={}),
    ]
    found = folded(tmp_path, ndjson(lines))
    assert found["model_calls"] == []
    assert sums(found) == (None,) * 6


def test_before_turns_had_ids_a_user_message_opens_one(tmp_path: Path) -> None:
    lines = [
        meta(cli_version="0.57.0"),
        event("user_message", 1, message="one"),
        context(1.1),
        counted(2, used(10, 1), used(10, 1)),
        event("user_message", 3, message="two"),
        context(3.1),
        counted(4, used(30, 3), used(20, 2)),
    ]
    found = folded(tmp_path, ndjson(lines))
    assert [(turn["user_input"], turn["usage"]["total_input"]) for turn in found["turns"]] == [
        ("one", 10),
        ("two", 20),
    ]


def test_a_decrease_is_a_new_counter_and_its_last_request_counts(tmp_path: Path) -> None:
    lines = [
        meta(),
        event("task_started", 1, turn_id="t"),
        counted(2, used(1000, 100), used(1000, 100)),
        counted(3, used(50, 5), used(20, 2)),
        counted(4, used(80, 8), used(30, 3)),
        event("task_complete", 5, turn_id="t"),
    ]
    found = folded(tmp_path, ndjson(lines))
    session = found["sessions"][0]
    assert (session["total_input_tokens"], session["output_tokens"]) == (1050, 105)
    assert "usage_unknown_start" in checks(found)


def test_the_model_is_that_of_the_latest_context(tmp_path: Path) -> None:
    lines = [
        meta(),
        event("task_started", 1, turn_id="t"),
        context(1.1, "gpt-5-codex", turn_id="t"),
        counted(2, used(10, 1), used(10, 1)),
        context(3, "gpt-5-mini", turn_id="t"),
        counted(4, used(30, 3), used(20, 2)),
    ]
    found = folded(tmp_path, ndjson(lines))
    assert [(row["model"], row["total_input_tokens"]) for row in found["ai_usage"]] == [
        ("gpt-5-codex", 10),
        ("gpt-5-mini", 20),
    ]


def forked(**fields: Any) -> list[dict[str, Any]]:
    """A child that begins with its parent's history, written in one burst, and the parent's total with a zero ``last``."""
    return [
        meta(0, **fields),
        meta(0.001, PARENT),
        event("task_started", 0.002, turn_id="old"),
        event("user_message", 0.003, message="parent's words"),
        item("function_call", 0.004, name="shell", arguments="{}", call_id="call_old"),
        event("task_complete", 0.005, turn_id="old"),
        counted(0.006, used(5000, 500, 4000), used(0, 0)),
        event("task_started", 30, turn_id="new"),
        context(30.01, turn_id="new"),
        event("user_message", 30.02, message="child's words"),
        counted(33, used(5100, 510, 4050), used(100, 10, 50)),
    ]


def test_a_fork_counts_its_own_work_alone(tmp_path: Path) -> None:
    found = folded(tmp_path, ndjson(forked(forked_from_id=PARENT)))
    assert sums(found) == (50, 50, None, None, None, 10)
    assert [(turn["turn_id"], turn["user_input"]) for turn in found["turns"]] == [("new", "child's words")]
    assert found["tool_calls"] == []


def test_a_spawned_agent_names_its_parent(tmp_path: Path) -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": PARENT, "depth": 1}}}
    told = reading(tmp_path, ndjson(forked(source=source)))
    started = [each for each in told.events if each["type"] == "session.started"]
    assert [each["parent_session_id"] for each in started] == [PARENT]
    assert {each["stream"] for each in told.events} == {f"{THREAD}:subagent"}


def test_a_spawn_whose_first_turn_opens_inside_the_burst_keeps_it(tmp_path: Path) -> None:
    lines = [
        meta(0, parent_thread_id=PARENT),
        meta(0.001, PARENT),
        event("user_message", 0.002, message="parent's words"),
        counted(0.003, used(5000, 500), used(0, 0)),
        event("task_started", 0.1, turn_id="new"),
        event("user_message", 0.2, message="child's words"),
        counted(5, used(5100, 510), used(100, 10)),
    ]
    found = folded(tmp_path, ndjson(lines))
    assert [(turn["turn_id"], turn["usage"]["total_input"]) for turn in found["turns"]] == [("new", 100)]


def test_recorded_responses_beat_the_running_totals(tmp_path: Path) -> None:
    lines = [
        meta(cli_version="0.153.0"),
        event("task_started", 1, turn_id="t"),
        context(1.1, turn_id="t"),
        counted(2, used(10, 1), used(10, 1)),
        line(
            "token_usage_record",
            2.1,
            thread_id=THREAD,
            turn_id="t",
            response_id="resp_1",
            usage=used(10, 1, 4),
            thread_token_usage=used(900, 90),
        ),
        line(
            "token_usage_record",
            4,
            thread_id=THREAD,
            turn_id="t",
            response_id="resp_2",
            usage=used(20, 2, 5),
            thread_token_usage=used(920, 92),
        ),
        counted(4.1, used(30, 3), used(20, 2)),
    ]
    found = folded(tmp_path, ndjson(lines))
    assert [row["message_id"] for row in found["model_calls"]] == ["resp_1", "resp_2"]
    assert sums(found) == (21, 9, None, None, None, 3)


def test_rate_limits_are_told_when_they_are_reached_once(tmp_path: Path) -> None:
    full = {"primary": {"used_percent": 100.0}, "secondary": {"used_percent": 20.0}}
    lines = [meta(), event("task_started", 1, turn_id="t")]
    lines += [event("token_count", 2 + n, info=None, rate_limits=full) for n in range(3)]
    (turn,) = folded(tmp_path, ndjson(lines))["turns"]
    assert [(limit["limit"], limit["threshold"]) for limit in turn["limits"]] == [("rate", 100)]


def test_what_an_editor_put_before_the_request_is_left_out(tmp_path: Path) -> None:
    said = "# Context\nopen files: a.py\n\n## My request for Codex:\nrename it\n"
    told = reading(tmp_path, ndjson([meta(), event("user_message", 1, message=said)]))
    assert [e["payload"]["text"] for e in told.events if e["type"] == "message.recorded"] == ["rename it"]


def test_a_redacted_counter_is_unknown(tmp_path: Path) -> None:
    total = {**used(10, 1), "cached_input_tokens": "[REDACTED]"}
    found = folded(
        tmp_path, ndjson([meta(), event("task_started", 1, turn_id="t"), counted(2, total, total)])
    )
    assert sums(found) == (None, None, None, None, None, 1)
    assert found["sessions"][0]["total_input_tokens"] == 10


def test_the_oldest_rollouts_without_envelope_are_recognised(tmp_path: Path) -> None:
    header = {"id": THREAD, "timestamp": "2025-05-01T08:00:00Z", "instructions": None}
    call = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"}
    done = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
    told = reading(tmp_path, ndjson([header, call, done]))
    assert (told.harness, told.sessions) == ("codex", [THREAD])
    assert [event["type"] for event in told.events][-2:] == ["tool_call.requested", "tool_call.completed"]


def test_a_rollout_without_its_header_tells_nothing_and_says_so(tmp_path: Path) -> None:
    told = reading(tmp_path, ndjson(rollout()[1:]))
    assert told.events == []
    assert "thread_unknown" in {finding["check"] for finding in told.findings}


def test_an_mcp_tool_has_its_server_duration_and_status(tmp_path: Path) -> None:
    ended = {
        "call_id": "c1",
        "invocation": {"server": "files", "tool": "read"},
        "duration": {"secs": 1, "nanos": 250_000_000},
        "result": {"Err": "gone"},
    }
    lines = [
        meta(),
        event("task_started", 1, turn_id="t"),
        item("function_call", 2, name="files__read", arguments="{}", call_id="c1"),
        event("mcp_tool_call_end", 4, **ended),
        item("function_call_output", 4.1, call_id="c1", output="gone"),
    ]
    (row,) = folded(tmp_path, ndjson(lines))["tool_calls"]
    assert (row["status"], row["server_name"], row["origin"], row["duration_ms"]) == (
        "error",
        "files",
        "mcp",
        1250,
    )
