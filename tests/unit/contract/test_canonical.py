"""Canonical JSON and the content hash (contract 3)."""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from typing import Any

import pytest

from turnledger.contract.canonical import canonical_record, content_hash, dumps, integral, same_content
from turnledger.contract.jsontext import parse

RECORD = b'{"session_id":"s","seq":7,"type":"x"}'
FILLED = (
    b'{"epoch":0,"kind":"live","payload":{},"producer":"harness","provenance":"observed","schema_version":1,'
    b'"seq":7,"session_id":"s","stream":"ledger","tenant":"default","type":"x"}'
)


@pytest.mark.parametrize(
    ("literal", "canonical"),
    [
        ("0", "0"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("0e5", "0"),
        ("1.0", "1"),
        ("1e3", "1000"),
        ("12.50", "12.5"),
        ("-1.5e1", "-15"),
        ("0.1", "0.1"),
        ("0.000001", "0.000001"),
        ("1e-7", "1e-7"),
        ("-1.25e-9", "-1.25e-9"),
        ("5e-324", "5e-324"),
        ("1e-400", "0"),
        ("333333333.33333329", "333333333.3333333"),
        ("1e20", "100000000000000000000"),
        ("1e21", "1e+21"),
        ("1.5E300", "1.5e+300"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        ("9007199254740991.0", "9007199254740991"),
        ("9007199254740992.0", "9007199254740992"),
        ("9007199254740993.0", "9007199254740992"),
        ("9007199254740993", "9007199254740993"),
        ("-9007199254740993", "-9007199254740993"),
        ("1152921504606846976.0", "1152921504606847000"),
        ("1152921504606846976", "1152921504606846976"),
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551616", "18446744073709551616"),
        ("1" * 60, "1" * 60),
        ("-" + "7" * 20_000, "-" + "7" * 20_000),
    ],
)
def test_a_number_has_one_canonical_text(literal: str, canonical: str) -> None:
    assert dumps(parse(f'{{"a":[{literal}]}}'.encode())) == f'{{"a":[{canonical}]}}'.encode()


@pytest.mark.parametrize("extra", [1, 0.5], ids=["orjson", "slow path"])
def test_texts_are_escaped_as_rfc_8785_says_and_keys_sorted_by_code_point(extra: float) -> None:
    value = {
        "\U0001f600": 1,
        "\uffff": 2,
        "é": "e\u0301/\u2028\x7f",
        "": [True, False, None],
        "a\nb": '"\\\b\t\n\f\r\x00\x1f',
        "z": extra,
    }
    assert (
        dumps(value)
        == (
            '{"":[true,false,null],"a\\nb":"\\"\\\\\\b\\t\\n\\f\\r\\u0000\\u001f",'
            f'"z":{extra},"é":"e\u0301/\u2028\x7f","\uffff":2,"\U0001f600":1}}'
        ).encode()
    )


def test_nested_keys_are_sorted_and_empty_containers_are_short() -> None:
    assert (
        dumps({"b": {"d": [], "c": {}}, "a": [{"z": 1.5, "y": []}]})
        == b'{"a":[{"y":[],"z":1.5}],"b":{"c":{},"d":[]}}'
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]])
def test_what_is_no_json_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="no canonical JSON"):
        dumps(value)


@pytest.mark.parametrize("value", [{1: 2}, {"a": {1: 0.5}}, b"x", {"a": object()}, {0.5: "x", "a": 0.5}])
def test_what_is_no_json_value_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        dumps(value)


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates not allowed"):
        dumps({"a": "\ud800"})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, 5),
        (12.0, 12),
        (-0.0, 0),
        (12.5, None),
        (2.0**60, 1152921504606847000),
        (1e22, 10**22),
        (True, None),
        ("1", None),
        (None, None),
        (10**30, 10**30),
    ],
)
def test_a_number_is_an_integer_when_its_canonical_text_is_one(value: Any, expected: int | None) -> None:
    found = integral(value)
    assert found == expected
    assert type(found) is type(expected)


