"""What was fetched is let go of when it is finished: the worker runs without the collector of cycles."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest

from turnledger.ingest.batch import Fetched
from turnledger.ingest.health import Health
from turnledger.ingest.metrics import Metrics
from turnledger.ingest.round import Ingest
from turnledger.ingest.settings import WorkerSettings


class Record:
    offset = 0


class Message:
    """Holds a batch, as Faust's message does, and is held by what acknowledges it."""

    def __init__(self) -> None:
        self.acked = 0
        self.value: Fetched | None = None

    def ack(self) -> None:
        self.acked += 1


@pytest.mark.parametrize("committed", [True, False])
def test_a_finished_batch_is_freed_without_the_collector(
    committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNLEDGER_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("TURNLEDGER_DATABASE_URL", "postgresql://127.0.0.1:1/none")
    given_back: list[int] = []
    ingest = Ingest(
        WorkerSettings(),
        lambda name: SimpleNamespace(),  # type: ignore[arg-type, return-value]  # never asked
        SimpleNamespace(),  # type: ignore[arg-type]  # never asked
        owner="a worker",
        metrics=Metrics(),
        health=Health(20.0),
        give_back=given_back.append,
    )
    gc.disable()
    try:
        message = Message()
        records = [Record()]
        message.value = Fetched(("topic", 0), 1, records, 100, message.ack)  # type: ignore[arg-type]  # of them nothing is read
        record, acked = weakref.ref(records[0]), message
        ingest._finish([message.value], committed=committed)
        assert message.value.done is None
        assert (acked.acked, given_back) == (int(committed), [100])
        del message, acked, records
        assert record() is None
    finally:
        gc.enable()
