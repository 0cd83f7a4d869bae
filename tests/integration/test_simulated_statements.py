"""The simulated database answers as Postgres does: what the handler asked of it in a run is asked again, statement by statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, time
from typing import Any
from unittest import mock

import psycopg
from psycopg import sql

from tests.simulation import connection, statements
from tests.simulation.faults import Plan
from tests.simulation.world import World, play
from turnledger.store.named import query

SEEDS = (4, 5, 11, 12, 13, 20, 32, 34)
"""Together they ask every statement that a run without faults asks."""
LET_GO_ON = World._let_go_on
NOT_COMPARED = {
    # The rollup worker of the simulator has no SQL.
    *("marks", "hour_parts", "hour_marks", "usage_hourly", *statements.ROLLUPS_SET),
}
LEDGER_COLUMNS = {
    "ingest_progress": "topic, partition, group_id, first_offset, next_offset, owner_epoch, disturbed, anchor_offset, anchor_crc, flushed_batch",
    "streams": "stream_no, session_no, producer, epoch, stream, low, hi, holes, receipts, open_gaps",
    "stream_chunks": "stream_no, chunk, bits",
    "stream_days": "stream_no, day, seq_from, seq_to",
    "gaps": "stream_no, from_seq, to_seq, state, ranges, missing",
    "conflicts": "stream_no, seq, lost_sha256, kept_sha256, count, kept_partition, kept_offset, last_partition, last_offset",
}


class Recording(connection.Connection):
    """Writes down what it was asked and what it answered."""

    tape: list[tuple[Any, ...]]

    def run(self, statement: Any, parameters: Any) -> list[tuple[Any, ...]]:
        answer = super().run(statement, parameters)
        self._keep("execute", statement, parameters, answer)
        return answer

    def copied(self, statement: Any, data: bytes) -> None:
        super().copied(statement, data)
        self._keep("copy", statement, data, None)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        outer = self._transaction is None
        with super().transaction():
            self._keep("begin" if outer else "savepoint")
            try:
                yield
            except Exception:
                self._keep("rollback" if outer else "rollback to")
                raise
            self._keep("commit" if outer else "release")

    def _keep(self, *what: Any) -> None:
        if self.link.process.name != "rollup":
            self.tape.append((self.backend.pid, *what))


def _let_go_on(world: World) -> None:
    """The person who resumes partitions is on the tape too."""
    stopped = [
        row for row in world.server.tables["partition_stops"].rows.values() if row["resumed_at"] is None
    ]
    LET_GO_ON(world)
    for row in stopped:
        given = {"topic": row["topic"], "partition": row["partition"], "by": "a person", "why": "mended"}
        Recording.tape.append(
            (0, "execute", query("fence/resume"), given, [(row["partition"], row["at_offset"])])
        )


def test_every_statement_says_in_sql_what_its_model_says(database: str) -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        _ask_again(database, seed, seen)
    unasked = statements.STATEMENTS.keys() - seen.keys()
    # What only a fault leads to.
    assert unasked <= {"fence/holder", "fence/terminate", "write/refused"}


def _ask_again(database: str, seed: int, seen: Counter[str]) -> None:
    tape: list[tuple[Any, ...]] = []
    Recording.tape = tape
    with (
        mock.patch("tests.simulation.connection.Connection", Recording),
        mock.patch.object(World, "_let_go_on", _let_go_on),
        mock.patch("tests.simulation.world.plan", lambda dice: Plan(3.0, (), ())),
        # Early in the day that Postgres' clock has: no run lasts until its end.
        mock.patch(
            "tests.simulation.tables.BEGINNING", datetime.combine(datetime.now(UTC).date(), time.min, UTC)
        ),
    ):
        world = play(seed)
    assert world.server.faults == []
    names = statements.named()
    with psycopg.connect(database, autocommit=True) as admin:
        _empty(admin)
        connections: dict[int, psycopg.Connection[Any]] = {}
        try:
            for number, (pid, kind, *rest) in enumerate(tape):
                if pid not in connections:
                    connections[pid] = psycopg.connect(
                        database, autocommit=True, options="-c lock_timeout=2000"
                    )
                there = connections[pid]
                match kind:
                    case "begin" | "commit" | "rollback":
                        there.execute(kind)
                    case "savepoint" | "release" | "rollback to":
                        there.execute(f"{kind} s")
                    case "copy":
                        with there.cursor() as cursor, cursor.copy(rest[0]) as target:
                            target.write(rest[1])
                    case _:
                        statement, parameters, answer = rest
                        name = names.get(statement, "") if isinstance(statement, bytes) else ""
                        with there.cursor(binary=name not in ("", "load/numbers_sessions")) as cursor:
                            cursor.execute(statement, parameters)
                            found = cursor.fetchall() if cursor.description else []
                        seen[name] += 1
                        if not name.startswith("maintain/"):
                            assert _plain(found) == _plain(answer), f"seed {seed}, statement {number}: {name}"
        finally:
            for there in connections.values():
                there.close()
        _compare(admin, world.server)


def _plain(rows: list[tuple[Any, ...]]) -> list[str]:
    return sorted(
        repr(tuple(bytes(v) if isinstance(v, bytes | memoryview) else v for v in row)) for row in rows
    )


OF_MIGRATIONS = ["generations", "schema_version"]
"""Tables whose rows a migration makes."""


def _empty(admin: psycopg.Connection[Any]) -> None:
    found = admin.execute(
        "select schemaname, tablename from pg_tables where schemaname in ('ledger', 'projection_a') and tablename not like 'events!_%%' escape '!'"
        " and tablename <> all(%s)",
        (OF_MIGRATIONS,),
    ).fetchall()
    # All at once: some refer to others.
    tables = sql.SQL(", ").join(sql.Identifier(schema, table) for schema, table in found)
    admin.execute(sql.SQL("truncate {} restart identity").format(tables))


def _compare(admin: psycopg.Connection[Any], server: Any) -> None:
    """What is left in the tables."""
    for name, table in server.tables.items():
        if name in NOT_COMPARED:
            continue
        schema = statements.SLOT if name in statements.KINDS else "ledger"
        columns = LEDGER_COLUMNS.get(name)
        if columns is None:
            (count,) = admin.execute(
                sql.SQL("select count(*) from {}").format(sql.Identifier(schema, name))
            ).fetchone() or (0,)
            assert count == len(table.rows), name
            continue
        rows = admin.execute(f"select {columns} from ledger.{name}".encode()).fetchall()
        listed = columns.split(", ")
        assert _plain(rows) == _plain(
            [tuple(row[column] for column in listed) for row in table.rows.values()]
        ), name
