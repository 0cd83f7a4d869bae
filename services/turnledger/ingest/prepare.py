"""A round before it is written: records decided and folded, rows made. Pure but for the cache that it moves on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from turnledger.contract.event import Event
from turnledger.fold.model import Row, StreamKey
from turnledger.fold.state import NeedsHistory, SessionChanges
from turnledger.ingest.batch import Fetched, Partition, anchor_crc
from turnledger.ingest.cache import SessionEntry, SessionKey, StreamEntry
from turnledger.ingest.decide import DeadWindow, Decider, Group
from turnledger.ingest.holes import compare, live_rows
from turnledger.ingest.project import project, receipts_named
from turnledger.ingest.seat import Piece, Seat
from turnledger.store.fence import Step, Stop
from turnledger.store.write import stream_row
from turnledger.store.write_rows import Round, Share, StreamTouch

UNDROPPED_EVENTS = 64
"""After so many events a state is asked to let go of closed turns."""


@dataclass(slots=True)
class Prepared:
    """One round, ready to be written."""

    number: int
    round: Round
    pieces: list[Piece]
    seats: dict[int, Seat]
    """By partition number."""
    dirty_round: dict[int, int | None]
    """By partition number: the first round whose changes are not projected when this has committed; None: all are."""
    entries: dict[SessionKey, SessionEntry] = field(default_factory=dict)
    streams: list[StreamEntry] = field(default_factory=list)
    """Streams that got events."""
    receipts: list[tuple[StreamEntry, bytes]] = field(default_factory=list)
    """Receipts of streams that do not keep all of theirs in memory."""
    stopping: dict[int, str] = field(default_factory=dict)
    """Partitions that stop when this has committed, and why."""
    stale_done: dict[int, list[int]] = field(default_factory=dict)
    """Sessions, by partition, that are whole when this has committed."""
    windows: dict[int, DeadWindow] = field(default_factory=dict)
    """The stop rule's windows, by partition number, as they were before."""
    records: int = 0
    size: int = 0
    seconds: float = 0.0
    careful: bool = False
    """Postgres refused a projection row of it: it is written under savepoints."""
    waiting: Sequence[Piece] = ()
    """Admitted pieces that come in later rounds."""
    foreign: set[Partition] | None = None
    """Homes of its sessions, where some live elsewhere: then it is decided anew inside its transaction."""
    batches: list[Fetched] = field(default_factory=list)
    abroad: set[SessionKey] = field(default_factory=set)
    """Sessions of which something came through another partition of ours than their home. They are written whole at once: the
    ``flushed_batch`` of a partition knows only the unwritten sessions that are at home there."""


def begin(
    number: int, topic: str, slot: str, pieces: Sequence[Piece], waiting: Sequence[Piece] = ()
) -> Prepared:
    """An empty round over ``pieces``, which continue each other within a partition; ``waiting`` come after them."""
    prepared = Prepared(number, Round(topic, slot, []), list(pieces), {}, {}, waiting=waiting)
    for piece in pieces:
        share = share_of(prepared, piece.seat)
        share.step = replace(share.step, to_offset=piece.to_offset)
        prepared.batches.extend(piece.batches)
    return prepared


def share_of(prepared: Prepared, seat: Seat) -> Share:
    """The round's share of a partition; one without records where it has none yet."""
    if seat.number in prepared.seats:
        return next(s for s in prepared.round.shares if s.step.partition == seat.number)
    # What was admitted and is in no round yet is not applied when this one commits.
    coming = itertools.chain(prepared.pieces, prepared.waiting)
    start = next((piece.from_offset for piece in coming if piece.seat is seat), seat.expected)
    share = Share(Step(seat.number, start, start, seat.epoch, seat.disturbed))
    prepared.seats[seat.number] = seat
    prepared.round.shares.append(share)
    return share


def read(prepared: Prepared, decider: Decider) -> dict[Partition, dict[SessionKey, Group]]:
    """Decode all pieces. A partition whose share of dead letters became too large ends at that record (contract 15)."""
    groups: dict[Partition, dict[SessionKey, Group]] = {}
    for piece in prepared.pieces:
        seat = piece.seat
        share = share_of(prepared, seat)
        if seat.number in prepared.stopping:
            # It stays a piece of the round: should that be rolled back, it waits again like the others.
            continue
        window = seat.window
        prepared.windows.setdefault(seat.number, window.copy())
        taken = decider.read(piece.records, share, groups.setdefault(seat.partition, {}), window)
        to_offset = piece.to_offset
        if window.exceeded:
            to_offset = piece.records[taken - 1].offset + 1
            stop = Stop(seat.number, to_offset, window.dead, window.window, window.share)
            prepared.round.stops.append(stop)
            prepared.stopping[seat.number] = stop_sentence(seat.topic, stop)
        last = piece.records[taken - 1]
        share.holes += (to_offset - piece.from_offset) - taken
        share.step = replace(
            share.step, to_offset=to_offset, anchor_offset=last.offset, anchor_crc=anchor_crc(last)
        )
        prepared.records += taken
        prepared.size += piece.size
    return groups


def stop_sentence(topic: str, stop: Stop) -> str:
    return (
        f"partition {stop.partition} of {topic} is stopped at {stop.at_offset}: {stop.dead} of its last {stop.window} records are dead "
        f"letters, and at most {stop.share:.0%} may be. Look at them (`turnledger dead list --topic {topic} --partition "
        f"{stop.partition}`), repair what sends them, then let it go on with `turnledger dead resume --topic {topic} --partition "
        f"{stop.partition} --why …`."
    )


