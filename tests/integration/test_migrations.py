"""The migrations: up, down, up again, two at once, beside writers; and the columns are those that the fold fills."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest

from turnledger.fold import columns
from turnledger.store.maintain import make_event_partitions
from turnledger.store.migrate import MigrationError, downgrade, migrate, status

TYPES = {
    "text": "text",
    "int4": "integer",
    "int8": "bigint",
    "bool": "boolean",
    "bytea": "bytea",
    "jsonb": "jsonb",
    "ts": "timestamp with time zone",
    "numeric": "numeric",
}
SESSION = (("session_no", "int8"),)
TURN = (*SESSION, ("turn_no", "int4"))
POSITION = (*SESSION, ("stream_no", "int8"), ("seq", "int8"))

PROJECTED: dict[str, tuple[columns.Column, ...]] = {
    "turns": (*TURN, *columns.TURNS, ("revision", "int4"), ("digest", "text")),
    "turn_records": (*TURN, ("revision", "int4"), ("digest", "text"), ("record", "bytea")),
    "model_calls": (*TURN, *columns.MODEL_CALLS),
    "tool_calls": (*TURN, *columns.TOOL_CALLS),
    "usage_parts": (*TURN, *columns.USAGE_PARTS),
    "session_facts": (*SESSION, *columns.FACTS),
    **{
        name: (*POSITION, *columns.POINT_COMMON, *own)
        for name, own in columns.POINT_TABLES.items()
        if name not in ("model_items", "tool_responses")
    },
    "call_overlay": (*SESSION, *columns.CALL_OVERLAY, ("turn_no", "int4")),
    "part_overlay": (*SESSION, *columns.PART_OVERLAY, ("turn_no", "int4")),
    "repriced": (*SESSION, *columns.REPRICED, ("turn_no", "int4")),
    "turn_overlay": (*TURN, ("digest", "text"), *columns.TURN_OVERLAY),
    "sessions": (*SESSION, *columns.SESSIONS),
    "ai_usage": (*SESSION, *columns.AI_USAGE),
    "tool_usage": (*SESSION, *columns.TOOL_USAGE),
    "mcp_usage": (*SESSION, *columns.MCP_USAGE),
    "hour_parts": (*SESSION, ("tenant", "text"), *columns.HOUR_PARTS),
    "usage_hourly": (("tenant", "text"), *columns.USAGE_HOURLY),
}


def columns_of(link: psycopg.Connection, schema: str, table: str) -> list[tuple[str, str]]:
    rows = link.execute(
        "select column_name, data_type from information_schema.columns where table_schema = %s and table_name = %s order by ordinal_position",
        (schema, table),
    )
    return [(str(name), str(kind)) for name, kind in rows]


def everything(link: psycopg.Connection) -> set[tuple[str, str]]:
    """Tables, views, indexes and functions of our schemas, but the version table."""
    rows = link.execute(
        """
        select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname in ('ledger', 'projection_a', 'projection_b', 'turnledger') and c.relname not like 'schema_version%'
        union all
        select n.nspname, p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname in ('ledger', 'projection_a', 'projection_b', 'turnledger')
        """
    )
    return {(str(schema), str(name)) for schema, name in rows}


# Older than what fills them: their columns stand in the order in which revisions added them.
ALTERED = {
    name: (*POSITION, *columns.POINT_COMMON, *columns.POINT_TABLES[name])
    for name in ("model_items", "tool_responses")
}


@pytest.mark.parametrize("slot", ["projection_a", "projection_b"])
@pytest.mark.parametrize("table", sorted(ALTERED))
def test_an_altered_table_has_the_columns_that_the_fold_fills(database: str, slot: str, table: str) -> None:
    with psycopg.connect(database) as link:
        found = columns_of(link, slot, table)
    assert sorted(found) == sorted((name, TYPES[kind]) for name, kind in ALTERED[table])


@pytest.mark.parametrize("slot", ["projection_a", "projection_b"])
def test_the_tables_have_the_columns_that_the_fold_fills(database: str, slot: str) -> None:
    with psycopg.connect(database) as link:
        for table, wanted in PROJECTED.items():
            assert columns_of(link, slot, table) == [(name, TYPES[kind]) for name, kind in wanted], table


def test_both_slots_are_the_same(database: str) -> None:
    with psycopg.connect(database) as link:
        named = {
            slot: {name for schema, name in everything(link) if schema == slot}
            for slot in ("projection_a", "projection_b")
        }
    assert named["projection_a"] == named["projection_b"]
    assert len(named["projection_a"]) > 30


def test_up_then_down_then_up_gives_the_same(empty_database: str) -> None:
    assert status(empty_database).current is None
    assert migrate(empty_database).pending == ()
    with psycopg.connect(empty_database) as link:
        first = everything(link)
        assert ("turnledger", "turns") in first
    assert downgrade(empty_database).current is None
    with psycopg.connect(empty_database) as link:
        assert everything(link) == set()
    found = migrate(empty_database)
    assert (found.current, found.pending) == (found.head, ())
    with psycopg.connect(empty_database) as link:
        assert everything(link) == first


def test_migrating_again_changes_nothing(database: str) -> None:
    with psycopg.connect(database) as link:
        link.execute("update turnledger.active set generation = 'b'")
    assert migrate(database).pending == ()
    with psycopg.connect(database) as link:
        assert link.execute("select generation from turnledger.active").fetchone() == ("b",)


def test_two_migrators_at_once_end_with_one_schema(empty_database: str) -> None:
    failures: list[BaseException] = []
    said: list[str] = []

    def one() -> None:
        try:
            assert migrate(empty_database, say=said.append).pending == ()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert "another migrator is at work; waiting for it" in said
    with psycopg.connect(empty_database) as link:
        assert link.execute("select count(*) from ledger.schema_version").fetchone() == (1,)


def test_a_locked_table_is_tried_again_and_holds_nobody_up(database: str) -> None:
    """A long transaction on a table that a migration needs: the migrator lets go again and again, others get through, it wins in the end."""
    said: list[str] = []
    with psycopg.connect(database) as holder:
        holder.execute("select count(*) from ledger.marks")
        migrator = threading.Thread(target=lambda: downgrade(database, say=said.append))
        migrator.start()
        waits = []
        begun = time.monotonic()
        with psycopg.connect(database, autocommit=True) as writer:
            while time.monotonic() < begun + 4 or (not said and time.monotonic() < begun + 30):
                asked = time.monotonic()
                writer.execute("insert into ledger.marks (session_no) values (1)")
                waits.append(time.monotonic() - asked)
                time.sleep(0.01)
            took = time.monotonic() - begun
        assert max(waits) < took / 2
        assert any("a table is in use" in line for line in said)
        holder.rollback()
    migrator.join(60)
    assert not migrator.is_alive()
    assert status(database).current is None


def test_going_back_is_refused_while_the_ledger_holds_events(database: str) -> None:
    with psycopg.connect(database) as link:
        link.execute(
            "insert into ledger.ingest_batches (topic, partition, epoch, from_offset, to_offset, records, accepted, duplicates, conflicts, dead)"
            " values ('t', 0, 1, 0, 1, 1, 1, 0, 0, 0)"
        )
    with pytest.raises(MigrationError, match="holds events, and going back to 'base' would drop them"):
        downgrade(database)
    assert status(database).pending == ()


def test_a_database_of_a_newer_program_is_refused_by_name(database: str) -> None:
    with psycopg.connect(database) as link:
        link.execute("update ledger.schema_version set version_num = '9999'")
    with pytest.raises(MigrationError, match="schema version 9999, which this turnledger does not know"):
        status(database)


def test_partitions_are_made_ahead_once_by_any_number_of_workers(database: str) -> None:
    made: list[int] = []

    def one() -> None:
        with psycopg.connect(database) as link:
            made.append(make_event_partitions(link, 12))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(made) == [0, 0, 0, 4]  # the migration made eight


def test_an_event_of_a_day_without_partition_is_refused_and_none_is_default(database: str) -> None:
    row = "insert into ledger.events (day, batch_no, stream_no, seq, kafka_offset, type, raw) values (ledger.today() + %s, 1, 1, %s, 0, 'x', '')"
    with psycopg.connect(database, autocommit=True) as link:
        link.execute(row, (0, 0))
        with pytest.raises(psycopg.errors.CheckViolation, match="no partition of relation"):
            link.execute(row, (100, 1))


def test_a_position_is_unique_within_its_day(database: str) -> None:
    row = "insert into ledger.events (day, batch_no, stream_no, seq, kafka_offset, type, raw) values (ledger.today(), 1, 1, 5, 0, 'x', '')"
    with psycopg.connect(database, autocommit=True) as link:
        link.execute(row)
        with pytest.raises(psycopg.errors.UniqueViolation):
            link.execute(row)


def test_no_index_entry_is_too_small_for_a_text_of_a_payload(database: str) -> None:
    """Model names and call ids come from payloads: as long as a record may be (contract 15)."""
    long = "".join(chr(33 + (n * n * 7 + n // 3) % 90) for n in range(300_000))
    with psycopg.connect(database) as link:
        link.execute(
            "insert into projection_a.model_calls (session_no, turn_no, call_key, model) values (1, 1, %s, %s)",
            (long, long),
        )
        link.execute("insert into projection_a.call_overlay (session_no, call_key) values (1, %s)", (long,))
        link.execute("insert into projection_a.ai_usage (session_no, model) values (1, %s)", (long,))
        link.execute("insert into projection_a.tool_usage (session_no, tool_name) values (1, %s)", (long,))
        link.execute(
            "insert into projection_a.usage_hourly (tenant, provider, model) values ('t', null, %s)", (long,)
        )
        with pytest.raises(psycopg.errors.UniqueViolation):
            link.execute(
                "insert into projection_a.usage_hourly (tenant, provider, model) values ('t', null, %s)",
                (long,),
            )
