"""Folds sessions from the ledger into a generation that nobody reads: each from its whole history, a long one piece by piece (design 6).

It writes projections and nothing else: what the ledger knows of streams, gaps and duplicates is the ingest worker's.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from psycopg import sql

from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.fold.state import NeedsHistory, SessionChanges, SessionState
from turnledger.ingest import load
from turnledger.ingest.cache import SessionEntry, StreamEntry, WrittenTurn
from turnledger.ingest.load import Found
from turnledger.ingest.project import project, receipts_named
from turnledger.replay.generation import Connection
from turnledger.store.keys import receipt_hash
from turnledger.store.named import query
from turnledger.store.read import accepted, ordered_pieces
from turnledger.store.vacuumed import DETAIL, carry, vacuumed_among
from turnledger.store.write import store_projection
from turnledger.store.write_rows import Unit

FETCHED = 1000
"""Rows that are made Python's at once."""
LONG_EVENTS = 10_000
"""A session of more is not held as a whole: about 6 KiB an event. Piece by piece the database sorts it, 6 µs an event more."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An accepted event where the ledger has it."""

    event: Event
    stream_no: int
    seq: int
    """As in ``ledger.events``: below 0 for a receipt."""
    batch_no: int


StoredRow = tuple[int, int, int, int, int, bytes]
"""(session_no, stream_no, seq, offset, batch_no, raw); where ``raw`` was not asked for it is None, and nobody reads the event."""


@dataclass(slots=True)
class Folded:
    """What was done."""

    sessions: int = 0
    events: int = 0
    refused: int = 0
    """Units that Postgres would not take."""

    def add(self, other: Folded) -> None:
        self.sessions += other.sessions
        self.events += other.events
        self.refused += other.refused


def stored_events(
    connection: Connection, statement: bytes, parameters: Mapping[str, object]
) -> dict[int, list[Stored]]:
    """Events by session, in the order in which they were committed. ``statement``: with the columns of ``replay/events``.

    Raises ``LedgerUnreadable``.
    """
    return by_session(stored_rows(connection, statement, parameters))


def stored_rows(
    connection: Connection, statement: bytes, parameters: Mapping[str, object]
) -> Iterator[StoredRow]:
    """The same, unread."""
    with connection.cursor(binary=True) as cursor:
        # Planned for these values: arrays of thousands are joined, and a plan for any array takes them for ten.
        cursor.execute(statement, parameters, prepare=False)
        # Many at once: asking for each row by itself takes a twentieth of the whole fold.
        while rows := cursor.fetchmany(FETCHED):
            yield from rows


def by_session(rows: Iterable[StoredRow]) -> dict[int, list[Stored]]:
    """Rows of events as :func:`stored_events` gives them."""
    found: dict[int, list[Stored]] = defaultdict(list)
    for session_no, one in _read(rows):
        found[session_no].append(one)
    for events in found.values():
        # A state extends best in the order in which a worker saw them.
        events.sort(key=lambda one: (one.batch_no, one.event.position))
    return found


def _read(rows: Iterable[StoredRow]) -> Iterator[tuple[int, Stored]]:
    read = FastReader(limit=sys.maxsize).read
    for session_no, stream_no, seq, offset, batch_no, raw in rows:
        event = accepted(read(raw), session_no, stream_no, seq)
        event.position = offset
        event.length = len(raw)
        yield session_no, Stored(event, stream_no, seq, batch_no)


def _in_pieces(connection: Connection, session_no: int) -> Iterator[list[Stored]]:
    """The events of one session, some at a time. In the caller's transaction."""
    for piece in ordered_pieces(connection, session_no, ("kafka_offset", "stream_no", "seq", "batch_no")):
        rows = (
            (session_no, stream_no, seq, offset, batch, raw) for raw, offset, stream_no, seq, batch in piece
        )
        yield [one for _, one in _read(rows)]


def shared_out(
    connection: Connection, sessions: Sequence[int], most: int = sys.maxsize
) -> tuple[set[int], list[list[int]]]:
    """(those that are too long to be held as a whole, the others in groups of about ``most`` events)."""
    long: set[int] = set()
    groups: list[list[int]] = []
    held = most
    known = dict(lengths(connection, sessions))
    for number in sessions:
        events = known.get(number, 0)
        if events > LONG_EVENTS:
            long.add(number)
            continue
        if held + events > most:
            groups.append([])
            held = 0
        groups[-1].append(number)
        held += events
    return long, groups


def lengths(connection: Connection, sessions: Sequence[int]) -> list[tuple[int, int]]:
    """(session_no, how many events it has)."""
    return connection.execute(query("replay/lengths"), {"sessions": list(sessions)}).fetchall()


def new_entry(one: Found, turns: Mapping[str, WrittenTurn]) -> SessionEntry:
    """A session that is folded from its beginning. ``turns``: as readers see them, so that numbers stay and revisions go on."""
    entry = SessionEntry(
        session_no=one.session_no,
        key=one.key,
        home=one.home,
        state=SessionState(*one.key),
        fresh=False,
        kafka_key=b"",
        turns=dict(turns),
        wipe=True,
    )
    entry.next_turn_no = 1 + max((turn.turn_no for turn in turns.values()), default=0)
    return entry


def _copied(turns: Mapping[str, WrittenTurn]) -> dict[str, WrittenTurn]:
    return {key: WrittenTurn(turn.turn_no, turn.revision, turn.digest) for key, turn in turns.items()}


