"""The rules that most readers of these files get wrong, each where it occurs. Figures are counted by hand from the fixtures or the lines below."""

from __future__ import annotations

import json
import sqlite3
from functools import partial
from typing import Any

import orjson
import pytest

from tests.fixtures.harness import goldens
from tests.fixtures.harness.folded import catalogue
from turnledger.fold.document import document
from turnledger.harness.aider.adapter import rounded
from turnledger.harness.facts import Notes, moment_of
from turnledger.harness.gemini_cli.adapter import usage_of as gemini_usage
from turnledger.harness.opencode.adapter import usage_of as opencode_usage
from turnledger.harness.qwen_code.adapter import usage_of as qwen_usage
from turnledger.pricing import price_call


def folded(*named: tuple[str, bytes]) -> dict[str, Any]:
    """Files folded together, each as its fixture's name and its bytes."""
    records = [orjson.dumps(event) for name, content in named for event in goldens.read(name, content).events]
    return document(records, partial(price_call, catalogue()))


def lines(name: str) -> list[dict[str, Any]]:
    """The records of a fixture of lines."""
    return [
        json.loads(line)
        for line in goldens.content(name).splitlines()
        if line.startswith(b"{") and line.endswith(b"}")
    ]


def ndjson(records: list[Any]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in records)


def findings(name: str, content: bytes) -> dict[str, int]:
    """What the reader says of a file, by check."""
    return {finding["check"]: finding["count"] for finding in goldens.read(name, content).findings}


# --- one call, told several times ---


def test_openhands_a_response_that_issued_two_actions_is_one_call() -> None:
    name = "openhands/conv-4/events.jsonl"
    found = folded((name, goldens.content(name)))
    assert sorted(row["message_id"] for row in found["model_calls"]) == ["resp-1", "resp-2", "resp-c"]
    assert [row["requested_by"] for row in found["tool_calls"]] == ["resp-1", "resp-1"]


def test_openhands_an_editors_counter_is_a_part_of_the_main_one() -> None:
    name = "openhands/trajectory-9.json"
    found = folded((name, goldens.content(name)))
    assert found["sessions"][0]["total_input_tokens"] == 400  # not 400 + 40, and no reset between the two
    assert not [each for each in found["findings"] if each["check"] == "usage_counter_reset"]
    assert findings(name, goldens.content(name))["counter_of_a_part"] == 1


def test_qwen_a_telemetry_line_repeats_the_usage_and_adds_latency_alone() -> None:
    name = "qwen_code/chat.jsonl"
    whole = folded((name, goldens.content(name)))
    without = folded((name, ndjson([each for each in lines(name) if each.get("subtype") != "ui_telemetry"])))
    for column in ("total_input_tokens", "output_tokens", "cache_read_tokens"):
        assert whole["sessions"][0][column] == without["sessions"][0][column]
    told = {row["model_call_id"]: (row["message_id"], row["latency_ms"]) for row in whole["model_calls"]}
    assert told["q3"] == ("chatcmpl-1", 3900) and told["q8"] == (None, None)


def test_opencode_message_step_and_session_sums_are_one_usage_and_a_difference_is_said() -> None:
    name = "opencode/export.json"
    export = json.loads(goldens.content(name))
    assert folded((name, goldens.content(name)))["sessions"][0]["total_input_tokens"] == 2705
    assert "session_sum_differs" not in findings(name, goldens.content(name))
    export["info"]["tokens"]["input"] += 1
    changed = json.dumps(export).encode()
    assert findings(name, changed)["session_sum_differs"] == 1
    assert folded((name, changed))["sessions"][0]["total_input_tokens"] == 2705


def test_copilot_a_shutdown_repeats_what_the_calls_said() -> None:
    name = "copilot_cli/stream.jsonl"
    found = folded((name, goldens.content(name)))
    assert (found["sessions"][0]["total_input_tokens"], found["sessions"][0]["output_tokens"]) == (80, 6)


# --- counters ---


def test_copilot_sums_that_fall_are_a_new_process_and_count_again() -> None:
    name = "copilot_cli/events.jsonl"
    found = folded((name, goldens.content(name)))
    assert found["sessions"][0]["total_input_tokens"] == 900 + 300
    assert [each["count"] for each in found["findings"] if each["check"] == "usage_counter_reset"] == [1]


def test_copilot_a_session_that_crashed_has_no_input_figures() -> None:
    name = "copilot_cli/events.jsonl"
    found = folded((name, ndjson([each for each in lines(name) if each["type"] != "session.shutdown"])))
    assert (found["sessions"][0]["total_input_tokens"], found["sessions"][0]["output_tokens"]) == (None, 57)


