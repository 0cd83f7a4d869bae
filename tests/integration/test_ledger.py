"""The `Ledger` against a real broker: numbers first, at least once, one order; errors as sentences."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.fixtures.harness.consumed import consumed
from tests.stack.topics import Topic
from turnledger.errors import TurnledgerError
from turnledger.harness import AsyncLedger, Ledger, LedgerError
from turnledger.harness.kafka import Sink


def sink(topic: Topic) -> str:
    return f"kafka://{topic.bootstrap}/{topic.name}"


def events(topic: Topic) -> list[dict[str, Any]]:
    return [json.loads(record.value) for record in consumed(topic)]


def test_events_are_numbered_from_zero_in_the_order_of_emit(topic: Topic) -> None:
    with Ledger(
        session_id="s1", tenant="acme", producer="vm", stream="bus", epoch=4, sink=sink(topic)
    ) as ledger:
        numbers = [
            ledger.emit("message.recorded", {"role": "user", "text": f"{n}"}, turn_id="t1") for n in range(50)
        ]
    assert numbers == list(range(50))
    found = events(topic)
    assert [each["seq"] for each in found] == list(range(50))
    assert [each["payload"]["text"] for each in found] == [str(n) for n in range(50)]
    assert {
        (e["tenant"], e["session_id"], e["producer"], e["epoch"], e["stream"], e["turn_id"]) for e in found
    } == {("acme", "s1", "vm", 4, "bus", "t1")}
    assert {record.key for record in consumed(topic)} == {b"acme/s1"}


async def test_the_async_form_does_the_same(topic: Topic) -> None:
    async with AsyncLedger(session_id="s1", sink=sink(topic)) as ledger:
        assert [await ledger.emit("x.y", {"n": n}) for n in range(20)] == list(range(20))
        await ledger.flush()
        assert len(events(topic)) == 20
    assert [each["payload"]["n"] for each in events(topic)] == list(range(20))


def test_flush_returns_when_the_broker_has_everything(topic: Topic) -> None:
    ledger = Ledger(session_id="s1", sink=sink(topic))
    for n in range(500):
        ledger.emit("x.y", {"n": n})
    ledger.flush()
    assert len(events(topic)) == 500
    ledger.close()
    ledger.close()


def test_a_close_that_may_wait_for_nothing_is_no_error_when_nothing_waits(topic: Topic) -> None:
    ledger = Ledger(session_id="s1", sink=sink(topic))
    ledger.emit("x.y")
    ledger.flush()
    ledger.close(seconds=0)
    assert len(events(topic)) == 1


def test_many_threads_share_one_number_sequence_and_the_topic_has_its_order(topic: Topic) -> None:
    with Ledger(session_id="s1", sink=sink(topic)) as ledger:
        threads = [
            threading.Thread(target=lambda: [ledger.emit("x.y") for _ in range(200)]) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [each["seq"] for each in events(topic)] == list(range(1600))


def test_a_restart_is_a_later_epoch(topic: Topic) -> None:
    epochs = []
    for _ in range(3):
        with Ledger(session_id="s1", sink=sink(topic)) as ledger:
            ledger.emit("session.started")
            epochs.append(ledger.epoch)
    assert epochs == sorted(set(epochs))
    assert [(each["epoch"], each["seq"]) for each in events(topic)] == [(epoch, 0) for epoch in epochs]


def test_an_event_that_the_ledger_would_refuse_costs_no_number(topic: Topic) -> None:
    with Ledger(session_id="s1", sink=sink(topic)) as ledger:
        with pytest.raises(LedgerError, match="is not JSON"):
            ledger.emit("x.y", {"bad": object()})
        with pytest.raises(LedgerError, match="wrong_type in occurred_at"):
            ledger.emit("x.y", occurred_at="yesterday")
        with pytest.raises(LedgerError, match="too_large"):
            ledger.emit("x.y", {"list": ["x" * 1000] * 2000})
        assert ledger.emit("x.y") == 0


def test_a_long_text_is_cut_with_its_size_beside_it_and_its_body_behind_it(topic: Topic) -> None:
    with Ledger(session_id="s1", sink=sink(topic)) as ledger:
        ledger.emit("message.recorded", {"role": "user", "text": "é" * 40_000})
        assert ledger.emit("x.y") == 2
    found, body, _ = events(topic)
    assert (body["seq"], body["type"], body["payload"]["for_event_id"]) == (
        1,
        "body.recorded",
        found["event_id"],
    )
    assert found["payload"]["text"] == "é" * 32_768
    assert (found["payload"]["text_bytes"], found["payload"]["truncated"]) == (80_000, True)


def test_emit_after_close_is_a_sentence(topic: Topic) -> None:
    ledger = Ledger(session_id="s1", sink=sink(topic))
    ledger.close()
    with pytest.raises(LedgerError, match="is closed"):
        ledger.emit("x.y")


def test_a_broker_that_is_away_is_a_sentence() -> None:
    with pytest.raises(TurnledgerError, match=r"the broker at 127\.0\.0\.1:9 does not answer"):
        Ledger(session_id="s1", sink="kafka://127.0.0.1:9")


def test_a_topic_that_is_not_there_is_a_sentence(stack: Any) -> None:
    with pytest.raises(TurnledgerError, match="topics create"):
        Ledger(session_id="s1", sink=f"kafka://{stack.kafka_bootstrap}/never-created")


@pytest.mark.parametrize(
    "bad", ["localhost:9092", "kafka://localhost", "https://collector", "kafka://a:1,b", ""]
)
def test_a_sink_that_is_no_address_is_a_sentence(bad: str) -> None:
    with pytest.raises(TurnledgerError, match="kafka://host:port"):
        Sink.parse(bad)


def test_a_session_id_that_the_ledger_would_refuse_is_said_at_once() -> None:
    with pytest.raises(LedgerError, match="session_id"):
        Ledger(session_id="x" * 300, sink="kafka://127.0.0.1:9")


def test_a_broker_that_comes_back_gets_what_waited(topic: Topic, stack: Any) -> None:
    with Ledger(session_id="s1", sink=sink(topic)) as ledger:
        ledger.emit("x.y")
        ledger.flush()
        stack.kafka.stop()
        try:
            for _ in range(100):
                ledger.emit("x.y")
            with pytest.raises(LedgerError, match=r"100 events \(numbers 1 to 100\) have not arrived"):
                ledger.flush(seconds=2)
        finally:
            stack.kafka.start()
        ledger.flush(seconds=60)
    assert sorted(each["seq"] for each in events(topic)) == list(range(101))
