"""Whole ledgers of Capsem, imported and rolled up: the figures are written down by hand from the contract, and each one that Capsem has otherwise is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.fixtures.capsem_db import early, full
from tests.fixtures.harness.folded import catalogue
from turnledger.fold.document import document
from turnledger.harness.importer import read_file
from turnledger.pricing import Prices, Published


def folded(path: Path) -> dict[str, Any]:
    reading = read_file(path)
    assert (reading.harness, reading.quarantined) == ("capsem", 0)
    return document([orjson.dumps(event) for event in reading.events], Prices([Published(catalogue(), None)]))


def only(found: dict[str, Any], table: str) -> dict[str, Any]:
    (row,) = found[table]
    return dict(row)


def checks(found: dict[str, Any]) -> dict[str, int]:
    return {row["check"]: row["count"] for row in found["findings"]}


@pytest.fixture(scope="module")
def b1(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return folded(early(tmp_path_factory.mktemp("b1") / "vm-1" / "session.db"))


@pytest.fixture(scope="module")
def b2(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return folded(full(tmp_path_factory.mktemp("b2") / "vm-2" / "session.db"))


def test_an_early_ledger_rolls_up_to_its_golden_figures(b1: dict[str, Any]) -> None:
    row = only(b1, "sessions")
    assert [row[name] for name in ("total_requests", "allowed_requests", "denied_requests")] == [7, 6, 1]
    assert row["total_input_tokens"] == 20_177
    # Capsem says 201: what Gemini thought (440) is billed as output and stands beside it there.
    assert (row["output_tokens"] - row["reasoning_tokens"], row["output_tokens"]) == (201, 641)
    assert (
        row["model_call_count"],
        row["failed_model_calls"],
        row["usage_reported"],
        row["usage_total"],
    ) == (4, 1, 3, 3)
    assert row["total_tool_calls"] == 1 + 7
    assert sum(one["call_count"] for one in b1["mcp_usage"]) == 7
    assert row["total_file_events"] == 20


def test_a_full_ledger_gives_the_sums_that_the_contract_says(b2: dict[str, Any]) -> None:
    row = only(b2, "sessions")
    expected = {
        "session_id": "vm-2",
        "kind": "import",
        "status": "running",
        "turn_count": 6,
        "total_requests": 4, "allowed_requests": 2, "denied_requests": 1, "error_requests": 1,  # scenario 3; a redirected name is no request
        "model_call_count": 10, "failed_model_calls": 3,  # 17: 429, 429, then 200; 18: 403 without a model
        "usage_reported": 6, "usage_total": 7,  # 4: qwen3 said nothing, and that is not 0
        # Anthropic's input excludes what its cache gave: 310 + 30 + 20 + 20; Google's includes it: 1,728 + 100.
        "total_input_tokens": 2208, "input_uncached_tokens": 1041, "cache_read_tokens": 1167,
        "output_tokens": 424, "reasoning_tokens": 314,  # 20 + 5 + 2 + 2 (27: a stream that was cut) + 71 + 314 + 10
        # 420 + 165 + 90 + 90 of Claude (10 × 3 + 300 × 0.3 + 20 × 15 …), 249 + 14 of Gemini, each rounded by itself (9). Capsem's own 0.25 $ is kept beside.
        "cost_micro_usd": 1028, "unpriced_calls": 0,
        # 1: bash, the proxied call with its transport as one; 12: two under one id; 5: one tool name of two servers.
        "total_tool_calls": 6, "tool_errors": 1,
        "total_file_events": 3,  # 6: the overflow marker is none
        "exec_count": 3,  # 7: exec 1 of a later process is another one
        "audit_event_count": 2,
        "grade": "partial",
        "open_gaps": 0, "conflicts": 0, "dead_letters": 0,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected


def test_a_full_ledger_splits_by_provider_and_model_and_by_tool(b2: dict[str, Any]) -> None:
    assert [
        (row["provider"], row["model"], row["call_count"], row["failed_count"], row["total_input_tokens"], row["output_tokens"], row["cost_micro_usd"])
        for row in b2["ai_usage"]
    ] == [
        ("anthropic", "claude-sonnet-4-5", 6, 2, 380, 29, 765),
        ("google", "gemini-2.5-flash-lite", 2, 0, 1828, 395, 263),
        ("ollama", "qwen3", 1, 0, None, None, None),
        ("openai", "unknown", 1, 1, None, None, None),
    ]  # fmt: skip
    assert [
        (row["tool_name"], row["origin"], row["call_count"], row["error_count"]) for row in b2["tool_usage"]
    ] == [
        ("bash", "native", 1, 0),
        ("find", "mcp", 1, 0),
        ("read_file", "native", 2, 0),
        ("search", "mcp", 2, 1),
    ]
    # The proxied call has its duration from the wire: what the model was given back has none.
    assert [
        (row["server_name"], row["tool_name"], row["call_count"], row["total_duration_ms"])
        for row in b2["mcp_usage"]
    ] == [
        ("github", "search", 1, None),
        ("linear", "search", 1, None),
        ("srv", "find", 1, 40),
    ]


def test_a_call_whose_result_was_sent_again_stays_one_call(b2: dict[str, Any]) -> None:
    """Scenario 11: a reader that joins by call id counts it twice."""
    (bash,) = [row for row in b2["tool_calls"] if row["tool_name"] == "bash"]
    assert (bash["call_id"], bash["pairing"], bash["requested_by"], bash["consumed_by"]) == (
        "toolu_1",
        "paired",
        "1",
        "2",
    )


def test_a_call_keeps_the_method_and_the_path_that_it_went_to(b2: dict[str, Any]) -> None:
    assert {(call["method"], call["path"]) for call in b2["model_calls"]} == {("POST", "/v1")}


def test_two_exchanges_that_use_one_id_leave_one_unanswered(b2: dict[str, Any]) -> None:
    """Scenario 12: joined by the id alone, none would seem to be missing."""
    reads = [
        (row["requested_by"], row["pairing"]) for row in b2["tool_calls"] if row["tool_name"] == "read_file"
    ]
    assert sorted(reads) == [("7", "paired"), ("8", "missing_result")]


def test_a_later_process_with_the_same_number_leaves_the_old_row_alone(b2: dict[str, Any]) -> None:
    """Scenario 7."""
    assert [(row["exec_id"], row["command"], row["exit_code"]) for row in b2["exec_events"]] == [
        ("1", "agent", 0),
        ("2", "sleep 60", None),
        ("1", "agent again", 3),
    ]


def test_one_event_with_three_rules_is_three_matches_and_one_request(b2: dict[str, Any]) -> None:
    """Scenario 8."""
    assert [row["rule_id"] for row in b2["security_rule_events"]] == ["r0", "r1", "r2"]
    assert len({row["for_event_id"] for row in b2["security_rule_events"]}) == 1
    assert (len(b2["security_decisions"]), [row["status"] for row in b2["security_asks"]]) == (
        1,
        ["pending", "approved"],
    )


def test_every_other_table_is_told_row_by_row(b2: dict[str, Any]) -> None:
    counts = {
        table: len(b2[table])
        for table in ("net_events", "dns_events", "fs_events", "audit_events", "credential_events")
    }
    assert counts == {
        "net_events": 4,
        "dns_events": 2,
        "fs_events": 4,
        "audit_events": 2,
        "credential_events": 2,
    }


def test_what_is_odd_about_a_full_ledger_is_found(b2: dict[str, Any]) -> None:
    assert checks(b2) == {
        "null_tokens": 1,  # qwen3
        "tool_missing_result": 1,  # the second read_file
        "mcp_without_tool_call": 2,  # github and linear: no model of this ledger asked for them
        "turn_without_end": 2,  # the refused exchange, and the one that waits for its tool
    }
