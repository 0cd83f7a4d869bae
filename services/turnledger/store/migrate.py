"""Runs the migrations: one runner at a time, short lock timeouts with retries, so that live workers are never held up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

import turnledger
from turnledger.errors import TurnledgerError
from turnledger.store.connect import DatabaseNotMigrated, away, connect, place
from turnledger.store.maintain import make_event_partitions
from turnledger.store.named import query
from turnledger.store.surface import index

LOCK_KEY = 7_311_482_650_917
"""Of the advisory lock that one migrator holds."""
LOCK_TIMEOUT_SECONDS = 0.8
"""How long a statement may wait for a table lock, and so how long those behind it wait: under the second of design 4."""
ATTEMPTS = 20
STATEMENT_SECONDS = 600.0
WAIT_SECONDS = 120.0
"""How long to wait for another migrator."""

RETRIABLE = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
)


class MigrationError(TurnledgerError):
    """The schema could not be brought to the wanted version; the database is as it was."""


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """Where a database stands. ``current`` is None when nothing was ever migrated; ``pending`` is in the order of application."""

    current: str | None
    head: str
    pending: tuple[str, ...]


def folder() -> Path:
    """The top-level ``migrations`` folder: beside an editable install, else in the checkout around the working directory."""
    places = [Path(turnledger.__file__).resolve().parents[2], Path.cwd(), *Path.cwd().parents]
    for base in places:
        if (base / "migrations" / "env.py").is_file() and (base / "migrations" / "versions").is_dir():
            return base / "migrations"
    raise MigrationError(
        "the folder `migrations` was not found beside the package or above the working directory: run this inside a checkout of turnledger."
    )


def migrate(database_url: str, *, say: Callable[[str], None] = lambda line: None) -> SchemaStatus:
    """Bring the schema to the newest version. Safe beside live workers and beside other migrators (design 4).

    Returns where the database stands afterwards; ``say`` hears what is waited for. Raises :class:`MigrationError`, ``DatabaseAway``.
    """
    found = _run(database_url, lambda config: command.upgrade(config, "head"), say)
    with connect(database_url, "migrate", lock_seconds=LOCK_TIMEOUT_SECONDS) as connection:
        make_event_partitions(connection)
    with (
        _engine_connection(database_url) as alone,
        _alone(alone, say),
        connect(
            database_url, "migrate", autocommit=True, statement_seconds=STATEMENT_SECONDS, lock_seconds=0
        ) as connection,
    ):
        try:
            index(connection, say=say)
        except psycopg.Error as error:
            raise MigrationError(
                f"{place(database_url)} is at schema version {found.current}, but an index could not be made ({error.diag.message_primary or error}): "
                "all works without it, slower; migrate again when it is quieter."
            ) from error
    return found


def downgrade(
    database_url: str, revision: str = "base", *, say: Callable[[str], None] = lambda line: None
) -> SchemaStatus:
    """Back to ``revision`` (``base``: nothing left). For tests and empty databases: refuses while the ledger holds events."""
    with connect(database_url, "migrate") as connection:
        (table,) = connection.execute("select to_regclass('ledger.ingest_batches')").fetchone() or (None,)
        if table is not None:
            row = connection.execute("select exists (select from ledger.ingest_batches)").fetchone()
            if row is not None and row[0]:
                raise MigrationError(
                    f"the ledger at {place(database_url)} holds events, and going back to {revision!r} would drop them: "
                    "restore a backup, or drop the database, if that is what you want."
                )
    return _run(database_url, lambda config: command.downgrade(config, revision), say)


def status(database_url: str) -> SchemaStatus:
    """Where the database stands, without changing it."""
    with _engine_connection(database_url) as connection:
        return _status(connection, _config(connection))


def require(database_url: str) -> None:
    """Nothing, where the database has the schema of this program. Raises ``DatabaseNotMigrated`` with the way out, ``DatabaseAway``."""
    found = status(database_url)
    if found.pending:
        raise DatabaseNotMigrated(
            f"the database at {place(database_url)} is at schema version {found.current or 'none'}, this program needs {found.head}: "
            "run `turnledger db migrate`."
        )


def _status(connection: Connection, config: Config) -> SchemaStatus:
    script = ScriptDirectory.from_config(config)
    context = MigrationContext.configure(
        connection, opts={"version_table": "schema_version", "version_table_schema": "ledger"}
    )
    current = context.get_current_revision()
    head = script.get_current_head()
    if head is None:
        raise MigrationError(f"{folder()} holds no migration: the checkout is not whole.")
    known = {one.revision for one in script.walk_revisions()}
    if current is not None and current not in known:
        raise MigrationError(
            f"the database is at schema version {current}, which this turnledger does not know: run the newer version that made it."
        )
    pending = [one.revision for one in script.iterate_revisions(head, current or "base")]
    return SchemaStatus(current=current, head=head, pending=tuple(reversed(pending)))


def _run(database_url: str, step: Callable[[Config], None], say: Callable[[str], None]) -> SchemaStatus:
    with _engine_connection(database_url) as connection, _alone(connection, say):
        for attempt in range(1, ATTEMPTS + 1):
            config = _config(connection)
            try:
                connection.exec_driver_sql(f"set local lock_timeout = {round(LOCK_TIMEOUT_SECONDS * 1000)}")
                connection.exec_driver_sql("create schema if not exists ledger")
                step(config)
                connection.exec_driver_sql(
                    query("maintain/surface").decode(), execution_options={"no_parameters": True}
                )
                connection.commit()
                found = _status(connection, config)
                connection.rollback()
                return found
            except DBAPIError as error:
                if connection.invalidated or (
                    isinstance(error.orig, psycopg.OperationalError) and error.connection_invalidated
                ):
                    raise away(database_url, error.orig or error) from None
                connection.rollback()
                if not isinstance(error.orig, RETRIABLE):
                    raise MigrationError(
                        f"a migration of {place(database_url)} failed: {error.orig}"
                    ) from error
                say(f"a table is in use; trying again ({attempt} of {ATTEMPTS})")
                # Longer than the wait itself, so that those who queued behind it get through.
                time.sleep(min(5.0, LOCK_TIMEOUT_SECONDS + 0.2 * attempt) * (1 + random.random() / 2))
    raise MigrationError(
        f"tables of {place(database_url)} stayed locked through {ATTEMPTS} attempts: "
        "look for long transactions in pg_stat_activity, then migrate again."
    )


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(folder()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


@contextmanager
def _engine_connection(database_url: str) -> Iterator[Connection]:
    def creator() -> psycopg.Connection[Any]:
        return connect(database_url, "migrate", statement_seconds=STATEMENT_SECONDS)

    engine = create_engine("postgresql+psycopg://", creator=creator, poolclass=NullPool)
    with engine.connect() as connection:
        yield connection


@contextmanager
def _alone(connection: Connection, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the session-level advisory lock; wait for another migrator, but not for ever."""
    until = time.monotonic() + WAIT_SECONDS
    told = False
    while not connection.exec_driver_sql(f"select pg_try_advisory_lock({LOCK_KEY})").scalar():
        connection.rollback()
        if not told:
            say("another migrator is at work; waiting for it")
            told = True
        if time.monotonic() > until:
            raise MigrationError(
                f"another migrator has held its lock for {WAIT_SECONDS:.0f} s: see `select * from pg_locks where locktype = 'advisory'`."
            )
        time.sleep(0.1)
    connection.commit()
    try:
        yield
    finally:
        if not connection.invalidated and not connection.closed:
            connection.rollback()
            connection.exec_driver_sql(f"select pg_advisory_unlock({LOCK_KEY})")
            connection.commit()
