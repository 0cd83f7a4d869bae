"""Why a finding may be so: each reason is made of the evidence beside it, tells causes apart where the evidence does, and never fails for want of it."""

from __future__ import annotations

from typing import Any

import pytest

from turnledger.doctor.findings import Evidence, Finding, Place, Seen
from turnledger.doctor.why import REASONS, explain
from turnledger.doctor.why.session import own_findings

AT = {"producer": "vm", "epoch": 0, "stream": "bus", "seq": 4}
HERE = Place("vm", 0, "bus", 4, None)
HOLE = {"producer": "vm", "epoch": 0, "stream": "bus", "from_seq": 3, "to_seq": 5, "state": "open"}
FIGURES = {"total_input": 10, "output": 5}
SAMPLES: dict[str, dict[str, Any]] = {
    "open_gap": HOLE,
    "declared_loss": {**HOLE, "state": "declared_lost"},
    "superseded_stream": {"producer": "vm", "epoch": 1, "stream": "file:a"},
    "conflict": {**AT, "receipt_key": None, "kept_sha256": "a", "lost_sha256": "b"},
    "dead_letter": {"topic": "t", "partition": 0, "position": 7, "reason": "json", "field": None, "detail": "x"},
    "key_mismatch": {"topic": "t", "partition": 0, "first": 1, "last": 2},
    "event_after_close": {"producer": "vm", "epoch": 0, "stream": "bus", "last_seq": 9, "from_seq": 10, "to_seq": 11},
    "late_after_vacuum": AT,
    "unknown_event_type": {"type": "odd"},
    "newer_schema_version": {"schema_version": 3},
    "wrong_type_in_payload": {**AT, "type": "net.requested", "field": "port"},
    "secret_redacted_at_ingest": {**AT, "redactions": []},
    "turn_open_in_ended_session": {"turn_key": "t"},
    "turn_without_start": {"turn_key": "t"},
    "turn_without_end": {"turn_key": "t"},
    "turn_index_ambiguous": {"turn_key": "#1", "turn_index": 1, "turn_ids": ["a", "b"]},
    "turn_two_indexes": {"turn_key": "t", "turn_indexes": [1, 2]},
    "fork_cycle": {"parent_session_id": "p"},
    "call_without_record": {"turn_key": "t", "model_call_id": "c"},
    "message_id_reused": {**AT, "message_id": "m"},
    "traffic_without_model_call": {**AT, "domain": "api.openai.com"},
    "null_model": {**AT, "call_key": "k"},
    "null_tokens": {**AT, "call_key": "k", "model_call_id": "c"},
    "inherited_without_source": {"turn_key": "t", "model_call_id": "c", "message_id": None},
    "usage_unknown_convention": {**AT, "provider": "x"},
    "usage_negative_bucket": AT,
    "usage_unknown_start": {**AT, "usage_stream": "a/b"},
    "usage_counter_reset": {**AT, "usage_stream": "a/b"},
    "usage_counter_contradiction": {**AT, "usage_stream": "a/b"},
    "usage_open_predecessor": {**AT, "usage_stream": "a/b"},
    "usage_copies_differ": {**AT, "usage_stream": "a/b", "copies": 2},
    "usage_call_total_differs": {**AT, "turn_key": "t", "provider": "x", "contribution": FIGURES, "calls": FIGURES},
    "usage_rollup_differs": {**AT, "differs": {"output": {"rollup": 6, "sum": 5}}},
    "usage_snapshot_without_call": AT,
    "unpriced_model": {"provider": "x", "model": None, "calls": 2},
    "tool_missing_result": {"turn_key": "t", "tool_key": "k", "tool_call_id": "c", "tool_name": "ls"},
    "tool_orphan_result": {"turn_key": None, "tool_key": "k", "tool_call_id": None, "tool_name": None},
    "mcp_without_tool_call": {**AT, "server_name": "s", "tool_name": None},
    "response_names_no_call": {**AT, "tool_call_id": "c", "model_call_id": None},
    "projection_differs_from_fold": {"what": "turns lacks a row", "table": "turns", "key": "t"},
    "rollup_differs_from_projection": {"what": "sessions.x differs", "table": "sessions", "key": 0, "stored": None, "computed": 3},
    "ledger_contradicts_itself": {"what": "an event is in the ledger twice", **AT},
    "no_net_events": {"watched": ["fs_events"], "model_calls": 2},
    "no_file_events": {"watched": ["fs_events"], "tools": ["edit"]},
    "no_tool_calls": {"calls_that_stopped_for_a_tool": 2},
    "no_cost": {"cost_micro_usd": None, "unpriced_calls": 0, "usage_reported": 0, "usage_total": 3, "total_input_tokens": None, "output_tokens": None},
    "fs_overflow": {"windows": 1, "deferred": None, "first_at": None, "last_at": None},
    "request_without_security_rule": {"event_id": "aaaaaaaaaaaa", "domain": "a.example", "occurred_at": None},
    "mcp_unknown_method": {"method": "tools/cal", "observed": 1},
}  # fmt: skip
"""A row of each check, as whoever finds it writes it."""


