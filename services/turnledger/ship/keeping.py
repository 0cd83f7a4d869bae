"""Owns that the state is kept before anything else happens: its work is done again and again while its disk does not take it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from turnledger.ship.state import StateAway

STATE_PAUSE = 2.0
"""Seconds before a write of the state that failed is tried again."""

log = logging.getLogger("turnledger.ship")
T = TypeVar("T")


class Keeping:
    """Ends with ``stop``."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self.trouble: str | None = None
        """Why the state cannot be written now."""

    async def insist(self, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """The state's work, in a thread: what was sent must be kept before anything else is. Raises :class:`StateAway` when ship ends first."""
        while True:
            try:
                result = await asyncio.to_thread(work, *arguments, **named)
                if self.trouble is not None:
                    self.trouble = None
                    log.warning("the state can be written again")
                return result
            except StateAway as error:
                if self.trouble is None:
                    log.warning(str(error))
                self.trouble = str(error)
                if self._stop.is_set():
                    raise
                await wait(self._stop, STATE_PAUSE)


async def wait(event: asyncio.Event, seconds: float) -> bool:
    """Return when the event is set, or after so many seconds; whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
