"""Contract 3: which two records are one event, which are a conflict, and which are two events."""

from __future__ import annotations

import hashlib

import pytest

from tests.unit.contract_cases.cases import ev, fold

BASE = '{"session_id":"s","seq":1,"type":"x"}'
TIMED = '{"session_id":"s","seq":1,"type":"x","occurred_at":"2026-05-01T12:00:00Z"}'


def more(text: str) -> str:
    return BASE[:-1] + "," + text + "}"


def holding(value: str) -> str:
    return more(f'"payload":{{"v":{value}}}')


def timed(text: str) -> str:
    return more(f'"occurred_at":"{text}"')


SAME = {
    "schema version 1 is the default": (BASE, more('"schema_version":1')),
    "tenant default is the default": (BASE, more('"tenant":"default"')),
    "producer harness is the default": (BASE, more('"producer":"harness"')),
    "epoch 0 is the default": (BASE, more('"epoch":0')),
    "stream ledger is the default": (BASE, more('"stream":"ledger"')),
    "kind live is the default": (BASE, more('"kind":"live"')),
    "provenance observed is the default": (BASE, more('"provenance":"observed"')),
    "an empty payload is the default": (BASE, more('"payload":{}')),
    "a null payload is dropped, then filled in": (BASE, more('"payload":null')),
    "a null default is dropped, then filled in": (BASE, more('"epoch":null,"tenant":null,"kind":null')),
    "a null origin is dropped": (BASE, more('"origin":null')),
    "a null unknown field is dropped": (BASE, more('"novel":null')),
    "empty correlation is dropped": (
        BASE,
        more('"turn_id":"","trace_id":"","model_call_id":"","tool_call_id":"","parent_session_id":""'),
    ),
    "null correlation is dropped": (BASE, more('"turn_id":null,"trace_id":null')),
    "a null time is dropped": (BASE, more('"occurred_at":null')),
    "a null turn index is dropped": (BASE, more('"turn_index":null')),
    "a null receipt key is dropped": (BASE, more('"receipt_key":null')),
    "observed_at is no part of it": (
        more('"observed_at":"2026-05-01T12:00:00Z"'),
        more('"observed_at":"2027-05-01T12:00:00Z"'),
    ),
    "observed_at or none": (BASE, more('"observed_at":"2026-05-01T12:00:00Z"')),
    "key order": (BASE, '{"type":"x","seq":1,"session_id":"s"}'),
    "white space": (BASE, ' {\t"session_id" : "s" ,\r"seq":1, "type":"x"} '),
    "an escape": (holding('"é"'), holding('"\\u00E9"')),
    "an escaped slash": (holding('"a/b"'), holding('"a\\/b"')),
    "a surrogate pair": (holding('"😀"'), holding('"\\ud83d\\ude00"')),
    "an escaped key": (more('"pay\\u006Coad":{"v":1}'), holding("1")),
    "1.0 is 1": (holding("1"), holding("1.0")),
    "1e2 is 100": (holding("100"), holding("1E+2")),
    "-0 is 0": (holding("0"), holding("-0")),
    "-0.0 is 0": (holding("0"), holding("-0.0")),
    "0e5 is 0": (holding("0"), holding("0e5")),
    "1e-1 is 0.1": (holding("0.1"), holding("1e-1")),
    "0.10 is 0.1": (holding("0.1"), holding("0.10")),
    "two spellings of one double": (holding("0.1"), holding("0.1000000000000000055511151231257827")),
    "2^53 as a float has the digits of the integer": (
        holding("9007199254740992"),
        holding("9007199254740992.0"),
    ),
    "a float beyond 2^53 is its shortest form": (
        holding("123456789012345680"),
        holding("123456789012345678.0"),
    ),
    "1e21 in RFC 8785": (holding("1e21"), holding("1000000000000000000000.0")),
    "a seq of 1.0": (BASE, BASE.replace("1", "1.0")),
    "a seq of 1e0": (BASE, BASE.replace("1", "1e0")),
    "the last of two keys": (holding("2"), more('"payload":{"v":1,"v":2}')),
    "the last of two members at the top": (more('"novel":2'), more('"novel":1,"novel":2')),
    "an offset": (TIMED, timed("2026-05-01T14:00:00+02:00")),
    "a fraction of zeros": (TIMED, timed("2026-05-01T12:00:00.000Z")),
    "digits beyond six are cut off": (
        timed("2026-05-01T12:00:00.123456Z"),
        timed("2026-05-01T12:00:00.1234569Z"),
    ),
    "lower-case letters of a time": (TIMED, timed("2026-05-01t12:00:00z")),
    "a negative zero offset": (TIMED, timed("2026-05-01T12:00:00-00:00")),
    "an offset over the day": (TIMED, timed("2026-05-02T00:30:00+12:30")),
}

