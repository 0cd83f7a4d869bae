"""Cold loads: sessions that the cache does not hold, read from the ledger as they are committed (design 3.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from turnledger.contract.event import Event
from turnledger.fold.model import StreamKey
from turnledger.fold.seen import StreamSeen
from turnledger.fold.state import SessionState
from turnledger.ingest.batch import Partition
from turnledger.ingest.cache import (
    RECEIPTS_IN_MEMORY,
    SessionEntry,
    SessionKey,
    StreamEntry,
    WrittenTurn,
)
from turnledger.ingest.holes import LiveGap
from turnledger.ingest.vacuumed import VacuumedState
from turnledger.store.keys import receipt_hash
from turnledger.store.named import query
from turnledger.store.read import session_events
from turnledger.store.vacuumed import kept_declarations, late_declarations, vacuumed_among
from turnledger.store.write_rows import StreamDays

Connection = psycopg.Connection[Any]


def kafka_key(key: SessionKey) -> bytes:
    """The record key of a session's events (contract 2)."""
    return f"{key[0]}/{key[1]}".encode()


@dataclass(frozen=True, slots=True)
class Found:
    """A session that the ledger has."""

    session_no: int
    key: SessionKey
    home: Partition


def find(connection: Connection, keys: Sequence[SessionKey]) -> dict[SessionKey, Found]:
    """Which of these sessions the ledger has."""
    rows = connection.execute(
        query("load/sessions"), {"tenants": [key[0] for key in keys], "ids": [key[1] for key in keys]}
    )
    return {(row[1], row[2]): Found(row[0], (row[1], row[2]), (row[3], row[4])) for row in rows}


def find_numbers(connection: Connection, session_nos: Sequence[int]) -> list[Found]:
    """The same by number."""
    rows = connection.execute(query("load/sessions_by_number"), {"sessions": list(session_nos)})
    return [Found(row[0], (row[1], row[2]), (row[3], row[4])) for row in rows]


def new_entry(key: SessionKey, session_no: int, home: Partition) -> SessionEntry:
    """A session that was never seen before."""
    return SessionEntry(
        session_no=session_no,
        key=key,
        home=home,
        state=SessionState(*key),
        fresh=True,
        kafka_key=kafka_key(key),
    )


def _nothing(
    connection: Connection, streams: Mapping[int, Sequence[StreamEntry]]
) -> Mapping[int, SessionState]:
    return {}


def load(
    connection: Connection,
    found: Sequence[Found],
    slot: str,
    stale: Iterable[int] = (),
    *,
    states: bool = True,
    ahead: Callable[[Connection, Mapping[int, Sequence[StreamEntry]]], Mapping[int, SessionState]] = _nothing,
) -> list[SessionEntry]:
    """Sessions with their streams, from committed state. ``stale``: session numbers whose projection is not known to be whole.
    Without ``states`` the states are empty, and every projection counts as not whole: but those of vacuumed sessions, whose projections stay.
    ``ahead`` gives states that were read before and are what the ledger holds now (``Ahead.taken``): these are not read again.
    """
    if not found:
        return []
    unsure = set(stale)
    numbers = [one.session_no for one in found]
    streams = streams_of(connection, found)
    turns = written_turns(connection, numbers, slot)
    facts = {
        row[0]
        for row in connection.execute(
            query("load/facts").replace(b"{slot}", slot.encode()), {"sessions": numbers}
        )
    }
    vacuumed = vacuumed_among(connection, numbers)
    whole = [number for number in numbers if states and number not in vacuumed and number not in unsure]
    known = ahead(connection, {number: streams[number] for number in whole})
    entries = []
    for one in found:
        gone = one.session_no in vacuumed
        wipe = not gone and (not states or one.session_no in unsure)
        its_streams = {stream.key: stream for stream in streams[one.session_no]}
        entry = SessionEntry(
            session_no=one.session_no,
            key=one.key,
            home=one.home,
            state=known.get(one.session_no)
            or _state(connection, one, its_streams, gone=gone, folded=states, written=not wipe),
            fresh=False,
            kafka_key=kafka_key(one.key),
            streams=its_streams,
            turns=turns[one.session_no],
            wipe=wipe,
            vacuumed=gone,
            facts_written=one.session_no in facts,
            # Whether there are such rows is not worth a question: deleting none costs little.
            loose_written=True,
            findings_written=True,
        )
        entry.next_turn_no = 1 + max((turn.turn_no for turn in entry.turns.values()), default=0)
        entries.append(entry)
    return entries


def _state(
    connection: Connection,
    one: Found,
    streams: dict[StreamKey, StreamEntry],
    *,
    gone: bool,
    folded: bool,
    written: bool,
) -> SessionState:
    if gone:
        kept = kept_declarations(connection, one.session_no)
        late = [declared.event for declared in late_declarations(connection, one.session_no)]
        return VacuumedState(*one.key, kept, late, streams)
    if folded:
        return SessionState.from_history(
            *one.key, session_events(connection, one.session_no), written=written
        )
    return SessionState(*one.key)


