"""What the generated fleets reach: each event type of contract 6 and each rule of contract 7, 8 and 13, counted; one that is never met fails."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.property.fleets import ARRIVALS, FLEETS, Arrival, Envelope, Fleet, arrive, build
from turnledger.contract.types import EVENT_TYPES
from turnledger.fold.document import Document, document
from turnledger.pricing import packaged, price_call

EXAMPLES = 600
PRICE = partial(price_call, packaged())


def _rows(*tables: str) -> Callable[[Document], Iterator[Any]]:
    return lambda told: (row for table in tables for row in told[table])


CALLS, TURNS, TOOLS, SESSIONS, GAPS = (
    _rows(table) for table in ("model_calls", "turns", "tool_calls", "sessions", "gaps")
)


def _words(name: str, rows: Callable[[Document], Iterator[Any]], *words: str) -> dict[str, Any]:
    """One rule for each word that a column takes."""
    return {
        f"{name} {word}": lambda told, word=word: any(row.get(name) == word for row in rows(told))
        for word in words
    }


RULES: dict[str, Callable[[Document], bool]] = {
    # contract 3 and 4
    "conflict with several receipts": lambda told: len(told["conflicts"]) > 1,
    "conflict counted twice": lambda told: any(row["count"] > 1 for row in told["conflicts"]),
    "an identity without number": lambda told: any(row["receipt_key"] for row in told["conflicts"]),
    **_words("state", GAPS, "open", "declared_lost", "declared_elided"),
    # contract 7
    **_words("assigned_by", TURNS, "id", "index", "link", "boundary", "window", "fallback"),
    **_words("status", TURNS, "open", "completed", "failed", "interrupted", "aborted", "abandoned"),
    # contract 8: conventions, one call, ranks
    **_words("token_convention", CALLS, "exclusive", "inclusive", "inclusive_thoughts_separate", "unknown"),
    **_words("fidelity", CALLS, "exact", "lower_bound", "estimated", "unknown"),
    **_words("usage_source", CALLS, "response", "event", "transcript", "estimate"),
    **_words(
        "status of a call",
        lambda told: ({"status of a call": row["status"]} for row in CALLS(told)),
        "started",
        "completed",
        "failed",
    ),
    "retries": lambda told: any(row["retries"] for row in CALLS(told)),
    "a failed call that reported": lambda told: any(
        row["status"] == "failed" and row["output_tokens"] is not None for row in CALLS(told)
    ),
    "cache writes with lifetimes": lambda told: any(row["cache_write_5m_tokens"] for row in CALLS(told)),
    "cache writes without": lambda told: any(row["cache_write_other_tokens"] for row in CALLS(told)),
    "reasoning": lambda told: any(row["reasoning_tokens"] for row in CALLS(told)),
    "a harness's own cost": lambda told: any(row["reported_cost_usd"] is not None for row in CALLS(told)),
    "a call outside turns": lambda told: any(row["turn_key"] is None for row in CALLS(told)),
    "an unknown hour": lambda told: any(row["hour"] is None for row in told["usage_hourly"]),
    "hours of several days": lambda told: len({(row["hour"] or "")[:10] for row in told["usage_hourly"]}) > 2,
    # contract 8: counters and parts
    "a contribution stands": lambda told: any(
        (turn["usage"]["total"] or 0) and not turn["model_calls"] for turn in TURNS(told)
    ),
    "unattributed": lambda told: any("unattributed" in turn for turn in TURNS(told)),
    "inherited usage": lambda told: any("inherited_usage" in turn for turn in TURNS(told)),
    "reported of total": lambda told: any(
        0 < row["usage_reported"] < row["usage_total"] for row in SESSIONS(told)
    ),
    "nobody reported": lambda told: any(
        row["usage_total"] and not row["usage_reported"] for row in SESSIONS(told)
    ),
    "a context gauge": lambda told: any("used_ppm" in turn.get("context", {}) for turn in TURNS(told)),
    # contract 8: several sessions
    "a call that another session owns": lambda told: any(row["inherited"] for row in CALLS(told)),
    "an owner among several": lambda told: len({row["owner_session_id"] for row in CALLS(told)}) > 1,
    # contract 9
    **_words("cost_fidelity", CALLS, "exact", "lower_bound", "upper_bound"),
    "an unpriced call": lambda told: any(row["unpriced_calls"] for row in SESSIONS(told)),
    # contract 10
    **_words(
        "pairing", TOOLS, "paired", "pending", "missing_result", "orphan_result", "late_result", "denied"
    ),
    **_words(
        "why",
        lambda told: (turn["stop"] for turn in TURNS(told)),
        "failed",
        "interrupted",
        "limit",
        "tool_pending",
        "answered",
        "text_without_tool_call",
        "unknown",
    ),
    **{
        f"record: {name}": lambda told, name=name: any(turn.get(name) for turn in TURNS(told))
        for name in (
            "run_id",
            "user_input",
            "answer",
            "compactions",
            "limits",
            "errors",
            "guards_evaluated",
            "verdict",
            "slot_diff",
            "unattributed_diff",
            "missing_required_slots",
            "gaps",
        )
    },
    "a capped list": lambda told: any(turn.get("truncated", {}).get("candidates") for turn in TURNS(told)),
    "a tool call with its transport": lambda told: any(
        row["method"] and row["call_id"] for row in TOOLS(told)
    ),
    # contract 12 and 13
    **_words("kind", SESSIONS, "live", "eval", "import"),
    **_words("grade", SESSIONS, "disputed", "gaps", "partial", "unknown", "complete"),
    **_words(
        "grade of a turn",
        lambda told: ({"grade of a turn": turn["grade"]} for turn in TURNS(told)),
        "disputed",
        "gaps",
        "partial",
        "unknown",
        "complete",
    ),
    "exec rows": lambda told: any(
        row["exit_code"] is not None and row["command"] for row in told["exec_events"]
    ),
    **{
        f"finding {check}": lambda told, check=check: any(row["check"] == check for row in told["findings"])
        for check in (
            "open_gap",
            "declared_loss",
            "superseded_stream",
            "conflict",
            "dead_letter",
            "event_after_close",
            "unknown_event_type",
            "newer_schema_version",
            "wrong_type_in_payload",
            "turn_open_in_ended_session",
            "turn_without_start",
            "turn_without_end",
            "turn_index_ambiguous",
            "turn_two_indexes",
            "fork_cycle",
            "call_without_record",
            "message_id_reused",
            "traffic_without_model_call",
            "null_model",
            "null_tokens",
            "inherited_without_source",
            "usage_unknown_convention",
            "usage_negative_bucket",
            "usage_unknown_start",
            "usage_counter_reset",
            "usage_counter_contradiction",
            "usage_open_predecessor",
            "usage_copies_differ",
            "usage_call_total_differs",
            "usage_rollup_differs",
            "usage_snapshot_without_call",
            "unpriced_model",
            "tool_missing_result",
            "tool_orphan_result",
            "mcp_without_tool_call",
            "response_names_no_call",
        )
    },
}
"""What a fold's answer shows when a rule spoke. `key_mismatch` needs Kafka's keys, `late_after_vacuum` and the projection's checks a database."""


@pytest.fixture(scope="module")
def reached() -> Counter[str]:
    """How many of the same fleets, drawn anew, met each type and each rule."""
    counts: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(FLEETS, ARRIVALS)
    def draw(fleet: Fleet, arrival: Arrival) -> None:
        envelopes: list[Envelope] = build(fleet)
        told = document(arrive(envelopes, arrival, random.Random(len(envelopes))), PRICE)
        counts.update({envelope["type"] for envelope in envelopes})
        counts.update(name for name, shown in RULES.items() if shown(told))

    draw()
    return counts


def test_every_event_type_of_the_contract_is_generated(reached: Counter[str]) -> None:
    assert [type_ for type_ in EVENT_TYPES if not reached[type_]] == []


def test_every_rule_speaks_in_some_generated_fleet(reached: Counter[str]) -> None:
    assert [name for name in RULES if not reached[name]] == []
