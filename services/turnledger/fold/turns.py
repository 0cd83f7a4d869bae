"""Owns membership: which turn an event belongs to (contract 7), decided on the whole set of a session, rule after rule.

It says which events a turn holds, when it starts and ends and what became of it; never what the events mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from turnledger.contract.event import Event
from turnledger.fold.fields import place_key
from turnledger.fold.model import Row, StreamKey, Turn
from turnledger.fold.order import order_key

RULES: Final = ("id", "index", "link", "boundary", "window", "fallback")
"""``assigned_by``, strongest first. Rules are kept as places in this list; ``NO_TURN`` is the place of session-level work."""

ID, INDEX, LINK, BOUNDARY, WINDOW, FALLBACK, NO_TURN = range(7)

ENDED: Final = frozenset(("completed", "failed", "interrupted", "aborted"))


@lru_cache(maxsize=1024)
def is_session_level(type_: str) -> bool:
    """``session.*``, ``stream.*``, ``driver.*`` and ``capture.*`` belong to no turn, whatever they carry."""
    return type_.startswith(("session.", "stream.", "driver.", "capture."))


def is_user_message(event: Event) -> bool:
    """A message that may open a turn where a stream has no boundaries: of a user, and not the result of a tool."""
    if event.type != "message.recorded" or event.tool_call_id is not None:
        return False
    payload = event.payload
    if payload.get("role") != "user":
        return False
    content = payload.get("content")
    items = content if isinstance(content, list) else (content,)
    return not any(isinstance(item, dict) and item.get("type") == "tool_result" for item in items)


def status_of_end(event: Event) -> str:
    """The status that a ``turn.completed`` gives its turn; absent or unlisted is ``completed``."""
    status = event.payload.get("status")
    return status if isinstance(status, str) and status in ENDED else "completed"


def id_key(turn_id: str) -> str:
    """``turn_key`` of a turn with an id."""
    return f"@id:{turn_id}" if turn_id[0] in "#@" else turn_id


def index_key(index: int) -> str:
    """``turn_key`` of a turn known by its index alone."""
    return f"#{index}"


def links(event: Event) -> tuple[tuple[int, str], ...]:
    """What may link an event to a turn, first first: model call, tool call, trace."""
    return tuple(
        (place, value)
        for place, value in enumerate((event.model_call_id, event.tool_call_id, event.trace_id))
        if value is not None
    )


@dataclass(slots=True, eq=False)
class Window:
    """A turn while its events are being found. Numbers are places in the ordered list of the session's events."""

    key: str
    turn_id: str | None = None
    turn_index: int | None = None
    members: list[int] = field(default_factory=list)
    started: int | None = None
    """Place of its first ``turn.started``, else of the first user message that counts as its start."""
    completed: int | None = None
    """Place of its last ``turn.completed``."""
    abandoned: int | None = None
    """Place of what abandoned it: it has no end, and another start in its (producer, stream) or the session's end follows its start."""
    weakest: int = ID


@dataclass(slots=True)
class Membership:
    """What ``membership`` found. ``owners`` and ``rules`` run along the events that were given."""

    turns: list[Turn]
    """In the order of contract 7."""
    loose: list[Event]
    """Work outside every turn, in order; without session-level types."""
    session: list[Event]
    """Events of session-level types, in order."""
    owners: list[str | None]
    """``turn_key`` of each event's turn."""
    rules: list[int]
    """Place in ``RULES``, or ``NO_TURN``."""
    ambiguous: list[Row]
    """Findings ``turn_index_ambiguous``."""