def test_openhands_totals_that_repeat_add_nothing() -> None:
    name = "openhands/conv-4/events.jsonl"
    records = lines(name)
    stats = next(each for each in records if each.get("key") == "stats" and each["id"] == "e9")
    again = [{**stats, "id": "e9b", "timestamp": "2026-03-04T10:00:09.250000"}]
    found = folded((name, ndjson([*records, *again])))
    assert found["sessions"][0]["total_input_tokens"] == 320


# --- copies ---


def test_pi_a_branch_in_a_file_of_its_own_counts_its_parents_calls_once_in_the_fleet() -> None:
    names = ("pi/session.jsonl", "pi/branch.jsonl")
    found = folded(*((name, goldens.content(name)) for name in names))
    assert sum(row["output_tokens"] for row in found["sessions"]) == 150 + 25
    assert sum(row["inherited"] for row in found["model_calls"]) == 2


def test_opencode_a_fork_copies_its_calls_under_new_ids_and_they_count_once() -> None:
    name = "opencode/export.json"
    text = goldens.content(name).decode()
    fork = text.replace("ses_1f00Aa", "ses_2f00Bb").replace('"msg_', '"msg_f').replace('"prt_', '"prt_f')
    found = folded((name, text.encode()), (name, fork.encode()))
    assert sum(row["output_tokens"] or 0 for row in found["sessions"]) == 160
    assert len(found["sessions"]) == 2


def test_deepseek_harness_a_fork_leaves_its_parents_calls_to_the_parent() -> None:
    name = "deepseek_harness/fork.v3.jsonl"
    found = folded((name, goldens.content(name)))
    (session,) = found["sessions"]
    assert (session["output_tokens"], session["turn_count"], session["total_tool_calls"]) == (7, 1, 0)
    assert findings(name, goldens.content(name))["copied_history"] == 17


def test_deepseek_harness_a_session_that_was_migrated_counts_once_in_either_order() -> None:
    old, new = "deepseek_harness/session.jsonl", "deepseek_harness/session.v3.jsonl"
    both = [(old, goldens.content(old)), (new, goldens.content(new))]
    assert folded(*both)["sessions"] == folded(*reversed(both))["sessions"]
    assert folded(*both)["sessions"][0]["output_tokens"] == 33


def test_cline_a_request_that_was_announced_and_filled_in_is_one_call_and_one_after_a_checkpoint_is_another() -> (
    None
):
    name = "cline/1772000000000/ui_messages.json"
    messages = json.loads(goldens.content(name))
    announced = [*messages[:5], {**messages[5], "text": '{"request":"x"}'}]
    both = folded((name, json.dumps(announced).encode()), (name, goldens.content(name)))
    assert both["sessions"][0]["model_call_count"] == 4
    restored = {
        **messages[5],
        "ts": messages[5]["ts"] + 900_000,
        "text": messages[5]["text"].replace('"tokensOut": 30', '"tokensOut": 7'),
    }
    after = folded((name, json.dumps([*messages[:5], restored]).encode()), (name, goldens.content(name)))
    assert after["sessions"][0]["output_tokens"] == 90 + 7


# --- retries and failures ---


def test_deepseek_harness_usage_that_was_streamed_is_one_attempts() -> None:
    place = {"turn": 1, "step": 1}
    streamed = {"type": "usage", "usage": {"inputTokens": 100, "outputTokens": 20}}
    settled = [{"usage": {"inputTokens": 100, "outputTokens": 20}}, {}]
    told = [
        ("assistant/chunk", {**place, "chunk": streamed}),
        *(("assistant/message", {**place, **each, "message": {"content": []}}) for each in settled),
    ]
    records: list[dict[str, Any]] = [{"type": "session", "version": 3, "id": "d", "createdAt": 1772618400000}]
    records += [{"type": kind, "seq": seq, "data": data} for seq, (kind, data) in enumerate(told)]
    found = folded(("deepseek_harness/session.v3.jsonl", ndjson(records)))
    assert [row["output_tokens"] for row in found["model_calls"]] == [20, None]


def test_deepseek_harness_a_retried_attempt_is_billed_and_the_next_one_knows_it() -> None:
    name = "deepseek_harness/session.v3.jsonl"
    found = folded((name, goldens.content(name)))
    told = [
        (row["status"], row["retries"], row["fidelity"], row["output_tokens"]) for row in found["model_calls"]
    ]
    assert told == [
        ("failed", 0, "lower_bound", 4),
        ("completed", 1, "exact", 20),
        ("completed", 0, "exact", 9),
    ]


