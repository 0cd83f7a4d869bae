"""The planner is told of a table that grew before autovacuum comes round, by whoever rolls up."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.integration.projected import PRICE
from tests.stack.databases import as_role
from turnledger.rollup import worker as rolling
from turnledger.rollup.settings import RollupSettings
from turnledger.rollup.worker import Rollup
from turnledger.store import roles
from turnledger.store.maintain import UNKNOWN_ROWS, tell_planner

TABLE = "ledger.stream_days"


def grow(url: str, first: int, rows: int) -> None:
    """So many rows more; their number is known to the server when this returns."""
    with psycopg.connect(url, autocommit=True) as link:
        link.execute(
            f"insert into {TABLE} (stream_no, day, seq_from, seq_to) select n, current_date, 0, 1 from generate_series(%s::int8, %s) n",
            (first, first + rows - 1),
        )
        link.execute("select pg_stat_force_next_flush()")


def known(url: str) -> int:
    with psycopg.connect(url) as link:
        row = link.execute(
            "select reltuples::int8 from pg_class where oid = %s::regclass", (TABLE,)
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_a_table_is_analyzed_when_it_matters_and_has_grown_threefold(database: str) -> None:
    few = UNKNOWN_ROWS // 2
    with psycopg.connect(database, autocommit=True) as link:
        grow(database, 0, few)
        assert tell_planner(link) is None
        grow(database, few, 3 * few)
        assert tell_planner(link) == TABLE
        assert known(database) == 4 * few
        grow(database, 4 * few, 4 * few)
        assert tell_planner(link) is None
        grow(database, 8 * few, 5 * few)
        assert tell_planner(link) == TABLE
        assert known(database) == 13 * few


def test_a_worker_of_its_own_role_may(database: str) -> None:
    name = f"analyst_{urlsplit(database).path[-8:]}"
    grow(database, 0, 2 * UNKNOWN_ROWS)
    with psycopg.connect(database, autocommit=True) as owner:
        may = owner.info.server_version >= 170_000
        roles.create(owner, roles.Login(name, worker=True, password="p"))
        try:
            with psycopg.connect(as_role(database, name), autocommit=True) as link:
                assert tell_planner(link) == (TABLE if may else None)
        finally:
            roles.drop(owner, name)
    assert known(database) == (2 * UNKNOWN_ROWS if may else -1)


def test_who_rolls_up_tells_the_planner(database: str) -> None:
    grow(database, 0, 2 * UNKNOWN_ROWS)
    worker = Rollup(RollupSettings(), database, PRICE)
    worker.tick()
    worker.close()
    assert known(database) == 2 * UNKNOWN_ROWS


def test_a_table_that_takes_too_long_is_left_to_autovacuum_and_sums_go_on(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def late(link: psycopg.Connection[Any]) -> str:
        asked.append("once")
        link.execute("set statement_timeout = 1")
        link.execute("select pg_sleep(1)")
        return ""

    monkeypatch.setattr(rolling, "tell_planner", late)
    monkeypatch.setattr(rolling, "WATCH_SECONDS", 0.0)
    worker = Rollup(RollupSettings(), database, PRICE)
    worker.tick()
    worker.close()
    worker.tick()
    worker.close()
    assert asked == ["once"]
    assert worker.health.failing is None