def streams_of(connection: Connection, found: Iterable[Found]) -> dict[int, list[StreamEntry]]:
    """Who has seen what of these sessions, by session number."""
    homes = {one.session_no: one.home for one in found}
    by_session: dict[int, list[StreamEntry]] = defaultdict(list)
    by_number: dict[int, StreamEntry] = {}
    chunks: dict[int, dict[int, bytes]] = defaultdict(dict)
    rows = connection.execute(query("load/streams"), {"sessions": list(homes)}).fetchall()
    numbers = [row[0] for row in rows]
    for stream_no, chunk, bits in connection.execute(query("load/chunks"), {"streams": numbers}):
        chunks[stream_no][chunk] = bits
    for (
        stream_no,
        session_no,
        producer,
        epoch,
        stream,
        stored_hi,
        low,
        holes,
        receipts,
        open_gaps,
        hi,
        day,
        seq_from,
        seq_to,
    ) in rows:
        # Only pure extension is written late: everything between the stored greatest number and the real one was seen too.
        seen = StreamSeen(stored_hi if hi is None else max(hi, stored_hi), chunks[stream_no])
        entry = StreamEntry(
            stream_no=stream_no,
            session_no=session_no,
            home=homes[session_no],
            key=(producer, epoch, stream),
            fresh=False,
            seen=seen,
            days=StreamDays(day, seq_from, max(seq_to, seen.hi)) if day is not None else StreamDays(),
            stored=(low, stored_hi, holes, receipts, open_gaps),
            open_gaps=open_gaps,
            next_ordinal=receipts,
        )
        entry.receipts_whole = entry.next_ordinal <= RECEIPTS_IN_MEMORY
        by_session[session_no].append(entry)
        by_number[stream_no] = entry
    whole = [n for n, entry in by_number.items() if entry.next_ordinal and entry.receipts_whole]
    if whole:
        for stream_no, key_hash, ordinal in connection.execute(query("load/receipts"), {"streams": whole}):
            by_number[stream_no].receipts[key_hash] = ordinal
    for stream_no, *row in connection.execute(query("load/gaps"), {"streams": numbers}):
        by_number[stream_no].gaps.append(LiveGap(*row))
    return by_session


def written_turns(
    connection: Connection, session_nos: Sequence[int], slot: str
) -> dict[int, dict[str, WrittenTurn]]:
    """The turns of some sessions as a generation has them, by session and ``turn_key``."""
    turns: dict[int, dict[str, WrittenTurn]] = defaultdict(dict)
    rows = connection.execute(
        query("load/turns").replace(b"{slot}", slot.encode()), {"sessions": list(session_nos)}
    )
    for session_no, key, turn_no, revision, digest in rows:
        turns[session_no][key] = WrittenTurn(turn_no, revision, digest)
    return turns


def unknown_receipts(entry: SessionEntry, events: Iterable[Event]) -> dict[tuple[int, bytes], StreamEntry]:
    """Receipts among ``events`` of which memory cannot tell whether the ledger has them: their streams have too many to keep."""
    wanted: dict[tuple[int, bytes], StreamEntry] = {}
    for event in events:
        if event.seq is not None or event.receipt_key is None:
            continue
        stream = entry.streams.get((event.producer, event.epoch, event.stream))
        if stream is not None and not stream.receipts_whole:
            key_hash = receipt_hash(event.receipt_key)
            if key_hash not in stream.receipts:
                wanted[stream.stream_no, key_hash] = stream
    return wanted


def known_receipts(
    connection: Connection, wanted: Sequence[tuple[int, bytes]]
) -> dict[tuple[int, bytes], int]:
    """Ordinals of those receipts that the ledger has, by (stream_no, key hash)."""
    rows = connection.execute(
        query("load/known_receipts"),
        {"streams": [one[0] for one in wanted], "hashes": [one[1] for one in wanted]},
    )
    return {(row[0], row[1]): row[2] for row in rows}


def stale_sessions(connection: Connection, topic: str, partition: int, flushed_batch: int) -> list[int]:
    """Sessions of the batches beyond ``flushed_batch``: their projections may not be whole (design 3, point 6)."""
    rows = connection.execute(
        query("load/stale"), {"topic": topic, "partition": partition, "flushed_batch": flushed_batch}
    )
    return [row[0] for row in rows]


def last_batch(connection: Connection, topic: str, partition: int) -> int:
    """The last batch that was applied to a partition; 0 when there was none."""
    row = connection.execute(query("load/last_batch"), {"topic": topic, "partition": partition}).fetchone()
    return int(row[0]) if row is not None and row[0] is not None else 0


def recent_dead(connection: Connection, topic: str, partition: int, start: int) -> list[int]:
    """Offsets of the dead letters of a partition from ``start`` on, ascending."""
    found = connection.execute(
        query("load/recent_dead"), {"topic": topic, "partition": partition, "start": start}
    )
    return [row[0] for row in found]


def numbers(connection: Connection, sequence: str, count: int) -> list[int]:
    """``count`` new numbers of one of the ledger's sequences (``sessions`` or ``streams``)."""
    rows = connection.execute(query(f"load/numbers_{sequence}"), {"count": count})
    return [row[0] for row in rows]
