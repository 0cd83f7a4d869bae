"""The simulated log and its consumer group: offsets with holes, fetches under leases that may arrive late, an eager rebalance."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tests.simulation.connection import Process
from tests.simulation.traffic import Produced, SimulatedRecord
from turnledger.ingest.batch import Fetched, Partition
from turnledger.ingest.seats import BrokerAway

TOPIC = "turnledger.events"


@dataclass
class Bounds:
    start: int
    end: int


class Broker:
    """The records of one topic."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dice: random.Random, partitions: int) -> None:
        self.loop = loop
        self.dice = dice
        self.logs: list[list[SimulatedRecord]] = [[] for _ in range(partitions)]
        self.starts = [dice.choice((0, 0, 700)) for _ in range(partitions)]
        self.ends = list(self.starts)
        self.holes = dice.choice((0.0, 0.0, 0.05))
        """Share of records with offsets in front of them that hold none (compaction, markers of transactions)."""
        self.away_until = 0.0
        self.everything: dict[tuple[int, int], bytes | None] = {}
        """Every record that there ever was, by partition and offset: retention does not reach here."""

    def append(self, partition: int, produced: Produced) -> None:
        if self.dice.random() < self.holes:
            self.ends[partition] += self.dice.choice((1, 1, 4))
        offset = self.ends[partition]
        self.ends[partition] = offset + 1
        timestamp = 1_772_370_000_000 + int(self.loop.time() * 1000)
        self.logs[partition].append(SimulatedRecord(offset, timestamp, produced.key, produced.value))
        self.everything[partition, offset] = produced.value

    def read(self, partition: int, offset: int, count: int) -> list[SimulatedRecord]:
        """Up to ``count`` records from ``offset`` on."""
        log = self.logs[partition]
        at = 0
        low, high = 0, len(log)
        while low < high:
            at = (low + high) // 2
            if log[at].offset < offset:
                low = at + 1
            else:
                high = at
        return log[low : low + count]

    def forget_until(self, partition: int, offset: int) -> None:
        """Retention: the log begins at ``offset``."""
        self.starts[partition] = max(self.starts[partition], min(offset, self.ends[partition]))
        self.logs[partition] = [r for r in self.logs[partition] if r.offset >= self.starts[partition]]

    @property
    def away(self) -> bool:
        return self.loop.time() < self.away_until


class Consumer:
    """What one worker fetches. The order of one lease's batches is kept, as the transport keeps it; between partitions, and between
    a lease and the one before it, anything goes."""

    def __init__(
        self,
        broker: Broker,
        process: Process,
        dice: random.Random,
        put: Callable[[Fetched], None],
        acknowledged: Callable[[Fetched], None],
    ) -> None:
        self.broker = broker
        self.process = process
        self.dice = dice
        self.put = put
        self.acknowledged = acknowledged
        self.assigned: set[Partition] = set()
        self.positions: dict[Partition, tuple[int, int]] = {}
        """(next offset, lease) of what is placed."""
        self.under_way: dict[tuple[Partition, int], deque[Fetched]] = {}
        """Fetched and not delivered, by partition and lease."""
        self.outstanding = 0
        """Bytes delivered and not given back."""
        self.stale_deliveries = 0

    async def _running(self) -> None:
        while self.process.frozen is not None:
            await asyncio.wait([self.process.frozen])

    async def place(self, partition: Partition, offset: int, lease: int) -> bool:
        await asyncio.sleep(self.dice.random() * 0.01)
        await self._running()
        if partition not in self.assigned:
            return False
        self.positions[partition] = (offset, lease)
        return True

    async def withdraw(self, partitions: Iterable[Partition]) -> None:
        await self._running()
        for partition in partitions:
            self.positions.pop(partition, None)

    async def bounds(self, partitions: Iterable[Partition]) -> Mapping[Partition, Bounds]:
        await asyncio.sleep(self.dice.random() * 0.01)
        await self._running()
        if self.broker.away:
            raise BrokerAway("the broker does not answer")
        return {p: Bounds(self.broker.starts[p[1]], self.broker.ends[p[1]]) for p in partitions}

    def revoked(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self.assigned.discard(partition)
            self.positions.pop(partition, None)

    async def run(self) -> None:
        """Fetch and deliver for ever."""
        while True:
            await asyncio.sleep(self.dice.choice((0.002, 0.02, 0.1)))
            await self._running()
            if not self.broker.away:
                self._fetch()
            self._deliver()

    def _fetch(self) -> None:
        for partition, (offset, lease) in list(self.positions.items()):
            offset = max(offset, self.broker.starts[partition[1]])
            records = self.broker.read(partition[1], offset, self.dice.choice((1, 3, 10, 40)))
            if not records or self.dice.random() < 0.3:
                continue
            self.positions[partition] = (records[-1].offset + 1, lease)
            size = sum(len(r.key or b"") + len(r.value or b"") for r in records)
            batch = Fetched(partition, lease, records, size)
            batch.done = lambda batch=batch: self.acknowledged(batch)  # type: ignore[misc]
            self.under_way.setdefault((partition, lease), deque()).append(batch)

    def _deliver(self) -> None:
        for place in self.dice.sample(list(self.under_way), len(self.under_way)):
            waiting = self.under_way[place]
            while waiting and self.dice.random() < 0.7:
                batch = waiting.popleft()
                if self.positions.get(place[0], (0, 0))[1] != place[1]:
                    self.stale_deliveries += 1
                self.outstanding += batch.size
                self.put(batch)
            if not waiting:
                del self.under_way[place]

    def give_back(self, size: int) -> None:
        self.outstanding -= size
