"""A session whose events are gone, as the worker holds it (contract 12): what comes late is kept, sums and turns stay, gaps go on.

Takes the place of a ``SessionState``: it is asked for changes as any other, and answers with gaps alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from turnledger.contract.event import Event
from turnledger.fold.model import StreamKey
from turnledger.fold.state import SessionChanges, SessionState
from turnledger.fold.vacuumed import gaps_after_vacuum, kept_declarations
from turnledger.ingest.cache import StreamEntry


class VacuumedState(SessionState):
    """The state of a vacuumed session."""

    def __init__(
        self,
        tenant: str,
        session_id: str,
        kept: list[Event],
        late: list[Event],
        streams: dict[StreamKey, StreamEntry],
    ) -> None:
        """``kept``: its declarations that went, with running times; ``late``: those that came since. ``streams``: its entry's own, as they move."""
        super().__init__(tenant, session_id)
        self.kept = kept
        self.late = late
        self.streams = streams
        self.moved = True
        """What came with a batch that was never flushed may have moved gaps that are not written."""

    def extend(self, events: list[Event]) -> None:
        if events:
            self.late += kept_declarations(events)
            self.moved = True

    def restore(self, history: Iterable[Event]) -> None:
        """There is nothing that it ever lacks."""

    def take_changes(
        self, include_open: bool, *, force: bool = False, first_facts: bool = False
    ) -> SessionChanges:
        self.moved = False
        seen = {key: stream.seen for key, stream in self.streams.items() if stream.seen.hi >= 0}
        streams = [
            key for key, stream in self.streams.items() if stream.seen.hi >= 0 or stream.next_ordinal > 0
        ]
        # Never None: that its session got events marks it, so that the finding is set.
        return SessionChanges(gaps=gaps_after_vacuum(self.kept, self.late, seen, streams).rows)

    @property
    def has_changes(self) -> bool:
        return self.moved

    @property
    def has_open_changes(self) -> bool:
        return False

    @property
    def refold_due(self) -> float:
        return 0.0

    @property
    def size_bytes(self) -> int:
        return 2500 + 1500 * (len(self.kept) + len(self.late))

    def drop_closed(self) -> None:
        """It holds no turns."""
