"""Writing a round, and what becomes of it: the case table after a failure, what is moved on after a commit (design 3.1)."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import psycopg
import structlog

from turnledger.ingest import prepare
from turnledger.ingest.foreign import HomesMoved, write_foreign
from turnledger.ingest.link import Connection
from turnledger.ingest.prepare import Prepared
from turnledger.ingest.seat import Piece, Seat
from turnledger.ingest.seats import Interrupted, Seats
from turnledger.store import fence, write
from turnledger.store.connect import DatabaseAway
from turnledger.store.maintain import make_event_partitions
from turnledger.store.read import OtherFold, writable_slot
from turnledger.store.write_rows import Share

log = structlog.get_logger("turnledger.ingest")

PARTITION_UPKEEP_SECONDS = 3600.0
UNIQUE_ATTEMPTS = 3
"""So often a round that meets a row which is there already is decided anew before it is an alarm."""


class Settling(Seats):
    """The write in flight."""

    def _launch(self, prepared: Prepared) -> None:
        """Start the write in its thread; the loop goes on to the next round."""
        for share in prepared.round.shares:
            seat = prepared.seats[share.step.partition]
            share.step = replace(share.step, flushed_batch=self._flushed_bound(prepared, seat, share.step))
        self._flying = (prepared, self._written(prepared))

    def _flushed_bound(self, prepared: Prepared, seat: Seat, step: fence.Step) -> int | None:
        """Up to which batch the projections of a partition are whole when this round has committed; None: up to its own."""
        done = set(prepared.stale_done.get(seat.number, ()))
        if any(number not in done for number in seat.stale):
            return seat.flushed
        oldest = prepared.dirty_round[seat.number]
        if oldest is None:
            return None if step.to_offset > step.from_offset else seat.last_batch
        if oldest == prepared.number:
            return seat.last_batch
        return max(seat.flushed, seat.batches.get(oldest, seat.last_batch + 1) - 1)

    def _written(self, prepared: Prepared) -> asyncio.Future[None]:
        """Begin the write, now. (A task would begin it when the loop is next idle, and the loop is about to fold the next round.)"""
        began = time.perf_counter()
        write_in = self._write_in if prepared.foreign is None else self._write_foreign_in
        written = self.writer.submit(write_in, prepared)
        written.add_done_callback(lambda _: self.metrics.write_seconds.observe(time.perf_counter() - began))
        return written

    def _write_in(self, connection: Connection, prepared: Prepared) -> None:
        backend = self.writer.backend
        assert backend is not None
        write.write(connection, prepared.round, backend, careful=prepared.careful)

    def _write_foreign_in(self, connection: Connection, prepared: Prepared) -> None:
        backend = self.writer.backend
        assert backend is not None and prepared.foreign is not None
        while True:
            try:
                write_foreign(connection, prepared, self.decider, backend, prepared.foreign)
            except HomesMoved as moved:
                prepared.foreign |= moved.homes
            else:
                return

    async def _settle(self, following: Prepared | None, *, patient: bool = True) -> bool:
        """Wait for the write in flight. False when it was discarded, and ``following`` with it: its records come again."""
        if self._flying is None:
            return True
        prepared, flight = self._flying
        try:
            await asyncio.shield(flight)
            committed = True
        except (psycopg.Error, DatabaseAway, write.FenceLost, write.DataRefused) as error:
            try:
                committed = await self._recover(prepared, error, patient)
            except Interrupted:
                self._flying = None
                self._discard([prepared, *([following] if following is not None else [])])
                raise
        self._flying = None
        if committed:
            self._committed(prepared)
            await self._stop_what_must(prepared)
            if following is None or not any(number in following.seats for number in prepared.stopping):
                return True
            self._discard([following])
            return False
        self._discard([prepared, *([following] if following is not None else [])])
        return False

    async def _recover(self, prepared: Prepared, error: Exception, patient: bool) -> bool:
        """After a failure: the case table of design 3.1. True when the round is committed after all."""
        pauses = self._pauses()
        unknown = False
        while True:
            if isinstance(error, write.DataRefused):
                self.metrics.retries.labels("refused").inc()
                prepared.careful = True
            elif isinstance(error, write.FenceLost):
                await self._lost(prepared, error.partitions)
                return False
            elif isinstance(error, psycopg.errors.UniqueViolation):
                return await self._already_there(error)
            else:
                self._away(error)
                unknown = unknown or _broke(error)
                if not patient:
                    raise Interrupted
                self._interrupt()
                await asyncio.sleep(next(pauses))
                self._interrupt()
                if isinstance(error, (psycopg.errors.UndefinedTable, psycopg.errors.CheckViolation)):
                    self._upkeep_at = 0.0
                    await self._upkeep()
            try:
                if unknown:
                    applied = await self._judge(prepared)
                    if applied is not None:
                        return applied
                    unknown = False
                await self._written(prepared)
            except (psycopg.Error, DatabaseAway, write.FenceLost, write.DataRefused) as again:
                error = again
            else:
                self.health.database_works()
                return True

    async def _judge(self, prepared: Prepared) -> bool | None:
        """What became of a transaction whose answer was lost. None: nothing happened, write it again."""
        steps = [share.step for share in prepared.round.shares]
        standing = await self.writer.submit(
            fence.read, prepared.round.topic, [step.partition for step in steps]
        )
        verdicts = {step.partition: fence.judge(step, standing.get(step.partition)) for step in steps}
        moving = [step for step in steps if step.to_offset > step.from_offset]
        if not moving:
            # It only wrote projections: whether it did cannot be seen, so they are written anew.
            self._doubt(prepared)
            return False
        if any(verdicts[step.partition] is fence.Verdict.APPLIED for step in moving):
            log.info("a commit whose answer was lost had been applied; going on")
            return True
        bad = {step.partition for step in steps if verdicts[step.partition] is not fence.Verdict.NOT_APPLIED}
        if bad:
            await self._lost(prepared, bad)
            return False
        return None

    async def _lost(self, prepared: Prepared, partitions: set[int]) -> None:
        """Partitions that did not come through the fence: their rows say why."""
        topic = prepared.round.topic
        standing = await self._read(True, fence.read, topic, sorted(partitions))
        other_fold = await self._generation_now()
        for share in prepared.round.shares:
            step = share.step
            if step.partition not in partitions:
                continue
            seat = prepared.seats[step.partition]
            verdict = fence.judge(step, standing.get(step.partition))
            self.metrics.verdicts.labels(verdict.value).inc()
            self._drop_cached(seat)
            row = standing.get(step.partition)
            if verdict in (fence.Verdict.DISTURBED, fence.Verdict.NOT_APPLIED) and row is not None:
                if other_fold is not None:
                    self._leave(seat.partition, keep=False)
                    self.health.refused[seat.partition] = other_fold
                    self._later([seat.partition])
                    continue
                seat.disturbed = row.disturbed
                log.info(
                    "a session of this partition was written elsewhere; its cache is dropped",
                    partition=step.partition,
                )
                continue
            self._leave(seat.partition, keep=False)
            if verdict is fence.Verdict.OTHER_OWNER:
                often = self.health.lost()
                said = (
                    f"partition {step.partition} of {topic} was claimed by another worker; it is dropped here"
                )
                (log.error if often >= 3 else log.warning)(said)
                self._later([seat.partition])
            else:
                log.error(
                    f"partition {step.partition} of {topic} stands where nobody put it (a fail-over, or a restored database): its row is "
                    "read anew"
                )
                self._later([seat.partition], 0.0)

    async def _generation_now(self) -> str | None:
        """Write the generation that readers see now: a switch disturbs every partition (design 6). A sentence where it is of another fold."""
        try:
            slot = await self._read(True, writable_slot)
        except OtherFold as error:
            log.error(str(error))
            return str(error)
        if slot != self.slot:
            log.info(f"readers were switched to {slot}; it is what is written from now on")
            self.slot = slot
        return None

    async def _already_there(self, error: psycopg.errors.UniqueViolation) -> bool:
        """Somebody else wrote what this round thinks is new: decide it anew from the ledger."""
        self._unique_failures += 1
        table = error.diag.table_name or "?"
        log.warning(f"a row of {table} was there already; the round is decided anew from the ledger")
        if self._unique_failures >= UNIQUE_ATTEMPTS:
            self.health.database_failed(f"rows of {table} keep being there already")
            await asyncio.sleep(min(5.0, 0.2 * self._unique_failures))
        for seat in self.seats.values():
            self._drop_cached(seat)
        self.cache.drop_all()
        return False

    def _committed(self, prepared: Prepared) -> None:
        """The round stands: move on what is remembered of it."""
        self._unique_failures = 0
        self._committed_round = prepared.number
        round_ = prepared.round
        self.health.database_works()
        if round_.day is not None:
            self._day = round_.day
            write.move_days(round_.touched, round_.day)
        for share in round_.shares:
            self._moved(prepared, share)
        self._finish(prepared.batches, committed=True)
        for stream, key_hash in prepared.receipts:
            stream.receipts.pop(key_hash, None)
        self._settled.append(prepared)
        refused = round_.refused
        for unit, why in refused:
            log.error(f"session {unit.session_id} of tenant {unit.tenant}: {why}")
        metrics = self.metrics
        metrics.refused.inc(len(refused))
        metrics.rounds.inc()
        metrics.round_records.observe(prepared.records)
        metrics.bytes.inc(prepared.size)
        metrics.units.inc(len(round_.units))

    def _let_go(self) -> None:
        """What is committed need not stay in memory. Done beside the next write, which waits for nothing of it."""
        if not self._settled:
            return
        settled, self._settled = self._settled, []
        for prepared in settled:
            for entry in prepared.entries.values():
                if entry.undropped >= prepare.UNDROPPED_EVENTS and entry.round_no <= prepared.number:
                    entry.undropped = 0
                    entry.state.drop_closed()
                    if self.cache.get(entry.key) is entry:
                        self.cache.measure(entry)
        metrics = self.metrics
        self.cache.shrink(self._committed_round)
        self.ahead.shrink(self.settings.cache_bytes - self.cache.bytes)
        metrics.ahead.set(len(self.ahead))
        metrics.sessions.set(len(self.cache))
        metrics.cache_bytes.set(self.cache.bytes)
        metrics.evicted.set(self.cache.evicted)

    def _moved(self, prepared: Prepared, share: Share) -> None:
        step = share.step
        seat = prepared.seats[step.partition]
        for number in prepared.stale_done.get(seat.number, ()):
            seat.stale.pop(number, None)
        if step.flushed_batch is not None:
            seat.flushed = max(seat.flushed, step.flushed_batch)
        if share.batch_no is None:
            return
        seat.applied = step.to_offset
        seat.last_batch = share.batch_no
        if step.flushed_batch is None:
            seat.flushed = max(seat.flushed, share.batch_no)
        oldest = next(iter(seat.dirty.values()), None)
        if oldest is None:
            seat.batches.clear()
        else:
            seat.batches[prepared.number] = share.batch_no
            for number in [n for n in seat.batches if n < (oldest.dirty_since or 0)]:
                del seat.batches[number]
        if seat.partition in self.seats:
            self.applied[seat.partition] = seat.applied
        self.health.progress(seat.partition, seat.applied)
        label = str(step.partition)
        records = self.metrics.records
        records.labels(label, "accepted").inc(share.accepted)
        records.labels(label, "duplicate").inc(share.duplicates)
        records.labels(label, "conflict").inc(share.conflicts)
        records.labels(label, "dead").inc(len(share.dead))
        self.metrics.holes.labels(label).inc(share.holes)
        self.metrics.next_offset.labels(label).set(seat.applied)

    async def _stop_what_must(self, prepared: Prepared) -> None:
        for number, sentence in prepared.stopping.items():
            seat = prepared.seats[number]
            if seat.stopped is None:
                self._pieces = deque(
                    piece for piece in self._pieces if piece.seat is not seat or self._dropped(piece)
                )
                # What is committed is all that was taken of it.
                seat.expected = seat.applied
                seat.resumable = True
                self._stop_seat(seat, sentence)
                await self._withdraw(seat)

    def _discard(self, discarded: Sequence[Prepared]) -> None:
        """Rounds that were not written: forget what they folded, and take their records again."""
        again: list[Piece] = []
        for prepared in reversed(discarded):
            self._forget(prepared)
        for prepared in discarded:
            for piece in prepared.pieces:
                if self._is_current(piece):
                    again.append(piece)
                else:
                    self._finish(piece.batches, committed=False)
        self._pieces.extendleft(reversed(again))

    def _forget(self, prepared: Prepared) -> None:
        """Drop the sessions of a round that does not stand. Those that had unwritten changes are folded again in whole."""
        self._doubt(prepared)
        for number, window in prepared.windows.items():
            prepared.seats[number].window = window
        for key, entry in prepared.entries.items():
            self.cache.drop(key)
            seat = self.seats.get(entry.home)
            if seat is not None:
                seat.dirty.pop(key, None)
                for stream in entry.streams.values():
                    seat.late.pop(stream.stream_no, None)

    def _doubt(self, prepared: Prepared) -> None:
        for entry in prepared.entries.values():
            seat = self.seats.get(entry.home)
            if seat is not None:
                seat.stale[entry.session_no] = None

    async def _upkeep(self) -> None:
        """Keep the ledger's partitions ahead of the calendar."""
        now = self.clock()
        if now < self._upkeep_at:
            return
        await self._read(True, _make_partitions)
        self._upkeep_at = now + PARTITION_UPKEEP_SECONDS


def _make_partitions(connection: Connection) -> int:
    with connection.transaction():
        return make_event_partitions(connection)


def _broke(error: Exception) -> bool:
    """Whether the connection is gone: then it is not known what became of a commit."""
    return isinstance(error, DatabaseAway) or (
        isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
        and (error.sqlstate is None or error.sqlstate[:2] in ("08", "57"))
    )
