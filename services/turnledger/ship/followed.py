"""Owns one file as it is followed: where it stands, how it was last seen, when it is read next."""

from __future__ import annotations

from dataclasses import dataclass

from turnledger.ship.growing import Look
from turnledger.ship.state import Checkpoint

FIRST_RETRY, LONGEST_RETRY = 5.0, 300.0
"""Seconds before a file that could not be read is tried again, doubled each time; a change in it is tried at once."""


@dataclass(slots=True)
class Followed:
    """One file. Times are of the follower's clock."""

    checkpoint: Checkpoint
    look: Look
    changed_at: float
    behind_since: float | None = None
    due: float | None = None
    reading: bool = False
    touched: bool = False
    """Something was written while it was read, or the system said so where the stamp does not show it."""
    trouble: str | None = None
    retry: float = FIRST_RETRY
    rest_until: float = 0.0
    doubted: int = 0
    """Readings in a row that found another file under the path than the last look did."""

    @property
    def lag_bytes(self) -> int:
        """Bytes that are not told yet; of what is written anew as a whole, all."""
        if self.checkpoint.stamp == self.look.stamp:
            return max(self.look.size - self.checkpoint.told, 0) if self.held else 0
        grown = self.look.size - self.checkpoint.told
        return grown if grown > 0 else self.look.size

    @property
    def waits(self) -> bool:
        """Whether it has to be read once more when it has settled: something was held, only what had come was read, or more is remembered than it holds."""
        notes = self.checkpoint.notes
        return self.held or (
            not self.checkpoint.settled and bool(notes.get("partial") or notes.get("outdated"))
        )

    @property
    def held(self) -> bool:
        """Whether something waits for the file to be written to its end, or to settle."""
        return not self.checkpoint.settled and bool(self.checkpoint.notes.get("held"))
