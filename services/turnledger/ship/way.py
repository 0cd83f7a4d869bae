"""Owns the way out: one outlet for everything that is shipped, opened again after it was away. It holds no event: what did not arrive is read again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from turnledger.harness.outlets import HttpOutlet, Outlet, OutletAway, Row
from turnledger.ship.keeping import wait

FIRST_PAUSE, LONGEST_PAUSE = 0.25, 10.0
"""Seconds between attempts at a sink that is away: doubled each time."""

log = logging.getLogger("turnledger.ship")


class Way:
    """Events go one batch after another. While the sink is away nobody reads: back-pressure is that nothing is taken from a file."""

    def __init__(
        self, make: Callable[[], Outlet], stop: asyncio.Event, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make, self._stop, self._clock = make, stop, clock
        self._outlet: Outlet | None = None
        self._offset: int | None = None
        self._one = asyncio.Lock()
        self._pause = FIRST_PAUSE
        self.refused = 0
        """Events that the sink will never take, since the start."""
        self._owed = 0.0
        """Seconds to wait before the sink is tried again, whether it refused to open or to take something."""
        self.trouble: str | None = None
        """Why the sink took nothing when it was last asked; that it opens says little."""
        self.since = 0.0
        """Since when, on ``clock``."""

    async def ready(self) -> bool:
        """Return when the sink is there; False when ship ends first."""
        while not self._stop.is_set():
            async with self._one:
                if self._outlet is not None:
                    return True
                owed, self._owed = self._owed, 0.0
                if await wait(self._stop, owed):
                    break
                outlet = self._make()
                try:
                    self._offset = await outlet.open()
                    self._outlet = outlet
                    return True
                except OutletAway as error:
                    await outlet.close()
                    self._away(error)
                except BaseException:
                    await outlet.close()
                    raise
        return False

    async def send(self, rows: Sequence[Row]) -> None:
        """Return when the events are safe. Raises :class:`OutletAway`; then any of them may have arrived."""
        async with self._one:
            if self._outlet is None:
                raise OutletAway(self.trouble or "the sink is away")
            try:
                self._offset = await self._outlet.send(rows, self._offset)
            except OutletAway as error:
                outlet, self._outlet = self._outlet, None
                self._away(error)
                await outlet.close()
                raise
            refused = self._outlet.refused() if isinstance(self._outlet, HttpOutlet) else []
            if refused:
                self.refused += len(refused)
                reason = refused[0][1] or "no reason given"
                log.error(
                    "the sink refused %d events for good (%s): they are not sent again", len(refused), reason
                )
            self._pause = FIRST_PAUSE
            if self.trouble is not None:
                self.trouble = None
                log.warning("the sink takes events again")

    async def close(self) -> None:
        """Let go of the sink."""
        if self._outlet is not None:
            outlet, self._outlet = self._outlet, None
            await outlet.close()

    def _away(self, error: OutletAway) -> None:
        if self.trouble is None:
            self.since = self._clock()
            log.warning("events wait in their files: %s", error)
        self.trouble = str(error)
        self._owed, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
