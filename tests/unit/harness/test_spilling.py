"""The events of an import wait on disk: in their order, by session, and with a sentence where the disk is full."""

from __future__ import annotations

import tempfile
from typing import Any

import orjson
import pytest

from turnledger.errors import TurnledgerError
from turnledger.harness.spilling import Spilled

EVENTS: list[dict[str, Any]] = [
    {"session_id": "a", "n": 1, "text": "line\nbreak"},
    {"session_id": "b", "n": 2},
    {"tenant": "acme", "session_id": "a", "n": 3},
    {"session_id": "a", "n": 4},
]


def test_events_come_back_in_their_order_and_by_session_as_often_as_asked() -> None:
    with Spilled() as kept:
        for event in EVENTS:
            kept.add(event)
        for _ in range(2):
            assert [orjson.loads(each) for each in kept.all()] == EVENTS
            assert [orjson.loads(each)["n"] for each in kept.of_session(("default", "a"))] == [1, 4]
        assert kept.sessions == [("default", "a"), ("default", "b"), ("acme", "a")]


def test_a_session_can_be_read_while_all_are() -> None:
    with Spilled() as kept:
        for event in EVENTS:
            kept.add(event)
        numbers = []
        for each in kept.all():
            numbers.append(orjson.loads(each)["n"])
            assert len(list(kept.of_session(("default", "b")))) == 1
        assert numbers == [1, 2, 3, 4]


def test_a_full_disk_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "wb+", buffering=16))  # noqa: SIM115
    kept = Spilled()
    with pytest.raises(TurnledgerError, match=r"do not fit into .*No space left on device.*TMPDIR"):
        for event in EVENTS:
            kept.add(event)
