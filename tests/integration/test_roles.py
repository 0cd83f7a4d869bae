"""Roles: a reader sees its tenants through the views and nothing else, whatever SQL it writes; workers work as turnledger_writer.

Rows of two tenants stand in every table that the views read, every text of them with its tenant's mark. What a reader of `acme` is told, in
rows, notices, errors and plans, must not hold the mark of `rival`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql
from typer.testing import CliRunner

from tests.integration.ingesting import environment, rows, until_applied, until_projected
from tests.stack import databases, servers
from tests.stack.commands import Running, eventually, run
from tests.stack.databases import as_role
from tests.stack.topics import Record, Topic, produce
from turnledger.cli import build
from turnledger.errors import TurnledgerError
from turnledger.store.migrate import migrate
from turnledger.store.roles import Login, create, drop, grant, revoke
from turnledger.store.surface import secure

TENANTS = ("acme", "rival")
SCHEMAS = ("ledger", "projection_a", "projection_b", "turnledger")
NOT_PLANTED = {
    "schema_version",
    "role_tenants",
    "ingest_progress",
    "stream_days",
    "stream_chunks",
    "receipts",
    "sessions",
    "streams",
    "events",
}
"""Without a tenant's rows, or planted by hand."""
FLEET = {
    *("ingest_batches", "requeue_batches", "partition_stops", "accounts"),
    *("price_catalogues", "reprices", "topic_replays", "retention_runs"),
}
"""Views of the whole fleet: nobody's who does not see all of it."""


REFUSED = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.WrongObjectType,
    psycopg.errors.FeatureNotSupported,
    psycopg.errors.ObjectNotInPrerequisiteState,  # a view that nobody can write
)


def mark(tenant: str, column: str) -> str:
    return f"{tenant}-mark-{column}"


def value(tenant: str, column: str, kind: str, number: int) -> Any:
    """Something of that type, with the tenant's mark where it can hold one."""
    if kind == "ARRAY":
        return "{}"
    if kind in ("text", "name"):
        return tenant if column == "tenant" else mark(tenant, column)
    if kind == "jsonb":
        return (
            json.dumps([mark(tenant, column)])
            if column in ("rows", "redactions")
            else json.dumps({"m": mark(tenant, column)})
        )
    if kind == "bytea":
        return json.dumps({"session_id": tenant, "payload": {"m": mark(tenant, column)}}).encode()
    if kind == "boolean":
        return True
    if kind.startswith("timestamp"):
        return "2026-01-02T03:04:05Z"
    if kind == "date":
        return "2026-01-02"
    return number if kind in ("smallint", "integer", "bigint", "numeric", "double precision") else str(number)


def plant(link: psycopg.Connection[Any], tenant: str, number: int) -> None:
    """A session, a stream and an event of the tenant, then a row in every other table."""
    link.execute(
        "insert into ledger.sessions (session_no, tenant, session_id, home_topic, home_partition) values (%s, %s, %s, 't', 0)",
        (number, tenant, mark(tenant, "session")),
    )
    link.execute(
        "insert into ledger.streams (stream_no, session_no, producer, epoch, stream) values (%s, %s, %s, 0, 'ledger')",
        (number, number, mark(tenant, "producer")),
    )
    link.execute(
        "insert into ledger.events (batch_no, stream_no, seq, kafka_offset, day, type, raw) values (%s, %s, %s, 1, ledger.today(), %s, %s)",
        (
            number,
            number,
            number,
            mark(tenant, "type"),
            json.dumps({"payload": {"m": mark(tenant, "payload")}}).encode(),
        ),
    )
    link.execute("set session_replication_role = replica")  # the fillings refer to nothing
    tables = link.execute(
        "select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname in ('ledger', 'projection_a', 'projection_b') and c.relkind = 'r' and not c.relispartition order by 1, 2"
    ).fetchall()
    for schema, table in tables:
        if table in NOT_PLANTED and schema == "ledger":
            continue
        columns = link.execute(
            "select column_name, data_type from information_schema.columns "
            "where table_schema = %s and table_name = %s and identity_generation is null and column_name <> 'closed_at' "
            "and not (table_name = 'dead_letters' and column_name in ('outcome', 'requeued_at'))",
            (schema, table),
        ).fetchall()
        if table == "ingest_batches":
            columns += [("batch_no", "bigint")]
        names = [name for name, _ in columns]
        values = [value(tenant, name, kind, number) for name, kind in columns]
        link.execute(
            sql.SQL("insert into {} ({}) values ({})").format(
                sql.Identifier(schema, table),
                sql.SQL(", ").join(map(sql.Identifier, names)),
                sql.SQL(", ").join([sql.Placeholder()] * len(names)),
            ),
            values,
        )


