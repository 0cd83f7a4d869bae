"""Invariant I1 of one session: each event once, at the position that its bytes name, counted as seen, and found again where it would be looked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import chain
from sys import maxsize
from typing import Any, NamedTuple

import psycopg

from turnledger.contract.canonical import content_hash
from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.contract.reader import Rejected
from turnledger.contract.times import utc_text
from turnledger.doctor.faults import Fault
from turnledger.doctor.rows import Row
from turnledger.fold.model import StreamKey
from turnledger.fold.seen import StreamSeen
from turnledger.store.keys import receipt_hash
from turnledger.store.named import query
from turnledger.store.read import SessionRef

TWICE = "an event is in the ledger twice"
GONE_AND_HERE = "what a stream has seen is not the events that are there and those that were vacuumed"
UNREADABLE = "an event's bytes are no event any more"
CHUNK = 500 if psycopg.pq.version() >= 170_000 else 1
"""Rows of a long result that are in memory at once; an older libpq gives them one by one."""


@dataclass(slots=True)
class StoredStream:
    """One stream as the ledger remembers it."""

    stream_no: int
    key: StreamKey
    low: int
    hi: int
    holes: int
    receipts: int
    open_gaps: int
    vacuumed: int = 0
    """Events of it that are gone, seen and counted (contract 12)."""
    chunks: dict[int, bytes] = field(default_factory=dict)
    days: dict[date, tuple[int, int]] = field(default_factory=dict)
    known: dict[int, tuple[bytes, date]] = field(default_factory=dict)
    """Receipts: (hash of the key, day) by ordinal."""
    gaps: list[tuple[int, int, str, int, int]] = field(default_factory=list)
    """Live rows: (from, to, state, ranges, missing)."""

    @property
    def names(self) -> Row:
        producer, epoch, stream = self.key
        return {"producer": producer, "epoch": epoch, "stream": stream}


class HeldEvent(NamedTuple):
    """One event and where the ledger holds it."""

    event: Event
    stream_no: int
    seq: int
    """As in ``ledger.events``: below 0 for an event without a number."""
    day: date
    """Of its partition."""


def load_streams(
    connection: psycopg.Connection[Any], sessions: Sequence[int]
) -> dict[int, list[StoredStream]]:
    """The streams of some sessions, with everything that is kept about them."""
    by_session: dict[int, list[StoredStream]] = defaultdict(list)
    by_number: dict[int, StoredStream] = {}
    with connection.cursor(binary=True) as cursor:
        for session_no, stream_no, producer, epoch, stream, *state in cursor.execute(
            query("verify/streams"), {"sessions": list(sessions)}
        ):
            one = StoredStream(stream_no, (producer, epoch, stream), *state)
            by_session[session_no].append(one)
            by_number[stream_no] = one
        numbers = {"streams": list(by_number)}
        for stream_no, chunk, bits in cursor.execute(query("verify/chunks"), numbers):
            by_number[stream_no].chunks[chunk] = bits
        for stream_no, day, first, last in cursor.execute(query("verify/days"), numbers):
            by_number[stream_no].days[day] = (first, last)
        for stream_no, key_hash, ordinal, day in cursor.execute(query("verify/receipts"), numbers):
            by_number[stream_no].known[ordinal] = (key_hash, day)
        for stream_no, first, last, state_, ranges, missing in cursor.execute(query("verify/gaps"), numbers):
            by_number[stream_no].gaps.append((first, last, state_, ranges, missing))
    return by_session


COLUMNS = ("kafka_offset", "stream_no", "seq", "day", "type", "occurred_at")
"""Of a row, behind its bytes."""
StoredEvent = tuple[bytes, int, int, int, date, str, int | None]
"""(bytes, Kafka offset, stream_no, seq, day, type, instant), as in ``ledger.events``."""


def read_events(
    connection: psycopg.Connection[Any], ref: SessionRef, streams: Sequence[StoredStream]
) -> tuple[list[HeldEvent], list[Fault]]:
    """A session's events as its fold takes them, and what of I1 their rows break. Only ``CHUNK`` rows and the events are held."""
    return as_events(ref, streams, (row for _, row in stored_events(connection, [ref.session_no])))