OTHER = {
    "an unknown field": (BASE, more('"novel":1')),
    "a null inside the payload stays": (BASE, more('"payload":{"v":null}')),
    "observed_at inside the payload stays": (
        more('"payload":{"observed_at":"a"}'),
        more('"payload":{"observed_at":"b"}'),
    ),
    "an empty turn_id inside the payload stays": (BASE, more('"payload":{"turn_id":""}')),
    "an empty event_id is no correlation field": (BASE, more('"event_id":""')),
    "an empty origin": (BASE, more('"origin":{}')),
    "the receipt key beside a seq is data": (BASE, more('"receipt_key":"r"')),
    "two receipt keys beside a seq": (more('"receipt_key":"r"'), more('"receipt_key":"q"')),
    "the type": (BASE, BASE.replace('"x"', '"y"')),
    "the event id": (BASE, more('"event_id":"a"')),
    "the time": (TIMED, timed("2026-05-01T12:00:00.000001Z")),
    "a time or none": (BASE, TIMED),
    "a number and its text": (holding("1"), holding('"1"')),
    "true and 1": (holding("1"), holding("true")),
    "false and 0": (holding("0"), holding("false")),
    "no Unicode normalisation": (holding('"\u00e9"'), holding('"e\u0301"')),
    "letter case": (holding('"a"'), holding('"A"')),
    "the order of an array": (holding("[1,2]"), holding("[2,1]")),
    "an integer literal is its digits": (holding("9007199254740993"), holding("9007199254740992")),
    "an integer literal and the double next to it": (
        holding("9007199254740993"),
        holding("9007199254740993.0"),
    ),
    "1e21 and its digits": (holding("1e21"), holding("1000000000000000000000")),
    "a provenance": (BASE, more('"provenance":"claimed"')),
    "a kind": (BASE, more('"kind":"import"')),
    "a higher schema version": (BASE, more('"schema_version":2')),
    "turn_index 0 is not absent": (BASE, more('"turn_index":0')),
    "an origin's 1 and its text": (more('"origin":{"exec":1}'), more('"origin":{"exec":"1"}')),
}

TWO = {
    "tenant": (BASE, more('"tenant":"t"')),
    "session": (BASE, BASE.replace('"s"', '"S"')),
    "producer": (BASE, more('"producer":"p"')),
    "epoch": (BASE, more('"epoch":1')),
    "stream": (BASE, more('"stream":"bus"')),
    "seq": (BASE, BASE.replace("1", "2")),
    "a receipt key of the same digits": (BASE, '{"session_id":"s","receipt_key":"1","type":"x"}'),
    "an empty tenant is a name of its own": (BASE, more('"tenant":""')),
    "an empty producer is a name of its own": (BASE, more('"producer":""')),
    "an empty stream is a name of its own": (BASE, more('"stream":""')),
    "the last of two seqs": (BASE, BASE.replace('"seq":1', '"seq":1,"seq":2')),
    "two receipt keys": (
        '{"session_id":"s","receipt_key":"a","type":"x"}',
        '{"session_id":"s","receipt_key":"b","type":"x"}',
    ),
    "one receipt key in two streams": (
        '{"session_id":"s","receipt_key":"a","type":"x"}',
        '{"session_id":"s","receipt_key":"a","stream":"otlp","type":"x"}',
    ),
    "no normalisation of a key": (BASE.replace('"s"', '"\u00e9"'), BASE.replace('"s"', '"e\u0301"')),
    "white space in a key": (BASE, BASE.replace('"s"', '"s "')),
}


@pytest.mark.parametrize("pair", SAME.values(), ids=SAME.keys())
def test_the_same_event_said_otherwise_is_a_duplicate(pair: tuple[str, str]) -> None:
    for first, second in (pair, pair[::-1]):
        found = fold(first.encode(), second.encode())
        assert found["records"] == {"read": 2, "accepted": 1, "duplicates": 1, "conflicts": 0, "dead": 0}


@pytest.mark.parametrize("pair", OTHER.values(), ids=OTHER.keys())
def test_another_content_at_a_known_key_is_a_conflict(pair: tuple[str, str]) -> None:
    for first, second in (pair, pair[::-1]):
        found = fold(first.encode(), second.encode())
        assert found["records"] == {"read": 2, "accepted": 1, "duplicates": 0, "conflicts": 1, "dead": 0}


@pytest.mark.parametrize("pair", TWO.values(), ids=TWO.keys())
def test_another_key_is_another_event(pair: tuple[str, str]) -> None:
    found = fold(*(text.encode() for text in pair))
    assert found["records"] == {"read": 2, "accepted": 2, "duplicates": 0, "conflicts": 0, "dead": 0}


