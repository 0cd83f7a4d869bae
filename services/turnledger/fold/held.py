"""Owns which turns hold which links (contract 7, rule ``link``) while a session is extended: whether appending an event can move another one.

The exact answer needs the whole set. This index answers the narrower question of the incremental path: may the membership that was found so
far stand? Where it says no, the session is folded whole.
"""

from __future__ import annotations

from typing import Any, Protocol

from turnledger.contract.event import Event
from turnledger.fold.turns import links

Link = tuple[int, str]


class Holder(Protocol):
    """A turn: ``hard`` when an event of it carries an id or an index, so that it exists before the first round of links."""

    hard: bool


class _Several:
    """Held by several turns: links nobody."""

    hard = False


class _Outside:
    """Carried outside every turn."""

    hard = False


MANY_HARD: Holder = _Several()
"""Several turns hold it by id or index, and no weaker event depends on it."""
MANY_SOFT: Holder = _Several()
"""Several turns without id and index hold it; in the first rounds nobody does."""
LOOSE: Holder = _Outside()


class Held:
    """Links that the events of one session carry, and the one turn that holds each."""

    __slots__ = ("_holders", "_outside", "_soft")

    def __init__(self) -> None:
        self._holders: dict[Link, Any] = {}
        self._soft: set[Link] = set()
        """Carried by an event without id and index."""
        self._outside: set[Link] = set()
        """Carried by an event outside every window: a change of the holder would move it."""

    def __len__(self) -> int:
        return len(self._holders)

    def hard(self, event: Event, turn: Holder) -> bool:
        """An event that belongs to ``turn`` by id or index. False: it may move others."""
        holders = self._holders
        for link in links(event):
            known = holders.get(link)
            if known is None:
                holders[link] = turn
            elif known is not turn and known is not MANY_HARD:
                if link in self._soft or known is MANY_SOFT or known is LOOSE:
                    return False
                holders[link] = MANY_HARD
        return True

    def inside(self, event: Event, turn: Holder) -> bool:
        """An event without id and index inside a window of ``turn``. False: it may belong elsewhere, or move others."""
        holders = self._holders
        for link in links(event):
            known = holders.get(link)
            if known is None:
                holders[link] = turn
                self._soft.add(link)
            elif known is turn:
                self._soft.add(link)
            elif known is MANY_HARD:
                continue
            elif known is MANY_SOFT:
                if turn.hard:
                    return False
            elif known.hard or turn.hard or known is LOOSE or link in self._outside:
                return False
            else:
                holders[link] = MANY_SOFT
                self._soft.add(link)
        return True

    def outside(self, event: Event) -> tuple[bool, Holder | None]:
        """An event without id and index outside every window: (certain, the turn that it is linked to)."""
        holders = self._holders
        found = links(event)
        turns = {
            id(known): known
            for link in found
            if (known := holders.get(link)) is not None and not _nobody(known)
        }
        if len(turns) > 1:
            return False, None
        turn: Any = next(iter(turns.values()), None)
        for link in found:
            known = holders.get(link)
            if known is None:
                holders[link] = LOOSE if turn is None else turn
            elif known is LOOSE and turn is not None:
                return False, None
            self._soft.add(link)
            self._outside.add(link)
        return True, turn

    def linked_to_hard(self, events: list[Event], soft: list[Event], turn: Holder) -> set[int]:
        """Of the events ``soft`` of one turn, those (by ``id()``) that the first rounds of links reach from its events with an id or index."""
        reached: set[Link] = set()
        for event in events:
            if event.turn_id is not None or event.turn_index is not None:
                reached.update(link for link in links(event) if self._holders.get(link) is turn)
        found: set[int] = set()
        waiting = soft
        while waiting:
            rest: list[Event] = []
            new: list[Event] = []
            for event in waiting:
                (new if any(link in reached for link in links(event)) else rest).append(event)
            if not new:
                break
            for event in new:
                found.add(id(event))
                reached.update(link for link in links(event) if self._holders.get(link) is turn)
            waiting = rest
        return found

    @property
    def size_bytes(self) -> int:
        """Estimate of what it holds."""
        return 260 * len(self._holders) + 60 * (len(self._soft) + len(self._outside))


def _nobody(known: Any) -> bool:
    return known is MANY_HARD or known is MANY_SOFT or known is LOOSE
