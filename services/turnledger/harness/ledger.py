"""Owns the publisher that runs inside a harness: it numbers events before anything else and sends them at least once.

With a spool, an event is on disk before ``emit`` returns, and a thread sends it. Without one, events that the broker has not confirmed live in this
process's memory and die with it: the hole that they leave is seen (numbers are never reused), but not declared as ``stream.lost``.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from turnledger.harness.collecting import Taps
from turnledger.harness.kafka import Sink, producing, send
from turnledger.harness.numbering import LedgerError, Numbering
from turnledger.harness.outlets import parse
from turnledger.harness.scopes import AsyncWork, SyncWork
from turnledger.harness.sending import Spooled
from turnledger.harness.spool import OnFull
from turnledger.harness.work import HungUp

T = TypeVar("T")
log = logging.getLogger("turnledger.harness")

MOST_WAITING = 10_000
"""Events that may wait for the broker before ``emit`` waits too: at 1 KB each, 10 MB of memory."""
FLUSH_SECONDS = 30.0
NO_ROOM = f"{MOST_WAITING:,} events wait for the broker, and the ledger is being closed"
CLOSE_SECONDS = 5.0
"""How long ``close`` sends what is in a spool: the rest stays there, so nobody needs to wait."""


class Delivery:
    """Sends numbered records in their order and keeps each until the broker has it. Lives in one event loop."""

    def __init__(self, sink: Sink, key: bytes, settled: Callable[[], None]) -> None:
        self._sink = sink
        self._key = key
        self._settled = settled
        self._waiting: dict[int, bytes] = {}
        self._failed: dict[int, BaseException] = {}
        self._beside: set[int] = set()
        """Numbers of bodies, which go with the event before them."""
        self._queue: asyncio.Queue[int] = asyncio.Queue()
        self._idle = asyncio.Event()
        self._idle.set()
        self._open = AsyncExitStack()
        self._producer: AIOKafkaProducer | None = None
        self._pump: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect. Raises ``KafkaAway``."""
        self._producer = await self._open.enter_async_context(producing(self._sink))
        self._pump = asyncio.create_task(self._send_all(self._producer))

    def submit(self, seq: int, record: bytes, *, counted: bool) -> None:
        """Take a record over; never waits. ``counted``: it has a place of those that may wait, which is given back with it."""
        self._waiting[seq] = record
        if not counted:
            self._beside.add(seq)
        self._idle.clear()
        self._queue.put_nowait(seq)

    async def flush(self, seconds: float) -> None:
        """Return when the broker has everything; what failed before is sent again. Raises :class:`LedgerError` naming what is missing."""
        again, self._failed = sorted(self._failed), {}
        for seq in again:
            self._queue.put_nowait(seq)
        if self._waiting:
            self._idle.clear()
        try:
            if not self._idle.is_set():  # wait_for with 0 seconds asks nobody
                await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            raise LedgerError(self._missing(f"did not confirm them within {seconds:g} s")) from None
        if self._failed:
            error = next(iter(self._failed.values()))
            raise LedgerError(self._missing(f"refused them ({error})"))

    async def stop(self, seconds: float) -> None:
        """Flush and disconnect; disconnects also when the flush fails."""
        try:
            await self.flush(seconds)
        finally:
            if self._pump is not None:
                self._pump.cancel()
            await self._open.aclose()

    def _missing(self, why: str) -> str:
        first, last = min(self._waiting), max(self._waiting)
        return (
            f"{len(self._waiting)} events (numbers {first} to {last}) have not arrived: {self._sink} {why}. "
            "They are kept in memory until flush() succeeds or the process ends"
        )

    async def _send_all(self, producer: AIOKafkaProducer) -> None:
        while True:
            seq = await self._queue.get()
            try:
                future = await send(producer, self._sink, self._key, self._waiting[seq])
            except KafkaError as error:
                self._settle(seq, error)
            else:
                future.add_done_callback(partial(self._confirmed, seq))

    def _confirmed(self, seq: int, done: asyncio.Future[Any]) -> None:
        self._settle(seq, asyncio.CancelledError("closed") if done.cancelled() else done.exception())

    def _settle(self, seq: int, error: BaseException | None) -> None:
        if error is None:
            self._waiting.pop(seq, None)
            if seq in self._beside:
                self._beside.discard(seq)
            else:
                self._settled()
        else:
            self._failed[seq] = error
        if len(self._waiting) == len(self._failed):
            self._idle.set()


