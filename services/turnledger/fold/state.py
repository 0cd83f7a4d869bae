"""Owns the incremental path: the state of one session that is being written, extended event by event.

It appends what provably extends the session and folds only the turns that moved; whatever it cannot prove is answered by ``fold_session`` over the
whole set. Both give the same bytes. Arrival order decides how fast it is, never what it says.

How it stays right: ``_extend`` answers False for every event whose place or turn it is not sure of. Then the whole set is folded, and the result is
adopted by extending an empty state with the events in their final order; where that does not lead to the very same turns, the session stays
``irregular`` and is folded whole each time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from time import monotonic

import msgspec

from turnledger.contract.event import Event
from turnledger.contract.types import EVENT_TYPES
from turnledger.fold.calls import CALL_TYPES
from turnledger.fold.context import SESSION_WIDE, TurnContext, claims
from turnledger.fold.facts import Facts, session_findings
from turnledger.fold.fields import place_key
from turnledger.fold.gaps import DECLARATIONS, GapFold, declarations, find_gaps
from turnledger.fold.held import Held
from turnledger.fold.items import (
    ITEMS_TABLE,
    RESPONSES_TABLE,
    SUBMITTED,
    Item,
    ItemKey,
    Items,
    Scope,
    Told,
    item_key,
    response_rows,
    row_scope,
    scope_of,
)
from turnledger.fold.items import TYPES as ITEM_TYPES
from turnledger.fold.model import NO_THREADS, Row, StreamKey, Threads, Turn, TurnFold, UsagePart
from turnledger.fold.order import order_key, ordered
from turnledger.fold.points import EXEC_TABLE, TYPES, Placed, Processes, point_row
from turnledger.fold.providers import is_provider
from turnledger.fold.seen import StreamSeen
from turnledger.fold.session import Whole, all_findings, fold_whole, still_open
from turnledger.fold.tools import TOOL_TYPES
from turnledger.fold.turnfold import LooseFold, advance, fold_loose, fold_turn, moves_threads, sums_session
from turnledger.fold.turns import (
    BOUNDARY,
    ID,
    INDEX,
    LINK,
    RULES,
    WINDOW,
    id_key,
    index_key,
    is_session_level,
    is_user_message,
    make_turn,
    turn_findings,
)

PointKey = tuple[str, int, str, int | None, str | None]
"""(producer, epoch, stream, seq, receipt_key): the identity of a point row inside its session; one of the last two is None."""

CLOSED_BUDGET = 64 * 1024
"""Bytes of events of closed turns that ``drop_closed`` keeps, latest first: a result right after an end needs no history."""

IRREGULAR_BUDGET = 8 * 1024 * 1024
"""Bytes up to which a session that must be folded whole keeps all its events: reading them again costs more than holding them."""

_PLAIN, _CALL, _START, _END, _MESSAGE, _EXEC, _SESSION, _STREAM, _BESIDE = range(9)
_NONE, _BOUNDED, _ENDS, _MESSAGES = range(4)


def _kind(type_: str) -> int:
    if type_.startswith("session."):
        return _SESSION
    if type_ in DECLARATIONS:
        return _STREAM
    if is_session_level(type_):
        return _BESIDE
    if type_ in CALL_TYPES:
        return _CALL
    return _ROLES.get(type_, _PLAIN)


_ROLES = {
    "turn.started": _START,
    "turn.completed": _END,
    "message.recorded": _MESSAGE,
    "process.started": _EXEC,
    "process.exited": _EXEC,
}


_KINDS = {type_: _kind(type_) for type_ in EVENT_TYPES}


_ROWS = dict.fromkeys(TYPES, False) | dict.fromkeys(ITEM_TYPES, True)
"""Types that have rows at their positions, and whether those are items of a conversation."""


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
    """New or changed rows by table (``columns.POINT_TABLES``); each holds its ``PointKey`` fields beside its columns."""
    replaced_points: dict[str, list[PointKey]] = field(default_factory=dict)
    """Rows to delete first: those that were taken before and changed or are no more, all that stand at the place. Empty in the usual case."""
    items: list[Item] = field(default_factory=list)
    """New rows of ``model_items`` beside those that stand in ``points``."""
    replaced_items: list[ItemKey] = field(default_factory=list)
    """The same of ``model_items``, where an event may have several rows."""
    loose: Loose | None = None
    gaps: list[Row] | None = None
    """All gaps of the session (``SessionFold.gaps``)."""
    facts: Row | None = None
    findings: list[Row] | None = None
    """All findings that no turn holds."""


class _Lane:
    """A (producer, stream) over its epochs."""

    __slots__ = ("epoch", "numbered", "running", "starts", "unended", "untimed")

    def __init__(self) -> None:
        self.epoch = -1
        self.running: int | None = None
        self.untimed = False
        """It has numbered events and no known time: the first one to come will move them all."""
        self.unended: dict[str, _Turn] = {}
        """Turns that started here, have no end and are not abandoned."""
        self.numbered = False
        """Turns start here by events with a number."""
        self.starts: list[tuple[bytes, str]] = []
        """(place, ``turn_key``) of starts without a number, ascending: those come in any order of their places."""


class _Stream:
    """A (producer, epoch, stream)."""

    __slots__ = (
        "dropped_hi",
        "epoch",
        "floating",
        "key",
        "lane",
        "last",
        "mode",
        "name",
        "numbered",
        "open",
        "outside",
        "producer",
        "received",
        "seen",
        "superseded",
        "watched",
    )

    def __init__(self, key: StreamKey, lane: _Lane) -> None:
        self.key = key
        self.producer, self.epoch, self.name = key
        self.lane = lane
        self.last = -1
        self.seen = StreamSeen()
        """Up to date only after ``seen.reach(last)``."""
        self.mode = _NONE
        self.open: _Turn | None = None
        self.outside = 0
        """Events without id and index outside every window since the last boundary."""
        self.numbered = False
        self.received = False
        """Boundaries came with numbers, and without; with both nothing is certain."""
        self.floating = False
        """An event without number, id and index came: a window that opens later may stand before it."""
        self.superseded = False
        self.watched = False
        """Something was declared about it: every number may move its gaps."""
        self.dropped_hi = -1
        """Greatest number of an event that was let go of."""


_UNTIMED = b"\xff" * 8
"""How the place of an event without a running time begins."""
_OPEN = b"\xff" * 9
"""After every place."""


class _Turn:
    """A turn whose events are held."""

    __slots__ = (
        "abandoned",
        "abandoned_key",
        "after",
        "before",
        "completed",
        "completed_key",
        "dirty",
        "due",
        "events",
        "floats",
        "hard",
        "key",
        "last_stream",
        "linked",
        "serial",
        "size",
        "soft",
        "start_lane",
        "started",
        "started_in",
        "started_key",
        "started_really",
        "turn_id",
        "unsorted",
        "weakest",
    )

    def __init__(self, key: str, turn_id: str | None, hard: bool, serial: int) -> None:
        self.key = key
        self.turn_id = turn_id
        self.hard = hard
        self.serial = serial
        self.events: list[Event] = []
        self.last_stream: _Stream | None = None
        self.unsorted = False
        self.started: Event | None = None
        self.started_key = b""
        self.started_really = False
        """By a ``turn.started``, not by a user message."""
        self.start_lane: _Lane | None = None
        self.started_in: list[_Stream] = []
        self.completed: Event | None = None
        self.completed_key = b""
        self.abandoned = False
        self.abandoned_key = b""
        """Place of what abandoned it."""
        self.floats: list[Event] = []
        """Events of other streams that stand between its start and its end, in order; not among ``events``."""
        self.weakest = ID
        self.soft = False
        """An event of it carries neither id nor index."""
        self.linked: set[int] = set()
        """Of those, the ones outside every window, by ``id()``: only a link brought them here."""
        self.dirty = False
        self.due = 0.0
        """``time.monotonic()`` before which it is not folded while it is open."""
        self.size = 0
        self.before: Threads | None = None
        self.after: Threads = NO_THREADS

    @property
    def ended(self) -> bool:
        return self.abandoned or self.completed is not None

    def all(self) -> list[Event]:
        """Its events in order."""
        self.sort()
        if not self.floats:
            return list(self.events)
        return sorted([*self.events, *self.floats], key=order_key)

    def span(self) -> tuple[bytes, bytes] | None:
        """The places between which events of other streams are its own (contract 7, ``window``); None without a start that has a time."""
        if self.started is None or self.started.running is None:
            return None
        end = _OPEN
        if self.completed is not None:
            end = self.completed_key
        elif self.abandoned:
            end = self.abandoned_key
        if end is not _OPEN and (end < self.started_key or end.startswith(_UNTIMED)):
            return None
        return self.started_key, end

    def sort(self) -> None:
        if self.unsorted:
            self.events.sort(key=order_key)
            self.unsorted = False
            self.last_stream = None

    def place(self) -> bytes:
        """Where it stands among the turns of its session."""
        if self.started is not None:
            return self.started_key
        self.sort()
        return order_key(self.events[0])


class _Oracle:
    """What the whole fold said, while its result is adopted: the answers that events alone do not give before their successors are known."""

    __slots__ = ("_owners", "_rules")

    def __init__(self, whole: Whole) -> None:
        members = whole.membership
        self._owners = {id(event): key for event, key in zip(whole.events, members.owners, strict=True)}
        self._rules = {id(event): rule for event, rule in zip(whole.events, members.rules, strict=True)}

    def window(self, event: Event) -> str | None:
        """The turn whose boundaries enclose an event."""
        return self._owners[id(event)] if self._rules[id(event)] == BOUNDARY else None


class SessionState:
    """One session, being written. Not shared between threads."""

    def __init__(self, tenant: str, session_id: str) -> None:
        """A session of which nothing was ever accepted."""
        self.tenant = tenant
        self.session_id = session_id
        self._start_empty()
        # What was taken.
        self._taken: dict[str, int] = {}
        """Fingerprints of turns by key."""
        self._exec_taken: dict[PointKey, int] = {}
        self._items_taken = Told()
        self._loose_taken = 0
        self._gaps_taken: list[Row] | None = []
        """None: gaps may be stored that are none any more, so all are reported, also where there are none."""
        self._facts_taken: Row | None = None
        self._findings_taken: list[Row] = []
        # What waits to be taken.
        self._ready: dict[str, tuple[TurnFold, int]] = {}
        """Turns that a whole fold changed."""
        self._removed: list[str] = []
        self._new_points: list[Event] = []
        self._point_rows: dict[str, list[Row]] = {}
        self._exec_rows: dict[PointKey, Row] = {}
        self._points_gone: dict[str, list[PointKey]] = {}
        self._new_items: list[Event] = []
        """Events of ``ITEM_TYPES`` whose rows wait, like facts, for the next take: no round is written for their sake."""
        self._item_rows: dict[ItemKey, Row] = {}
        """Of a whole fold."""
        self._item_news: dict[ItemKey, Item] = {}
        self._items_gone: list[ItemKey] = []
        self._moved = False
        """Facts, findings or loose rows may differ from what was taken."""
        # The whole fold.
        self._pending: list[Event] = []
        """Events that could not be appended: a whole fold is due."""
        self._stale = False
        self._irregular = False
        self._due = 0.0
        self._scopes_go_on = False
        """Turns go on what was said in earlier ones: nothing that was said is let go of."""

    def _start_empty(self) -> None:
        """Forget all that is known of events; keep what was taken and what waits."""
        self._kept: list[Event] | None = None
        """All events of an irregular session (superseded streams left out)."""
        self._left_out: list[Event] = []
        self._session_events: list[Event] = []
        self._loose: list[Event] = []
        self._lanes: dict[tuple[str, str], _Lane] = {}
        self._streams: dict[StreamKey, _Stream] = {}
        self._latest: _Stream | None = None
        self._turns: dict[str, _Turn] = {}
        self._by_id: dict[str, _Turn] = {}
        self._closed: dict[str, _Turn] = {}
        """Turns that have ended and are still held, the latest touched last."""
        self._gone: set[str] = set()
        """Keys of turns with an id or index whose events were let go of."""
        self._dropped = False
        self._base = NO_THREADS
        self._base_place = b""
        """The running usage values after the turns that were let go of, and the greatest place of those."""
        self._serial = 0
        self._dirty_open: dict[str, _Turn] = {}
        self._dirty_ended: dict[str, _Turn] = {}
        self._id_of_index: dict[int, str | None] = {}
        """The id that carries an index; None: several do."""
        self._index_alone: set[int] = set()
        """Indexes that events without an id carry."""
        self._any_hard = False
        self._any_soft = False
        self._held: Held | None = None
        self._claims: dict[int, int] = {}
        self._threads_used = False
        self._ends: list[bytes] = []
        """Places of ``session.ended``, ascending."""
        self._floats: list[tuple[bytes, Event, int]] = []
        """(place, event, bytes): events of streams without boundaries that nothing but their place brings into a turn."""
        self._float_loose: list[Event] = []
        """Those that no turn has."""
        self._float_dirty = False
        self._float_late = False
        """One may stand inside a turn that has ended."""
        self._span_last = b""
        """Greatest end of a turn when they were last placed."""
        self._float_gone = b""
        """Greatest place of one that was let go of: before it no start or end may move any more."""
        self._span_gone = b""
        """Greatest end of a turn that was let go of."""
        self._facts = Facts()
        self._told: list[tuple[bytes, Event]] = []
        self._superseded: set[StreamKey] = set()
        self._gaps = GapFold([], {}, False, [])
        self._gaps_dirty = False
        self._session_findings: list[Placed] = []
        self._point_findings: list[Placed] = []
        self._processes = Processes()
        self._items = Items()
        self._exec_stream: dict[tuple[str, int], StreamKey] = {}
        self._provisional = False
        """Events stand outside every turn only because there is none yet."""
        self._loose_fold = LooseFold()
        self._loose_called = False
        """Whether the session had a model call when the loose events were folded."""
        self._loose_dirty = False
        self._whole_findings: list[Row] = []
        self._size = 0

    @classmethod
    def from_history(
        cls, tenant: str, session_id: str, events: Iterable[Event], *, written: bool
    ) -> SessionState:
        """The state of a session from all its accepted events (cold load).

        ``written``: the projection already holds their fold (``flushed_batch`` covers them), so that only later changes are reported. Else the
        next ``take_changes`` reports everything.
        """
        state = cls(tenant, session_id)
        state._pending = list(events)
        if not written:
            state._new_points = [event for event in state._pending if event.type in TYPES]
            state._new_items = [event for event in state._pending if event.type in ITEM_TYPES]
            state._gaps_taken = None
        state._stale = True
        state._fold_whole(written)
        if written:
            state.drop_closed()
        return state

    def extend(self, events: list[Event]) -> None:
        """Take accepted events, in arrival order. Keeps references to them and sets ``Event.running``.

        All of them are taken even where ``NeedsHistory`` is raised: call ``restore`` then and go on, never ``extend`` with them again.
        """
        if not events:
            return
        self._moved = True
        rows_of = _ROWS.get
        for event in events:
            rows = rows_of(event.type)
            if rows is not None:
                (self._new_items if rows else self._new_points).append(event)
        if not self._stale:
            if not self._irregular:
                place = self._append(events)
                if place < len(events):
                    self._stale = True
                    self._pending = events[place:]
                else:
                    self._count(events)
            else:
                self._stale = True
                self._pending = list(events)
        else:
            self._pending += events
        if self._stale and self._dropped:
            raise NeedsHistory

    def restore(self, history: Iterable[Event]) -> None:
        """After ``NeedsHistory``: the session's accepted events as the ledger holds them.

        The ledger must hold every event that was extended before the last ``drop_closed``. Those that the state still has may be among them or not.
        """
        known = {_identity(event): event for event in history}
        known.update((_identity(event), event) for event in self._all())
        if self._items.gone:
            self._tell_items_again(known.values())
        left_out = self._superseded
        self._start_empty()
        self._superseded = left_out  # their rows are gone: only what joins them has rows to take back
        self._pending = list(known.values())
        self._stale = True

    def take_changes(
        self, include_open: bool, *, force: bool = False, first_facts: bool = False
    ) -> SessionChanges:
        """What moved since the last take. Without ``include_open``, open turns, facts and findings wait (they are taken later); with ``first_facts``
        they come with a session's first turns all the same: many a session has one turn, and is done with then.

        A session that must be folded whole may wait too (``refold_due``): its changes then come with a later take; ``force`` does not wait.
        ``NeedsHistory`` as from ``extend``: nothing was taken then.
        """
        changes = SessionChanges()
        if not self._stale and self._new_items and not self._add_items():
            self._stale = True
        if self._stale:
            if self._dropped:
                raise NeedsHistory
            if not force and monotonic() < self._due:
                return changes
            self._fold_whole(False)
        else:
            if self._float_dirty and (include_open or self._dirty_ended or self._float_late):
                self._place_floats()
            if self._gaps_dirty:
                self._find_gaps()
        if not self._irregular:
            self._fold_turns(include_open, force, changes)
        self._take_ready(include_open, changes)
        self._take_points(changes)
        if self._gaps.rows != self._gaps_taken:
            changes.gaps = self._gaps_taken = self._gaps.rows
        if self._moved and (include_open or (first_facts and changes.turns and self._facts_taken is None)):
            self._take_rest(changes)
        return changes

    @property
    def has_changes(self) -> bool:
        """Something that must not wait: a turn that ended, a revision, gaps. Rows of events wait for the end of their turn, or for open turns."""
        if self._stale:
            return monotonic() >= self._due
        return bool(
            self._dirty_ended
            or self._float_late
            or self._gaps_dirty
            or self._removed
            or (self._ready and any(fold.turn.status != "open" for fold, _ in self._ready.values()))
        )

    @property
    def has_open_changes(self) -> bool:
        """Something waits for ``take_changes(include_open=True)``."""
        return (
            self._stale
            or self._moved
            or bool(
                self._dirty_open
                or self._ready
                or self._new_points
                or self._point_rows
                or self._exec_rows
                or self._points_gone
            )
        )

    @property
    def refold_due(self) -> float:
        """``time.monotonic()`` before which a take that is not forced will not fold the session whole; 0.0 when none waits."""
        return self._due if self._stale else 0.0

    @property
    def size_bytes(self) -> int:
        """Estimate of what the state holds, for an LRU by bytes."""
        size = (
            2500 + self._size + 150 * len(self._taken) + 100 * len(self._claims) + 200 * len(self._exec_taken)
        )
        size += self._items.size_bytes + self._items_taken.size_bytes
        if self._held is not None:
            size += self._held.size_bytes
        return size + 900 * len(self._streams) + 700 * len(self._turns) + 100 * len(self._gone)

    @property
    def let_go(self) -> bool:
        """Something was let go of: what was taken of events before can change no more without ``NeedsHistory``, an open process apart."""
        return self._dropped

    def holds(self, turn_key: str) -> bool:
        """Whether a turn that was taken may be taken again in another form. One that was let go of may not without ``NeedsHistory``."""
        if self._stale:
            return True
        if self._kept is not None:
            return not self._dropped
        return turn_key in self._turns

    def drop_closed(self) -> None:
        """Let go of events of closed turns beyond a small budget. Call it only once everything extended so far is committed to the ledger."""
        if self._stale:
            return
        if self._kept is not None:
            if self._size > IRREGULAR_BUDGET and not self._ready and not self._moved:
                self._kept = []
                self._left_out = []
                self._size = 0
                self._dropped = True
            return
        left = CLOSED_BUDGET
        if self._float_dirty:
            self._place_floats()
        # A turn may have ended and still be the window that a stream's next event falls into.
        windows = {id(stream.open) for stream in self._streams.values()}
        doomed: list[_Turn] = []
        for turn in reversed(self._closed.values()):
            left -= turn.size
            if left < 0 and not turn.dirty and id(turn) not in windows:
                doomed.append(turn)
        if doomed and self._threads_used:
            doomed = self._leading(doomed)
        for turn in doomed:
            self._let_go(turn)
        floats = {id(event) for turn in doomed for event in turn.floats}
        if floats:
            self._forget_floats(floats)
        self._settle_floats(doomed)
        if doomed:
            self._dropped = True
            self._forget_items(doomed)
        self._drop_loose()
        if self._dropped:
            self._session_events = []
            self._left_out = []
            self._size = sum(turn.size for turn in self._turns.values()) + sum(map(_weigh, self._loose))
            self._size += sum(weight for _, _, weight in self._floats)

    def _forget_items(self, doomed: list[_Turn]) -> None:
        """Let go of what was said in the scopes of these turns alone: whoever says more there needs the history."""
        if self._scopes_go_on or self._item_news or self._item_rows:
            return
        going = _scopes(event for turn in doomed for event in turn.events + turn.floats)
        going.discard(None)
        if not going:
            return
        going -= _scopes(self._new_items)
        going -= _scopes(self._loose)
        going -= _scopes(event for _, event, _ in self._floats)
        going -= _scopes(event for turn in self._turns.values() for event in turn.events)
        self._items.forget(going)
        self._items_taken.forget(going)

    def _tell_items_again(self, events: Iterable[Event]) -> None:
        """Which rows were written in scopes that were let go of, from all ``events``: those that were appended say it, in their order."""
        pending = {_identity(event) for event in self._pending}
        untold = {_identity(event) for event in self._new_items}
        appended = [
            event for event in events if not self._is_superseded(event) and _identity(event) not in pending
        ]
        items = Items()
        for event in ordered(appended):
            if (
                event.type in ITEM_TYPES
                and event.type != SUBMITTED
                and scope_of(event) in self._items.gone
                and _identity(event) not in untold
            ):
                for item in items.add(event) or ():
                    self._items_taken.tell(item.scope, item.key, item.index)

    def _settle_floats(self, doomed: list[_Turn]) -> None:
        """What stands between the start and the end of a turn that is let go of, and is not its own, stands there in another one too.

        It stays outside every turn: nobody will know that turn when it is placed again.
        """
        if not self._float_loose:
            return
        loose = {id(event) for event in self._float_loose}
        spans = sorted(span for turn in doomed if (span := turn.span()) is not None)
        settled: set[int] = set()
        following, reach = 0, b""
        for place, event, _ in self._floats:
            while following < len(spans) and spans[following][0] < place:
                reach = max(reach, spans[following][1])
                following += 1
            if place < reach and id(event) in loose:
                settled.add(id(event))
                self._loose.append(event)
        if settled:
            self._forget_floats(settled)

    def _drop_loose(self) -> None:
        """Let go of events outside every turn that ``fold_loose`` does not look at, the oldest first."""
        free = [event for event in self._loose if not _matters_outside(event)]
        if sum(map(_weigh, free)) > CLOSED_BUDGET:
            self._loose = [event for event in self._loose if _matters_outside(event)]
            self._dropped = True
        if not self._float_loose:
            return
        loose = {id(event) for event in self._float_loose if not _matters_outside(event)}
        left = CLOSED_BUDGET
        for place, event, weight in reversed(self._floats):
            if id(event) in loose:
                left -= weight
                if left < 0:
                    self._forget_floats(loose & {id(one[1]) for one in self._floats if one[0] <= place})
                    self._dropped = True
                    return

    def _forget_floats(self, gone: set[int]) -> None:
        for place, event, _ in self._floats:
            if id(event) in gone and place > self._float_gone:
                self._float_gone = place
        self._floats = [one for one in self._floats if id(one[1]) not in gone]
        self._float_loose = [event for event in self._float_loose if id(event) not in gone]

    def _leading(self, doomed: list[_Turn]) -> list[_Turn]:
        """Those that no held turn precedes: the usage values after them are the ones to go on from.

        Not where a turn before them has moved since they were folded: then those values wait to be found anew.
        """
        going = {turn.key for turn in doomed}
        leading: list[_Turn] = []
        threads = self._base
        for turn in sorted(self._turns.values(), key=_Turn.place):
            if turn.key not in going or turn.before != threads:
                break
            leading.append(turn)
            threads = turn.after
        return leading

    def _let_go(self, turn: _Turn) -> None:
        self._base = turn.after
        self._base_place = max(self._base_place, turn.place())
        span = turn.span()
        if span is not None:
            self._span_gone = max(self._span_gone, span[1])
        for event in turn.all():
            if event.seq is not None:
                stream = self._streams[(event.producer, event.epoch, event.stream)]
                stream.dropped_hi = max(stream.dropped_hi, event.seq)
        del self._turns[turn.key]
        self._closed.pop(turn.key, None)
        if turn.turn_id is not None:
            self._by_id.pop(turn.turn_id, None)
        self._gone.add(turn.key)

    def _count(self, events: list[Event]) -> None:
        if self._superseded:
            events = [
                event
                for event in events
                if (event.producer, event.epoch, event.stream) not in self._superseded
            ]
        self._facts.add(events)

    # ---- one event -------------------------------------------------------------------------------------------------------------

    def _append(self, events: list[Event]) -> int:
        """Append events in the order of arrival; how many were, all of them or those before the first that ``_extend`` refuses.

        The usual event is the next number of the stream that came last, names a turn that is held and open, and neither starts nor ends
        anything: then all that ``_extend`` does is here, and it finds nothing to refuse.
        """
        extend = self._extend
        kinds = _KINDS
        by_id = self._by_id
        size = 0
        for place, event in enumerate(events):
            stream = self._latest
            kind = kinds.get(event.type)
            if (
                kind is not None
                and stream is not None
                and (kind <= _CALL or (kind == _MESSAGE and _NONE < stream.mode < _MESSAGES))
                and event.seq == stream.last + 1
                and event.stream == stream.name
                and event.producer == stream.producer
                and event.epoch == stream.epoch
                and event.turn_index is None
                and not self._any_soft
                and self._held is None
                and not stream.watched
                and not stream.superseded
            ):
                turn = by_id.get(event.turn_id)  # type: ignore[arg-type]  # None is no key of it
                at, lane = event.at, stream.lane
                running = lane.running
                if (
                    turn is not None
                    and turn.last_stream is stream
                    and turn.completed is None
                    and not turn.abandoned
                    and at is not None
                    and running is not None
                    and stream.last >= 0
                    and lane.epoch == stream.epoch
                    and (kind != _CALL or self._call(event, turn.serial))
                ):
                    if at > running:
                        lane.running = running = at
                    event.running = running
                    stream.last += 1
                    turn.events.append(event)
                    length = event.length
                    weight = _BASE_WEIGHT + 3 * length // 2 if 0 < length <= _SHORT else _weigh(event)
                    turn.size += weight
                    size += weight
                    if not turn.dirty:
                        turn.dirty = True
                        self._dirty_open[turn.key] = turn
                    continue
            if not extend(event, None):
                self._size += size
                return place
        self._size += size
        return len(events)

    def _extend(self, event: Event, oracle: _Oracle | None) -> bool:
        """Append one event. False: it is not sure that the session's fold is then what this state says; nothing was appended."""
        stream = self._latest
        if (
            stream is None
            or event.stream != stream.name
            or event.producer != stream.producer
            or event.epoch != stream.epoch
        ):
            stream = self._streams.get((event.producer, event.epoch, event.stream))
            if stream is None:
                stream = self._new_stream(event)
            self._latest = stream
        if stream.superseded:
            if event.type == "stream.superseded":
                return False
            self._left_out.append(event)
            self._size += _weigh(event)
            return True
        seq = event.seq
        if seq is not None:
            lane = stream.lane
            last = stream.last
            if seq <= last or stream.epoch < lane.epoch:
                return False
            if oracle is not None:
                lane.running = event.running
                lane.untimed = event.running is None
            else:
                running = lane.running
                at = event.at
                if at is None:
                    if running is None:
                        lane.untimed = True
                elif running is None:
                    if lane.untimed:
                        return False
                    lane.running = running = at
                elif at > running:
                    lane.running = running = at
                event.running = running
            lane.epoch = stream.epoch
            if last < 0:
                self._gaps_dirty = True  # it is dense from its first number on
            if seq != last + 1:
                stream.seen.reach(last)
                stream.seen.add(seq)
                self._gaps_dirty = True
            stream.last = seq
            if stream.watched:
                self._gaps_dirty = True
        else:
            event.running = event.at
        kind = _KINDS.get(event.type)
        if kind is None:
            kind = _kind(event.type)
        if kind >= _EXEC:
            if kind != _EXEC:
                return self._session_level(event, kind, oracle)
            if not self._exec_in_order(event):
                return False

        turn: _Turn | None
        turn_id = event.turn_id
        if turn_id is not None or event.turn_index is not None:
            turn = self._by_id.get(turn_id) if event.turn_index is None and turn_id is not None else None
            if turn is None:
                turn = self._named_turn(event)
                if turn is None:
                    return False
            if self._held is not None:
                if not self._held.hard(event, turn):
                    return False
            elif self._any_soft and not (
                self._track() and self._held is not None and self._held.hard(event, turn)
            ):
                return False
            self._any_hard = True
            if kind <= _CALL:
                pass
            elif kind == _START:
                if not self._start(event, turn, stream, True):
                    return False
            elif kind == _END:
                if not self._end(event, turn, stream, oracle):
                    return False
            elif (
                kind == _MESSAGE
                and (stream.mode == _NONE or stream.mode == _MESSAGES)
                and is_user_message(event)
                and not self._start(event, turn, stream, False)
            ):
                return False
        else:
            if self._any_hard and self._held is None and not self._track():
                return False
            self._any_soft = True
            if stream.received or (
                seq is None and (stream.mode != _NONE or kind in (_START, _END, _MESSAGE))
            ):
                return False
            certain, turn = self._unnamed(event, stream, kind, oracle)
            if not certain:
                return False
            if turn is None:
                return self._outside(event, stream, kind)
            turn.soft = True

        if kind == _CALL:
            if not self._call(event, turn.serial):
                return False
        elif kind == _START and "provider_thread" in event.payload:
            self._threads_used = True
        events = turn.events
        if stream is not turn.last_stream or seq is None:
            if events and not turn.unsorted:
                before, now = events[-1].running, event.running
                if before is None or now is None or now <= before:
                    turn.unsorted = True
            turn.last_stream = stream if seq is not None else None
        events.append(event)
        length = event.length
        weight = _BASE_WEIGHT + 3 * length // 2 if 0 < length <= _SHORT else _weigh(event)
        turn.size += weight
        self._size += weight
        if not turn.dirty:
            turn.dirty = True
            (self._dirty_ended if turn.ended else self._dirty_open)[turn.key] = turn
        if turn.abandoned or turn.completed is not None:
            closed = self._closed
            closed.pop(turn.key, None)
            closed[turn.key] = turn
        return True

    def _new_stream(self, event: Event) -> _Stream:
        key = (event.producer, event.epoch, event.stream)
        lane = self._lanes.get((event.producer, event.stream))
        if lane is None:
            lane = self._lanes[(event.producer, event.stream)] = _Lane()
        stream = self._streams[key] = _Stream(key, lane)
        stream.superseded = key in self._superseded
        self._gaps_dirty = True
        return stream

    def _session_level(self, event: Event, kind: int, oracle: _Oracle | None) -> bool:
        if event.type == "stream.superseded" and oracle is None:
            return False
        if event.type == "session.ended" and order_key(event) < self._float_gone:
            return False
        self._session_events.append(event)
        self._size += _weigh(event)
        if kind == _STREAM:
            self._told.append((order_key(event), event))
            self._gaps_dirty = True
        elif kind == _SESSION:
            self._session_findings += [(order_key(event), finding) for finding in session_findings(event)]
            self._loose_dirty = True
            if event.type == "session.ended":
                self._end_session(order_key(event))
        return True

    def _end_session(self, key: bytes) -> None:
        insort(self._ends, key)
        for lane in self._lanes.values():
            if lane.unended:
                for turn in [turn for turn in lane.unended.values() if turn.started_key < key]:
                    self._abandon(turn, key)
        for turn in self._turns.values():
            if turn.abandoned and turn.started_key < key < turn.abandoned_key:
                turn.abandoned_key = key
        self._float_dirty = True

    def _exec_in_order(self, event: Event) -> bool:
        """Starts and exits of a producer's epoch come from one numbered stream: their order is that of arrival."""
        key = (event.producer, event.epoch, event.stream)
        return (
            event.seq is not None and self._exec_stream.setdefault((event.producer, event.epoch), key) == key
        )

    def _new_turn(self, key: str, turn_id: str | None, hard: bool) -> _Turn | None:
        if self._provisional:
            return None
        self._serial += 1
        turn = self._turns[key] = _Turn(key, turn_id, hard, self._serial)
        if turn_id is not None:
            self._by_id[turn_id] = turn
        return turn

    def _named_turn(self, event: Event) -> _Turn | None:
        """The turn of an event with an id or an index; None where that is not certain."""
        turn_id, index = event.turn_id, event.turn_index
        if turn_id is not None:
            turn = self._by_id.get(turn_id)
            if turn is None:
                key = id_key(turn_id)
                if key in self._gone:
                    return None
                turn = self._new_turn(key, turn_id, True)
            if index is not None and turn is not None:
                known = self._id_of_index.setdefault(index, turn_id)
                if known != turn_id and known is not None:
                    if index in self._index_alone:
                        return None
                    self._id_of_index[index] = None
                elif known is not None and index in self._index_alone:
                    key = index_key(index)
                    if key in self._turns or key in self._gone:
                        return None
            return turn
        assert index is not None
        if index in self._id_of_index:
            known = self._id_of_index[index]
            if known is None:
                return None
            turn = self._by_id.get(known)
        else:
            key = index_key(index)
            if key in self._gone:
                return None
            turn = self._turns.get(key) or self._new_turn(key, None, True)
        self._index_alone.add(index)
        if turn is not None and turn.weakest < INDEX:
            turn.weakest = INDEX
        return turn

    def _unnamed(
        self, event: Event, stream: _Stream, kind: int, oracle: _Oracle | None
    ) -> tuple[bool, _Turn | None]:
        """(certain, turn) of an event without id and index."""
        turn: _Turn | None
        mode = stream.mode
        if kind == _START:
            turn = self._new_turn(place_key(event), None, False)
            return turn is not None and self._inside(event, turn) and self._start(
                event, turn, stream, True
            ), turn
        if kind == _END:
            turn = stream.open
            if turn is None:
                key = oracle.window(event) if oracle is not None else None
                if key is None and stream.outside:
                    return False, None
                turn = self._window(key or place_key(event))
            return turn is not None and self._inside(event, turn) and self._end(
                event, turn, stream, oracle
            ), turn
        if kind == _MESSAGE and mode in (_NONE, _MESSAGES) and is_user_message(event):
            turn = self._new_turn(place_key(event), None, False)
            return turn is not None and self._inside(event, turn) and self._start(
                event, turn, stream, False
            ), turn
        turn = stream.open
        if turn is not None:
            return self._held is None or self._held.inside(event, turn), turn
        if oracle is not None:
            key = oracle.window(event)
            if key is not None:
                turn = self._window(key)
                if mode == _ENDS:
                    stream.open = turn
                return turn is not None and self._inside(event, turn), turn
        elif mode == _ENDS:
            turn = stream.open = self._new_turn(place_key(event), None, False)
            return turn is not None and self._inside(event, turn), turn
        return self._linked(event, stream)

    def _window(self, key: str) -> _Turn | None:
        return self._turns.get(key) or self._new_turn(key, None, False)

    def _inside(self, event: Event, turn: _Turn) -> bool:
        return self._held is None or self._held.inside(event, turn)

    def _linked(self, event: Event, stream: _Stream) -> tuple[bool, _Turn | None]:
        """(certain, turn) of an event outside every window: a link may bring it into one."""
        turn: _Turn | None = None
        if event.model_call_id is not None or event.tool_call_id is not None or event.trace_id is not None:
            if self._held is None and not self._track():
                return False, None
            assert self._held is not None
            certain, holder = self._held.outside(event)
            if not certain or (holder is not None and not isinstance(holder, _Turn)):
                return False, None
            turn = holder
            if turn is not None and turn.key not in self._turns:
                return False, None
        stream.outside += 1
        if event.seq is None:
            stream.floating = True
        if turn is not None:
            turn.linked.add(id(event))
        return True, turn

    def _outside(self, event: Event, stream: _Stream, kind: int) -> bool:
        """An event of no turn. Where its stream has boundaries it stays one; elsewhere a turn of another stream may claim it."""
        if stream.mode == _NONE or stream.mode == _MESSAGES:
            if event.running is not None:
                return self._float(event, kind)
            if self._turns or self._gone:
                return False
            self._provisional = True
        if kind == _CALL and (moves_threads(event) or sums_session(event) or not self._call(event, 0)):
            return False
        self._loose.append(event)
        self._size += _weigh(event)
        if _matters_outside(event):
            self._loose_dirty = True
        return True

    def _float(self, event: Event, kind: int) -> bool:
        """An event that only its place may bring into a turn (contract 7, ``window``): which one is found when changes are taken."""
        place = order_key(event)
        if kind == _CALL or place < self._span_gone:
            return False
        weight = _weigh(event)
        self._floats.append((place, event, weight))
        self._size += weight
        self._float_dirty = True
        if place < self._span_last:
            self._float_late = True
        return True

    def _place_floats(self) -> None:
        """Which turn has which of them: the only one whose start and end it stands between."""
        self._float_dirty = self._float_late = False
        if not self._floats:
            return
        self._floats.sort(key=_first)
        edges: list[tuple[bytes, bool, _Turn]] = []
        for turn in self._turns.values():
            span = turn.span()
            if span is not None:
                if turn.ended:
                    self._span_last = max(self._span_last, span[1])
                edges += ((span[0], True, turn), (span[1], False, turn))
        edges.sort(key=_first)
        found: dict[str, list[Event]] = {}
        loose: list[Event] = []
        around: dict[str, None] = {}
        following = 0
        for place, event, _ in self._floats:
            while following < len(edges) and edges[following][0] < place:
                _, opens, turn = edges[following]
                if opens:
                    around[turn.key] = None
                else:
                    around.pop(turn.key, None)
                following += 1
            if len(around) == 1:
                found.setdefault(next(iter(around)), []).append(event)
            else:
                loose.append(event)
        weights = {id(event): weight for _, event, weight in self._floats}
        for turn in self._turns.values():
            now = found.get(turn.key, [])
            if now != turn.floats:
                turn.size += sum(weights[id(event)] for event in now) - sum(
                    weights[id(event)] for event in turn.floats
                )
                turn.floats = now
                self._touch(turn)
        if loose != self._float_loose:
            self._float_loose = loose
            self._loose_dirty = self._moved = True

    def _call(self, event: Event, serial: int) -> bool:
        """Note whose an event of a model call is. False: somebody else has an identity of it."""
        for claim in claims(event):
            if claim == SESSION_WIDE or self._claims.setdefault(hash(claim), serial) != serial:
                return False
        if not self._threads_used:
            payload = event.payload
            # As ``moves_threads`` says it of an event of a model call.
            if "provider_thread" in payload or payload.get("counter_kind") == "cumulative":
                self._threads_used = True
        return True

    def _start(self, event: Event, turn: _Turn, stream: _Stream, really: bool) -> bool:
        """A start: a ``turn.started``, or a user message that counts as one."""
        lane = stream.lane
        if stream.numbered or lane.numbered if event.seq is None else stream.received or lane.starts:
            return False
        if not really:
            if stream.floating:
                return False
            stream.mode = _MESSAGES
        elif stream.mode != _BOUNDED:
            if stream.mode != _NONE or stream.outside:
                return False
            stream.mode = _BOUNDED
        if really:
            stream.outside = 0
        key = order_key(event)
        if event.seq is None:
            stream.received = True
            return self._start_received(event, key, turn, lane, really)
        stream.numbered = lane.numbered = True
        if turn.started is not None and really == turn.started_really and key < turn.started_key:
            return False
        if turn.started is not None and really and not turn.started_really and turn.abandoned:
            return False
        if key < self._float_gone or (turn.started is not None and turn.started_key < self._float_gone):
            return False
        for other in [other for other in lane.unended.values() if other is not turn]:
            self._abandon(other, key)
        if self._ends and key < self._ends[-1]:
            # The session's end came first: it abandoned turns of the lane that this start abandons before it.
            for other in self._turns.values():
                if (
                    other.start_lane is lane
                    and other is not turn
                    and other.started_key < key < other.abandoned_key
                ):
                    self._abandon_at(other, key)
        stream.open = turn
        if stream not in turn.started_in:
            turn.started_in.append(stream)
        if turn.started is None or (really and not turn.started_really):
            if turn.start_lane is not None:
                turn.start_lane.unended.pop(turn.key, None)
            turn.started, turn.started_key, turn.started_really = event, key, really
            turn.start_lane = lane
            if turn.completed is None:
                lane.unended[turn.key] = turn
                if self._ends and self._ends[-1] > key:
                    self._abandon(turn, self._ends[bisect_right(self._ends, key)])
            self._float_dirty = True
        return True

    def _start_received(self, event: Event, key: bytes, turn: _Turn, lane: _Lane, really: bool) -> bool:
        """A start without a number: others of its lane may already stand behind it. Only turns with an id or index start so."""
        if self._float_gone and min(key, turn.started_key or key) < self._float_gone:
            return False
        first = turn.started is None
        if turn.started is not None:
            if turn.start_lane is not lane:
                if really > turn.started_really or (really == turn.started_really and key < turn.started_key):
                    return False
            elif really != turn.started_really:
                return False
            else:
                first = key < turn.started_key
        insort(lane.starts, (key, turn.key))
        if first:
            turn.started, turn.started_key, turn.started_really, turn.start_lane = event, key, really, lane
            if not turn.ended:
                lane.unended[turn.key] = turn
            self._float_dirty = True
        before = bisect_left(lane.starts, (key, turn.key)) - 1
        other = self._turns.get(lane.starts[before][1]) if before >= 0 else None
        if other is not None and other is not turn and other.start_lane is lane:
            self._abandon_at(other, key)
        if turn.start_lane is lane:
            after = bisect_right(lane.starts, (turn.started_key, turn.key))
            while after < len(lane.starts) and lane.starts[after][1] == turn.key:
                after += 1
            places = [lane.starts[after][0]] if after < len(lane.starts) else []
            places += self._ends[bisect_right(self._ends, turn.started_key) :][:1]
            if places:
                self._abandon_at(turn, min(places))
        return True

    def _abandon_at(self, turn: _Turn, place: bytes) -> None:
        if turn.completed is None and (not turn.abandoned or place < turn.abandoned_key):
            self._abandon(turn, place)

    def _end(self, event: Event, turn: _Turn, stream: _Stream, oracle: _Oracle | None) -> bool:
        if stream.mode == _MESSAGES or (stream.numbered if event.seq is None else stream.received):
            return False
        if stream.mode == _NONE:
            if stream.outside:
                return False
            stream.mode = _ENDS
        stream.numbered = stream.numbered or event.seq is not None
        if event.seq is None:
            stream.received = True  # no event of this stream needs a window
        elif stream.open is turn:
            stream.open = None
            stream.outside = 0
        elif stream.open is None:
            if stream.outside and stream not in turn.started_in:
                return False
            stream.outside = 0
        elif stream.mode == _ENDS:
            return False
        key = order_key(event)
        if turn.completed is None or key > turn.completed_key:
            if (
                self._float_gone
                and min(key, turn.completed_key or key, turn.abandoned_key or key) < self._float_gone
            ):
                return False
            self._float_dirty = True
            if not turn.ended:
                self._close(turn)
            turn.completed, turn.completed_key = event, key
            if turn.start_lane is not None:
                turn.start_lane.unended.pop(turn.key, None)
        return True

    def _abandon(self, turn: _Turn, place: bytes) -> None:
        if turn.start_lane is not None:
            turn.start_lane.unended.pop(turn.key, None)
        self._close(turn)
        turn.abandoned = True
        turn.abandoned_key = place
        self._float_dirty = True
        turn.dirty = True
        self._dirty_ended[turn.key] = turn

    def _close(self, turn: _Turn) -> None:
        if self._dirty_open.pop(turn.key, None) is not None:
            self._dirty_ended[turn.key] = turn
        self._closed[turn.key] = turn

    def _track(self) -> bool:
        """Begin to index links: from now on they may decide. False: events that they may concern are gone."""
        if self._dropped:
            return False
        held = self._held = Held()
        for turn in self._turns.values():
            for event in turn.events:
                if (event.turn_id is not None or event.turn_index is not None) and not held.hard(event, turn):
                    return False
        for turn in self._turns.values():
            for event in turn.events:
                if event.turn_id is None and event.turn_index is None and not held.inside(event, turn):
                    return False
        outside = [*self._loose, *(event for _, event, _ in self._floats)]
        return all(held.outside(event) == (True, None) for event in outside)

    # ---- changes ---------------------------------------------------------------------------------------------------------------

    def _context(self, threads: Threads = NO_THREADS) -> TurnContext:
        return TurnContext(
            tenant=self.tenant,
            session_id=self.session_id,
            running=self._facts.running,
            holes=self._gaps.holes,
            counted=self._gaps.counted,
            called=self._facts.called,
            threads=threads,
        )

    def _as_turn(self, turn: _Turn) -> Turn:
        turn.sort()
        weakest = turn.weakest
        if turn.soft:
            weakest = BOUNDARY
            if self._held is not None and turn.hard:
                soft = [event for event in turn.events if event.turn_id is None and event.turn_index is None]
                reached = self._held.linked_to_hard(turn.events, soft, turn)
                if all(id(event) in reached or id(event) in turn.linked for event in soft):
                    weakest = LINK
        if turn.floats:
            weakest = WINDOW
        return make_turn(
            turn.key,
            turn.turn_id,
            turn.all(),
            turn.started,
            turn.completed,
            turn.abandoned,
            RULES[weakest],
            turn.started_key or None,
        )

    def _fold_turns(self, include_open: bool, force: bool, changes: SessionChanges) -> None:
        if self._threads_used:
            if include_open or self._dirty_ended:
                self._fold_in_order(include_open, changes)
            return
        ready = list(self._dirty_ended.values())
        if include_open:
            ready += [turn for turn in self._dirty_open.values() if force or turn.due <= monotonic()]
        if not ready:
            return
        context = self._context()
        for turn in ready:
            if turn.ended or len(turn.events) + len(turn.floats) < LONG_TURN:
                self._report(turn, fold_turn(self._as_turn(turn), context), changes)
                continue
            began = monotonic()
            self._report(turn, fold_turn(self._as_turn(turn), context), changes)
            ended = monotonic()
            turn.due = ended + 9 * (ended - began)

    def _fold_in_order(self, include_open: bool, changes: SessionChanges) -> None:
        """The same where running usage values go from turn to turn."""
        if not self._dirty_ended and not self._dirty_open:
            return
        turns = sorted(self._turns.values(), key=_Turn.place)
        if turns and turns[0].place() < self._base_place:
            self._stale = True
            raise NeedsHistory
        context = self._context()
        threads = self._base
        for turn in turns:
            if turn.dirty or turn.before != threads:
                turn.before = threads
                if turn.ended or include_open:
                    fold = fold_turn(self._as_turn(turn), replace(context, threads=threads))
                    turn.after = fold.threads
                    self._report(turn, fold, changes)
                else:
                    turn.after = advance(threads, self._as_turn(turn), context)
                    turn.dirty = True
                    self._dirty_open[turn.key] = turn
            threads = turn.after

    def _report(self, turn: _Turn, fold: TurnFold, changes: SessionChanges) -> None:
        known = fold.turn
        if known.started is None or known.completed is None or known.turn_index is not None:
            fold.findings[:0] = turn_findings(known)
        turn.dirty = False
        self._dirty_open.pop(turn.key, None)
        self._dirty_ended.pop(turn.key, None)
        self._ready.pop(turn.key, None)
        print_ = fingerprint(fold)
        if self._taken.get(turn.key) != print_:
            self._taken[turn.key] = print_
            changes.turns.append(fold)

    def _take_ready(self, include_open: bool, changes: SessionChanges) -> None:
        for key, (fold, print_) in list(self._ready.items()):
            if include_open or fold.turn.status != "open":
                del self._ready[key]
                self._taken[key] = print_
                changes.turns.append(fold)
        changes.removed_turns, self._removed = self._removed, []

    def _take_points(self, changes: SessionChanges) -> None:
        if self._new_points:
            self._make_points(self._point_findings)
        if self._point_rows:
            changes.points, self._point_rows = self._point_rows, {}
        gone = self._points_gone
        for key, row in self._exec_rows.items():
            print_ = _print(row)
            known = self._exec_taken.get(key)
            if known == print_:
                continue
            if known is not None:
                gone.setdefault(EXEC_TABLE, []).append(key)
            self._exec_taken[key] = print_
            changes.points.setdefault(EXEC_TABLE, []).append(dict(row))
        self._exec_rows = {}
        if gone:
            changes.replaced_points, self._points_gone = gone, {}
        if self._items_gone:
            changes.replaced_items, self._items_gone = self._items_gone, []
        if self._item_rows:
            for item, row in self._item_rows.items():
                if self._items_taken.tell(row_scope(row), item, row["item_index"]):
                    changes.replaced_items.append(item)
            changes.points[ITEMS_TABLE] = [*self._item_rows.values()]
            self._item_rows = {}
        if self._item_news:
            tell = self._items_taken.tell
            for item, new in self._item_news.items():
                if tell(new.scope, item, new.index):
                    changes.replaced_items.append(item)
            changes.items = [*self._item_news.values()]
            self._item_news = {}

    def _add_items(self) -> bool:
        """Rows of the contents and results that came since. False: some of them stand before others that have rows."""
        new, self._new_items = self._new_items, []
        if self._superseded:
            new = [event for event in new if not self._is_superseded(event)]
        if len(self._streams) > 1 or any(event.seq is None for event in new):
            new.sort(key=order_key)
        for at, event in enumerate(new):
            if event.type == SUBMITTED:
                rows = [*response_rows(event)]
                if rows:
                    self._point_rows.setdefault(RESPONSES_TABLE, []).extend(rows)
                continue
            items = self._items.add(event)
            if items is None:
                self._new_items = new[at:]
                self._scopes_go_on = self._scopes_go_on or scope_of(event) in self._items.gone
                return False
            for item in items:
                key = item.key
                if self._item_rows:
                    self._item_rows.pop(key, None)
                self._item_news[key] = item
        return True

    def _make_points(self, findings: list[Placed]) -> None:
        """Rows of the events that came since; in the order of arrival, which is theirs (``_exec_in_order``)."""
        for event in self._new_points:
            if self._superseded and (event.producer, event.epoch, event.stream) in self._superseded:
                continue
            found: list[Row] = []
            point = point_row(event, found)
            if point is not None:
                self._point_rows.setdefault(point[0], []).append(point[1])
            else:
                row, _ = self._processes.add(event, found)
                self._exec_rows[point_key(row)] = row
            if found:
                key = order_key(event)
                findings += [(key, finding) for finding in found]
        self._new_points = []

    def _take_rest(self, changes: SessionChanges) -> None:
        """What waits for open turns: facts, what stands outside turns, findings."""
        self._moved = False
        called = self._facts.called
        if (self._loose_dirty or self._loose_called != called) and not self._irregular:
            self._loose_called = called
            events = sorted(
                (event for event in (*self._loose, *self._float_loose) if _matters_outside(event)),
                key=order_key,
            )
            self._loose_fold = fold_loose(events, self._context()) if events else LooseFold()
        self._loose_dirty = False
        loose = self._loose_fold
        print_ = _loose_print(loose)
        if print_ != self._loose_taken:
            self._loose_taken = print_
            changes.loose = Loose(loose.calls, loose.tools, loose.parts)
        facts = self._facts.row(self._gaps.counted)
        if facts != self._facts_taken:
            changes.facts = self._facts_taken = facts
        findings = self._findings()
        if findings != self._findings_taken:
            changes.findings = self._findings_taken = findings

    def _findings(self) -> list[Row]:
        if self._irregular:
            return self._whole_findings
        open_ = (
            []
            if self._facts.running
            else [self._as_turn(turn) for turn in self._turns.values() if not turn.ended]
        )
        open_.sort(key=_turn_place)
        return all_findings(
            gaps=self._gaps,
            facts=self._facts,
            session=self._session_findings,
            points=self._point_findings,
            loose=self._loose_fold,
            ambiguous=[],
            still_open=still_open(open_, self._facts.running),
        )

    def _look_for_gaps(self) -> GapFold:
        if not self._told and not self._superseded and len(self._streams) == 1:
            (only,) = self._streams.values()
            if not only.seen.missing and not only.watched:
                # Nothing was declared and no number is missing: a numbered stream is dense, and that is all there is to say.
                if only.last >= 0:
                    only.seen.reach(only.last)
                return GapFold([], {}, only.last >= 0, [])
        self._told.sort(key=_first)
        told = declarations(event for _, event in self._told)
        seen: dict[StreamKey, StreamSeen] = {}
        for key, stream in self._streams.items():
            if stream.superseded:
                continue
            stream.watched = key in told.told
            if stream.last >= 0:
                stream.seen.reach(stream.last)
                seen[key] = stream.seen
        streams = [key for key, stream in self._streams.items() if not stream.superseded]
        return find_gaps(seen, told, streams, self._superseded)

    def _find_gaps(self) -> None:
        """Gaps anew, and the turns that they touch."""
        self._gaps_dirty = False
        before = self._gaps
        after = self._gaps = self._look_for_gaps()
        if after.counted != before.counted:
            if self._gone:
                self._gaps = before
                self._gaps_dirty = self._stale = True
                raise NeedsHistory
            for turn in self._turns.values():
                self._touch(turn)
        for key in {*before.holes, *after.holes}:
            stream_now = self._streams.get(key)
            was, now = before.holes.get(key, []), after.holes.get(key, [])
            if stream_now is None or was == now:
                continue
            changed = set(was) ^ set(now)
            if min(changed)[0] <= stream_now.dropped_hi:
                self._gaps = before
                self._gaps_dirty = self._stale = True
                raise NeedsHistory
            self._touch_around(key, changed)

    def _touch(self, turn: _Turn) -> None:
        if not turn.dirty and turn.events:
            turn.dirty = True
            (self._dirty_ended if turn.ended else self._dirty_open)[turn.key] = turn

    def _touch_around(self, stream: StreamKey, holes: set[tuple[int, int, str]]) -> None:
        """Turns whose span in the stream encloses one of the holes."""
        for turn in self._turns.values():
            if turn.dirty:
                continue
            numbers = [
                event.seq
                for event in turn.all()
                if event.seq is not None and (event.producer, event.epoch, event.stream) == stream
            ]
            if numbers and any(
                min(numbers) < to_seq and from_seq < max(numbers) for from_seq, to_seq, _ in holes
            ):
                self._touch(turn)

    # ---- the whole set ---------------------------------------------------------------------------------------------------------

    def _all(self) -> list[Event]:
        """Every event that is held."""
        events = [*self._left_out]
        if self._kept is not None:
            events += self._kept
        else:
            events += self._session_events
            events += self._loose
            events += [event for _, event, _ in self._floats]
            for turn in self._turns.values():
                events += turn.events
        return [*events, *self._pending]

    def _fold_whole(self, written: bool) -> None:
        began = monotonic()
        events = self._all()
        whole = fold_whole(self.tenant, self.session_id, events)
        old = self._superseded
        self._adopt(whole, events)
        self._pending = []
        self._stale = False
        self._compare(whole, written)
        self._compare_points(whole, events, whole.superseded - old, written)
        self._moved = not written
        if written:
            self._gaps_taken = whole.fold.gaps
            self._facts_taken = whole.fold.facts
            self._findings_taken = whole.fold.findings
            self._loose_taken = _loose_print(whole.loose)
        ended = monotonic()
        self._due = ended + (ended - began) if ended - began > BRIEF else 0.0

    def _adopt(self, whole: Whole, events: list[Event]) -> None:
        """Go on from what the whole fold found."""
        self._start_empty()
        self._superseded = whole.superseded
        self._irregular = not self._replay(whole)
        if self._irregular:
            self._start_empty()
            self._superseded = whole.superseded
            self._kept = whole.events
            self._size = sum(map(_weigh, whole.events))
        if whole.superseded:
            self._left_out = [
                event for event in events if (event.producer, event.epoch, event.stream) in whole.superseded
            ]
            self._size += sum(map(_weigh, self._left_out))
            said = [event for event in self._left_out if event.type == "stream.superseded"]
            for event in ordered(said):
                self._told.append((order_key(event), event))
        self._gaps = whole.gaps
        self._gaps_dirty = False
        self._facts = whole.facts
        self._loose_fold = whole.loose
        self._loose_called = whole.facts.called
        self._loose_dirty = False
        self._whole_findings = whole.fold.findings
        self._processes = whole.processes
        self._items = whole.items
        self._session_findings = whole.session_findings
        self._point_findings = whole.point_findings
        told = declarations(event for _, event in self._told)
        for key, stream in self._streams.items():
            stream.watched = key in told.told

    def _replay(self, whole: Whole) -> bool:
        """Extend an empty state by the events in their final order; True when it then says what the whole fold said."""
        members = whole.membership
        if members.ambiguous:
            return False
        self._seed(whole)
        oracle = _Oracle(whole)
        if not all(self._extend(event, oracle) for event in whole.events):
            return False
        self._session_findings = []
        self._place_floats()
        turns = {turn.key: turn for turn in self._turns.values() if turn.events}
        loose = len(self._loose) + len(self._float_loose)
        if len(turns) != len(members.turns) or loose != len(members.loose):
            return False
        for right in members.turns:
            turn = turns.get(right.key)
            if (
                turn is None
                or len(turn.events) + len(turn.floats) != len(right.events)
                or not _same(self._as_turn(turn), right)
            ):
                return False
            turn.dirty = False
        self._turns = turns
        self._dirty_open = {}
        self._dirty_ended = {}
        threads = NO_THREADS
        for fold in whole.fold.turns:
            turn = turns[fold.turn.key]
            turn.before, turn.after = threads, fold.threads
            threads = fold.threads
        return True

    def _seed(self, whole: Whole) -> None:
        """What the set says before its first event is looked at: boundaries of streams, who carries an index, links of ids."""
        hard: list[Event] = []
        soft = False
        for event in whole.events:
            type_ = event.type
            if is_session_level(type_):
                continue
            stream_key = (event.producer, event.epoch, event.stream)
            if type_ == "turn.started" or type_ == "turn.completed":
                stream = self._streams.get(stream_key) or self._new_stream(event)
                if type_ == "turn.started":
                    stream.mode = _BOUNDED
                elif stream.mode != _BOUNDED:
                    stream.mode = _ENDS
            if event.turn_id is None and event.turn_index is None:
                soft = True
                continue
            hard.append(event)
            if event.turn_id is not None and event.turn_index is not None:
                known = self._id_of_index.setdefault(event.turn_index, event.turn_id)
                if known != event.turn_id:
                    self._id_of_index[event.turn_index] = None
        linked = any(rule == LINK for rule in whole.membership.rules)
        if soft and (hard or linked):
            self._held = Held()
            for event in hard:
                turn = self._named_turn(event)
                if turn is not None:
                    self._held.hard(event, turn)
        self._any_hard = bool(hard)

    def _compare(self, whole: Whole, written: bool) -> None:
        """Which turns differ from what was taken."""
        prints = {fold.turn.key: fingerprint(fold) for fold in whole.fold.turns}
        for key in [key for key in self._taken if key not in prints]:
            del self._taken[key]
            self._removed.append(key)
        if written:
            self._taken = prints
            return
        self._removed = [key for key in self._removed if key not in prints]
        self._ready = {
            fold.turn.key: (fold, prints[fold.turn.key])
            for fold in whole.fold.turns
            if self._taken.get(fold.turn.key) != prints[fold.turn.key]
        }

    def _compare_points(
        self, whole: Whole, events: list[Event], superseded: set[StreamKey], written: bool
    ) -> None:
        rows = {point_key(row): row for row in whole.fold.points.get(EXEC_TABLE, ())}
        items = {item_key(row): row for row in whole.fold.points.get(ITEMS_TABLE, ())}
        taken = self._items_taken
        if written:
            self._exec_taken = {key: _print(row) for key, row in rows.items()}
            for item, row in items.items():
                taken.tell(row_scope(row), item, row["item_index"])
            return
        self._item_rows = {
            item: row for item, row in items.items() if taken.index(row_scope(row), item) != row["item_index"]
        }
        self._item_news = {}
        self._items_gone += taken.keep(items)
        self._exec_rows = {key: row for key, row in rows.items() if self._exec_taken.get(key) != _print(row)}
        for key in [key for key in self._exec_taken if key not in rows]:
            del self._exec_taken[key]
            self._points_gone.setdefault(EXEC_TABLE, []).append(key)
        if superseded:
            self._forget_points(events, superseded)
        self._new_points = [
            event for event in self._new_points if event.type not in ("process.started", "process.exited")
        ]
        self._make_points([])
        for event in self._new_items:
            if event.type == SUBMITTED and not self._is_superseded(event):
                self._point_rows.setdefault(RESPONSES_TABLE, []).extend(response_rows(event))
        self._new_items = []

    def _is_superseded(self, event: Event) -> bool:
        return (event.producer, event.epoch, event.stream) in self._superseded

    def _forget_points(self, events: list[Event], superseded: set[StreamKey]) -> None:
        """Rows that were made of events of streams which are left out from now on."""
        untaken = {_identity(event) for event in (*self._new_points, *self._new_items)}
        waiting: set[PointKey] = set()
        for table, rows in self._point_rows.items():
            waiting.update(point_key(row) for row in rows)
            self._point_rows[table] = [row for row in rows if point_key(row)[:3] not in superseded]
        for event in events:
            if (event.producer, event.epoch, event.stream) in superseded and _identity(event) not in untaken:
                if event.type == SUBMITTED:
                    place = _identity(event)
                    if place not in waiting and next(response_rows(event), None) is not None:
                        self._points_gone.setdefault(RESPONSES_TABLE, []).append(place)
                    continue
                point = point_row(event, [])
                if point is not None and point_key(point[1]) not in waiting:
                    self._points_gone.setdefault(point[0], []).append(point_key(point[1]))


