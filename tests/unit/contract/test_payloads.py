"""Payloads: a model for each event type, tolerant reading, and which fields have a wrong type (contract 6 and 15)."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from turnledger.contract import payloads
from turnledger.contract.event import Event
from turnledger.contract.types import EVENT_TYPES, wrong_fields

INT64_MAX = 9_223_372_036_854_775_807
BEYOND = Decimal("9" * 5000)


def event(type_name: str, payload: dict[str, Any]) -> Event:
    return Event(session_id="s", type=type_name, seq=0, payload=payload)


@pytest.mark.parametrize(
    ("value", "count", "integer", "number", "text", "identifier", "boolean"),
    [
        (12, 12, 12, 12, None, "12", None),
        (0, 0, 0, 0, None, "0", None),
        (12.0, 12, 12, 12.0, None, "12", None),
        (-0.0, 0, 0, -0.0, None, "0", None),
        (1e3, 1000, 1000, 1e3, None, "1000", None),
        (-5, None, -5, -5, None, "-5", None),
        (-5.0, None, -5, -5.0, None, "-5", None),
        (12.5, None, None, 12.5, None, None, None),
        (INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, None, str(INT64_MAX), None),
        (INT64_MAX + 1, None, None, INT64_MAX + 1, None, str(INT64_MAX + 1), None),
        (-INT64_MAX - 2, None, None, -INT64_MAX - 2, None, str(-INT64_MAX - 2), None),
        (10**30, None, None, 10**30, None, str(10**30), None),
        (1e30, None, None, 1e30, None, "1e+30", None),
        (BEYOND, None, None, None, None, None, None),
        (True, None, None, None, None, None, True),
        (False, None, None, None, None, None, False),
        ("12", None, None, None, "12", "12", None),
        ("", None, None, None, "", "", None),
        ("[REDACTED]", None, None, None, "[REDACTED]", "[REDACTED]", None),
        ([1], None, None, None, None, None, None),
        ({"a": 1}, None, None, None, None, None, None),
        (None, None, None, None, None, None, None),
    ],
)
def test_a_field_of_a_wrong_type_reads_as_null(
    value: Any,
    count: int | None,
    integer: int | None,
    number: float | None,
    text: str | None,
    identifier: str | None,
    boolean: bool | None,
) -> None:
    payload = {"field": value}
    found = (
        payloads.count(payload, "field"),
        payloads.integer(payload, "field"),
        payloads.number(payload, "field"),
        payloads.text(payload, "field"),
        payloads.identifier(payload, "field"),
        payloads.boolean(payload, "field"),
    )
    expected = (count, integer, number, text, identifier, boolean)
    assert repr(found) == repr(expected)


def test_an_absent_field_reads_as_null() -> None:
    assert payloads.count({}, "field") is None
    assert payloads.identifier({}, "field") is None
    assert payloads.items({}, "field") is None


def test_words_arrays_and_objects_are_read_where_they_are_some() -> None:
    payload = {"word": "ok", "items": [1], "object": {"a": 1}}
    assert payloads.choice(payload, "word", ("ok", "error")) == "ok"
    assert payloads.choice(payload, "word", ("error",)) is None
    assert payloads.choice(payload, "items", ("ok",)) is None
    assert payloads.items(payload, "items") == [1]
    assert payloads.items(payload, "object") is None
    assert payloads.mapping(payload, "object") == {"a": 1}
    assert payloads.mapping(payload, "items") is None


USAGE = {
    "usage": {"input": 10, "output": 5, "cache_read": 2.0, "total": None, "unknown": "x"},
    "token_convention": "exclusive",
    "counter_kind": "per_call",
    "final": True,
    "source": "response",
    "reported_cost_usd": 0.25,
    "request_id": 7,
    "unknown": {"a": [1]},
}


def test_a_right_payload_has_no_wrong_field() -> None:
    assert wrong_fields(event("usage.reported", USAGE)) == []
    assert wrong_fields(event("session.started", {})) == []
    assert wrong_fields(event("tool_call.requested", {"tool_name": "x", "arguments": [{"any": None}]})) == []


@pytest.mark.parametrize(
    ("type_name", "wrong", "names"),
    [
        ("usage.reported", {"usage": {"input": "[REDACTED]"}}, ["usage.input"]),
        ("usage.reported", {"usage": {"input": 12.5, "output": -5, "total": 10**30}}, ["usage.input", "usage.output", "usage.total"]),
        ("usage.reported", {"usage": {"input": True}, "last": {"output": BEYOND}}, ["usage.input", "last.output"]),
        ("usage.reported", {"usage": 5}, ["usage"]),
        ("usage.reported", {"source": "guess"}, ["source"]),
        ("usage.reported", {"counter_kind": "Per_call"}, ["counter_kind"]),
        ("usage.reported", {"counter_kind": ["per_call"]}, ["counter_kind"]),
        ("usage.reported", {"token_convention": "made up"}, []),
        ("usage.reported", {"final": "true", "start_known": 1}, ["final", "start_known"]),
        ("usage.reported", {"reported_cost_usd": "0.1"}, ["reported_cost_usd"]),
        ("model_call.failed", {"error_class": "boom"}, ["error_class"]),
        ("model_call.completed", {"latency_ms": 1.5, "status_code": "200"}, ["latency_ms", "status_code"]),
        ("turn.completed", {"status": "done", "error": {"any": 1}}, ["status"]),
        ("process.exited", {"exec_id": 1, "exit_code": -9}, []),
        ("process.exited", {"exec_id": 1.5, "exit_code": -9.5}, ["exec_id", "exit_code"]),
        ("stream.lost", {"from_seq": "2", "to_seq": 2, "epoch": -1}, ["from_seq", "epoch"]),
        ("state.observed", {"slots": [], "required": {}}, ["slots", "required"]),
        ("tool_results.submitted", {"tool_call_ids": "t1"}, ["tool_call_ids"]),
        ("an.unknown_type", {"status_code": "x"}, []),
    ],
)  # fmt: skip
def test_the_fields_of_a_wrong_type_are_named(
    type_name: str, wrong: dict[str, Any], names: list[str]
) -> None:
    assert wrong_fields(event(type_name, wrong)) == names


def test_naming_wrong_fields_leaves_the_payload_alone() -> None:
    payload = json.loads(json.dumps(USAGE))
    wrong_fields(event("usage.reported", payload))
    assert payload == USAGE


PROBES: tuple[Any, ...] = (
    *(
        0,
        12,
        12.0,
        12.5,
        -5,
        -5.0,
        10**30,
        1e30,
        BEYOND,
        True,
        False,
        "",
        "x",
        "[REDACTED]",
        [],
        ["x"],
        {},
        {"x": 1},
    ),
    *(
        "ok",
        "per_call",
        "response",
        "dense",
        "unknown",
        "user",
        "passed",
        "allowed",
        "request",
        "completed",
        "after",
    ),
)


@pytest.mark.parametrize("type_name", EVENT_TYPES)
def test_the_cheap_check_says_what_the_model_says(type_name: str) -> None:
    model = EVENT_TYPES[type_name]
    for name in model.model_fields:
        for probe in PROBES:
            try:
                model.model_validate({name: probe})
                errors: list[Any] = []
            except ValidationError as error:
                errors = [e for e in error.errors(include_url=False) if e["loc"][0] == name]
            expected = [name] if errors else []
            assert wrong_fields(event(type_name, {name: probe})) == expected, (name, probe)


def test_every_model_and_every_field_is_documented() -> None:
    for model in EVENT_TYPES.values():
        assert model.__doc__
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"


def test_every_payload_model_belongs_to_an_event_type() -> None:
    declared = {
        value
        for value in vars(payloads).values()
        if isinstance(value, type)
        and issubclass(value, BaseModel)
        and value not in (BaseModel, payloads.Fields, payloads.Payload)
    }
    inner = {payloads.Usage, payloads.UsageFields, payloads.StreamNamed}
    assert declared - inner == set(EVENT_TYPES.values())


def test_the_names_of_types_are_dotted_lower_case() -> None:
    for name in EVENT_TYPES:
        assert re.fullmatch(r"[a-z_]+\.[a-z_]+", name)
    assert len(EVENT_TYPES) == 55


def test_contract_imports_no_faust_kafka_or_database() -> None:
    folder = Path(payloads.__file__).parent
    for path in folder.glob("*.py"):
        assert not re.search(
            r"^\s*(from|import) (faust|aiokafka|psycopg)", path.read_text("utf-8"), re.MULTILINE
        ), path