class AsyncLedger(AsyncWork):
    """Publishes the events of one stream of a session, from async code (contract 2, design 7).

    ``sink``: ``kafka://host:port[/topic]``; with a spool also ``https://host[/path]`` (a collector), ``file:PATH`` (NDJSON, appended), or several sinks,
    of which each gets everything.
    ``spool``: path of an SQLite file of this ledger alone. An event is in it before ``emit`` returns, and goes when every sink has it, from this process
    or the next with the same spool, which continues the numbers. ``spool_bytes`` ``spool_age_seconds`` ``on_full`` (``"drop"`` or ``"raise"``) bound it;
    where absent the settings do. What is dropped is declared by ``stream.lost``. Without a spool, what is unconfirmed when the process dies is lost,
    and shows as a gap.

    ``epoch``: unless given, the one that the spool continues, else the start time in µs, so that a restarted harness never reuses a number;
    a harness that continues its own count gives its epoch and numbers on. ``bodies``: whether this stream sends the data of ``body.recorded``, up to
    ``body_bytes`` each. ``redaction_key``: key of the digests that stand for slot values; else that of the settings, else one of this process.
    Events are numbered before they are sent, in the order of ``emit``.
    """

    def __init__(
        self,
        *,
        session_id: str,
        sink: str | Sequence[str],
        spool: str | os.PathLike[str] | None = None,
        spool_bytes: int | None = None,
        spool_age_seconds: float | None = None,
        on_full: OnFull | None = None,
        **stream: Any,
    ) -> None:
        self._numbering = Numbering(session_id, **stream)
        self._home, self.session_id, self.taps = self, session_id, Taps()
        self.open_scopes: dict[Any, None] = {}
        self._pid = os.getpid()
        self._closing = False
        self._room = asyncio.Semaphore(MOST_WAITING)
        self._delivery: Delivery | None = None
        self._spooled: Spooled | None = None
        if spool is None:
            self._delivery = Delivery(
                _alone(sink, (spool_bytes, spool_age_seconds, on_full)),
                self._numbering.key,
                self._room.release,
            )
        else:
            self._spooled = Spooled(
                self._numbering, sink, spool, epoch=stream.get("epoch"),
                spool_bytes=spool_bytes, spool_age_seconds=spool_age_seconds, on_full=on_full,
            )  # fmt: skip

    @property
    def epoch(self) -> int:
        """The epoch that all events of this object carry."""
        return self._numbering.epoch

    @property
    def about(self) -> Mapping[str, Any]:
        """Nothing is frozen here: scopes and ``dispatched`` freeze."""
        return {}

    @property
    def dropped(self) -> int:
        """Events for which the spool, or its disk, had no room since this object was made (``on_full="drop"``); ``stream.lost`` names them."""
        return self._spooled.dropped if self._spooled is not None else 0

    async def start(self) -> Self:
        """Connect to the broker, or begin to send from the spool, which waits for no sink; ``async with`` does it by itself."""
        if self._delivery is not None:
            await self._delivery.start()
        if self._spooled is not None:
            self._spooled.start()
        return self

    async def emit(self, type: str, payload: Mapping[str, Any] | None = None, **correlation: Any) -> int:
        """Number an event and hand it on; its number. Waits for the write into the spool; without one, only while 10,000 events wait for the broker.

        ``correlation``: ``turn_id`` ``model_call_id`` ``tool_call_id`` ``trace_id`` ``event_id`` ``turn_index`` ``parent_session_id``
        ``origin`` ``provenance`` ``occurred_at`` (now, unless given). Raises :class:`LedgerError` for what the ledger would refuse,
        :class:`~turnledger.harness.spool.SpoolFull` with ``on_full="raise"``; no number is spent then.
        """
        if self._spooled is not None:
            seq, record = self._spooled.emit(type, payload, correlation)
        else:
            seq, record = await self._emit_direct(type, payload, correlation)
        self.taps.tell(seq, type, record)
        return seq

    async def _emit_direct(
        self, type: str, payload: Mapping[str, Any] | None, correlation: Mapping[str, Any]
    ) -> tuple[int, bytes]:
        assert self._delivery is not None
        if self._closing and self._room.locked():
            raise LedgerError(NO_ROOM)
        await self._room.acquire()
        try:
            seq, records = self._numbering.event(type, payload, correlation)
        except BaseException:
            self._room.release()
            raise
        for at, record in enumerate(records):
            self._delivery.submit(seq + at, record, counted=at == 0)
        return seq, records[0]

    async def flush(self, seconds: float = FLUSH_SECONDS) -> None:
        """Return when every sink has every event emitted so far. Raises :class:`LedgerError`; calling it again sends again."""
        if self._spooled is not None:
            await asyncio.to_thread(self._spooled.flush, seconds)
        elif self._delivery is not None:
            await self._delivery.flush(seconds)

    async def close(self, seconds: float | None = None) -> None:
        """End what is open, flush and disconnect, within 30 s. With a spool within 5 s, and what was not sent stays there, which is no error."""
        if os.getpid() != self._pid:
            return  # a fork: everything here is its parent's
        self._closing = True
        for scope in reversed(list(self.open_scopes)):
            try:
                await scope.hang_up(HungUp())
            except LedgerError as error:
                log.warning("the end of %s was not emitted: %s", scope.about, error)
        if self._spooled is not None:
            await asyncio.to_thread(self._spooled.close, CLOSE_SECONDS if seconds is None else seconds)
        elif self._delivery is not None:
            await self._delivery.stop(FLUSH_SECONDS if seconds is None else seconds)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Ledger(SyncWork):
    """:class:`AsyncLedger` for code without an event loop, and for many threads: one number sequence, one background thread.

    ``with Ledger(session_id="s", sink="kafka://localhost:9092", spool="s.spool") as ledger: ledger.emit("turn.started", turn_id="t1")``
    """

    def __init__(
        self,
        *,
        session_id: str,
        sink: str | Sequence[str],
        spool: str | os.PathLike[str] | None = None,
        spool_bytes: int | None = None,
        spool_age_seconds: float | None = None,
        on_full: OnFull | None = None,
        **stream: Any,
    ) -> None:
        self._numbering = Numbering(session_id, **stream)
        self._home, self.session_id, self.taps = self, session_id, Taps()
        self.open_scopes: dict[Any, None] = {}
        self._pid = os.getpid()
        self._closing = False
        self._lock = threading.Lock()
        self._closed = False
        self._spooled: Spooled | None = None
        self._direct: _Direct | None = None
        if spool is None:
            self._direct = _Direct(
                _alone(sink, (spool_bytes, spool_age_seconds, on_full)), self._numbering.key
            )
        else:
            self._spooled = Spooled(
                self._numbering, sink, spool, epoch=stream.get("epoch"),
                spool_bytes=spool_bytes, spool_age_seconds=spool_age_seconds, on_full=on_full,
            )  # fmt: skip
            self._spooled.start()
        atexit.register(self._close_at_exit)

    @property
    def epoch(self) -> int:
        """The epoch that all events of this object carry."""
        return self._numbering.epoch

    @property
    def about(self) -> Mapping[str, Any]:
        """Nothing is frozen here: scopes and ``dispatched`` freeze."""
        return {}

    @property
    def dropped(self) -> int:
        """Events for which the spool, or its disk, had no room since this object was made (``on_full="drop"``); ``stream.lost`` names them."""
        return self._spooled.dropped if self._spooled is not None else 0

    def emit(self, type: str, payload: Mapping[str, Any] | None = None, **correlation: Any) -> int:
        """Number an event and hand it on; its number. See :meth:`AsyncLedger.emit`."""
        if self._spooled is not None:
            seq, record = self._spooled.emit(type, payload, correlation)
        else:
            seq, record = self._emit_direct(type, payload, correlation)
        self.taps.tell(seq, type, record)
        return seq

    def _emit_direct(
        self, type: str, payload: Mapping[str, Any] | None, correlation: Mapping[str, Any]
    ) -> tuple[int, bytes]:
        assert self._direct is not None
        if not self._direct.room.acquire(blocking=not self._closing):
            raise LedgerError(NO_ROOM)
        try:
            with self._lock:  # numbering and handing on are one step: the topic's order is the numbers'
                if self._closed:
                    raise LedgerError("this Ledger is closed: open a new one, which gets a new epoch")
                seq, records = self._numbering.event(type, payload, correlation)
                for at, record in enumerate(records):
                    self._direct.submit(seq + at, record, counted=at == 0)
        except BaseException:
            self._direct.room.release()
            raise
        return seq, records[0]

    def flush(self, seconds: float = FLUSH_SECONDS) -> None:
        """Return when every sink has every event emitted so far. Raises :class:`LedgerError`; calling it again sends again."""
        if self._closed:
            raise LedgerError("this Ledger is closed: everything that could be sent was sent by close()")
        if self._spooled is not None:
            self._spooled.flush(seconds)
        elif self._direct is not None:
            self._direct.flush(seconds)

    def close(self, seconds: float | None = None) -> None:
        """End what is open, flush, disconnect, end the thread, as :meth:`AsyncLedger.close`. A second call does nothing."""
        if os.getpid() != self._pid:
            return  # a fork: everything here is its parent's
        self._closing = True
        for scope in reversed(list(self.open_scopes)):
            try:
                scope.hang_up(HungUp())
            except LedgerError as error:
                log.warning("the end of %s was not emitted: %s", scope.about, error)
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self._close_at_exit)
        if self._spooled is not None:
            self._spooled.close(CLOSE_SECONDS if seconds is None else seconds)
        elif self._direct is not None:
            self._direct.close(FLUSH_SECONDS if seconds is None else seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _close_at_exit(self) -> None:
        self.close()


class _Direct:
    """A delivery without a spool, in a thread with a loop of its own."""

    def __init__(self, sink: Sink, key: bytes) -> None:
        self.room = threading.Semaphore(MOST_WAITING)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="turnledger", daemon=True)
        self._thread.start()
        try:
            self._delivery = self._run(self._connect(sink, key))
        except BaseException:
            self._end_loop()
            raise

    def submit(self, seq: int, record: bytes, *, counted: bool) -> None:
        """Take a record over; never waits."""
        self._loop.call_soon_threadsafe(partial(self._delivery.submit, seq, record, counted=counted))

    def flush(self, seconds: float) -> None:
        """See :meth:`Delivery.flush`."""
        self._run(self._delivery.flush(seconds))

    def close(self, seconds: float) -> None:
        """Flush, disconnect, end the thread."""
        try:
            self._run(self._delivery.stop(seconds))
        finally:
            self._end_loop()

    async def _connect(self, sink: Sink, key: bytes) -> Delivery:
        delivery = Delivery(sink, key, self.room.release)
        await delivery.start()
        return delivery

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _alone(sink: str | Sequence[str], bounds: tuple[object, ...]) -> Sink:
    """The one broker of a ledger without a spool."""
    texts = (sink,) if isinstance(sink, str) else tuple(sink)
    parsed = parse(texts[0]) if len(texts) == 1 else None
    if not isinstance(parsed, Sink):
        raise LedgerError(
            f"the sink {', '.join(texts)!r} needs a spool: give spool='…' with the path of an SQLite file"
        )
    if any(each is not None for each in bounds):
        raise LedgerError("spool_bytes, spool_age_seconds and on_full bound a spool: give spool='…' too")
    return parsed
