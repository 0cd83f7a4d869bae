"""Rows of the database: as people and scripts read them, and compared with rows that were computed, column by column."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import psycopg
from psycopg import sql

from turnledger.contract.times import utc_text
from turnledger.doctor.faults import Fault
from turnledger.fold.columns import Column
from turnledger.store.instants import load_as_microseconds

Row = dict[str, Any]

PAGE = 1000
"""Rows that are held at once where an answer is streamed."""


def load(
    connection: psycopg.Connection[Any],
    slot: str,
    table: str,
    names: Sequence[str],
    sessions: Sequence[int],
    where: sql.SQL | None = None,
) -> list[Row]:
    """Rows of a projected table, of some sessions. Instants as µs where the connection loads them so."""
    statement = sql.SQL("select {} from {} where session_no = any(%s)").format(
        sql.SQL(", ").join(map(sql.Identifier, names)), sql.Identifier(slot, table)
    )
    if where is not None:
        statement = statement + sql.SQL(" and ") + where
    with connection.cursor(binary=True) as cursor:
        cursor.execute(statement, (list(sessions),))
        return [dict(zip(names, row, strict=True)) for row in cursor]


def told(connection: psycopg.Connection[Any], statement: bytes, parameters: Row) -> list[Row]:
    """The rows of a query as ``--json`` has them (contract 17): instants in UTC with six digits, decimals as text."""
    load_as_microseconds(connection)
    with connection.cursor(binary=True) as cursor:
        cursor.execute(statement, parameters)
        return list(_rows(cursor))


def streamed(connection: psycopg.Connection[Any], statement: bytes, parameters: Row) -> Iterator[Row]:
    """The same, a page at a time, in the caller's transaction: memory does not grow with the answer."""
    load_as_microseconds(connection)
    with connection.cursor("turnledger_rows", binary=True) as cursor:
        cursor.itersize = PAGE
        cursor.execute(statement, parameters)
        yield from _rows(cursor)


def _rows(cursor: psycopg.Cursor[Any] | psycopg.ServerCursor[Any]) -> Iterator[Row]:
    described = cursor.description or []
    instants = {column.name for column in described if column.type_display == "timestamptz"}
    names = [column.name for column in described]
    for row in cursor:
        yield {name: _shown(value, name in instants) for name, value in zip(names, row, strict=True)}


def _shown(value: Any, instant: bool) -> Any:
    if value is None:
        return None
    if instant:
        return utc_text(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, date):
        return value.isoformat()
    return value


def compare(
    invariant: str,
    table: str,
    named: Mapping[str, Any],
    columns: Sequence[Column],
    key: Callable[[Row], Hashable],
    computed: Iterable[Row],
    stored: Iterable[Row],
) -> list[Fault]:
    """Faults of one table and session. ``named`` finds the session; ``key`` is unique among the rows of each side."""
    faults: list[Fault] = []
    have: dict[Hashable, Row] = {}
    for row in stored:
        name = key(row)
        if name in have:
            faults.append(Fault(invariant, doubled(table), place_of(named, table, name)))
        have[name] = row
    for row in computed:
        name = key(row)
        other = have.pop(name, None)
        if other is None:
            faults.append(Fault(invariant, lacking(table), place_of(named, table, name)))
            continue
        found = differing(invariant, table, named, columns, name, row, other)
        if found is not None:
            faults.append(found)
    faults.extend(Fault(invariant, beyond(table), place_of(named, table, name)) for name in have)
    return faults


def place_of(named: Mapping[str, Any], table: str, name: Hashable) -> Row:
    """What finds a row: its session, its table, its key."""
    return {**named, "table": table, "key": _told(name)}


def doubled(table: str) -> str:
    return f"{table} has two rows of one key"


def lacking(table: str) -> str:
    return f"{table} lacks a row"


def beyond(table: str) -> str:
    return f"{table} has a row that should not be"


def differing(
    invariant: str,
    table: str,
    named: Mapping[str, Any],
    columns: Sequence[Column],
    name: Hashable,
    computed: Row,
    stored: Row,
) -> Fault | None:
    """The first column in which a row is not what it should be."""
    for column, kind in columns:
        if not same(computed[column], stored[column], kind):
            found = {"column": column, "stored": _told(stored[column]), "computed": _told(computed[column])}
            place = place_of(named, table, name)
            return Fault(invariant, f"{table}.{column} is not what it should be", {**place, **found})
    return None


def same(computed: Any, stored: Any, kind: str) -> bool:
    """Whether a column of ``kind`` that was given ``computed`` holds ``stored``."""
    if computed is None or stored is None:
        return computed is None and stored is None
    if kind == "numeric":
        return bool(Decimal(str(computed)) == stored)
    if kind == "jsonb":
        return bool(json.loads(json.dumps(computed)) == stored)
    return bool(computed == stored)


def _told(value: Any) -> Any:
    """A value short enough for a report; bytes as hex."""
    if isinstance(value, bytes | memoryview):
        value = bytes(value).hex()
    if isinstance(value, tuple | list):
        return [_told(one) for one in value]
    if isinstance(value, Decimal):
        value = format(value, "f")
    text = value if isinstance(value, str) else None
    return f"{text[:200]}…" if text is not None and len(text) > 200 else value