CANONICAL = {
    "keys by code point, escapes as RFC 8785": (
        r'{"session_id":"s","seq":1,"type":"x","payload":{"😀":2,"\ufb33":1,"k":"\u0001\u007f\/\n\b\f\"\\"}}',
        r'{"epoch":0,"kind":"live","payload":{"k":"\u0001'
        + "\x7f"
        + r'/\n\b\f\"\\","'
        + "\ufb33"
        + r'":1,"😀":2},"producer":"harness","provenance":"observed","schema_version":1,"seq":1,'
        r'"session_id":"s","stream":"ledger","tenant":"default","type":"x"}',
    ),
    "numbers": (
        '{"session_id":"s","seq":1,"type":"x","payload":{"a":[1e21,1e-7,0.000001,-0.0,5e-324,1.5E3,12345678901234567890123]}}',
        '{"epoch":0,"kind":"live","payload":{"a":[1e+21,1e-7,0.000001,0,5e-324,1500,12345678901234567890123]},'
        '"producer":"harness","provenance":"observed","schema_version":1,"seq":1,"session_id":"s","stream":"ledger",'
        '"tenant":"default","type":"x"}',
    ),
    "the time in UTC with six digits": (
        '{"session_id":"s","receipt_key":"r","type":"x","occurred_at":"2026-05-01T14:00:00.5+02:00","observed_at":"2026-05-01T14:00:00Z"}',
        '{"epoch":0,"kind":"live","occurred_at":"2026-05-01T12:00:00.500000Z","payload":{},"producer":"harness",'
        '"provenance":"observed","receipt_key":"r","schema_version":1,"session_id":"s","stream":"ledger","tenant":"default","type":"x"}',
    ),
}


@pytest.mark.parametrize(("received", "canonical"), CANONICAL.values(), ids=CANONICAL.keys())
def test_the_hash_is_that_of_the_canonical_record(received: str, canonical: str) -> None:
    key = {name: value for name, value in (("receipt_key", "r"), ("seq", 1)) if f'"{name}"' in received}
    other = ev(None, "other", **key)
    (row,) = fold(received.encode(), other)["conflicts"]
    assert row["kept_sha256"] == hashlib.sha256(canonical.encode()).hexdigest()


def test_one_receipt_for_each_losing_hash_with_positions_and_count() -> None:
    a, b, c = (ev(1, "x", {"v": value}) for value in "abc")
    found = fold(a, b, c, b, a, b)
    assert found["records"] == {"read": 6, "accepted": 1, "duplicates": 1, "conflicts": 4, "dead": 0}
    assert sorted((r["count"], r["first_position"], r["last_position"]) for r in found["conflicts"]) == [
        (1, 3, 3),
        (3, 2, 6),
    ]


def test_a_conflict_row_names_the_key_and_both_hashes_and_nothing_else() -> None:
    (row,) = fold(ev(None, "x", receipt_key="r"), ev(None, "y", receipt_key="r"))["conflicts"]
    assert row.keys() == {
        *("tenant", "session_id", "producer", "epoch", "stream", "seq", "receipt_key"),
        *("kept_sha256", "lost_sha256", "count", "first_position", "last_position"),
    }
    assert (row["seq"], row["receipt_key"]) == (None, "r")


def test_the_key_of_an_event_with_both_is_its_seq() -> None:
    (row,) = fold(ev(1, "x", receipt_key="r"), ev(1, "y", receipt_key="r"))["conflicts"]
    assert row["seq"] == 1


def test_a_conflict_disputes_its_session_alone() -> None:
    found = fold(ev(0, "x"), ev(0, "y"), ev(0, "x", session_id="t"))
    assert [(row["session_id"], row["grade"], row["conflicts"]) for row in found["sessions"]] == [
        ("s", "disputed", 1),
        ("t", "complete", 0),
    ]


def test_two_tenants_share_nothing() -> None:
    found = fold(
        ev(0, "turn.started", turn_id="a"),
        ev(0, "turn.started", {"input_preview": "x"}, turn_id="a", tenant="t"),
    )
    assert [(turn["tenant"], turn["turn_key"]) for turn in found["turns"]] == [("default", "a"), ("t", "a")]
    assert [row["tenant"] for row in found["sessions"]] == ["default", "t"]


def test_conflicts_are_sorted_by_key_and_losing_hash_not_by_arrival() -> None:
    one = [ev(1, "x"), ev(0, "x")]
    lost = [ev(1, "y"), ev(0, "y"), ev(0, "z")]
    rows = fold(*one, *lost)["conflicts"]
    assert [row["seq"] for row in rows] == [0, 0, 1]
    again = fold(*one, *lost[::-1])["conflicts"]
    assert [row["lost_sha256"] for row in again] == [row["lost_sha256"] for row in rows]
