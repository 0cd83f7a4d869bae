"""Owns listening to the system: what it says was written, and that it may say nothing. What is told is a hint; looking is what counts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path

from turnledger.ship import discovery
from turnledger.ship.keeping import wait

LONGEST_PAUSE = 300.0
"""Seconds before the system is asked again to tell of changes: to begin costs a walk through all folders."""
MOST_MISSES = 3
"""So many looks in a row that found what nobody told of, and the system is held for one that does not tell."""

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
        self._misses = 0
        self._again = asyncio.Event()

    @property
    def told(self) -> bool:
        """Whether the system tells of changes, so that looking is only there for what it misses."""
        return self._wanted and self.looking is None

    def missed(self) -> None:
        """A look found what the system had not told of: its queue was full, or a folder is not watched. It is listened to anew; where that does not help,
        it is one that does not tell."""
        self._misses += 1
        if self._misses >= MOST_MISSES:
            self._deaf("it was silent while files were written")
        self._again.set()

    def _deaf(self, why: str) -> None:
        if self.looking is None:
            log.warning(
                "the system does not tell of changes (%s): all files are looked at every %g s; on Linux raise fs.inotify.max_user_watches",
                why,
                self._poll,
            )
        self.looking = why

    async def run(self) -> None:
        """Listen until ``stop``; where the system does not tell, looking alone has to do."""
        pause = self._poll
        while self._wanted and not self._stop.is_set():
            there = [folder for folder in self._folders() if folder.is_dir()]
            if there:
                try:
                    await self._listen(there)
                except (OSError, RuntimeError) as error:
                    if all(folder.is_dir() for folder in there):
                        self._deaf(str(error))
                    self._look_now.set()
            pause = self._poll if self.looking is None else min(2 * pause, LONGEST_PAUSE)
            await wait(self._stop, pause)
        await self._stop.wait()

    async def _listen(self, there: Sequence[Path]) -> None:
        """Until a folder comes or goes, something was missed, or ``stop``."""
        self._again = again = asyncio.Event()
        changed = asyncio.create_task(self._folders_change(there, again))
        try:
            async with aclosing(discovery.changes(there, again)) as changes:
                async for paths in changes:
                    self.looking, self._misses = None, 0
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
