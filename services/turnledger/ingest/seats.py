"""Which partitions this worker applies: claims, seeks, stops, what it waits for (design 3.1). Knows no Faust type."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import psycopg
import structlog

from turnledger.contract.redact import Redactor
from turnledger.errors import TurnledgerError
from turnledger.ingest import load, prepare
from turnledger.ingest.ahead import Ahead
from turnledger.ingest.batch import Fetched, Partition
from turnledger.ingest.cache import SessionCache, SessionKey
from turnledger.ingest.decide import DeadWindow, Decider
from turnledger.ingest.health import Health
from turnledger.ingest.link import Connection, Database
from turnledger.ingest.metrics import Metrics
from turnledger.ingest.numbers import Numbers
from turnledger.ingest.prepare import Prepared
from turnledger.ingest.seat import Piece, Seat
from turnledger.ingest.settings import WorkerSettings
from turnledger.store import fence
from turnledger.store.connect import DatabaseAway
from turnledger.store.fence import Stop
from turnledger.store.read import OtherFold, writable_slot

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger("turnledger.ingest")

BACKOFF_SECONDS = (0.1, 5.0)
"""First and longest pause before something is tried again; each is doubled and spread by a half."""
CLAIM_RETRY_SECONDS = 1.0
STANDBY_SECONDS = 0.2
"""How often a fleet that stands by asks whether partitions were given to it: a switch hands each over within a second (design 6)."""
SWITCH_NEAR_SECONDS = 0.05
"""The same once sessions were read ahead: then a switch may come at any moment. Some 0.3 ms each."""
NUDGE_SECONDS = 12.0
RESUME_SECONDS = 2.0
"""How often it is asked whether somebody let a stopped partition go on."""


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


class Seats:
    """The partitions of one worker, and what it reads of the ledger."""

    def __init__(
        self,
        settings: WorkerSettings,
        open_database: Callable[[str], Database],
        log_side: Log,
        *,
        owner: str,
        metrics: Metrics,
        health: Health,
        give_back: Callable[[int], None] = lambda size: None,
        on_doubled: Callable[[], None] = lambda: None,
        take_over: bool = False,
        accept_loss: bool = False,
        resume_stopped: bool = False,
        standby: bool = False,
        clock: Callable[[], float] = time.monotonic,
        dice: random.Random | None = None,
    ) -> None:
        """``open_database`` gives a connection of its own under a name. ``give_back`` hears of bytes that are finished, ``on_doubled``
        of another worker with our static member id. The flags are those of `turnledger worker`. ``clock`` counts seconds, ``dice``
        spreads pauses."""
        self.settings = settings
        self.log_side = log_side
        self.owner = owner
        self.metrics = metrics
        self.health = health
        self.give_back = give_back
        self.on_doubled = on_doubled
        self.take_over = take_over
        self.accept_loss = accept_loss
        self.resume_stopped = resume_stopped
        self.standby = standby
        self.clock = clock
        self.dice = dice or random.Random()
        self.writer = open_database("ingest writer")
        self.reader = open_database("ingest reader")
        self.decider = Decider(
            settings.record_limit_bytes, settings.dead_letter_bytes, Redactor(slot_key=settings.slot_key())
        )
        self.cache = SessionCache(settings.cache_bytes)
        self.ahead = Ahead()
        """What is read while standing by. It and the cache share one bound."""
        self.numbers = Numbers()
        self.seats: dict[Partition, Seat] = {}
        self.applied: dict[Partition, int] = {}
        """Next offset by partition, as committed: what may be told to Kafka."""
        self.slot = "projection_a"
        self._assigned: dict[Partition, float] = {}
        """Assigned by the group, and when a claim may be tried."""
        self._epochs: dict[Partition, int] = {}
        """The last epoch under which each partition was ours."""
        self._former: dict[Partition, Seat] = {}
        """Seats that were revoked: an eager rebalance gives most of them back."""
        self._inbox: deque[Fetched] = deque()
        self._pieces: deque[Piece] = deque()
        """Admitted and not in a round (again)."""
        self._waiting: dict[SessionKey, tuple[Partition, bool]] = {}
        """Sessions that a round left to the next ones to ask what moved: their homes, and whether with their open turns."""
        self._arrived = asyncio.Event()
        self._revoked: set[Partition] = set()
        self._released = asyncio.Event()
        self._released.set()
        self._stopping = False
        self._flying: tuple[Prepared, asyncio.Future[None]] | None = None
        self._settled: list[Prepared] = []
        """Committed rounds of which memory may let go."""
        self._round_numbers = itertools.count(1)
        self._leases = itertools.count(1)
        self._committed_round = 0
        self._day: date | None = None
        """Day of ingest of the last round."""
        self._flushed_at = 0.0
        self._upkeep_at = 0.0
        self._resume_at = 0.0
        self._unique_failures = 0
        self._first_arrival = 0.0

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
            done, batch.done = batch.done, None
            if committed and done is not None:
                done()

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

    def _later(self, partitions: Iterable[Partition], seconds: float = CLAIM_RETRY_SECONDS) -> None:
        at = self.clock() + seconds * self.dice.uniform(0.75, 1.25)
        for partition in partitions:
            if partition in self._assigned:
                self._assigned[partition] = at

    async def _claim(self, partition: Partition, bounds: Bounds) -> None:
        topic, number = partition
        try:
            claim, slot, last_batch, stale, window, stop = await self.writer.submit(
                self._claim_in, topic, number, bounds.start
            )
        except (fence.OtherGroup, fence.RowLocked, OtherFold) as error:
            if self.health.refused.get(partition) != str(error):
                log.error(str(error))
            self.health.refused[partition] = str(error)
            self._later([partition], 5.0)
            return
        self.health.refused.pop(partition, None)
        if self._is_doubled(partition, claim):
            self.on_doubled()
        self._epochs[partition] = claim.epoch
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
        if seat.stopped is None and stop is not None:
            seat.resumable = True
            self._stop_seat(seat, prepare.stop_sentence(topic, stop))
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

    def _is_doubled(self, partition: Partition, claim: fence.Claim) -> bool:
        """Whether an older process took the partition from us under our own static member id. The group cannot tell two such members
        apart: they take everything from each other for ever, until the younger one ends."""
        static = self.settings.instance_id
        ours = self._epochs.get(partition)
        former = claim.former_owner
        return (
            static is not None
            and ours is not None
            and claim.epoch > ours + 1
            and former is not None
            and former != self.owner
            and former.startswith(f"{static}@")
            and _started(former) < _started(self.owner)
        )

    def _claim_in(
        self, connection: Connection, topic: str, number: int, start: int
    ) -> tuple[fence.Claim, str, int, list[int], DeadWindow, Stop | None]:
        """In the writer's thread: its database process is the one that a frozen claim must end."""
        settings = self.settings
        # Before the claim: a worker of another fold must not take the partition from the one that may write it.
        writable_slot(connection)
        claim = fence.claim(
            connection,
            topic,
            number,
            group_id=settings.group_id,
            owner=self.owner,
            start=start,
            take_over=self.take_over,
        )
        # After it: readers may have been switched to another generation meanwhile.
        slot = writable_slot(connection)
        window, stop = self._dead_window(connection, claim)
        return (
            claim,
            slot,
            load.last_batch(connection, topic, number),
            load.stale_sessions(connection, topic, number, claim.flushed_batch),
            window,
            stop,
        )

    def _dead_window(self, connection: Connection, claim: fence.Claim) -> tuple[DeadWindow, Stop | None]:
        """The last records of a partition as the stop rule counts them, and whether it stands still for them (contract 15). A restart
        is no resume."""
        settings = self.settings
        topic, number, following = claim.topic, claim.partition, claim.next_offset
        if self.resume_stopped:
            fence.resume(connection, topic, number, by=self.owner, why="--resume-stopped")
        stop, resumed = fence.stopped(connection, topic, number, following)
        start = max(0, following - settings.dead_window, resumed or 0)
        dead = load.recent_dead(connection, topic, number, start)
        window = DeadWindow(
            settings.dead_share, settings.dead_window, following - start, (offset - start for offset in dead)
        )
        if stop is None and window.exceeded:
            # It was not stopped under the settings of whoever had it before.
            stop = Stop(number, following, window.dead, window.window, window.share)
            fence.stop(connection, topic, [stop])
            if self.resume_stopped:
                fence.resume(connection, topic, number, by=self.owner, why="--resume-stopped")
                return DeadWindow(settings.dead_share, settings.dead_window), None
        return window, stop

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
        seat.placed_at = self.clock()
        if not await self.log_side.place(seat.partition, max(offset, start), seat.lease):
            self._leave(seat.partition, keep=False)

    async def _place_again(self, seat: Seat) -> None:
        seat.lease = next(self._leases)
        seat.placed_at = self.clock()
        seat.anchor_due = False
        if not await self.log_side.place(seat.partition, seat.expected, seat.lease):
            self._leave(seat.partition, keep=False)

    def _stop_seat(self, seat: Seat, sentence: str) -> None:
        """A partition that needs a person is paused; it never blocks the others."""
        seat.stopped = sentence
        seat.lease = 0
        log.error(sentence)
        self.health.progress(seat.partition, seat.applied)
        self.health.partitions[seat.partition].stopped = sentence
        self.metrics.stopped.set(sum(1 for other in self.seats.values() if other.stopped is not None))

    async def _resume_due(self) -> None:
        """Go on with partitions that dead letters stopped and that somebody let go on since."""
        now = self.clock()
        waiting = {seat.number: seat for seat in self.seats.values() if seat.resumable}
        if not waiting or now < self._resume_at:
            return
        self._resume_at = now + RESUME_SECONDS
        places = {number: seat.applied for number, seat in waiting.items()}
        freed = [waiting[n] for n in await self._read(True, fence.resumed, self.settings.topic, places)]
        if not freed:
            return
        try:
            bounds = await self.log_side.bounds([seat.partition for seat in freed])
        except BrokerAway:
            return
        for seat in freed:
            if self.seats.get(seat.partition) is seat:
                await self._resume(seat, bounds[seat.partition])

    async def _resume(self, seat: Seat, bounds: Bounds) -> None:
        seat.window = DeadWindow(self.settings.dead_share, self.settings.dead_window)
        seat.stopped, seat.resumable = None, False
        self.health.progress(seat.partition, seat.applied)
        self.health.partitions[seat.partition].stopped = None
        self.metrics.stopped.set(sum(1 for other in self.seats.values() if other.stopped is not None))
        try:
            # It may have stood for long.
            fence.check_log(replace(seat.claim, next_offset=seat.applied), bounds.start, bounds.end)
        except fence.LogBroken as error:
            if not (self.accept_loss and bounds.start > seat.applied):
                self._stop_seat(seat, str(error))
                return
        log.info(f"partition {seat.number} of {seat.topic} goes on at {seat.applied}: somebody resumed it")
        await self._place(seat, bounds.start)

    async def _withdraw(self, seat: Seat) -> None:
        await self.log_side.withdraw([seat.partition])

    @property
    def waiting(self) -> list[Partition]:
        """Assigned and not claimed yet."""
        return [p for p in self._assigned if p not in self.seats]

    async def nudge(self) -> None:
        """Read anew where a partition has lag, nothing of it is on its way, and nothing moves: after a broker outage a consumer can look
        alive and fetch nothing (design 3.2)."""
        now = self.clock()
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

    def _interrupt(self) -> None:
        if self._stopping or self._revoked:
            raise Interrupted

    def _away(self, error: Exception) -> None:
        reason = brief(error)
        if self.health.database_failing is None:
            log.warning(f"the database fails ({reason}); nothing is acknowledged, it is tried again")
        self.health.database_failed(reason)
        self.metrics.retries.labels(type(error).__name__).inc()

    def _pauses(self) -> Iterator[float]:
        pause, longest = BACKOFF_SECONDS
        while True:
            yield pause * self.dice.uniform(0.5, 1.5)
            pause = min(longest, pause * 2)

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

    def _is_current(self, piece: Piece) -> bool:
        return piece.seat.stopped is None and self.seats.get(piece.seat.partition) is piece.seat


def owner_name(instance_id: str | None) -> str:
    """Who a worker is in ``ledger.ingest_progress``: member, host, process, and when it started (ms since 1970)."""
    return f"{instance_id or 'worker'}@{socket.gethostname()}:{os.getpid()}/{time.time_ns() // 1_000_000}"


def _started(owner: str) -> int:
    _, _, started = owner.rpartition("/")
    return int(started) if started.isdigit() else 0


def brief(error: Exception) -> str:
    """What failed, without values: one line."""
    if isinstance(error, TurnledgerError):
        return str(error)
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        return f"{type(error).__name__}, SQLSTATE {error.sqlstate}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
