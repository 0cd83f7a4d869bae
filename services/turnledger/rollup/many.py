"""Many sessions in one transaction, as long as none is long and none holds a call that another may hold: for a generation that is built.

The rules are those of one session (``rollup.session``), and the code is: reads are answered from what was read at once, rows are gathered and written
at once. One session by itself costs some sixty round trips; most of a ledger is sessions that are alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnledger.fold.model import Row
from turnledger.rollup.blocks import LONG
from turnledger.rollup.claims import claims_of, number_identity
from turnledger.rollup.prices import PriceSource
from turnledger.rollup.rows import ALSO, READ, Loaded, Statements, Torn, load, rows_of
from turnledger.rollup.session import set_rows
from turnledger.store.write import copy

SESSIONS = 100
"""Of one transaction."""
ANY = ({"turns": None, "basis": None},)
"""The marks of a session without shares in which any turn may have moved."""


@dataclass(slots=True)
class Many:
    """What became of some sessions."""

    done: int = 0
    left: list[int] = field(default_factory=list)
    """They keep their marks: each is to be rolled up by itself."""
    torn: list[int] = field(default_factory=list)
    """Somebody wrote in between: they are marked anew."""


class _Gathered(Statements):
    """The statements of one transaction over sessions that were read at once."""

    def __init__(self, do: Statements, sessions: Sequence[int]) -> None:
        super().__init__(do.connection, do.slot, shadow=do.shadow)
        self._found: dict[int, dict[str, list[Row]]] = {
            number: {name: [] for name in (*READ, *ALSO)} for number in sessions
        }
        self._records: dict[tuple[int, int], Row] = {}
        self._new: set[int] = set()
        self._deletes: list[tuple[bytes, dict[str, object]]] = []
        self._rows: dict[str, list[bytes]] = defaultdict(list)
        self._names: dict[str, tuple[str, ...]] = {}
        self._kept: dict[str, int] = {}
        self._kept_deletes = 0
        texts = {name: do.text("projected", table, listed) for name, (table, listed) in READ.items()}
        texts |= {name: do.text(name) for name in ALSO}
        with do.connection.pipeline():
            cursors = {
                name: do.connection.cursor(binary=True).execute(_of_each(text), {"sessions": list(sessions)})
                for name, text in texts.items()
            }
        for name, cursor in cursors.items():
            for row in rows_of(cursor):
                self._found[row.pop("of_session")][name].append(row)

    def session(self, session_no: int, turns: Collection[int] | None = None) -> dict[str, list[Row]]:
        assert turns is None
        return self._found[session_no]

    def read_records(self, sessions: Collection[int]) -> None:
        """What :meth:`rows` answers about records of these from then on: of new sessions all are wanted, of others a few."""
        self._new.update(sessions)
        for row in super().rows("records_of", sessions=sorted(sessions)):
            self._records[row["session_no"], row["turn_no"]] = row

    def rows(self, name: str, **values: Any) -> list[Row]:
        if name == "records" and values["session_no"] in self._new:
            wanted = [(values["session_no"], turn_no) for turn_no in values["turns"]]
            return [self._records[place] for place in wanted if place in self._records]
        if name == "claimed":
            # Whoever claims what another session claims is not among these.
            return []
        return super().rows(name, **values)

    def run(self, name: str, table: str = "", **values: object) -> int:
        # Identities are locked already: all of them were taken in one order.
        if name != "lock_identities":
            assert name.startswith(("delete", "unclaim")), name
            self._deletes.append((self.text(name, table), values))
        return 0

    def copy(self, table: str, names: tuple[str, ...], rows: Sequence[bytes]) -> None:
        self._names[table] = names
        self._rows[table] += rows

    def keep(self) -> None:
        """What was gathered until now is to be written."""
        self._kept = {table: len(rows) for table, rows in self._rows.items()}
        self._kept_deletes = len(self._deletes)

    def forget(self) -> None:
        """What was gathered since then is not."""
        for table, rows in self._rows.items():
            del rows[self._kept.get(table, 0) :]
        del self._deletes[self._kept_deletes :]

    def write(self) -> None:
        """What was gathered: of each table what goes, then what comes."""
        with self.connection.pipeline():
            for text, values in self._deletes:
                self.connection.execute(text, values)
        for table, rows in self._rows.items():
            some = list(dict.fromkeys(rows)) if table == "hour_marks" else rows
            copy(self.connection, f"{self.slot}.{table}", self._names[table], some)


def _of_each(text: bytes) -> bytes:
    """A statement about one session as one about many, each row with its session."""
    inner = text.replace(b"%(session_no)s", b"w.of_session")
    return (
        b"select w.of_session, q.* from unnest(%(sessions)s::int8[]) w (of_session) cross join lateral ("
        + inner
        + b"\n) q"
    )


def roll_up_many(do: Statements, candidates: Sequence[int], price: PriceSource) -> Many:
    """Roll up some of the candidates that have marks, in one transaction. Raises as ``roll_up_session``: then nothing was done."""
    done = Many()
    with do.connection.transaction():
        locked = [
            row["session_no"]
            for row in do.rows("lock_sessions", sessions=list(candidates), count=SESSIONS, long=LONG)
        ]
        taken = [row["session_no"] for row in do.rows("take_many", sessions=locked)] if locked else []
        if not taken:
            return done
        gathered = _Gathered(do, taken)
        simple: list[Loaded] = []
        for number in taken:
            loaded = load(gathered, number)
            if loaded is None or not _is_plain(loaded):
                done.left.append(number)
            else:
                simple.append(loaded)
        alone = _alone(do, gathered, simple)
        done.left += [one.session_no for one in simple if one.session_no not in alone]
        simple = [one for one in simple if one.session_no in alone]
        gathered.read_records({one.session_no for one in simple if not one.before["turn_overlay"]})
        rolled_up = []
        for one in simple:
            try:
                set_rows(gathered, one.session_no, ANY, price)
            except Torn:
                gathered.forget()
                done.torn.append(one.session_no)
            else:
                gathered.keep()
                rolled_up.append(one.session_no)
        gathered.write()
        do.rolled_up(rolled_up, 0.0)
        if done.left or done.torn:
            do.run("mark", sessions=[*done.left, *done.torn])
        done.done = len(rolled_up)
    return done


def _is_plain(loaded: Loaded) -> bool:
    """Short, now and when it was last rolled up, and without kin."""
    facts = loaded.rows.facts
    return (
        not loaded.vacuumed
        and facts["parent_session_id"] is None
        and facts["fork_parent_session_id"] is None
        and max(len(loaded.rows.turns), len(loaded.before["turn_overlay"])) <= LONG
        and not any(row["inherited_event"] for row in loaded.rows.calls)
        and all(row["call_key"] for row in loaded.before["call_claims"])
    )


def _alone(do: Statements, gathered: Statements, sessions: Sequence[Loaded]) -> set[int]:
    """Those of which no call may be another session's, nor was. What moved of their claims is locked from here on, as by everybody who decides."""
    mine: dict[int, set[bytes]] = {}
    asked: dict[int, set[bytes]] = {}
    changed: set[bytes] = set()
    for one in sessions:
        tenant, session_id = one.rows.tenant, one.rows.session_id
        before, after = claims_of(gathered, one, {})
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