def learn(entry: SessionEntry, events: Iterable[Stored]) -> None:
    """Where the rows of these events stand: numbers of streams, ordinals of receipts."""
    for one in events:
        event = one.event
        key = (event.producer, event.epoch, event.stream)
        stream = entry.streams.get(key)
        if stream is None:
            stream = entry.streams[key] = StreamEntry(one.stream_no, entry.session_no, entry.home, key, False)
        if one.seq < 0 and event.receipt_key is not None:
            stream.receipts[receipt_hash(event.receipt_key)] = -1 - one.seq


def units_of(connection: Connection, entry: SessionEntry, changes: SessionChanges) -> tuple[list[Unit], int]:
    """The units that write what moved, and how many cannot even be made."""
    named = receipts_named(entry, changes)
    ordinals = load.known_receipts(connection, list(named)) if named else {}
    units, refused = project(entry, changes, ordinals)
    return units, len(refused)


def carry_vacuumed(connection: Connection, slot: str, live: str, sessions: Collection[int]) -> None:
    """What stands of sessions whose events are gone: no fold can make it any more, and late events move no sum (contract 12)."""
    numbers = sorted(sessions)
    carry(connection, numbers, source=live, target=slot)
    for table in DETAIL:
        connection.execute(
            sql.SQL("delete from {} where session_no = any(%s)").format(sql.Identifier(slot, table)),
            (numbers,),
        )


class LongFold:
    """One long session, folded from its beginning in the caller's transaction: turns are written as they end, and let go of.

    Memory grows with what a state keeps of its items and turns, not with its events. Where an event comes behind what was let go of, the session is
    read whole after all, as a worker reads it.
    """

    def __init__(self, connection: Connection, slot: str, entry: SessionEntry, *, fresh: bool) -> None:
        self.connection = connection
        self.slot = slot
        self.entry = entry
        self.fresh = fresh
        self.done = Folded(sessions=1)
        self.batches: set[int] = set()
        """Whose events it was made of."""
        self._live = _copied(entry.turns)
        """Turns as readers see them."""
        self._written: set[int] = set()
        """Numbers of turns that stand in the slot."""

    def run(self) -> Folded:
        """Raises ``LedgerUnreadable``."""
        state = self.entry.state
        try:
            for piece in _in_pieces(self.connection, self.entry.session_no):
                self._learn(piece)
                self.done.events += len(piece)
                state.extend([one.event for one in piece])
                self._store(state.take_changes(False))
                state.drop_closed()
            self._store(state.take_changes(True, force=True))
        except NeedsHistory:
            self._whole()
        return self.done

    def _whole(self) -> None:
        """From the beginning, with everything at hand."""
        entry = self.entry
        entry.state = SessionState(*entry.key)
        entry.turns = _copied(self._live)
        entry.wipe = True
        self.fresh = False
        self._written.clear()
        self.done.refused = 0
        history = stored_events(self.connection, query("replay/events"), {"sessions": [entry.session_no]})[
            entry.session_no
        ]
        self._learn(history)
        self.done.events = len(history)
        entry.state.extend([one.event for one in history])
        self._store(entry.state.take_changes(True, force=True))

    def _learn(self, events: Iterable[Stored]) -> None:
        for stream in self.entry.streams.values():
            # What is asked for later is asked of the ledger.
            stream.receipts.clear()
        learn(self.entry, events)
        self.batches.update(one.batch_no for one in events)

    def _store(self, changes: SessionChanges) -> None:
        for turn in changes.turns:
            self._as_readers_see_it(turn.turn.key, turn.digest)
        units, refused = units_of(self.connection, self.entry, changes)
        self.done.refused += refused
        if self.fresh:
            units = [unit for unit in units if not unit.wipe]
        for unit in units:
            if unit.turn is None:
                continue
            number = unit.turn[1]
            unit.delete_turn = number in self._written
            if unit.rows:
                self._written.add(number)
            else:
                self._written.discard(number)
        self.done.refused += len(store_projection(self.connection, self.slot, units))

    def _as_readers_see_it(self, key: str, digest: str) -> None:
        """A turn that is written more than once has moved once: from what readers see."""
        written = self.entry.turns.get(key)
        if written is not None:
            live = self._live.get(key)
            written.revision = 1 if live is None else live.revision
            written.digest = digest if live is None else live.digest


def fold_sessions(
    connection: Connection, slot: str, live: str, sessions: Sequence[int], *, fresh: bool
) -> Folded:
    """Fold some sessions from their beginning and write them into ``slot``, in the caller's transaction. ``fresh``: nothing of them stands there yet.

    ``live``: the schema that readers see. Raises ``LedgerUnreadable``.
    """
    done = Folded()
    gone = vacuumed_among(connection, sessions)
    if gone:
        carry_vacuumed(connection, slot, live, gone)
        sessions = [number for number in sessions if number not in gone]
    turns = load.written_turns(connection, sessions, live)
    long, groups = shared_out(connection, sessions)
    stored = stored_events(connection, query("replay/events"), {"sessions": list(chain(*groups))})
    units: list[Unit] = []
    for one in load.find_numbers(connection, sessions):
        entry = new_entry(one, turns.pop(one.session_no, {}))
        if one.session_no in long:
            done.add(LongFold(connection, slot, entry, fresh=fresh).run())
            continue
        events = stored.pop(one.session_no, [])
        if not events:
            if not fresh:
                units.append(Unit(one.session_no, *one.key, one.home[1], None, wipe=True))
            continue
        learn(entry, events)
        entry.state.extend([each.event for each in events])
        made, refused = units_of(connection, entry, entry.state.take_changes(True, force=True))
        units += (unit for unit in made if not (fresh and unit.wipe))
        done.add(Folded(1, len(events), refused))
    done.refused += len(store_projection(connection, slot, units))
    return done