class Folder:
    """Decides and folds the groups of a round over their entries."""

    def __init__(
        self,
        prepared: Prepared,
        decider: Decider,
        stream_numbers: Callable[[], int],
    ) -> None:
        self.prepared = prepared
        self.decider = decider
        self.stream_numbers = stream_numbers
        self.touched: list[StreamEntry] = []
        self.lacking: list[SessionEntry] = []
        """Sessions whose states need their history before they can be asked for changes."""

    def take_all(self, groups: Iterable[Group], find: Callable[[SessionKey], SessionEntry | None]) -> None:
        """Decide groups, each over the entry that ``find`` gives, and give what is accepted to the fold."""
        for group in groups:
            entry = find(group.key)
            assert entry is not None
            accepted = self.decide(entry, group)
            if accepted:
                entry.undropped += len(accepted)
                try:
                    entry.state.extend(accepted)
                except NeedsHistory:
                    if entry not in self.lacking:
                        self.lacking.append(entry)

    def decide(self, entry: SessionEntry, group: Group) -> list[Event]:
        """Decide one group. Returns what was accepted."""
        prepared = self.prepared
        prepared.entries[group.key] = entry
        entry.round_no = prepared.number
        entry.last_place = (group.share.step.partition, group.events[-1].position)
        if entry.fresh:
            entry.fresh = False
            prepared.round.sessions.append((entry.session_no, *entry.key, *entry.home))
        return self.decider.decide(entry, group, prepared.round, self.new_stream, self.touched)

    def new_stream(self, entry: SessionEntry, key: StreamKey) -> StreamEntry:
        stream = StreamEntry(self.stream_numbers(), entry.session_no, entry.home, key, True)
        entry.streams[key] = stream
        return stream

    @staticmethod
    def changes(entry: SessionEntry, include_open: bool) -> SessionChanges | None:
        """What the fold says has moved; None when nothing has. With ``entry.wipe`` everything has."""
        state = entry.state
        if entry.wipe:
            return state.take_changes(True, force=True)
        if include_open and (state.has_open_changes or state.has_changes):
            return state.take_changes(True)
        if state.has_changes:
            return state.take_changes(False, first_facts=True)
        return None

    def write(
        self, entry: SessionEntry, changes: SessionChanges, ordinals: Mapping[tuple[int, bytes], int]
    ) -> None:
        """Make the rows of ``changes``."""
        if changes.gaps is not None:
            self._gaps(entry, changes.gaps)
        units, refused = project(entry, changes, ordinals)
        if units or changes.gaps is not None:
            self.prepared.round.units.extend(units)
            self.prepared.round.marks.append(entry.session_no)
        self.prepared.round.unmade.extend(refused)

    def missing_receipts(self, entry: SessionEntry, changes: SessionChanges) -> set[tuple[int, bytes]]:
        return receipts_named(entry, changes)

    def _gaps(self, entry: SessionEntry, rows: Iterable[Row]) -> None:
        by_stream: dict[StreamKey, list[tuple[int, int, str]]] = {}
        for row in rows:
            by_stream.setdefault((row["producer"], row["epoch"], row["stream"]), []).append(
                (row["from_seq"], row["to_seq"], row["state"])
            )
        for key in by_stream:
            if key not in entry.streams:
                # Declared lost, and never a word of it came.
                self.new_stream(entry, key)
        for key, stream in entry.streams.items():
            runs = by_stream.get(key)
            if runs is None and not stream.gaps:
                continue
            now, open_gaps = live_rows(runs or ())
            compare(stream.stream_no, stream.gaps, now, stream.seen, self.prepared.round.gaps)
            stream.gaps = now
            stream.open_gaps = open_gaps
            if not stream.touched:
                stream.touched = True
                self.touched.append(stream)

    def finish(self, late: Callable[[StreamEntry, bool], None]) -> None:
        """Rows of the streams that were touched. ``late(stream, whether)`` hears of those whose row runs late from now on, or no
        longer."""
        round_ = self.prepared.round
        known_day = round_.known_day
        for stream in self.touched:
            first, last = stream.first, stream.last
            stream.touched = False
            stream.first = stream.last = None
            seen = stream.seen
            stored = stream.stored
            chunks_moved = seen.dirty or seen.gone
            if (
                stored is not None
                and not chunks_moved
                and stored[2] == seen.missing
                and stored[3] == stream.next_ordinal
                and stored[4] == stream.open_gaps
            ):
                # Only extended: the row runs late, and the stored range of its last day is open upwards.
                late(stream, True)
                days = stream.days
                if first is not None and last is not None:
                    if days.day == known_day and days.day is not None:
                        days.seq_to = last
                        round_.extended.append((stream.stream_no, days, first, last))
                    else:
                        round_.touched.append(StreamTouch(stream.stream_no, first, last, days))
                continue
            touch = StreamTouch(stream.stream_no, first, last, stream.days)
            state = stream.state()
            if stream.fresh:
                stream.fresh = False
                round_.streams.append(stream_row(stream.stream_no, stream.session_no, *stream.key, state))
            else:
                touch.row = state
                late(stream, False)
            stream.stored = state
            if chunks_moved:
                touch.chunks = [(chunk, seen.chunk_bytes(chunk)) for chunk in seen.dirty]
                touch.chunks_gone = list(seen.gone)
                seen.saved()
            round_.touched.append(touch)
        self.prepared.streams = self.touched

    def late_rows(self, streams: Iterable[StreamEntry]) -> None:
        """Rows that ran late."""
        for stream in streams:
            stream.stored = state = stream.state()
            self.prepared.round.touched.append(StreamTouch(stream.stream_no, None, None, stream.days, state))
