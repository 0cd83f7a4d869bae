"""COPY into several tables at once: all of it or nothing, and a connection that goes on."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import pq

from turnledger.store.copying import PIECE_BYTES, Copies, copy
from turnledger.store.write_binary import bytea, field_count, int4, int8

Link = psycopg.Connection[Any]


@pytest.fixture
def link(database: str) -> Iterator[Link]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "create temporary table few (n int8 primary key, small int4); create temporary table more (n int8 primary key, raw bytea)"
        )
        yield connection


def few(*numbers: int) -> list[bytes]:
    return [field_count(2) + int8(number) + int4(number % 1000) for number in numbers]


def more(*rows: tuple[int, bytes]) -> list[bytes]:
    return [int8(number) + bytea(raw) for number, raw in rows]


def count(link: Link, table: str) -> int:
    row = link.execute(f"select count(*) from {table}").fetchone()
    assert row is not None
    return int(row[0])


def both(first: list[bytes], second: list[bytes]) -> Copies:
    copies = Copies()
    copies.add("few", ("n", "small"), first)
    copies.add("few", ("n", "small"), [])
    copies.add("more", ("n", "raw"), second, field_count(2))
    return copies


def test_several_tables_come_with_one_question(link: Link) -> None:
    large = bytes(range(256)) * (3 * PIECE_BYTES // 256) + b"end"
    copies = both(few(*range(5000)), more((1, large), (2, b"")))
    with link.transaction():
        copies.write(link)
        # What was sent is forgotten: it is not sent again.
        copies.write(link)
    assert count(link, "few") == 5000
    assert link.execute("select n, raw from more order by n").fetchall() == [(1, large), (2, b"")]


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        (few(1, 2), [int8(1) + bytea(b"a"), int8(1) + bytea(b"b")], psycopg.errors.UniqueViolation),
        (few(1, 1), more((1, b"a")), psycopg.errors.UniqueViolation),
        (few(1), [struct.pack(">i", 3) + b"abc" + bytea(b"a")], psycopg.errors.ProtocolViolation),
        (few(1), [int8(1)], psycopg.errors.BadCopyFileFormat),
        (few(*range(200_000), 7), more((1, b"a")), psycopg.errors.UniqueViolation),
    ],
    ids=["the second", "the first", "a width", "a row cut short", "after many pieces"],
)
def test_what_is_refused_takes_all_of_it_back_and_the_connection_goes_on(
    link: Link, first: list[bytes], second: list[bytes], error: type[psycopg.Error]
) -> None:
    with pytest.raises(error) as refused, link.transaction():
        both(first, second).write(link)
    assert refused.value.sqlstate == error.sqlstate
    assert link.pgconn.transaction_status == pq.TransactionStatus.IDLE
    assert count(link, "few") == count(link, "more") == 0
    with link.transaction():
        both(few(1), more((1, b"a"))).write(link)
    assert count(link, "few") == count(link, "more") == 1


def test_under_a_savepoint_only_that_is_taken_back(link: Link) -> None:
    with link.transaction():
        copy(link, "few", ("n", "small"), few(1))
        with pytest.raises(psycopg.errors.UniqueViolation), link.transaction():
            both(few(2, 1), more((1, b"a"))).write(link)
        copy(link, "few", ("n", "small"), few(3))
    assert [row[0] for row in link.execute("select n from few order by n")] == [1, 3]


def test_without_a_transaction_the_first_table_would_be_kept_alone(link: Link) -> None:
    with pytest.raises(RuntimeError, match="transaction"):
        both(few(1), more((1, b"a"))).write(link)
    both([], []).write(link)
    assert count(link, "few") == 0


def test_a_server_that_goes_away_is_an_operational_error(link: Link, database: str) -> None:
    with pytest.raises(psycopg.OperationalError), link.transaction():
        with psycopg.connect(database, autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s, 5000)", (link.info.backend_pid,))
        both(few(*range(200_000)), more((1, b"a"))).write(link)
    assert link.broken
