"""Owns the publisher that runs inside a harness: it numbers events before anything else and sends them at least once.

What it does not have yet is a durable spool: events that the broker has not confirmed live in this process's memory and die with it. The hole
that they leave is seen (numbers are never reused), but not declared as ``stream.lost``.
"""

from __future__ import annotations

import asyncio
import atexit
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import cache, partial
from types import TracebackType
from typing import Any, Self, TypeVar

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from turnledger.contract.reader import Rejected, read
from turnledger.contract.redact import BODY, BODY_LIMIT, Redactor
from turnledger.errors import TurnledgerError
from turnledger.harness.facts import cut
from turnledger.harness.kafka import Sink, key_of, producing, send
from turnledger.settings import LEAST_KEY, Settings

T = TypeVar("T")

MOST_WAITING = 10_000
"""Events that may wait for the broker before ``emit`` waits too: at 1 KB each, 10 MB of memory."""
FLUSH_SECONDS = 30.0
RECORD_LIMIT = 1024 * 1024
"""Greatest event in bytes (contract 15)."""


class LedgerError(TurnledgerError):
    """An event that the ledger would not take, or that could not be delivered."""


class Numbering:
    """Makes envelopes of one stream and gives each the next number. No I/O; not safe for threads by itself."""

    def __init__(
        self,
        session_id: str,
        *,
        tenant: str = "default",
        producer: str = "harness",
        stream: str = "ledger",
        epoch: int | None = None,
        kind: str = "live",
        run_id: str | None = None,
        bodies: bool = False,
        body_bytes: int = BODY_LIMIT,
        redaction_key: str | bytes | None = None,
    ) -> None:
        self._redactor = Redactor(
            slot_key=_slot_key(redaction_key), bodies=bodies, body_limit=body_bytes if bodies else None
        )
        self.epoch = time.time_ns() // 1000 if epoch is None else epoch
        self.next_seq = 0
        fixed: dict[str, Any] = {
            "schema_version": 1,
            "tenant": tenant,
            "session_id": session_id,
            "producer": producer,
            "epoch": self.epoch,
            "stream": stream,
            "kind": kind,
        }
        if run_id is not None:
            fixed["run_id"] = run_id
        self._fixed = fixed
        # A bad session id is said here, not at the first event.
        first = orjson.loads(self._encode({"seq": 0, "type": "session.started"}))
        self.key = key_of(first["tenant"], first["session_id"])

    def event(
        self, type: str, payload: Mapping[str, Any] | None, correlation: Mapping[str, Any]
    ) -> tuple[int, bytes]:
        """(number, record). The number is spent only when the event is one that the ledger accepts."""
        fields = {name: value for name, value in correlation.items() if value is not None}
        fields.setdefault("occurred_at", datetime.now(UTC).isoformat(timespec="microseconds"))
        seq = self.next_seq
        record = self._encode({"seq": seq, "type": type, **fields, "payload": dict(payload or {})})
        self.next_seq = seq + 1
        return seq, record

    def _encode(self, fields: dict[str, Any]) -> bytes:
        try:
            # Redacted before anything is cut, so that no half of a secret is left.
            whole = self._redactor.clean({**self._fixed, **fields})
            payload = whole.get("payload") or {}
            record = orjson.dumps(
                {**whole, "payload": payload if whole["type"] == BODY else _cut_texts(payload)}
            )
        except (orjson.JSONEncodeError, TypeError) as error:
            raise LedgerError(
                f"the event {fields.get('type')!r} is not JSON ({error}): give texts, numbers, booleans, lists and objects"
            ) from None
        answer = read(record, limit=RECORD_LIMIT)
        if isinstance(answer, Rejected):
            place = f" in {answer.field}" if answer.field else ""
            raise LedgerError(
                f"the ledger would refuse the event {fields.get('type')!r}: {answer.reason}{place} ({answer.detail}); correct it and emit again"
            )
        return record