class _Finder:
    """One run of the rules over one session's ordered events."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self.owner: list[Window | None] = [None] * len(events)
        self.rule = [NO_TURN] * len(events)
        self.windows: dict[str, Window] = {}
        self.work: list[int] = []
        self.ended: list[int] = []
        self.streams: dict[StreamKey, list[int]] = {}
        self.with_starts: set[StreamKey] = set()
        self.with_ends: set[StreamKey] = set()
        self.timed: set[tuple[str, str]] = set()
        self.starts: dict[int, Window] = {}
        self.ambiguous: list[Row] = []
        for place, event in enumerate(events):
            if event.at is not None:
                self.timed.add((event.producer, event.stream))
            type_ = event.type
            if is_session_level(type_):
                if type_ == "session.ended":
                    self.ended.append(place)
                continue
            self.work.append(place)
            stream = (event.producer, event.epoch, event.stream)
            self.streams.setdefault(stream, []).append(place)
            if type_ == "turn.started":
                self.with_starts.add(stream)
            elif type_ == "turn.completed":
                self.with_ends.add(stream)

    def run(self) -> None:
        self.by_id_and_index()
        self.by_link()
        self.by_boundary()
        self.by_link()
        self.find_ends()
        self.by_window()
        self.by_fallback()

    def put(self, place: int, window: Window, rule: int) -> None:
        self.owner[place] = window
        self.rule[place] = rule
        if rule > window.weakest:
            window.weakest = rule

    def window(self, key: str, turn_id: str | None = None, turn_index: int | None = None) -> Window:
        window = self.windows.get(key)
        if window is None:
            window = self.windows[key] = Window(key, turn_id, turn_index)
        return window

    def by_id_and_index(self) -> None:
        ids_of: dict[int, list[str]] = {}
        index_alone: list[int] = []
        for place in self.work:
            event = self.events[place]
            turn_id, index = event.turn_id, event.turn_index
            if turn_id is not None:
                self.put(place, self.window(id_key(turn_id), turn_id), ID)
                if index is not None:
                    ids = ids_of.setdefault(index, [])
                    if turn_id not in ids:
                        ids.append(turn_id)
            elif index is not None:
                index_alone.append(place)
        for place in index_alone:
            index = self.events[place].turn_index
            assert index is not None
            ids = ids_of.get(index, [])
            if len(ids) == 1:
                self.put(place, self.windows[id_key(ids[0])], INDEX)
                continue
            key = index_key(index)
            if len(ids) > 1 and key not in self.windows:
                row: Row = {"turn_key": key, "turn_index": index, "turn_ids": sorted(ids, key=str.encode)}
                self.ambiguous.append({"check": "turn_index_ambiguous", "severity": "warning", "row": row})
            self.put(place, self.window(key, None, index), INDEX)

    def by_link(self) -> None:
        """Rounds, each decided on the state before it. A later round looks only at events whose links moved in the one before."""
        waiting: dict[tuple[int, str], list[int]] = {}
        unassigned: list[int] = []
        holders: dict[tuple[int, str], Window | None] = {}  # None: held by several
        for place in self.work:
            owner = self.owner[place]
            if owner is not None:
                for link in links(self.events[place]):
                    if holders.setdefault(link, owner) is not owner:
                        holders[link] = None
            else:
                unassigned.append(place)
        for place in unassigned:
            for link in links(self.events[place]):
                waiting.setdefault(link, []).append(place)
        if not holders:
            return
        candidates: Iterable[int] = unassigned
        while True:
            found: list[tuple[int, Window]] = []
            for place in candidates:
                if self.owner[place] is not None:
                    continue
                for link in links(self.events[place]):
                    holder = holders.get(link)
                    if holder is not None:
                        found.append((place, holder))
                        break
            if not found:
                return
            moved: dict[tuple[int, str], None] = {}
            for place, window in found:
                self.put(place, window, LINK)
                for link in links(self.events[place]):
                    if link not in holders:
                        holders[link] = window
                        moved[link] = None
                    elif holders[link] is not window:
                        holders[link] = None
            candidates = dict.fromkeys(place for link in moved for place in waiting[link])

    def by_boundary(self) -> None:
        for stream, places in self.streams.items():
            if stream in self.with_starts:
                self._starts_and_ends(places)
            elif stream in self.with_ends:
                self._ends_alone(places)
            else:
                self._user_messages(places)

    def _open_at(self, place: int) -> Window:
        window = self.owner[place]
        if window is None:
            window = self.window(place_key(self.events[place]))
            self.put(place, window, BOUNDARY)
        self.starts[place] = window
        return window

    def _close_from(self, since: list[int], place: int) -> None:
        """An end with nothing open: its turn has what came since the previous boundary."""
        window = self.owner[place]
        if window is None:
            window = self.window(place_key(self.events[since[0] if since else place]))
            self.put(place, window, BOUNDARY)
        for member in since:
            self.put(member, window, BOUNDARY)

    def _starts_and_ends(self, places: list[int]) -> None:
        open_: Window | None = None
        started: set[str] = set()
        since: list[int] = []
        for place in places:
            type_ = self.events[place].type
            owner = self.owner[place]
            if type_ == "turn.started":
                open_ = self._open_at(place)
                started.add(open_.key)
                since = []
            elif type_ == "turn.completed":
                if open_ is not None:
                    if owner is None:
                        self.put(place, open_, BOUNDARY)
                    elif owner is not open_:
                        continue
                    open_ = None
                elif owner is None or owner.key not in started:
                    self._close_from(since, place)
                since = []
            elif owner is None:
                if open_ is not None:
                    self.put(place, open_, BOUNDARY)
                else:
                    since.append(place)

    def _ends_alone(self, places: list[int]) -> None:
        since: list[int] = []
        for place in places:
            if self.events[place].type == "turn.completed":
                self._close_from(since, place)
                since = []
            elif self.owner[place] is None:
                since.append(place)
        if since:
            tail = self.window(place_key(self.events[since[0]]))
            for place in since:
                self.put(place, tail, BOUNDARY)

    def _user_messages(self, places: list[int]) -> None:
        open_: Window | None = None
        for place in places:
            if is_user_message(self.events[place]):
                open_ = self._open_at(place)
            elif open_ is not None and self.owner[place] is None:
                self.put(place, open_, BOUNDARY)

    def find_ends(self) -> None:
        """Every start and end has its turn now: find where each turn starts, ends or was abandoned."""
        lanes: dict[tuple[str, str], list[int]] = {}
        for place in sorted(self.starts):
            window = self.starts[place]
            event = self.events[place]
            lanes.setdefault((event.producer, event.stream), []).append(place)
            known = window.started
            if known is None or (event.type == "turn.started" and self.events[known].type != "turn.started"):
                window.started = place
        for place in self.work:
            if self.events[place].type == "turn.completed":
                owner = self.owner[place]
                assert owner is not None
                owner.completed = place
        following: dict[int, int] = {}
        for lane in lanes.values():
            other: int | None = None  # the next start of another turn
            for index in range(len(lane) - 2, -1, -1):
                if self.starts[lane[index + 1]] is not self.starts[lane[index]]:
                    other = lane[index + 1]
                if other is not None:
                    following[lane[index]] = other
        for window in self.windows.values():
            if window.completed is not None or window.started is None:
                continue
            started = window.started
            ends = [place for place in self.ended if place > started][:1]
            if started in following:
                ends.append(following[started])
            window.abandoned = min(ends, default=None)

    def by_window(self) -> None:
        free = [
            place
            for place in self.work
            if self.owner[place] is None
            and self.events[place].running is not None
            and self._stream(place) not in self.with_starts
            and self._stream(place) not in self.with_ends
        ]
        if not free:
            return
        changes: dict[
            int, tuple[int, int]
        ] = {}  # place: (by how much the count of open turns moves, by how much their sum)
        turns = list(self.windows.values())
        for number, window in enumerate(turns):
            start = window.started
            end = window.completed if window.completed is not None else window.abandoned
            if start is None or self.events[start].running is None:
                continue
            if end is not None and (end < start or self.events[end].running is None):
                continue
            for place, sign in ((start, 1), (len(self.events) if end is None else end, -1)):
                count, total = changes.get(place, (0, 0))
                changes[place] = (count + sign, total + sign * number)
        count = total = 0
        edges = sorted(changes)
        next_edge = 0
        for place in free:
            while next_edge < len(edges) and edges[next_edge] < place:
                count += changes[edges[next_edge]][0]
                total += changes[edges[next_edge]][1]
                next_edge += 1
            if count == 1:
                self.put(place, turns[total], WINDOW)

    def by_fallback(self) -> None:
        if not self.windows:
            return
        bounded = {(producer, stream) for producer, _, stream in self.with_starts | self.with_ends}
        free = [
            place
            for place in self.work
            if self.owner[place] is None
            and (lane := self._lane(place)) not in bounded
            and lane not in self.timed
        ]
        if not free:
            return
        first_member: dict[str, int] = {}
        for place in self.work:
            owner = self.owner[place]
            if owner is not None:
                first_member.setdefault(owner.key, place)
        first = min(
            self.windows.values(),
            key=lambda window: first_member[window.key] if window.started is None else window.started,
        )
        for place in free:
            self.put(place, first, FALLBACK)

    def _stream(self, place: int) -> StreamKey:
        event = self.events[place]
        return event.producer, event.epoch, event.stream

    def _lane(self, place: int) -> tuple[str, str]:
        event = self.events[place]
        return event.producer, event.stream

    def result(self) -> Membership:
        loose: list[Event] = []
        session: list[Event] = []
        for place, event in enumerate(self.events):
            owner = self.owner[place]
            if owner is not None:
                owner.members.append(place)
            elif is_session_level(event.type):
                session.append(event)
            else:
                loose.append(event)
        turns = [self._turn(window) for window in self.windows.values()]
        turns.sort(key=_by_order)
        owners = [None if owner is None else owner.key for owner in self.owner]
        return Membership(turns, loose, session, owners, self.rule, self.ambiguous)

    def _turn(self, window: Window) -> Turn:
        events = [self.events[place] for place in window.members]
        started = None if window.started is None else self.events[window.started]
        completed = None if window.completed is None else self.events[window.completed]
        return make_turn(
            window.key,
            window.turn_id,
            events,
            started,
            completed,
            window.abandoned is not None,
            RULES[window.weakest],
        )


def make_turn(
    key: str,
    turn_id: str | None,
    events: list[Event],
    started: Event | None,
    completed: Event | None,
    abandoned: bool,
    assigned_by: str,
    place: bytes | None = None,
) -> Turn:
    """A turn from its events in order, and from what became of it. ``place``: the order key of its start, where the caller has it."""
    unfinished = "abandoned" if abandoned else "open"
    status = unfinished if completed is None else status_of_end(completed)
    index: int | None = None
    for event in events:
        if event.turn_index is not None:
            index = event.turn_index
            break
    return Turn(
        key=key,
        turn_id=turn_id,
        turn_index=index,
        events=events,
        started=started,
        completed=completed,
        status=status,
        assigned_by=assigned_by,
        order_key=place or order_key(started if started is not None else events[0]),
    )


def _by_order(turn: Turn) -> bytes:
    return turn.order_key


def membership(events: list[Event]) -> Membership:
    """Decide for each event of one session which turn it belongs to, and what became of each turn (contract 7).

    ``events``: all accepted events of the session in order (``fold.order.ordered``), superseded streams left out.
    """
    finder = _Finder(events)
    finder.run()
    return finder.result()


def turn_findings(turn: Turn) -> list[Row]:
    """Findings that one turn's own events decide: ``turn_without_start`` ``turn_without_end`` ``turn_two_indexes``."""
    found: list[Row] = []
    about: dict[str, Any] = {"turn_key": turn.key}
    if turn.started is None:
        found.append({"check": "turn_without_start", "severity": "warning", "row": dict(about)})
    if turn.completed is None and turn.status != "open":
        found.append({"check": "turn_without_end", "severity": "warning", "row": dict(about)})
    if turn.turn_id is not None:
        indexes = list(
            dict.fromkeys(event.turn_index for event in turn.events if event.turn_index is not None)
        )
        if len(indexes) > 1:
            row = {**about, "turn_indexes": indexes}
            found.append({"check": "turn_two_indexes", "severity": "warning", "row": row})
    return found


def superseded_streams(events: Iterable[Event]) -> set[StreamKey]:
    """Streams that a ``stream.superseded`` of the set names (contract 6). It must name producer, epoch and stream, and not its own."""
    named: set[StreamKey] = set()
    for event in events:
        if event.type == "stream.superseded":
            stream = superseded_by(event)
            if stream is not None:
                named.add(stream)
    return named


def superseded_by(event: Event) -> StreamKey | None:
    """The stream that one ``stream.superseded`` names; None where it names none, or itself."""
    payload = event.payload
    producer, epoch, stream = payload.get("producer"), payload.get("epoch"), payload.get("stream")
    if isinstance(epoch, float) and epoch.is_integer():
        epoch = int(epoch)
    if not isinstance(producer, str) or not isinstance(stream, str):
        return None
    if isinstance(epoch, bool) or not isinstance(epoch, int):
        return None
    key = (producer, epoch, stream)
    return None if key == (event.producer, event.epoch, event.stream) else key
