"""Owns the proof of one long session (I1, I4, I5, I7) piece by piece: its events in about the order of contract 5, turns compared and let go of as they end.

Says what ``refold`` and ``resum`` say of a session that is held whole. What follows the session's length is small: what a state keeps of its turns and items,
two numbers a turn, eight bytes a compared row, and the receipts of events without a number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from turnledger.doctor.faults import Fault
from turnledger.doctor.held import (
    COLUMNS,
    UNREADABLE,
    HeldEvent,
    Muster,
    StoredStream,
    as_events,
)
from turnledger.doctor.meeting import Faults, Meeting
from turnledger.doctor.refold import (
    COMPARED,
    POINT_KINDS,
    PROJECTED,
    SEVERAL,
    gap_faults,
    point_place,
    projected,
    revision_fault,
    row_place,
)
from turnledger.doctor.resum import (
    OVERLAID,
    SET,
    StoredRollup,
    delivery_findings,
    misnumbered,
    own_faults,
)
from turnledger.doctor.rows import Row, load
from turnledger.doctor.shares import share_faults
from turnledger.fold.document import session_rows
from turnledger.fold.model import SessionFold, TurnFold
from turnledger.fold.ownership import Ownership
from turnledger.fold.points import BODIES_TABLE, EXEC_TABLE
from turnledger.fold.rollup import PriceFunction, overlay, part_of, whole
from turnledger.fold.shares import Share, merged
from turnledger.fold.state import NeedsHistory, SessionChanges, SessionState
from turnledger.rollup import blocks
from turnledger.store.read import SessionRef, of_slot, ordered_pieces

LONG_EVENTS = 4000
"""A session of more is proven piece by piece: whole it takes about 6 KiB an event."""
AHEAD = 2000
"""Stored rows of a table that wait for their computed rows, at most."""
ROWS = 250
"""Rows of one answer of the database …"""
LARGE = 25
"""… and of tables whose rows may have a mebibyte."""
_LARGE = ("turn_records", BODIES_TABLE)

_RUNNING = """
case when seq < 0 then occurred_at
    else coalesce(
        max(occurred_at) over (partition by stream_no, seq < 0 order by seq),
        min(occurred_at) over (partition by stream_no, seq < 0)
    )
end, stream_no, abs(seq)"""
"""Running times, as far as the rows of one table tell them."""
_ORDER = {
    **dict.fromkeys(
        ("turns", "turn_records", "model_calls", "tool_calls", "usage_parts", "findings"), "turn_no"
    ),
    **dict.fromkeys(OVERLAID, "turn_no"),
    **dict.fromkeys(POINT_KINDS, _RUNNING),
}
"""By what the stored rows of a table come about as the computed ones do. It decides what is held meanwhile, never what is found."""
Place = tuple[str, int, str, int | None, str | None]


class OtherKind(Exception):
    """The session is all eval and does not say so, or the other way round: what its turns add is to be computed again."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What of a session's proof does not come from its events."""

    streams: Sequence[StoredStream]
    conflicts: Sequence[Row]
    letters: Sequence[Row]
    redactions: Sequence[Row]
    kept: Sequence[Fault]
    """I1 of its conflicts."""
    ownership: Ownership
    price: PriceFunction
    rollup: StoredRollup
    shown: int
    """Faults of one sentence that are kept."""


@dataclass(slots=True)
class Proven:
    """What was found."""

    events: int = 0
    turns: int = 0
    faults: list[Fault] = field(default_factory=list)


def prove(connection: psycopg.Connection[Any], slot: str, ref: SessionRef, beside: Beside) -> Proven:
    """In the caller's snapshot. Raises ``NeedsHistory`` where an event comes behind what was let go of: then the session is to be read whole."""
    facts = load(connection, slot, "session_facts", ["kind"], [ref.session_no])
    all_eval = bool(facts) and facts[0]["kind"] == "eval"
    try:
        return _Proof(connection, slot, ref, beside, all_eval).run()
    except OtherKind:
        return _Proof(connection, slot, ref, beside, not all_eval).run()