def test_of_an_integer_too_long_for_int_only_its_sign_and_size_are_told() -> None:
    longest = integral(Decimal("9" * 5000))
    least = integral(Decimal("-" + "9" * 5000))
    assert longest is not None
    assert least is not None
    assert longest > 2**63
    assert least < -(2**63)


def test_the_hash_is_taken_over_the_filled_in_record() -> None:
    assert canonical_record(RECORD) == FILLED
    assert content_hash(RECORD) == hashlib.sha256(FILLED).digest()


def test_c25_spelling_does_not_change_the_content() -> None:
    one = (
        b'{"session_id":"s","seq":1,"type":"x","occurred_at":"2026-01-01T00:00:00.000+00:00",'
        b'"origin":{"pid":1}}'
    )
    other = (
        b' {"origin":{"pid":1.0}, "occurred_at":"2026-01-01T00:00:00Z","turn_id":null,"payload":{},"epoch":0,'
        b'"type":"x","seq":1.0,"session_id":"s"}\n'
    )
    assert content_hash(one) == content_hash(other)
    assert same_content(one, other)


@pytest.mark.parametrize(
    "fields",
    [
        '"trace_id":""',
        '"turn_id":"","model_call_id":"","tool_call_id":"","parent_session_id":""',
        '"event_id":null,"turn_index":null,"run_id":null,"origin":null,"occurred_at":null,"unknown":null',
        '"payload":null,"tenant":null,"epoch":null,"stream":null,"producer":null,"kind":null,"provenance":null',
        '"schema_version":1,"tenant":"default","producer":"harness","stream":"ledger","kind":"live","provenance":"observed"',
        '"observed_at":"2026-01-01T00:00:00Z"',
        '"type":"y","type":"x"',
        '"type":"\\u0078"',
    ],
)
def test_what_says_nothing_new_keeps_the_content(fields: str) -> None:
    assert same_content(RECORD, b'{"session_id":"s","seq":7,' + fields.encode() + b',"type":"x"}')


@pytest.mark.parametrize(
    "fields",
    [
        '"unknown":1',
        '"event_id":""',
        '"receipt_key":"r"',
        '"payload":{"a":null}',
        '"payload":{"observed_at":"2026-01-01T00:00:00Z"}',
        '"occurred_at":"2026-01-01T00:00:00Z"',
        '"tenant":""',
        '"origin":{}',
        '"epoch":1',
    ],
)
def test_what_says_something_new_changes_the_content(fields: str) -> None:
    assert not same_content(RECORD, b'{"session_id":"s","seq":7,' + fields.encode() + b',"type":"x"}')


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2026-01-01T00:00:00.1234567Z", "2026-01-01T00:00:00.123456Z", True),
        ("2026-01-01T01:30:00+01:30", "2026-01-01T00:00:00Z", True),
        ("2025-12-31t19:00:00.0-05:00", "2026-01-01T00:00:00Z", True),
        ("2026-01-01T00:00:00.000001Z", "2026-01-01T00:00:00Z", False),
    ],
)
def test_times_are_compared_as_instants(one: str, other: str, same: bool) -> None:
    records = [
        json.dumps({"session_id": "s", "seq": 0, "type": "x", "occurred_at": text}).encode()
        for text in (one, other)
    ]
    assert same_content(*records) is same


def test_texts_are_not_normalised() -> None:
    composed = '{"session_id":"é","seq":0,"type":"x"}'.encode()
    decomposed = '{"session_id":"e\u0301","seq":0,"type":"x"}'.encode()
    assert not same_content(composed, decomposed)


def test_an_unknown_number_beyond_every_machine_type_is_told_apart_by_its_last_digit() -> None:
    records = [
        b'{"session_id":"s","seq":0,"type":"x","payload":{"n":' + b"9" * 60 + last + b"}}"
        for last in (b"8", b"9")
    ]
    assert not same_content(*records)
