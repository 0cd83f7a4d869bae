"""Many sessions in one transaction, as long as each is alone: no call of theirs may be another's, and of a long one few turns have moved.

The rules are those of one session (``rollup.session``), and the code is: reads are answered from what was read at once, rows are gathered and written
at once. One session by itself costs some sixty round trips; most of a ledger is sessions that are alone.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnledger.fold.model import Row
from turnledger.rollup.blocks import LEVELS, blocks_of, neighbours, turns_of
from turnledger.rollup.claims import claims_of, number_identity
from turnledger.rollup.prices import PriceSource
from turnledger.rollup.rows import ALSO, BY_TURN, READ, Loaded, Place, Statements, Torn, array, load, rows_of
from turnledger.rollup.session import set_rows
from turnledger.store.copying import Copies

SESSIONS = 64
"""Of one transaction, and of those that are to be rolled up apart."""
WHOLE = 64
"""Turns up to which a session is read whole here: a longer one, if only few of its blocks moved."""


@dataclass(slots=True)
class Many:
    """What became of some sessions."""

    done: list[int] = field(default_factory=list)
    apart: list[int] = field(default_factory=list)
    """They have their marks: each is to be rolled up by itself."""
    torn: list[int] = field(default_factory=list)
    """Somebody wrote in between: they have their marks."""


class _Apart(Exception):
    """More of the session is wanted than was read."""


@dataclass(slots=True)
class _Taken:
    """What the marks of a session are about."""

    marks: list[Row]
    blocks: set[int] | None
    """The blocks of a long session that moved; None: all of it is to be read."""
    read: list[int] | None
    """The numbers of the turns that are read; None: all."""
    is_little: bool
    """Whether no more is to be read than of a session of few turns."""

    @property
    def turns(self) -> set[int] | None:
        """The turns that moved; None: any may have."""
        found: set[int] = set()
        for mark in self.marks:
            if mark["turns"] is None:
                return None
            found.update(mark["turns"])
        return found


class _Gathered(Statements):
    """The statements of one transaction over sessions that were read at once."""

    def __init__(self, do: Statements, taken: Mapping[int, _Taken]) -> None:
        super().__init__(do.connection, do.slot, shadow=do.shadow)
        self._taken = taken
        self._found: dict[int, dict[str, list[Row]]] = {
            number: {name: [] for name in (*READ, *ALSO)} for number in taken
        }
        self._shares: dict[int, list[Row]] = {number: [] for number in taken}
        self._records: dict[tuple[int, int], Row] = {}
        self.claims: dict[int, tuple[set[Any], set[Any]]] = {}
        """By session, of those that are alone: a twelfth of a roll-up, and asked for twice."""
        self._asked: set[tuple[int, int]] = set()
        self._of_one: list[tuple[str, tuple[str, ...], Sequence[bytes]]] = []
        """Rows of the session at hand …"""
        self._changes_of_one: list[tuple[tuple[str, str], dict[str, list[object]]]] = []
        """… and what is to be changed before they are written."""
        self._rows: dict[str, list[bytes]] = defaultdict(list)
        self._names: dict[str, tuple[str, ...]] = {}
        self._changes: dict[tuple[str, str], dict[str, list[object]]] = {}
        self._read()

    def _read(self) -> None:
        every = {number: one.read for number, one in self._taken.items()}
        whole = {number: turns for number, turns in every.items() if turns is None}
        parts = {number: turns for number, turns in every.items() if turns is not None}
        wanted: list[tuple[str, bytes, Mapping[int, list[int] | None]]] = [
            (name, self.text("projected", table, listed), whole if name in BY_TURN else every)
            for name, (table, listed) in READ.items()
        ]
        wanted += [(name, self.text("projected_turns", *READ[name]), parts) for name in BY_TURN]
        wanted += [(name, self.text(name), every) for name in ALSO]
        with self.connection.pipeline():
            cursors = [
                (name, self.connection.cursor(binary=True).execute(_of_each(text), _each(sessions)))
                for name, text, sessions in wanted
                if sessions
            ]
        for name, cursor in cursors:
            for row in rows_of(cursor):
                self._found[row.pop("of_session")][name].append(row)
        if parts:
            places = {number: neighbours(self._taken[number].blocks or ()) for number in parts}
            for row in super().shares(places, LEVELS):
                self._shares[row["session_no"]].append(row)

    def session(self, session_no: int, turns: Collection[int] | None = None) -> dict[str, list[Row]]:
        if turns != self._taken[session_no].read:
            raise _Apart
        return self._found[session_no]

    def shares(self, wanted: Mapping[int, Sequence[Place]], highest: int) -> list[Row]:
        return [row for number in wanted for row in self._shares[number]]

    def read_records(self, wanted: Collection[tuple[int, int]]) -> None:
        """The records of these (session_no, turn_no) are read at once; those of others when :meth:`rows` is asked for them."""
        self._asked.update(wanted)
        numbers, turns = [number for number, _ in wanted], [turn_no for _, turn_no in wanted]
        for row in super().rows("records_of", sessions=numbers, turns=turns):
            self._records[row["session_no"], row["turn_no"]] = row

    def known_claims(self, session_no: int) -> tuple[set[Any], set[Any]] | None:
        return self.claims.get(session_no)

    def rows(self, name: str, **values: Any) -> list[Row]:
        if name in ("claimed", "extent"):
            # Whoever claims what another session claims is not among these, nor is who is to be read in pieces.
            return []
        if name == "records":
            wanted = [(values["session_no"], turn_no) for turn_no in values["turns"]]
            if self._asked.issuperset(wanted):
                return [self._records[place] for place in wanted if place in self._records]
        return super().rows(name, **values)

    def run(self, name: str, table: str = "", **values: Any) -> None:
        # Identities are locked already: all of them were taken in one order.
        if name != "lock_identities":
            self._changes_of_one.append(((name, table), values))

    def copy(self, table: str, names: tuple[str, ...], rows: Sequence[bytes]) -> None:
        self._of_one.append((table, names, rows))

    def keep(self) -> None:
        """What was gathered of the session at hand is to be written."""
        for change, values in self._changes_of_one:
            every = self._changes.setdefault(change, {})
            for name, listed in values.items():
                every.setdefault(name, []).extend(listed)
        for table, names, rows in self._of_one:
            self._names[table] = names
            self._rows[table] += rows
        self.forget()

    def forget(self) -> None:
        """It is not."""
        self._changes_of_one, self._of_one = [], []

    def write(self) -> None:
        """What was kept: first what goes, then what comes."""
        with self.connection.pipeline():
            for (name, table), values in self._changes.items():
                self.connection.execute(self.text(name, table), values)
        copies = Copies()
        for table, rows in self._rows.items():
            some = list(dict.fromkeys(rows)) if table == "hour_marks" else rows
            copies.add(f"{self.slot}.{table}", self._names[table], some)
        copies.write(self.connection)


def _of_each(text: bytes) -> bytes:
    """A statement about one session, or some of its turns, as one about many, each row with its session."""
    inner = text.replace(b"%(session_no)s", b"w.of_session").replace(b"%(turns)s", b"w.of_turns")
    return (
        b"select w.of_session, q.* from unnest(%(sessions)s::int8[], %(turns)s::text[]) w (of_session, of_turns) cross join lateral ("
        + inner
        + b"\n) q"
    )


def _each(sessions: Mapping[int, Collection[int] | None]) -> dict[str, object]:
    return {"sessions": list(sessions), "turns": list(map(array, sessions.values()))}


def roll_up_many(do: Statements, candidates: Sequence[int], price: PriceSource, *, now: bool = False) -> Many:
    """Roll up those of the candidates that have marks and are alone, in one transaction; ``now``: whether they are due or not. Raises as
    ``roll_up_session``: then nothing was done."""
    began = time.monotonic()
    done = Many()
    with do.connection.transaction():
        found = do.rows("lock_sessions", sessions=list(candidates), count=SESSIONS, turns=WHOLE, now=now)
        done.apart = [row["session_no"] for row in found if not row["locked"]]
        taken = _take(do, {row["session_no"]: row["small"] for row in found if row["locked"]})
        if not taken:
            return done
        gathered = _Gathered(do, {number: one for number, one in taken.items() if one.is_little})
        for one in _read(do, gathered, taken):
            number = one.session_no
            try:
                set_rows(gathered, number, taken[number].marks, price)
            except Torn:
                gathered.forget()
                done.torn.append(number)
            except _Apart:
                gathered.forget()
            else:
                gathered.keep()
                done.done.append(number)
        gathered.write()
        do.rolled_up(done.done, (time.monotonic() - began) / len(taken))
        left = taken.keys() - done.done
        if left:
            do.mark_turns({number: taken[number].turns for number in sorted(left)})
        done.apart += sorted(left - set(done.torn))
    return done


def _take(do: Statements, locked: Mapping[int, bool]) -> dict[int, _Taken]:
    """The sessions of these that have marks. ``locked``: whether each is small."""
    marks: dict[int, list[Row]] = defaultdict(list)
    for mark in do.take_marks(list(locked)) if locked else ():
        marks[mark["session_no"]].append(mark)
    taken = {}
    for number, of_one in marks.items():
        moved = blocks_of(of_one)
        read = None if moved is None else turns_of(moved)
        is_little = locked[number] if read is None else len(read) <= WHOLE
        taken[number] = _Taken(of_one, moved, read, is_little)
    return taken


def _read(do: Statements, gathered: _Gathered, taken: Mapping[int, _Taken]) -> list[Loaded]:
    """Those that are alone, with their locks and the records that they will want."""
    found = [load(gathered, number, one.read) for number, one in taken.items() if one.is_little]
    plain = [one for one in found if one is not None and _is_plain(one)]
    alone = _alone(do, gathered, plain)
    read = [one for one in plain if one.session_no in alone]
    wanted: set[tuple[int, int]] = set()
    for one in read:
        new = not one.before["turn_overlay"]
        turns = one.turn_numbers.values() if new else taken[one.session_no].turns or ()
        wanted.update((one.session_no, turn_no) for turn_no in turns)
    gathered.read_records(wanted)
    return read


def _is_plain(loaded: Loaded) -> bool:
    """Without kin, and small where all of it was read, now and when it was last rolled up."""
    facts = loaded.rows.facts
    return (
        not loaded.vacuumed
        and facts["parent_session_id"] is None
        and facts["fork_parent_session_id"] is None
        and (
            loaded.turns is not None
            or max(map(len, (loaded.rows.turns, loaded.before["turn_overlay"]))) <= WHOLE
        )
        and not any(row["inherited_event"] for row in loaded.rows.calls)
        and all(row["call_key"] for row in loaded.before["call_claims"])
    )


def _alone(do: Statements, gathered: _Gathered, sessions: Sequence[Loaded]) -> set[int]:
    """Those of which no call may be another session's, nor was. What moved of their claims is locked from here on, as by everybody who decides."""
    mine: dict[int, set[bytes]] = {}
    asked: dict[int, set[bytes]] = {}
    changed: set[bytes] = set()
    for one in sessions:
        tenant, session_id = one.rows.tenant, one.rows.session_id
        before, after = gathered.claims[one.session_no] = claims_of(gathered, one, {})
        mine[one.session_no] = {identity for identity, _, _, _ in before | after}
        changed |= {identity for identity, _, _, _ in before ^ after}
        asked[one.session_no] = {
            number_identity(tenant, session_id, row["model_call_id"])
            for row in one.rows.calls
            if row["model_call_id"] is not None
        }
    every = sorted(set().union(*mine.values()))
    if changed:
        do.run("lock_identities", identities=sorted(changed))
    times = Counter(identity for found in mine.values() for identity in found)
    claimed: dict[bytes, set[int]] = defaultdict(set)
    wanted = sorted({*every, *set().union(*asked.values())})
    for row in do.rows("claimed", identities=wanted, session_no=-1) if wanted else ():
        claimed[row["identity"]].add(row["session_no"])
    return {
        number
        for number, identities_ in mine.items()
        if all(times[identity] == 1 for identity in identities_)
        and not any(claimed[identity] - {number} for identity in (*identities_, *asked[number]))
    }
