"""Whose file it is, which files are read, and what the samples table says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fixtures.harness import claude, codex
from tests.fixtures.harness.folded import reading
from turnledger.errors import TurnledgerError
from turnledger.harness import samples
from turnledger.harness.importer import files_in, harness_of, read_file


@pytest.mark.parametrize(
    ("record", "whose"),
    [
        (claude.prompt("u1", None, 0, "hi"), "claude-code"),
        ({"type": "summary", "summary": "x", "leafUuid": "y"}, "claude-code"),
        ({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}, "claude-code"),
        (codex.meta(), "codex"),
        (codex.event("token_count", 1, info=None), "codex"),
        (
            {
                "type": "user",
                "sessionId": "s",
                "uuid": "u",
                "message": {"role": "user", "parts": [{"text": "hi"}]},
            },
            "qwen-code",
        ),
        ({"type": "system", "sessionId": "s", "uuid": "u", "subtype": "ui_telemetry"}, None),
        ({"type": "session.start", "data": {"sessionId": "s"}}, None),
        ({"session_id": "s", "seq": 0, "type": "x"}, None),
        ({}, None),
    ],
)
def test_a_harness_is_recognised_by_what_only_it_writes(record: dict[str, object], whose: str | None) -> None:
    assert harness_of([record]) == whose


def test_lines_that_say_nothing_do_not_hide_the_harness(tmp_path: Path) -> None:
    assert reading(tmp_path, b'{"note":1}\n' + codex.ndjson(codex.rollout())).harness == "codex"


def test_folders_are_searched_for_session_files_in_a_fixed_order_and_each_once(tmp_path: Path) -> None:
    for name in (
        "b/two.jsonl",
        "a/one.jsonl.zst",
        "a/deep/three.jsonl.gz",
        "a/readme.md",
        "a/agent-x.meta.json",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    named = tmp_path / "a" / "readme.md"
    found = [path.relative_to(tmp_path).as_posix() for path in files_in([tmp_path, tmp_path / "b", named])]
    assert found == ["a/one.jsonl.zst", "a/deep/three.jsonl.gz", "b/two.jsonl", "a/readme.md"]


def test_a_path_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TurnledgerError, match="does not exist"):
        files_in([tmp_path / "none"])


def test_the_small_file_beside_a_sub_agent_names_the_tool_call_that_started_it(tmp_path: Path) -> None:
    own = {"isSidechain": True, "agentId": "aa"}
    lines = [
        claude.prompt("x1", None, 2, "look", **own),
        claude.answer("x2", "x1", 3, "msg_a", claude.text("seen"), claude.usage(5), stop="end_turn", **own),
    ]
    (tmp_path / "agent-aa.jsonl").write_bytes(claude.ndjson(lines))
    (tmp_path / "agent-aa.meta.json").write_text(json.dumps({"agentType": "finder", "toolUseId": "toolu_7"}))
    started = [
        each for each in read_file(tmp_path / "agent-aa.jsonl").events if each["type"] == "subagent.started"
    ]
    assert [(each["tool_call_id"], each["trace_id"], each["occurred_at"]) for each in started] == [
        ("toolu_7", "agent:aa", claude.at(2))
    ]


def test_the_samples_table_lays_the_naive_sum_beside_and_compares(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "one.jsonl").write_bytes(claude.ndjson(claude.conversation()))
    (tmp_path / "two.jsonl").write_bytes(codex.ndjson(codex.rollout()))
    truth = {
        "input_tokens": 450,
        "cached_input_tokens": 300,
        "output_tokens": 37,
        "reasoning_output_tokens": 6,
    }
    claude_sum = {
        "input_tokens": 40,
        "cache_read_input_tokens": 750,
        "cache_creation_input_tokens": 7,
        "output_tokens": 101,
    }
    reference = {
        "c/one.jsonl": {"dedup_sum": claude_sum, "dedup_cache_write_5m": 7, "dedup_cache_write_1h": 0, "model_calls": 4, "api_error_lines": 0},
        "two.jsonl": {"delta_sum": truth, "final_total": truth},
    }  # fmt: skip
    (tmp_path / "reference.json").write_text(json.dumps(reference))
    rows, wrong = samples.table(tmp_path)
    # naive Claude: three lines of the first call repeat its input 10, read 100, write 7; naive Codex: one count stands twice
    assert [row[:9] + row[10:] for row in rows] == [
        ("two.jsonl", "3", "0", "2", "450", "150", "300", "–", "37", "600", "57", "equal"),
        (
            "c/one.jsonl",
            "4",
            "0",
            "2",
            "797",
            "40",
            "750",
            "7",
            "100",
            "1,031",
            "102",
            "DIFFERENT: dedup_sum output_tokens 100≠101",
        ),
    ]
    assert wrong == 1
    assert samples.main([str(tmp_path)]) == 1
    assert samples.main([str(tmp_path / "none")]) == 2
