"""Owns the comparison of computed and stored rows where neither side is held whole: both pass in about one order, and each row goes when it has met the other.

What is held is what has not met yet, and eight bytes for each row that has.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from turnledger.doctor.faults import Fault
from turnledger.doctor.rows import Row, beyond, differing, doubled, lacking, place_of
from turnledger.fold.columns import Column


class Faults:
    """Faults of one session: the first of each sentence, the last of those stands for all that follow."""

    def __init__(self, shown: int) -> None:
        self._shown = shown
        self._by_what: dict[tuple[str, str], list[Fault]] = {}

    def add(self, fault: Fault) -> None:
        found = self._by_what.setdefault((fault.invariant, fault.what), [])
        if len(found) < self._shown:
            found.append(fault)
        else:
            found[-1] = replace(found[-1], faults=found[-1].faults + fault.faults)

    def __iter__(self) -> Iterator[Fault]:
        for found in self._by_what.values():
            yield from found


class Meeting:
    """The rows of one table and session."""

    def __init__(
        self,
        invariant: str,
        table: str,
        named: Mapping[str, Any],
        columns: Sequence[Column],
        key: Callable[[Row], Hashable],
        stored: Iterator[Sequence[Row]],
        shown: int,
        ahead: int,
    ) -> None:
        """``key`` is unique among the rows of each side. ``stored``: some rows at a time, of which about ``ahead`` may wait for their computed rows."""
        self.faults = Faults(shown)
        self._invariant = invariant
        self._table = table
        self._named = named
        self._columns = columns
        self._key = key
        self._more = stored
        self._ahead = ahead
        self._ended = False
        self._computed: dict[Hashable, Row] = {}
        self._stored: dict[Hashable, Row] = {}
        self._met = array("q")

    def add(self, computed: Iterable[Row]) -> None:
        """Take computed rows, and read stored ones until each has met its own or enough wait."""
        for row in computed:
            name = self._key(row)
            other = self._stored.pop(name, None)
            if other is not None:
                self._meet(name, row, other)
            elif name in self._computed:
                # Findings of turns without a number have the keys of those outside turns.
                self._fault(lacking(self._table), name)
            else:
                self._computed[name] = row
        while self._computed and not self._ended and len(self._stored) < self._ahead:
            self._read()
        if self._ended:
            self._lack()

    def end(self) -> Faults:
        """No computed row comes any more: what is wrong."""
        met: set[int] = set()
        counted = 0
        while True:
            if self._stored:
                met.update(self._met[counted:])
                counted = len(self._met)
            for name in self._stored:
                what = doubled if hash(name) in met else beyond
                self._fault(what(self._table), name)
                met.add(hash(name))
            self._stored.clear()
            if self._ended:
                break
            self._read()
        self._lack()
        return self.faults

    def _read(self) -> None:
        rows = next(self._more, None)
        if rows is None:
            self._ended = True
            return
        for row in rows:
            name = self._key(row)
            computed = self._computed.pop(name, None)
            if computed is not None:
                self._meet(name, computed, row)
            elif name in self._stored:
                self._fault(doubled(self._table), name)
            else:
                self._stored[name] = row

    def _meet(self, name: Hashable, computed: Row, stored: Row) -> None:
        self._met.append(hash(name))
        fault = differing(self._invariant, self._table, self._named, self._columns, name, computed, stored)
        if fault is not None:
            self.faults.add(fault)

    def _lack(self) -> None:
        for name in self._computed:
            self._fault(lacking(self._table), name)
        self._computed.clear()

    def _fault(self, what: str, name: Hashable) -> None:
        self.faults.add(Fault(self._invariant, what, place_of(self._named, self._table, name)))
