"""A connection as the handler sees it (what it uses of psycopg), and the link that runs functions on it: where faults strike."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import psycopg
from psycopg import pq

from tests.simulation import statements
from tests.simulation.clock import Killed, Turns
from tests.simulation.tables import Backend, Server, Transaction
from turnledger.ingest.link import Link
from turnledger.store import fence
from turnledger.store.connect import DatabaseAway

P = ParamSpec("P")
T = TypeVar("T")


class Process(Protocol):
    """The process that a connection belongs to."""

    name: str
    dead: bool
    frozen: asyncio.Future[Any] | None
    """Done when it runs again; None while it runs."""


class Schedule(Protocol):
    """Which fault strikes at which statement and which commit."""

    def at_statement(self, process: Process, name: str) -> tuple[Any, ...] | None: ...
    def at_commit(self, process: Process, kind: str) -> tuple[Any, ...] | None: ...
    def kill(self, process: Process) -> None: ...
    def freeze(self, process: Process, seconds: float) -> None: ...
    def note(self, what: str) -> None: ...
    def latency(self) -> float: ...


class Cursor:
    """An answer."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rows: list[tuple[Any, ...]] = []
        self.rowcount = -1

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *args: object) -> None:
        pass

    def execute(self, statement: Any, parameters: Any = None) -> Cursor:
        self._rows = self._connection.run(statement, parameters)
        self.rowcount = len(self._rows)
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._rows)


class Wire:
    """What ``store.copying`` uses of libpq's connection. Nothing here is ever busy: waiting is the statements' own."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._coming: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._ended: bytes | None = None
        """The statement whose rows are all here."""

    @property
    def transaction_status(self) -> pq.TransactionStatus:
        return pq.TransactionStatus.INTRANS if self._connection.in_transaction else pq.TransactionStatus.IDLE

    def send_query(self, text: bytes) -> None:
        self._coming.extend(text.split(b"; "))

    def put_copy_data(self, data: memoryview) -> None:
        self._parts.append(bytes(data))

    def put_copy_end(self) -> None:
        self._ended = self._coming.popleft()

    def flush(self) -> int:
        return 0

    def is_busy(self) -> int:
        return 0

    def get_result(self) -> Answer | None:
        if self._ended is not None:
            statement, self._ended = self._ended, None
            data, self._parts = b"".join(self._parts), []
            try:
                self._connection.copied(statement, data)
            except BaseException:
                self._coming.clear()
                raise
            return Answer(pq.ExecStatus.COMMAND_OK)
        return Answer(pq.ExecStatus.COPY_IN) if self._coming else None


@dataclass(frozen=True, slots=True)
class Answer:
    """A result of the wire's."""

    status: pq.ExecStatus