def stored_events(
    connection: psycopg.Connection[Any], sessions: Sequence[int]
) -> Iterator[tuple[int, StoredEvent]]:
    """(session_no, row) of some sessions, in no order. ``CHUNK`` rows are held, and nothing else can be asked until the last one."""
    with connection.cursor(binary=True) as cursor:
        for session_no, *row in cursor.stream(
            query("verify/events"), {"sessions": list(sessions)}, size=CHUNK
        ):
            yield session_no, tuple(row)


def as_events(
    ref: SessionRef, streams: Sequence[StoredStream], rows: Iterable[StoredEvent]
) -> tuple[list[HeldEvent], list[Fault]]:
    """The same of rows that were read."""
    # What was accepted stays accepted, whatever limit is set now.
    read = FastReader(limit=maxsize).read
    by_number = {one.stream_no: one for one in streams}
    days: dict[date, date] = {}
    held: list[HeldEvent] = []
    faults: list[Fault] = []
    for raw, offset, stream_no, seq, day, kind, at in rows:
        event = read(raw)
        one = by_number[stream_no]
        if isinstance(event, Rejected):
            why = {"reason": event.reason, "field": event.field, "detail": event.detail}
            faults.append(Fault("I1", UNREADABLE, {**_named(ref), **one.names, "seq": seq, **why}))
            continue
        event.position = offset
        held.append(HeldEvent(event, stream_no, seq, days.setdefault(day, day)))
        place = {**_named(ref), **one.names, "seq": seq}
        if (event.tenant, event.session_id) != (ref.tenant, ref.session_id) or (
            (event.producer, event.epoch, event.stream),
            event.seq,
        ) != (one.key, seq if seq >= 0 else None):
            faults.append(Fault("I1", "an event stands at a position that its bytes do not name", place))
        elif (event.type, event.at) != (kind, at):
            stored = {"type": kind, "occurred_at": None if at is None else utc_text(at)}
            faults.append(Fault("I1", "an event's columns are not what its bytes say", {**place, **stored}))
    return held, faults


def events_faults(
    ref: SessionRef, streams: Sequence[StoredStream], events: Sequence[HeldEvent]
) -> list[Fault]:
    """I1 of one session: its events against what the ledger remembers of its streams."""
    faults: list[Fault] = []
    by_stream: dict[int, dict[int, date]] = defaultdict(dict)
    keys = {one.stream_no: one for one in streams}
    receipt_keys: dict[tuple[int, int], str] = {}
    for event, stream_no, seq, day in events:
        other = by_stream[stream_no].get(seq)
        if other is not None:
            place = {**_named(ref), **keys[stream_no].names, "seq": seq}
            days = sorted({other.isoformat(), day.isoformat()})
            faults.append(Fault("I1", TWICE, {**place, "days": days}))
        by_stream[stream_no][seq] = day
        if seq < 0 and event.receipt_key is not None:
            receipt_keys[stream_no, seq] = event.receipt_key
    if faults:
        # What else is wrong follows from these.
        return faults
    for one in streams:
        place = {**_named(ref), **one.names}
        held = by_stream[one.stream_no]
        faults += _seen_faults(
            one, place, sorted(seq for seq in held if seq >= 0), sum(seq < 0 for seq in held)
        )
        latest = max(one.days, default=None)
        lost = next(
            ((seq, day) for seq, day in held.items() if seq >= 0 and not _findable(one, latest, seq, day)),
            None,
        )
        faults += _day_faults(place, lost)
        faults += _receipt_faults(one, place, held, receipt_keys)
    return faults


def _named(ref: SessionRef) -> Row:
    return {"tenant": ref.tenant, "session_id": ref.session_id}