def why(check: str, evidence: Evidence | None = None, *rows: dict[str, Any], count: int | None = None) -> str:
    listed = rows or (SAMPLES[check],)
    return explain(Finding(check, "warning", count or len(listed), listed), evidence or Evidence()).why


def after(check: str, evidence: Evidence) -> str:
    return explain(Finding(check, "warning", 1, (SAMPLES[check],)), evidence).next


def test_there_is_a_sample_of_every_check() -> None:
    assert set(SAMPLES) == set(REASONS)


@pytest.mark.parametrize("check", sorted(SAMPLES))
def test_a_finding_of_which_all_evidence_is_gone_has_a_reason_all_the_same(check: str) -> None:
    """As in a session whose events were deleted."""
    reason = explain(Finding(check, "warning", 1, (SAMPLES[check],)), Evidence(tenant="acme", session_id="s"))
    assert reason.why and reason.next
    assert "None" not in reason.why, reason.why


def test_a_check_of_a_newer_version_is_shown() -> None:
    assert (
        explain(Finding("brand_new", "info", 1, ({},)), Evidence()).why
        == "this version of turnledger does not know the check 'brand_new'"
    )


# --- delivery -----------------------------------------------------------------------------------------------------------------------

BEFORE, BEHIND = Seen("turn.started", "2026-03-01T10:00:02.000000Z", {}), Seen("turn.completed", None, {})
PLACE = ("vm", 0, "bus", 3)


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        (Evidence(around={PLACE: (BEFORE, BEHIND)}), "lies between turn.started at 2026-03-01 10:00:02Z and turn.completed: both neighbours came"),
        (Evidence(around={PLACE: (None, BEHIND)}), "is the beginning: the first event that came is turn.completed"),
        (
            Evidence(around={PLACE: (BEFORE, None)}, declared=[Seen("stream.closed", None, {"last_seq": 5})]),
            "is the end (turn.started at 2026-03-01 10:00:02Z was the last): stream.closed says last_seq 5",
        ),
        (
            Evidence(around={PLACE: (BEFORE, BEHIND)}, streams=[{"producer": "vm", "epoch": 2, "stream": "bus", "open_gaps": 0}]),
            "the producer went on under epoch 2",
        ),
        (Evidence(around={PLACE: (BEFORE, BEHIND)}, dead_letters=2), "2 records of this session are dead letters, and a dead record does "
        "not fill its position"),
    ],
    ids=["in the middle", "at the beginning", "at the end", "behind a restart", "beside dead letters"],
)  # fmt: skip
def test_a_gap_is_told_by_what_lies_around_it(evidence: Evidence, said: str) -> None:
    assert said in why("open_gap", evidence)
    assert why("open_gap", evidence).startswith("3 numbers of vm/bus never came; 3–5 of vm/bus ")


def test_a_gap_beside_dead_letters_is_looked_for_among_them_first() -> None:
    assert after("open_gap", Evidence("acme", "s", dead_letters=1)).startswith(
        "`turnledger dead list --session acme/s` first"
    )


def test_numbers_in_a_row_that_contradict_are_a_producer_without_a_new_epoch() -> None:
    rows = [{**SAMPLES["conflict"], "seq": seq} for seq in range(4)]
    assert "every number from 0 to 3 of vm/bus came with two contents" in why("conflict", None, *rows)
    assert "One record was changed between two sends" in why("conflict", None, rows[0], rows[3])


def test_a_stream_that_was_replaced_says_why() -> None:
    evidence = Evidence(declared=[Seen("stream.superseded", None, {"reason": "reader 2"})])
    assert why("superseded_stream", evidence) == (
        "vm/1/file:a is told better by another stream (reader 2): the fold leaves it out, the ledger keeps it"
    )


# --- calls --------------------------------------------------------------------------------------------------------------------------


def call(**values: Any) -> dict[str, Any]:
    names = (
        "provider",
        "model",
        "status",
        "status_code",
        "stop_reason",
        "path",
        "total_input_tokens",
        "output_tokens",
    )
    return {**dict.fromkeys(names), "status": "completed", **values}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (call(status="started"), "they were started and neither completed nor failed"),
        (call(status_code=404), "all were answered with status 404, which costs nothing"),
        (call(status_code=200), "none has a stop reason, so the stream was cut"),
        (
            call(status_code=200, stop_reason="end_turn"),
            "they ended well (end_turn), so the provider or the proxy does not tell usage here",
        ),
    ],
)
def test_tokens_that_nobody_told_are_explained_by_how_their_calls_ended(
    row: dict[str, Any], said: str
) -> None:
    assert said in why("null_tokens", Evidence(named_calls={"k": row}))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (call(status_code=404, path="/stealme"), "every one was answered with an error"),
        (call(status_code=200), "nor tokens: the body was not read at all"),
        (call(status_code=200, output_tokens=3), "although tokens are known"),
    ],
)
def test_a_model_that_nobody_named_is_explained_by_what_else_is_known(row: dict[str, Any], said: str) -> None:
    assert said in why("null_model", Evidence(named_calls={"k": row}))


