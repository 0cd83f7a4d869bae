"""A round is written while the next one is folded (design 3, point 7)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from turnledger.ingest import prepare
from turnledger.ingest.health import Health
from turnledger.ingest.metrics import Metrics
from turnledger.ingest.round import Ingest
from turnledger.ingest.settings import WorkerSettings


class Writer:
    """Notes what is submitted, and when it is done."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.backend = None

    def submit(self, work: Any, prepared: prepare.Prepared) -> asyncio.Future[None]:
        self.begun.append(prepared.number)
        return asyncio.get_running_loop().create_future()


async def test_the_write_has_begun_before_the_loop_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    # The next round is folded without one: a task would begin to write when that has ended.
    monkeypatch.setenv("TURNLEDGER_DATABASE_URL", "postgresql://127.0.0.1:1/none")
    writer = Writer()
    ingest = Ingest(
        WorkerSettings(),
        lambda name: writer,  # type: ignore[arg-type, return-value]
        SimpleNamespace(),  # type: ignore[arg-type]  # never asked
        owner="a worker",
        metrics=Metrics(),
        health=Health(20.0),
        give_back=lambda size: None,
    )
    ingest._launch(prepare.begin(7, "events", "projection_a", []))
    assert writer.begun == [7]
    assert ingest._flying is not None
    written = ingest._flying[1]
    assert not written.done()
    written.set_result(None)
    assert await ingest._settle(None)
    assert ingest._flying is None
