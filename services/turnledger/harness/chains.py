"""Owns which turn a record belongs to in formats whose records name their parent: up the chain to a prompt, else the nearest prompt before it in time.

The order of lines plays no part, so shuffled lines, copies and slices give the same turns wherever they hold the same links.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator

from turnledger.contract.times import instant
from turnledger.harness.keys import Keys, Texts

NOWHERE = -1
"""A chain that leads to no prompt."""


class Chains:
    """The parent links of one file, in 33 to 41 bytes a record and the ids of its turns. What is added after a look-up is found by the next one."""

    def __init__(self) -> None:
        self._keys = Keys()
        self._up = array("i", [0])
        """By a record's number: above 0 its parent's, below 0 that of the turn which it opens; a prompt's parent does not matter."""
        self.tags = bytearray(1)
        """By a record's number: what its reader says of it."""
        self._found = array("i")
        """By a record's number: its turn's, ``NOWHERE``, or 0 where nobody asked. Empty until somebody asks."""
        self._turns = Texts()
        self._times = array("q")
        """When turns were opened, ascending."""
        self._opened = array("i")
        """The turn of each time: of several at once the one that sorts last."""

    def add(
        self, key: str, parent: str | None, *, turn: str | None = None, at: str | None = None, tag: int = 0
    ) -> int:
        """One record, or its last version; its number. ``turn`` where it opens one, and ``at`` where that counts for the records behind it."""
        up, over = self._up, 0
        if parent is not None:
            over = self._keys.add(parent)
            if over == len(up):
                up.append(0)
                self.tags.append(0)
        number = self._keys.add(key)
        if number == len(up):
            up.append(0)
            self.tags.append(0)
        up[number] = over if turn is None else -self._open(turn, at)
        self.tags[number] = tag
        if self._found:
            self._found = array("i")
        return number

    def _open(self, turn: str, at: str | None) -> int:
        number = self._turns.add(turn)
        when = instant(at) if at is not None else None
        if when is not None:
            place = bisect_right(self._times, when)
            if not place or self._times[place - 1] != when:
                self._times.insert(place, when)
                self._opened.insert(place, number)
            elif self._turns[self._opened[place - 1]] < turn:
                self._opened[place - 1] = number
        return number

    def turn_of(self, key: str, at: str | None) -> str | None:
        """The turn of a record; None where neither its links nor its time lead to a prompt of this file."""
        turn = self.linked(key)
        return turn if turn is not None else self.nearest(at)

    def nearest(self, at: str | None) -> str | None:
        """The last turn that was opened at or before a time."""
        when = instant(at) if at is not None else None
        place = bisect_right(self._times, when) if when is not None else 0
        return self._turns[self._opened[place - 1]] if place else None

    def linked(self, key: str) -> str | None:
        """The turn that the chain of a record leads to, its own first."""
        if not self._found:
            self._found = array("i", bytes(4 * len(self._up)))
            self._found[0] = NOWHERE
        number = self._keys.get(key)
        turn = self._found[number] or self._walk(number)
        return self._turns[turn] if turn > 0 else None

    def _walk(self, number: int) -> int:
        up, found = self._up, self._found
        walked = []
        while not (turn := found[number]):
            walked.append(number)
            over = up[number]
            if over < 0:
                turn = -over
                break
            found[number] = NOWHERE  # so that a circle ends where it began
            number = over
        for each in walked:
            found[each] = turn
        return turn

    def above(self, key: str) -> Iterator[int]:
        """The numbers of a record and of those above it, up to one that opens a turn."""
        number = self._keys.get(key)
        seen = set()
        while number > 0 and number not in seen:
            seen.add(number)
            yield number
            number = self._up[number]