def test_qwen_gemini_pi_and_cline_say_why_a_call_failed() -> None:
    expected = {
        "qwen_code/chat.jsonl": "rate_limit",
        "gemini_cli/rewrite-3.json": "rate_limit",
        "pi/session.jsonl": "cut",
        "cline/1772000000000/ui_messages.json": "cut",
        "opencode/export.json": "cut",
        "copilot_cli/events.jsonl": "rate_limit",
        "capsem/vm-7/session.sql": "overloaded",
    }
    for name, kind in expected.items():
        classes = [
            event["payload"]["error_class"]
            for event in goldens.read(name).events
            if event["type"] == "model_call.failed"
        ]
        assert classes == [kind], name


def test_cline_a_retry_belongs_to_the_request_before_it() -> None:
    name = "cline/1772000000000/ui_messages.json"
    found = folded((name, goldens.content(name)))
    assert [row["retries"] for row in found["model_calls"]] == [0, 1, 0, 0]


# --- where tokens stand ---


def test_gemini_thoughts_stand_beside_the_output_and_tool_prompts_where_the_total_says() -> None:
    assert gemini_usage({"input": 100, "output": 10, "cached": 40, "thoughts": 5, "tool": 7, "total": 122}) == {
        "input": 107, "output": 10, "cache_read": 40, "reasoning": 5, "total": 122,
    }  # fmt: skip
    inside = gemini_usage({"input": 100, "output": 10, "cached": 40, "thoughts": 5, "tool": 7, "total": 115})
    assert inside is not None and inside["input"] == 100
    assert gemini_usage({"input": 0, "output": 0, "cached": 0, "thoughts": 0, "tool": 0, "total": 0}) is None


@pytest.mark.parametrize(
    ("total", "convention", "source"),
    [
        (120, "inclusive", "event"),
        (125, "inclusive_thoughts_separate", "event"),
        (130, "inclusive", "estimate"),
        (None, "inclusive", "estimate"),
    ],
)
def test_qwen_the_total_says_whether_thoughts_stand_inside_the_output(
    total: int | None, convention: str, source: str
) -> None:
    given = {
        "promptTokenCount": 100,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 5,
        "totalTokenCount": total,
    }
    assert qwen_usage(given)[1:] == (convention, source)


@pytest.mark.parametrize(
    ("total", "output", "source"), [(170, 20, "event"), (175, 25, "event"), (None, 25, "estimate")]
)
def test_opencode_reasoning_is_added_unless_it_stands_inside_the_output(
    total: int | None, output: int, source: str
) -> None:
    tokens = {"input": 100, "output": 20, "reasoning": 5, "cache": {"read": 50, "write": 0}, "total": total}
    usage, told = opencode_usage(tokens)
    assert usage is not None
    assert (usage["output"], usage["reasoning"], told) == (output, 5, source)


def test_swe_agent_the_cached_part_of_the_input_is_unknown_and_its_sum_is_not() -> None:
    name = "swe_agent/run.traj"
    (session,) = folded((name, goldens.content(name)))["sessions"]
    assert (session["input_uncached_tokens"], session["total_input_tokens"]) == (None, 900)
    assert findings(name, goldens.content(name))["requests_without_a_step"] == 1


def test_capsem_a_google_call_without_thinking_has_its_output() -> None:
    name = "capsem/vm-6/session.sql"
    found = folded((name, goldens.content(name)))
    assert [row["output_tokens"] for row in found["model_calls"]] == [15, 20, None]


def test_capsem_parallel_calls_of_one_tool_are_two_and_one_of_them_unanswered() -> None:
    name = "capsem/vm-6/session.sql"
    found = folded((name, goldens.content(name)))
    of_model = [
        (row["call_id"], row["pairing"]) for row in found["tool_calls"] if row["tool_name"] == "read_file"
    ]
    assert of_model == [("read_file", "paired"), ("read_file#2", "missing_result")]


def test_capsem_a_proxied_mcp_call_and_its_transport_are_one_tool_call() -> None:
    name = "capsem/vm-7/session.sql"
    found = folded((name, goldens.content(name)))
    assert [(row["tool_name"], row["origin"]) for row in found["tool_calls"]] == [
        ("bash", "native"),
        ("fetch_http", "mcp"),
    ]


def test_capsem_event_ids_of_a_migrated_ledger_are_no_identity() -> None:
    events = goldens.read("capsem/vm-7/session.sql").events
    assert len({(event["stream"], event["seq"]) for event in events}) == len(events)
    assert "000000000000" not in {event.get("event_id") for event in events}


