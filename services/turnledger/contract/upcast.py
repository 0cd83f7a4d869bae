"""Owns how events of older envelope versions are read: each is brought up, version by version, to the one that the fold knows (contract 2).

Bytes are stored as they came and never rewritten; an event is brought up each time it is read. So the fold knows one version alone, and what was
written years ago folds as it did then: the golden corpus in `tests/golden` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from turnledger.contract.event import Event
from turnledger.contract.version import ENVELOPE_VERSION

Step = Callable[[Event], None]
"""Turns an event of one version into one of the next, in place. Its payload is made anew where it changes: events may share what they were read from."""


class Chain:
    """The steps up to ``current``, by the version that each begins at."""

    __slots__ = ("current", "oldest", "steps")

    def __init__(self, current: int, steps: Mapping[int, Step]) -> None:
        """Raises ValueError where a version between the oldest step and ``current`` has none."""
        self.current = current
        self.oldest = min(steps, default=current)
        missing = sorted(set(range(self.oldest, current)) ^ set(steps))
        if missing:
            raise ValueError(f"envelope version {missing[0]} has no step towards {current}, or one too many")
        self.steps = MappingProxyType(dict(steps))

    def up(self, event: Event) -> Event:
        """The event as the current version would have said it. ``schema_version`` stays what the record says; a version below the oldest known one
        is read as that, a newer one as it stands (it is flagged: ``newer_schema_version``)."""
        for version in range(max(event.schema_version, self.oldest), self.current):
            self.steps[version](event)
        return event


CHAIN = Chain(ENVELOPE_VERSION, {})
"""Version 1 is the first there was. Who makes version 2 writes the step from 1 here, and leaves the golden corpus of version 1 as it is."""
