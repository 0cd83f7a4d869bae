"""The turn record's model says what the fold writes (contract 10)."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from turnledger.contract.event import Event
from turnledger.contract.schemas import turn_record_schema
from turnledger.contract.times import instant
from turnledger.fold.session import fold_session


def events(*said: tuple[str, dict[str, Any], dict[str, Any]]) -> list[Event]:
    """(type, payload, envelope fields), numbered from 0, a second apart; ``seq`` may be given."""
    found = []
    for place, (type_name, payload, fields) in enumerate(said):
        at = f"2026-01-01T00:00:{place:02d}Z"
        named: dict[str, Any] = {"seq": place, "turn_id": "t", "turn_index": 1} | fields
        found.append(
            Event(session_id="s", type=type_name, payload=payload, occurred_at=at, at=instant(at), **named)
        )
    return found


FULL = events(
    ("turn.started", {"input_preview": "hello"}, {}),
    ("model_call.started", {"provider": "anthropic", "context_window": 1000}, {"model_call_id": "m"}),
    ("model_call.failed", {"provider": "anthropic", "error_class": "timeout", "status_code": 504}, {"model_call_id": "l"}),
    (
        "model_call.completed",
        {"provider": "anthropic", "model": "x", "usage": {"input": 5, "output": 2, "cache_read": 1}, "latency_ms": 7},
        {"model_call_id": "m"},
    ),
    ("tool_call.requested", {"tool_name": "bash", "call_tool_origin": "native"}, {"tool_call_id": "c"}),
    ("tool_call.completed", {"status": "error", "error_message": "no", "duration_ms": 3}, {"tool_call_id": "c"}),
    ("guard.evaluated", {"guard": "g", "outcome": "passed"}, {}),
    ("slot.written", {"slot": "a", "old": 0, "new": 1}, {}),
    ("state.observed", {"state": "q", "slots": {"a": 0, "b": 1}, "when": "before"}, {}),
    ("state.observed", {"state": "q", "slots": {"a": 1, "b": 2}, "required": ["a", "c"], "when": "after"}, {}),
    ("transition.decided", {"state": "q", "verdict": "go", "candidates": ["go", 1]}, {}),
    ("limit.reached", {"limit": "cost", "value": 1.5, "threshold": 1}, {}),
    ("context.compacted", {"tokens_before": 9, "tokens_after": 3, "strategy": "sum"}, {}),
    ("net.requested", {"domain": "d", "port": 443, "decision": "allowed"}, {}),
    ("answer.finalized", {"value": {"any": [1]}, "exact": True}, {}),
    ("turn.completed", {"status": "failed", "error": {"why": "x"}}, {"seq": 17}),
)  # fmt: skip


@pytest.mark.parametrize("told", [FULL, FULL[:1], FULL[3:4]], ids=["everything", "open", "one call"])
def test_the_schema_takes_what_the_fold_writes(told: list[Event]) -> None:
    validator = Draft202012Validator(turn_record_schema())
    turns = fold_session("default", "s", told).turns
    assert len(turns) == 1
    laid_over = {"revision": 1, "digest": turns[0].digest}
    assert [error.message for error in validator.iter_errors(turns[0].record | laid_over)] == []


def test_the_schema_documents_every_field_that_the_fold_writes() -> None:
    schema = turn_record_schema()
    assert undocumented(fold_session("default", "s", FULL).turns[0].record, schema, schema, "") == []


def undocumented(value: Any, schema: dict[str, Any], root: dict[str, Any], place: str) -> list[str]:
    """Fields of a value that its schema does not name, as far as the schema names fields at all."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[-1]]
    if "anyOf" in schema:
        schema = schema["anyOf"][0]
        return undocumented(value, schema, root, place)
    found: list[str] = []
    if isinstance(value, dict) and "properties" in schema:
        for name, item in value.items():
            if name not in schema["properties"]:
                found.append(f"{place}.{name}")
            else:
                found += undocumented(item, schema["properties"][name], root, f"{place}.{name}")
    elif isinstance(value, list) and "items" in schema:
        for item in value:
            found += undocumented(item, schema["items"], root, f"{place}[]")
    return found