def _seen_faults(one: StoredStream, place: Row, numbers: Sequence[int] | _Runs, receipts: int) -> list[Fault]:
    """``numbers`` ascending; ``receipts``: how many events without one there are."""
    # A stream that is merely extended is written late: the greatest number in the ledger counts as well (design 3.2).
    last = numbers.last if isinstance(numbers, _Runs) else max(numbers, default=-1)
    hi = max(one.hi, last)
    seen = StreamSeen(hi, one.chunks)
    unseen = next((seq for seq in numbers if seq not in seen), None)
    if unseen is not None:
        what = "an event is in the ledger that its stream does not count as seen"
        return [Fault("I1", what, {**place, "seq": unseen})]
    counted = hi + 1 - seen.missing
    if one.vacuumed:
        gone = counted - len(numbers) + one.receipts - receipts
        if gone != one.vacuumed or counted < len(numbers) or one.receipts < receipts:
            row = {**place, "seen": counted + one.receipts, "vacuumed": one.vacuumed}
            return [Fault("I1", GONE_AND_HERE, {**row, "events": len(numbers) + receipts})]
    elif counted != len(numbers):
        row = {**place, "seq": _lacking(seen, numbers), "seen": counted, "events": len(numbers)}
        return [Fault("I1", "a number counts as seen whose event is not in the ledger", row)]
    if one.holes != seen.missing:
        row = {**place, "holes": one.holes, "missing": seen.missing}
        return [Fault("I1", "a stream's count of holes is not that of its chunks", row)]
    low = StreamSeen(one.hi, one.chunks).low
    if one.low != low:
        row = {**place, "low": one.low, "least_missing": low}
        return [Fault("I1", "a stream's low is not the least number that it has not seen", row)]
    return []


def _lacking(seen: StreamSeen, numbers: Iterable[int]) -> int | None:
    """The least number that counts as seen and is not among ``numbers`` (ascending)."""
    after_hole = {first: last + 1 for first, last in seen.holes()}
    at = 0
    for seq in numbers:
        at = after_hole.get(at, at)
        if at != seq:
            return at
        at = seq + 1
    at = after_hole.get(at, at)
    return at if at <= seen.hi else None


def _findable(one: StoredStream, latest: date | None, seq: int, day: date) -> bool:
    """A number whose day is not written down would not be found when it comes again. ``latest``: the last day that is."""
    known = one.days.get(day)
    return known is not None and seq >= known[0] and (seq <= known[1] or day == latest)


def _day_faults(place: Row, lost: tuple[int, date] | None) -> list[Fault]:
    if lost is None:
        return []
    row = {**place, "seq": lost[0], "day": lost[1].isoformat()}
    return [Fault("I1", "a number's day is not written down", row)]


def _receipt_faults(
    one: StoredStream, place: Row, held: Mapping[int, date], receipt_keys: Mapping[tuple[int, int], str]
) -> list[Fault]:
    stored = {-1 - ordinal: known for ordinal, known in one.known.items()}
    computed = {
        seq: (receipt_hash(receipt_keys[one.stream_no, seq]), day)
        for seq, day in held.items()
        if (one.stream_no, seq) in receipt_keys
    }
    # What a vacuum took leaves its receipts: a repeat of it is known by them.
    names = computed.keys() if one.vacuumed else stored.keys() | computed.keys()
    for seq in sorted(names, reverse=True):
        if stored.get(seq) != computed.get(seq):
            return [_not_agreeing(place, -1 - seq, receipt_keys.get((one.stream_no, seq)))]
    return _receipt_count(one, place)


def _not_agreeing(place: Row, ordinal: int, receipt_key: str | None) -> Fault:
    row = {**place, "ordinal": ordinal, "receipt_key": receipt_key}
    return Fault("I1", "a receipt and the event that it stands for do not agree", row)


def _receipt_count(one: StoredStream, place: Row) -> list[Fault]:
    if one.receipts == len(one.known):
        return []
    row = {**place, "receipts": one.receipts, "known": len(one.known)}
    return [Fault("I1", "a stream's count of receipts is not that of its receipts", row)]


class _Runs:
    """Numbers that rise, as runs of neighbours."""

    def __init__(self) -> None:
        self._runs: list[list[int]] = []
        """[first, last]."""
        self._count = 0

    @property
    def last(self) -> int:
        return self._runs[-1][1] if self._runs else -1

    def append(self, seq: int) -> None:
        if self._runs and self._runs[-1][1] + 1 == seq:
            self._runs[-1][1] = seq
        else:
            self._runs.append([seq, seq])
        self._count += 1

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(range(first, last + 1) for first, last in self._runs)