LONG_TURN = 500
"""Events: an open turn of more is folded so seldom that it takes a tenth of the time; its end is folded at once."""

BRIEF = 0.002
"""Seconds: a whole fold that takes less is done as often as it is asked for."""

_BASE_WEIGHT = 700
"""Bytes of an event with a few short fields, measured with tracemalloc."""

_SHORT = 4096
"""Bytes of a record up to which its length says well enough what its event holds; a longer one is looked into."""


def _weigh(event: Event) -> int:
    length = event.length
    if 0 < length <= _SHORT:
        return _BASE_WEIGHT + 3 * length // 2
    payload = event.payload
    weight = _BASE_WEIGHT + 100 * len(payload)
    for value in payload.values():
        kind = type(value)
        if kind is str:
            weight += len(value)
        elif kind is dict or kind is list:
            weight += _weigh_inside(value)
    return weight


def _weigh_inside(value: object) -> int:
    try:
        return 6 * len(_encode(value))
    except (OverflowError, TypeError):  # an integer beyond 64 bits
        return 6 * len(repr(value))


_encode = msgspec.msgpack.Encoder().encode


def _matters_outside(event: Event) -> bool:
    """``fold_loose`` looks at it."""
    return (
        event.type not in TYPES
        or event.model_call_id is not None
        or event.type in TOOL_TYPES
        or (event.type == "net.requested" and is_provider(event))
    )