# --- unknown is not zero ---


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("pi/session.jsonl", b'"output": 80', b'"output": "[REDACTED]"'),
        ("qwen_code/chat.jsonl", b'"candidatesTokenCount": 20', b'"candidatesTokenCount": "[REDACTED]"'),
        ("opencode/export.json", b'"output": 60,', b'"output": "[REDACTED]",'),
        ("gemini_cli/rewrite-3.json", b'"output": 20,', b'"output": "[REDACTED]",'),
        ("deepseek_harness/session.v3.jsonl", b'"outputTokens": 9', b'"outputTokens": "[REDACTED]"'),
    ],
)
def test_a_figure_of_the_wrong_type_is_unknown_and_the_file_goes_on(
    name: str, old: bytes, new: bytes
) -> None:
    content = goldens.content(name)
    assert content.count(old) >= 1
    whole, changed = folded((name, content)), folded((name, content.replace(old, new)))
    figures = [[row["output_tokens"] for row in found["model_calls"]] for found in (whole, changed)]
    assert [now for was, now in zip(*figures, strict=True) if was != now] == [None]
    assert changed["sessions"][0]["model_call_count"] == whole["sessions"][0]["model_call_count"]


EMPTY = [
    ("gemini_cli/rewrite-1.json", b'{"sessionId":"s","projectHash":"p","startTime":"2026-03-04T10:00:00Z","messages":[]}'),
    ("opencode/export.json", b'{"info":{"id":"ses_1","directory":"/srv"},"messages":[]}'),
    ("swe_agent/run.traj", b'{"trajectory":[],"info":{"exit_status":"exit_error","model_stats":{"tokens_sent":0,"tokens_received":0,"api_calls":0}}}'),
    ("pi/session.jsonl", b'{"type":"session","version":3,"id":"p","timestamp":"2026-03-04T10:00:00Z","cwd":"/srv"}\n'),
    ("copilot_cli/events.jsonl", b'{"type":"session.start","id":"e","timestamp":"2026-03-04T10:00:00Z","parentId":null,"data":{"sessionId":"s"}}\n'),
    ("deepseek_harness/session.v3.jsonl", b'{"type":"session","version":3,"id":"d","createdAt":1772618400000,"cwd":"/srv"}\n'),
    ("aider/history.md", b"# aider chat started at 2026-03-04 10:00:00\n"),
    ("cline/1772000000000/ui_messages.json", b'[{"ts":1772000000000,"type":"say","say":"task","text":"hi"}]'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content"), EMPTY, ids=[name for name, _ in EMPTY])
def test_a_session_without_any_call_is_a_session_with_nothing_known(name: str, content: bytes) -> None:
    (session,) = folded((name, content))["sessions"]
    assert session["model_call_count"] == 0
    assert (session["total_input_tokens"], session["output_tokens"], session["usage_total"]) == (
        None,
        None,
        0,
    )


# --- times ---


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (1_772_618_400, "2026-03-04T10:00:00Z"),
        (1_772_618_400.25, "2026-03-04T10:00:00.25Z"),
        (1_772_618_400_250, "2026-03-04T10:00:00.25Z"),
        (1_772_618_400_250_001, "2026-03-04T10:00:00.250001Z"),
        (1_772_618_400_250_001_000, "2026-03-04T10:00:00.250001Z"),
        ("2026-03-04T10:00:00.5+02:00", "2026-03-04T10:00:00.5+02:00"),
        ("2026-03-04 10:00:00", "2026-03-04T10:00:00Z"),
        ("2026-02-30T10:00:00", None),
        (0, None),
        (-5, None),
        (True, None),
        (float("inf"), None),
        (None, None),
    ],
)
def test_a_time_is_read_in_whatever_unit_and_never_invented(value: Any, told: str | None) -> None:
    assert moment_of(value, Notes()) == told


def test_a_time_without_a_zone_is_read_as_utc_and_counted() -> None:
    notes = Notes()
    moment_of("2026-03-04T10:00:00.5", notes)
    assert notes.traits["time_without_zone"] == 1
    name = "openhands/conv-4/events.jsonl"
    assert findings(name, goldens.content(name))["time_without_zone"] == 12


def test_swe_agent_has_no_times_and_its_steps_keep_their_order() -> None:
    name = "swe_agent/run.traj"
    found = folded((name, goldens.content(name)))
    assert {event.get("occurred_at") for event in goldens.read(name).events} == {None}
    assert [row["tool_name"] for row in found["tool_calls"]] == ["find_file", "edit", "submit"]


# --- other ---