def request(path: str | None) -> dict[str, Any]:
    return {
        "domain": "api.openai.com.",
        "decision": "allowed",
        "path": path,
        "status_code": 200,
        "requests": 1,
    }


def test_traffic_to_a_list_of_models_is_no_call() -> None:
    assert "none of the paths (/v1/models) is one that uses a model" in why(
        "traffic_without_model_call", Evidence(requests=[request("/v1/models")])
    )


def test_traffic_whose_answer_came_compressed_says_so() -> None:
    seen = Seen("net.requested", None, {"response_headers": {"Content-Encoding": "br"}})
    evidence = Evidence(requests=[request("/v1/responses")], events={HERE: seen})
    assert "the answers came with content-encoding br" in why("traffic_without_model_call", evidence)


# --- usage and tools ----------------------------------------------------------------------------------------------------------------


def test_a_running_total_is_told_with_its_figures() -> None:
    seen = Seen(
        "usage.reported", None, {"usage": {"input": 100, "output": 50}, "last": {"input": 10, "output": 5}}
    )
    for check in ("usage_unknown_start", "usage_counter_contradiction", "usage_counter_reset"):
        assert "total input 100, output 50, last input 10, output 5" in why(
            check, Evidence(events={HERE: seen})
        )


def test_a_result_whose_request_stands_in_another_turn_names_it() -> None:
    rows = [{**SAMPLES["tool_orphan_result"], "tool_call_id": "c", "turn_key": "t-2"}]
    other = {"tool_key": "other", "turn_key": "t-1", "pairing": "missing_result"}
    assert "in t-2; a request of that id stands in t-1" in why(
        "tool_orphan_result", Evidence(same_ids={"c": [other]}), *rows
    )


def test_an_id_that_stands_for_several_calls_is_named_as_such() -> None:
    evidence = Evidence(same_ids={"c": [{"tool_key": "k"}, {"tool_key": "l"}]})
    assert "1 id of them (c) stand for several calls" in why("tool_missing_result", evidence)


# --- the doctor's own ---------------------------------------------------------------------------------------------------------------


def own(**evidence: Any) -> list[str]:
    return [one.check for one in own_findings(Evidence(**evidence), {}, [], [])]


def test_a_transcript_that_nobody_watches_needs_no_requests_and_no_files() -> None:
    """Commands that a transcript tells are those that it ran itself."""
    counts = {"model_calls": 3, "tool_calls": 1, "exec_events": 2}
    assert own(counts=counts, tools=[{"tool_name": "write_file", "status": "ok"}]) == []


def test_a_session_that_is_watched_is_expected_to_have_both() -> None:
    tools = [{"tool_name": "write_file", "status": "ok"}]
    assert own(counts={"model_calls": 3, "tool_calls": 1, "dns_events": 1}, tools=tools) == [
        "no_net_events",
        "no_file_events",
    ]
    assert own(counts={"dns_events": 1}) == []


def test_a_transcript_that_tells_no_usage_at_all_is_not_a_stream_that_was_cut() -> None:
    evidence = Evidence(
        named_calls={"k": call()}, types=[{"type": "model_call.completed", "producer": "pi", "events": 1}]
    )
    assert "pi told usage of no call of this session" in why("null_tokens", evidence)
    assert "told by pi, which saw no response" in why("null_model", evidence)


def test_calls_that_stopped_for_tools_of_which_none_is_told_are_found() -> None:
    calls = [{"stop_reason": "tool_use", "calls": 2, "inherited": False}]
    assert own(counts={"model_calls": 2}, calls=calls) == ["no_tool_calls"]
    assert own(counts={"model_calls": 2, "tool_calls": 1}, calls=calls) == []


@pytest.mark.parametrize(
    ("sums", "calls", "said"),
    [
        ({"usage_reported": 0}, [], "none of 3 parts reported a token"),
        ({"usage_reported": 3, "unpriced_calls": 3}, [{"model": "house", "inherited": False}], "3 calls with tokens are of models that the "
        "catalogue does not know (house)"),
        ({"usage_reported": 3}, [{"model": "m", "inherited": True, "calls": 3}], "3 calls of the session are inherited"),
        ({"usage_reported": 3, "total_input_tokens": 9, "output_tokens": 1}, [], "3 of 3 parts reported 9 tokens in and 1 out, at a price of zero"),
    ],
)  # fmt: skip
def test_a_session_that_costs_nothing_says_which_nothing(
    sums: dict[str, Any], calls: list[dict[str, Any]], said: str
) -> None:
    row = {**SAMPLES["no_cost"], **sums}
    assert said in why("no_cost", Evidence(calls=calls), row)
