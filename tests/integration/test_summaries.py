"""Indexes by range are told what was appended, by whoever rolls up: the server keeps few requests for it, and logs the others."""

from __future__ import annotations

import threading
from datetime import date
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.integration.projected import PRICE
from tests.stack.databases import as_role
from turnledger.rollup.settings import RollupSettings
from turnledger.rollup.worker import Rollup
from turnledger.store import roles, surface
from turnledger.store.maintain import Ranges
from turnledger.store.migrate import migrate

BATCH_RANGE, TIME_RANGE = 16, 32
"""Pages of one range of a day's indexes on batch_no and on the time; the first of each is known since the table is there."""
PAGE_EVENTS = 8
"""Events of so many bytes stand on a page."""
BYTES = 900
AUTOSUMMARIZED = "select count(*) from pg_class where reloptions @> array['autosummarize=on']"


class Day:
    """Today's events, filled page by page."""

    def __init__(self, url: str) -> None:
        self.link = psycopg.connect(url, autocommit=True)
        self.today: date = self.one("select ledger.today()")
        self.table = f"ledger.events_{self.today:%Y%m%d}"

    def one(self, statement: str, *values: object) -> Any:
        row = self.link.execute(statement.encode(), values).fetchone()
        return None if row is None else row[0]

    def append(self, pages: int) -> int:
        """So many pages more; how many there are."""
        self.link.execute(
            f"insert into {self.table} (batch_no, stream_no, seq, kafka_offset, occurred_at, day, type, raw) "
            "select 1, 1, n, n, now(), %s, 't', convert_to(repeat('x', %s), 'UTF8') "
            f"from (select coalesce(max(seq), -1) as last from {self.table}) l, generate_series(l.last + 1, l.last + %s) n",
            (self.today, BYTES, pages * PAGE_EVENTS),
        )
        return int(self.one("select pg_relation_size(%s::regclass) / 8192", self.table))

    def left(self, index: str) -> int:
        """How many ranges the index did not know; now it does."""
        return int(self.one("select brin_summarize_new_values(%s::regclass)", f"{self.table}_{index}"))


@pytest.fixture
def day(database: str) -> Day:
    return Day(database)


def test_full_ranges_are_summarized_once_and_then_only_what_was_appended(day: Day) -> None:
    ranges = Ranges()
    ranges.summarize(day.link)
    blocks = day.append(3 * TIME_RANGE)

    assert ranges.summarize(day.link) == blocks // BATCH_RANGE - 1 + blocks // TIME_RANGE - 1
    assert ranges.summarize(day.link) == 0
    more = day.append(TIME_RANGE)
    assert ranges.summarize(day.link) == (more // BATCH_RANGE - blocks // BATCH_RANGE) + (
        more // TIME_RANGE - blocks // TIME_RANGE
    )
    assert day.left("batch") == (1 if more % BATCH_RANGE else 0)
    assert day.left("time") == (1 if more % TIME_RANGE else 0)


def test_who_begins_later_summarizes_what_nobody_did(day: Day) -> None:
    day.append(2 * TIME_RANGE)
    assert Ranges().summarize(day.link)
    assert (day.left("batch"), day.left("time")) == (0, 0)
    assert Ranges().summarize(day.link) == 0


def test_a_table_that_was_emptied_is_known_from_its_beginning(day: Day) -> None:
    ranges = Ranges()
    day.append(2 * TIME_RANGE)
    ranges.summarize(day.link)
    day.link.execute(f"truncate {day.table}")
    day.append(TIME_RANGE)
    assert ranges.summarize(day.link)
    assert (day.left("batch"), day.left("time")) == (0, 0)


def test_whoever_vacuums_is_not_waited_for(day: Day, database: str) -> None:
    ranges = Ranges()
    day.append(TIME_RANGE)
    with psycopg.connect(database) as vacuums:
        vacuums.execute(f"lock table {day.table} in share update exclusive mode")
        assert ranges.summarize(day.link) == 0
    assert ranges.summarize(day.link) > 0


def test_a_worker_of_its_own_role_may_and_only_for_ours(day: Day, database: str) -> None:
    name = f"summarizes_{urlsplit(database).path[-8:]}"
    day.append(TIME_RANGE)
    day.link.execute("create table public.theirs (n int8)")
    day.link.execute("create index theirs_range on public.theirs using brin (n)")
    day.link.execute("insert into public.theirs values (1)")
    roles.create(day.link, roles.Login(name, worker=True, password="p"))
    try:
        with psycopg.connect(as_role(database, name), autocommit=True) as link:
            assert Ranges().summarize(link) > 0
            for index in ("public.theirs_range", f"{day.table}_position"):
                row = link.execute(
                    "select ledger.summarize_ranges(%s::regclass::oid::regclass, null)", (index,)
                ).fetchone()
                assert row == (None,)
    finally:
        roles.drop(day.link, name)


def test_who_rolls_up_does_it(day: Day, database: str) -> None:
    day.append(2 * TIME_RANGE)
    worker = Rollup(RollupSettings(), database, PRICE)
    worker.tick()
    worker.close()
    assert (day.left("batch"), day.left("time")) == (0, 0)


def test_events_are_not_vacuumed_for_what_was_inserted(day: Day) -> None:
    options = (
        "select count(*), count(*) filter (where c.reloptions @> array['autovacuum_vacuum_insert_threshold=-1']) "
        "from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = 'ledger.events'::regclass"
    )
    day.link.execute("select ledger.make_event_partitions(ledger.today() + 30, 2)")
    ((days, unvacuumed),) = day.link.execute(options.encode()).fetchall()
    assert days == unvacuumed > 2


def test_no_index_asks_the_server_and_one_of_an_earlier_revision_is_changed(
    day: Day, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert day.one(AUTOSUMMARIZED) == 0
    index = f"{day.table}_batch"
    day.link.execute(f"alter index {index} set (autosummarize = on)")
    monkeypatch.setattr(surface, "CHANGE_SECONDS", 0.05)
    said: list[str] = []
    with psycopg.connect(database) as reads:
        reads.execute(f"select from {day.table} where batch_no = 1")
        waits = threading.Timer(5.0, reads.rollback)
        waits.start()
        migrate(database, say=said.append)
        waits.cancel()
    assert [line for line in said if index in line] == [
        f"the index {index} is in use and stays as it is; the next migration changes it"
    ]
    migrate(database, say=said.append)
    assert day.one(AUTOSUMMARIZED) == 0
    assert day.one(
        "select array_to_string(reloptions, ',') from pg_class where oid = %s::regclass", index
    ) == (f"pages_per_range={BATCH_RANGE}")
