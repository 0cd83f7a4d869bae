"""Owns the incremental path: the state of one session that is being written, extended event by event.

It appends what provably extends the session and folds only the turns that moved; whatever it cannot prove is answered by ``fold_session`` over the
whole set. Both give the same bytes. It never looks at arrival order beyond the speed it gains from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from turnledger.contract.event import Event
from turnledger.fold.model import Row, TurnFold, UsagePart

PointKey = tuple[str, int, str, int | None, str | None]
"""(producer, epoch, stream, seq, receipt_key): the identity of a point row inside its session; one of the last two is None."""


class NeedsHistory(Exception):
    """The state let go of events of closed turns that it needs now. Not an error: read the session's whole set and call ``restore``."""


@dataclass(slots=True)
class Loose:
    """What stands outside every turn. Always whole: it replaces what was written before."""

    calls: list[Row]
    tools: list[Row]
    parts: list[UsagePart]


@dataclass(slots=True)
class SessionChanges:
    """What must be written so that the projection equals the fold of everything that was extended. None means: not moved."""

    turns: list[TurnFold] = field(default_factory=list)
    """Turns that are new or whose record or rows differ from what was last taken: delete their rows by ``turn_key``, insert these."""
    removed_turns: list[str] = field(default_factory=list)
    """Keys of turns that were taken before and are no more: delete their rows."""
    points: dict[str, list[Row]] = field(default_factory=dict)
    """New or changed rows by table (``columns.POINTS`` and ``exec_events``); each holds its ``PointKey`` fields beside its columns."""
    replaced_points: dict[str, list[PointKey]] = field(default_factory=dict)
    """Rows to delete first: those that were taken before and changed or are no more. Empty in the usual case."""
    loose: Loose | None = None
    gaps: list[Row] | None = None
    """All gaps of the session (``SessionFold.gaps``)."""
    facts: Row | None = None
    findings: list[Row] | None = None
    """All findings that no turn holds."""


class SessionState:
    """One session, being written. Not shared between threads."""

    def __init__(self, tenant: str, session_id: str) -> None:
        """A session of which nothing was ever accepted."""
        raise NotImplementedError

    @classmethod
    def from_history(
        cls, tenant: str, session_id: str, events: Iterable[Event], *, written: bool
    ) -> SessionState:
        """The state of a session from all its accepted events (cold load).

        ``written``: the projection already holds their fold (``flushed_batch`` covers them), so that only later changes are reported. Else the
        next ``take_changes`` reports everything.
        """
        raise NotImplementedError

    def extend(self, events: list[Event]) -> None:
        """Take accepted events, in arrival order. Keeps references to them and sets ``Event.running``.

        All of them are taken even where ``NeedsHistory`` is raised: call ``restore`` then and go on, never ``extend`` with them again.
        """
        raise NotImplementedError

    def restore(self, history: Iterable[Event]) -> None:
        """After ``NeedsHistory``: the session's accepted events as the ledger holds them.

        The ledger must hold every event that was extended before the last ``drop_closed``. Those that the state still has may be among them or not.
        """
        raise NotImplementedError

    def take_changes(self, include_open: bool, *, force: bool = False) -> SessionChanges:
        """What moved since the last take. Without ``include_open``, open turns and facts wait (they are taken later).

        A session that must be folded whole may wait too (``refold_due``): its changes then come with a later take; ``force`` does not wait.
        """
        raise NotImplementedError

    @property
    def has_changes(self) -> bool:
        """Something that ``take_changes(include_open=False)`` would return now: a turn that ended, a revision, new point rows, gaps."""
        raise NotImplementedError

    @property
    def has_open_changes(self) -> bool:
        """Something waits for ``take_changes(include_open=True)``."""
        raise NotImplementedError

    @property
    def refold_due(self) -> float:
        """``time.monotonic()`` before which a take that is not forced will not fold the session whole; 0.0 when none waits."""
        raise NotImplementedError

    @property
    def size_bytes(self) -> int:
        """Estimate of what the state holds, for an LRU by bytes."""
        raise NotImplementedError

    def drop_closed(self) -> None:
        """Let go of events of closed turns beyond a small budget. Call it only once everything extended so far is committed to the ledger."""
        raise NotImplementedError
