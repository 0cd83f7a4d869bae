"""Folds sessions from the ledger into a generation that nobody reads: in pieces, each from its whole history (design 6).

It writes projections and nothing else: what the ledger knows of streams, gaps and duplicates is the ingest worker's.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from psycopg import sql

from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.contract.reader import Rejected
from turnledger.fold.state import SessionChanges, SessionState
from turnledger.ingest import load
from turnledger.ingest.cache import SessionEntry, StreamEntry, WrittenTurn
from turnledger.ingest.load import Found
from turnledger.ingest.project import project
from turnledger.replay.generation import Connection
from turnledger.store.keys import receipt_hash
from turnledger.store.named import query
from turnledger.store.read import LedgerUnreadable
from turnledger.store.vacuumed import DETAIL, carry, vacuumed_among
from turnledger.store.write import store_projection
from turnledger.store.write_rows import Unit


@dataclass(frozen=True, slots=True)
class Stored:
    """An accepted event where the ledger has it."""

    event: Event
    stream_no: int
    seq: int
    """As in ``ledger.events``: below 0 for a receipt."""
    batch_no: int


@dataclass(slots=True)
class Folded:
    """What was done."""

    sessions: int = 0
    events: int = 0
    refused: int = 0
    """Units that Postgres would not take."""


def stored_events(
    connection: Connection, name: str, parameters: Mapping[str, object]
) -> dict[int, list[Stored]]:
    """Events by session, in the order in which they were committed. ``name``: ``replay/events`` or ``replay/new_events``.

    Raises ``LedgerUnreadable``.
    """
    read = FastReader(limit=sys.maxsize).read
    found: dict[int, list[Stored]] = defaultdict(list)
    with connection.cursor(binary=True) as cursor:
        cursor.execute(query(name), parameters)
        for session_no, stream_no, seq, offset, batch_no, raw in cursor:
            event = read(raw)
            if isinstance(event, Rejected):
                raise LedgerUnreadable(
                    f"the event at stream_no {stream_no}, seq {seq} of session_no {session_no} was accepted once and is refused now "
                    f"({event.reason}: {event.detail}): restore ledger.events from a backup, or run the version that wrote it."
                )
            event.position = offset
            found[session_no].append(Stored(event, stream_no, seq, batch_no))
    for events in found.values():
        # A state extends best in the order in which a worker saw them.
        events.sort(key=lambda one: (one.batch_no, one.event.position))
    return found


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


def units_of(entry: SessionEntry, changes: SessionChanges) -> tuple[list[Unit], int]:
    """The units that write what moved, and how many cannot even be made."""
    units, refused = project(entry, changes, {})
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


def fold_sessions(
    connection: Connection, slot: str, live: str, sessions: Sequence[int], *, fresh: bool
) -> Folded:
    """Fold some sessions whole and write them into ``slot``, in the caller's transaction. ``fresh``: nothing of them stands there yet.

    ``live``: the schema that readers see. Raises ``LedgerUnreadable``.
    """
    done = Folded()
    gone = vacuumed_among(connection, sessions)
    if gone:
        carry_vacuumed(connection, slot, live, gone)
        sessions = [number for number in sessions if number not in gone]
    turns = load.written_turns(connection, sessions, live)
    stored = stored_events(connection, "replay/events", {"sessions": list(sessions)})
    units: list[Unit] = []
    for one in load.find_numbers(connection, sessions):
        events = stored.pop(one.session_no, [])
        entry = new_entry(one, turns.get(one.session_no, {}))
        if not events:
            if not fresh:
                units.append(Unit(one.session_no, *one.key, one.home[1], 0, wipe=True))
            continue
        learn(entry, events)
        entry.state.extend([each.event for each in events])
        made, refused = units_of(entry, entry.state.take_changes(True, force=True))
        units += (unit for unit in made if not (fresh and unit.wipe))
        done.sessions += 1
        done.events += len(events)
        done.refused += refused
    done.refused += len(store_projection(connection, slot, units))
    return done
