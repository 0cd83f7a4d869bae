"""What people may see and how fast: owners, barriers and grants of the views, and the indexes of the questions that people ask.

Set after every run of the migrations. Indexes are made beside live workers (``create index concurrently``), which no transaction of a
migration could do, and are therefore no part of a schema version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from turnledger.store.named import query

SLOTS = ("projection_a", "projection_b")


class Index(NamedTuple):
    """One index of both slots: ``how`` is what stands behind ``on <table>``."""

    name: str
    table: str
    how: str


RANGE = "pages_per_range = 32"
CALLED = "coalesce(completed_at, started_at)"
REQUESTED = "coalesce(requested_at, completed_at)"
POINTS_BY_TIME = (
    "net_events",
    "dns_events",
    "fs_events",
    "exec_events",
    "audit_events",
    "credential_events",
    "security_rule_events",
    "security_decisions",
    "security_asks",
)

INDEXES: tuple[Index, ...] = (
    # By time: rows come nearly in its order, and a range without a summary yet costs a writer nothing (docs/sql.md has the measurements).
    *(Index(f"{table}_time", table, f"using brin (occurred_at) with ({RANGE})") for table in POINTS_BY_TIME),
    Index("turns_time", "turns", f"using brin (started_at) with ({RANGE})"),
    Index("model_calls_time", "model_calls", f"using brin (({CALLED})) with ({RANGE})"),
    Index("tool_calls_time", "tool_calls", f"using brin (({REQUESTED})) with ({RANGE})"),
    # By session; what a fleet's files are counted by stands in the entry, so that the count reads no row (1.1 s instead of 2.2 over 2 million).
    Index("fs_events_action", "fs_events", "(session_no, stream_no, action)"),
    # By name, the views' first 500 characters: such a text has no greatest size, an entry has.
    Index("tool_calls_tool", "tool_calls", f"(left(tool_name, 500), ({REQUESTED}))"),
    Index("model_calls_model", "model_calls", f"(left(model, 500), ({CALLED}))"),
    Index("net_events_domain", "net_events", "(left(domain, 500), occurred_at)"),
    # By trace: an id of the envelope, 512 bytes at most (contract 2).
    Index("model_calls_trace", "model_calls", "(trace_id) where trace_id is not null"),
    Index("tool_calls_trace", "tool_calls", "(trace_id) where trace_id is not null"),
    # What was refused is little, and asked for all day.
    Index("net_events_refused", "net_events", "(occurred_at) where decision in ('denied', 'error')"),
)

CHANGE_SECONDS = 0.5
"""So long a change of an index may wait for those who use it: whoever comes meanwhile waits behind it."""

REPLACED = {"fs_events_session": "fs_events_action"}
"""Indexes that an earlier revision made and a better one stands for: dropped once that one is there."""


def secure(connection: psycopg.Connection[Any]) -> None:
    """Owners, barriers and grants, in the connection's transaction. Nothing where the schema is older than they are."""
    connection.execute(query("maintain/surface"))


def index(connection: psycopg.Connection[Any], *, say: Callable[[str], None] = lambda line: None) -> int:
    """Make the indexes that are missing, one at a time, while others write; how many. The connection is in autocommit.

    What an interrupted build left is made anew. A build waits for the transactions that are open, and nobody waits for it. Raises what
    psycopg raises: the database is whole all the same, and slower.
    """
    if connection.execute("select to_regclass('ledger.role_tenants')").fetchone() == (None,):
        return 0
    made = 0
    for schema, name, table, how in _wanted(connection):
        valid = connection.execute(
            "select i.indisvalid from pg_index i where i.indexrelid = to_regclass(%s)", (f"{schema}.{name}",)
        ).fetchone()
        if valid == (True,):
            continue
        if valid is not None:
            connection.execute(sql.SQL("drop index concurrently {}").format(sql.Identifier(schema, name)))
        if connection.execute(
            f"select pg_relation_size('{schema}.{table}') > 64 * 1024 * 1024"
        ).fetchone() == (True,):
            say(f"building the index {schema}.{name} while others write")
        connection.execute(
            sql.SQL("create index concurrently {} on {} {}").format(
                sql.Identifier(name),
                sql.Identifier(schema, table),
                sql.SQL(how),
            )
        )
        made += 1
    for slot in SLOTS:
        for name in REPLACED:
            connection.execute(
                sql.SQL("drop index concurrently if exists {}").format(sql.Identifier(slot, name))
            )
    _leave_to_us(connection, say)
    return made


def _leave_to_us(connection: psycopg.Connection[Any], say: Callable[[str], None]) -> None:
    """Indexes of earlier revisions ask the server to summarize what is appended; since 0014 whoever rolls up does it (``store.maintain``)."""
    for schema, name in connection.execute(query("maintain/autosummarized")).fetchall():
        try:
            with connection.transaction():
                connection.execute(f"set local lock_timeout = {round(CHANGE_SECONDS * 1000)}")
                connection.execute(
                    sql.SQL("alter index {} reset (autosummarize)").format(sql.Identifier(schema, name))
                )
        except psycopg.errors.LockNotAvailable:
            say(f"the index {schema}.{name} is in use and stays as it is; the next migration changes it")


def _wanted(connection: psycopg.Connection[Any]) -> list[tuple[str, str, str, str]]:
    """(schema, name, table, how) of every index, those of the partitions of ``ledger.events`` too."""
    found = [(slot, *one) for slot in SLOTS for one in INDEXES]
    days = connection.execute(
        "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = 'ledger.events'::regclass order by 1"
    )
    return found + [
        ("ledger", f"{day}_time", day, f"using brin (occurred_at) with ({RANGE})") for (day,) in days
    ]