def test_the_model_is_the_calls_own_where_it_changes_in_mid_session() -> None:
    expected = {
        "gemini_cli/rewrite-3.json": [
            "gemini-2.5-pro",
            "gemini-2.5-pro",
            "gemini-2.5-flash",
            None,
            "gemini-2.5-flash",
        ],
        "opencode/export.json": ["claude-sonnet-4-5", "claude-sonnet-4-5", "gpt-5", "gpt-5"],
    }
    for name, models in expected.items():
        assert [row["model"] for row in folded((name, goldens.content(name)))["model_calls"]] == models, name


@pytest.mark.parametrize(
    "name",
    ["qwen_code/chat.jsonl", "copilot_cli/events.jsonl", "pi/session.jsonl", "openhands/conv-4/events.jsonl"],
)
def test_glued_cut_and_torn_lines_cost_what_they_hold_and_nothing_else(name: str) -> None:
    content = goldens.content(name)
    whole = folded((name, content))
    first, rest = content.split(b"\n", 1)
    assert folded((name, first + rest))["digest"] == whole["digest"]
    assert folded((name, content.rstrip(b"\n")))["digest"] == whole["digest"]
    assert folded((name, b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")))["digest"] == whole["digest"]
    torn = goldens.read(name, content + b'{"torn": "\xff')
    assert torn.quarantined == goldens.read(name, content).quarantined + 1
    assert [event for event in torn.events] == goldens.read(name, content).events


@pytest.mark.parametrize(
    ("shown", "figure"),
    [
        ("9.8k", 9800),
        ("994", 994),
        ("1,200", 1200),
        ("2k", 2000),
        ("1.25M", 1_250_000),
        ("x", None),
        (None, None),
    ],
)
def test_aider_figures_for_people_are_read_as_they_are_meant(shown: str | None, figure: int | None) -> None:
    assert rounded(shown) == figure


def test_aider_figures_for_people_are_estimates_and_those_of_the_log_are_exact() -> None:
    for name, fidelity in (("aider/history.md", "estimated"), ("aider/analytics.jsonl", "exact")):
        found = folded((name, goldens.content(name)))
        assert {row["fidelity"] for row in found["model_calls"] if row["status"] == "completed"} == {fidelity}


def test_sidecar_results_pair_with_the_oldest_open_call_of_their_name_and_a_torn_line_is_a_declared_gap() -> (
    None
):
    name = "sidecar/run-17.jsonl"
    twice = [
        {"UserMessage": {"text": "x"}},
        {"ToolCall": {"name": "f", "args": {"n": 1}}},
        {"ToolCall": {"name": "f", "args": {"n": 2}}},
        {"ToolResult": {"name": "f", "output": "one"}},
        {"ToolResult": {"name": "g", "output": "nobody's"}},
    ]
    found = folded((name, ndjson(twice)))
    assert [(row["call_id"], row["pairing"]) for row in found["tool_calls"]] == [
        ("run-17:1", "paired"), ("run-17:2", "pending"), ("run-17:4", "orphan_result"),
    ]  # fmt: skip
    gaps = folded((name, goldens.content(name)))["gaps"]
    assert [(gap["stream"], gap["from_seq"], gap["to_seq"], gap["state"]) for gap in gaps] == [
        ("log", 7, 7, "declared_lost")
    ]


def test_sidecar_a_longer_copy_fills_the_gap_of_a_torn_line() -> None:
    name = "sidecar/run-17.jsonl"
    longer = goldens.content(name) + b'xt": "thanks"}}\n'
    found = folded((name, goldens.content(name)), (name, longer))
    assert found["gaps"] == []
    assert found["sessions"][0]["turn_count"] == 2


@pytest.mark.parametrize(
    "damage", ["", "UPDATE message SET id = CAST(x'6d7367ff31' AS TEXT) WHERE id = 'msg_1'"]
)
def test_opencode_parts_found_by_an_index_are_those_found_without(damage: str) -> None:
    """Large databases have one, and are not held."""
    name, told = "opencode/database.sql", []
    for index in (
        "",
        "DROP INDEX part_message_idx",
        "DROP INDEX part_message_idx; CREATE INDEX p ON part (id, message_id)",
    ):
        connection = sqlite3.connect(":memory:")
        connection.executescript((goldens.FOLDER / name).read_text())
        connection.execute(
            "INSERT INTO part SELECT id || 'x', 'msg_gone', session_id, time_created, data FROM part"
        )
        connection.executescript(f"{index};{damage};")
        connection.commit()
        told.append(goldens.read(name, connection.serialize()).events)
        connection.close()
    keys = [sorted(event["receipt_key"] for event in events) for events in told]
    assert keys[0] == keys[1] == keys[2]
    assert len(set(keys[0])) > 21
