"""Reading one record: what is accepted, with which defaults, and why the rest is a dead letter (contract 2 and 15)."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from tests.fixtures.hostile import HOSTILE, Hostile
from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.contract.reader import Rejected, read

Reader = Callable[[bytes | None], Event | Rejected]

INT64_MAX = 9_223_372_036_854_775_807


@pytest.fixture(params=["strict", "fast"])
def reader(request: pytest.FixtureRequest) -> Reader:
    return read if request.param == "strict" else FastReader().read


def record(**fields: Any) -> bytes:
    return json.dumps({"session_id": "s", "seq": 7, "type": "x"} | fields).encode()


def spelt(fields: str) -> bytes:
    """A good record with fields as JSON text; they come last, so that they count."""
    return b'{"session_id":"s","seq":7,"type":"x",' + fields.encode() + b"}"


def accepted(answer: Event | Rejected) -> Event:
    assert isinstance(answer, Event), answer
    return answer


def rejected(answer: Event | Rejected) -> Rejected:
    assert isinstance(answer, Rejected), answer
    return answer


def test_absent_fields_have_their_defaults(reader: Reader) -> None:
    event = accepted(reader(record()))
    assert {name: getattr(event, name) for name in event.__struct_fields__} == {
        "session_id": "s",
        "type": "x",
        "schema_version": 1,
        "tenant": "default",
        "producer": "harness",
        "epoch": 0,
        "stream": "ledger",
        "seq": 7,
        "receipt_key": None,
        "occurred_at": None,
        "observed_at": None,
        "kind": "live",
        "run_id": None,
        "provenance": "observed",
        "event_id": None,
        "trace_id": None,
        "turn_id": None,
        "model_call_id": None,
        "tool_call_id": None,
        "parent_session_id": None,
        "turn_index": None,
        "origin": None,
        "payload": {},
        "at": None,
        "running": None,
        "position": 0,
        "length": 0,
    }


def test_null_means_absent(reader: Reader) -> None:
    nulls = dict.fromkeys(
        [
            "schema_version",
            "tenant",
            "producer",
            "epoch",
            "stream",
            "receipt_key",
            "occurred_at",
            "observed_at",
            "kind",
            "run_id",
            "provenance",
            "event_id",
            "trace_id",
            "turn_id",
            "model_call_id",
            "tool_call_id",
            "parent_session_id",
            "turn_index",
            "origin",
            "payload",
            "unknown",
        ]
    )
    event = accepted(reader(record(**nulls)))
    plain = accepted(reader(record()))
    assert [getattr(event, name) for name in event.__struct_fields__] == [
        getattr(plain, name) for name in plain.__struct_fields__
    ]


def test_every_field_is_read(reader: Reader) -> None:
    event = accepted(
        reader(
            record(
                schema_version=1,
                tenant="t",
                producer="p",
                epoch=2,
                stream="bus",
                receipt_key="r",
                occurred_at="2026-01-01T01:00:00.5+01:00",
                observed_at="2026-01-01T00:00:01Z",
                kind="eval",
                run_id="run",
                provenance="claimed",
                event_id="e",
                trace_id="a",
                turn_id="b",
                model_call_id="c",
                tool_call_id="d",
                parent_session_id="f",
                turn_index=3,
                payload={"text": "x", "deep": {"n": [1, 2.5, None]}},
            )
        )
    )
    assert (event.tenant, event.producer, event.epoch, event.stream, event.seq, event.receipt_key) == (
        "t",
        "p",
        2,
        "bus",
        7,
        "r",
    )
    assert (event.occurred_at, event.at) == ("2026-01-01T01:00:00.5+01:00", 1_767_225_600_500_000)
    assert (event.observed_at, event.kind, event.run_id) == ("2026-01-01T00:00:01Z", "eval", "run")
    assert (event.provenance, event.event_id, event.trace_id, event.turn_id) == ("claimed", "e", "a", "b")
    assert (event.model_call_id, event.tool_call_id, event.parent_session_id) == ("c", "d", "f")
    assert (event.turn_index, event.payload) == (3, {"text": "x", "deep": {"n": [1, 2.5, None]}})


def test_empty_correlation_is_absent_and_other_empty_texts_stay(reader: Reader) -> None:
    empty = dict.fromkeys(
        ["trace_id", "turn_id", "model_call_id", "tool_call_id", "parent_session_id", "event_id", "tenant"],
        "",
    )
    event = accepted(reader(record(**empty)))
    assert (event.trace_id, event.turn_id, event.model_call_id) == (None, None, None)
    assert (event.tool_call_id, event.parent_session_id) == (None, None)
    assert (event.event_id, event.tenant) == ("", "")


def test_a_receipt_key_is_identity_enough(reader: Reader) -> None:
    event = accepted(reader(b'{"session_id":"s","type":"x","receipt_key":"span-1"}'))
    assert (event.seq, event.receipt_key) == (None, "span-1")


def test_origin_is_read_as_text(reader: Reader) -> None:
    event = accepted(
        reader(
            spelt(
                '"origin":{"host":"h","pid":4312,"big":1e3,"part":1.50,"exact":true,"none":null,"":"","no":false}'
            )
        )
    )
    assert event.origin == {
        "host": "h",
        "pid": "4312",
        "big": "1000",
        "part": "1.5",
        "exact": "true",
        "": "",
        "no": "false",
    }


def test_the_payload_of_one_event_is_not_that_of_the_next(reader: Reader) -> None:
    accepted(reader(record())).payload["mark"] = 1
    assert accepted(reader(record())).payload == {}


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("-0.0", 0),
        ("12.0", 12),
        ("1e3", 1000),
        ("9007199254740993", 9_007_199_254_740_993),
        ("1152921504606846976.0", 1_152_921_504_606_847_000),
        (str(INT64_MAX), INT64_MAX),
    ],
)
def test_an_integer_is_a_number_whose_canonical_text_is_one(reader: Reader, literal: str, value: int) -> None:
    event = accepted(reader(spelt(f'"seq":{literal},"epoch":{literal},"turn_index":{literal}')))
    assert (event.seq, event.epoch, event.turn_index) == (value, value, value)
    assert (type(event.seq), type(event.epoch), type(event.turn_index)) == (int, int, int)


def test_numbers_of_the_payload_keep_their_type(reader: Reader) -> None:
    event = accepted(
        reader(spelt('"payload":{"i":12,"f":12.0,"z":-0.0,"big":' + "9" * 60 + ',"huge":' + "9" * 5000 + "}"))
    )
    payload = event.payload
    assert (type(payload["i"]), type(payload["f"]), str(payload["z"])) == (int, float, "-0.0")
    assert payload["big"] == 10**60 - 1
    assert payload["huge"] == Decimal("9" * 5000)


def test_of_duplicate_keys_the_last_counts(reader: Reader) -> None:
    event = accepted(
        reader(spelt('"seq":"1","seq":8,"payload":[],"payload":{"a":1,"a":2},"tenant":null,"tenant":"t"'))
    )
    assert (event.seq, event.payload, event.tenant) == (8, {"a": 2}, "t")


def test_a_higher_version_an_unknown_field_and_an_unknown_type_are_read(reader: Reader) -> None:
    event = accepted(
        reader(record(schema_version=9, type="a.new_type", new_field={"a": [1]}, **{"\x7fat": 5, "at": 5}))
    )
    assert (event.schema_version, event.type, event.at, event.position) == (9, "a.new_type", None, 0)


@pytest.mark.parametrize("name", ["at", "running", "position", "length"])
def test_a_record_cannot_set_what_is_not_on_the_wire(reader: Reader, name: str) -> None:
    for value in (5, "x", 0):
        event = accepted(reader(record(**{"\x7f" + name: value})))
        assert (event.at, event.running, event.position, event.length) == (None, None, 0, 0)


def test_white_space_around_the_record_is_allowed(reader: Reader) -> None:
    assert accepted(reader(b" \r\n\t" + record() + b"\n ")).seq == 7


@pytest.mark.parametrize(
    "text", ["😀", "\\ud83d\\ude00", "\\\\u0000", "\\\\ud800", "\x7f", "\\u001b\\u0001", "\u2028"]
)
def test_texts_that_only_look_dangerous_are_read(reader: Reader, text: str) -> None:
    event = accepted(reader(spelt(f'"payload":{{"text":"{text}"}}')))
    assert event.payload == {"text": json.loads(f'"{text}"')}


def nested(depth: int) -> bytes:
    """A record of this depth, its own object counted."""
    return (
        b'{"session_id":"s","seq":7,"type":"x","payload":{"a":'
        + b"[" * (depth - 2)
        + b"]" * (depth - 2)
        + b"}}"
    )


def test_depth_200_is_read(reader: Reader) -> None:
    assert accepted(reader(nested(200))).seq == 7
    assert accepted(reader(record(payload={"text": "[{" * 500, "many": [{}, []] * 300}))).seq == 7


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"":'])
@pytest.mark.parametrize("levels", [201, 5_000, 100_000])
def test_what_is_deeper_is_dead(reader: Reader, opening: bytes, levels: int) -> None:
    raw = b'{"session_id":"s","x":' + opening * levels
    assert rejected(reader(raw)).reason == "too_deep"


def test_depth_201_is_dead(reader: Reader) -> None:
    assert rejected(reader(nested(201))).reason == "too_deep"
    objects = b'{"session_id":"s","seq":7,"type":"x","payload":' + b'{"":' * 200 + b"1" + b"}" * 201
    assert rejected(reader(objects)).reason == "too_deep"


@pytest.mark.parametrize(
    ("raw", "reason", "field"),
    [
        (None, "empty", None),
        (b"", "empty", None),
        (b" \r\n\t", "empty", None),
        (b"\xef\xbb\xbf" + record(), "encoding", None),
        (record().decode().encode("utf-16"), "encoding", None),
        (record().decode().encode("utf-16-le"), "nul", None),
        (b'{"session_id":"s","seq":7,"type":"x","payload":{"a":"\xff"}}', "encoding", None),
        (b'{"session_id":"s","seq":7,"type":"x","payload":{"a":"\xed\xa0\x80"}}', "encoding", None),
        (b'{"session_id":"s","seq":7,"type":"x","payload":{"a":"\xc0\xaf"}}', "encoding", None),
        (b'{"session_id":"s","seq":7,"type":"x","\xff":1}', "encoding", None),
        (spelt('"payload":{"a":"\\ud800"}'), "encoding", "payload"),
        (spelt('"payload":{"a":"\\ude00\\ud83d"}'), "encoding", "payload"),
        (spelt('"payload":{"\\uD800":1}'), "encoding", "payload"),
        (spelt('"unknown":"\\udfff"'), "encoding", None),
        (spelt('"turn_id":"\\ud83d\\u0041"'), "encoding", "turn_id"),
        (spelt('"payload":{"a":"\\ud800","a":1}'), "encoding", None),
        (spelt('"payload":{"a":"x\\u0000"}'), "nul", "payload"),
        (spelt('"payload":{"\\u0000":1}'), "nul", "payload"),
        (spelt('"origin":{"a":"\\\\\\u0000"}'), "nul", "origin"),
        (spelt('"\\u0000":1'), "nul", None),
        (spelt('"payload":{"a":"\x00"}'), "nul", None),
        (spelt('"payload":{"a":"\x01"}'), "json", None),
        (spelt('"payload":{"a":"\n"}'), "json", None),
        (spelt('"payload":{"a":NaN}'), "json", None),
        (spelt('"payload":{"a":-Infinity}'), "json", None),
        (spelt('"payload":{"a":01}'), "json", None),
        (spelt('"payload":{"a":1.}'), "json", None),
        (spelt('"payload":{"a":.5}'), "json", None),
        (spelt('"payload":{"a":+1}'), "json", None),
        (spelt('"payload":{"a":0x1}'), "json", None),
        (spelt('"payload":{"a":\'x\'}'), "json", None),
        (spelt('"payload":{"a":"\\x"}'), "json", None),
        (spelt('"payload":{"a":"\\u12"}'), "json", None),
        (spelt('"payload":{"a":1,}'), "json", None),
        (spelt('"payload":{a:1}'), "json", None),
        (spelt('"payload":{} /* */'), "json", None),
        (record()[:-1], "json", None),
        (record() + b"x", "json", None),
        (record() + record(), "json", None),
        (b"\x0b" + record(), "json", None),
        (record() + b"\xc2\xa0", "json", None),
        (b"garbage", "json", None),
        (spelt('"payload":{"a":1e999}'), "out_of_range", "payload"),
        (spelt('"unknown":-1e999'), "out_of_range", None),
        (spelt('"payload":{"a":1' + "0" * 400 + ".5}"), "out_of_range", "payload"),
        (b"[]", "not_an_object", None),
        (b"null", "not_an_object", None),
        (b'"x"', "not_an_object", None),
        (b"7", "not_an_object", None),
        (b"{}", "missing_field", "session_id"),
        (b'{"seq":7,"type":"x"}', "missing_field", "session_id"),
        (spelt('"session_id":""'), "missing_field", "session_id"),
        (spelt('"session_id":null'), "missing_field", "session_id"),
        (spelt('"session_id":7'), "wrong_type", "session_id"),
        (b'{"session_id":"s","seq":7}', "missing_field", "type"),
        (spelt('"type":null'), "missing_field", "type"),
        (spelt('"type":""'), "missing_field", "type"),
        (spelt('"type":["x"]'), "wrong_type", "type"),
        (b'{"session_id":"s","type":"x"}', "missing_field", "seq"),
        (spelt('"seq":null'), "missing_field", "seq"),
        (spelt('"seq":null,"receipt_key":""'), "missing_field", "seq"),
        (spelt('"seq":1.5'), "wrong_type", "seq"),
        (spelt('"seq":true'), "wrong_type", "seq"),
        (spelt('"seq":"1"'), "wrong_type", "seq"),
        (spelt('"seq":[1]'), "wrong_type", "seq"),
        (spelt('"seq":"1","receipt_key":"r"'), "wrong_type", "seq"),
        (spelt('"seq":-1'), "out_of_range", "seq"),
        (spelt('"seq":9223372036854775808'), "out_of_range", "seq"),
        (spelt('"seq":9223372036854775807.0'), "out_of_range", "seq"),
        (spelt('"seq":1e30'), "out_of_range", "seq"),
        (spelt('"seq":' + "9" * 60), "out_of_range", "seq"),
        (spelt('"seq":' + "9" * 5000), "out_of_range", "seq"),
        (spelt('"epoch":-1'), "out_of_range", "epoch"),
        (spelt('"epoch":{}'), "wrong_type", "epoch"),
        (spelt('"turn_index":-1'), "out_of_range", "turn_index"),
        (spelt('"turn_index":"3"'), "wrong_type", "turn_index"),
        (spelt('"schema_version":"2"'), "wrong_type", "schema_version"),
        (spelt('"schema_version":9223372036854775808'), "out_of_range", "schema_version"),
        (spelt('"tenant":5'), "wrong_type", "tenant"),
        (record(tenant="x" * 129), "out_of_range", "tenant"),
        (record(session_id="x" * 257), "out_of_range", "session_id"),
        (record(producer="x" * 129), "out_of_range", "producer"),
        (record(stream="x" * 257), "out_of_range", "stream"),
        (record(receipt_key="x" * 513), "out_of_range", "receipt_key"),
        (record(type="x" * 129), "out_of_range", "type"),
        (record(turn_id="x" * 513), "out_of_range", "turn_id"),
        (record(tool_call_id=5), "wrong_type", "tool_call_id"),
        (record(event_id=5), "wrong_type", "event_id"),
        (record(occurred_at="2026-01-01T00:00:00"), "wrong_type", "occurred_at"),
        (record(occurred_at="2026-01-01T00:00:60Z"), "wrong_type", "occurred_at"),
        (record(occurred_at="2016-12-31T23:59:60Z"), "wrong_type", "occurred_at"),
        (record(occurred_at="2026-02-30T00:00:00Z"), "wrong_type", "occurred_at"),
        (record(occurred_at=1767225600), "wrong_type", "occurred_at"),
        (record(occurred_at=""), "wrong_type", "occurred_at"),
        (record(observed_at="yesterday"), "wrong_type", "observed_at"),
        (record(kind="test"), "wrong_type", "kind"),
        (record(kind="Live"), "wrong_type", "kind"),
        (record(kind=["live"]), "wrong_type", "kind"),
        (record(kind="eval"), "missing_field", "run_id"),
        (record(kind="eval", run_id=""), "missing_field", "run_id"),
        (record(run_id=5), "wrong_type", "run_id"),
        (record(provenance="guessed"), "wrong_type", "provenance"),
        (record(origin=[]), "wrong_type", "origin"),
        (record(origin={"a": {}}), "wrong_type", "origin"),
        (record(origin={"a": "x", "b": [1]}), "wrong_type", "origin"),
        (record(payload=[]), "wrong_type", "payload"),
        (record(payload="{}"), "wrong_type", "payload"),
    ],
)
def test_bad_input_is_a_dead_letter_with_its_reason(
    reader: Reader, raw: bytes | None, reason: str, field: str | None
) -> None:
    answer = rejected(reader(raw))
    assert (answer.reason, answer.field) == (reason, field)
    assert answer.detail


@pytest.mark.parametrize(
    ("field", "limit"),
    [
        ("tenant", 128),
        ("session_id", 256),
        ("producer", 128),
        ("stream", 256),
        ("receipt_key", 512),
        ("type", 128),
    ]
    + [(name, 512) for name in ["trace_id", "turn_id", "model_call_id", "tool_call_id", "parent_session_id"]],
)
@pytest.mark.parametrize("escaped", [True, False])
def test_lengths_are_counted_in_bytes(reader: Reader, field: str, limit: int, escaped: bool) -> None:
    def of(text: str) -> bytes:
        fields = {"session_id": "s", "seq": 7, "type": "x", field: text}
        return json.dumps(fields, ensure_ascii=escaped).encode()

    fits = "é" * (limit // 2)
    assert getattr(accepted(reader(of(fits))), field) == fits
    assert rejected(reader(of(fits + "x"))).reason == "out_of_range"
    emoji = "😀" * (limit // 4)
    assert getattr(accepted(reader(of(emoji))), field) == emoji
    assert rejected(reader(of(emoji[:-1] + "ééx"))).reason == "out_of_range"


def test_the_size_limit_is_in_bytes_and_can_be_set() -> None:
    raw = record(payload={"text": "x" * (1 << 20)})
    assert rejected(read(raw)).reason == "too_large"
    assert rejected(FastReader().read(raw)).reason == "too_large"
    assert accepted(read(raw, limit=len(raw))).seq == 7
    assert accepted(FastReader(limit=len(raw)).read(raw)).seq == 7
    assert rejected(read(raw, limit=len(raw) - 1)).reason == "too_large"
    assert rejected(FastReader(limit=len(raw) - 1).read(raw)).reason == "too_large"


@pytest.mark.parametrize(
    ("raw", "tenant", "session_id"),
    [
        (record(seq="1", tenant="acme"), "acme", "s"),
        (record(seq="1"), "default", "s"),
        (record(seq="1", tenant=None), "default", "s"),
        (record(tenant=5), None, "s"),
        (record(tenant="x" * 129), None, "s"),
        (record(session_id=""), "default", None),
        (record(session_id=7, tenant="acme"), "acme", None),
        (spelt('"tenant":"acme","payload":{"a":"\\u0000"}'), "acme", "s"),
        (spelt('"tenant":"a\\u0000"'), None, "s"),
        (spelt('"tenant":"acme","session_id":"\\ud800"'), "acme", None),
        (spelt('"tenant":"acme","payload":{"a":1e999}'), "acme", "s"),
        (b'{"session_id":"s","tenant":"acme"', None, None),
        (b"[]", None, None),
        (None, None, None),
    ],
)
def test_a_dead_letter_keeps_the_tenant_and_session_that_could_be_read(
    reader: Reader, raw: bytes | None, tenant: str | None, session_id: str | None
) -> None:
    answer = rejected(reader(raw))
    assert (answer.tenant, answer.session_id) == (tenant, session_id)


@pytest.mark.parametrize(
    "raw",
    [
        record(seq="hunter2"),
        record(kind="hunter2"),
        record(occurred_at="hunter2"),
        record(turn_id="hunter2" * 100),
        record(origin={"hunter2": ["hunter2"]}),
        record(payload="hunter2"),
        spelt('"hunter2":"hunter2\\u0000"'),
        spelt('"payload":{"hunter2":"\\ud800hunter2"}'),
        spelt('"payload":{"hunter2":hunter2}'),
        b"hunter2",
        b'"hunter2"',
    ],
)
def test_a_dead_letter_shows_no_content(reader: Reader, raw: bytes) -> None:
    assert "hunter2" not in repr(rejected(reader(raw)))


def test_the_detail_names_type_and_bounds() -> None:
    assert rejected(read(record(seq="1"))).detail == "seq must be an integer, not a text"
    assert rejected(read(record(epoch=-1))).detail == "epoch must be an integer from 0 to 9223372036854775807"
    assert rejected(read(record(tenant="x" * 129))).detail == "tenant must be at most 128 bytes long"
    assert rejected(read(record(kind="eval"))).detail == "an eval event needs run_id"
    assert rejected(read(b"{}")).detail == "session_id is required"


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda one: one.name)
def test_a_hostile_record_ends_as_it_must(reader: Reader, hostile: Hostile) -> None:
    told = reader(hostile.value)
    if hostile.end == "accepted":
        assert isinstance(told, Event)
    else:
        assert isinstance(told, Rejected)
        assert (told.reason, told.field) == (hostile.reason, hostile.field)