class Fleet:
    """A database with rows of both tenants, and logins: ``acme``, ``rival``, ``both``, ``all``, ``none``, ``worker``."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.suffix = urlsplit(url).path.removeprefix("/")[-8:]
        self.views: dict[str, list[tuple[str, str]]] = {}
        with psycopg.connect(url, autocommit=True) as link:
            for table, check in link.execute(
                "select conrelid::regclass::text, quote_ident(conname) from pg_constraint "
                "where contype = 'c' and connamespace in ('ledger'::regnamespace, 'projection_a'::regnamespace, 'projection_b'::regnamespace)"
            ).fetchall():
                link.execute(f"alter table {table} drop constraint {check}")  # type: ignore[arg-type]
            for number, tenant in enumerate(TENANTS, 1):
                plant(link, tenant, number)
            for name, login in {
                "acme": Login(self.name("acme"), ("acme",), password="p"),
                "rival": Login(self.name("rival"), ("rival",), password="p"),
                "both": Login(self.name("both"), TENANTS, password="p"),
                "all": Login(self.name("all"), everything=True, password="p"),
                "none": Login(self.name("none"), ("nobody",), password="p"),
                "hasty": Login(self.name("hasty"), ("acme",), password="p", statement_seconds=0.3),
                "worker": Login(self.name("worker"), worker=True, password="p"),
            }.items():
                assert login.name == self.name(name)
                create(link, login)
            for view, column, kind in link.execute(
                "select table_name, column_name, data_type from information_schema.columns where table_schema = 'turnledger' "
                "and table_name in (select table_name from information_schema.views where table_schema = 'turnledger') order by 1, ordinal_position"
            ):
                self.views.setdefault(view, []).append((column, kind))

    def name(self, role: str) -> str:
        return f"{role}_{self.suffix}"

    def connect(self, role: str) -> psycopg.Connection[Any]:
        return psycopg.connect(as_role(self.url, self.name(role)), autocommit=True)

    def close(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as link:
            for role in ("acme", "rival", "both", "all", "none", "hasty", "worker"):
                drop(link, self.name(role))


@pytest.fixture(scope="module")
def fleet(stack: servers.Servers, database_template: str) -> Iterator[Fleet]:
    url = databases.create(stack.database_url, template=database_template)
    made = Fleet(url)
    yield made
    made.close()
    databases.drop(stack.database_url, url)


@pytest.fixture
def acme(fleet: Fleet) -> Iterator[psycopg.Connection[Any]]:
    with fleet.connect("acme") as link:
        link.execute("set default_transaction_read_only = off")  # whatever a reader may set, it sets
        yield link


def told(link: psycopg.Connection[Any], statement: str) -> str:
    """All that one statement says: rows, notices, and its error with every field."""
    said: list[str] = []
    link.add_notice_handler(lambda diagnostic: said.append(str(diagnostic.message_primary)))
    try:
        cursor = link.execute(statement)  # type: ignore[arg-type]
        if cursor.description is not None:
            said += [str(row) for row in cursor.fetchall()]
    except psycopg.Error as error:
        fields = [
            getattr(error.diag, name)
            for name in dir(error.diag)
            if name.startswith(("message", "context", "column", "constraint"))
        ]
        said += [str(one) for one in fields if one]
    return "\n".join(said)


# --- what the views show ----------------------------------------------------------------------------------------------------------


def test_every_view_shows_a_reader_its_tenants_rows_and_no_others(fleet: Fleet) -> None:
    with fleet.connect("acme") as acme, fleet.connect("rival") as rival:
        for view in fleet.views:
            mine, theirs = (
                told(acme, f"select * from turnledger.{view}"),
                told(rival, f"select * from turnledger.{view}"),
            )
            assert "rival" not in mine, view
            assert "acme" not in theirs, view
            assert ("acme" in mine, "rival" in theirs) == (view not in FLEET, view not in FLEET), view


def test_a_reader_of_two_tenants_or_of_all_sees_both_and_one_of_none_sees_nothing(fleet: Fleet) -> None:
    with fleet.connect("both") as both, fleet.connect("all") as everything, fleet.connect("none") as none:
        for view in fleet.views:
            statement = f"select * from turnledger.{view}"
            seen = told(both, statement)
            assert (("acme-" in seen), ("rival-" in seen)) == (view not in FLEET, view not in FLEET), view
            seen = told(everything, statement)
            assert "acme-" in seen and "rival-" in seen, view
            assert told(none, statement) == "", view


def test_a_tenant_that_is_taken_away_is_gone_with_the_next_statement(fleet: Fleet) -> None:
    with fleet.connect("none") as none, psycopg.connect(fleet.url, autocommit=True) as owner:
        none.execute("prepare mine as select tenant from turnledger.session_summary order by 1")
        seen = []
        for change in (grant, revoke):
            change(owner, fleet.name("none"), ["acme"])
            seen.append(none.execute("execute mine").fetchall())
        assert seen == [[("acme",)], []]


def test_the_owner_and_a_worker_see_every_tenant_through_the_views(fleet: Fleet) -> None:
    with psycopg.connect(fleet.url) as owner, fleet.connect("worker") as worker:
        for link in (owner, worker):
            found = link.execute("select tenant from turnledger.session_summary order by 1").fetchall()
            assert found == [("acme",), ("rival",)]


# --- what a reader may not touch --------------------------------------------------------------------------------------------------


def test_a_reader_may_read_nothing_but_the_views(fleet: Fleet, acme: psycopg.Connection[Any]) -> None:
    with psycopg.connect(fleet.url) as owner:
        relations = owner.execute(
            "select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
            "where n.nspname = any (%s) and c.relkind in ('r', 'p', 'v', 'S') and not (n.nspname = 'turnledger' and c.relkind = 'v')",
            (list(SCHEMAS),),
        ).fetchall()
        functions = owner.execute(
            "select p.oid::regprocedure::text from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = any (%s)",
            (list(SCHEMAS),),
        ).fetchall()
    assert len(relations) > 80
    for schema, name in relations:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            acme.execute(sql.SQL("select * from {}").format(sql.Identifier(schema, name)))
    assert len(functions) >= 5
    for (signature,) in functions:
        schema, _, call = signature.partition(".")
        nulls = re.sub(
            r"\(.*\)",
            lambda found: f"({', '.join(f'null::{one}' for one in found[0][1:-1].split(',') if one)})",
            call,
        )
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            acme.execute(f"select {schema}.{nulls}")  # type: ignore[arg-type]


def test_a_reader_may_write_nothing(fleet: Fleet, acme: psycopg.Connection[Any]) -> None:
    for view, columns in fleet.views.items():
        column = columns[0][0]
        for statement in (
            f'insert into turnledger.{view} ("{column}") values (null)',
            f'update turnledger.{view} set "{column}" = null',
            f"delete from turnledger.{view}",
            f"select * from turnledger.{view} for update",
            f"truncate turnledger.{view}",
        ):
            with pytest.raises(REFUSED):
                acme.execute(statement)  # type: ignore[arg-type]
    for statement in (
        "create table turnledger.mine (n int)",
        "create function turnledger.mine() returns int language sql return 1",
        "create temporary table mine (s text references ledger.sessions)",
        "insert into ledger.role_tenants (role, tenant) values (current_user, 'rival')",
        "update ledger.role_tenants set tenant = 'rival'",
        "alter view turnledger.turns owner to current_user",
        "alter view turnledger.turns reset (security_barrier)",
        "alter table ledger.sessions disable row level security",
        "grant turnledger_views to current_user",
        "create role another",
    ):
        with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.WrongObjectType)):
            acme.execute(statement)  # type: ignore[arg-type]


def test_a_reader_becomes_nobody_else(fleet: Fleet, acme: psycopg.Connection[Any]) -> None:
    for role in (
        fleet.name("rival"),
        fleet.name("all"),
        "turnledger_views",
        "turnledger_writer",
        "turnledger_reader",
        "turnledger",
    ):
        for statement in (
            f"set role {role}",
            f"set session authorization {role}",
            f"select set_config('role', '{role}', false)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                acme.execute(statement)  # type: ignore[arg-type]


# --- hostile questions ------------------------------------------------------------------------------------------------------------


def test_a_function_of_the_readers_is_never_asked_about_another_tenants_row(
    fleet: Fleet, acme: psycopg.Connection[Any]
) -> None:
    acme.execute(
        "create function pg_temp.tell(text) returns bool language plpgsql cost 0.0000001 as "
        "$$ begin raise notice '%', $1; return true; end $$"
    )
    acme.execute(
        "create function pg_temp.same(text, text) returns bool language plpgsql cost 0.0000001 as $$ begin raise notice '%', $1; return $1 = $2; end $$"
    )
    acme.execute("create operator pg_temp.=== (leftarg = text, rightarg = text, function = pg_temp.same)")
    for view, columns in fleet.views.items():
        asked = " and ".join(f'pg_temp.tell("{name}"::text)' for name, _ in columns)
        said = told(acme, f"select count(*) from turnledger.{view} where {asked}")
        assert "rival" not in said, view
        assert ("acme" in said) == (view not in FLEET), view
        texts = [name for name, kind in columns if kind == "text"]
        either = " or ".join(f"\"{name}\" operator(pg_temp.===) 'x'" for name in texts)
        assert "rival" not in told(acme, f"select 1 from turnledger.{view} where {either}"), view
        for name in texts:
            assert "rival" not in told(
                acme, f'select 1 from turnledger.{view} where pg_temp.tell("{name}")'
            ), (view, name)


def test_no_error_message_holds_another_tenants_text(fleet: Fleet, acme: psycopg.Connection[Any]) -> None:
    for view, columns in fleet.views.items():
        for name, kind in columns:
            if kind not in ("text", "jsonb", "bytea"):
                continue
            text = f"encode(\"{name}\", 'escape')" if kind == "bytea" else f'"{name}"::text'
            for statement in (
                f"select count(*) from turnledger.{view} where ({text} || 'x')::int4 = 1",
                f"select 1 from turnledger.{view} where 1 / (case when {text} like '%rival%' then 0 else 1 end) = 1",
            ):
                said = told(acme, statement)
                assert "rival" not in said, statement
                assert "division by zero" not in said, statement


def test_no_plan_holds_another_tenants_text(fleet: Fleet, acme: psycopg.Connection[Any]) -> None:
    with psycopg.connect(fleet.url, autocommit=True) as owner:
        owner.execute("analyze")
    for view in fleet.views:
        for options in (
            "verbose",
            "analyze, verbose, buffers, settings",
            "format json, analyze, verbose",
            "generic_plan, verbose",
        ):
            said = told(acme, f"explain ({options}) select * from turnledger.{view}")
            assert "turnledger" in said or "Scan" in said or "Plan" in said, (view, options)
            assert "rival" not in said, (view, options)


def test_statistics_and_activity_tell_nothing_of_another_tenant(
    fleet: Fleet, acme: psycopg.Connection[Any]
) -> None:
    with psycopg.connect(fleet.url, autocommit=True) as owner, fleet.connect("rival") as rival:
        owner.execute("analyze")
        assert owner.execute(
            "select count(*) > 0 from pg_stats where schemaname = any (%s)", (list(SCHEMAS),)
        ).fetchone() == (True,)
        rival.execute("select 'rival-mark-query'")
        for catalogue in ("pg_stats", "pg_stats_ext", "pg_stats_ext_exprs"):
            assert acme.execute(
                f"select count(*) from {catalogue} where schemaname = any (%s)", (list(SCHEMAS),)
            ).fetchone() == (0,)  # type: ignore[arg-type]
        for catalogue in ("pg_stat_activity", "pg_prepared_statements", "pg_cursors", "pg_locks"):
            assert "rival-mark" not in told(acme, f"select * from {catalogue}"), catalogue
        for catalogue in ("pg_statistic", "pg_statistic_ext_data", "pg_authid"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                acme.execute(f"select * from {catalogue}")  # type: ignore[arg-type]


def test_copy_gives_what_select_gives_and_no_file(fleet: Fleet, acme: psycopg.Connection[Any]) -> None:
    for view in fleet.views:
        with acme.cursor().copy(f"copy (select * from turnledger.{view}) to stdout") as out:  # type: ignore[arg-type]
            assert b"rival" not in b"".join(bytes(block) for block in out), view
    for statement in (
        "copy ledger.sessions to stdout",
        "copy ledger.sessions from stdin",
        "copy (select 1) to program 'true'",
        "copy (select 1) to '/tmp/turnledger-reader'",
        "select pg_read_file('PG_VERSION')",
        "select lo_import('/etc/hostname')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            acme.execute(statement)  # type: ignore[arg-type]


def test_settings_and_names_of_the_readers_change_nothing(
    fleet: Fleet, acme: psycopg.Connection[Any]
) -> None:
    for statement in (
        "create function pg_temp.pg_has_role(oid, text) returns bool language sql return true",
        "create function pg_temp.as_jsonb(bytea) returns jsonb language sql return '1'::jsonb",
        "create temporary view my_tenants as select null::text as tenant",
        "create temporary table role_tenants as select current_user as role, null::text as tenant",
        "create temporary table sessions as select 2::int8 as session_no",
        "create temporary table active as select 'b' as generation",
        "set search_path = pg_temp, ledger, turnledger, pg_catalog",
        "set row_security = on",
        "set enable_indexscan = off",
        "set enable_hashjoin = off",
        "set plan_cache_mode = force_generic_plan",
        "set debug_parallel_query = on",
        "set constraint_exclusion = off",
    ):
        acme.execute(statement)  # type: ignore[arg-type]
    for view in fleet.views:
        said = told(acme, f"select * from turnledger.{view}")
        assert "rival" not in said, view
        assert ("acme" in said) == (view not in FLEET), view
    acme.execute("set row_security = off")
    said = told(acme, "select * from turnledger.turns")
    assert "row-level security" in said
    assert "rival" not in said


def test_a_prepared_statement_shows_each_role_its_own(fleet: Fleet) -> None:
    name = f"pool_{fleet.suffix}"
    with psycopg.connect(fleet.url, autocommit=True) as owner:
        owner.execute(
            f"create role {name} login password 'p' noinherit in role {fleet.name('acme')}, {fleet.name('rival')}"
        )  # type: ignore[arg-type]
    try:
        with psycopg.connect(as_role(fleet.url, name), autocommit=True) as link:
            link.execute(f"set role {fleet.name('acme')}")  # type: ignore[arg-type]
            link.execute(
                "prepare mine as select tenant from turnledger.turns union all select tenant from turnledger.usage_hourly"
            )
            seen = []
            for role in ("acme", "rival", "acme") * 3:
                link.execute(f"set role {fleet.name(role)}")  # type: ignore[arg-type]
                seen.append({tenant for (tenant,) in link.execute("execute mine")})
            assert seen == [{"acme"}, {"rival"}, {"acme"}] * 3
            link.execute("reset role")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                link.execute("execute mine")
    finally:
        with psycopg.connect(fleet.url, autocommit=True) as owner:
            owner.execute(f"drop role {name}")  # type: ignore[arg-type]


def test_a_readers_statement_ends_after_its_time(fleet: Fleet) -> None:
    with fleet.connect("hasty") as hasty:
        assert hasty.execute("show statement_timeout").fetchone() == ("300ms",)
        assert hasty.execute("show transaction_timeout").fetchone() == ("600ms",)
        with pytest.raises(psycopg.errors.QueryCanceled):
            hasty.execute("select count(*) from turnledger.events, generate_series(1, 1000000000)")
    with fleet.connect("worker") as worker:
        assert worker.execute("show statement_timeout").fetchone() == ("0",)


# --- the surface stays shut -------------------------------------------------------------------------------------------------------


def test_a_view_that_a_later_revision_makes_is_shut_before_it_is_committed(empty_database: str) -> None:
    migrate(empty_database)
    with psycopg.connect(empty_database) as link:
        link.execute("create view turnledger.unkeyed as select raw from ledger.events")
        link.execute(
            "create view turnledger.bare as select session_id from ledger.sessions union all select session_id from ledger.sessions"
        )
        link.execute(
            "create or replace view turnledger.gaps as "
            + str(link.execute("select pg_get_viewdef('turnledger.gaps'::regclass)").fetchone()[0])
        )  # type: ignore[index,arg-type]
        secure(link)
        found = link.execute(
            "select relname, pg_get_userbyid(relowner), reloptions, has_table_privilege('turnledger_reader', oid, 'select') "
            "from pg_class where relnamespace = 'turnledger'::regnamespace and relkind = 'v'"
        ).fetchall()
        assert {(owner, tuple(options), granted) for _, owner, options, granted in found} == {
            ("turnledger_views", ("security_barrier=true",), True)
        }
        assert {"bare", "gaps"} <= {row[0] for row in found}
        (body,) = link.execute("select pg_get_viewdef('turnledger.bare'::regclass)").fetchone() or ("",)
        assert body.rstrip().endswith(") shown;")
        (body,) = link.execute("select pg_get_viewdef('turnledger.unkeyed'::regclass)").fetchone() or ("",)
        assert "my_tenants" in body


# --- workers ----------------------------------------------------------------------------------------------------------------------


def test_workers_work_as_a_login_that_owns_nothing(
    database: str, topic: Topic, start: Callable[..., Running]
) -> None:
    name = f"worker_{urlsplit(database).path[-8:]}"
    with psycopg.connect(database, autocommit=True) as owner:
        create(owner, Login(name, worker=True, password="p"))
        # The day after the last that there is: the worker makes it, as it will have to on every day that comes.
        owner.execute(
            "drop table if exists ledger.events_"
            + str(owner.execute("select to_char(ledger.today() + 7, 'YYYYMMDD')").fetchone()[0])
        )  # type: ignore[index,arg-type]
    settings = environment(topic, as_role(database, name))
    worker, rollup = (
        start("worker", environment=settings),
        start("rollup", "--health-port", "0", environment=settings),
    )
    lines = [
        {"session_id": "s", "seq": 0, "type": "turn.started", "turn_id": "t"},
        {"session_id": "s", "seq": 1, "type": "model_call.completed", "turn_id": "t",
         "occurred_at": "2026-05-01T10:00:00Z", "payload": {"provider": "p", "model": "m", "usage": {"input": 3, "output": 4}}},
        {"session_id": "s", "seq": 1, "type": "other", "turn_id": "t"},
        {"session_id": "s", "receipt_key": "r", "type": "net.requested", "turn_id": "t", "payload": {"domain": "a.example", "port": 443, "decision": "denied"}},
        {"session_id": "s", "seq": 3, "type": "turn.completed", "turn_id": "t", "payload": {"status": "completed"}},
        {"session_id": "s", "type": "dead"},
    ]  # fmt: skip
    produce(topic, [Record(json.dumps(line).encode(), key=b"default/s", partition=0) for line in lines])
    until_applied(database, topic, len(lines), worker)
    until_projected(database, topic)

    def summed() -> bool:
        assert rollup.running(), rollup.output()
        return rows(database, "select 1 from turnledger.usage_hourly where calls = 1") != []

    eventually(summed, what="the hour is summed")
    found = rows(
        database,
        "select total_requests, denied_requests, total_output_tokens, grade, "
        "(select count(*) from turnledger.gaps), (select count(*) from turnledger.conflicts), (select count(*) from turnledger.dead_letters) "
        "from turnledger.session_summary",
    )
    assert found == [(1, 1, 4, "disputed", 1, 1, 1)]
    assert rows(
        database,
        "select to_regclass('ledger.events_' || to_char(ledger.today() + 7, 'YYYYMMDD')) is not null",
    ) == [(True,)]
    assert (worker.stop(), rollup.stop()) == (0, 0)
    with psycopg.connect(as_role(database, name), autocommit=True) as link:
        for statement in ("create table ledger.mine (n int)", "drop table projection_a.turns", "truncate ledger.events",
                          "insert into ledger.role_tenants (role) values (current_user)", "delete from ledger.schema_version"):  # fmt: skip
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                link.execute(statement)  # type: ignore[arg-type]
    with psycopg.connect(database, autocommit=True) as owner:
        drop(owner, name)


def test_an_index_that_is_missing_or_half_built_is_made_by_the_next_migration(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as link:
        link.execute(
            "update pg_index set indisvalid = false where indexrelid = 'projection_b.tool_calls_tool'::regclass"
        )
        link.execute("drop index projection_a.net_events_domain")
        link.execute("create index fs_events_session on projection_a.fs_events (session_no)")
    migrate(database)
    with psycopg.connect(database) as link:
        found = link.execute(
            "select indexrelid::regclass::text from pg_index where indisvalid and indexrelid in "
            "(to_regclass('projection_b.tool_calls_tool'), to_regclass('projection_a.net_events_domain'), to_regclass('projection_a.fs_events_session'))"
        ).fetchall()
    assert sorted(found) == [("projection_a.net_events_domain",), ("projection_b.tool_calls_tool",)]


def test_a_command_of_an_operator_tells_a_reader_what_it_may_do(fleet: Fleet) -> None:
    done = run(
        "sessions", "list", environment={"TURNLEDGER_DATABASE_URL": as_role(fleet.url, fleet.name("acme"))}
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "a reader asks the views with SQL" in done.stderr
    assert "Traceback" not in done.stderr


# --- logins -----------------------------------------------------------------------------------------------------------------------


def roles(monkeypatch: pytest.MonkeyPatch, url: str, *arguments: str) -> Any:
    """`turnledger db roles …` in this process: its output, or the error that the command line makes a sentence of."""
    monkeypatch.setenv("TURNLEDGER_DATABASE_URL", url)
    return CliRunner().invoke(build(), ["db", "roles", *arguments])


def test_a_login_is_made_listed_changed_and_dropped_by_the_command(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"Ann O'Neil {fleet.suffix}"
    made = roles(
        monkeypatch,
        fleet.url,
        "create",
        name,
        "--tenant",
        "acme",
        "--connections",
        "2",
        "--statement-seconds",
        "5",
        "--json",
    )
    assert made.exit_code == 0
    with psycopg.connect(json.loads(made.stdout)["url"], autocommit=True) as link:
        assert link.execute("select distinct tenant from turns").fetchall() == [("acme",)]
        assert roles(monkeypatch, fleet.url, "grant", name, "--tenant", "rival").exit_code == 0
        assert link.execute("select distinct tenant from turns order by 1").fetchall() == [
            ("acme",),
            ("rival",),
        ]
    (listed,) = [
        one
        for one in json.loads(roles(monkeypatch, fleet.url, "list", "--json").stdout)["roles"]
        if one["role"] == name
    ]
    assert listed == {
        "role": name,
        "kind": "reader",
        "tenants": ["acme", "rival"],
        "login": True,
        "statement_timeout": "5000ms",
        "connections": 2,
    }
    assert roles(monkeypatch, fleet.url, "drop", name).exit_code == 0
    assert name not in roles(monkeypatch, fleet.url, "list").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create", "x"), "nothing would be seen by 'x'"),
        (("create", "x", "--tenant", "a", "--worker"), "exclude each other"),
        (("create", "turnledger_views", "--tenant", "a"), "is not free for a login"),
        (("grant", "nobody", "--tenant", "a"), "no role 'nobody' reads or writes here"),
        (("revoke", "nobody"), "say which tenants"),
        (("drop", "turnledger"), "is no reader and no worker"),
    ],
)
def test_what_cannot_be_done_with_a_role_is_one_sentence(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    done = roles(monkeypatch, fleet.url, *arguments)
    assert isinstance(done.exception, TurnledgerError)
    assert said in str(done.exception)


def test_who_may_not_manage_roles_is_told_so(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (("create", "x", "--tenant", "a"), ("grant", fleet.name("acme"), "--tenant", "rival")):
        done = roles(monkeypatch, as_role(fleet.url, fleet.name("worker")), *arguments)
        assert isinstance(done.exception, TurnledgerError)
        assert "may not manage roles here" in str(done.exception)
