"""Sessions and streams that are being written: a least-recently-used cache, bounded in bytes (design 3, point 9).

What is dropped here is read from the ledger again: nothing in it is the only copy, but for what a round in flight has not committed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from turnledger.fold.model import StreamKey
from turnledger.fold.seen import StreamSeen
from turnledger.fold.state import SessionState
from turnledger.ingest.batch import Partition
from turnledger.ingest.holes import LiveGap
from turnledger.store.write_rows import StreamDays

SessionKey = tuple[str, str]
"""(tenant, session_id)."""

RECEIPTS_IN_MEMORY = 10_000
"""Receipt keys kept for one stream, 100 bytes each; a longer stream asks the ledger."""

LOOKED_AT = 1000
"""So many entries that may not go are looked at after a round, those used least first."""

_ENTRY_BYTES = 1200
_STREAM_BYTES = 900
_TURN_BYTES = 250
_RECEIPT_BYTES = 110


@dataclass(slots=True)
class StreamEntry:
    """One stream: who has seen what, and what of it is stored."""

    stream_no: int
    session_no: int
    home: Partition
    key: StreamKey
    fresh: bool
    """Its row is not in the ledger yet."""
    seen: StreamSeen = field(default_factory=StreamSeen)
    days: StreamDays = field(default_factory=StreamDays)
    stored: tuple[int, int, int, int, int] | None = None
    """(low, hi, holes, receipts, open_gaps) as the row has them."""
    gaps: list[LiveGap] = field(default_factory=list)
    open_gaps: int = 0
    receipts: dict[bytes, int] = field(default_factory=dict)
    """Key hash: ordinal. All of the stream's when ``receipts_whole``, else those of rounds that may not be committed."""
    receipts_whole: bool = True
    next_ordinal: int = 0
    # Of the round that is being decided.
    first: int | None = None
    last: int | None = None
    touched: bool = False

    @property
    def events(self) -> int:
        """How many were accepted."""
        return self.seen.hi + 1 - self.seen.missing + self.next_ordinal

    def state(self) -> tuple[int, int, int, int, int]:
        """What its row should say: (low, hi, holes, receipts, open_gaps)."""
        seen = self.seen
        return (seen.low, seen.hi, seen.missing, self.next_ordinal, self.open_gaps)


@dataclass(slots=True)
class WrittenTurn:
    """A turn as the projection has it."""

    turn_no: int
    revision: int
    digest: str | None
    """None: its rows are gone."""


@dataclass(slots=True)
class SessionEntry:
    """One session that is being written."""

    session_no: int
    key: SessionKey
    home: Partition
    state: SessionState
    fresh: bool
    """Its row is not in the ledger yet."""
    kafka_key: bytes
    streams: dict[StreamKey, StreamEntry] = field(default_factory=dict)
    turns: dict[str, WrittenTurn] = field(default_factory=dict)
    next_turn_no: int = 1
    wipe: bool = False
    """What the projection holds of it is not known to be whole: the next write replaces everything."""
    vacuumed: bool = False
    """Its events are gone: what the projection holds of it stays (contract 12)."""
    facts_written: bool = False
    loose_written: bool = False
    findings_written: bool = False
    round_no: int = 0
    """The last round that touched it."""
    dirty_since: int | None = None
    """The first round whose changes are not projected yet; None when the projection is whole."""
    last_place: tuple[int, int] | None = None
    """(partition, offset) of the last record that moved it; None while it is as it was read."""
    undropped: int = 0
    """Events taken since the state last let go of closed turns."""

    def size_bytes(self) -> int:
        """Estimate of what it holds."""
        size = _ENTRY_BYTES + self.state.size_bytes + _TURN_BYTES * len(self.turns)
        for stream in self.streams.values():
            size += (
                _STREAM_BYTES
                + stream.seen.size_bytes
                + _RECEIPT_BYTES * len(stream.receipts)
                + 120 * len(stream.gaps)
            )
        return size


class SessionCache:
    """The entries of this worker, by session, least recently used first."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self._entries: OrderedDict[SessionKey, SessionEntry] = OrderedDict()
        self._sizes: dict[SessionKey, int] = {}
        self.get = self._entries.get
        self.touch: Callable[[SessionKey], None] = self._entries.move_to_end
        """Make an entry the most recently used."""
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: SessionKey) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[SessionEntry]:
        return iter(self._entries.values())

    def put(self, entry: SessionEntry) -> None:
        self._entries[entry.key] = entry
        self.measure(entry)

    def measure(self, entry: SessionEntry) -> None:
        """Count an entry's size anew and make it the most recently used."""
        size = entry.size_bytes()
        self.bytes += size - self._sizes.get(entry.key, 0)
        self._sizes[entry.key] = size
        self._entries.move_to_end(entry.key)

    def drop(self, key: SessionKey) -> None:
        if self._entries.pop(key, None) is not None:
            self.bytes -= self._sizes.pop(key)

    def drop_all(self) -> None:
        self._entries.clear()
        self._sizes.clear()
        self.bytes = 0

    def drop_homes(self, homes: Iterable[Partition]) -> None:
        """Forget every session that lives on one of these partitions."""
        gone = set(homes)
        for key in [key for key, entry in self._entries.items() if entry.home in gone]:
            self.drop(key)

    def shrink(self, committed_round: int) -> None:
        """Drop what was used least until the limit holds. What is not projected yet, or stands in a round that has not committed,
        stays: it waits at the other end for its turn to be looked at again, so that no round looks at all of it."""
        entries = self._entries
        stay = 0
        while self.bytes > self.limit_bytes and stay < min(LOOKED_AT, len(entries)):
            key, entry = next(iter(entries.items()))
            if entry.dirty_since is None and entry.round_no <= committed_round:
                self.drop(key)
                self.evicted += 1
            else:
                entries.move_to_end(key)
                stay += 1
