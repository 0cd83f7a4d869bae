"""Logins and what they may see: `ledger.role_tenants`, and memberships in `turnledger_reader` and `turnledger_writer` (design 4).

Row-level security asks `current_user`, so that a person's rights hang on the login alone and on nothing that a connection can set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from turnledger.errors import TurnledgerError
from turnledger.store.named import query

READER, WRITER = "turnledger_reader", "turnledger_writer"
STATEMENT_SECONDS = 30.0
"""Of a reader's statement. A transaction has twice that: an open snapshot makes the fence's row slower with every update of it."""
CONNECTIONS = 20
RESERVED = frozenset({READER, WRITER, "turnledger_views"})


class RoleRefused(TurnledgerError):
    """A role cannot be made, changed or dropped as asked; nothing was done."""


@dataclass(frozen=True, slots=True)
class Login:
    """A login to be made. ``tenants`` are what a reader sees; empty with ``everything`` or of a worker, who sees all."""

    name: str
    tenants: tuple[str, ...] = ()
    everything: bool = False
    worker: bool = False
    password: str | None = None
    """None: the server lets it in by other means, or not at all."""
    statement_seconds: float = STATEMENT_SECONDS
    connections: int = CONNECTIONS


@dataclass(frozen=True, slots=True)
class Known:
    """A role as it is: ``kind`` is ``reader``, ``worker``, ``owner`` or ``none``; ``tenants`` is None where it sees all."""

    name: str
    kind: str
    tenants: tuple[str, ...] | None
    login: bool
    statement_timeout: str | None
    connections: int
    """-1: without limit."""


def create(connection: psycopg.Connection[Any], login: Login) -> None:
    """Make a login that reads what it is told, or writes as workers do. In a transaction of its own.

    Raises :class:`RoleRefused`: a name that is taken or reserved, nothing to see, or rights that the connection does not have.
    """
    if login.name in RESERVED or login.name.startswith("pg_"):
        raise RoleRefused(f"the name {login.name!r} is not free for a login: choose another.")
    if not (login.tenants or login.everything or login.worker):
        raise RoleRefused(
            f"nothing would be seen by {login.name!r}: name a tenant (--tenant), or say --all-tenants or --worker."
        )
    name = sql.Identifier(login.name)
    try:
        with connection.transaction():
            connection.execute(sql.SQL("create role {} login").format(name))
            if login.password is not None:
                # Hashed here: no log of the server ever sees it.
                hashed = connection.pgconn.encrypt_password(
                    login.password.encode(), login.name.encode(), b"scram-sha-256"
                )
                connection.execute(
                    sql.SQL("alter role {} password {}").format(name, sql.Literal(hashed.decode()))
                )
            if login.worker:
                connection.execute(
                    sql.SQL("grant {} to {} with inherit true, set false").format(
                        sql.Identifier(WRITER), name
                    )
                )
                return
            connection.execute(
                sql.SQL("grant {} to {} with inherit true, set false").format(sql.Identifier(READER), name)
            )
            connection.execute(
                sql.SQL("alter role {} connection limit {}").format(name, sql.Literal(login.connections))
            )
            for setting, value in _settings(connection, login.statement_seconds).items():
                connection.execute(
                    sql.SQL("alter role {} in database {} set {} = {}").format(
                        name,
                        sql.Identifier(connection.info.dbname),
                        sql.Identifier(setting),
                        sql.Literal(value),
                    )
                )
            for tenant in login.tenants or (None,):
                connection.execute(query("roles/grant"), {"role": login.name, "tenant": tenant})
    except psycopg.errors.DuplicateObject:
        raise RoleRefused(
            f"a role {login.name!r} exists already: `turnledger db roles grant {login.name} --tenant …` gives it more to see."
        ) from None
    except psycopg.errors.InsufficientPrivilege as error:
        raise _forbidden(connection, error) from None


def _settings(connection: psycopg.Connection[Any], seconds: float) -> dict[str, str]:
    found = {
        "statement_timeout": f"{round(seconds * 1000)}ms",
        "idle_in_transaction_session_timeout": f"{round(seconds * 2000)}ms",
        "lock_timeout": "5s",
        "default_transaction_read_only": "on",
        "search_path": "turnledger",
    }
    if connection.info.server_version >= 170_000:
        found["transaction_timeout"] = f"{round(seconds * 2000)}ms"
    return found


def grant(connection: psycopg.Connection[Any], name: str, tenants: Sequence[str | None]) -> None:
    """Let a reader see more tenants; None stands for all of them. What it sees already stays. Raises :class:`RoleRefused`."""
    _reader(connection, name)
    with _allowed(connection):
        for tenant in tenants:
            connection.execute(query("roles/grant"), {"role": name, "tenant": tenant})


def revoke(connection: psycopg.Connection[Any], name: str, tenants: Sequence[str | None]) -> None:
    """Take tenants away, from the next statement on. Raises :class:`RoleRefused`, also for a tenant that it did not see."""
    _reader(connection, name)
    with _allowed(connection):
        for tenant in tenants:
            gone = connection.execute(query("roles/revoke"), {"role": name, "tenant": tenant}).rowcount
            if gone == 0:
                what = "all tenants" if tenant is None else f"the tenant {tenant!r}"
                raise RoleRefused(
                    f"{name!r} was not granted {what}: `turnledger db roles list` says what it has."
                )


def drop(connection: psycopg.Connection[Any], name: str) -> None:
    """Drop a login that was made here. Raises :class:`RoleRefused` for any other, and where something else of the server hangs on it."""
    if _one(connection, name).kind not in ("reader", "worker"):
        raise RoleRefused(f"{name!r} is no reader and no worker: drop it with SQL, if that is what you want.")
    try:
        with _allowed(connection):
            connection.execute(query("roles/forget"), {"role": name})
            connection.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))
    except psycopg.errors.DependentObjectsStillExist as error:
        raise RoleRefused(
            f"the role {name!r} has rights or objects elsewhere ({str(error.diag.message_detail).splitlines()[0]}): "
            f"`drop owned by {name}` there first."
        ) from None


def listed(connection: psycopg.Connection[Any]) -> list[Known]:
    """Every reader, worker and owner of this database, by name."""
    return [
        Known(name, kind, None if everything else tuple(tenants), login, timeout, connections)
        for name, kind, everything, tenants, login, timeout, connections in connection.execute(
            query("roles/list")
        )
    ]


def _one(connection: psycopg.Connection[Any], name: str) -> Known:
    for one in listed(connection):
        if one.name == name:
            return one
    raise RoleRefused(
        f"no role {name!r} reads or writes here: `turnledger db roles list` names those that do."
    )


def _reader(connection: psycopg.Connection[Any], name: str) -> None:
    kind = _one(connection, name).kind
    if kind != "reader":
        raise RoleRefused(f"{name!r} is a {kind}, which sees all tenants: only readers are granted some.")


class _allowed:
    """A transaction in which a missing right is a sentence."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self._transaction = connection.transaction()

    def __enter__(self) -> None:
        self._transaction.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._transaction.__exit__(kind, error, trace)
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            raise _forbidden(self._connection, error) from None


def _forbidden(connection: psycopg.Connection[Any], error: psycopg.Error) -> RoleRefused:
    said = str(error.diag.message_primary or error).rstrip(".")
    return RoleRefused(
        f"{connection.info.user!r} may not manage roles here ({said}): connect as the owner of the schema, with the right to create roles."
    )