class _Met:
    """What of one stream has passed."""

    def __init__(self, one: StoredStream) -> None:
        self.stream = one
        self.numbers = _Runs()
        self.latest = max(one.days, default=None)
        self.day = date.min
        """Of the last number."""
        self.lost: tuple[int, date] | None = None
        """The first number that would not be found, and its day."""
        self.receipts = 0
        self.met: dict[int, bool] = {}
        """Ordinals of events without a number, and whether a receipt stands for them."""
        self.wrong: tuple[int, str] | None = None
        """The least ordinal whose receipt is another one, and the key of its event."""


class Muster:
    """I1 of one long session: ``events_faults`` of events that pass in about the order of contract 5, some at a time. Holds the runs of their numbers, and
    the ordinal of an event without one."""

    def __init__(self, ref: SessionRef, streams: Sequence[StoredStream]) -> None:
        self._ref = ref
        self._streams = {one.stream_no: _Met(one) for one in streams}
        self.twice: list[Fault] = []

    def add(self, events: Iterable[HeldEvent]) -> None:
        for event, stream_no, seq, day in events:
            met = self._streams[stream_no]
            if seq < 0:
                self._add_receipt(met, -1 - seq, day, event.receipt_key)
            elif seq <= met.numbers.last:
                self._tell_twice(met, seq, met.day, day)
            else:
                met.numbers.append(seq)
                met.day = day
                if met.lost is None and not _findable(met.stream, met.latest, seq, day):
                    met.lost = (seq, day)

    def _add_receipt(self, met: _Met, ordinal: int, day: date, receipt_key: str | None) -> None:
        known = met.stream.known.get(ordinal)
        if ordinal in met.met:
            self._tell_twice(met, -1 - ordinal, day if known is None else known[1], day)
        met.met[ordinal] = receipt_key is not None
        met.receipts += 1
        if (
            receipt_key is not None
            and known != (receipt_hash(receipt_key), day)
            and (met.wrong is None or ordinal < met.wrong[0])
        ):
            met.wrong = (ordinal, receipt_key)

    def _tell_twice(self, met: _Met, seq: int, one: date, other: date) -> None:
        place = {**_named(self._ref), **met.stream.names, "seq": seq}
        days = sorted({one.isoformat(), other.isoformat()})
        self.twice.append(Fault("I1", TWICE, {**place, "days": days}))

    def faults(self) -> list[Fault]:
        """Once all have passed."""
        if self.twice:
            # What else is wrong follows from these.
            return self.twice
        faults: list[Fault] = []
        for met in self._streams.values():
            one = met.stream
            place = {**_named(self._ref), **one.names}
            faults += _seen_faults(one, place, met.numbers, met.receipts)
            faults += _day_faults(place, met.lost)
            faults += self._receipt_faults(met, place)
        return faults

    @staticmethod
    def _receipt_faults(met: _Met, place: Row) -> list[Fault]:
        wrong = met.wrong
        if not met.stream.vacuumed:
            alone = min((at for at in met.stream.known if not met.met.get(at)), default=None)
            if alone is not None and (wrong is None or alone < wrong[0]):
                return [_not_agreeing(place, alone, None)]
        if wrong is not None:
            return [_not_agreeing(place, *wrong)]
        return _receipt_count(met.stream, place)


def conflict_faults(
    connection: psycopg.Connection[Any], refs: Mapping[int, SessionRef], streams: Mapping[int, StoredStream]
) -> Iterator[tuple[int, Fault]]:
    """Conflicts whose kept event is not there, or is not the one that they name, with their session's number. One that a vacuum took is not
    missed: its hash stays."""
    with connection.cursor(binary=True) as cursor:
        cursor.execute(query("verify/kept"), {"sessions": list(refs)})
        for session_no, stream_no, seq, kept, lost, raw, received in cursor:
            one = streams.get(stream_no)
            place = {**_named(refs[session_no]), **(one.names if one else {}), "seq": seq}
            row = {**place, "kept_sha256": kept.hex(), "lost_sha256": lost.hex()}
            if raw is None and one is not None and one.vacuumed:
                continue
            if raw is None:
                yield session_no, Fault("I1", "a conflict names an event that is not in the ledger", row)
            elif kept == lost or kept != (received if received is not None else content_hash(raw)):
                yield session_no, Fault("I1", "a conflict's kept hash is not that of the event", row)
