"""Opens connections to Postgres: the one place that knows their timeouts, their name and the sentences for a database that is away."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from turnledger.errors import TurnledgerError

CONNECT_SECONDS = 5
STATEMENT_SECONDS = 60
IDLE_IN_TRANSACTION_SECONDS = 60
LOCK_SECONDS = 30

# A link that was cut without a word is noticed within about 15 s: 5 s of silence, then 3 probes, 3 s apart; unsent data 15 s.
TCP = {
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}


class DatabaseAway(TurnledgerError):
    """No connection could be opened, or the one there was is gone."""


class DatabaseNotMigrated(TurnledgerError):
    """The database answers, but its schema is not the one this version needs."""


def conninfo(
    database_url: str,
    application: str,
    *,
    statement_seconds: float = STATEMENT_SECONDS,
    idle_seconds: float = IDLE_IN_TRANSACTION_SECONDS,
    lock_seconds: float = LOCK_SECONDS,
) -> str:
    """``database_url`` with our timeouts and application name; what the URL says itself wins. 0 s means without limit."""
    given: dict[str, Any] = conninfo_to_dict(database_url)
    options = (
        f"-c statement_timeout={round(statement_seconds * 1000)}"
        f" -c idle_in_transaction_session_timeout={round(idle_seconds * 1000)}"
        f" -c lock_timeout={round(lock_seconds * 1000)}"
        f" -c timezone=UTC"
        # A client that is gone must not keep its locks until a statement ends.
        f" -c client_connection_check_interval=5000"
    )
    ours: dict[str, Any] = {
        "application_name": f"turnledger {application}",
        "connect_timeout": str(CONNECT_SECONDS),
        "client_encoding": "UTF8",
        **TCP,
    }
    merged = {**ours, **given}
    merged["options"] = f"{options} {given['options']}" if given.get("options") else options
    return make_conninfo(**merged)


def connect(
    database_url: str,
    application: str,
    *,
    autocommit: bool = False,
    statement_seconds: float = STATEMENT_SECONDS,
    idle_seconds: float = IDLE_IN_TRANSACTION_SECONDS,
    lock_seconds: float = LOCK_SECONDS,
) -> psycopg.Connection[Any]:
    """One connection in READ COMMITTED, named ``turnledger <application>``, in UTC.

    Timeouts are in seconds, 0 without limit. Raises :class:`DatabaseAway` when the server does not answer or refuses.
    """
    try:
        text = conninfo(
            database_url,
            application,
            statement_seconds=statement_seconds,
            idle_seconds=idle_seconds,
            lock_seconds=lock_seconds,
        )
    except psycopg.ProgrammingError as error:
        raise DatabaseAway(
            f"the database address is not one ({str(error).strip()}): set TURNLEDGER_DATABASE_URL to postgresql://user@host:port/name."
        ) from None
    try:
        connection: psycopg.Connection[Any] = psycopg.connect(text, autocommit=autocommit)
    except psycopg.OperationalError as error:
        raise away(database_url, error) from None
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection


def place(database_url: str) -> str:
    """``host:port/name`` of a database, without its password."""
    try:
        parts = conninfo_to_dict(database_url)
    except psycopg.ProgrammingError:
        return urlsplit(database_url).hostname or "the given address"
    host = parts.get("host") or "localhost"
    return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or parts.get('user') or ''}"


def look_keys_up(connection: psycopg.Connection[Any]) -> None:
    """For a connection all of whose statements look keys up: a plan that scans is one made while a table was small, or without statistics of it."""
    connection.execute("set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off")


def away(database_url: str, error: Exception) -> DatabaseAway:
    """The sentence for a connection that failed or was lost."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    reason = first.rpartition("failed: ")[2].rstrip(".")
    if "FATAL:" in reason:
        refusal = reason.rpartition("FATAL:")[2].strip()
        return DatabaseAway(
            f"the database at {place(database_url)} refuses the connection ({refusal}): check TURNLEDGER_DATABASE_URL."
        )
    return DatabaseAway(
        f"the database at {place(database_url)} does not answer ({reason}): start it (`turnledger dev up` runs one here) "
        "or set TURNLEDGER_DATABASE_URL."
    )
