"""Long texts of harness files: cut in their event, and moved behind it into ``body.recorded`` events that a second import does not double (contract 6)."""

from __future__ import annotations

import base64
from functools import partial
from hashlib import sha256
from itertools import pairwise
from typing import Any

import orjson
import pytest

from tests.fixtures.harness import goldens
from tests.fixtures.harness.folded import catalogue
from turnledger.contract.reader import Rejected, read
from turnledger.contract.redact import Redactor
from turnledger.fold.document import document
from turnledger.harness.importer import read_source
from turnledger.pricing import price_call

LONG = "say " + "é" * 40_000
"""80,004 bytes: 64 KiB is 65,536."""
TEXTS = {
    "codex/rollout.jsonl": ("It is in a.py.", {"message.recorded": "text", "answer.finalized": "text"}),
    "gemini_cli/rewrite-3.json": ("list the ports", {"turn.started": "input_preview", "message.recorded": "text"}),
}  # fmt: skip
"""A text of each fixture, and the fields in which it is told."""
SUMS = (
    "turn_count", "message_count", "model_call_count", "failed_model_calls", "total_tool_calls", "tool_errors", "output_tokens",
    "total_input_tokens", "cost_micro_usd", "grade",
)  # fmt: skip


def told(name: str, long: str = LONG, *, bodies: bool = False) -> list[dict[str, Any]]:
    """The fixture with its text replaced by a long one."""
    content = goldens.content(name)
    short = orjson.dumps(TEXTS[name][0])[1:-1]
    assert short in content
    changed = content.replace(short, orjson.dumps(long)[1:-1])
    redactor = Redactor(bodies=bodies, body_limit=10**6 if bodies else None)
    return read_source(goldens.source(name, changed), redactor=redactor).events


def folded(*parts: list[dict[str, Any]]) -> dict[str, Any]:
    return document(
        (orjson.dumps(event) for part in parts for event in part), partial(price_call, catalogue())
    )


@pytest.mark.parametrize("name", TEXTS)
def test_a_long_text_is_cut_in_its_event_and_told_behind_it(name: str) -> None:
    events = told(name)
    cut = {}
    for event, behind in pairwise(events):
        assert not isinstance(read(orjson.dumps(event)), Rejected)
        if behind["type"] != "body.recorded":
            continue
        payload = behind["payload"]
        cut[event["type"]] = field = payload["field"]
        assert event["payload"][field] == "say " + "é" * 32_766
        assert (event["payload"][f"{field}_bytes"], event["payload"]["truncated"]) == (80_004, True)
        assert payload["for_event_id"] == event["event_id"]
        assert (payload["original_bytes"], payload["sha256"]) == (80_004, sha256(LONG.encode()).hexdigest())
        assert (payload["data"], payload["truncated"]) == (None, True)
        shared = ("session_id", "producer", "epoch", "stream", "kind", "turn_id", "occurred_at")
        assert {key: behind.get(key) for key in shared} == {key: event.get(key) for key in shared}
    assert cut == TEXTS[name][1]


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_changes_no_figure_by_its_length(name: str) -> None:
    (short,), (long,) = folded(goldens.read(name).events)["sessions"], folded(told(name))["sessions"]
    assert {field: long[field] for field in SUMS} == {field: short[field] for field in SUMS}


@pytest.mark.parametrize("name", TEXTS)
def test_a_second_import_doubles_nothing_and_one_that_lets_bodies_leave_adds_them(name: str) -> None:
    home, away = told(name), told(name, bodies=True)
    bodies = sum(event["type"] == "body.recorded" for event in home)
    found = folded(home, away, home)
    assert (found["records"]["conflicts"], found["records"]["dead"]) == (0, 0)
    assert found["records"]["accepted"] == len(home) + bodies
    assert len(found["event_bodies"]) == bodies
    for body in found["event_bodies"]:
        assert (body["complete"], body["verified"], body["truncated"]) == (True, True, False)
        assert base64.b64decode(body["data"]).decode() == LONG


def test_a_text_that_one_event_tells_twice_is_one_body() -> None:
    content = goldens.content("gemini_cli/rewrite-3.json")
    chat = orjson.loads(content)
    failed = next(
        tool for each in chat["messages"] for tool in each.get("toolCalls", ()) if tool["status"] == "error"
    )
    failed["result"] = [{"functionResponse": {"response": {"output": LONG}}}]
    events = goldens.read("gemini_cli/rewrite-3.json", orjson.dumps(chat, option=orjson.OPT_INDENT_2)).events
    (body,) = [event["payload"] for event in events if event["type"] == "body.recorded"]
    (result,) = [event for event in events if event.get("event_id") == body["for_event_id"]]
    assert (body["source"], body["field"], body["direction"]) == ("tool_call", "preview", "response")
    assert len(result["payload"]["error_message"]) < len(result["payload"]["preview"]) < len(LONG)


def test_long_arguments_are_moved_as_json() -> None:
    chat = orjson.loads(goldens.content("gemini_cli/rewrite-3.json"))
    tool = next(tool for each in chat["messages"] for tool in each.get("toolCalls", ()))
    tool["args"] = {"path": LONG, "deep": [LONG]}
    source = goldens.source("gemini_cli/rewrite-3.json", orjson.dumps(chat, option=orjson.OPT_INDENT_2))
    events = read_source(source, redactor=Redactor(bodies=True)).events
    (body,) = [event["payload"] for event in events if event["type"] == "body.recorded"]
    assert (body["content_type"], body["field"], body["direction"]) == (
        "application/json",
        "arguments",
        "request",
    )
    assert orjson.loads(base64.b64decode(body["data"])) == tool["args"]


def test_a_secret_at_the_cut_is_in_neither() -> None:
    key = "sk-ant-api03-" + "Zq3x" * 20
    events = told("gemini_cli/rewrite-3.json", "a " * 32_750 + key + " b" * 9_000, bodies=True)
    said = b"".join(
        base64.b64decode(event["payload"]["data"])
        if event["type"] == "body.recorded"
        else orjson.dumps(event)
        for event in events
    )
    assert b"sk-ant" not in said and b"Zq3x" not in said and b"credential:" in said
