"""Sends the fleet's records to Kafka at their time, in a thread of its own.

One VM goes through the publisher library, which numbers its events itself; the others number theirs, as harnesses do that keep a ledger,
and that is also the only way to send the faults.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

from turnledger.demo.fleet import Delivery
from turnledger.errors import TurnledgerError
from turnledger.harness.kafka import Sink, producing, send
from turnledger.harness.ledger import AsyncLedger

AHEAD = 2_000
"""Records on the way at most."""


class Publishing(threading.Thread):
    """``sent`` grows while it runs; :meth:`finish` waits for the last confirmation and raises what went wrong."""

    def __init__(
        self, sink: str, deliveries: Sequence[Delivery], *, pace: bool, through_library: str | None = None
    ) -> None:
        super().__init__(name="fleet", daemon=True)
        self._sink, self._deliveries, self._pace, self._library = sink, deliveries, pace, through_library
        self._error: BaseException | None = None
        self.sent = 0
        self.began = time.monotonic()
        self.seconds = 0.0

    def run(self) -> None:
        """Send everything."""
        self.began = time.monotonic()
        try:
            asyncio.run(self._publish())
        except BaseException as error:  # handed on by finish()
            self._error = error
        self.seconds = time.monotonic() - self.began

    @property
    def elapsed(self) -> float:
        """Seconds since the first record."""
        return time.monotonic() - self.began

    def finish(self) -> None:
        """Wait for the end."""
        self.join()
        self.raise_error()

    def raise_error(self) -> None:
        """Raise what ended it early."""
        if isinstance(self._error, TurnledgerError):
            raise self._error
        if self._error is not None:
            raise TurnledgerError(
                f"the fleet could not publish to {self._sink}: {self._error!r}"
            ) from self._error

    async def _publish(self) -> None:
        sink = Sink.parse(self._sink)
        flying: deque[asyncio.Future[Any]] = deque()
        async with AsyncExitStack() as open_things:
            producer = await open_things.enter_async_context(producing(sink))
            library = Library(self._sink, open_things)
            self.began = time.monotonic()
            for delivery in self._deliveries:
                if self._pace and (early := delivery.after - self.elapsed) > 0:
                    await asyncio.sleep(early)
                if (
                    delivery.kind == "event"
                    and self._library is not None
                    and await library.take(delivery, self._library)
                ):
                    self.sent += 1
                    continue
                flying.append(await send(producer, sink, delivery.key, delivery.value))
                if len(flying) > AHEAD:
                    await flying.popleft()
                self.sent += 1
            for future in flying:
                await future


class Library:
    """The streams of one VM, each a :class:`~turnledger.harness.ledger.AsyncLedger`."""

    def __init__(self, sink: str, open_things: AsyncExitStack) -> None:
        self._sink, self._open = sink, open_things
        self._ledgers: dict[str, AsyncLedger] = {}

    async def take(self, delivery: Delivery, session_id: str) -> bool:
        """Emit the event when it is that session's. Its number comes out as the plan has it: a stream is emitted in order."""
        event = delivery.envelope
        if event.pop("session_id") != session_id or "receipt_key" in event:
            return False
        stream, planned = event.pop("stream"), event.pop("seq")
        ledger = self._ledgers.get(stream)
        if ledger is None:
            ledger = AsyncLedger(session_id=session_id, sink=self._sink, stream=stream, epoch=0)
            self._ledgers[stream] = await self._open.enter_async_context(ledger)
        number = await ledger.emit(event.pop("type"), event.pop("payload"), **event)
        if number != planned:
            raise TurnledgerError(
                f"the library numbered an event of {session_id}/{stream} {number}, the plan has {planned}"
            )
        return True


def publish_at_once(
    sink: str, deliveries: Sequence[Delivery], *, on_progress: Callable[[], None]
) -> Publishing:
    """Send without waiting for the events' own times; ``on_progress`` is called while it goes on."""
    publishing = Publishing(sink, deliveries, pace=False)
    publishing.start()
    while publishing.is_alive():
        publishing.join(timeout=0.2)
        on_progress()
    publishing.raise_error()
    return publishing
