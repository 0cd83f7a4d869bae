"""Follows live work into a generation that is being built: sessions that moved stay in memory and are extended, as a worker does.

One pass is one transaction: the events of all batches beyond the position, their projections, marks, and the new position.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import chain

from turnledger.fold.state import NeedsHistory, SessionChanges
from turnledger.ingest import load
from turnledger.ingest.cache import SessionCache, SessionEntry, SessionKey, WrittenTurn
from turnledger.ingest.load import Found
from turnledger.replay import compare
from turnledger.replay.generation import Connection, Rebuild
from turnledger.replay.shadow import (
    LongFold,
    Stored,
    StoredRow,
    by_session,
    carry_vacuumed,
    learn,
    new_entry,
    shared_out,
    stored_events,
    stored_rows,
    units_of,
)
from turnledger.store.maintain import summarize
from turnledger.store.named import query
from turnledger.store.read import of_slot
from turnledger.store.vacuumed import vacuumed_among
from turnledger.store.write import day_table, store_projection
from turnledger.store.write_rows import Unit

CACHE_BYTES = 192 * 1024 * 1024
PASS_EVENTS = 20_000
"""Of one pass: about 6 KiB each are held. Whatever is open at its end is folded and written once more by the next one."""
ANY = 2**32 - 2
"""No table has so many pages."""
LOOKS = ((256, 8), (2048, 4))
"""How far before its end a day is looked at until all events of the batches are found: so many pages more than it is reckoned, with so many events a page,
as rounds that are not committed write there, and there may have been room left. A pass that knows where earlier ones ended looks there."""
STRAY = 100
"""One event of so many may stand elsewhere: a short one fills the room that is left in an older page. Those are found by the index on batch_no."""
ENDS = 1000
"""Passes of which it is known where the day ended."""


@dataclass(slots=True)
class Beyond:
    """What was committed beyond a generation's position."""

    batches: dict[int, int] = field(default_factory=dict)
    """How many events each has."""
    events: int = 0
    day: date = date.max
    """No event of these batches stands in a partition before this day."""
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    """The last batch by (topic, partition)."""
    filled: dict[int, int] = field(default_factory=dict)
    """Sessions that got events in older batches, by the number of the note about it."""
    cut: bool = False
    """There is more."""

    def __bool__(self) -> bool:
        return bool(self.batches or self.filled)

    def parameters(self) -> dict[str, object]:
        """Of the queries over the events of these batches."""
        return {
            "batches": list(self.batches),
            "first": min(self.batches, default=0),
            "last": max(self.batches, default=-1),
            "day": self.day,
        }

    def places(self) -> dict[str, object]:
        """Of the queries that move positions."""
        return {
            "topics": [topic for topic, _ in self.ends],
            "partitions": [partition for _, partition in self.ends],
            "batches": list(self.ends.values()),
        }


def beyond(connection: Connection, generation: str, most: int | None = None) -> Beyond:
    """What was committed beyond the position of ``generation``, or the first of it: batches until they have ``most`` events.

    Batches of a partition become visible in the order of their numbers.
    """
    row = connection.execute(query("replay/least"), {"generation": generation}).fetchone()
    found = Beyond()
    for topic, partition, batch_no, events, day in connection.execute(
        query("replay/batches"), {"generation": generation, "least": row[0] if row is not None else 0}
    ):
        if most is not None and found.events >= most:
            found.cut = True
            break
        found.batches[batch_no] = events
        found.events += events
        found.day = min(found.day, day)
        place = (topic, partition)
        found.ends[place] = max(found.ends.get(place, 0), batch_no)
    found.filled = dict(connection.execute(query("replay/filled")).fetchall())
    return found


def touched(connection: Connection, what: Beyond) -> list[int]:
    """The sessions that must be folded again."""
    moved = set(what.filled.values())
    if what.batches:
        moved.update(row[0] for row in connection.execute(query("replay/touched"), what.parameters()))
    return sorted(moved)


def noted(connection: Connection, what: Beyond) -> None:
    """What was filled is taken care of in the caller's transaction."""
    if what.filled:
        connection.execute(query("replay/refilled"), {"ids": list(what.filled)})


@dataclass(slots=True)
class Pass:
    """What one pass did."""

    sessions: list[int] = field(default_factory=list)
    events: int = 0
    refused: int = 0
    more: bool = False
    """It was cut: more waits."""


