"""Time that jumps: an event loop whose clock moves only when nothing is left to do, and threads that run in turns with it.

Nothing here looks at the real clock, and at every moment exactly one thread runs: one seed gives one history.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Mapping
from typing import Any

STEP_SECONDS = 2e-6
"""What one turn of the loop takes at least: time that stood still would hide a loop that turns for ever."""
SPIN_SECONDS, SPIN_TURNS = 0.02, 5000
"""More turns than this in so many seconds, and something waits for what is there already."""


class Stuck(Exception):
    """Nothing is scheduled any more, and nobody is done."""


class Spinning(Exception):
    """Turns of the loop without end that let no time pass."""


class _Jump(selectors.BaseSelector):
    """Waits for nothing: moves the loop's clock to the next timer."""

    def __init__(self) -> None:
        self.now = 0.0
        self._since = 0.0
        self._turns = 0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("nothing is scheduled any more")
        self.now += max(STEP_SECONDS, timeout)
        self._turns += 1
        if self._turns > SPIN_TURNS:
            since, self._since, self._turns = self._since, self.now, 0
            if self.now - since < SPIN_SECONDS:
                raise Spinning(f"{SPIN_TURNS} turns of the loop in {(self.now - since) * 1000:.1f} ms")
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual seconds, from 0."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now


class Killed(BaseException):
    """The process that runs this is gone: its thread unwinds, nothing that it does has an effect."""


class Turns:
    """A thread that runs while the loop stands still, and the other way round.

    ``begin`` gives it a function; where that pauses, the future to wait for comes back, and ``go_on`` resumes it.
    """

    def __init__(self, name: str) -> None:
        self._go = threading.Lock()
        self._back = threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._work: Callable[[], Any] | None = None
        self._ended = False
        self._waits: asyncio.Future[Any] | None = None
        self._thread: threading.Thread | None = None
        self._name = name
        self.killed = False
        self.result: Any = None
        self.error: BaseException | None = None

    def begin(self, work: Callable[[], Any]) -> asyncio.Future[Any] | None:
        """Run ``work`` until it is done (None; see ``result`` and ``error``) or waits."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, name=self._name, daemon=True)
            self._thread.start()
        self._work, self.result, self.error = work, None, None
        return self.go_on()

    def go_on(self) -> asyncio.Future[Any] | None:
        self._waits = None
        self._go.release()
        self._back.acquire()
        return self._waits

    def pause(self, until: asyncio.Future[Any]) -> None:
        """Called in the thread: let the loop run until ``until`` is done. Raises :class:`Killed` when the process died meanwhile."""
        self._waits = until
        self._back.release()
        self._go.acquire()
        if self.killed:
            raise Killed

    def end(self) -> None:
        """End the thread; what it is in the middle of unwinds."""
        if self._thread is None or not self._thread.is_alive():
            return
        self.killed = self._ended = True
        while self.go_on() is not None:
            pass
        self._thread.join()

    def _main(self) -> None:
        while True:
            self._go.acquire()
            work, self._work = self._work, None
            if work is not None:
                try:
                    self.result = work()
                except BaseException as error:
                    self.error = error
            self._waits = None
            ended = self._ended
            self._back.release()
            if ended:
                return