def _cut_texts(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Long texts are cut, with their full size and the word ``truncated`` (contract 6). Bodies are off by default (contract 14)."""
    result = dict(payload)
    for name, value in payload.items():
        if isinstance(value, str) and len(value) > 16 * 1024:
            result[name], size = cut(value)
            if size is not None:
                result[f"{name}_bytes"], result["truncated"] = size, True
    return result


@cache
def _key_of_process() -> bytes:
    """Where nobody gives a key: one that ends with the process. Slot values of all its streams compare, with no other process's."""
    return secrets.token_bytes(32)


def _slot_key(given: str | bytes | None) -> bytes:
    if given is None:
        return Settings().slot_key() or _key_of_process()
    key = given.encode() if isinstance(given, str) else given
    if len(key) < LEAST_KEY:
        raise LedgerError(f"redaction_key has {len(key)} bytes: give at least {LEAST_KEY}")
    return key


class Delivery:
    """Sends numbered records in their order and keeps each until the broker has it. Lives in one event loop."""

    def __init__(self, sink: Sink, key: bytes, settled: Callable[[], None]) -> None:
        self._sink = sink
        self._key = key
        self._settled = settled
        self._waiting: dict[int, bytes] = {}
        self._failed: dict[int, BaseException] = {}
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

    def submit(self, seq: int, record: bytes) -> None:
        """Take a record over; never waits."""
        self._waiting[seq] = record
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
            self._settled()
        else:
            self._failed[seq] = error
        if len(self._waiting) == len(self._failed):
            self._idle.set()


class AsyncLedger:
    """Publishes the events of one stream of a session, from async code (contract 2, design 7).

    ``sink``: ``kafka://host:port[/topic]``. ``epoch``: the start time in µs unless given, so that a restarted harness never reuses a number;
    a harness that continues its own count gives its epoch and numbers on. ``bodies``: whether this stream sends the data of ``body.recorded``, up to
    ``body_bytes`` each. ``redaction_key``: key of the digests that stand for slot values; else that of the settings, else one of this process.
    Events are numbered before they are sent, in the order of ``emit``.
    Without a durable spool (see the module): what is unconfirmed when the process dies is lost, and shows as a gap.
    """

    def __init__(self, *, session_id: str, sink: str, **stream: Any) -> None:
        self._numbering = Numbering(session_id, **stream)
        self._room = asyncio.Semaphore(MOST_WAITING)
        self._delivery = Delivery(Sink.parse(sink), self._numbering.key, self._room.release)

    @property
    def epoch(self) -> int:
        """The epoch that all events of this object carry."""
        return self._numbering.epoch

    async def start(self) -> Self:
        """Connect to the broker; ``async with`` does it by itself."""
        await self._delivery.start()
        return self

    async def emit(self, type: str, payload: Mapping[str, Any] | None = None, **correlation: Any) -> int:
        """Number an event and hand it on; its number. Waits only while 10,000 events wait for the broker.

        ``correlation``: ``turn_id`` ``model_call_id`` ``tool_call_id`` ``trace_id`` ``event_id`` ``turn_index`` ``parent_session_id``
        ``origin`` ``provenance`` ``occurred_at`` (now, unless given). Raises :class:`LedgerError` for what the ledger would refuse; no number is spent then.
        """
        await self._room.acquire()
        try:
            seq, record = self._numbering.event(type, payload, correlation)
        except BaseException:
            self._room.release()
            raise
        self._delivery.submit(seq, record)
        return seq

    async def flush(self, seconds: float = FLUSH_SECONDS) -> None:
        """Return when the broker has every event emitted so far. Raises :class:`LedgerError`; calling it again sends again."""
        await self._delivery.flush(seconds)

    async def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Flush and disconnect."""
        await self._delivery.stop(seconds)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Ledger:
    """:class:`AsyncLedger` for code without an event loop, and for many threads: one number sequence, one background thread.

    ``with Ledger(session_id="s", sink="kafka://localhost:9092") as ledger: ledger.emit("turn.started", turn_id="t1")``
    """

    def __init__(self, *, session_id: str, sink: str, **stream: Any) -> None:
        self._numbering = Numbering(session_id, **stream)
        self._lock = threading.Lock()
        self._room = threading.Semaphore(MOST_WAITING)
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="turnledger", daemon=True)
        self._thread.start()
        try:
            self._delivery = self._run(self._connect(Sink.parse(sink)))
        except BaseException:
            self._end_loop()
            raise
        atexit.register(self._close_at_exit)

    @property
    def epoch(self) -> int:
        """The epoch that all events of this object carry."""
        return self._numbering.epoch

    def emit(self, type: str, payload: Mapping[str, Any] | None = None, **correlation: Any) -> int:
        """Number an event and hand it on; its number. See :meth:`AsyncLedger.emit`."""
        self._room.acquire()
        try:
            with self._lock:  # numbering and handing on are one step: the topic's order is the numbers'
                if self._closed:
                    raise LedgerError("this Ledger is closed: open a new one, which gets a new epoch")
                seq, record = self._numbering.event(type, payload, correlation)
                self._loop.call_soon_threadsafe(self._delivery.submit, seq, record)
        except BaseException:
            self._room.release()
            raise
        return seq

    def flush(self, seconds: float = FLUSH_SECONDS) -> None:
        """Return when the broker has every event emitted so far. Raises :class:`LedgerError`; calling it again sends again."""
        if self._closed:
            raise LedgerError("this Ledger is closed: everything that could be sent was sent by close()")
        self._run(self._delivery.flush(seconds))

    def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Flush, disconnect, end the thread. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self._close_at_exit)
        try:
            self._run(self._delivery.stop(seconds))
        finally:
            self._end_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _connect(self, sink: Sink) -> Delivery:
        delivery = Delivery(sink, self._numbering.key, self._room.release)
        await delivery.start()
        return delivery

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _close_at_exit(self) -> None:
        self.close()
