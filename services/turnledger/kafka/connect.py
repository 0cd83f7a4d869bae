"""Owns how a client of the broker is made: producers, readers of no group, an admin to ask. TLS is that of the environment, the same for all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaConnectionError, KafkaError

from turnledger.kafka import tls
from turnledger.settings import Settings

ANSWER_SECONDS = 15.0
"""How long a broker may take to answer before it is away."""
REQUEST_BYTES = 8 * 1024 * 1024
"""The client refuses nothing that the ledger might still count (contract 15 dead-letters above its own limit); the broker decides."""
AWAY = (KafkaError, OSError, TimeoutError)
"""What clients raise when the broker does not answer."""


def security() -> dict[str, Any]:
    """What each client takes for TLS, by the settings of the environment. Raises a :class:`TurnledgerError` for files that cannot be used."""
    context = tls.context_of(Settings())
    return {} if context is None else {"security_protocol": "SSL", "ssl_context": context}


def producer(bootstrap: str, *, linger_ms: int, batch_bytes: int = 16 * 1024) -> AIOKafkaProducer:
    """Idempotent, ``acks=all``, lz4, the default (murmur2) partitioner; not started."""
    return AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        enable_idempotence=True,
        compression_type="lz4",
        linger_ms=linger_ms,
        max_batch_size=batch_bytes,
        max_request_size=REQUEST_BYTES,
        **security(),
    )


async def started(made: AIOKafkaProducer, topic: str) -> int:
    """Start a producer; how many partitions its topic has, 0 where there is none. What it raises (:data:`AWAY`), it raises stopped."""
    try:
        await asyncio.wait_for(made.start(), ANSWER_SECONDS)
        return len(await asyncio.wait_for(made.partitions_for(topic), ANSWER_SECONDS))
    except BaseException:
        await made.stop()
        raise


def reader(bootstrap: str, client_id: str) -> AIOKafkaConsumer:
    """A consumer of no group: it reads where it is told to, commits nothing, and moves nobody's offset; not started."""
    return AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        client_id=client_id,
        **security(),
    )


@asynccontextmanager
async def asking(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """An admin client that answers. Raises :data:`AWAY`."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=bootstrap, request_timeout_ms=round(ANSWER_SECONDS * 1000), **security()
    )
    try:
        await asyncio.wait_for(admin.start(), ANSWER_SECONDS)
        yield admin
    finally:
        await admin.close()


async def partitions_of(bootstrap: str, topics: Collection[str]) -> dict[str, list[int]]:
    """The partitions of those of the topics that are there. Asked for by name, a broker might make the others: so all are listed first. Raises :data:`AWAY`."""
    async with asking(bootstrap) as admin:
        known = sorted(set(topics) & set(await admin.list_topics()))
        described = await admin.describe_topics(known) if known else []
    return {one["topic"]: sorted(each["partition"] for each in one["partitions"]) for one in described}


async def why(bootstrap: str, error: BaseException) -> str:
    """Why a broker is away, for the brackets of a sentence: what the client raised, or what stands in the way of TLS."""
    context = security().get("ssl_context")
    said = None if context is None else await tls.trouble(bootstrap, context)
    if said is None and isinstance(error, KafkaConnectionError):
        return "no connection"  # it names the addresses once more, as Python has them
    return said or str(error) or type(error).__name__


def quiet() -> None:
    """The client's log lines, each attempt one or two, are left out: whoever calls says what is wrong in one sentence."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
