"""What leaves a publisher is redacted (contract 14): `Ledger` by its numbering, `publish` and `import` by the bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from turnledger.contract.redact import Redactor
from turnledger.errors import TurnledgerError
from turnledger.harness.facts import cut, put_text, put_value
from turnledger.harness.numbering import LedgerError, Numbering
from turnledger.ingest.logs import without_secrets
from turnledger.settings import Settings

KEY = "a key of the tests, 32 bytes long"
SECRET = "sk-ant-" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z"


def emitted(type_: str, payload: dict[str, Any], **stream: Any) -> dict[str, Any]:
    _, (raw, *_) = Numbering("s", redaction_key=KEY, **stream).event(type_, payload, {})
    value: dict[str, Any] = json.loads(raw)["payload"]
    return value


def test_a_secret_does_not_leave() -> None:
    assert emitted("note", {"text": SECRET})["text"].startswith("credential:anthropic:")


def test_a_secret_at_the_place_of_the_cut_leaves_no_half() -> None:
    text = " " * (64 * 1024 - 12) + SECRET
    assert "sk-ant" not in emitted("note", {"text": text})["text"]


def put(put_one: Callable[..., None], value: Any, *limit: int) -> dict[str, Any]:
    payload: dict[str, Any] = {}
    put_one(payload, "text", value, *limit)
    return payload


@pytest.mark.parametrize("limit", [64 * 1024, 4096, 2048])
def test_a_secret_at_the_place_where_a_reader_of_files_cuts_leaves_no_half(limit: int) -> None:
    shown = put(put_text, " " * (limit - 12) + SECRET, limit)
    # `credential:anthropic:` and 12 digits
    assert shown.pop("text").lstrip() == "credential:a"
    assert shown == {
        "text_bytes": limit - 12 + 33,
        "truncated": True,
        "redactions": [{"what": "anthropic", "where": "payload.text", "count": 1}],
    }


def test_a_secret_at_the_cut_of_a_value_leaves_no_half_and_is_known_by_its_field() -> None:
    shown = put(
        put_value, {"padding": "x" * (64 * 1024 - 45), "api": {"x-api-key": "only-a-field-says-so-1"}}
    )
    assert shown["text"].endswith(',"api":{"x-api-key":"credential:')
    assert shown["redactions"] == [{"what": "token", "where": "payload.text.api.x-api-key", "count": 1}]


def test_a_long_name_is_cut_without_half_a_secret() -> None:
    assert cut("x" * 100 + " " + SECRET, 113)[0] == "x" * 100 + " credential:a"


def test_what_was_redacted_before_a_cut_stays_noted_in_the_event() -> None:
    payload = put(put_text, SECRET + " " * 5000, 4096)
    event = Redactor().clean({"type": "note", "payload": {**payload, "other": SECRET}})
    assert event["payload"]["redactions"] == [
        {"what": "anthropic", "where": "payload.other", "count": 1},
        {"what": "anthropic", "where": "payload.text", "count": 1},
    ]


def test_a_slot_leaves_as_a_digest_even_without_a_key() -> None:
    _, (raw,) = Numbering("s").event("slot.written", {"slot": "a", "old": 1, "new": 1}, {})
    shown = json.loads(raw)["payload"]
    assert shown["new"].startswith("redacted:number:") and shown["old"] == shown["new"]


def test_streams_of_one_process_compare_without_a_key() -> None:
    one, other = (
        json.loads(Numbering("s", stream=name).event("slot.written", {"slot": "a", "new": 1}, {})[1][0])
        for name in ("ledger", "state_trace")
    )
    assert one["payload"]["new"] == other["payload"]["new"]


BODY = {"for_event_id": "e", "data": base64.b64encode(b"x" * 100_000).decode()}


def test_a_body_stays_at_home_unless_its_stream_asks() -> None:
    assert emitted("body.recorded", BODY)["data"] is None


def test_a_body_is_cut_where_bodies_are_on() -> None:
    shown = emitted("body.recorded", BODY, bodies=True)
    assert (len(base64.b64decode(shown["data"])), shown["truncated"]) == (65_536, True)


def test_the_record_key_holds_no_secret_either() -> None:
    assert SECRET.encode() not in Numbering(SECRET, redaction_key=KEY).key


def test_a_short_key_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LedgerError, match="at least 16"):
        Numbering("s", redaction_key="short")
    monkeypatch.setenv("TURNLEDGER_REDACTION_KEY", "short")
    with pytest.raises(TurnledgerError, match="TURNLEDGER_REDACTION_KEY has 5 bytes"):
        Settings().slot_key()


def test_a_key_is_not_shown() -> None:
    assert KEY not in repr(Settings(redaction_key=KEY)) and KEY not in repr(Redactor(slot_key=KEY.encode()))


@pytest.mark.parametrize(
    ("streams", "kept"), [("", False), ("ledger", True), ("a, ledger", True), ("other", False), ("*", True)]
)
def test_streams_whose_bodies_leave(streams: str, kept: bool) -> None:
    assert Redactor(bodies=Settings(body_streams=streams).bodies()).keeps_body("ledger") is kept


@pytest.mark.parametrize("raw", [b'{"session_id":"s","text":"%s', b'["%s"]', b"%s", b'\xff"%s"'])
def test_a_line_that_is_no_envelope_leaves_without_its_secret(raw: bytes) -> None:
    out, hidden = Redactor().outgoing(raw % SECRET.encode())
    assert SECRET.encode() not in out and b"credential:anthropic:" in out and hidden == 1


def test_a_line_without_anything_to_hide_leaves_as_the_bytes_that_came() -> None:
    raw = b'{ "session_id":"s", "seq":1.0, "type":"note" }'
    assert Redactor().outgoing(raw) == (raw, 0)


def test_a_log_line_holds_no_secret() -> None:
    line = without_secrets(
        None, "info", {"event": f"said {SECRET}", "offset": 5, "error": ValueError(SECRET)}
    )
    assert line["offset"] == 5
    assert line["event"].startswith("said credential:anthropic:") and SECRET not in line["error"]
