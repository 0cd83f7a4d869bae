"""Owns which turn a record belongs to in formats whose records name their parent: up the chain to a prompt, else the nearest prompt before it in time.

The order of lines plays no part, so shuffled lines, copies and slices give the same turns wherever they hold the same links.
"""

from __future__ import annotations

from bisect import bisect_right

from turnledger.contract.times import instant


class Chains:
    """The parent links of one file."""

    def __init__(self) -> None:
        self._parents: dict[str, str | None] = {}
        self._opens: dict[str, str] = {}
        self._found: dict[str, str | None] = {}
        self._prompts: list[tuple[int, str]] = []
        self._sorted = False

    def add(self, key: str, parent: str | None, *, turn: str | None = None, at: str | None = None) -> None:
        """One record; ``turn`` where it opens one."""
        self._parents[key] = parent
        if turn is not None:
            self._opens[key] = turn
            when = instant(at) if at is not None else None
            if when is not None:
                self._prompts.append((when, turn))
                self._sorted = False

    def __contains__(self, key: object) -> bool:
        return key in self._parents

    def parent_of(self, key: str | None) -> str | None:
        """The record that this one follows."""
        return self._parents.get(key) if key is not None else None

    def turn_of(self, key: str | None, at: str | None = None) -> str | None:
        """The turn of a record; None where neither its links nor its time lead to a prompt of this file."""
        turn = self._walk(key)
        return turn if turn is not None else self.nearest(at)

    def nearest(self, at: str | None) -> str | None:
        """The last turn that was opened at or before a time."""
        when = instant(at) if at is not None else None
        if when is None:
            return None
        if not self._sorted:
            self._prompts.sort()
            self._sorted = True
        place = bisect_right(self._prompts, (when, "\U0010ffff"))
        return self._prompts[place - 1][1] if place else None

    def _walk(self, key: str | None) -> str | None:
        walked: list[str] = []
        seen: set[str] = set()
        turn: str | None = None
        while key is not None and key not in seen:
            if key in self._opens:
                turn = self._opens[key]
                break
            if key in self._found:
                turn = self._found[key]
                break
            if key not in self._parents:
                break
            seen.add(key)
            walked.append(key)
            key = self._parents[key]
        for each in walked:
            self._found[each] = turn
        return turn
