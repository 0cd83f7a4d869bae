"""Owns many short texts held in few bytes: keys of which only a number matters, and texts that are said again as they were.

A file of a million records has a million ids, and 100 bytes of Python object each. Nothing is ever let go of here.
"""

from __future__ import annotations

from array import array

SLOTS = 1024
"""Of a new table, a power of two: 4 KB."""
OTHER = "\x00"
"""Before a key for its second hash."""


class Keys:
    """A number for each key, from 1 in the order in which they came. Of a key itself 128 bits are kept: 24 to 32 bytes each in all.

    The bits are two of Python's own keyed hashes: two of 100 million keys are alike with a chance of 1 in 10 to the 22nd.
    """

    __slots__ = ("_first", "_latest", "_number", "_second", "_slots")

    def __init__(self) -> None:
        self._first, self._second = array("q", [0]), array("q", [0])
        self._slots = array("I", bytes(4 * SLOTS))
        """Numbers, each in the place that its first hash says, or behind it; 0 is an empty one, as at least half of them are."""
        self._latest, self._number = "", 0

    def get(self, key: str) -> int:
        """The number of a key; 0 where it never came."""
        return self._number if key == self._latest else self._find(key)[0]

    def add(self, key: str) -> int:
        """The number of a key, a new one where it never came."""
        if key == self._latest:
            return self._number
        number, slot = self._find(key)
        if not number:
            number = self._slots[slot] = len(self._first)
            self._first.append(hash(key))
            self._second.append(hash(OTHER + key))
            self._latest, self._number = key, number
            if 2 * number >= len(self._slots):
                self._widen()
        return number

    def _find(self, key: str) -> tuple[int, int]:
        """The number of a key; 0 where it never came, and the slot where its number belongs."""
        firsts, first = self._first, hash(key)
        number = self._number + 1  # files are read in the order in which they were read before
        if number < len(firsts) and firsts[number] == first and self._second[number] == hash(OTHER + key):
            self._latest, self._number = key, number
            return number, 0
        slots = self._slots
        last = len(slots) - 1
        slot = first & last
        while number := slots[slot]:
            if firsts[number] == first and self._second[number] == hash(OTHER + key):
                self._latest, self._number = key, number
                break
            slot = (slot + 1) & last
        return number, slot

    def _widen(self) -> None:
        slots = array("I", bytes(8 * len(self._slots)))
        last = len(slots) - 1
        for number, first in enumerate(self._first):
            slot = first & last
            while slots[slot]:
                slot = (slot + 1) & last
            slots[slot] = number
        self._slots = slots


class Texts:
    """Texts by number, from 1 in the order in which they came: 8 bytes each beside their own. They hold no lone surrogate."""

    __slots__ = ("_ends", "_held", "_latest", "_number")

    def __init__(self) -> None:
        self._held = bytearray()
        self._ends = array("Q", [0])
        self._latest, self._number = "", 0

    def add(self, text: str) -> int:
        """Keep a text; its number."""
        self._held += text.encode()
        self._ends.append(len(self._held))
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> str:
        if number != self._number:
            self._latest = self._held[self._ends[number - 1] : self._ends[number]].decode()
            self._number = number
        return self._latest