def _scopes(events: Iterable[Event]) -> set[Scope]:
    """Where these events say what has rows in ``model_items``."""
    return {scope_of(event) for event in events if event.type in ITEM_TYPES}


def _identity(event: Event) -> tuple[str, int, str, int | None, str | None]:
    receipt = event.receipt_key if event.seq is None else None
    return event.producer, event.epoch, event.stream, event.seq, receipt


def point_key(row: Row) -> PointKey:
    """The identity of a point row."""
    return row["producer"], row["epoch"], row["stream"], row["seq"], row["receipt_key"]


def fingerprint(fold: TurnFold) -> int:
    """Of a turn's record and rows; comparable inside one process."""
    # Rows of a kind have the same columns in the same order, so that their values say all.
    return _print(
        (
            fold.digest,
            [*fold.flat.values()],
            [[*row.values()] for row in fold.calls],
            [[*row.values()] for row in fold.tools],
            fold.parts,
            fold.findings,
        )
    )


def _print(value: object) -> int:
    try:
        return hash(_encode(value))
    except (OverflowError, TypeError):  # an integer beyond 64 bits, inside a finding
        return hash(repr(value))


def _loose_print(loose: LooseFold) -> int:
    if not loose.calls and not loose.tools and not loose.parts:
        return 0
    return _print((loose.calls, loose.tools, loose.parts))


def _first(placed: tuple[bytes, *tuple[object, ...]]) -> bytes:
    return placed[0]


def _turn_place(turn: Turn) -> bytes:
    return turn.order_key


def _same(one: Turn, other: Turn) -> bool:
    return (
        one.turn_id == other.turn_id
        and one.turn_index == other.turn_index
        and one.started is other.started
        and one.completed is other.completed
        and one.status == other.status
        and one.assigned_by == other.assigned_by
        and one.order_key == other.order_key
    )
