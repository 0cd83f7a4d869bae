"""A round is written while the next one is folded (design 3, point 7)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from turnledger.fold.state import SessionState
from turnledger.ingest import prepare
from turnledger.ingest.health import Health
from turnledger.ingest.load import new_entry
from turnledger.ingest.metrics import Metrics
from turnledger.ingest.round import Ingest
from turnledger.ingest.settings import WorkerSettings


class Writer:
    """Notes what is submitted; ``at_once``: it is done by then."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.backend = None
        self.at_once = False

    def submit(self, work: Any, prepared: prepare.Prepared) -> asyncio.Future[None]:
        self.begun.append(prepared.number)
        written = asyncio.get_running_loop().create_future()
        if self.at_once:
            written.set_result(None)
        return written


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
async def ingest(monkeypatch: pytest.MonkeyPatch, writer: Writer) -> Ingest:
    monkeypatch.setenv("TURNLEDGER_DATABASE_URL", "postgresql://127.0.0.1:1/none")
    return Ingest(
        WorkerSettings(),
        lambda name: writer,  # type: ignore[arg-type, return-value]
        SimpleNamespace(),  # type: ignore[arg-type]  # never asked
        owner="a worker",
        metrics=Metrics(),
        health=Health(20.0),
        give_back=lambda size: None,
    )


async def test_the_write_has_begun_before_the_loop_is_idle(ingest: Ingest, writer: Writer) -> None:
    # The next round is folded without one: a task would begin to write when that has ended.
    ingest._launch(prepare.begin(7, "events", "projection_a", []))
    assert writer.begun == [7]
    assert ingest._flying is not None
    written = ingest._flying[1]
    assert not written.done()
    written.set_result(None)
    assert await ingest._settle(None)
    assert ingest._flying is None


@pytest.mark.parametrize("over", [0, 1])
async def test_where_sessions_fill_the_cache_a_round_is_waited_for_so_that_they_can_let_go(
    ingest: Ingest, writer: Writer, monkeypatch: pytest.MonkeyPatch, over: int
) -> None:
    async def nothing() -> None:
        pass

    async def gathered() -> list[object]:
        return [object()]

    async def prepared(pieces: object, flush: bool) -> prepare.Prepared:
        made = prepare.begin(3, "events", "projection_a", [])
        made.seats[0] = SimpleNamespace()  # type: ignore[assignment]  # there is one
        made.entries[entry.key] = entry
        return made

    entry = new_entry(("acme", "busy"), 1, ("events", 0))
    entry.round_no, entry.undropped = 3, prepare.UNDROPPED_EVENTS
    ingest.cache.put(entry)
    let_go: list[bool] = []
    monkeypatch.setattr(SessionState, "drop_closed", lambda self: let_go.append(True))
    for name, instead in (
        ("_upkeep", nothing),
        ("_claim_due", nothing),
        ("_resume_due", nothing),
        ("_gather", gathered),
        ("_prepare", prepared),
    ):
        monkeypatch.setattr(ingest, name, instead)
    ingest.cache.limit_bytes = ingest.cache.bytes - over
    writer.at_once = True

    await ingest._turn()
    assert (ingest._flying is None) == bool(over)
    ingest._let_go()
    assert let_go == [True] * over
