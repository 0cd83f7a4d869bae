"""The sender: from rows of the outbox to records of topic ``turnledger.turns``, at least once, in order within a session, never before the commit.

It reads what is committed, waits until the broker has it, and lets go of the rows; a kill in between sends once more. One sender is at it at a time,
others stand by: two would turn a session's order around.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import Sequence

import psycopg
import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError
from aiokafka.partitioner import murmur2

from turnledger.errors import TurnledgerError
from turnledger.health.server import ProbeServer
from turnledger.kafka import connect as broker
from turnledger.kafka.connect import ANSWER_SECONDS
from turnledger.outbox.probes import Health, Metrics
from turnledger.outbox.settings import OutboxSettings
from turnledger.store import outbox
from turnledger.store.connect import away, connect
from turnledger.store.migrate import require
from turnledger.store.outbox import Connection, Waiting

log = structlog.get_logger("turnledger.outbox")

FIRST_BACK_OFF_SECONDS = 0.2
GREATEST_BACK_OFF_SECONDS = 5.0
STAND_BY_SECONDS = 2.0
WATCH_SECONDS = 2.0
LINGER_MS = 5

TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)


class BrokerAway(TurnledgerError):
    """The broker does not take what is sent."""


def key_of(turn: Waiting) -> bytes:
    """``tenant/session_id/turn_key``: compaction keeps the last revision of each turn."""
    return f"{turn.tenant}/{turn.session_id}/{turn.turn_key}".encode()


def partition_of(turn: Waiting, partitions: int) -> int:
    """By ``tenant/session_id``, as the default partitioner would: a session's turns stand in one partition, in their order."""
    return int(murmur2(f"{turn.tenant}/{turn.session_id}".encode()) & 0x7FFFFFFF) % partitions


def latest(rows: Sequence[Waiting]) -> list[Waiting]:
    """What there is to send of these rows: each turn once, where it was written last. Those that are no more are left out."""
    last = {(row.tenant, row.session_id, row.turn_key): row for row in rows}
    return sorted((row for row in last.values() if row.record is not None), key=lambda row: row.outbox_no)


