"""From pieces to a prepared round: sessions loaded, records decided and folded, rows made (design 3, points 6 and 9)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence

import structlog

from turnledger.fold.state import NeedsHistory, SessionChanges
from turnledger.ingest import load, prepare
from turnledger.ingest.batch import Partition
from turnledger.ingest.cache import SessionEntry, SessionKey, StreamEntry
from turnledger.ingest.decide import Group
from turnledger.ingest.prepare import Folder, Prepared
from turnledger.ingest.seat import Piece, Seat
from turnledger.ingest.settle import Settling
from turnledger.store.read import session_events
from turnledger.store.write_rows import Share

log = structlog.get_logger("turnledger.ingest")

STALE_SESSIONS_A_ROUND = 200

BEHIND = 5
"""So many times longer may open turns wait for their rows while rounds are full: what is read then is old, and most of these turns end in
one of the next rounds. (With thousands of open turns, writing each of them every second takes a third of the worker's time.)"""

ASKED_SHARE = 10
"""A full round asks one session for so many of its events what moved, or a quarter of those that wait; the others wait for the next rounds. Turns that
end together, and open ones that are written together, would make one round long and the next ones wait for its write."""


class Folding(Settling):
    """Prepares rounds over the cache."""

    def _to_flush(self) -> bool:
        return any((seat.dirty or seat.late or seat.stale) and seat.projects for seat in self.seats.values())

    def _flush_due(self, pieces: Sequence[Piece] = ()) -> bool:
        """Whether the round of ``pieces`` writes open turns too."""
        if not self._to_flush():
            return False
        wait = self.settings.open_turn_seconds * (BEHIND if self._full(pieces) else 1)
        return self.clock() >= self._flushed_at + wait

    def _full(self, pieces: Sequence[Piece]) -> bool:
        """More waits than one round holds, as far as a round can tell."""
        settings = self.settings
        return (
            sum(len(piece.records) for piece in pieces) >= settings.round_events
            or sum(piece.size for piece in pieces) >= settings.round_bytes
        )

    async def _prepare(self, pieces: list[Piece], flush: bool, *, patient: bool = True) -> Prepared | None:
        """Decide and fold. None when nothing is left to do."""
        began = time.perf_counter()
        number = next(self._round_numbers)
        current = [piece for piece in pieces if self._is_current(piece)]
        for piece in pieces:
            if not self._is_current(piece):
                self._finish(piece.batches, committed=False)
        pieces = current
        prepared = prepare.begin(number, self.settings.topic, self.slot, pieces, self._pieces)
        prepared.round.known_day = self._day
        by_partition = prepare.read(prepared, self.decider)
        groups = [group for found in by_partition.values() for group in found.values()]
        seats = {group.share.step.partition: prepared.seats[group.share.step.partition] for group in groups}
        try:
            foreign = await self._load(prepared, groups, seats, patient)
            if foreign:
                return self._foreign(prepared, groups, foreign)
            folder = Folder(prepared, self.decider, self.numbers.streams.pop)
            self.decider.passing = prepared.receipts
            # Each event may open a stream, and declare another one lost.
            await self._ensure_numbers("streams", 2 * prepared.records + 1000, patient)
            await self._known_receipts(prepared, groups, patient)
            folder.take_all(groups, self.cache.get)
            await self._stale(prepared, folder, flush, patient)
            await self._histories(folder, patient)
            await self._changes(prepared, folder, flush, patient)
        except BaseException:
            # Cut short, or failed: what was folded is not what is stored.
            self._forget(prepared)
            self._pieces.extendleft(reversed(pieces))
            raise
        folder.finish(self._late)
        if flush:
            self._flush_late(prepared, folder)
            self._flushed_at = self.clock()
        self._dirty_rounds(prepared)
        prepared.round.shares.sort(key=lambda share: share.step.partition)
        prepared.seconds = time.perf_counter() - began
        self.metrics.prepare_seconds.observe(prepared.seconds)
        return prepared

    async def _load(
        self, prepared: Prepared, groups: Sequence[Group], seats: Mapping[int, Seat], patient: bool
    ) -> dict[SessionKey, load.Found]:
        """Make sure that the cache holds every session of the round. Returns those that another worker writes."""
        known = self.cache.get
        unknown = [group for group in groups if known(group.key) is None]
        if not unknown:
            return self._elsewhere(prepared, groups)
        keys = list(dict.fromkeys(group.key for group in unknown))
        found = await self._read(patient, load.find, keys)
        ours = [one for one in found.values() if one.home in self.seats]
        stale = {number for seat in self.seats.values() for number in seat.stale}
        used = self.ahead.used
        entries = (
            await self._read(patient, load.load, ours, self.slot, stale, ahead=self.ahead.taken)
            if ours
            else []
        )
        for entry in entries:
            self.cache.put(entry)
            if entry.wipe:
                home = self.seats[entry.home]
                prepare.share_of(prepared, home)
                prepared.stale_done.setdefault(home.number, []).append(entry.session_no)
        if entries:
            self.metrics.loads.inc(len(entries) - (self.ahead.used - used))
        fresh = [group for group in unknown if group.key not in found]
        await self._ensure_numbers("sessions", len(fresh), patient)
        for group in fresh:
            if group.key not in self.cache:
                born = seats[group.share.step.partition].partition
                self.cache.put(load.new_entry(group.key, self.numbers.sessions.pop(), born))
        foreign = {key: one for key, one in found.items() if one.home not in self.seats}
        return foreign | self._elsewhere(prepared, groups)

    async def _ensure_numbers(self, sequence: str, count: int, patient: bool) -> None:
        """Have so many numbers for new sessions or streams ready."""
        lacking = self.numbers.lacking(sequence, count)
        if lacking:
            self.numbers.add(sequence, await self._read(patient, load.numbers, sequence, lacking))

    def _elsewhere(self, prepared: Prepared, groups: Sequence[Group]) -> dict[SessionKey, load.Found]:
        """A session at home on another partition of ours: its home's row is locked too. (One whose home was revoked meanwhile is not
        ours any more.)"""
        lost: dict[SessionKey, load.Found] = {}
        find = self.cache.get
        share: Share | None = None
        here: Partition | None = None
        for group in groups:
            entry = find(group.key)
            if group.share is not share:
                share = group.share
                here = (self.settings.topic, share.step.partition)
            if entry is None or entry.home == here:
                continue
            home = self.seats.get(entry.home)
            if home is None:
                lost[group.key] = load.Found(entry.session_no, entry.key, entry.home)
                self.cache.drop(group.key)
            else:
                prepare.share_of(prepared, home)
                prepared.abroad.add(group.key)
        return lost

    async def _known_receipts(self, prepared: Prepared, groups: Sequence[Group], patient: bool) -> None:
        """Ordinals of receipts in streams that have too many to keep: asked of the ledger, for this round alone."""
        wanted: dict[tuple[int, bytes], StreamEntry] = {}
        for group in groups:
            if group.unnumbered:
                entry = self.cache.get(group.key)
                assert entry is not None
                wanted |= load.unknown_receipts(entry, group.events)
        if not wanted:
            return
        known = await self._read(patient, load.known_receipts, list(wanted))
        for at, ordinal in known.items():
            wanted[at].receipts[at[1]] = ordinal
            prepared.receipts.append((wanted[at], at[1]))

    async def _stale(self, prepared: Prepared, folder: Folder, flush: bool, patient: bool) -> None:
        """Fold again some of the sessions whose projections are not known to be whole."""
        if not flush:
            return
        wanted: dict[int, Seat] = {}
        for seat in self.seats.values():
            for number in itertools.islice(seat.stale, max(0, STALE_SESSIONS_A_ROUND - len(wanted))):
                wanted[number] = seat
        if not wanted:
            return
        cached = {entry.session_no: entry for entry in self.cache if entry.session_no in wanted}
        found = await self._read(patient, load.find_numbers, [n for n in wanted if n not in cached])
        there = {one.session_no for one in found} | set(cached)
        # What came through here for a session that lives elsewhere was written whole at once; only its home's holder may write it.
        ours = [one for one in found if one.home in self.seats]
        entries = await self._read(patient, load.load, ours, self.slot, wanted) if ours else []
        for entry in entries:
            self.cache.put(entry)
        for number, seat in wanted.items():
            prepare.share_of(prepared, seat)
            prepared.stale_done.setdefault(seat.number, []).append(number)
        for entry in (*entries, *cached.values()):
            prepared.entries.setdefault(entry.key, entry)
            entry.round_no = prepared.number
        if len(there) < len(wanted):
            log.info(
                "sessions of a round that was never committed need no fold", count=len(wanted) - len(there)
            )

    async def _histories(self, folder: Folder, patient: bool) -> None:
        """States that let go of what they need now get it back from the ledger."""
        for entry in folder.lacking:
            history = await self._read(patient, session_events, entry.session_no)
            entry.state.restore(history)
            self.metrics.loads.inc()

    async def _changes(self, prepared: Prepared, folder: Folder, flush: bool, patient: bool) -> None:
        """Ask the fold what moved, and make its rows: what is finished at once, open turns with a flush."""
        wanted, waited = self._waited()
        wanted.update(prepared.entries)
        if flush:
            for seat in self.seats.values():
                if seat.projects:
                    wanted.update(seat.dirty)
        left = len(wanted)
        if patient and self._full(prepared.pieces):
            left = max(self.settings.round_events // ASKED_SHARE, len(waited) // 4)
        touch = self.cache.touch
        for key, entry in wanted.items():
            state = entry.state
            whole = flush or key in prepared.abroad or waited.get(key, False)
            if not (whole or entry.wipe or state.has_changes):
                # The usual case, thousands a round: a turn goes on.
                if entry.dirty_since is None and state.has_open_changes:
                    self._dirty(prepared, entry)
                touch(key)
                continue
            if left <= 0 and not entry.wipe and key not in prepared.abroad:
                if entry.dirty_since is None:
                    self._dirty(prepared, entry)
                self._waiting[key] = (entry.home, whole)
                touch(key)
                continue
            left -= 1
            changes = await self._asked(entry, whole, patient)
            if changes is not None:
                missing = folder.missing_receipts(entry, changes)
                ordinals: Mapping[tuple[int, bytes], int] = {}
                if missing:
                    ordinals = await self._read(patient, load.known_receipts, list(missing))
                folder.write(entry, changes, ordinals)
                prepared.entries[key] = entry
                entry.round_no = prepared.number
                if entry.home[1] not in prepared.seats:
                    prepare.share_of(prepared, self.seats[entry.home])
            if state.has_changes or state.has_open_changes:
                if entry.dirty_since is None:
                    self._dirty(prepared, entry)
            elif entry.dirty_since is not None:
                entry.dirty_since = None
                self.seats[entry.home].dirty.pop(key, None)
            self.cache.measure(entry)

    def _waited(self) -> tuple[dict[SessionKey, SessionEntry], dict[SessionKey, bool]]:
        """The sessions that an earlier round left to this one, and whether with their open turns."""
        waiting, self._waiting = self._waiting, {}
        entries: dict[SessionKey, SessionEntry] = {}
        for key, (home, _) in waiting.items():
            # What was dropped meanwhile, or let go of with its partition, is not ours to ask.
            seat = self.seats.get(home)
            entry = seat.dirty.get(key) if seat is not None and seat.projects else None
            if entry is not None:
                entries[key] = entry
        return entries, {key: whole for key, (_, whole) in waiting.items()}

    def _dirty(self, prepared: Prepared, entry: SessionEntry) -> None:
        """From this round on the entry has changes that are not projected."""
        entry.dirty_since = prepared.number
        self.seats[entry.home].dirty[entry.key] = entry

    async def _asked(self, entry: SessionEntry, flush: bool, patient: bool) -> SessionChanges | None:
        while True:
            try:
                return Folder.changes(entry, flush)
            except NeedsHistory:
                history = await self._read(patient, session_events, entry.session_no)
                entry.state.restore(history)
                self.metrics.loads.inc()

    def _late(self, stream: StreamEntry, late: bool) -> None:
        seat = self.seats.get(stream.home)
        if seat is None:
            return
        if late:
            seat.late[stream.stream_no] = stream
        else:
            seat.late.pop(stream.stream_no, None)

    def _flush_late(self, prepared: Prepared, folder: Folder) -> None:
        for seat in self.seats.values():
            if seat.late and seat.projects:
                prepare.share_of(prepared, seat)
                folder.late_rows(seat.late.values())
                seat.late = {}

    def _dirty_rounds(self, prepared: Prepared) -> None:
        """From which round the oldest unwritten changes of each partition date."""
        for number, seat in prepared.seats.items():
            oldest = next(iter(seat.dirty.values()), None)
            prepared.dirty_round[number] = None if oldest is None else oldest.dirty_since

    def _foreign(
        self,
        prepared: Prepared,
        groups: Sequence[Group],
        foreign: dict[SessionKey, load.Found],
    ) -> Prepared:
        """A round with sessions that live elsewhere: it is decided inside its transaction, and nothing of it is cached."""
        homes = {one.home for one in foreign.values()}
        for group in groups:
            entry = self.cache.get(group.key)
            if entry is None:
                continue
            homes.add(entry.home)
            home = self.seats.get(entry.home)
            if home is not None and home.dirty.pop(entry.key, None) is not None:
                home.stale[entry.session_no] = None
            for stream in entry.streams.values():
                if home is not None:
                    home.late.pop(stream.stream_no, None)
            self.cache.drop(entry.key)
        prepared.foreign = homes
        prepared.entries.clear()
        prepared.stale_done.clear()
        self._dirty_rounds(prepared)
        prepared.round.shares.sort(key=lambda share: share.step.partition)
        self.metrics.foreign.inc(len(foreign))
        return prepared
