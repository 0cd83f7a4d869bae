"""Fresh topics and raw records. Plain functions, usable inside and outside of an event loop."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

T = TypeVar("T")


@dataclass(frozen=True)
class Topic:
    """A topic of one test, and the consumer group that goes with it."""

    name: str
    partitions: int
    bootstrap: str
    group_id: str = field(default_factory=lambda: f"group-{secrets.token_hex(6)}")

    def environment(self) -> dict[str, str]:
        """The settings of a command that works on this topic."""
        return {
            "TURNLEDGER_KAFKA_BOOTSTRAP": self.bootstrap,
            "TURNLEDGER_TOPIC": self.name,
            "TURNLEDGER_GROUP_ID": self.group_id,
        }


@dataclass(frozen=True)
class Record:
    """One raw record. Without a partition the key decides, as producers do (murmur2)."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    """As the producer's clock has it; now, unless said."""


def create_topic(
    bootstrap: str, partitions: int = 4, *, name: str | None = None, config: dict[str, str] | None = None
) -> Topic:
    """A new topic, ready to be written to."""
    topic = Topic(name or f"test-{secrets.token_hex(6)}", partitions, bootstrap)

    async def create() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            answer = await admin.create_topics([NewTopic(topic.name, partitions, 1, topic_configs=config)])
        finally:
            await admin.close()
        assert all(code == 0 for _, code, *_ in answer.topic_errors), answer.topic_errors

    run_apart(create())
    return topic


def produce(topic: Topic, records: Iterable[Record]) -> list[tuple[int, int]]:
    """Write ``records`` in their order, idempotently; their (partition, offset)."""
    items = list(records)

    async def send() -> list[tuple[int, int]]:
        producer = AIOKafkaProducer(
            bootstrap_servers=topic.bootstrap,
            acks="all",
            enable_idempotence=True,
            compression_type="lz4",
            linger_ms=5,
            max_request_size=8 * 1024 * 1024,
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic.name, r.value, key=r.key, partition=r.partition, timestamp_ms=r.timestamp_ms
                )
                for r in items
            ]
            return [(answer.partition, answer.offset) for answer in await asyncio.gather(*sent)]
        finally:
            await producer.stop()

    return run_apart(send())


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end in a loop and a thread of its own, so that async tests may call it too."""
    answer: list[T] = []
    error: list[BaseException] = []

    def run() -> None:
        try:
            answer.append(asyncio.run(work))
        except BaseException as raised:  # handed on to the caller's thread
            error.append(raised)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if error:
        raise error[0]
    return answer[0]
