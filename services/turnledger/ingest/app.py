"""The Faust app of the worker: membership, rebalance, supervision; batches go to the handler (design 3.2).

Settings that look odd answer traps that were reproduced on Faust 0.15.3: ``take()`` and ``events()`` lose events when an agent raises,
the web server listens on every interface even when it is off, and the group's leader topic wants to be declared.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, cast

import faust
from aiokafka.errors import KafkaError
from faust.app.base import BootStrategy
from mode.supervisors import CrashingSupervisor

from turnledger.ingest.batch import Fetched, Partition
from turnledger.ingest.round import Ingest
from turnledger.ingest.seats import BrokerAway
from turnledger.ingest.settings import WorkerSettings
from turnledger.ingest.transport import Bounds, Budget, Consumer, PassThrough, WiredApp, Wiring
from turnledger.kafka.connect import security

log = logging.getLogger(__name__)

BROKER_SECONDS = 10.0
"""Longest wait for an answer about where a log begins and ends."""
MAX_POLL_SECONDS = 2_000_000.0
"""A database that is away for days must not make the worker leave its group: nothing polls meanwhile. (aiokafka alone looks at this.)"""
MAX_FETCH_BYTES = 1024 * 1024


class NoWeb(BootStrategy):
    """Neither web server nor producer: the worker serves its own health, and writes to Postgres alone."""

    enable_web = False
    enable_kafka_producer = False


class IngestApp(WiredApp):
    """The app class: a boot strategy that opens no port."""

    logger = WiredApp.logger
    BootStrategy = NoWeb

    async def on_first_start(self) -> None:
        """Faust would make a folder for its tables in the working directory here, which a container's user may not write to. We have no tables."""


class KafkaSide:
    """The handler's view of the broker."""

    def __init__(self, app: WiredApp) -> None:
        self.app = app

    @property
    def _consumer(self) -> Consumer:
        consumer = self.app.consumer
        assert isinstance(consumer, Consumer)
        return consumer

    async def place(self, partition: Partition, offset: int, lease: int) -> bool:
        return await self._consumer.place(partition, offset, lease)

    async def withdraw(self, partitions: Iterable[Partition]) -> None:
        await self._consumer.withdraw(partitions)

    async def bounds(self, partitions: Iterable[Partition]) -> Mapping[Partition, Bounds]:
        try:
            async with asyncio.timeout(BROKER_SECONDS):
                return await self._consumer.bounds(partitions)
        except (KafkaError, TimeoutError) as error:
            raise BrokerAway(str(error) or type(error).__name__) from None


def build(bootstrap: str, settings: WorkerSettings, budget: Budget) -> IngestApp:
    """The app over ``bootstrap`` (``host:port[,host:port…]``), with its transport wired. The agent comes with :func:`attach`."""
    session = settings.session_timeout_seconds
    context = security().get("ssl_context")
    app = IngestApp(
        settings.group_id,
        broker=[f"turnledger://{address.strip()}" for address in bootstrap.split(",")],
        broker_credentials=None if context is None else faust.SSLCredentials(context),
        autodiscover=False,
        broker_session_timeout=session,
        broker_heartbeat_interval=session / 4,
        broker_request_timeout=max(15.0, session + 5),
        broker_rebalance_timeout=max(15.0, session),
        broker_max_poll_interval=MAX_POLL_SECONDS,
        broker_max_poll_records=settings.round_events,
        broker_commit_interval=2.8,
        # Kafka's offset is advisory: that it does not move says nothing (our own health watches the row in Postgres).
        broker_commit_livelock_soft_timeout=86_400.0,
        stream_processing_timeout=86_400.0,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=MAX_FETCH_BYTES,
        consumer_group_instance_id=settings.instance_id,
        stream_buffer_maxsize=256,
        stream_wait_empty=False,
        stream_publish_on_commit=False,
        agent_supervisor=CrashingSupervisor,
        topic_allow_declare=False,
        topic_disable_leader=True,
        table_standby_replicas=0,
        web_enabled=False,
        worker_redirect_stdouts=False,
    )
    app.wiring = Wiring(budget=budget, static_member=settings.instance_id)
    return app


def attach(app: IngestApp, ingest: Ingest, settings: WorkerSettings) -> None:
    """Give the handler what the app fetches, assigns and revokes."""
    app.wiring.applied = ingest.applied
    topic = app.topic(settings.topic, schema=PassThrough(), internal=False)

    async def take(stream: Any) -> None:
        # Acknowledged by the handler after the commit. Nothing here can raise: an agent that does loses what it holds.
        async for event in stream.noack().events():
            batch: Fetched = event.value
            batch.done = event.ack
            ingest.put(batch)

    app.agent(topic, concurrency=1, name="turnledger.ingest", supervisor_strategy=CrashingSupervisor)(take)

    async def assigned(app: Any, *args: Any, **kwargs: Any) -> None:
        ingest.assign((tp.topic, tp.partition) for tp in args[0] if tp.topic == settings.topic)

    async def revoked(app: Any, *args: Any, **kwargs: Any) -> None:
        await ingest.revoke((tp.topic, tp.partition) for tp in args[0])

    app.on_partitions_assigned.connect(cast(Any, assigned), weak=False)
    app.on_partitions_revoked.connect(cast(Any, revoked), weak=False)