class Connection:
    """One connection in autocommit mode; ``transaction`` begins one, and a savepoint inside of one."""

    texts: Mapping[bytes, str] = statements.named()

    def __init__(self, server: Server, backend: Backend, link: SimulatedLink) -> None:
        self.server = server
        self.backend = backend
        self.link = link
        self.closed = False
        self.broken = False
        self._transaction: Transaction | None = None
        self._failed = False
        """A statement of the transaction failed: only a rollback goes on."""
        self.pgconn = Wire(self)
        self.lock = nullcontext()
        self.info = SimpleNamespace(encoding="utf-8")

    # --- what the product calls ---

    def wait(self, generator: Generator[Any, Any, None]) -> None:
        """Run what the wire never lets wait."""
        for waited_for in generator:
            raise AssertionError(f"nothing is to be waited for on this wire, not {waited_for}")

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    def execute(self, statement: Any, parameters: Any = None) -> Cursor:
        return Cursor(self).execute(statement, parameters)

    def cursor(self, *, binary: bool = False) -> Cursor:
        return Cursor(self)

    def close(self) -> None:
        if self.link.process.dead:
            # Nobody says goodbye: the server notices by itself.
            return
        self.closed = True
        self.server.backends.pop(self.backend.pid, None)
        if self._transaction is not None:
            self.server.rollback(self._transaction)
            self._transaction = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._transaction is not None:
            savepoint = self._transaction.savepoint()
            try:
                yield
            except Exception:
                if not self.broken:
                    self._transaction.rollback_to(savepoint)
                    self._failed = False
                raise
            return
        self._alive("begin")
        transaction = self._transaction = self.server.begin(self.backend)
        self._failed = False
        try:
            yield
        except Exception:
            self._transaction = None
            self._failed = False
            self.server.rollback(transaction)
            raise
        self._commit(transaction)

    # --- statements ---

    def run(self, statement: Any, parameters: Any) -> list[tuple[Any, ...]]:
        name = self.texts.get(statement) if isinstance(statement, bytes) else None
        if name is not None:
            function = statements.STATEMENTS[name]
        else:
            name, function = statements.unnamed(_text(statement))
        return self._do(name, lambda context: function(context, parameters))

    def ask(self, name: str, function: Callable[[statements.Context], Any]) -> Any:
        """A statement that has no text here."""
        return self._do(name, function)

    def copied(self, statement: Any, data: bytes) -> None:
        schema, name, names = statements.copy_of(_text(statement))
        self._do(f"copy {name}", lambda context: statements.copy(context, schema, name, names, data) or [])

    def _do(self, name: str, function: Callable[[statements.Context], Any]) -> Any:
        self._alive(name)
        if self._failed:
            raise psycopg.errors.InFailedSqlTransaction("current transaction is aborted")
        transaction = self._transaction
        single = transaction is None
        if transaction is None:
            transaction = self.server.begin(self.backend)
        try:
            answer = function(statements.Context(self.server, transaction, self._wait))
        except psycopg.Error:
            self._failed = not single
            if single:
                self.server.rollback(transaction)
            raise
        except BaseException:
            if single:
                self.server.rollback(transaction)
            raise
        if single:
            self.server.commit(transaction)
        return answer

    def _wait(self, until: asyncio.Future[Any]) -> None:
        """Let time pass in the middle of a statement."""
        self.link.turns.pause(until)
        self._thaw()
        if self.backend.killed:
            self._break()
            raise psycopg.errors.AdminShutdown("terminating connection due to administrator command")

    def _thaw(self) -> None:
        process = self.link.process
        while process.frozen is not None and not process.dead:
            self.link.turns.pause(process.frozen)
        if process.dead:
            raise Killed

    def _alive(self, name: str) -> None:
        """Before a statement: whether there is still somebody to send it, and to whom."""
        self._thaw()
        fault = self.link.schedule.at_statement(self.link.process, name)
        if fault is not None:
            self._strike(fault, name)
        if self.broken or self.closed:
            raise psycopg.OperationalError("the connection is closed")
        if self.backend.killed:
            self._break()
            raise psycopg.errors.AdminShutdown("terminating connection due to administrator command")
        if self.server.clock() < self.server.away_until:
            self._break()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    def _strike(self, fault: tuple[Any, ...], name: str) -> None:
        kind = fault[0]
        if kind == "pause":
            self._wait(self.link.after(fault[1]))
        elif kind == "cut":
            self._break()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        elif kind == "error":
            self._failed = self._transaction is not None
            raise fault[1](f"simulated at {name}")
        elif kind == "kill":
            self._abandon(fault[1])
            self.link.schedule.kill(self.link.process)
            raise Killed
        elif kind == "freeze":
            self.link.schedule.freeze(self.link.process, fault[1])
            self._thaw()

    def _break(self) -> None:
        """The connection is gone, and what it was doing rolled back."""
        self.broken = self.closed = True
        self.server.terminate(self.backend)
        self._transaction = None

    def _abandon(self, seconds: float) -> None:
        """The client is gone; the server notices after a while, and holds its locks until then."""
        self.broken = self.closed = True
        if self._transaction is not None:
            self.server.loop.call_later(seconds, self.server.terminate, self.backend)
        else:
            self.server.backends.pop(self.backend.pid, None)

    def _commit(self, transaction: Transaction) -> None:
        self._thaw()
        if self.broken or self.closed:
            raise psycopg.OperationalError("the connection is closed")
        if self.backend.killed:
            self._break()
            raise psycopg.errors.AdminShutdown("terminating connection due to administrator command")
        fault = self.link.schedule.at_commit(self.link.process, transaction.kind)
        kind, seconds = fault if fault is not None else ("", 0.0)
        if kind == "freeze before":
            self.link.schedule.freeze(self.link.process, seconds)
            self._thaw()
            if self.backend.killed:
                self._break()
                raise psycopg.errors.AdminShutdown("terminating connection due to administrator command")
            kind = ""
        if self.server.clock() < self.server.away_until:
            self._break()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        if kind == "lost before":
            self._break()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        if kind == "late":
            # The server got the COMMIT and takes its time; the client hears nothing of it.
            self.broken = self.closed = True
            self._transaction = None
            self.server.loop.call_later(seconds, self._commit_late, transaction)
            raise psycopg.OperationalError("could not receive data from server: timed out")
        if kind == "kill before":
            self._abandon(seconds)
            self.link.schedule.kill(self.link.process)
            raise Killed
        self._transaction = None
        self.server.commit(transaction)
        if kind == "lost after":
            self._break()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        if kind == "kill after":
            self.link.schedule.kill(self.link.process)
            raise Killed
        if kind == "freeze after":
            self.link.schedule.freeze(self.link.process, seconds)
            self._thaw()

    def _commit_late(self, transaction: Transaction) -> None:
        if not transaction.over:
            try:
                self.server.commit(transaction)
            except psycopg.Error as error:
                self.link.schedule.note(f"a late commit failed: {error}")
        self.server.backends.pop(self.backend.pid, None)


