"""One ingest worker, from start to end: the app, the handler, health, signals."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import sys
import time

import structlog
from aiokafka.errors import KafkaError

from turnledger.health.server import ProbeServer
from turnledger.ingest import interpreter
from turnledger.ingest.app import IngestApp, KafkaSide, attach, build
from turnledger.ingest.health import Health
from turnledger.ingest.link import Link
from turnledger.ingest.logs import configure_logging
from turnledger.ingest.metrics import Metrics
from turnledger.ingest.round import Ingest
from turnledger.ingest.seats import BrokerAway, owner_name
from turnledger.ingest.settings import Flags, WorkerSettings
from turnledger.ingest.tether import Tether
from turnledger.ingest.transport import Budget
from turnledger.kafka.connect import why

log = structlog.get_logger("turnledger.ingest")

WATCH_SECONDS = 3.0
END_SECONDS = 20.0
"""How long the end may take before the process goes anyway (under the 30 s of invariant I9)."""
APP_END_SECONDS = 6.0
START_PAUSE_SECONDS = 1.0


class Worker:
    """A worker process. :meth:`run` returns the exit status."""

    def __init__(
        self,
        settings: WorkerSettings,
        bootstrap: str,
        database_url: str,
        flags: Flags,
        tether: Tether | None = None,
    ) -> None:
        """``tether``: to the parent, where this is one of several processes."""
        self.settings = settings
        self.tether = tether
        self.bootstrap = bootstrap
        self.metrics = Metrics()
        self.health = Health(settings.red_after_seconds)
        self.budget = Budget(settings.buffer_bytes)
        self.app: IngestApp = build(bootstrap, settings, self.budget)
        self.kafka = KafkaSide(self.app)
        self.ingest = Ingest(
            settings,
            functools.partial(Link, database_url),
            self.kafka,
            owner=owner_name(settings.instance_id),
            metrics=self.metrics,
            health=self.health,
            give_back=self.budget.give_back,
            on_doubled=self._membership_lost,
            take_over=flags.take_over,
            accept_loss=flags.accept_loss,
            resume_stopped=flags.resume_stopped,
            standby=flags.standby,
        )
        attach(self.app, self.ingest, settings)
        metrics = self.metrics
        self.server = ProbeServer(
            self.health, metrics.registry, metrics.healthy, settings.health_host, settings.health_port
        )
        self.fatal: str | None = None
        self._end = asyncio.Event()
        self.app.wiring.on_membership_lost = self._membership_lost
        self.app.wiring.on_broker_error = self._broker_error
        self._broker_error_at = 0.0

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end.set)
        await self.server.start()
        log.info(
            f"health at http://{self.settings.health_host}:{self.server.port}/healthz", port=self.server.port
        )
        if self.tether is not None:
            self.tether.report(self.server.port)
        handler = asyncio.create_task(self.ingest.run(), name="ingest")
        watch = asyncio.create_task(self._watch(), name="watch")
        starter = asyncio.create_task(self._start_app(), name="start")
        end = asyncio.create_task(self._end.wait(), name="end")
        async with interpreter.for_rounds():
            await asyncio.wait({handler, starter, end}, return_when=asyncio.FIRST_COMPLETED)
            if (
                starter.done()
                and not starter.cancelled()
                and starter.exception() is None
                and not handler.done()
            ):
                await asyncio.wait(
                    {handler, end, asyncio.ensure_future(self._app_crashed())},
                    return_when=asyncio.FIRST_COMPLETED,
                )
            return await self._finish(handler, starter, watch)

    async def _finish(
        self, handler: asyncio.Task[None], starter: asyncio.Task[None], watch: asyncio.Task[None]
    ) -> int:
        self._end.set()
        self.ingest.stop()
        done, _ = await asyncio.wait({handler}, timeout=END_SECONDS)
        watch.cancel()
        starter.cancel()
        status = 0
        if not done:
            log.warning("the last write did not end in time; it is not acknowledged and comes again")
            status = 1
        elif handler.exception() is not None:
            log.error(
                f"the worker ends on an error of its own: {handler.exception()!r}",
                exc_info=handler.exception(),
            )
            status = 1
        if starter.done() and not starter.cancelled() and starter.exception() is not None:
            self.fatal = self.fatal or str(starter.exception())
        crash = self.app.crash_reason
        if crash is not None and self.fatal is None:
            self.fatal = f"the stream processor ended on an error of its own: {crash!r}"
        with contextlib.suppress(Exception):
            async with asyncio.timeout(APP_END_SECONDS):
                await self.app.stop()
        await self.server.stop()
        if self.fatal is not None:
            log.error(self.fatal)
            status = 2
        if status == 0:
            log.info("ended; everything that was acknowledged is committed")
        return status

    async def _start_app(self) -> None:
        """Start Faust; a broker that is away is waited for."""
        while True:
            try:
                await self.app.maybe_start()
                return
            except KafkaError as error:
                log.warning(
                    f"the broker at {self.bootstrap} does not answer yet ({await why(self.bootstrap, error)}); trying again"
                )
            await asyncio.sleep(START_PAUSE_SECONDS)

    async def _app_crashed(self) -> None:
        await self.app.wait_until_stopped()

    def _membership_lost(self, error: Exception | None = None) -> None:
        self.fatal = (
            f"another worker joined group {self.settings.group_id} as {self.settings.instance_id}: two workers cannot have one "
            "--instance-id. This one ends; give each worker an id of its own."
        )
        self._end.set()

    def _broker_error(self, error: Exception) -> None:
        now = time.monotonic()
        if now - self._broker_error_at > 10:
            self._broker_error_at = now
            log.warning(f"the broker fails ({error}); fetching goes on when it answers")

    async def _watch(self) -> None:
        """Lag, and partitions that look alive and fetch nothing."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self.metrics.buffered_bytes.set(self.budget.used)
            partitions = list(self.ingest.seats)
            if partitions or self.ingest.waiting:
                try:
                    bounds = await self.kafka.bounds(partitions or self.ingest.waiting)
                except BrokerAway:
                    bounds = {}
                except Exception as error:
                    log.info(f"the broker could not be asked for the ends of its logs: {error!r}")
                    bounds = {}
                if bounds:
                    self.health.broker_seen = time.monotonic()
                for partition, bound in bounds.items():
                    self.health.end(partition, bound.end)
                    watched = self.health.partitions.get(partition)
                    if watched is not None:
                        self.metrics.lag.labels(str(partition[1])).set(watched.lag)
                await self.ingest.nudge()
            elif self.health.joined:
                self.health.broker_seen = time.monotonic()


def run_worker(
    settings: WorkerSettings, bootstrap: str, database_url: str, flags: Flags, tether: Tether | None = None
) -> int:
    """Run a worker until SIGTERM; returns the exit status. A :class:`TurnledgerError` is a sentence for the operator."""
    configure_logging(None if tether is None else tether.number)

    async def main() -> int:
        return await Worker(settings, bootstrap, database_url, flags, tether).run()

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    status = loop.run_until_complete(main())
    sys.stderr.flush()
    sys.stdout.flush()
    # Threads of the broker's client or of a database that hangs must not hold the process: everything that counts is committed.
    os._exit(status)