class Sender:
    """One sender. :meth:`run` goes on until :meth:`stop`; ``once``: until nothing waits."""

    def __init__(self, settings: OutboxSettings, database_url: str, bootstrap: str) -> None:
        self.settings = settings
        self.database_url = database_url
        self.bootstrap = bootstrap
        self.metrics = Metrics()
        self.health = Health(settings.outbox_red_after)
        self._connection: Connection | None = None
        self._producer: AIOKafkaProducer | None = None
        self._partitions = 0
        self._holds = False
        self._stop = asyncio.Event()
        self._watched_at = 0.0

    def stop(self) -> None:
        """End after the batch at hand."""
        self._stop.set()

    async def run(self, *, once: bool = False) -> int:
        """Send; how many records were. ``once`` raises what is away as a sentence; else it is waited for."""
        pause = FIRST_BACK_OFF_SECONDS
        total = 0
        try:
            while not self._stop.is_set():
                try:
                    count = await self.tick()
                except (psycopg.Error, KafkaError, OSError, TimeoutError, TurnledgerError) as error:
                    said = await self._failed(error)
                    if once:
                        raise said from None
                    await self._wait(pause * random.uniform(0.5, 1.0))
                    pause = min(pause * 2, GREATEST_BACK_OFF_SECONDS)
                    continue
                if self.health.failing is not None:
                    log.info("what was away answers again")
                self.health.progress()
                pause = FIRST_BACK_OFF_SECONDS
                if count is None:
                    if once:
                        raise TurnledgerError("another sender of the outbox is at it: it sends what waits.")
                    await self._wait(STAND_BY_SECONDS)
                    continue
                total += count
                if not count:
                    if once:
                        break
                    await self._wait(self.settings.outbox_interval)
            return total
        finally:
            await self._close()

    async def tick(self) -> int | None:
        """Send the oldest rows and let go of them; how many rows there were. None: another sender is at it."""
        connection = await asyncio.to_thread(self._open)
        if not self._holds:
            self._holds = await asyncio.to_thread(outbox.hold, connection)
            self.metrics.active.set(self._holds)
            if not self._holds:
                return None
        rows = await asyncio.to_thread(outbox.batch, connection, self.settings.outbox_batch)
        if rows:
            await self._send(latest(rows))
            await asyncio.to_thread(outbox.sent, connection, [row.outbox_no for row in rows])
        await self._watch(connection)
        return len(rows)

    async def _send(self, turns: Sequence[Waiting]) -> None:
        if not turns:
            return
        producer = await self._started()
        asked = []
        for turn in turns:
            assert turn.record is not None and turn.digest is not None
            asked.append(
                await producer.send(
                    self.settings.outbox_topic,
                    turn.record,
                    key=key_of(turn),
                    partition=partition_of(turn, self._partitions),
                    headers=[("revision", str(turn.revision).encode()), ("digest", turn.digest.encode())],
                )
            )
        answers = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), ANSWER_SECONDS)
        for turn, answer in zip(turns, answers, strict=True):
            if isinstance(answer, TOO_LARGE):
                self.metrics.refused.inc()
                log.error(
                    f"turn {turn.turn_key} of {turn.tenant}/{turn.session_id} is larger than {self.settings.outbox_topic} takes and was not sent: "
                    "raise max.message.bytes of the topic, then `turnledger outbox on --fill`"
                )
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self.metrics.sent.inc()

    async def _watch(self, connection: Connection) -> None:
        if time.monotonic() - self._watched_at < WATCH_SECONDS:
            return
        self._watched_at = time.monotonic()
        state = await asyncio.to_thread(outbox.state, connection)
        self.health.waiting = state.rows
        self.metrics.waiting.set(state.rows)
        self.metrics.oldest.set(state.oldest_seconds)

    def _open(self) -> Connection:
        connection = self._connection
        if connection is None or connection.closed:
            require(self.database_url)
            connection = self._connection = connect(self.database_url, "outbox", autocommit=True)
            self._holds = False
        return connection

    async def _started(self) -> AIOKafkaProducer:
        producer = self._producer
        if producer is None:
            producer = broker.producer(self.bootstrap, linger_ms=LINGER_MS)
            self._partitions = await broker.started(producer, self.settings.outbox_topic)
            self._producer = producer
        return producer

    async def _failed(self, error: Exception) -> TurnledgerError:
        self.metrics.failures.inc()
        if isinstance(error, psycopg.Error):
            said: TurnledgerError = away(self.database_url, error)
        elif isinstance(error, TurnledgerError):
            said = error
        else:
            why = await broker.why(self.bootstrap, error)
            said = BrokerAway(
                f"the broker at {self.bootstrap} does not take records of {self.settings.outbox_topic} ({why}): start it, or make the topic "
                f"(`turnledger topics create --turns`)."
            )
        if self.health.failing is None:
            log.warning(f"{said} Trying again until it answers.")
        self.health.failed(str(said))
        # A sequence number may be in doubt: a new producer begins its own.
        await self._close()
        return said

    async def _close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(KafkaError, OSError, TimeoutError):
                await asyncio.wait_for(producer.stop(), ANSWER_SECONDS)
        connection, self._connection = self._connection, None
        self._holds = False
        self.metrics.active.set(0)
        if connection is not None:
            connection.close()

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)


def run_sender(settings: OutboxSettings, database_url: str, bootstrap: str, *, once: bool) -> int:
    """Run until SIGTERM or SIGINT, or ``once``: until nothing waits. Returns how many were sent; raises :class:`TurnledgerError` sentences."""

    async def main() -> int:
        sender = Sender(settings, database_url, bootstrap)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, sender.stop)
        if once:
            return await sender.run(once=True)
        server = ProbeServer(
            sender.health,
            sender.metrics.registry,
            sender.metrics.healthy,
            settings.outbox_health_host,
            settings.outbox_health_port,
        )
        await server.start()
        log.info(f"health at http://{server.host}:{server.port}/healthz", port=server.port)
        total = await sender.run()
        await server.stop()
        log.info("ended; what was sent is let go of, what waits is sent by the next one")
        return total

    return asyncio.run(main())