class SimulatedLink(Link):
    """The product's link over a connection of the simulated server, in a thread that takes turns with the loop."""

    def __init__(self, server: Server, schedule: Schedule, process: Process, application: str) -> None:
        self.server = server
        self.schedule = schedule
        self.process = process
        self.application = application
        self.turns = Turns(f"{process.name} {application}")
        self.backend: fence.Backend | None = None
        self.fresh = False
        self._connection: Any = None
        self._jobs: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._busy: asyncio.Task[None] | None = None

    def submit(
        self, work: Callable[Concatenate[Any, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.server.loop.create_future()
        self._jobs.append((lambda: self._run(work, *args, **kwargs), future))
        if self._busy is None:
            self._busy = self.server.loop.create_task(self._drain())
        return future

    def after(self, seconds: float) -> asyncio.Future[Any]:
        """A future that is done after so many seconds."""
        future: asyncio.Future[Any] = self.server.loop.create_future()
        self.server.loop.call_later(seconds, _done, future)
        return future

    async def _drain(self) -> None:
        while self._jobs and not self.process.dead:
            work, future = self._jobs.popleft()
            await asyncio.sleep(self.schedule.latency())
            if self.process.dead:
                break
            waits = self.turns.begin(work)
            while waits is not None:
                await asyncio.wait([waits])
                if self.process.dead:
                    break
                waits = self.turns.go_on()
            if self.process.dead:
                break
            if not future.done():
                if self.turns.error is None:
                    future.set_result(self.turns.result)
                elif isinstance(self.turns.error, Exception):
                    future.set_exception(self.turns.error)
        self._busy = None

    def _open(self) -> Any:
        if self.server.clock() < self.server.away_until:
            raise DatabaseAway("the database at memory does not answer: it comes back by itself.")
        pid = self.server.following("pid")[0]
        backend = Backend(pid, self.server.now(), self.process.name)
        self.server.backends[pid] = backend
        self.backend = fence.Backend(pid, backend.start)
        connection = self._connection = Connection(self.server, backend, self)
        self.fresh = True
        return connection

    def shutdown(self) -> None:
        """As the product's: after what is queued, without waiting for it."""
        if not self.process.dead:
            self.submit(lambda connection: connection.close())

    def vanish(self, seconds: float = 0.0) -> None:
        """The process is gone: what it was doing ends on the server after so many seconds."""
        connection = self._connection
        if connection is not None and not connection.closed:
            connection._abandon(seconds)
        if self._busy is not None:
            self._busy.cancel()
        self.turns.end()


def _text(statement: Any) -> str:
    if isinstance(statement, bytes):
        return statement.decode()
    return statement if isinstance(statement, str) else str(statement.as_string(None))


def _done(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)