class Follower:
    """The sessions that move. Nothing in it is the only copy."""

    def __init__(self, connection: Connection, rebuild: Rebuild, cache_bytes: int = CACHE_BYTES) -> None:
        self.connection = connection
        self.rebuild = rebuild
        self.cache = SessionCache(cache_bytes)
        self._keys: dict[int, SessionKey] = {}
        self._ahead: dict[int, set[int]] = {}
        """By session: batches whose events a session's history held already when it was read: they come once more."""
        self._used: list[SessionEntry] = []
        self._ends: deque[tuple[int, str, int]] = deque(maxlen=ENDS)
        """(last batch, day, pages of it) at the beginnings of the last passes."""
        self._later: set[int] = set()
        """Folded by passes that did not mark them."""
        self._unmarked = True
        """Others may have been folded without a mark, by somebody who was killed."""

    def forget(self) -> None:
        """Of another generation, or of work that was rolled back, nothing may be remembered."""
        self.cache.drop_all()
        self._keys.clear()
        self._ahead.clear()
        self._used = []
        self._unmarked = self._unmarked or bool(self._later)
        self._later.clear()

    def run(self, *, mark: bool = True) -> Pass:
        """One pass of bounded size, committed. What moved is rolled up once no more waits: it moves again until then. Not ``mark``: later."""
        try:
            with self.connection.transaction():
                what = beyond(self.connection, self.rebuild.generation, PASS_EVENTS)
                done = self.pass_in(what)
                marked = mark and not what.cut
                if marked:
                    self.mark()
        except BaseException:
            self.forget()
            raise
        self.committed(marked=marked)
        return done

    def mark(self) -> None:
        """Have everybody rolled up who was followed since they last were, in the caller's transaction."""
        if self._unmarked:
            self.connection.execute(query("replay/mark_doubts"))
        if self._later:
            self.connection.execute(query("replay/mark"), {"sessions": sorted(self._later)})

    def pass_in(self, what: Beyond) -> Pass:
        """Fold everything of ``what`` in the caller's transaction; call :meth:`committed` or :meth:`forget` after it."""
        connection, rebuild = self.connection, self.rebuild
        done = Pass(more=what.cut)
        if not what:
            return done
        coming = self._new_events(what)
        left = self._left_to_pieces({*coming, *what.filled.values()})
        for number in left:
            coming.pop(number, None)
        for number in set(what.filled.values()) - left:
            # What was filled in is in no new batch: its history is read again.
            if number in self._keys:
                self.cache.drop(self._keys.pop(number))
            coming.setdefault(number, [])
        # Late events of vacuumed sessions move no sum, and their detail is gone (contract 12).
        vacuumed = vacuumed_among(connection, list(coming))
        if vacuumed:
            carry_vacuumed(connection, rebuild.slot, rebuild.live, vacuumed)
            for number in vacuumed & self._keys.keys():
                self.cache.drop(self._keys.pop(number))
        folded = {number: rows for number, rows in coming.items() if number not in vacuumed}
        cold = [
            number for number in folded if number not in self._keys or self._keys[number] not in self.cache
        ]
        units = self._read_in(cold, what, done) if cold else []
        gone = set(cold)
        warm = by_session(chain.from_iterable(rows for number, rows in folded.items() if number not in gone))
        for number in folded:
            if number in gone:
                continue
            entry = self._entry(number)
            self._used.append(entry)
            units += self._extended(entry, warm.get(number, ()), what, done)
        done.refused += len(store_projection(connection, rebuild.slot, units))
        done.sessions = list(coming)
        done.events = sum(map(len, coming.values()))
        self._revisions(list(folded))
        self._later.update(done.sessions)
        compare.doubt(connection, done.sessions)
        connection.execute(query("replay/advance"), {"generation": rebuild.generation, **what.places()})
        noted(connection, what)
        if done.refused:
            connection.execute(
                "update ledger.rebuilds set refused = refused + %s where rebuild_no = %s",
                (done.refused, rebuild.rebuild_no),
            )
        return done

    def committed(self, *, marked: bool) -> None:
        """What was folded stands: states may let go of what is closed, and the cache of what was used least. ``marked``: so do the marks."""
        if marked:
            self._later.clear()
            self._unmarked = False
        for entry in self._used:
            entry.state.drop_closed()
            self.cache.measure(entry)
        self._used = []
        self.cache.shrink(0)
        if len(self._keys) > 2 * len(self.cache) + 1000:
            self._keys = {number: key for number, key in self._keys.items() if key in self.cache}
            self._ahead = {number: ahead for number, ahead in self._ahead.items() if number in self._keys}

    def _new_events(self, what: Beyond) -> dict[int, list[StoredRow]]:
        """By session. What was appended last is looked for where a day ends, and only what is not there by the index on batch_no, which knows it late."""
        connection = self.connection
        if not what.batches:
            return {}
        day = day_table(what.day)
        first, last = min(what.batches), max(what.batches)
        values = {**what.parameters(), **self._wanted(what)}
        row = connection.execute(query("replay/end_of_events"), {"day": day, "first": first}).fetchone()
        rows: list[StoredRow] = []
        looked = {"place": "(0,0)", "past": "(0,0)"}
        if row is not None and row[1] is not None:
            newest, pages, events = row
            self._ends.append((newest, day, pages))
            # An index that nobody has told of it would have all of the day read, which writes, too: the first reader of a page notes in it that its rows
            # are committed, and with checksums that is a page of WAL. So not more is looked at than is likely to be needed.
            statement = query("replay/last_events").replace(b"{day}", day.encode())
            for start, end in self._looks(day, first, last, pages, events):
                looked = {"place": f"({max(0, start)},0)", "past": f"({end},0)"}
                rows = list(stored_rows(connection, statement, {**values, **looked}))
                if (what.events - len(rows)) * STRAY <= what.events:
                    break
        if len(rows) != what.events:
            told = Counter(row[4] for row in rows)
            short = [batch_no for batch_no, events in what.batches.items() if told[batch_no] != events]
            summarize(connection, f"{day}_batch")
            some = {"batches": short, "first": min(short), "last": max(short), "looked_in": day, **looked}
            rows += stored_rows(connection, query("replay/new_events"), {**values, **some})
        return self._not_ahead(rows)

    def _looks(self, day: str, first: int, last: int, pages: int, events: int) -> list[tuple[int, int]]:
        """Between which pages of a day the events of batches ``first`` to ``last`` are looked for, until most are found. ``pages`` and ``events``: where the
        day ends, and how many events came from ``first`` on."""
        before = [of for batch_no, on, of in self._ends if on == day and batch_no < first]
        # What was committed when a pass began stands before where the day ended then. Who lags would read all that came since, in each pass. (Nearly all:
        # what another worker was about to commit may stand behind. A requeue may be the last, and is no batch of a round.)
        after = min((of for batch_no, on, of in self._ends if on == day and batch_no >= last), default=ANY)
        starts = [(max(before) if before else pages - events // a_page) - more for more, a_page in LOOKS]
        return [(start, ANY if at else after) for at, start in enumerate(starts)]

    def _wanted(self, what: Beyond) -> dict[str, list[int]]:
        """Whose events are to be told: of sessions that are held, what they do not hold. Of a follower that lags that is the lesser part of a pass."""
        batches = set(what.batches)
        warm = [number for number, key in self._keys.items() if key in self.cache]
        held = [
            (stream.stream_no, batch_no)
            for number in warm
            if (both := batches.intersection(self._ahead.get(number, ())))
            for stream in self._entry(number).streams.values()
            for batch_no in both
        ]
        return {
            "warm": warm,
            "held_streams": [stream_no for stream_no, _ in held],
            "held_batches": [batch_no for _, batch_no in held],
        }

    def _not_ahead(self, rows: Iterable[StoredRow]) -> dict[int, list[StoredRow]]:
        """Those that were not folded yet: to read them a second time would be a third of what they cost."""
        ahead = self._ahead.get
        found: dict[int, list[StoredRow]] = {}
        for row in rows:
            if row[4] not in ahead(row[0], ()):
                found.setdefault(row[0], []).append(row)
        return found

    def _left_to_pieces(self, sessions: set[int]) -> set[int]:
        """Those that a piece will fold from their beginning: it reads what is committed by now too. Waits for pieces that somebody is at."""
        if self.rebuild.phase != "folding" or not sessions:
            return set()
        with self.connection.transaction(force_rollback=True):
            # No lock is kept: whoever takes one of these pieces from now on sees all that this pass sees.
            self.connection.execute("set local lock_timeout = 0")
            rows = self.connection.execute(
                query("replay/left_to_pieces"),
                {
                    "rebuild_no": self.rebuild.rebuild_no,
                    "sessions": list(sessions),
                    "first": min(sessions),
                    "last": max(sessions),
                },
            ).fetchall()
        return sessions.intersection(chain.from_iterable(row[0] for row in rows))

    def _read_in(self, cold: Sequence[int], what: Beyond, done: Pass) -> list[Unit]:
        """Fold sessions that are not in memory from their beginning. Returns what is still to be stored."""
        connection, rebuild = self.connection, self.rebuild
        turns = load.written_turns(connection, cold, rebuild.live)
        found = {one.session_no: one for one in load.find_numbers(connection, cold)}
        long, groups = shared_out(connection, list(found), PASS_EVENTS)
        for number in long:
            entry = self._new(found[number], turns)
            fold = LongFold(connection, rebuild.slot, entry, fresh=False)
            done.refused += fold.run().refused
            self._ahead[number] = self._newer(fold.batches, what)
            self.cache.put(entry)
        units: list[Unit] = []
        held: list[SessionEntry] = []
        for group in groups:
            # Memory: no more than a group's histories at once. What is rolled back is forgotten.
            if held:
                done.refused += len(store_projection(connection, rebuild.slot, units))
                for entry in held:
                    entry.state.drop_closed()
                units, held = [], []
            histories = stored_events(connection, query("replay/events"), {"sessions": group})
            for number in group:
                entry = self._new(found[number], turns)
                history = histories.pop(number, [])
                self._ahead[number] = self._newer((event.batch_no for event in history), what)
                held.append(entry)
                self.cache.put(entry)
                units += self._extended(entry, history, what, done)
        return units

    def _new(self, one: Found, turns: Mapping[int, Mapping[str, WrittenTurn]]) -> SessionEntry:
        entry = new_entry(one, turns.get(one.session_no, {}))
        self._keys[one.session_no] = one.key
        self._used.append(entry)
        return entry

    def _entry(self, number: int) -> SessionEntry:
        entry = self.cache.get(self._keys[number])
        assert entry is not None
        return entry

    def _extended(
        self, entry: SessionEntry, events: Sequence[Stored], what: Beyond, done: Pass
    ) -> list[Unit]:
        learn(entry, events)
        try:
            entry.state.extend([one.event for one in events])
        except NeedsHistory:
            self._restore(entry, what)
        units, refused = units_of(self.connection, entry, self._changes(entry, what))
        done.refused += refused
        return units

    def _changes(self, entry: SessionEntry, what: Beyond) -> SessionChanges:
        while True:
            try:
                return entry.state.take_changes(True, force=True)
            except NeedsHistory:
                self._restore(entry, what)

    def _restore(self, entry: SessionEntry, what: Beyond) -> None:
        number = entry.session_no
        history = stored_events(self.connection, query("replay/events"), {"sessions": [number]})[number]
        learn(entry, history)
        # What comes with a later pass is not taken now: its rows would be made by nobody.
        later = self._newer((one.batch_no for one in history), what) - self._ahead.get(number, set())
        entry.state.restore([one.event for one in history if one.batch_no not in later])

    @staticmethod
    def _newer(batches: Iterable[int], what: Beyond) -> set[int]:
        """Of those of a history, the ones that come again with a later pass."""
        known = what.batches.keys()
        least = min(known, default=0)
        return {batch_no for batch_no in batches if batch_no > least} - known

    def _revisions(self, sessions: Sequence[int]) -> None:
        rebuild = self.rebuild
        statement = of_slot("replay/turn_revisions", rebuild.slot).replace(b"{live}", rebuild.live.encode())
        raised = self.connection.execute(statement, {"sessions": list(sessions)}).fetchall()
        if not raised:
            return
        numbers, turns, revisions = map(list, zip(*raised, strict=True))
        self.connection.execute(
            of_slot("replay/record_revisions", rebuild.slot),
            {"sessions": numbers, "turns": turns, "revisions": revisions},
        )
        by_turn = {(number, turn): revision for number, turn, revision in raised}
        for number in Counter(numbers):
            for written in self._entry(number).turns.values():
                known = by_turn.get((number, written.turn_no))
                if known is not None:
                    written.revision = known
