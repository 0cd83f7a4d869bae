"""Numbers for new sessions and streams, taken from the ledger's sequences a block at a time."""

from __future__ import annotations

from collections.abc import Sequence

BLOCK = 1000


class Numbers:
    """Hands numbers out without a question each. What is left at the end is never used."""

    def __init__(self) -> None:
        self.sessions: list[int] = []
        self.streams: list[int] = []
        """Taken from the end: ascending numbers keep new rows together in their indexes."""

    def lacking(self, sequence: str, count: int) -> int:
        """How many to ask for so that ``count`` are ready; 0 when they are."""
        return max(BLOCK, count) if len(self._pool(sequence)) < count else 0

    def add(self, sequence: str, numbers: Sequence[int]) -> None:
        """Numbers that the ledger gave, ascending."""
        self._pool(sequence)[:0] = reversed(numbers)

    def _pool(self, sequence: str) -> list[int]:
        return self.sessions if sequence == "sessions" else self.streams
