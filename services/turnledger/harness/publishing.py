"""Owns sending many records at once: each as the bytes that came, but for what must not leave, keyed by its own envelope, counted when the broker has it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson
from aiokafka.errors import KafkaError

from turnledger.contract.redact import Redactor
from turnledger.errors import TurnledgerError
from turnledger.harness.kafka import Sink, key_of, producing, refusal, send

IN_FLIGHT = 5_000
"""Records that may wait for their confirmation; more only costs memory (1 KB each)."""


class PublishError(TurnledgerError):
    """A record that was not sent, or that the broker did not take."""


@dataclass(slots=True)
class Published:
    """What was sent."""

    records: int = 0
    bytes: int = 0
    without_key: int = 0
    """Records that name no session: sent without a key, and dead letters of the ledger (contract 15)."""
    redacted: int = 0
    """Records that held what must not leave, and went with it replaced."""
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds if self.seconds else 0.0


def record_key(raw: bytes) -> bytes | None:
    """``tenant/session_id`` of an envelope; None where the bytes are none."""
    try:
        record = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(record, dict):
        return None
    session, tenant = record.get("session_id"), record.get("tenant")
    if not isinstance(session, str) or not session or not isinstance(tenant, (str, type(None))):
        return None
    return key_of(tenant or "default", session)


async def publish(
    sink: Sink,
    records: Iterable[tuple[int, bytes]],
    *,
    redactor: Redactor,
    strict: bool = False,
    progress: Callable[[int], None] = lambda sent: None,
) -> Published:
    """Send (line number, record) in their order and return when the broker has them all. What ``redactor`` leaves alone goes as the bytes that came.

    ``progress`` is told the number of records confirmed so far. ``strict`` stops at the first record that names no session. Raises
    :class:`PublishError` with the line, and how many were sent before it; what was sent stays sent, and sending it again is harmless.
    """
    result = Published()
    began = time.monotonic()
    flying: deque[tuple[int, int, asyncio.Future[Any]]] = deque()

    async def land(most: int) -> None:
        while len(flying) > most:
            number, size, future = flying.popleft()
            try:
                await future
            except KafkaError as error:
                raise PublishError(f"line {number}: {refusal(error, sink)}; {_before(result)}") from None
            result.records += 1
            result.bytes += size
            if result.records % 1000 == 0:
                progress(result.records)

    async with producing(sink) as producer:
        for number, raw in records:
            raw, hidden = redactor.outgoing(raw)
            result.redacted += hidden > 0
            key = record_key(raw)
            if key is None:
                if strict:
                    await land(0)
                    raise PublishError(
                        f"line {number} is no envelope with a session_id; {_before(result)}: "
                        "correct it, or leave out --strict to have the ledger count it as a dead letter"
                    )
                result.without_key += 1
            try:
                flying.append((number, len(raw), await send(producer, sink, key, raw)))
            except KafkaError as error:
                raise PublishError(f"line {number}: {refusal(error, sink)}; {_before(result)}") from None
            await land(IN_FLIGHT)
        await producer.flush()
        await land(0)
    progress(result.records)
    result.seconds = time.monotonic() - began
    return result


def _before(result: Published) -> str:
    return f"{result.records:,} records before it have arrived"
