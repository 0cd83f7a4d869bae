"""Owns listening to the system: what it says was written, and that it may say nothing. What is told is a hint; looking is what counts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from turnledger.ship import discovery
from turnledger.ship.keeping import wait

log = logging.getLogger("turnledger.ship")


class Hints:
    """``hear`` gets the paths at which something was written; ``look_now`` is set where only a look can tell. ``poll``: seconds between looks where the
    system does not tell."""

    def __init__(
        self,
        folders: Callable[[], Sequence[Path]],
        hear: Callable[[Iterable[Path]], Awaitable[None]],
        look_now: asyncio.Event,
        stop: asyncio.Event,
        *,
        wanted: bool,
        poll: float,
    ) -> None:
        self._folders, self._hear, self._look_now, self._stop = folders, hear, look_now, stop
        self._wanted, self._poll = wanted, poll
        self.looking: str | None = None
        """Why the system does not tell of changes."""

    @property
    def told(self) -> bool:
        """Whether the system tells of changes, so that looking is only there for what it misses."""
        return self._wanted and self.looking is None

    async def run(self) -> None:
        """Listen until ``stop``; where the system does not tell, looking alone has to do."""
        while self._wanted and not self._stop.is_set():
            there = [folder for folder in self._folders() if folder.is_dir()]
            if there:
                try:
                    await self._listen(there)
                except (OSError, RuntimeError) as error:
                    if self.looking is None and all(folder.is_dir() for folder in there):
                        self.looking = str(error)
                        log.warning(
                            "the system does not tell of changes (%s): all files are looked at every %g s; on Linux raise fs.inotify.max_user_watches",
                            error,
                            self._poll,
                        )
                    self._look_now.set()
            await wait(self._stop, self._poll)
        await self._stop.wait()

    async def _listen(self, there: Sequence[Path]) -> None:
        """Until a folder comes or goes, or ``stop``."""
        again = asyncio.Event()
        changed = asyncio.create_task(self._folders_change(there, again))
        try:
            async for paths in discovery.changes(there, again):
                self.looking = None
                await self._hear(paths)
        finally:
            changed.cancel()

    async def _folders_change(self, there: Sequence[Path], again: asyncio.Event) -> None:
        """A folder that was removed and made anew is another one, of which the system tells nothing."""
        before = [_identity(folder) for folder in there]
        while not self._stop.is_set():
            await wait(self._stop, self._poll)
            now = [folder for folder in self._folders() if folder.is_dir()]
            if now != list(there) or [_identity(folder) for folder in now] != before:
                self._look_now.set()
                break
        again.set()


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
