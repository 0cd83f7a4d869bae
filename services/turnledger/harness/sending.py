"""Owns the way from a harness through its spool: numbering into the spool, and a thread that sends what is in it to every sink, at least once.

The harness waits for nothing but the spool's write; what a sink does, or does not, happens in the thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from turnledger.harness.numbering import LedgerError, Numbering
from turnledger.harness.outlets import AnySink, HttpOutlet, Outlet, OutletAway, outlet, parse
from turnledger.harness.spool import OnFull, Spool, SpoolFull
from turnledger.settings import Settings

LINGER_SECONDS = 0.01
"""As long as the Kafka client's: enough to make batches of a busy session, short beside a model call."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0
"""Seconds between attempts at a sink that is away: doubled each time."""
LOOK_SECONDS = 30.0
"""How often a sender that has nothing to do looks for what became too old; a tenth of the age where that is less."""

log = logging.getLogger("turnledger.harness")


class Spooled:
    """One stream with its spool and its sender. Safe for threads.

    ``spool_bytes``, ``spool_age_seconds``, ``on_full``: the bounds and what happens at them, else those of the settings.
    """

    def __init__(
        self,
        numbering: Numbering,
        sink: str | Sequence[str],
        path: str | os.PathLike[str],
        *,
        epoch: int | None,
        spool_bytes: int | None = None,
        spool_age_seconds: float | None = None,
        on_full: OnFull | None = None,
    ) -> None:
        settings = Settings()
        size = settings.spool_bytes if spool_bytes is None else spool_bytes
        age = settings.spool_age_seconds if spool_age_seconds is None else spool_age_seconds
        policy = settings.spool_on_full if on_full is None else on_full
        if size <= 0 or age <= 0:
            raise LedgerError(
                f"a spool of {size} bytes for {age:g} seconds holds nothing: give bounds above 0"
            )
        if policy not in ("drop", "raise"):
            raise LedgerError(f"on_full is {policy!r}: say 'drop' or 'raise'")
        parsed = [parse(text) for text in ((sink,) if isinstance(sink, str) else sink)]
        if not parsed or len({str(each) for each in parsed}) < len(parsed):
            raise LedgerError("a Ledger needs one sink or more, and each once")
        self._numbering = numbering
        self._closed = False
        self._spool = Spool(path, sinks=[str(sink) for sink in parsed], bytes_limit=size, on_full=policy)
        try:
            self._standing = self._spool.stream(numbering.envelope, epoch=epoch)
        except BaseException:
            self._spool.close()
            raise
        numbering.continue_at(self._standing.envelope["epoch"], self._standing.next_seq)
        self._sender = Sender(self._spool, parsed, age)

    def start(self) -> None:
        """Begin to send."""
        self._sender.start()

    def emit(
        self, type: str, payload: Mapping[str, Any] | None, correlation: Mapping[str, Any]
    ) -> tuple[int, bytes]:
        """Number an event and spool it; its number and its record."""
        made: list[bytes] = []

        def records(seq: int) -> list[bytes]:
            made[:] = self._numbering.records(seq, type, payload, correlation)
            return made

        seq, position = self._spool.append(self._standing, records)
        if position:
            self._sender.wake()
        return seq, made[0]

    def flush(self, seconds: float) -> None:
        """Return when every sink has everything emitted so far. Raises :class:`LedgerError` naming the sinks that do not."""
        until = time.monotonic() + seconds
        try:
            self._spool.declare()
        except SpoolFull:  # sending makes room for it
            self._flush(seconds, until)
            self._spool.declare()
        self._flush(seconds, until)

    def _flush(self, seconds: float, until: float) -> None:
        position = self._spool.last
        self._sender.wake(now=True)
        with self._spool.confirmed:
            while behind := self._spool.behind(position):
                self._sender.check()
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._spool.confirmed.wait(left)
        if behind:
            events, _ = self._spool.waiting()
            why = "; ".join(self._sender.trouble.get(sink, f"{sink} is not done") for sink in behind)
            raise LedgerError(
                f"{events} events have not arrived within {seconds:g} s ({why}). They stay in the spool {self._spool.path} and are sent as soon as that goes, "
                "also by the next Ledger with this spool"
            )

    def close(self, seconds: float) -> None:
        """Send for at most that long, then let go. What was not sent stays in the spool, and is no error. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            with suppress(SpoolFull):  # the lock file has the numbers, the next Ledger declares them
                self._spool.declare()
            with suppress(LedgerError):
                self.flush(seconds)
        finally:
            self._sender.stop()
            self._spool.close()

    @property
    def dropped(self) -> int:
        """Events that this object dropped for want of room."""
        return self._spool.dropped

    def waiting(self) -> int:
        """Events in the spool that some sink has not confirmed."""
        return self._spool.waiting()[0]


class Sender:
    """The thread: one loop, one task a sink. Where a task waits for the disk, only the other sinks of the same spool wait with it."""

    def __init__(self, spool: Spool, sinks: Sequence[AnySink], age: float) -> None:
        self._spool, self._sinks, self._age = spool, sinks, age
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="turnledger-sender", daemon=True)
        self._bells = {str(sink): asyncio.Event() for sink in sinks}
        self._idle: set[str] = set()
        self._main: asyncio.Task[None] | None = None
        self._died: BaseException | None = None
        self._stopping = False
        """Beside the cancellation: a library may swallow that, and it may come before there is a task."""
        self.trouble: dict[str, str] = {}
        """Why a sink does not take events at this moment."""

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def wake(self, *, now: bool = False) -> None:
        """There is something to send. ``now``: try also the sinks that are away."""
        if (self._idle or now) and self._thread.is_alive():
            with suppress(RuntimeError):  # the loop ended between the question and the call
                self._loop.call_soon_threadsafe(self._ring, now)

    def check(self) -> None:
        """Raises :class:`LedgerError` when the thread has ended by an error, so that nobody waits for it."""
        if self._died is not None:
            raise LedgerError(
                f"the sender of this Ledger has ended ({self._died}): close it and open it again"
            )

    def stop(self) -> None:
        """End the thread; what it was sending comes again."""
        if self._thread.ident is None:  # never started
            self._loop.close()
            return
        if self._thread.is_alive():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join()

    def _ring(self, now: bool) -> None:
        for sink, bell in self._bells.items():
            if now or sink in self._idle:
                bell.set()

    def _cancel(self) -> None:
        self._stopping = True
        if self._main is not None:
            self._main.cancel()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._feed_all())
        except asyncio.CancelledError:
            return
        except BaseException as error:
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            log.error("the sender of the spool %s has ended: %s", self._spool.path, error)
            self._died = error
            with self._spool.confirmed:
                self._spool.confirmed.notify_all()

    async def _feed_all(self) -> None:
        self._main = asyncio.current_task()
        async with asyncio.TaskGroup() as tasks:
            for sink in self._sinks:
                tasks.create_task(self._feed(sink))

    async def _feed(self, sink: AnySink) -> None:
        pause = FIRST_PAUSE
        while not self._stopping:
            open_outlet = outlet(sink)
            try:
                await self._send(sink, open_outlet)
            except (OutletAway, SpoolFull) as error:
                if str(sink) not in self.trouble:
                    log.warning("events wait in the spool %s: %s", self._spool.path, error)
                    pause = FIRST_PAUSE
                self.trouble[str(sink)] = str(error)
            finally:
                self._spool.leave(str(sink))
                await open_outlet.close()
            self._look()
            await self._bell(str(sink), pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _send(self, sink: AnySink, to: Outlet) -> None:
        """Send until the sink is away."""
        name = str(sink)
        begins = await to.open()
        while not self._stopping:
            rows, cursor = self._spool.batch(name)
            if not rows:
                self.trouble.pop(name, None)
                await self._nothing(name)
                continue
            if cursor.offset is None and begins is not None:
                self._spool.begin(name, begins)
                cursor = cursor._replace(offset=begins)
            self._spool.sync()
            offset = await to.send(rows, cursor.offset)
            refused = to.refused() if isinstance(to, HttpOutlet) else []
            if refused:
                row, reason = refused[0]
                log.error(
                    "%s refused %d events for good, the first is number %d (%s): they are declared lost",
                    name, len(refused), row.seq, reason or "no reason given",
                )  # fmt: skip
            self._spool.confirm(name, rows[-1].position, offset, [row for row, _ in refused])
            if self.trouble.pop(name, None):
                log.warning("%s takes events again", name)
            self._spool.checkpoint()

    async def _nothing(self, name: str) -> None:
        """Wait for the next event."""
        with suppress(SpoolFull):  # it is declared when there is room
            self._spool.declare()
        self._idle.add(name)
        try:
            if not self._spool.batch(name)[0]:
                await self._bell(name, min(LOOK_SECONDS, self._age / 10))
        finally:
            self._idle.discard(name)
        self._look()
        await asyncio.sleep(LINGER_SECONDS)

    def _look(self) -> None:
        """Let go of what is too old, and say of what was dropped that it is."""
        with suppress(SpoolFull):  # the disk takes nothing now; the next look comes
            self._spool.expire(self._age)

    async def _bell(self, name: str, seconds: float) -> None:
        bell = self._bells[name]
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # wait_for may lose a cancellation that comes with the bell
                await bell.wait()
        bell.clear()
