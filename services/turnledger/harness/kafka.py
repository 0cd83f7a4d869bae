"""Owns how records leave for Kafka: one idempotent producer, its settings and its errors as sentences. It knows no envelope beyond its key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from aiokafka import AIOKafkaProducer

from turnledger.errors import TurnledgerError
from turnledger.kafka import connect

TOPIC = "turnledger.events"
LINGER_MS = 10
"""Design 3 asks for 5 to 50: long enough to fill a batch of a busy session, short beside a model call."""
BATCH_BYTES = 256 * 1024


class KafkaAway(TurnledgerError):
    """The broker does not answer, or refused what was sent."""


@dataclass(frozen=True, slots=True)
class Sink:
    """Where events go: the broker's addresses and the topic."""

    bootstrap: str
    topic: str = TOPIC

    @classmethod
    def parse(cls, text: str) -> Sink:
        """``kafka://host:port[,host:port…][/topic]``. Raises :class:`KafkaAway` with the way out for anything else."""
        parts = urlsplit(text)
        hosts = parts.netloc.split(",")
        if parts.scheme != "kafka" or not all(_address(host) for host in hosts):
            raise KafkaAway(
                f"the sink {text!r} is no address this version sends to: it looks like kafka://host:port or kafka://host:port/topic"
            )
        return cls(parts.netloc, parts.path.strip("/") or TOPIC)

    def __str__(self) -> str:
        return f"{self.topic} at {self.bootstrap}"


def _address(host: str) -> bool:
    name, _, port = host.rpartition(":")
    return bool(name) and port.isdigit() and 0 < int(port) < 65536


def key_of(tenant: str, session_id: str) -> bytes:
    """The record key (contract 2): it decides the partition, by the default murmur2 partitioner."""
    return f"{tenant}/{session_id}".encode()


@asynccontextmanager
async def producing(sink: Sink) -> AsyncIterator[AIOKafkaProducer]:
    """A started producer: idempotent, ``acks=all``, lz4. Leaving sends what waits. Raises :class:`KafkaAway`."""
    producer = connect.producer(sink.bootstrap, linger_ms=LINGER_MS, batch_bytes=BATCH_BYTES)
    try:
        partitions = await connect.started(producer, sink.topic)
    except connect.AWAY as error:
        why = await connect.why(sink.bootstrap, error)
        raise KafkaAway(
            f"the broker at {sink.bootstrap} does not answer for {sink.topic} ({why}): start it (`turnledger dev up` runs one here), "
            "create the topic (`turnledger topics create`), or correct the address"
        ) from None
    if not partitions:
        await producer.stop()
        raise KafkaAway(f"there is no topic {sink.topic} at {sink.bootstrap}: run `turnledger topics create`")
    try:
        yield producer
    finally:
        await producer.stop()


async def send(
    producer: AIOKafkaProducer, sink: Sink, key: bytes | None, value: bytes
) -> asyncio.Future[Any]:
    """Put one record into the producer's buffer; the future is done when all in-sync replicas have it."""
    return cast("asyncio.Future[Any]", await producer.send(sink.topic, value, key=key))


def refusal(error: BaseException, sink: Sink) -> str:
    """Why a record did not arrive, as the end of a sentence."""
    return f"{sink} did not take it ({str(error) or type(error).__name__})"
