"""The batch handler: from fetched batches to committed rounds (design 3). Knows no Faust type.

One loop does everything in turn: claim, gather, prepare, settle the write in flight, start the next. The write of a round runs in a
thread of its own while the next one is decoded and folded; a round that was rolled back discards the one that was folded on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import psycopg
import structlog

from turnledger.errors import TurnledgerError
from turnledger.fold.state import NeedsHistory, SessionChanges
from turnledger.ingest import load, prepare
from turnledger.ingest.batch import Fetched, Partition
from turnledger.ingest.cache import SessionCache, SessionEntry, SessionKey, StreamEntry
from turnledger.ingest.decide import DeadWindow, Decider, Group
from turnledger.ingest.foreign import HomesMoved, write_foreign
from turnledger.ingest.health import Health
from turnledger.ingest.link import Connection, Link
from turnledger.ingest.metrics import Metrics
from turnledger.ingest.numbers import Numbers
from turnledger.ingest.prepare import Folder, Prepared
from turnledger.ingest.seat import Ahead, Piece, Seat, continue_from, split
from turnledger.ingest.settings import WorkerSettings
from turnledger.store import fence, write
from turnledger.store.connect import DatabaseAway
from turnledger.store.maintain import make_event_partitions
from turnledger.store.read import session_events
from turnledger.store.write_rows import Share

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger("turnledger.ingest")

BACKOFF_SECONDS = (0.1, 5.0)
"""First and longest pause before a write is tried again; each is doubled and spread by a half."""
REVOKE_SECONDS = 5.0
"""How long a rebalance may be held up for the write in flight and the last projections."""
STALE_SESSIONS_A_ROUND = 200
PARTITION_UPKEEP_SECONDS = 3600.0
CLAIM_RETRY_SECONDS = 1.0
NUDGE_SECONDS = 12.0
UNIQUE_ATTEMPTS = 3
"""So often a round that meets a row which is there already is decided anew before it is an alarm."""


class Bounds(Protocol):
    start: int
    end: int


class BrokerAway(Exception):
    """The broker did not answer."""


class Log(Protocol):
    """What the handler needs of the broker's side."""

    async def place(self, partition: Partition, offset: int, lease: int) -> bool:
        """Read a partition from ``offset`` on under ``lease``; False when it is not assigned any more."""

    async def withdraw(self, partitions: Iterable[Partition]) -> None:
        """Stop reading; the partitions stay assigned."""

    async def bounds(self, partitions: Iterable[Partition]) -> Mapping[Partition, Bounds]:
        """Where each log begins and ends. Raises :class:`BrokerAway`."""


class Interrupted(Exception):
    """A revocation or the end of the worker cut short what was being waited for."""


