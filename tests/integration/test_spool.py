"""The spool against a real broker: nothing is lost and no order changes while the broker is away; a large record goes."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.harness.consumed import consumed
from tests.stack.topics import Topic
from turnledger.harness import Ledger, LedgerError

AWAY_SECONDS = 10.0


def firsts(topic: Topic) -> dict[str, list[int]]:
    """Numbers of each session in the order in which they first came."""
    seen: dict[str, dict[int, None]] = {}
    for record in consumed(topic):
        event = json.loads(record.value)
        assert record.key == f"default/{event['session_id']}".encode()
        seen.setdefault(event["session_id"], {})[event["seq"]] = None
    return {session: list(numbers) for session, numbers in seen.items()}


def test_a_broker_that_goes_and_comes_back_gets_everything_in_order(
    topic: Topic, stack: Any, tmp_path: Path
) -> None:
    sink = f"kafka://{topic.bootstrap}/{topic.name}"
    ledgers = [Ledger(session_id=f"s{n}", sink=sink, spool=tmp_path / f"{n}") for n in range(2)]
    going, emitted, longest = threading.Event(), [0, 0], [0.0, 0.0]

    def publish(n: int) -> None:
        while not going.wait(0.002):
            began = time.perf_counter()
            ledgers[n].emit("message.recorded", {"role": "user", "text": f"{emitted[n]}"})
            longest[n] = max(longest[n], time.perf_counter() - began)
            emitted[n] += 1

    threads = [threading.Thread(target=publish, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    time.sleep(1.5)
    stack.kafka.stop()
    try:
        before = list(emitted)
        time.sleep(AWAY_SECONDS)
        while_away = [emitted[n] - before[n] for n in range(2)]
        with pytest.raises(LedgerError, match="They stay in the spool"):
            ledgers[0].flush(seconds=0.5)
    finally:
        stack.kafka.start()
    time.sleep(1.0)
    going.set()
    for thread in threads:
        thread.join()
    for ledger in ledgers:
        ledger.flush(seconds=90)
        ledger.close()
    assert firsts(topic) == {f"s{n}": list(range(emitted[n])) for n in range(2)}
    assert min(while_away) > 0
    # A harness that waited for the broker would have stood still as long as that was away.
    assert max(longest) < AWAY_SECONDS / 2


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
