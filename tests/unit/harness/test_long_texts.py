"""Texts that are too long for their event: cut there, and moved into ``body.recorded`` events of their own numbers (contract 6)."""

from __future__ import annotations

import base64
import json
import sqlite3
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.harness.folded import catalogue
from turnledger.fold.document import document
from turnledger.harness import Ledger, SpoolFull
from turnledger.harness.numbering import Numbering
from turnledger.pricing import price_call

LONG = "é" * 40_000
"""80,000 bytes: 64 KiB is 65,536."""
AWAY = "kafka://127.0.0.1:9"


def told(payload: dict[str, Any], kind: str = "message.recorded", **given: Any) -> list[dict[str, Any]]:
    about = given.pop("about", {})
    seq, records = Numbering("s", **given).event(kind, payload, about)
    events = [json.loads(record) for record in records]
    assert [event["seq"] for event in events] == list(range(seq, seq + len(events)))
    return events


def test_a_text_of_64_kib_stays_and_one_byte_more_is_cut_at_a_character() -> None:
    (stays,) = told({"role": "user", "text": "a" * 65_536})
    assert len(stays["payload"]["text"]) == 65_536 and "truncated" not in stays["payload"]
    cut, body = told({"role": "user", "text": "a" * 65_535 + "é"})
    assert cut["payload"]["text"] == "a" * 65_535
    assert (cut["payload"]["text_bytes"], cut["payload"]["truncated"]) == (65_537, True)
    assert body["payload"]["original_bytes"] == 65_537


def test_where_bodies_leave_the_text_is_whole_again_behind_its_event() -> None:
    about = {
        "turn_id": "t1",
        "model_call_id": "c1",
        "origin": {"host": "h"},
        "occurred_at": "2026-01-01T00:00:00Z",
    }
    event, body = told({"text": LONG}, "model_call.completed", bodies=True, body_bytes=10**6, about=about)
    assert body["type"] == "body.recorded" and body["seq"] == event["seq"] + 1
    assert {name: body[name] for name in about} == about
    payload = body["payload"]
    assert base64.b64decode(payload.pop("data")).decode() == LONG
    assert payload == {
        "for_event_id": event["event_id"],
        "source": "model_call",
        "direction": "response",
        "field": "text",
        "content_type": "text/plain; charset=utf-8",
        "original_bytes": 80_000,
        "truncated": False,
        "sha256": sha256(LONG.encode()).hexdigest(),
        "part": 0,
        "parts": 1,
    }


def test_where_bodies_stay_at_home_there_is_one_event_with_size_and_hash() -> None:
    event, body = told({"role": "user", "text": LONG}, about={"event_id": "e1"})
    assert event["event_id"] == body["payload"]["for_event_id"] == "e1" and "event_id" not in body
    assert (body["payload"]["data"], body["payload"]["truncated"]) == (None, True)
    assert body["payload"]["original_bytes"] == 80_000
    assert body["payload"]["sha256"] == sha256(LONG.encode()).hexdigest()
    assert body["payload"]["redactions"] == [{"what": "body", "where": "payload.data", "count": 1}]


def test_a_very_long_text_goes_in_parts_and_the_fold_puts_them_together() -> None:
    text = "".join(f"{n:07d}\n" for n in range(125_000))
    records = Numbering("s", bodies=True, body_bytes=2_000_000).event(
        "answer.finalized", {"text": text, "exact": True}, {}
    )[1]
    assert len(records) == 4
    for order in (records, records[::-1]):
        (body,) = document(order, partial(price_call, catalogue()))["event_bodies"]
        assert (body["complete"], body["verified"], body["truncated"]) == (True, True, False)
        assert base64.b64decode(body["data"]).decode() == text


def test_a_body_is_capped_and_says_so() -> None:
    _, body = told({"role": "user", "text": LONG}, bodies=True, body_bytes=70_000)
    assert len(base64.b64decode(body["payload"]["data"])) == 70_000
    assert (body["payload"]["original_bytes"], body["payload"]["truncated"]) == (80_000, True)


def test_texts_inside_lists_and_objects_are_cut_too() -> None:
    content = [{"type": "text", "text": LONG}, {"type": "text", "text": "short"}]
    event, body = told({"role": "user", "content": content}, bodies=True, body_bytes=10**6)
    first, second = event["payload"]["content"]
    assert (len(first["text"].encode()), first["text_bytes"], event["payload"]["truncated"]) == (
        65_536,
        80_000,
        True,
    )
    assert second == {"type": "text", "text": "short"}
    assert (body["payload"]["field"], body["payload"]["direction"]) == ("content[0].text", "request")


def test_a_secret_at_the_cut_is_in_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-ant-api03-" + "Zq3x" * 20
    text = "a " * 32_750 + key + " b" * 9_000
    events = told({"role": "user", "text": text}, bodies=True, body_bytes=10**6)
    body = base64.b64decode(events[1]["payload"]["data"]).decode()
    for said in (json.dumps(events[0]), body):
        assert "sk-ant" not in said and "Zq3x" not in said
    assert "credential:" in body


def test_an_event_and_its_bodies_are_stored_together_or_not_at_all(tmp_path: Path) -> None:
    def numbers() -> list[int]:
        db = sqlite3.connect(tmp_path / "spool")
        found = [row[0] for row in db.execute("SELECT seq FROM events ORDER BY position")]
        db.close()
        return found

    ledger = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool", spool_bytes=150_000, bodies=True, body_bytes=10**6, on_full="raise")  # fmt: skip
    with pytest.raises(SpoolFull):
        ledger.message_recorded(role="user", text=LONG)
    assert numbers() == [] and ledger.emit("x.y") == 0
    ledger._spooled._spool._limit = 10**6  # type: ignore[union-attr]
    assert ledger.message_recorded(role="user", text=LONG) == 1
    assert ledger.emit("x.y") == 3
    assert numbers() == [0, 1, 2, 3]
    ledger.close(seconds=0)


def test_what_is_dropped_with_its_bodies_is_declared_with_all_its_numbers(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "session_id": "s",
        "spool": tmp_path / "spool",
        "bodies": True,
        "body_bytes": 10**6,
    }
    ledger = Ledger(sink=AWAY, spool_bytes=150_000, **given)
    ledger.emit("x.y")
    assert ledger.message_recorded(role="user", text=LONG) == 1
    ledger.close(seconds=0)
    with Ledger(sink=f"file:{tmp_path}/events", **given) as ledger:
        ledger.emit("x.y")
    events = [json.loads(line) for line in (tmp_path / "events").read_bytes().splitlines()]
    lost = [e["payload"] for e in events if e["type"] == "stream.lost"]
    assert [(each["from_seq"], each["to_seq"]) for each in lost] == [(1, 2)]
    assert [e["seq"] for e in events] == [0, 3, 4]
