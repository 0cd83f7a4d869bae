"""Which sessions differ between two generations: sums of row hashes, computed in the database, table by table.

Numbers of turns and revisions are storage and arrival history: they are not compared. A session counts as differing only in a snapshot in which
nobody has still to write it, in either generation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache
from hashlib import sha256

from psycopg import sql

from turnledger.contract.canonical import dumps
from turnledger.replay.generation import Connection
from turnledger.rollup.rows import CALL_OVERLAY, HOUR_PARTS, PART_OVERLAY, REPRICED, ROLLUPS, TURN_OVERLAY
from turnledger.store.named import query
from turnledger.store.write import PROJECTED

_STORAGE = frozenset(("turn_no", "revision", "session_no"))

FOLDED: dict[str, tuple[str, ...]] = {
    table: tuple(name for name in encoder.names if name not in _STORAGE)
    for table, encoder in PROJECTED.items()
}
"""Tables that the fold fills, and the columns that are compared."""

SUMMED: dict[str, tuple[str, ...]] = {
    **{
        table: tuple(name for name in encoder.names if name not in _STORAGE)
        for table, encoder in {
            "call_overlay": CALL_OVERLAY,
            "part_overlay": PART_OVERLAY,
            "turn_overlay": TURN_OVERLAY,
            "repriced": REPRICED,
            "hour_parts": HOUR_PARTS,
        }.items()
    },
    **{table: tuple(name for name, _ in listed) for table, listed in ROLLUPS.items()},
}
"""The same of tables that roll-ups set. Their findings stand among those of the fold."""


SUMS = frozenset((*SUMMED, "findings"))
"""Tables with rows that roll-ups set."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A session that is not the same in both generations."""

    session_no: int
    tables: tuple[str, ...]
    hashed: Decimal
    """The difference of the sums of its rows' hashes: what its digest is made from."""


def differing(
    connection: Connection, live: str, slot: str, sessions: Sequence[int], *, sums: bool = True
) -> dict[int, Difference]:
    """Those of the sessions whose rows are not the same in both schemas, in the statement's snapshot. ``sums``: rows of roll-ups too."""
    if not sessions:
        return {}
    found: dict[int, dict[str, Decimal]] = defaultdict(dict)
    for table, number, hashed in connection.execute(
        _statement(live, slot, sums), {"sessions": list(sessions)}
    ):
        found[number][table] = hashed
    return {
        number: Difference(number, tuple(sorted(tables)), sum(tables.values(), Decimal(0)))
        for number, tables in found.items()
    }


@lru_cache(maxsize=8)
def _statement(live: str, slot: str, sums: bool) -> bytes:
    tables = dict(FOLDED)
    if sums:
        tables |= SUMMED
    parts = [_of_table(live, slot, table, names, sums) for table, names in tables.items()]
    return sql.SQL(" union all ").join(parts).as_bytes(None)


def _of_table(live: str, slot: str, table: str, names: Iterable[str], sums: bool) -> sql.Composed:
    sides = sql.SQL(" union all ").join(
        _side(live, 1, table, names, sums) + _side(slot, -1, table, names, sums)
    )
    return sql.SQL(
        "select {}::text, session_no, sum(side * hash::numeric) * 1000003 + sum(side) from ({}) t group by session_no "
        "having sum(side) <> 0 or sum(side * hash::numeric) <> 0"
    ).format(sql.Literal(table), sides)


def _side(schema: str, sign: int, table: str, names: Iterable[str], sums: bool) -> list[sql.Composed]:
    listed: list[sql.Composable] = [sql.SQL("r.{}").format(sql.Identifier(name)) for name in names]
    joined: sql.Composable = sql.SQL("")
    if table == "findings":
        # A finding has its turn's number alone.
        listed.append(sql.SQL("t.turn_key"))
        joined = sql.SQL(" left join {} t on t.session_no = r.session_no and t.turn_no = r.turn_no").format(
            sql.Identifier(schema, "turns")
        )
    statement = sql.SQL(
        "select r.session_no, {}::int8 as side, hash_record_extended(row({}), 0) as hash from {} r{} where r.session_no = any(%(sessions)s)"
    ).format(sql.Literal(sign), sql.SQL(", ").join(listed), sql.Identifier(schema, table), joined)
    if table == "findings":
        wanted = "('fold', 'rollup')" if sums else "('fold')"
        statement = statement + sql.SQL(f" and r.source in {wanted}")
    return [statement]


@dataclass(frozen=True, slots=True)
class Unwritten:
    """Batches that one of the two generations does not hold for certain."""

    batches: list[int]
    day: date


def unsettled(
    connection: Connection, sessions: Collection[int], unwritten: Unwritten
) -> tuple[set[int], set[int]]:
    """Those of the sessions that moved, and those whose roll-ups are due, in the statement's snapshot."""
    if not sessions:
        return set(), set()
    moved, marked = set(), set()
    for number, has_moved, has_marks in connection.execute(
        query("replay/unsettled"),
        {"sessions": list(sessions), "batches": unwritten.batches, "day": unwritten.day},
    ):
        if has_moved:
            moved.add(number)
        if has_marks:
            marked.add(number)
    return moved, marked


NOW = "infinity"
"""Of a comparison in the transaction that writes it down."""


def keep(connection: Connection, found: Collection[Difference], at: str = NOW) -> None:
    """Write down who differs. ``at``: when they were compared, as Postgres tells it."""
    connection.execute(
        query("replay/keep_doubts"),
        {
            "sessions": [one.session_no for one in found],
            "tables": [",".join(one.tables) for one in found],
            "differences": [one.hashed for one in found],
            "at": at,
        },
    )


def doubt(connection: Connection, sessions: Collection[int]) -> None:
    """They must be compared (again)."""
    if sessions:
        connection.execute(query("replay/doubt"), {"sessions": list(sessions)})


def clear(connection: Connection, sessions: Collection[int], at: str = NOW) -> None:
    """They are the same."""
    if sessions:
        connection.execute(query("replay/clear_doubts"), {"sessions": list(sessions), "at": at})


def in_doubt(connection: Connection) -> int:
    """How many sessions have still to be compared."""
    row = connection.execute(query("replay/doubt_counts")).fetchone()
    return 0 if row is None else int(row[1])


@dataclass(frozen=True, slots=True)
class Diff:
    """All sessions that are known to differ."""

    sessions: list[tuple[int, str, str, list[str]]]
    """(session_no, tenant, session_id, tables), ordered by tenant and session."""
    digest: bytes | None
    """SHA-256 over that list and the hashes; None where nothing differs."""


def diff(connection: Connection) -> Diff:
    """What is known to differ now."""
    sessions = []
    digest = sha256()
    for number, tenant, session_id, tables, hashed in connection.execute(query("replay/differing")):
        sessions.append((number, tenant, session_id, list(tables)))
        digest.update(dumps([tenant, session_id, list(tables), str(hashed)]) + b"\n")
    return Diff(sessions, digest.digest() if sessions else None)
