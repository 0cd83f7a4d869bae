"""What a transaction log laid against metrics demands of the ledger and the turn record (M-1 to M-5, T1-01, T1-06).

Reconciling itself is a command of its own; here stand the counts that it lays beside the metrics, and that no metric ever enters a total.
"""

from __future__ import annotations

from typing import Any

from tests.unit.contract_cases.envelopes import Case, Envelope, done, ev, found, table, turn
from turnledger.fold.document import document, lines
from turnledger.pricing import packaged, price_call


def said(role: str, text: str, **given: Any) -> Envelope:
    return ev("message.recorded", role=role, text=text, **given)


def asked(tool: str, name: str = "bash") -> Envelope:
    return ev("tool_call.requested", tool=tool, tool_name=name)


def answered(tool: str, status: str = "ok", **given: Any) -> Envelope:
    return ev("tool_call.completed", tool=tool, status=status, **given)


def metric(name: str, value: int, **given: Any) -> Envelope:
    return ev(
        "counter.reported", name=name, labels={"job": "a"}, value=value, temporality="cumulative", **given
    )


SEVEN = [
    said("user", "Write it"),
    asked("1"),
    answered("1"),
    asked("2", "write_file"),
    answered("2"),
    said("assistant", "Written."),
    said("assistant", "Done."),
]
"""A log without times, ids of calls or boundaries: a user, two tool calls with their results, two texts."""


