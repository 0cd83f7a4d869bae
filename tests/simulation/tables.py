"""The tables of the simulated database, their transactions (READ COMMITTED) and the locks of progress rows. Knows no SQL."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg

Row = dict[str, Any]
"""Never changed in place: a new version is a new dict."""
Key = Any

BEGINNING = datetime(2026, 3, 1, 23, 59, 30, tzinfo=UTC)
"""Half a minute before a day ends: most runs cross it."""

LOCK_SECONDS = 30.0
"""How long a statement waits for a row, unless its transaction says otherwise (``store.connect``)."""


def pick(*names: str) -> Callable[[Row], Key]:
    if len(names) == 1:
        name = names[0]
        return lambda row: row[name]
    return lambda row: tuple([row[name] for name in names])


class Table:
    """Committed rows, by key, and by the column that they are looked up by."""

    def __init__(self, name: str, key: tuple[str, ...], group: tuple[str, ...] = ()) -> None:
        self.name = name
        self.key = pick(*key)
        self.group: Callable[[Row], Key] | None = pick(*group) if group else None
        self.rows: dict[Key, Row] = {}
        self.groups: dict[Key, dict[Key, Row]] = defaultdict(dict)

    def set(self, key: Key, row: Row | None) -> None:
        group = self.group
        before = self.rows.pop(key, None)
        if before is not None and group is not None:
            del self.groups[group(before)][key]
        if row is not None:
            self.rows[key] = row
            if group is not None:
                self.groups[group(row)][key] = row


@dataclass(eq=False)
class Backend:
    """The process behind a connection."""

    pid: int
    start: datetime
    name: str
    killed: bool = False
    transaction: Transaction | None = None


@dataclass(eq=False)
class RowLock:
    holder: Transaction | None = None
    waiting: list[asyncio.Future[Any]] = field(default_factory=list)


class Transaction:
    """What one transaction sees and has written."""

    def __init__(self, server: Server, backend: Backend) -> None:
        self.server = server
        self.backend = backend
        self.now = server.now()
        self.written: dict[str, dict[Key, Row | None]] = {}
        self.inserted: set[tuple[str, Key]] = set()
        self.locks: list[RowLock] = []
        self.waits_for: Transaction | None = None
        self.lock_seconds = LOCK_SECONDS
        self.kind = ""
        """``data``, ``claim``, ``rollup`` or nothing: what its commit is called in a schedule."""
        self.over = False

    @property
    def today(self) -> date:
        return self.now.date()

    def get(self, table: str, key: Key) -> Row | None:
        own = self.written.get(table)
        if own is not None and key in own:
            return own[key]
        return self.server.tables[table].rows.get(key)

    def all(self, table: str) -> list[Row]:
        return self._seen(table, self.server.tables[table].rows, None)

    def of(self, table: str, *groups: Key) -> list[Row]:
        """Rows whose group is one of these, each once, in the order of the groups."""
        one = self.server.tables[table]
        if len(groups) > 1:
            groups = tuple(dict.fromkeys(groups))
        if table not in self.written:
            return [row for group in groups if group in one.groups for row in one.groups[group].values()]
        return [row for group in groups for row in self._seen(table, one.groups.get(group, {}), (group,))]

    def _seen(self, table: str, committed: dict[Key, Row], group: tuple[Key] | None) -> list[Row]:
        own = self.written.get(table)
        if not own:
            return list(committed.values())
        of = self.server.tables[table].group
        mine = [
            row
            for row in own.values()
            if row is not None and (group is None or (of is not None and of(row) == group[0]))
        ]
        return [*(row for key, row in committed.items() if key not in own), *mine]

    def insert(self, table: str, row: Row) -> None:
        key = self.server.tables[table].key(row)
        if self.get(table, key) is not None:
            raise psycopg.errors.UniqueViolation(f"duplicate key in {table}: {key}")
        if key not in self.server.tables[table].rows:
            self.inserted.add((table, key))
        self.written.setdefault(table, {})[key] = row

    def put(self, table: str, row: Row) -> None:
        """Insert, or put in the place of the row of this key."""
        key = self.server.tables[table].key(row)
        self._alone(table, key)
        self.written.setdefault(table, {})[key] = row

    def delete(self, table: str, row: Row) -> None:
        key = self.server.tables[table].key(row)
        self._alone(table, key)
        self.written.setdefault(table, {})[key] = None
        self.inserted.discard((table, key))

    def _alone(self, table: str, key: Key) -> None:
        """Rows are written under the fence of their session's home: two transactions at one row are a fault (design 3.2)."""
        for other in self.server.active:
            if other is not self and key in other.written.get(table, ()):
                self.server.fault("one writer a session", f"two transactions write {table} {key} at once")

    def savepoint(self) -> Any:
        return {name: dict(rows) for name, rows in self.written.items()}, set(self.inserted)

    def rollback_to(self, savepoint: Any) -> None:
        written, inserted = savepoint
        self.written, self.inserted = written, inserted