class Ingest:
    """Applies the partitions that the group assigns."""

    def __init__(
        self,
        settings: WorkerSettings,
        database_url: str,
        log_side: Log,
        *,
        owner: str,
        metrics: Metrics,
        health: Health,
        give_back: Callable[[int], None] = lambda size: None,
        take_over: bool = False,
        accept_loss: bool = False,
        resume_stopped: bool = False,
    ) -> None:
        """``give_back`` hears of bytes that are finished. The flags are those of `turnledger worker`."""
        self.settings = settings
        self.log_side = log_side
        self.owner = owner
        self.metrics = metrics
        self.health = health
        self.give_back = give_back
        self.take_over = take_over
        self.accept_loss = accept_loss
        self.resume_stopped = resume_stopped
        self.writer = Link(database_url, "ingest writer")
        self.reader = Link(database_url, "ingest reader")
        self.decider = Decider(settings.record_limit_bytes, settings.dead_letter_bytes)
        self.cache = SessionCache(settings.cache_bytes)
        self.numbers = Numbers()
        self.seats: dict[Partition, Seat] = {}
        self.applied: dict[Partition, int] = {}
        """Next offset by partition, as committed: what may be told to Kafka."""
        self.slot = "projection_a"
        self._assigned: dict[Partition, float] = {}
        """Assigned by the group, and when a claim may be tried."""
        self._former: dict[Partition, Seat] = {}
        """Seats that were revoked: an eager rebalance gives most of them back."""
        self._inbox: deque[Fetched] = deque()
        self._pieces: deque[Piece] = deque()
        """Admitted and not in a round (again)."""
        self._arrived = asyncio.Event()
        self._revoked: set[Partition] = set()
        self._released = asyncio.Event()
        self._released.set()
        self._stopping = False
        self._flying: tuple[Prepared, asyncio.Future[None]] | None = None
        self._round_numbers = itertools.count(1)
        self._leases = itertools.count(1)
        self._committed_round = 0
        self._day: date | None = None
        """Day of ingest of the last round."""
        self._flushed_at = 0.0
        self._upkeep_at = 0.0
        self._unique_failures = 0
        self._first_arrival = 0.0

    # ---- what the Faust side calls, in the same event loop -------------------------------------------------------------------

    def put(self, batch: Fetched) -> None:
        """Take a fetched batch. Bytes are bounded by the budget that fetching asks."""
        if not self._inbox and not self._pieces:
            self._first_arrival = time.monotonic()
        self._inbox.append(batch)
        self._arrived.set()

    def assign(self, partitions: Iterable[Partition]) -> None:
        """The group's assignment, whole."""
        now = time.monotonic()
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

    @property
    def waiting(self) -> list[Partition]:
        """Assigned and not claimed yet."""
        return [p for p in self._assigned if p not in self.seats]

    async def nudge(self) -> None:
        """Read anew where a partition has lag, nothing of it is on its way, and nothing moves: after a broker outage a consumer can look
        alive and fetch nothing (design 3.2)."""
        now = time.monotonic()
        busy = {batch.partition for batch in self._inbox} | {piece.seat.partition for piece in self._pieces}
        for partition, seat in list(self.seats.items()):
            watched = self.health.partitions.get(partition)
            if watched is None or seat.stopped is not None or partition in busy or self._flying is not None:
                continue
            if (
                watched.lag
                and seat.expected == seat.applied
                and now - max(watched.progress_at, seat.placed_at) > NUDGE_SECONDS
            ):
                log.info(
                    "nothing comes of a partition with lag; it is read anew",
                    partition=partition[1],
                    next_offset=seat.applied,
                )
                await self._place_again(seat)

    def stop(self) -> None:
        """End after the write in flight and the last projections."""
        self._stopping = True
        self._arrived.set()

    # ---- the loop --------------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Apply until :meth:`stop`. Outages are waited out here; what is raised is a bug."""
        try:
            with contextlib.suppress(Interrupted):
                await self._upkeep()
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
        await self._claim_due()
        pieces = await self._gather()
        flush = self._flush_due()
        if not pieces and not flush:
            if self._flying is not None and self._flying[1].done():
                await self._settle(None)
            return
        prepared = await self._prepare(pieces, flush)
        if not await self._settle(prepared):
            return
        if prepared is not None and prepared.seats:
            self._launch(prepared)
            if prepared.foreign is not None:
                # It reads what is committed: the next round must not be folded beside it.
                await self._settle(None)

    def _interrupt(self) -> None:
        if self._stopping or self._revoked:
            raise Interrupted

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
                f"the last projections before a revocation were not written ({_brief(error)}); whoever claims the partitions folds them again"
            )
        for partition in gone:
            self._leave(partition, keep=True)
        self._revoked -= gone
        if not self._revoked:
            self._released.set()

    def _leave(self, partition: Partition, *, keep: bool) -> None:
        """Give a seat up. ``keep``: it may come back as it was."""
        seat = self.seats.pop(partition, None)
        if seat is None:
            return
        self._pieces = deque(
            piece for piece in self._pieces if piece.seat is not seat or self._dropped(piece)
        )
        seat.expected = seat.applied
        if keep and seat.stopped is None:
            self._former[partition] = seat
        else:
            self._drop_cached(seat)
        self.applied.pop(partition, None)
        self.health.partitions.pop(partition, None)
        self.metrics.owned.set(len(self.seats))

    def _drop_cached(self, seat: Seat) -> None:
        """Forget the sessions at home on a partition; those with unwritten changes are folded again in whole."""
        for entry in seat.dirty.values():
            seat.stale[entry.session_no] = None
        seat.dirty.clear()
        seat.late.clear()
        self.cache.drop_homes([seat.partition])

    def _dropped(self, piece: Piece) -> bool:
        self._finish(piece.batches, committed=False)
        return False

    def _finish(self, batches: Iterable[Fetched], *, committed: bool) -> None:
        for batch in batches:
            self.give_back(batch.size)
            if committed and batch.done is not None:
                batch.done()

    # ---- claims ----------------------------------------------------------------------------------------------------------------

    async def _claim_due(self) -> None:
        now = time.monotonic()
        due = [p for p, at in self._assigned.items() if p not in self.seats and at <= now]
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
                self.health.database_failed(_brief(error))
                log.warning(
                    f"partition {partition[1]} of {partition[0]} could not be claimed yet: {_brief(error)}"
                )
                self._later(due)
                return
            self.health.database_works()

    def _later(self, partitions: Iterable[Partition], seconds: float = CLAIM_RETRY_SECONDS) -> None:
        at = time.monotonic() + seconds * random.uniform(0.75, 1.25)
        for partition in partitions:
            if partition in self._assigned:
                self._assigned[partition] = at

    async def _claim(self, partition: Partition, bounds: Bounds) -> None:
        topic, number = partition
        try:
            claim, slot, last_batch, stale, window = await self.writer.submit(
                self._claim_in, topic, number, bounds.start
            )
        except (fence.OtherGroup, fence.RowLocked) as error:
            if self.health.refused.get(partition) != str(error):
                log.error(str(error))
            self.health.refused[partition] = str(error)
            self._later([partition], 5.0)
            return
        self.health.refused.pop(partition, None)
        if partition not in self._assigned:
            return
        if claim.terminated is not None:
            log.warning(
                f"partition {number} of {topic} was held by a frozen worker inside its transaction; its database process "
                f"{claim.terminated} was ended"
            )
        self.slot = slot
        former = self._former.pop(partition, None)
        if former is not None and claim.continues(former.epoch, former.applied, former.disturbed):
            seat = former
            seat.claim = claim
        else:
            if former is not None:
                self._drop_cached(former)
            self.cache.drop_homes([partition])
            seat = Seat(partition, claim, window, flushed=claim.flushed_batch, stale=dict.fromkeys(stale))
        seat.lease = next(self._leases)
        seat.expected = seat.applied = claim.next_offset
        seat.disturbed = claim.disturbed
        seat.last_batch = last_batch
        try:
            fence.check_log(claim, bounds.start, bounds.end)
        except fence.LogBroken as error:
            if not (self.accept_loss and bounds.start > claim.next_offset):
                self._stop_seat(seat, str(error))
        if seat.stopped is None and seat.window.exceeded:
            self._stop_seat(seat, prepare.stop_sentence(seat, claim.next_offset))
        self.seats[partition] = seat
        self.health.waiting.pop(partition, None)
        self.health.progress(partition, claim.next_offset)
        self.health.end(partition, bounds.end)
        self.metrics.claims.inc()
        self.metrics.owned.set(len(self.seats))
        self.applied[partition] = claim.next_offset
        if seat.stopped is None:
            await self._place(seat, bounds.start)
            log.info(
                "claimed",
                partition=number,
                epoch=claim.epoch,
                next_offset=claim.next_offset,
                stale_sessions=len(seat.stale),
            )

    def _claim_in(
        self, connection: Connection, topic: str, number: int, start: int
    ) -> tuple[fence.Claim, str, int, list[int], DeadWindow]:
        """In the writer's thread: its database process is the one that a frozen claim must end."""
        settings = self.settings
        claim = fence.claim(
            connection,
            topic,
            number,
            group_id=settings.group_id,
            owner=self.owner,
            start=start,
            take_over=self.take_over,
        )
        generation = connection.execute("select generation from turnledger.active").fetchone()
        assert generation is not None
        records, dead = load.recent_dead(connection, topic, number, settings.dead_window)
        return (
            claim,
            f"projection_{generation[0]}",
            load.last_batch(connection, topic, number),
            load.stale_sessions(connection, topic, number, claim.flushed_batch),
            DeadWindow(settings.dead_share, settings.dead_window)
            if self.resume_stopped
            else DeadWindow(settings.dead_share, settings.dead_window, records, dead),
        )

    async def _place(self, seat: Seat, start: int) -> None:
        """Seek: to the anchor where it is still there, so that the first record proves that the log is the one we applied."""
        offset = seat.expected
        anchor = seat.claim.anchor_offset
        seat.anchor_due = (
            anchor is not None and seat.expected == seat.claim.next_offset and start <= anchor < offset
        )
        if seat.anchor_due and anchor is not None:
            offset = anchor
        seat.lease = next(self._leases)
        seat.placed_at = time.monotonic()
        if not await self.log_side.place(seat.partition, max(offset, start), seat.lease):
            self._leave(seat.partition, keep=False)

    def _stop_seat(self, seat: Seat, sentence: str) -> None:
        """A partition that needs a person is paused; it never blocks the others."""
        seat.stopped = sentence
        seat.lease = 0
        log.error(sentence)
        self.health.progress(seat.partition, seat.applied)
        self.health.partitions[seat.partition].stopped = sentence
        self.metrics.stopped.set(sum(1 for other in self.seats.values() if other.stopped is not None))

    # ---- gathering -------------------------------------------------------------------------------------------------------------

    async def _gather(self) -> list[Piece]:
        """What goes into the next round: all that waits, up to a round's limits, after at most the linger; nothing when a flush, a claim,
        a revocation or the end comes first."""
        settings = self.settings
        while True:
            await self._admit()
            events = sum(len(piece.records) for piece in self._pieces)
            size = sum(piece.size for piece in self._pieces)
            now = time.monotonic()
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
                if self._flying is not None:
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
        """When something is due without records: a flush, a claim."""
        wake = now + 1.0
        if self._to_flush():
            wake = min(wake, self._flushed_at + self.settings.open_turn_seconds)
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
        self._first_arrival = time.monotonic()
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

    async def _withdraw(self, seat: Seat) -> None:
        await self.log_side.withdraw([seat.partition])

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

    async def _place_again(self, seat: Seat) -> None:
        seat.lease = next(self._leases)
        seat.placed_at = time.monotonic()
        seat.anchor_due = False
        if not await self.log_side.place(seat.partition, seat.expected, seat.lease):
            self._leave(seat.partition, keep=False)

    # ---- preparing -------------------------------------------------------------------------------------------------------------

    def _to_flush(self) -> bool:
        return any(
            (seat.dirty or seat.late or seat.stale) and seat.stopped is None for seat in self.seats.values()
        )

    def _flush_due(self) -> bool:
        return self._to_flush() and time.monotonic() >= self._flushed_at + self.settings.open_turn_seconds

    async def _prepare(self, pieces: list[Piece], flush: bool, *, patient: bool = True) -> Prepared | None:
        """Decide and fold. None when nothing is left to do."""
        began = time.perf_counter()
        number = next(self._round_numbers)
        current = [piece for piece in pieces if self._is_current(piece)]
        for piece in pieces:
            if not self._is_current(piece):
                self._finish(piece.batches, committed=False)
        pieces = current
        prepared = prepare.begin(number, self.settings.topic, self.slot, pieces)
        prepared.round.known_day = self._day
        by_partition = prepare.read(prepared, self.decider)
        groups = [group for found in by_partition.values() for group in found.values()]
        seats = {group.share.step.partition: prepared.seats[group.share.step.partition] for group in groups}
        try:
            foreign = await self._load(prepared, groups, seats, patient)
            if foreign:
                return self._foreign(prepared, groups, foreign)
            folder = Folder(prepared, self.decider, self.numbers.streams.pop)
            self.decider.passing = prepared.receipts
            # Each event may open a stream, and declare another one lost.
            await self._ensure_numbers("streams", 2 * prepared.records + 1000, patient)
            await self._known_receipts(prepared, groups, patient)
            for group in groups:
                entry = self.cache.get(group.key)
                assert entry is not None
                folder.take(entry, group)
            await self._stale(prepared, folder, flush, patient)
            await self._histories(folder, patient)
            await self._changes(prepared, folder, flush, patient)
        except BaseException:
            # Cut short, or failed: what was folded is not what is stored.
            self._forget(prepared)
            self._pieces.extendleft(reversed(pieces))
            raise
        folder.finish(self._late)
        if flush:
            self._flush_late(prepared, folder)
            self._flushed_at = time.monotonic()
        self._dirty_rounds(prepared)
        prepared.round.shares.sort(key=lambda share: share.step.partition)
        prepared.seconds = time.perf_counter() - began
        self.metrics.prepare_seconds.observe(prepared.seconds)
        return prepared

    def _is_current(self, piece: Piece) -> bool:
        return piece.seat.stopped is None and self.seats.get(piece.seat.partition) is piece.seat

    async def _read(
        self, patient: bool, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Ask the ledger, for ever: while it is away, health turns red and nothing is applied. Not ``patient``: once."""
        for pause in self._pauses():
            try:
                found = await self.reader.submit(work, *args, **kwargs)
            except (psycopg.Error, DatabaseAway) as error:
                self._away(error)
                if not patient:
                    raise
            else:
                self.health.database_works()
                return found
            self._interrupt()
            await asyncio.sleep(pause)
        raise AssertionError("pauses do not end")

    async def _load(
        self, prepared: Prepared, groups: Sequence[Group], seats: Mapping[int, Seat], patient: bool
    ) -> dict[SessionKey, load.Found]:
        """Make sure that the cache holds every session of the round. Returns those that another worker writes."""
        unknown = [group for group in groups if group.key not in self.cache]
        if not unknown:
            return self._elsewhere(prepared, groups)
        keys = list(dict.fromkeys(group.key for group in unknown))
        found = await self._read(patient, load.find, keys)
        ours = [one for one in found.values() if one.home in self.seats]
        stale = {number for seat in self.seats.values() for number in seat.stale}
        entries = await self._read(patient, load.load, ours, self.slot, stale) if ours else []
        for entry in entries:
            self.cache.put(entry)
            if entry.wipe:
                home = self.seats[entry.home]
                prepare.share_of(prepared, home)
                prepared.stale_done.setdefault(home.number, []).append(entry.session_no)
        if entries:
            self.metrics.loads.inc(len(entries))
        fresh = [group for group in unknown if group.key not in found]
        await self._ensure_numbers("sessions", len(fresh), patient)
        for group in fresh:
            if group.key not in self.cache:
                born = seats[group.share.step.partition].partition
                self.cache.put(load.new_entry(group.key, self.numbers.sessions.pop(), born))
        foreign = {key: one for key, one in found.items() if one.home not in self.seats}
        return foreign | self._elsewhere(prepared, groups)

    async def _ensure_numbers(self, sequence: str, count: int, patient: bool) -> None:
        """Have so many numbers for new sessions or streams ready."""
        lacking = self.numbers.lacking(sequence, count)
        if lacking:
            self.numbers.add(sequence, await self._read(patient, load.numbers, sequence, lacking))

    def _elsewhere(self, prepared: Prepared, groups: Sequence[Group]) -> dict[SessionKey, load.Found]:
        """A session at home on another partition of ours: its home's row is locked too. (One whose home was revoked meanwhile is not
        ours any more.)"""
        lost: dict[SessionKey, load.Found] = {}
        for group in groups:
            entry = self.cache.get(group.key)
            if entry is None or entry.home[1] == group.share.step.partition:
                continue
            home = self.seats.get(entry.home)
            if home is None:
                lost[group.key] = load.Found(entry.session_no, entry.key, entry.home)
                self.cache.drop(group.key)
            else:
                prepare.share_of(prepared, home)
        return lost

    async def _known_receipts(self, prepared: Prepared, groups: Sequence[Group], patient: bool) -> None:
        """Ordinals of receipts in streams that have too many to keep: asked of the ledger, for this round alone."""
        wanted: dict[tuple[int, bytes], StreamEntry] = {}
        for group in groups:
            if group.unnumbered:
                entry = self.cache.get(group.key)
                assert entry is not None
                wanted |= load.unknown_receipts(entry, group.events)
        if not wanted:
            return
        known = await self._read(patient, load.known_receipts, list(wanted))
        for at, ordinal in known.items():
            wanted[at].receipts[at[1]] = ordinal
            prepared.receipts.append((wanted[at], at[1]))

    async def _stale(self, prepared: Prepared, folder: Folder, flush: bool, patient: bool) -> None:
        """Fold again some of the sessions whose projections are not known to be whole."""
        if not flush:
            return
        wanted: dict[int, Seat] = {}
        for seat in self.seats.values():
            for number in itertools.islice(seat.stale, max(0, STALE_SESSIONS_A_ROUND - len(wanted))):
                wanted[number] = seat
        if not wanted:
            return
        cached = {entry.session_no: entry for entry in self.cache if entry.session_no in wanted}
        found = await self._read(patient, load.find_numbers, [n for n in wanted if n not in cached])
        there = {one.session_no for one in found} | set(cached)
        entries = await self._read(patient, load.load, found, self.slot, wanted)
        for entry in entries:
            self.cache.put(entry)
        for number, seat in wanted.items():
            prepare.share_of(prepared, seat)
            prepared.stale_done.setdefault(seat.number, []).append(number)
        for entry in (*entries, *cached.values()):
            prepared.entries.setdefault(entry.key, entry)
            entry.round_no = prepared.number
        if len(there) < len(wanted):
            log.info(
                "sessions of a round that was never committed need no fold", count=len(wanted) - len(there)
            )

    async def _histories(self, folder: Folder, patient: bool) -> None:
        """States that let go of what they need now get it back from the ledger."""
        for entry in folder.lacking:
            history = await self._read(patient, session_events, entry.session_no)
            entry.state.restore(history)
            self.metrics.loads.inc()

    async def _changes(self, prepared: Prepared, folder: Folder, flush: bool, patient: bool) -> None:
        """Ask the fold what moved, and make its rows: what is finished at once, open turns with a flush."""
        wanted = dict(prepared.entries)
        if flush:
            for seat in self.seats.values():
                if seat.stopped is None:
                    wanted.update(seat.dirty)
        for key, entry in wanted.items():
            state = entry.state
            if not (flush or entry.wipe or state.has_changes):
                # The usual case, thousands a round: a turn goes on.
                if entry.dirty_since is None and state.has_open_changes:
                    self._dirty(prepared, entry)
                self.cache.touch(key)
                continue
            changes = await self._asked(entry, flush, patient)
            if changes is not None:
                missing = folder.missing_receipts(entry, changes)
                ordinals: Mapping[tuple[int, bytes], int] = {}
                if missing:
                    ordinals = await self._read(patient, load.known_receipts, list(missing))
                folder.write(entry, changes, ordinals)
                prepared.entries[key] = entry
                entry.round_no = prepared.number
                prepare.share_of(prepared, self.seats[entry.home])
            if state.has_changes or state.has_open_changes:
                if entry.dirty_since is None:
                    self._dirty(prepared, entry)
            elif entry.dirty_since is not None:
                entry.dirty_since = None
                self.seats[entry.home].dirty.pop(key, None)
            self.cache.measure(entry)

    def _dirty(self, prepared: Prepared, entry: SessionEntry) -> None:
        """From this round on the entry has changes that are not projected."""
        entry.dirty_since = prepared.number
        self.seats[entry.home].dirty[entry.key] = entry

    async def _asked(self, entry: SessionEntry, flush: bool, patient: bool) -> SessionChanges | None:
        while True:
            try:
                return Folder.changes(entry, flush)
            except NeedsHistory:
                history = await self._read(patient, session_events, entry.session_no)
                entry.state.restore(history)
                self.metrics.loads.inc()

    def _late(self, stream: StreamEntry, late: bool) -> None:
        seat = self.seats.get(stream.home)
        if seat is None:
            return
        if late:
            seat.late[stream.stream_no] = stream
        else:
            seat.late.pop(stream.stream_no, None)

    def _flush_late(self, prepared: Prepared, folder: Folder) -> None:
        for seat in self.seats.values():
            if seat.late and seat.stopped is None:
                prepare.share_of(prepared, seat)
                folder.late_rows(seat.late.values())
                seat.late = {}

    def _dirty_rounds(self, prepared: Prepared) -> None:
        """From which round the oldest unwritten changes of each partition date."""
        for number, seat in prepared.seats.items():
            oldest = next(iter(seat.dirty.values()), None)
            prepared.dirty_round[number] = None if oldest is None else oldest.dirty_since

    # ---- writing ---------------------------------------------------------------------------------------------------------------

    def _launch(self, prepared: Prepared) -> None:
        """Start the write in its thread; the loop goes on to the next round."""
        for share in prepared.round.shares:
            seat = prepared.seats[share.step.partition]
            share.step = replace(share.step, flushed_batch=self._flushed_bound(prepared, seat, share.step))
        self._flying = (prepared, asyncio.ensure_future(self._written(prepared)))

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

    async def _written(self, prepared: Prepared) -> None:
        began = time.perf_counter()
        if prepared.foreign is not None:
            await self.writer.submit(self._write_foreign_in, prepared)
        else:
            await self.writer.submit(self._write_in, prepared)
        self.metrics.write_seconds.observe(time.perf_counter() - began)

    def _write_in(self, connection: Connection, prepared: Prepared) -> None:
        backend = self.writer.backend
        assert backend is not None
        write.write(connection, prepared.round, backend, careful=prepared.careful)

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

    def _away(self, error: Exception) -> None:
        reason = _brief(error)
        if self.health.database_failing is None:
            log.warning(f"the database fails ({reason}); nothing is acknowledged, it is tried again")
        self.health.database_failed(reason)
        self.metrics.retries.labels(type(error).__name__).inc()

    @staticmethod
    def _pauses() -> Iterator[float]:
        pause, longest = BACKOFF_SECONDS
        while True:
            yield pause * random.uniform(0.5, 1.5)
            pause = min(longest, pause * 2)

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
        for entry in prepared.entries.values():
            if entry.undropped >= prepare.UNDROPPED_EVENTS and entry.round_no <= prepared.number:
                entry.undropped = 0
                entry.state.drop_closed()
        refused = round_.refused
        for unit, why in refused:
            log.error(f"session {unit.session_id} of tenant {unit.tenant}: {why}")
        metrics = self.metrics
        metrics.refused.inc(len(refused))
        metrics.rounds.inc()
        metrics.round_records.observe(prepared.records)
        metrics.bytes.inc(prepared.size)
        metrics.units.inc(len(round_.units))
        self.cache.shrink(self._committed_round)
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
        now = time.monotonic()
        if now < self._upkeep_at:
            return
        await self._read(True, _make_partitions)
        self._upkeep_at = now + PARTITION_UPKEEP_SECONDS

    def _foreign(
        self,
        prepared: Prepared,
        groups: Sequence[Group],
        foreign: dict[SessionKey, load.Found],
    ) -> Prepared:
        """A round with sessions that live elsewhere: it is decided inside its transaction, and nothing of it is cached."""
        homes = {one.home for one in foreign.values()}
        for group in groups:
            entry = self.cache.get(group.key)
            if entry is None:
                continue
            homes.add(entry.home)
            home = self.seats.get(entry.home)
            if home is not None and home.dirty.pop(entry.key, None) is not None:
                home.stale[entry.session_no] = None
            for stream in entry.streams.values():
                if home is not None:
                    home.late.pop(stream.stream_no, None)
            self.cache.drop(entry.key)
        prepared.foreign = homes
        prepared.entries.clear()
        prepared.stale_done.clear()
        self._dirty_rounds(prepared)
        prepared.round.shares.sort(key=lambda share: share.step.partition)
        self.metrics.foreign.inc(len(foreign))
        return prepared

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


def _make_partitions(connection: Connection) -> int:
    with connection.transaction():
        return make_event_partitions(connection)


def _broke(error: Exception) -> bool:
    """Whether the connection is gone: then it is not known what became of a commit."""
    return isinstance(error, DatabaseAway) or (
        isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
        and (error.sqlstate is None or error.sqlstate[:2] in ("08", "57"))
    )


def _brief(error: Exception) -> str:
    """What failed, without values: one line."""
    if isinstance(error, TurnledgerError):
        return str(error)
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        return f"{type(error).__name__}, SQLSTATE {error.sqlstate}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
