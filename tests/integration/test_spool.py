"""The spool against a real broker: what one ledger left is sent by the next; a large record goes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fixtures.harness.consumed import consumed
from tests.stack.topics import Topic
from turnledger.harness import Ledger


def firsts(topic: Topic) -> dict[str, list[int]]:
    """Numbers of each session in the order in which they first came."""
    seen: dict[str, dict[int, None]] = {}
    for record in consumed(topic):
        event = json.loads(record.value)
        assert record.key == f"default/{event['session_id']}".encode()
        seen.setdefault(event["session_id"], {})[event["seq"]] = None
    return {session: list(numbers) for session, numbers in seen.items()}


def test_what_a_ledger_left_behind_is_sent_by_the_next(topic: Topic, tmp_path: Path) -> None:
    away = Ledger(session_id="s", sink="kafka://127.0.0.1:9", spool=tmp_path / "spool")
    for n in range(1000):
        away.emit("x.y", {"n": n})
    # Greater than what leaves at once: a batch of its own.
    away.emit("x.y", {"list": ["x" * 1000] * 700})
    away.close(seconds=0)
    with Ledger(
        session_id="s", sink=f"kafka://{topic.bootstrap}/{topic.name}", spool=tmp_path / "spool"
    ) as ledger:
        assert ledger.emit("x.y") == 1001
        ledger.flush()
    assert firsts(topic) == {"s": list(range(1002))}
    assert len(consumed(topic)) == 1002
