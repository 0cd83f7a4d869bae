"""Owns when files are read: what is due, in two lanes, so that a large file does not stand before small ones."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping

from turnledger.ship.followed import Followed

LARGE = 4 * 1024 * 1024
"""Files above this wait for each other."""
NOTHING = 3600.0
"""Seconds until the next file is due, where none is."""


class Agenda:
    """``files``: those that are followed, by the id of their checkpoint. What is no longer among them is not read."""

    def __init__(self, files: Mapping[int, Followed], clock: Callable[[], float]) -> None:
        self._files, self._clock = files, clock
        self._due: tuple[list[tuple[float, int]], list[tuple[float, int]]] = ([], [])
        """Small files and large ones."""
        self.bell = asyncio.Event()
        """Something was put down."""

    def put(self, followed: Followed, at: float) -> None:
        """Have a file read at that time; one that is being read is read again behind that."""
        if followed.reading:
            followed.touched = True
            return
        followed.due = at
        heapq.heappush(self._due[followed.look.size > LARGE], (at, followed.checkpoint.id))
        self.bell.set()

    def take(self, *, large: bool) -> tuple[Followed | None, float]:
        """A file that is due, or how long until one is. Small files go to either lane."""
        now, wait = self._clock(), NOTHING
        for heap in (self._due[1], self._due[0]) if large else (self._due[0],):
            while heap:
                at, number = heap[0]
                followed = self._files.get(number)
                if followed is None or followed.due != at or followed.reading:
                    heapq.heappop(heap)  # it was put down anew, or is gone
                elif at > now:
                    wait = min(wait, at - now)
                    break
                else:
                    heapq.heappop(heap)
                    followed.due, followed.reading, followed.touched = None, True, False
                    return followed, 0.0
        return None, wait