class Server:
    """The database: tables, sequences, locks, its clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tables: Iterable[Table]) -> None:
        self.loop = loop
        self.clock = loop.time
        self.jumped = 0.0
        """Seconds by which its clock was set forward or back."""
        self.tables = {table.name: table for table in tables}
        self.sequences: dict[str, int] = defaultdict(int)
        self.days: set[date] = set()
        """Which partitions of ``ledger.events`` there are."""
        self.locks: dict[Key, RowLock] = defaultdict(RowLock)
        self.active: list[Transaction] = []
        self.backends: dict[int, Backend] = {}
        self.away_until = 0.0
        self.faults: list[tuple[str, str]] = []
        """What must never happen, and did: (rule, what)."""
        self.commits = 0
        self.on_commit: Callable[[Transaction], None] = lambda transaction: None

    def now(self) -> datetime:
        return BEGINNING + timedelta(seconds=self.clock() + self.jumped)

    def fault(self, rule: str, what: str) -> None:
        if len(self.faults) < 50:
            self.faults.append((rule, what))

    def following(self, sequence: str, count: int = 1) -> range:
        """The next numbers of a sequence. No rollback gives them back."""
        start = self.sequences[sequence] + 1
        self.sequences[sequence] += count
        return range(start, start + count)

    def begin(self, backend: Backend) -> Transaction:
        transaction = backend.transaction = Transaction(self, backend)
        self.active.append(transaction)
        return transaction

    def commit(self, transaction: Transaction) -> None:
        """Raises ``UniqueViolation`` where another one inserted the same key meanwhile; then it is rolled back."""
        if transaction.over:
            raise psycopg.errors.AdminShutdown("terminating connection due to administrator command")
        for table, key in transaction.inserted:
            if key in self.tables[table].rows:
                self.rollback(transaction)
                raise psycopg.errors.UniqueViolation(f"duplicate key in {table}: {key}")
        self.on_commit(transaction)
        for name, rows in transaction.written.items():
            table_ = self.tables[name]
            for key, row in rows.items():
                table_.set(key, row)
        self.commits += bool(transaction.written)
        self._end(transaction)

    def rollback(self, transaction: Transaction) -> None:
        if not transaction.over:
            self._end(transaction)

    def _end(self, transaction: Transaction) -> None:
        transaction.over = True
        self.active.remove(transaction)
        transaction.backend.transaction = None
        for lock in transaction.locks:
            lock.holder = None
            # All of them: one that is woken may be dead. Who comes first looks first.
            for waiter in lock.waiting:
                if not waiter.done():
                    waiter.set_result(None)
            lock.waiting.clear()
        transaction.locks.clear()

    def terminate(self, backend: Backend) -> None:
        """``pg_terminate_backend``: what it was doing is rolled back; its client hears of it when it asks next."""
        backend.killed = True
        self.backends.pop(backend.pid, None)
        if backend.transaction is not None:
            self.rollback(backend.transaction)

    def lock(self, transaction: Transaction, key: Key, wait: Callable[[asyncio.Future[Any]], None]) -> None:
        """Lock a row until the transaction ends. ``wait(future)`` lets time pass. Raises as Postgres does."""
        lock = self.locks[key]
        until = self.clock() + transaction.lock_seconds
        while lock.holder is not None and lock.holder is not transaction:
            holder: Transaction | None = lock.holder
            while holder is not None:
                if holder is transaction:
                    raise psycopg.errors.DeadlockDetected("deadlock detected")
                holder = holder.waits_for
            left = until - self.clock()
            if left <= 0:
                raise psycopg.errors.LockNotAvailable("canceling statement due to lock timeout")
            waiter = self.loop.create_future()
            lock.waiting.append(waiter)
            self.loop.call_later(left, _done, waiter)
            transaction.waits_for = lock.holder
            try:
                wait(waiter)
            finally:
                transaction.waits_for = None
            if transaction.over:
                raise psycopg.errors.AdminShutdown("terminating connection due to administrator command")
        if lock.holder is None:
            lock.holder = transaction
            transaction.locks.append(lock)


def _done(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)