@table(
    Case(
        "T1-01: seven lines are one turn of 1 user, 2 calls, 2 results, 2 texts, and it stopped with a text",
        SEVEN,
        {
            "sessions/0/message_count": 3,
            "sessions/0/total_tool_calls": 2,
            "tool_calls/*/pairing": ["paired", "paired"],
            "turns/*/counts/events": [7],
            "turns/*/stop": [{"why": "text_without_tool_call", "last_event": "message.recorded"}],
        },
    ),
    Case(
        "T1-01: a text is no model call: none is counted that nobody told",
        SEVEN,
        {
            "model_calls": [],
            "sessions/0/model_call_count": 0,
            "turns/0/round_trips": 0,
            "turns/0/usage/total": 0,
        },
    ),
    Case(
        "C.1: without times an event has none, and neither has its turn",
        [{**event, "occurred_at": None} for event in SEVEN],
        {"turns/0/started_at": None, "turns/0/duration_ms": None, "sessions/0/created_at": None},
    ),
    Case(
        "C.1: a result pairs with the open call of its id, the error status is the log's",
        [said("user", "go"), asked("1"), asked("2"), answered("2", "error"), answered("1")],
        {"tool_calls/*/status": ["ok", "error"], "sessions/0/tool_errors": 1},
    ),
    Case(
        "M-3: a restart inside a session loses no count",
        [
            *turn("a", asked("1"), answered("1"), ev("guard.evaluated", guard="g", outcome="blocked")),
            *turn(
                "b", asked("1"), answered("1"), ev("guard.evaluated", guard="g", outcome="blocked"), epoch=1
            ),
        ],
        {"sessions/0/total_tool_calls": 2, "sessions/0/guard_blocks": 2},
    ),
    Case(
        "M-3: two exporters of one session double nothing: a metric never enters a total",
        [
            *turn(
                "t",
                asked("1"),
                answered("1", "error"),
                done({"input": 4, "output": 1, "cache_read": 0}, call="1"),
            ),
            *(
                metric(name, 7, producer=producer)
                for producer in ("job-a", "job-b")
                for name in (
                    "tool_calls_total",
                    "tool_errors_total",
                    "guard_blocks_total",
                    "guard_coercions_total",
                    "llm_requests_total",
                    "llm_failures_total",
                )
            ),
        ],
        {
            "sessions/0/total_tool_calls": 1,
            "sessions/0/tool_errors": 1,
            "sessions/0/guard_blocks": 0,
            "sessions/0/guard_coercions": 0,
            "sessions/0/model_call_count": 1,
            "sessions/0/failed_model_calls": 0,
            "sessions/0/output_tokens": 1,
        },
    ),
    Case(
        "M-4: no report is not zero: figures are null, counts of what was seen are 0",
        turn("t"),
        {
            "sessions/0/output_tokens": None,
            "sessions/0/cost_micro_usd": None,
            "sessions/0/model_call_count": 0,
            "sessions/0/total_tool_calls": 0,
        },
    ),
    Case(
        "C.2: the six counts, each from events",
        turn(
            "t",
            asked("1"),
            answered("1", "error", error_message="no such file"),
            asked("2"),
            answered("2"),
            ev("guard.evaluated", guard="path", outcome="blocked", reason="outside"),
            ev("guard.evaluated", guard="path", outcome="coerced", reason="relative"),
            ev("guard.evaluated", guard="path", outcome="passed"),
            ev("model_call.failed", call="1", provider="anthropic", model="m", error_class="timeout"),
            done({"input": 4, "output": 1, "cache_read": 0}, call="2"),
        ),
        {
            "sessions/0/total_tool_calls": 2,
            "sessions/0/tool_errors": 1,
            "sessions/0/guard_blocks": 1,
            "sessions/0/guard_coercions": 1,
            "sessions/0/model_call_count": 2,
            "sessions/0/failed_model_calls": 1,
        },
    ),
    Case(
        "C.3: a call that a guard refused is a call, denied, and no error",
        turn("t", asked("1"), ev("tool_call.denied", tool="1", by="guard", rule="r", reason="outside")),
        {
            "tool_calls/*/pairing": ["denied"],
            "sessions/0/total_tool_calls": 1,
            "sessions/0/tool_errors": 0,
            "tool_usage/*/denied_count": [1],
        },
    ),
    Case(
        "C.3: fewer results than calls: which call was not answered, and that the turn stopped there",
        turn("t", asked("1"), answered("1"), asked("2", "write_file")),
        {
            "tool_calls/*/pairing": ["paired", "missing_result"],
            "turns/0/stop/why": "tool_pending",
            "checks/tool_missing_result": 1,
        },
    ),
    Case(
        "C.3: more results than calls: the orphan is shown; a result that comes twice is one call",
        turn("t", asked("1"), answered("1"), answered("1"), answered("9")),
        {"tool_calls/*/pairing": ["paired", "orphan_result"], "checks/tool_orphan_result": 1},
    ),
    Case(
        "C.3: requests are texts and failures and retries, and each is a call",
        turn(
            "t",
            ev("model_call.failed", call="1", provider="anthropic", model="m", error_class="rate_limit"),
            done({"output": 2}, call="2", text="Hello"),
        ),
        {
            "sessions/0/model_call_count": 2,
            "model_calls/*/retries": [0, 1],
            "turns/0/stop/why": "text_without_tool_call",
        },
    ),
    Case(
        "C.3: per tool the counts are equal by name",
        turn("t", asked("1"), answered("1"), asked("2"), answered("2"), asked("3", "read"), answered("3")),
        {"tool_usage/*/tool_name": ["bash", "read"], "tool_usage/*/call_count": [2, 1]},
    ),
    Case(
        "C.4: which tool failed, and its exact words",
        turn("t", asked("1"), answered("1", "error", error_message="ENOENT: a.txt")),
        {"turns/0/tool_calls/0/error": "ENOENT: a.txt", "tool_calls/0/tool_name": "bash"},
    ),
    Case(
        "C.4: what a check of a file found is an event of its turn",
        turn("t", ev("artifact.checked", path="out.md", expected=True, present=False)),
        {"turns/0/counts/events": 3, "turns/0/stop": {"why": "unknown", "last_event": "artifact.checked"}},
    ),
    Case(
        "C.5: how long a turn took, from its own clock where nobody told it",
        turn("t", asked("1"), answered("1")),
        {"turns/0/duration_ms": 3000, "turns/0/duration_source": "derived"},
    ),
)
def test_a_demand_of_a_log_laid_against_metrics(case: Case) -> None:
    assert found(case) == case.expected


def test_t1_06_a_file_cut_in_the_middle_of_a_line_keeps_its_whole_lines_and_says_what_was_lost() -> None:
    whole = b"".join(
        b'{"session_id":"s","seq":%d,"type":"message.recorded","payload":{"role":"user","text":"hi"}}\n' % seq
        for seq in range(2)
    )
    told = document(
        lines([whole + whole[:40]]), lambda *given, **named: price_call(packaged(), *given, **named)
    )
    assert told["records"] == {"read": 3, "accepted": 2, "duplicates": 0, "conflicts": 0, "dead": 1}
    assert [(row["position"], row["reason"]) for row in told["dead_letters"]] == [(3, "json")]
    assert [row["message_count"] for row in told["sessions"]] == [2]
