"""Redaction of a record (contract 14): what is hidden, what is left, and what the event says about it."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from typing import Any

import pytest

from turnledger.contract.canonical import content_hash
from turnledger.contract.redact import Redactor
from turnledger.contract.shapes import hide, hide_bytes

KEY = b"a key of the tests, 32 bytes long"


def token(start: str, length: int = 40) -> str:
    """A made-up secret, put together here so that no scanner takes this file for a leak."""
    return start + ("Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z" * 4)[:length]


SK = token("sk-ant-")


def record(**fields: Any) -> bytes:
    return json.dumps({"session_id": "s", "seq": 1, "type": "note", **fields}).encode()


def redacted(raw: bytes, redactor: Redactor | None = None) -> dict[str, Any]:
    found = (redactor or Redactor()).redact(raw)
    assert found is not None
    value: dict[str, Any] = json.loads(found.raw)
    return value


# --- headers ---


def headers(value: Any) -> Any:
    return redacted(record(type="net.requested", payload={"request_headers": value}))["payload"][
        "request_headers"
    ]


HASHED = "hash:" + sha256(b"a=b").hexdigest()[:12]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"Cookie": "a=b", "Host": "x.example"}, {"Cookie": HASHED, "Host": "x.example"}),
        ({"cookie": ["a=b", "a=b"]}, {"cookie": [HASHED, HASHED]}),
        ([["Cookie", "a=b"], ["Date", "now"]], [["Cookie", HASHED], ["Date", "now"]]),
        ([{"name": "Cookie", "value": "a=b"}], [{"name": "Cookie", "value": HASHED}]),
        (["Cookie: a=b", "Accept: */*"], [f"Cookie: {HASHED}", "Accept: */*"]),
        ("Cookie: a=b\r\nServer: y\r\n", f"Cookie: {HASHED}\r\nServer: y\r\n"),
        ("Cookie: a=b\r\n and=more\r\nServer: y", f"Cookie: {HASHED}\r\nServer: y"),
        ('{"Cookie":"a=b"}', f'{{"Cookie":"{HASHED}"}}'),
    ],
)
def test_a_header_outside_the_list_becomes_a_hash(given: Any, shown: Any) -> None:
    assert headers(given) == shown


@pytest.mark.parametrize(
    "name",
    [
        "accept", "content-encoding", "content-length", "Content-Type", "date", "HOST", "server", "transfer-encoding", "user-agent", "user_agent",
    ],
)  # fmt: skip
def test_a_header_of_the_list_is_shown(name: str) -> None:
    assert headers({name: "shown", "x": "y"})[name] == "shown"


def test_a_secret_in_a_header_of_the_list_is_hidden_by_its_shape() -> None:
    assert headers({"user-agent": f"tool/1 {SK}", "x": "y"})["user-agent"].startswith(
        "tool/1 credential:anthropic:"
    )


def test_a_number_and_null_among_headers() -> None:
    assert headers({"x-count": 5, "x-none": None, "cookie": "a=b"}) == {
        "x-count": "hash:" + sha256(b"5").hexdigest()[:12],
        "x-none": None,
        "cookie": HASHED,
    }


def test_columns_named_headers_are_no_http_headers() -> None:
    assert Redactor().redact(record(payload={"headers": ["name", "price"]})) is None


def test_headers_as_attributes_of_a_span() -> None:
    payload = {"http.request.header.cookie": ["a=b"], "http.request.header.host": "x"}
    shown = redacted(record(payload=payload))["payload"]
    assert (shown["http.request.header.cookie"], shown["http.request.header.host"]) == ([HASHED], "x")


# --- secrets by shape ---


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (token("sk-"), "sk"),
        (token("sk-proj-"), "openai"),
        (token("sk-ant-api03-"), "anthropic"),
        (token("sk-or-v1-"), "openrouter"),
        (token("AIza", 35), "google"),
        *((token(f"gh{letter}_", 36), "github") for letter in "pousr"),
        (token("github_pat_"), "github_pat"),
        (token("glpat-"), "gitlab"),
        ("xoxb-" + "1234567890-abcdefghij", "slack"),
        ("AKIA" + "ABCDEFGHIJ234567", "aws"),
        (token("sk" + "_live_"), "stripe"),
        (token("npm_", 36), "npm"),
        (token("hf_", 34), "huggingface"),
        ("eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0." + "c2lnbmF0dXJlMTIz", "jwt"),
    ],
)
@pytest.mark.parametrize(
    "around", ["{}", "key={}&x=1", '\\n{}\\"', "\x1b[0m{}", "%3D{}", '"{}"', "({})", "a {} b"]
)
def test_a_key_known_by_its_beginning_becomes_a_reference(text: str, kind: str, around: str) -> None:
    before, after = around.split("{}")
    hidden = hide(around.replace("{}", text))
    assert hidden.startswith(f"{before}credential:{kind}:") and hidden.endswith(after)
    assert text[-8:] not in hidden


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Bearer abc123def456ghi789", "Bearer credential:token:"),
        ("bearer abc123def456ghi789", "bearer credential:token:"),
        ('"Authorization": "Bearer tiny-one"', '"Authorization": "Bearer credential:authorization"'),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic credential:authorization"),
        ("-H 'x-api-key: abcdef1234567890'", "-H 'x-api-key: credential:token:"),
        ("refresh_token=abcdef1234567890&x", "refresh_token=credential:token:"),
        (
            "aws_secret_access_key = " + "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "aws_secret_access_key = credential:aws_secret:",
        ),
        (
            "postgresql://bob:hunter2@db.example:5432/x",
            "postgresql://bob:credential:password@db.example:5432/x",
        ),
    ],
)
def test_a_secret_known_by_what_stands_before_it(text: str, shown: str) -> None:
    assert hide(text).startswith(shown)


PEM = "-----BEGIN {0}-----\nMIIEpAIBAAKCAQEA7\nq83vEjRWeJq83vEj\n-----END {0}-----"


@pytest.mark.parametrize(
    "name", ["PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"]
)
def test_a_private_key_goes_whole(name: str) -> None:
    hidden = hide(f"before\n{PEM.format(name)}\nafter")
    assert hidden.startswith("before\ncredential:private_key:") and hidden.endswith("\nafter")
    assert len(hidden) == len("before\ncredential:private_key:") + 12 + len("\nafter")


def test_a_private_key_that_was_cut_goes_to_its_end() -> None:
    cut = PEM.format("RSA PRIVATE KEY")[:60]
    assert hide(f'{{"key": "{cut}", "x": 1}}').endswith('", "x": 1}')
    assert "MIIE" not in hide(cut)


def test_equal_secrets_have_equal_references() -> None:
    assert hide(f"{SK} {SK} {SK}x").split(" ")[0] == hide(SK)
    assert hide(SK) != hide(SK + "x")


UNTOUCHED = [
    "a task-0123456789abcdef0123456789abcdef and risk-assessment-of-the-second-quarter-of-2026",
    "sk-learn-1-5-0-release-notes and sk-toggleable-content and disk-0123456789abcdef01234567",
    "5e551011-0000-4000-8000-000000000001 d41d8cd98f00b204e9800998ecf8427e",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "the bearer of this letter; Bearer authentication; bearer tokens are tokens",
    "Authorization: Bearer $TOKEN and Authorization: Bearer <your token>",
    "https://user@example.org:8443/path?q=a:b@c and http://localhost:5432/x@y and postgres://u:${PASSWORD}@h/d",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n-----BEGIN PUBLIC KEY-----",
    "def access_token(self) -> str: return self._access_token_of_the_session",
    "npm_config_registry hf_hub_download gh_pages github_pattern AIzawa xoxo-hugs",
    "credential:blake3:" + "ab" * 32,
    "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 40).decode(),
]


@pytest.mark.parametrize("text", UNTOUCHED)
def test_an_ordinary_text_is_left_alone(text: str) -> None:
    assert hide(text) is text


def test_a_key_that_turns_up_by_chance_in_base64_is_left_alone() -> None:
    noise = base64.b64encode(bytes((i * 167 + (i >> 3) * 91) % 256 for i in range(300))).decode()
    text = noise[:200] + "+" + token("AIza", 35) + noise[200:]
    assert hide(text) is text
    assert hide(token("AIza", 35)) != token("AIza", 35)


@pytest.mark.parametrize(
    "place",
    [
        "session_id",
        "tenant",
        "producer",
        "stream",
        "type",
        "turn_id",
        "trace_id",
        "event_id",
        "unknown",
        "run_id",
    ],
)
def test_a_secret_in_the_envelope_is_hidden(place: str) -> None:
    assert redacted(record(**{place: SK}))[place].startswith("credential:anthropic:")


def test_an_envelope_field_stays_within_its_bytes() -> None:
    shown = redacted(record(tenant="x" * (128 - 21) + " " + token("sk-", 17)))["tenant"]
    assert shown.startswith("credential:text:") and len(shown) == 28


def test_a_secret_is_hidden_as_a_name_too() -> None:
    (name,) = redacted(record(payload={"deep": [{SK: 1}]}))["payload"]["deep"][0]
    assert name.startswith("credential:anthropic:")


def test_a_secret_spelt_with_escapes_is_hidden() -> None:
    raw = record(payload={"text": SK}).replace(b"sk-", b"\\u0073k\\u002d")
    assert redacted(raw)["payload"]["text"].startswith("credential:anthropic:")


def test_a_secret_under_a_duplicate_key_goes_with_it() -> None:
    raw = record(payload={"text": SK})[:-2] + b',"text":"kept"}}'
    found = Redactor().redact(raw)
    assert found is not None and SK.encode() not in found.raw
    assert json.loads(found.raw)["payload"]["text"] == "kept"


def test_the_field_of_a_secret_by_its_name() -> None:
    shown = redacted(record(payload={"access_token": "abcdef1234567890", "authorization": "Bearer tiny-one"}))
    assert shown["payload"]["access_token"].startswith("credential:token:")
    assert shown["payload"]["authorization"].startswith("Bearer credential:token:")


# --- slots ---


def slots(payload: dict[str, Any], type_: str = "slot.written", key: bytes = KEY, tenant: str = "t") -> Any:
    return redacted(record(type=type_, payload=payload, tenant=tenant), Redactor(slot_key=key))["payload"]


def test_a_slot_value_becomes_its_type_and_a_digest() -> None:
    shown = slots({"slot": "party", "old": None, "new": 2})
    assert shown["old"] is None
    kind, word, digest = shown["new"].split(":")
    assert (kind, word, len(digest)) == ("redacted", "number", 12)


@pytest.mark.parametrize(
    ("value", "word"), [("", "text"), (0, "number"), (False, "boolean"), ([], "list"), ({}, "object")]
)
def test_a_filled_slot_stays_filled(value: Any, word: str) -> None:
    assert slots({"slot": "party", "old": 1, "new": value})["new"].startswith(f"redacted:{word}:")


def test_equal_values_of_a_slot_are_equal_in_every_event() -> None:
    written = slots({"slot": "party", "old": 2, "new": 2.0})
    seen = slots({"state": "a", "slots": {"party": 2, "time": 2}}, "state.observed")
    assert written["old"] == written["new"] == seen["slots"]["party"] != seen["slots"]["time"]


def test_another_key_or_tenant_gives_another_digest() -> None:
    one = slots({"slot": "party", "new": 2})["new"]
    assert one != slots({"slot": "party", "new": 2}, key=KEY + b"!")["new"]
    assert one != slots({"slot": "party", "new": 2}, tenant="u")["new"]


def test_slots_of_a_candidate_are_redacted() -> None:
    shown = slots({"state": "a", "candidates": [{"to": "b", "slots": {"party": 2}}]}, "transition.decided")
    assert shown["candidates"][0]["slots"]["party"].startswith("redacted:number:")
    assert shown["candidates"][0]["to"] == "b"


def test_without_a_key_slot_values_are_taken_as_redacted_but_for_shapes() -> None:
    assert Redactor().redact(record(type="slot.written", payload={"slot": "a", "new": 2})) is None
    shown = redacted(record(type="slot.written", payload={"slot": "a", "new": SK}))
    assert shown["payload"]["new"].startswith("credential:anthropic:")


# --- bodies ---


def body(data: bytes, redactor: Redactor) -> dict[str, Any]:
    raw = record(
        type="body.recorded",
        payload={"for_event_id": "e", "original_bytes": len(data), "data": base64.b64encode(data).decode()},
    )
    payload: dict[str, Any] = redacted(raw, redactor)["payload"]
    return payload


def test_a_body_is_left_out_where_bodies_are_off() -> None:
    shown = body(b"hello", Redactor(bodies={"other": True}))
    assert (shown["data"], shown["truncated"], shown["original_bytes"]) == (None, True, 5)
    assert shown["redactions"] == [{"what": "body", "where": "payload.data", "count": 1}]


def test_a_body_is_cut_at_the_limit() -> None:
    shown = body(b"hello world", Redactor(bodies={"ledger": True}, body_limit=5))
    assert (base64.b64decode(shown["data"]), shown["truncated"]) == (b"hello", True)


def test_a_secret_in_a_body_is_hidden() -> None:
    shown = body(b'{"key":"' + SK.encode() + b'"}', Redactor())
    assert base64.b64decode(shown["data"]).startswith(b'{"key":"credential:anthropic:')


# --- the record as a whole ---


def test_a_redaction_says_what_where_and_how_many() -> None:
    payload = {
        "text": f"{SK} and {SK}",
        "items": [{"a": SK}, {"a": SK}],
        "request_headers": {"x": "1", "y": "2"},
    }
    assert redacted(record(payload=payload))["payload"]["redactions"] == [
        {"what": "anthropic", "where": "payload.items[].a", "count": 2},
        {"what": "anthropic", "where": "payload.text", "count": 2},
        {"what": "header", "where": "payload.request_headers", "count": 2},
    ]


def test_a_second_redactor_adds_to_what_the_first_says() -> None:
    first = Redactor().redact(record(type="slot.written", payload={"slot": "a", "old": SK, "new": 2}))
    assert first is not None
    shown = redacted(first.raw, Redactor(slot_key=KEY))["payload"]["redactions"]
    assert shown == [
        {"what": "anthropic", "where": "payload.old", "count": 1},
        {"what": "slot", "where": "payload.new", "count": 1},
        {"what": "slot", "where": "payload.old", "count": 1},
    ]


def test_a_field_of_that_name_is_kept() -> None:
    shown = redacted(record(payload={"redactions": "none", "text": SK}))["payload"]
    assert shown["redactions"] == "none"
    assert shown["turnledger_redactions"] == [{"what": "anthropic", "where": "payload.text", "count": 1}]


def test_many_places_are_told_in_few_words() -> None:
    shown = redacted(record(payload={f"field_{n}": SK for n in range(500)}))["payload"]["redactions"]
    assert len(shown) == 64
    assert sum(row["count"] for row in shown) == 500


def test_the_hash_of_what_was_received_is_that_of_the_content() -> None:
    raw = record(payload={"text": SK})
    found = Redactor().redact(raw)
    assert found is not None and found.received_sha256 == content_hash(raw)


def test_redacting_twice_changes_nothing() -> None:
    redactor = Redactor(slot_key=KEY)
    raw = record(
        type="state.observed", payload={"slots": {"a": SK}, "text": SK, "request_headers": {"x": SK}}
    )
    found = redactor.redact(raw)
    assert found is not None and redactor.redact(found.raw) is None


def test_only_records_that_may_need_it_are_suspects() -> None:
    ordinary = record(payload={"text": "nothing to see"})
    values = (
        [ordinary] * 100 + [None, b"", record(payload={"text": SK}), b"\xff" + SK.encode()] + [ordinary] * 50
    )
    assert Redactor().suspects(values) == {102, 103}


def test_bytes_that_are_no_record_are_hidden_too() -> None:
    assert hide_bytes(b"\xff\xfe " + SK.encode() + b"\x00").startswith(b"\xff\xfe credential:anthropic:")
    escaped = SK.replace("sk-", "\\u0073k-").encode()
    assert SK[-8:].encode() not in hide_bytes(b'{"a":"' + escaped)


def test_a_header_line_that_is_a_reference_is_not_a_header_called_credential() -> None:
    once = Redactor().redact(record(type="net.requested", payload={"request_headers": token("xai-", 80)}))
    assert once is not None
    assert json.loads(once.raw)["payload"]["request_headers"].startswith("credential:xai:")
    assert Redactor().redact(once.raw) is None
