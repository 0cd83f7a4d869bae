"""The batch handler: from fetched batches to committed rounds (design 3). Knows no Faust type.

One loop does everything in turn: claim, gather, prepare, settle the write in flight, start the next. The write of a round runs in a
thread of its own while the next one is decoded and folded; a round that was rolled back discards the one that was folded on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import psycopg
import structlog

from turnledger.ingest.batch import Fetched, Partition
from turnledger.ingest.folding import Folding
from turnledger.ingest.seat import Ahead, Piece, Seat, continue_from, split
from turnledger.ingest.seats import (
    CLAIM_RETRY_SECONDS,
    STANDBY_SECONDS,
    SWITCH_NEAR_SECONDS,
    BrokerAway,
    Interrupted,
    brief,
)
from turnledger.store import fence
from turnledger.store.connect import DatabaseAway

log = structlog.get_logger("turnledger.ingest")

REVOKE_SECONDS = 5.0
"""How long a rebalance may be held up for the write in flight and the last projections."""


class Ingest(Folding):
    """Applies the partitions that the group assigns."""

    def put(self, batch: Fetched) -> None:
        """Take a fetched batch. Bytes are bounded by the budget that fetching asks."""
        if not self._inbox and not self._pieces:
            self._first_arrival = self.clock()
        self._inbox.append(batch)
        self._arrived.set()

    def assign(self, partitions: Iterable[Partition]) -> None:
        """The group's assignment, whole."""
        now = self.clock()
        wanted = set(partitions)
        self._assigned = {p: self._assigned.get(p, 0.0) if p in self.seats else 0.0 for p in wanted}
        for partition in wanted:
            if partition not in self.seats:
                self.health.waiting.setdefault(partition, now)
        for partition in [p for p in self.health.waiting if p not in wanted]:
            del self.health.waiting[partition]
            self.health.refused.pop(partition, None)
        for partition in [p for p in self._former if p not in wanted]:
            self._drop_cached(self._former.pop(partition))
        self.health.joined = True
        self._arrived.set()

    async def revoke(self, partitions: Iterable[Partition]) -> None:
        """Finish what is in flight and let go. Returns after at most ``REVOKE_SECONDS``: the fence holds in any case."""
        gone = set(partitions)
        for partition in gone:
            self._assigned.pop(partition, None)
            self.health.waiting.pop(partition, None)
            self.health.refused.pop(partition, None)
        self._revoked |= gone & set(self.seats)
        if not self._revoked:
            return
        self._released.clear()
        self._arrived.set()
        try:
            await asyncio.wait_for(self._released.wait(), REVOKE_SECONDS)
        except TimeoutError:
            log.warning(
                "the write in flight did not end before the group took its partitions; the fence decides about it"
            )

    def stop(self) -> None:
        """End after the write in flight and the last projections."""
        self._stopping = True
        self._arrived.set()

    async def run(self) -> None:
        """Apply until :meth:`stop`. Outages are waited out here; what is raised is a bug."""
        try:
            while not self._stopping:
                try:
                    await self._turn()
                except Interrupted:
                    continue
            await self._end()
        finally:
            self._released.set()
            self.writer.shutdown()
            self.reader.shutdown()

    async def _turn(self) -> None:
        """One turn of the loop: at most one round."""
        if self._revoked:
            await self._release()
            return
        await self._upkeep()
        await self._claim_due()
        await self._resume_due()
        self._let_go()
        pieces = await self._gather()
        flush = self._flush_due(pieces)
        if not pieces and not flush and not self._waiting:
            if self._flying is not None and self._flying[1].done():
                await self._settle(None)
            return
        prepared = await self._prepare(pieces, flush)
        if not await self._settle(prepared):
            return
        if prepared is not None and prepared.seats:
            self._launch(prepared)
            # A foreign round reads what is committed: the next one must not be folded beside it. And a session that is in every round lets go of nothing
            # while one of them is in flight: where they fill the cache, one is waited for.
            if prepared.foreign is not None or self.cache.bytes > self.cache.limit_bytes:
                await self._settle(None)

    async def _end(self) -> None:
        """Settle, write what is open, go."""
        self._revoked |= set(self.seats)
        await self._release()

    async def _release(self) -> None:
        """Let go of the revoked partitions: the round in flight, then their last projections, once."""
        gone = set(self._revoked)
        try:
            if await self._settle(None, patient=False) and any(
                self.seats[p].dirty or self.seats[p].late for p in gone if p in self.seats
            ):
                prepared = await self._prepare([], flush=True, patient=False)
                if prepared is not None and prepared.seats:
                    self._launch(prepared)
                    await self._settle(None, patient=False)
        except (psycopg.Error, DatabaseAway, Interrupted) as error:
            log.warning(
                f"the last projections before a revocation were not written ({brief(error)}); whoever claims the partitions folds them again"
            )
        for partition in gone:
            self._leave(partition, keep=True)
        self._revoked -= gone
        if not self._revoked:
            self._released.set()

    async def _claim_due(self) -> None:
        now = self.clock()
        due = [p for p, at in self._assigned.items() if p not in self.seats and at <= now]
        if due and self.standby:
            due = await self._given(due)
        if not due:
            return
        await self._settle(None)
        try:
            bounds = await self.log_side.bounds(due)
        except BrokerAway:
            self._later(due)
            return
        for partition in due:
            self._interrupt()
            try:
                await self._claim(partition, bounds[partition])
            except (psycopg.Error, DatabaseAway) as error:
                self.health.database_failed(brief(error))
                log.warning(
                    f"partition {partition[1]} of {partition[0]} could not be claimed yet: {brief(error)}"
                )
                self._later(due)
                return
            self.health.database_works()

    async def _given(self, due: list[Partition]) -> list[Partition]:
        """Of these partitions those that belong to our group already: a fleet that stands by claims nothing else, and reads ahead meanwhile."""
        topic = self.settings.topic
        ours = await self._read(True, fence.ours, topic, [p[1] for p in due], self.settings.group_id)
        others = [p for p in due if p[1] not in ours]
        wait = STANDBY_SECONDS
        if not ours and not self.seats:
            room = self.settings.cache_bytes - self.cache.bytes
            more = await self._read(True, self.ahead.step, topic, [p[1] for p in others], room)
            self.metrics.ahead.set(len(self.ahead))
            if len(self.ahead):
                wait = 0.0 if more else SWITCH_NEAR_SECONDS
        self._later(others, wait)
        for partition in others:
            self.health.waiting.pop(partition, None)
        return [p for p in due if p[1] in ours]

    async def _gather(self) -> list[Piece]:
        """What goes into the next round: all that waits, up to a round's limits, after at most the linger; nothing when a flush, a claim,
        a revocation or the end comes first."""
        settings = self.settings
        while True:
            await self._admit()
            events = sum(len(piece.records) for piece in self._pieces)
            size = sum(piece.size for piece in self._pieces)
            now = self.clock()
            until = self._first_arrival + settings.linger_ms / 1000 if events else self._next_wake(now)
            if (
                events >= settings.round_events
                or size >= settings.round_bytes
                or until <= now
                or self._stopping
                or self._revoked
            ):
                break
            if not self._inbox:
                self._arrived.clear()
                waiters: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._arrived.wait())]
                if self._flying is not None and not events:
                    # Beside records that linger, a write that is done would end each wait at once: the loop would spin.
                    waiters.append(self._flying[1])
                try:
                    await asyncio.wait(waiters, timeout=until - now, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waiters[0].cancel()
                if not events and self._flying is not None and self._flying[1].done():
                    break
        self._interrupt()
        return self._take_pieces()

    def _next_wake(self, now: float) -> float:
        """When something is due without records: a flush, a claim, the question whether a stopped partition goes on."""
        wake = now if self._waiting else now + 1.0
        if self._to_flush():
            wake = min(wake, self._flushed_at + self.settings.open_turn_seconds)
        if any(seat.resumable for seat in self.seats.values()):
            wake = min(wake, self._resume_at)
        due = [at for p, at in self._assigned.items() if p not in self.seats]
        return min([wake, *due])

    def _take_pieces(self) -> list[Piece]:
        settings = self.settings
        taken: list[Piece] = []
        events, size = 0, 0
        while self._pieces and events < settings.round_events and size < settings.round_bytes:
            piece = self._pieces.popleft()
            room = settings.round_events - events
            if len(piece.records) > room:
                piece, rest = split(piece, room)
                self._pieces.appendleft(rest)
            taken.append(piece)
            events += len(piece.records)
            size += piece.size
        self._first_arrival = self.clock()
        return taken

    async def _admit(self) -> None:
        """Turn fetched batches into pieces that continue their partitions."""
        settings = self.settings
        events = sum(len(piece.records) for piece in self._pieces)
        while self._inbox and events < settings.round_events:
            batch = self._inbox.popleft()
            seat = self.seats.get(batch.partition)
            if seat is None or seat.stopped is not None or seat.lease != batch.lease:
                self._finish([batch], committed=False)
                continue
            accepted = False
            try:
                records = continue_from(seat, batch, holes_accepted=False)
            except Ahead:
                accepted = await self._holes_are_real(seat, batch)
                if not accepted:
                    continue
                records = continue_from(seat, batch, holes_accepted=True)
            except fence.LogBroken as error:
                self._stop_seat(seat, str(error))
                await self._withdraw(seat)
                self._finish([batch], committed=False)
                continue
            if not records:
                self._finish([batch], committed=False)
                continue
            to_offset = records[-1].offset + 1
            self._pieces.append(Piece(seat, seat.expected, to_offset, records, batch.size, (batch,)))
            seat.expected = to_offset
            events += len(records)

    async def _holes_are_real(self, seat: Seat, batch: Fetched) -> bool:
        """Records begin later than expected. Where the log still holds the expected offset, the offsets between hold no record
        (compaction, transaction markers); where it begins later, events are gone, which a person must accept."""
        try:
            bounds = (await self.log_side.bounds([seat.partition]))[seat.partition]
        except BrokerAway:
            # Nothing is known: read again from where we stand.
            self._finish([batch], committed=False)
            await asyncio.sleep(CLAIM_RETRY_SECONDS)
            await self._place_again(seat)
            return False
        if bounds.start <= seat.expected or self.accept_loss:
            return True
        self._finish([batch], committed=False)
        try:
            fence.check_log(replace(seat.claim, next_offset=seat.expected), bounds.start, bounds.end)
        except fence.LogBroken as error:
            self._stop_seat(seat, str(error))
            await self._withdraw(seat)
        return False