class _Proof:
    def __init__(
        self,
        connection: psycopg.Connection[Any],
        slot: str,
        ref: SessionRef,
        beside: Beside,
        all_eval: bool,
    ) -> None:
        """``all_eval``: the session's kind will be ``eval``, which decides what its sums show (contract 12)."""
        self.connection = connection
        self.slot = slot
        self.ref = ref
        self.beside = beside
        self.all_eval = all_eval
        self.named = {"tenant": ref.tenant, "session_id": ref.session_id}
        self.done = Proven()
        self.state = SessionState(ref.tenant, ref.session_id)
        self.numbers = {
            row["turn_key"]: row["turn_no"]
            for row in load(connection, slot, "turns", ["turn_key", "turn_no"], [ref.session_no])
        }
        self.turns: dict[str, TurnFold] = {}
        """Taken, and held by the state: they may still change."""
        self.points: dict[str, dict[tuple[Place, Hashable], Row]] = defaultdict(dict)
        """The same of rows at positions, by table."""
        self.places: dict[Place, tuple[int, int]] = {}
        """Where events stand whose rows may come."""
        self.gaps: list[Row] = []
        self.shares: dict[int, Share] = defaultdict(Share)
        """What the turns that were let go of add, by block."""
        self.unnumbered = Share()
        """What those add that have no number in the projection."""
        self.lacks_number = False
        self.misnumbered = Faults(beside.shown)
        self.open: list[Generator[list[Row]]] = []
        self.meetings = {
            ("I4", table): self._meeting("I4", table, listed, key, PROJECTED[table])
            for table, (listed, key) in COMPARED.items()
        } | {
            ("I5", table): self._meeting("I5", table, listed, key, [name for name, _ in SET[table]])
            for table, (listed, key) in OVERLAID.items()
        }

    def run(self) -> Proven:
        try:
            return self._run()
        finally:
            for rows in self.open:
                rows.close()

    def _run(self) -> Proven:
        done, state = self.done, self.state
        muster = Muster(self.ref, self.beside.streams)
        told = Faults(self.beside.shown)
        unreadable = False
        with closing(ordered_pieces(self.connection, self.ref.session_no, COLUMNS)) as pieces:
            for piece in pieces:
                events, faults = as_events(self.ref, self.beside.streams, piece)
                for fault in faults:
                    told.add(fault)
                    unreadable = unreadable or fault.what == UNREADABLE
                muster.add(events)
                done.events += len(events)
                if not (unreadable or muster.twice):
                    self._fold(events)
        done.faults += [*told, *self.beside.kept]
        if not unreadable:
            done.faults += muster.faults()
        if unreadable or muster.twice:
            # What a fold, or a count, would say follows from the fault.
            return done
        last = state.take_changes(True, force=True)
        if last.facts is None:
            # Not one event is there: nothing is long about it.
            raise NeedsHistory
        if (last.facts["kind"] == "eval") != self.all_eval:
            raise OtherKind
        self._take(last)
        self._end(last.facts, last)
        return done

    def _fold(self, events: Sequence[HeldEvent]) -> None:
        state = self.state
        if state.let_go:
            self.places.clear()
        self.places.update((point_place(one.event), (one.stream_no, one.seq)) for one in events)
        state.extend([one.event for one in events])
        self._take(state.take_changes(False))
        state.drop_closed()
        gone = [key for key in self.turns if not state.holds(key)]
        if gone:
            self._compare([self.turns.pop(key) for key in gone])
        if state.let_go:
            self._compare_points(final=False)

    # --- what was taken ----------------------------------------------------------------------------------------------------------

    def _take(self, changes: SessionChanges) -> None:
        for key in changes.removed_turns:
            self.turns.pop(key, None)
        for fold in changes.turns:
            self.turns[fold.turn.key] = fold
        if changes.gaps is not None:
            self.gaps = changes.gaps
        was: dict[Place, tuple[int, int]] = {}
        for table, gone in changes.replaced_points.items():
            places = set(gone)
            held = self.points[table]
            for name in [name for name in held if name[0] in places]:
                row = held.pop(name)
                was[name[0]] = (row["stream_no"], row["seq"])
        for *place, item_type in changes.replaced_items:
            self.points["model_items"].pop((tuple(place), item_type), None)  # type: ignore[arg-type]  # a key of five
        for table, rows in changes.points.items():
            self._hold(table, rows, was)
        if changes.items:
            self._hold("model_items", (item.row() for item in changes.items), was)

    def _hold(self, table: str, rows: Iterable[Row], was: dict[Place, tuple[int, int]]) -> None:
        held = self.points[table]
        beside = SEVERAL.get(table)
        for row in rows:
            place = row_place(row)
            # An open process keeps the place of its start, whose piece is gone.
            at = self.places.get(place) or was.get(place)
            if at is None:
                raise NeedsHistory
            held[place, None if beside is None else row[beside]] = {
                **row,
                "stream_no": at[0],
                "seq": at[1],
            }

    def _compare_points(self, *, final: bool) -> None:
        for table, held in self.points.items():
            if table == EXEC_TABLE and not final:
                ended = [name for name, row in held.items() if row["exited_at"] is not None]
                self.meetings["I4", table].add([held.pop(name) for name in ended])
            elif held:
                self.meetings["I4", table].add(held.values())
                held.clear()

    def _compare(self, turns: list[TurnFold]) -> None:
        """Turns that change no more: their rows, and what they add."""
        self.done.turns += len(turns)
        self._meet(self._part(turns))
        for turn in turns:
            self._add_up(turn)

    def _meet(self, fold: SessionFold) -> None:
        for table, rows in projected(fold, self.numbers, there=bool(fold.facts)):
            if rows:
                self.meetings["I4", table].add(rows)

    def _add_up(self, turn: TurnFold) -> None:
        part = part_of(
            session_rows(self._part([turn], kind=True), self.beside.conflicts, 0),
            self._owner,
            self.beside.price,
        )
        number = self.numbers.get(turn.turn.key)
        if number is None:
            self.lacks_number = True
            self.unnumbered = merged([self.unnumbered, part.share])
        else:
            self.shares[number // blocks.FAN] = merged([self.shares[number // blocks.FAN], part.share])
        sums = part.turns[turn.turn.key]
        laid = {
            **sums.row,
            "turn_key": turn.turn.key,
            "digest": turn.digest,
            "overlay": overlay(turn.record, sums),
        }
        self.meetings["I5", "turn_overlay"].add([laid])
        self.meetings["I5", "call_overlay"].add(part.calls)
        self.meetings["I5", "part_overlay"].add(part.parts)
        self.meetings["I5", "repriced"].add(part.repriced)

    # --- the end -----------------------------------------------------------------------------------------------------------------

    def _end(self, facts: Row, last: SessionChanges) -> None:
        beside, ref = self.beside, self.ref
        self._compare([*self.turns.values()])
        self._compare_points(final=True)
        outside = self._part([])
        outside.facts = facts
        outside.gaps = self.gaps
        outside.findings = last.findings or []
        if last.loose is not None:
            outside.calls, outside.tools, outside.parts = (
                last.loose.calls,
                last.loose.tools,
                last.loose.parts,
            )
        self._meet(outside)
        rows = session_rows(outside, beside.conflicts, len(beside.letters))
        loose = part_of(rows, self._owner, beside.price)
        self.meetings["I5", "call_overlay"].add(loose.calls)
        self.meetings["I5", "part_overlay"].add(loose.parts)
        self.meetings["I5", "repriced"].add(loose.repriced)
        share = merged([loose.share, self.unnumbered, *self.shares.values()])
        delivery = delivery_findings(beside.conflicts, beside.letters, beside.redactions)
        faults = self.done.faults
        faults += self._met("I4")
        faults += self._revisions()
        faults += gap_faults(ref, outside.gaps, beside.streams)
        faults += own_faults(ref, whole(rows, share, [loose]), delivery, beside.ownership, beside.rollup)
        faults += self._met("I5")
        faults += self.misnumbered
        faults += share_faults(
            ref,
            facts,
            lambda: None if self.lacks_number else dict(sorted(self.shares.items())),
            beside.rollup.of("rollup_shares", ref.session_no),
        )

    def _met(self, invariant: str) -> Iterator[Fault]:
        for (of, _), meeting in self.meetings.items():
            if of == invariant:
                yield from meeting.end()

    def _revisions(self) -> Iterator[Fault]:
        found = Faults(self.beside.shown)
        for turn_key, turn, record in self.connection.execute(
            of_slot("verify/revisions", self.slot), {"session_no": self.ref.session_no}
        ):
            found.add(revision_fault(self.named, turn_key, turn, record))
        return iter(found)

    # --- what is read and made ---------------------------------------------------------------------------------------------------

    def _owner(self, call_key: str) -> str:
        return self.beside.ownership.owner(self.ref.session_id, call_key)

    def _part(self, turns: list[TurnFold], *, kind: bool = False) -> SessionFold:
        """Some turns as a session. ``kind``: with the session's own, which their sums look at."""
        facts = {"kind": "eval" if self.all_eval else "live"} if kind else {}
        return SessionFold(
            tenant=self.ref.tenant,
            session_id=self.ref.session_id,
            turns=turns,
            calls=[],
            tools=[],
            parts=[],
            gaps=[],
            facts=facts,
            points={},
            findings=[],
        )

    def _meeting(
        self,
        invariant: str,
        table: str,
        listed: Sequence[tuple[str, str]],
        key: Callable[[Row], Hashable],
        names: Sequence[str],
    ) -> Meeting:
        rows = self._stored(table, names)
        self.open.append(rows)
        shown = self.beside.shown
        ahead = 4 * LARGE if table in _LARGE else AHEAD
        return Meeting(invariant, table, self.named, listed, key, rows, shown, ahead)

    def _stored(self, table: str, names: Sequence[str]) -> Generator[list[Row]]:
        """The stored rows of a table, some at a time."""
        with self.connection.cursor(f"verify_{table}", binary=True) as cursor:
            cursor.execute(self._statement(table, names), {"session_no": self.ref.session_no})
            while found := cursor.fetchmany(LARGE if table in _LARGE else ROWS):
                rows = [dict(zip(names, row, strict=True)) for row in found]
                if table == "turn_overlay":
                    for fault in misnumbered(self.named, rows, self.numbers):
                        self.misnumbered.add(fault)
                yield rows

    def _statement(self, table: str, names: Sequence[str]) -> sql.Composed:
        statement = sql.SQL("select {} from {} where session_no = %(session_no)s").format(
            sql.SQL(", ").join(map(sql.Identifier, names)), sql.Identifier(self.slot, table)
        )
        if table == "findings":
            statement += sql.SQL(" and source = 'fold'")
        order = _ORDER.get(table)
        return statement if order is None else statement + sql.SQL(f" order by {order}")
