"""A database connection of its own with a thread of its own: opened when it is needed, dropped when it breaks. Not a pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import psycopg

from turnledger.store import fence
from turnledger.store.connect import connect, look_keys_up

P = ParamSpec("P")
T = TypeVar("T")

Connection = psycopg.Connection[Any]


class Database(Protocol):
    """What the handler needs of the database's side: functions run on one connection, one after the other."""

    backend: fence.Backend | None
    """The database process that serves the connection; known inside of what is submitted."""

    def submit(
        self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Run ``work(connection, …)``. Raises what it raises, or ``DatabaseAway``."""

    def shutdown(self) -> None:
        """Close for good, without waiting for work that hangs."""


class Link:
    """A :class:`Database` of Postgres: its functions run off the event loop."""

    def __init__(self, database_url: str, application: str) -> None:
        self.database_url = database_url
        self.application = application
        self.backend: fence.Backend | None = None
        """The database process that serves the connection that is open."""
        self.fresh = False
        """A new connection was opened since this was last looked at."""
        self._connection: Connection | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=application)

    def submit(
        self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Run ``work(connection, …)`` in the link's thread. Raises what it raises, or ``DatabaseAway``."""
        future: Future[T] = self._executor.submit(lambda: self._run(work, *args, **kwargs))
        return asyncio.wrap_future(future)

    def _run(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        connection = self._connection
        if connection is None or connection.closed:
            connection = self._open()
        try:
            return work(connection, *args, **kwargs)
        finally:
            if connection.broken or connection.closed:
                self.close()

    def _open(self) -> Connection:
        connection = connect(self.database_url, self.application, autocommit=True)
        look_keys_up(connection)
        self.backend = fence.backend(connection)
        self._connection = connection
        self.fresh = True
        return connection

    def close(self) -> None:
        """Drop the connection. What it was doing is rolled back by the server."""
        connection, self._connection = self._connection, None
        self.backend = None
        if connection is not None:
            connection.close()

    def shutdown(self) -> None:
        """Close for good, without waiting for work that hangs."""
        self._executor.submit(self.close)
        self._executor.shutdown(wait=False)
