"""Owns the first reading by a replay: records that no worker has read, applied as a worker applies them, by the same handler and through the fence.

Where it ends is where the partition stands afterwards: a worker that is started later goes on from there, and so does the same replay after a kill.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from turnledger.errors import TurnledgerError
from turnledger.ingest import interpreter
from turnledger.ingest.batch import Partition
from turnledger.ingest.health import Health
from turnledger.ingest.link import Link
from turnledger.ingest.metrics import Metrics
from turnledger.ingest.round import Ingest
from turnledger.ingest.seats import owner_name
from turnledger.ingest.settings import WorkerSettings
from turnledger.replay.broker import Broker, Feed, Pace
from turnledger.replay.ranges import REPLAY, Missing

WATCH_SECONDS = 0.1


class Ended(TurnledgerError):
    """What was left to read cannot be read here."""


class _Lost(Health):
    """Health that hears of a partition which a worker took."""

    on_lost: Callable[[], None]

    def lost(self) -> int:
        self.on_lost()
        return super().lost()


@dataclass(slots=True)
class Applied:
    """How far partitions came."""

    next_offsets: dict[int, int] = field(default_factory=dict)
    stopped: dict[int, str] = field(default_factory=dict)
    """Those that stand still, each with its sentence."""
    taken: bool = False
    """A worker took a partition over meanwhile: the rest is its own."""


@interpreter.for_rounds()
async def apply(
    broker: Broker,
    database_url: str,
    settings: WorkerSettings,
    ranges: Mapping[int, tuple[int, int]],
    *,
    pace: Pace,
    missing: Mapping[int, Missing],
    progress: Callable[[Mapping[int, int]], None],
) -> Applied:
    """Apply ranges of ``settings.topic``, by partition, each going on from where the ledger stands or beginning a partition that was never read.
    ``missing`` hears which offsets have no record, ``progress`` the next offsets. Raises :class:`Ended` where another group owns the topic."""
    topic = settings.topic
    wanted: dict[Partition, tuple[int, int]] = {(topic, number): span for number, span in ranges.items()}
    feed = Feed(broker, wanted, buffer_bytes=settings.buffer_bytes, pace=pace, missing=missing)
    health = _Lost(settings.red_after_seconds)
    ingest = Ingest(
        settings,
        functools.partial(Link, database_url),
        feed,
        owner=owner_name(REPLAY),
        metrics=Metrics(),
        health=health,
        give_back=feed.give_back,
    )
    feed.put = ingest.put
    health.on_lost = ingest.stop
    ingest.assign(wanted)
    handler = asyncio.create_task(ingest.run(), name="replay ingest")
    reading = asyncio.create_task(feed.run(), name="replay reading")
    stopped: dict[int, str] = {}
    try:
        while True:
            await asyncio.wait({handler, reading}, timeout=WATCH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
            if handler.done():
                break
            progress({number: at for (_, number), at in ingest.applied.items()})
            stopped = {
                seat.number: seat.stopped for seat in ingest.seats.values() if seat.stopped is not None
            }
            if health.refused:
                raise Ended(next(iter(health.refused.values())))
            # What a reader that died had applied and not projected is projected first.
            behind = any(seat.stale and seat.projects for seat in ingest.seats.values())
            if not behind and feed.done(ingest.applied, ((topic, number) for number in stopped)):
                break
        applied = {number: at for (_, number), at in ingest.applied.items()}
    finally:
        reading.cancel()
        ingest.stop()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        await handler
    progress(applied)
    return Applied(applied, stopped, bool(health.losses))
