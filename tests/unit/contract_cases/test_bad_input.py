"""Contract 15: what is a dead letter and why, what a wrong type in the payload does, and where a record stands in its input."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.contract_cases.cases import Event, checks, ev, fold, fold_text

MIB = 1_048_576


def record(**more: Any) -> bytes:
    return json.dumps({"session_id": "s", "seq": 0, "type": "x", **more}).encode()


def without(name: str, **more: Any) -> bytes:
    event = {"session_id": "s", "seq": 0, "type": "x", **more}
    del event[name]
    return json.dumps(event).encode()


def raw(value: str, name: str = "payload") -> bytes:
    return f'{{"session_id":"s","type":"x","seq":0,"{name}":{value}}}'.encode()


def nested(depth: int) -> bytes:
    """A record whose deepest object or array stands at `depth`, the record being 1 and its payload 2."""
    return raw('{"v":' + "[" * (depth - 2) + "]" * (depth - 2) + "}")


def sized(size: int) -> bytes:
    head, tail = b'{"session_id":"s","seq":0,"type":"x","payload":{"v":"', b'"}}'
    return head + b"a" * (size - len(head) - len(tail)) + tail


UNREADABLE = {
    "a byte that is no UTF-8": (b'{"session_id":"\xff"}', "encoding"),
    "an overlong form": (b'{"session_id":"\xc0\xaf"}', "encoding"),
    "a surrogate in UTF-8": (b'{"session_id":"\xed\xa0\x80"}', "encoding"),
    "a BOM": (b"\xef\xbb\xbf" + record(), "encoding"),
    "no JSON": (b"nothing", "json"),
    "a record cut off": (record()[:-1], "json"),
    "two records in one line": (record() + record(seq=1), "json"),
    "a comma too many": (b'{"session_id":"s","seq":0,"type":"x",}', "json"),
    "single quotes": (b"{'session_id':'s'}", "json"),
    "a comment": (record() + b" // x", "json"),
    "NaN": (raw('{"v":NaN}'), "json"),
    "Infinity": (raw('{"v":Infinity}'), "json"),
    "-Infinity": (raw('{"v":-Infinity}'), "json"),
    "a leading zero": (raw('{"v":01}'), "json"),
    "a plus sign": (raw('{"v":+1}'), "json"),
    "a bare fraction": (raw('{"v":.5}'), "json"),
    "a bare point": (raw('{"v":1.}'), "json"),
    "hexadecimal": (raw('{"v":0x1}'), "json"),
    "a control character in text": (raw('{"v":"a\tb"}'), "json"),
    "an unknown escape": (raw('{"v":"\\x41"}'), "json"),
    "a form feed between": (b"\x0c" + record(), "json"),
    "a no-break space between": ("\u00a0".encode() + record(), "json"),
    "True": (raw('{"v":True}'), "json"),
    "an array": (b"[1]", "not_an_object"),
    "a number": (b"1", "not_an_object"),
    "a text": (b'"x"', "not_an_object"),
    "true": (b"true", "not_an_object"),
    "NUL in a value": (raw('{"v":"\\u0000"}'), "nul"),
    "NUL in a key": (raw('{"\\u0000":1}'), "nul"),
    "NUL in an envelope field": (record(session_id="a\0"), "nul"),
    "NUL in an unknown field": (record(novel=["a", {"b": "\0"}]), "nul"),
    "too deep": (nested(201), "too_deep"),
    "too large": (sized(MIB + 1), "too_large"),
}

ENVELOPE = {
    "no session": (without("session_id"), "missing_field", "session_id"),
    "an empty session": (record(session_id=""), "missing_field", "session_id"),
    "a null session": (record(session_id=None), "missing_field", "session_id"),
    "no type": (without("type"), "missing_field", "type"),
    "no identity": (without("seq"), "missing_field", "seq"),
    "a null identity": (record(seq=None, receipt_key=None), "missing_field", "seq"),
    "eval without run": (record(kind="eval"), "missing_field", "run_id"),
    "eval with a null run": (record(kind="eval", run_id=None), "missing_field", "run_id"),
    "seq 1.5": (record(seq=1.5), "wrong_type", "seq"),
    "seq true": (record(seq=True), "wrong_type", "seq"),
    "seq text": (record(seq="1"), "wrong_type", "seq"),
    "seq list": (record(seq=[1]), "wrong_type", "seq"),
    "seq wrong beside a receipt key": (record(seq="1", receipt_key="r"), "wrong_type", "seq"),
    "seq below 0": (record(seq=-1), "out_of_range", "seq"),
    "seq 2^63": (record(seq=2**63), "out_of_range", "seq"),
    "seq 1e19": (raw("1e19", "seq"), "out_of_range", "seq"),
    "seq 9223372036854775808.0": (raw("9223372036854775808.0", "seq"), "out_of_range", "seq"),
    "epoch below 0": (record(epoch=-1), "out_of_range", "epoch"),
    "epoch text": (record(epoch="0"), "wrong_type", "epoch"),
    "turn_index below 0": (record(turn_index=-1), "out_of_range", "turn_index"),
    "turn_index text": (record(turn_index="0"), "wrong_type", "turn_index"),
    "turn_index 0.5": (record(turn_index=0.5), "wrong_type", "turn_index"),
    "schema_version text": (record(schema_version="1"), "wrong_type", "schema_version"),
    "session number": (record(session_id=1), "wrong_type", "session_id"),
    "type number": (record(type=1), "wrong_type", "type"),
    "tenant number": (record(tenant=1), "wrong_type", "tenant"),
    "producer object": (record(producer={}), "wrong_type", "producer"),
    "stream false": (record(stream=False), "wrong_type", "stream"),
    "receipt key number": (record(receipt_key=1), "wrong_type", "receipt_key"),
    "turn_id number": (record(turn_id=1), "wrong_type", "turn_id"),
    "trace_id list": (record(trace_id=[]), "wrong_type", "trace_id"),
    "event_id number": (record(event_id=1), "wrong_type", "event_id"),
    "run_id number": (record(run_id=1), "wrong_type", "run_id"),
    "payload list": (record(payload=[]), "wrong_type", "payload"),
    "payload text": (record(payload="{}"), "wrong_type", "payload"),
    "origin list": (record(origin=[]), "wrong_type", "origin"),
    "origin of an object": (record(origin={"a": {}}), "wrong_type", "origin"),
    "kind unlisted": (record(kind="test"), "wrong_type", "kind"),
    "kind in capitals": (record(kind="Live"), "wrong_type", "kind"),
    "kind number": (record(kind=1), "wrong_type", "kind"),
    "provenance unlisted": (record(provenance="seen"), "wrong_type", "provenance"),
    "time without offset": (record(occurred_at="2026-05-01T12:00:00"), "wrong_type", "occurred_at"),
    "time with a blank": (record(occurred_at="2026-05-01 12:00:00Z"), "wrong_type", "occurred_at"),
    "time of second 60": (record(occurred_at="2016-12-31T23:59:60Z"), "wrong_type", "occurred_at"),
    "time of hour 24": (record(occurred_at="2026-05-01T24:00:00Z"), "wrong_type", "occurred_at"),
    "time of day 30 in February": (record(occurred_at="2026-02-30T12:00:00Z"), "wrong_type", "occurred_at"),
    "time of month 13": (record(occurred_at="2026-13-01T12:00:00Z"), "wrong_type", "occurred_at"),
    "time with a comma": (record(occurred_at="2026-05-01T12:00:00,5Z"), "wrong_type", "occurred_at"),
    "time with an empty fraction": (record(occurred_at="2026-05-01T12:00:00.Z"), "wrong_type", "occurred_at"),
    "time without seconds": (record(occurred_at="2026-05-01T12:00Z"), "wrong_type", "occurred_at"),
    "time with a short offset": (record(occurred_at="2026-05-01T12:00:00+02"), "wrong_type", "occurred_at"),
    "time with a colonless offset": (
        record(occurred_at="2026-05-01T12:00:00+0200"),
        "wrong_type",
        "occurred_at",
    ),
    "time with offset hour 24": (
        record(occurred_at="2026-05-01T12:00:00+24:00"),
        "wrong_type",
        "occurred_at",
    ),
    "time with offset minute 60": (
        record(occurred_at="2026-05-01T12:00:00+01:60"),
        "wrong_type",
        "occurred_at",
    ),
    "time in other digits": (record(occurred_at="２０２６-05-01T12:00:00Z"), "wrong_type", "occurred_at"),
    "time of white space": (record(occurred_at="2026-05-01T12:00:00Z "), "wrong_type", "occurred_at"),
    "time of a newline": (record(occurred_at="2026-05-01T12:00:00Z\n"), "wrong_type", "occurred_at"),
    "time empty": (record(occurred_at=""), "wrong_type", "occurred_at"),
    "time number": (record(occurred_at=1777636800), "wrong_type", "occurred_at"),
    "ordinal date": (record(occurred_at="2026-121T12:00:00Z"), "wrong_type", "occurred_at"),
    "week date": (record(occurred_at="2026-W18-5T12:00:00Z"), "wrong_type", "occurred_at"),
    "observed_at outside the grammar": (record(observed_at="yesterday"), "wrong_type", "observed_at"),
}

LIMITS = {
    "session_id": 256,
    "tenant": 128,
    "producer": 128,
    "stream": 256,
    "receipt_key": 512,
    "type": 128,
} | dict.fromkeys(("trace_id", "turn_id", "model_call_id", "tool_call_id", "parent_session_id"), 512)

GOOD = {
    "depth 200": nested(200),
    "1 MiB": sized(MIB),
    "the greatest seq": record(seq=2**63 - 1),
    "12.0 as a seq": raw("12.0", "seq"),
    "1e3 as a seq": raw("1e3", "seq"),
    "-0 as a seq": raw("-0", "seq"),
    "a seq of 0.0": raw("0.0", "seq"),
    "an integer beyond int64 in an unknown field": raw("1" + "0" * 400, "novel"),
    "an integer beyond int64 in the payload": raw('{"v":1' + "0" * 400 + "}"),
    "the greatest double": raw('{"v":1.7976931348623157e308}'),
    "a number below every double": raw('{"v":1e-400}'),
    "an escaped control character": raw('{"v":"\\u0001"}'),
    "DEL and U+2028 as they are": raw('{"v":"\x7f\u2028"}'),
    "an empty key": raw('{"":1}'),
    "scalars in the origin": record(origin={"a": 1, "b": "x", "c": True, "d": None, "e": 1.5}),
    "eval with a run": record(kind="eval", run_id="r"),
    "import": record(kind="import"),
    "a run outside eval": record(run_id="r"),
    "unknown fields": record(novel={"a": [1]}),
    "a receipt key alone": without("seq", receipt_key="r"),
    "one end of a fraction": record(occurred_at="2026-05-01T12:00:00.1234567890123Z"),
    "a leap day": record(occurred_at="2024-02-29T00:00:00Z"),
    "an offset of 23:59": record(occurred_at="2026-05-01T12:00:00+23:59"),
}


@pytest.mark.parametrize(("received", "reason"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_cannot_be_read_is_a_dead_letter_without_a_field(received: bytes, reason: str) -> None:
    found = fold(received)
    assert found["records"] == {"read": 1, "accepted": 0, "duplicates": 0, "conflicts": 0, "dead": 1}
    (row,) = found["dead_letters"]
    assert (row["position"], row["reason"]) == (1, reason)


@pytest.mark.parametrize(
    "received",
    [
        raw('{"v":1e309}'),
        raw('{"v":-1e309}'),
        raw('{"v":"\\ud800"}'),
        raw('{"v":"\\ude00\\ud83d"}'),
        raw('{"\\udfff":1}'),
        b"null",
        raw('{"v":"\0"}'),
    ],
)
def test_what_has_no_value_of_its_own_is_a_dead_letter(received: bytes) -> None:
    assert fold(received)["records"]["dead"] == 1


@pytest.mark.parametrize(("received", "reason", "field"), ENVELOPE.values(), ids=ENVELOPE.keys())
def test_a_wrong_envelope_is_a_dead_letter_that_names_the_field(
    received: bytes, reason: str, field: str
) -> None:
    found = fold(received)
    assert found["records"] == {"read": 1, "accepted": 0, "duplicates": 0, "conflicts": 0, "dead": 1}
    (row,) = found["dead_letters"]
    assert (row["reason"], row["field"]) == (reason, field)


@pytest.mark.parametrize("name", LIMITS)
def test_a_text_is_measured_in_bytes(name: str) -> None:
    length = LIMITS[name] // 2
    assert fold(record(**{name: "é" * length}))["records"]["accepted"] == 1
    (row,) = fold(record(**{name: "é" * length + "a"}))["dead_letters"]
    assert (row["reason"], row["field"]) == ("out_of_range", name)


@pytest.mark.parametrize("received", GOOD.values(), ids=GOOD.keys())
def test_what_the_grammar_allows_is_accepted(received: bytes) -> None:
    assert fold(received)["records"] == {"read": 1, "accepted": 1, "duplicates": 0, "conflicts": 0, "dead": 0}


def test_a_dead_letter_has_these_fields() -> None:
    (row,) = fold(record(epoch="0", tenant="t"))["dead_letters"]
    assert row.keys() == {"position", "reason", "field", "detail", "tenant", "session_id"}
    assert (row["tenant"], row["session_id"], row["position"]) == ("t", "s", 1)
    assert isinstance(row["detail"], str)


def test_a_dead_letter_that_names_no_session_has_none() -> None:
    (row,) = fold(b"nothing")["dead_letters"]
    assert (row["tenant"], row["session_id"], row["field"]) == (None, None, None)


def test_a_dead_letter_counts_in_the_session_that_it_names() -> None:
    found = fold(record(), record(seq="1"), record(seq="1", tenant="t"), b"nothing")
    assert [(row["tenant"], row["dead_letters"]) for row in found["sessions"]] == [("default", 1)]


def test_a_dead_letter_says_nothing_of_what_it_held() -> None:
    found = fold(
        b'{"session_id":"s","seq":0,"type":"x","occurred_at":"sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123"}'
    )
    assert "sk-ant" not in json.dumps(found)


LINES = {
    "blank lines have a position": ([b"\n \t\r\nnope\n"], 1, [3]),
    "an unterminated last line is a record": ([record() + b"\nnope"], 2, [2]),
    "a terminated last line adds no record": ([b"nope\n"], 1, [1]),
    "one trailing CR is dropped": ([record() + b"\r\n"], 1, []),
    "of two trailing CRs one is white space": ([record() + b"\r\r\n"], 1, []),
    "a CR alone ends no line": ([record() + b"\r" + record(seq=1) + b"\n"], 1, [1]),
    "a vertical tab is no white space of JSON": ([b"\x0b\n"], 1, [1]),
    "a no-break space is no white space of JSON": (["\u00a0\n".encode()], 1, [1]),
    "a line separator ends no line": ([raw('{"v":"\u2028\u0085"}') + b"\n"], 1, []),
    "an empty input": ([b""], 0, []),
    "a last line of white space is no record": ([record() + b"\n  "], 1, []),
}


@pytest.mark.parametrize(("chunks", "read", "dead"), LINES.values(), ids=LINES.keys())
def test_lines(chunks: list[bytes], read: int, dead: list[int]) -> None:
    found = fold_text(*chunks)
    assert found["records"]["read"] == read
    assert [row["position"] for row in found["dead_letters"]] == dead


def reading(found: Any) -> list[Any]:
    return [row for row in found["findings"] if row["check"] == "wrong_type_in_payload"]


def completed(**usage: Any) -> Event:
    payload = {
        "provider": "anthropic",
        "model": "m",
        "message_id": "x",
        "usage": {"input": 1, "output": 2, "cache_read": 0, **usage},
    }
    return ev(0, "model_call.completed", payload, turn_id="a")


@pytest.mark.parametrize("value", ["[REDACTED]", 12.5, -5, 10**30, True, [], {}, "5"])
def test_a_wrong_token_count_is_null_and_a_finding_and_the_rest_stands(value: object) -> None:
    found = fold(completed(output=value))
    assert found["records"]["accepted"] == 1
    usage = found["turns"][0]["usage"]
    assert (usage["output"], usage["input_uncached"]) == (None, 1)
    assert [row["count"] for row in reading(found)] == [1]


@pytest.mark.parametrize("value", ["12.0", "1.2e1"])
def test_an_integral_token_count_is_an_integer_however_it_is_spelt(value: str) -> None:
    event = json.dumps(completed(output=0)).replace('"output": 0', f'"output": {value}')
    found = fold(event.encode())
    assert found["turns"][0]["usage"]["output"] == 12
    assert reading(found) == []


@pytest.mark.parametrize("name", ["source", "counter_kind"])
def test_an_unlisted_word_is_null_and_a_finding(name: str) -> None:
    payload = {
        "provider": "anthropic",
        "model": "m",
        "message_id": "x",
        "usage": {"input": 1, "output": 2, "cache_read": 0},
        name: "novel",
    }
    found = fold(ev(0, "usage.reported", payload, turn_id="a"))
    assert found["turns"][0]["usage"]["output"] == 2
    assert [row["count"] for row in reading(found)] == [1]


WRONG = {
    "a model": (ev(0, "model_call.completed", {"model": 5, "provider": "p"}, turn_id="a"), 1),
    "a usage that is no object": (ev(0, "model_call.completed", {"usage": "none"}, turn_id="a"), 1),
    "a port": (ev(0, "net.requested", {"domain": "d", "port": "443", "decision": "allowed"}), 1),
    "a role": (ev(0, "message.recorded", {"role": 1}), 1),
    "a tool's name": (ev(0, "tool_call.requested", {"tool_name": ["x"]}, turn_id="a"), 1),
    "a session's name": (ev(0, "session.started", {"name": 7}), 1),
    "null is no wrong type": (ev(0, "session.started", {"name": None}), 0),
    "an unknown field has no type": (ev(0, "session.started", {"novel": 7}), 0),
    "an unknown event type has no types": (ev(0, "novel", {"model": 7}), 0),
}


@pytest.mark.parametrize(("event", "count"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_type_in_the_payload_is_one_finding(event: Event, count: int) -> None:
    found = fold(event)
    assert found["records"]["accepted"] == 1
    assert sum(row["count"] for row in reading(found)) == count


def test_an_unknown_type_is_accepted_and_counted() -> None:
    found = fold(
        ev(0, "novel.kind", turn_id="a"), ev(1, "novel.kind", turn_id="a"), ev(2, "other", turn_id="a")
    )
    assert checks(found) == {"turn_without_start": 1, "unknown_event_type": 3}
    assert found["turns"][0]["counts"]["events"] == 3


def test_a_higher_schema_version_is_read_and_flagged() -> None:
    found = fold(ev(0, "turn.started", turn_id="a", schema_version=2))
    assert checks(found) == {"newer_schema_version": 1}
    assert found["turns"][0]["status"] == "open"
