"""Owns the durable spool of a publisher: one SQLite file in which an event gets its number and its place in one transaction.

Nothing here sends, and nothing here waits but for the disk. One process has a spool at a time.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson

from turnledger.harness.kafka import key_of
from turnledger.harness.numbering import LedgerError
from turnledger.harness.outlets import Row
from turnledger.harness.reserve import RESERVE_BYTES, Reserve

OnFull = Literal["drop", "raise"]
ROWS = 500
"""Rows of one batch: what comes again after a crash, and what one sync is shared by."""
BATCH_BYTES = 200_000
"""Bytes of one batch, but for its first row: below the 256 KB that leave for Kafka at once."""
ROOM_AGAIN = 0.9
"""Part of the bound below which a full spool takes events again: each time it is full costs one declaration, not each event."""
AGED_AT_ONCE = 5_000
CHECKPOINT_BYTES = 512 * 1024
"""The sender takes the WAL back into the file from this length on, while nobody waits for it."""
WAL_LIMIT = 2 * 1024 * 1024
"""From this length on, ``emit`` does it itself, once for some hundred small events: an event of 400 bytes costs a page of 4 KiB in the WAL,
and while no sink is there the sender has nothing to do."""
APPLICATION_ID = 0x746C7370
VERSION = 2
"""Since 2, ``streams.next_seq`` may be behind the rows: the greater of the two counts. A spool of version 1 is read and becomes one of 2."""
SCHEMA = """
CREATE TABLE streams (
    id INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL, session_id TEXT NOT NULL, producer TEXT NOT NULL, stream TEXT NOT NULL, epoch INTEGER NOT NULL,
    envelope BLOB NOT NULL,
    next_seq INTEGER NOT NULL,
    lost_from INTEGER, lost_to INTEGER,
    UNIQUE (tenant, session_id, producer, stream, epoch)
);
CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    stream_id INTEGER NOT NULL, seq INTEGER NOT NULL, at REAL NOT NULL, declares INTEGER NOT NULL, record BLOB NOT NULL
);
CREATE TABLE cursors (sink TEXT PRIMARY KEY, position INTEGER NOT NULL, offset INTEGER);
"""
PAGE = 4096
SPENT_AT, SPENT_BYTES = 64, 64
"""Where the lock file keeps how far numbers were spent on what was dropped: `stream number`."""
NO_ROOM = frozenset(
    (
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_SHMSIZE,
        sqlite3.SQLITE_IOERR_TRUNCATE,
    )
)
"""What SQLite says when a write does not go: no room, or another reason of the disk's (a quota, a limit of the process)."""

log = logging.getLogger("turnledger.harness")


class SpoolFull(LedgerError):
    """There is no room for the event in the spool, or on its disk. No number was spent."""


class SpoolHeld(LedgerError):
    """Another process, or another ``Ledger`` of this one, has the spool."""


class SpoolBroken(LedgerError):
    """The spool's file cannot be read or written."""


class Cursor(NamedTuple):
    """How far a sink has confirmed: a position, and the sink's own offset there."""

    position: int
    offset: int | None


@dataclass(slots=True)
class Standing:
    """Where one stream of the spool stands. ``lost_from`` to ``lost_to``: numbers that were spent on what was dropped, not declared yet."""

    id: int
    envelope: Mapping[str, Any]
    key: bytes
    next_seq: int
    lost_from: int | None
    lost_to: int | None
    stored: int
    """``next_seq`` as its row has it. Behind by the rows that are in the spool; before one of them goes it is set."""

    def lose(self, numbers: int) -> None:
        """Spend the next numbers on what is dropped."""
        if self.lost_from is None:
            self.lost_from = self.next_seq
        self.next_seq += numbers
        self.lost_to = self.next_seq - 1


class Spool:
    """Safe for threads. ``bytes_limit`` bounds the sum of the records; the file is somewhat longer, and does not shrink below what it once held."""

    def __init__(
        self, path: str | os.PathLike[str], *, sinks: Iterable[str], bytes_limit: int, on_full: OnFull
    ) -> None:
        self.path = Path(path)
        self._limit, self._on_full, self._sinks = bytes_limit, on_full, tuple(sinks)
        self._lock = threading.Lock()
        self.confirmed = threading.Condition(self._lock)
        self._owner = os.getpid()
        self._closed = False
        self._full = False
        self._opened = False
        self._wal = 0
        """About how many bytes of the WAL wait to be taken back."""
        self._checkpointing = threading.Lock()
        """Taken behind ``_lock``, never before it."""
        self.dropped = 0
        """Events that were dropped for want of room since this object was made."""
        self._held = self._hold()
        _let_go_in_children(self)
        self._reserve = Reserve(self.path.with_name(self.path.name + ".reserve"))
        try:
            self._with_room(self._open)
        except BaseException:
            self._release()
            raise

    # -- opening and closing

    def _hold(self) -> int:
        lock = self.path.with_name(self.path.name + ".lock")
        try:
            file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SpoolBroken(
                f"the spool {self.path} cannot be opened ({error.strerror}): make its folder, or give another path"
            ) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(file, SPENT_AT, 0).strip(b" \n\0").decode("ascii", "replace")
            os.close(file)
            raise SpoolHeld(
                f"the spool {self.path} is in use by process {owner or '(unknown)'}: end that one, or give this Ledger a spool of its own"
            ) from None
        if os.fstat(file).st_size < SPENT_AT + SPENT_BYTES:
            os.pwrite(file, b" " * (SPENT_AT + SPENT_BYTES), 0)
        os.pwrite(file, b"%-*d" % (SPENT_AT, os.getpid()), 0)
        return file

    def _release(self) -> None:
        held, self._held = self._held, -1
        if held >= 0:
            os.close(held)

    def _open(self) -> None:
        self._db = self._connect()
        self._maintenance = self._connect()
        self._wal = _size(f"{self.path}-wal")
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if application != APPLICATION_ID and tables:
            raise SpoolBroken(f"{self.path} is a database of something else: give the spool another path")
        if not tables:
            self._db.executescript(
                f"BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT;"
            )
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version not in (1, VERSION):
            raise SpoolBroken(
                f"{self.path} is a spool of version {version}, this turnledger knows {VERSION}: empty it with the one that wrote it"
            )
        held = {
            stream: (size, last, seq)
            for stream, size, last, seq in self._db.execute(
                "SELECT stream_id, sum(length(record)), max(position), max(seq) FROM events GROUP BY stream_id"
            )
        }
        self._bytes = sum(size for size, _, _ in held.values())
        last = max((last for _, last, _ in held.values()), default=0)
        cursors = {
            sink: Cursor(position, offset)
            for sink, position, offset in self._db.execute("SELECT sink, position, offset FROM cursors")
        }
        self._last: int = max(last, *(cursor.position for cursor in cursors.values()), 0, 0)
        self._cursors = {sink: cursors.get(sink, Cursor(0, None)) for sink in self._sinks}
        self._sending = dict.fromkeys(self._sinks, 0)
        self._streams = {row[0]: _standing(*row) for row in self._db.execute(
            "SELECT id, envelope, next_seq, lost_from, lost_to FROM streams"
        )}  # fmt: skip
        for number, (_, _, seq) in held.items():
            self._streams[number].next_seq = max(self._streams[number].next_seq, seq + 1)
        if version != VERSION:
            self._db.execute(f"PRAGMA user_version = {VERSION}")
        self._recall()
        self._opened = True

    def _connect(self) -> sqlite3.Connection:
        # Numbers must survive this process, so a commit need not wait for the disk: `sync` does, before anything leaves.
        db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5.0)
        db.execute(f"PRAGMA page_size = {PAGE}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute(
            "PRAGMA cache_size = -512"
        )  # KiB: what is read is read once, what is written goes to the end
        return db

    def close(self) -> None:
        """Let go of the file; what is in it stays. A second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                if not self._bytes:
                    self._reserve.remove()
                with (
                    suppress(SpoolFull),
                    self._broken(),
                ):  # the rows stay in the WAL, the next one takes them from there
                    self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                self._maintenance.close()
                self._db.close()
                self._release()
                self.confirmed.notify_all()

    def _recall(self) -> None:
        """Numbers that were spent while the disk was full, and that only the lock file knows."""
        said = os.pread(self._held, SPENT_BYTES, SPENT_AT).split()
        if len(said) != 2:
            return
        stream, spent = self._streams.get(int(said[0])), int(said[1])
        if stream is not None and spent > stream.next_seq:
            stream.lose(spent - stream.next_seq)
            with self._transaction(stream):
                self._keep(stream)

    # -- the harness's side

    def stream(self, envelope: Mapping[str, Any], *, epoch: int | None) -> Standing:
        """Where the stream of an envelope stands: continued (the greatest epoch known here, unless one is given), or begun with the envelope's own epoch."""
        name = tuple(envelope[part] for part in ("tenant", "session_id", "producer", "stream"))
        with self._lock, self._broken():
            known = [
                stream
                for stream in self._streams.values()
                if tuple(stream.envelope[part] for part in ("tenant", "session_id", "producer", "stream"))
                == name
                and epoch in (None, stream.envelope["epoch"])
            ]
            if known:
                stream = max(known, key=lambda each: each.envelope["epoch"])
                with suppress(SpoolFull):  # declared as soon as there is room
                    self._declare_all()
                told = {**envelope, "epoch": stream.envelope["epoch"]}
                if told != stream.envelope:
                    stream.envelope = told
                    self._db.execute(
                        "UPDATE streams SET envelope = ? WHERE id = ?", (orjson.dumps(told), stream.id)
                    )
                return stream
            with self._transaction():
                made = self._db.execute(
                    "INSERT INTO streams (tenant, session_id, producer, stream, epoch, envelope, next_seq) VALUES (?, ?, ?, ?, ?, ?, 0)",
                    (*name, envelope["epoch"], orjson.dumps(envelope)),
                ).lastrowid
            assert made is not None
            stream = self._streams[made] = _standing(made, orjson.dumps(envelope), 0, None, None)
            return stream

    def append(self, stream: Standing, records_of: Callable[[int], Sequence[bytes]]) -> tuple[int, int]:
        """Number an event and store it: (number, position), both from one transaction. ``records_of`` gives its records from a number on: one, and
        those that belong to it under the next numbers.

        What does not fit is dropped with its number (position 0), or refused with :class:`SpoolFull`, as the spool was told.
        """
        with self._lock:
            self._mine()
            if self._full and self._bytes <= self._limit * ROOM_AGAIN:
                self._full = False
            declares = stream.lost_from is not None and not self._full
            seq = stream.next_seq + declares
            records = records_of(seq)
            try:
                if self._full or self._bytes + sum(map(len, records)) > self._limit:
                    self._full = self._on_full == "drop"
                    raise SpoolFull(
                        f"the spool {self.path} holds {self._bytes} bytes that no sink has confirmed, its bound is {self._limit}: "
                        "start the sink, raise spool_bytes, or let it drop with on_full='drop'"
                    )
                self._append(stream, seq, records)
            except SpoolFull as full:
                if self._on_full == "raise":
                    raise
                return self._drop(stream, len(records), full), 0
            return seq, self._last

    def _append(self, stream: Standing, seq: int, records: Sequence[bytes]) -> None:
        """Declare what was dropped before, and store the event. Raises :class:`SpoolFull`, and then nothing has happened."""
        if not self._reserve.held:
            self._has_room()
        try:
            with self._broken():
                self._insert(stream, seq, records)
        except SpoolFull:  # the WAL cannot grow; the file may have room inside
            with self._broken():
                self._take_back()
                self._insert(stream, seq, records)
        if self._wal >= WAL_LIMIT:
            with suppress(SpoolFull), self._broken():  # stored it is; the reserve has the room when rows go
                self._take_back()

    def _insert(self, stream: Standing, seq: int, records: Sequence[bytes]) -> None:
        if stream.lost_from is None and len(records) == 1:  # one statement is one transaction
            self._store(stream, seq, records[0], declares=False)
        else:
            dropped = (stream.lost_from, stream.lost_to)
            with self._transaction(stream):
                self._settle(stream)
                for at, record in enumerate(records):
                    self._store(stream, seq + at, record, declares=False)
            if dropped[0] is not None:
                log.warning(
                    "the spool %s takes events again: %d to %d are declared lost", self.path, *dropped
                )
        stream.next_seq = seq + len(records)

    def _has_room(self) -> None:
        """Without a reserve, only the pages that its file has to spare are the spool's to fill: to be emptied again it needs as many."""
        if self._reserve.take():
            return
        (pages,) = self._db.execute("PRAGMA page_count").fetchone()
        (free,) = self._db.execute("PRAGMA freelist_count").fetchone()
        if os.stat(self.path).st_size - (pages - free) * PAGE < RESERVE_BYTES:
            raise SpoolFull(self._disk_full())

    def _disk_full(self) -> str:
        return f"the disk of the spool {self.path} is full: make room, or let the Ledger drop with on_full='drop'"

    def _drop(self, stream: Standing, numbers: int, why: SpoolFull) -> int:
        """Spend the next numbers on nothing; the first of them. The caller holds the lock."""
        if stream.lost_from is None:
            log.warning("events are dropped from number %d on, and declared later: %s", stream.next_seq, why)
        self.dropped += 1
        seq = stream.next_seq
        stream.lose(numbers)
        # Of what the disk gave long ago: overwriting it needs no room, and the rows need none for what is not there.
        os.pwrite(self._held, b"%-*s" % (SPENT_BYTES, b"%d %d" % (stream.id, stream.next_seq)), SPENT_AT)
        return seq

    def declare(self) -> None:
        """Declare what was dropped, of all streams, whether or not there is room for more. Raises :class:`SpoolFull` when the disk has none."""
        with self._lock:
            self._mine()
            self._declare_all()

    # -- the sender's side

    def batch(self, sink: str) -> tuple[list[Row], Cursor]:
        """The next rows of a sink in their order, and its cursor. They are not dropped for their age until :meth:`confirm` or :meth:`leave`."""
        with self._lock, self._broken():
            cursor, size = self._cursors[sink], 0
            rows: list[Row] = []
            for position, stream, seq, record in self._db.execute(
                "SELECT position, stream_id, seq, record FROM events WHERE position > ? ORDER BY position LIMIT ?",
                (cursor.position, ROWS),
            ):
                size += len(record)
                if rows and size > BATCH_BYTES:
                    break
                rows.append(Row(position, stream, seq, self._streams[stream].key, record))
            self._sending[sink] = rows[-1].position if rows else 0
            return rows, cursor

    def sync(self) -> None:
        """Have the disk hold everything appended so far: a number that left must not be given again after a power cut. Blocks nobody else."""
        with self._broken():
            wal = os.open(f"{self.path}-wal", os.O_RDONLY)
            try:
                os.fsync(wal)
            finally:
                os.close(wal)

    def begin(self, sink: str, offset: int) -> None:
        """Keep the offset that a sink's first rows begin at, before they are sent."""
        with self._lock:
            self._with_room(lambda: self._move(sink, Cursor(self._cursors[sink].position, offset)))

    def confirm(self, sink: str, position: int, offset: int | None, refused: Sequence[Row] = ()) -> None:
        """The sink has everything up to ``position``, but for what it refused for good, which is declared; what all sinks have goes."""
        with self._lock:
            self._sending[sink] = 0
            self._with_room(lambda: self._move(sink, Cursor(position, offset), refused))
            self.confirmed.notify_all()

    def _move(self, sink: str, cursor: Cursor, refused: Sequence[Row] = ()) -> None:
        known = {**self._cursors, sink: cursor}
        done = min(each.position for each in known.values())
        with self._transaction(*self._streams.values()):
            for number in sorted({row.stream for row in refused}):
                stream = self._streams[number]
                self._settle(stream)
                for first, last in _ranges(
                    row.seq for row in refused if row.stream == number and not self._declares(row)
                ):
                    self._declare(stream, first, last, "refused")
            for stream in self._streams.values():
                if stream.stored != stream.next_seq:
                    self._keep(stream)
            self._db.execute(
                "INSERT INTO cursors VALUES (?, ?, ?) ON CONFLICT (sink) DO UPDATE SET position = excluded.position, offset = excluded.offset",
                (sink, *cursor),
            )
            (freed,) = self._db.execute(
                "SELECT coalesce(sum(length(record)), 0) FROM events WHERE position <= ?", (done,)
            ).fetchone()
            self._db.execute("DELETE FROM events WHERE position <= ?", (done,))
        self._cursors = known
        self._bytes -= freed
        self._wal += 4 * PAGE

    def _declares(self, row: Row) -> bool:
        """Whether a row says what was lost: nobody says of it that it was lost itself."""
        (declares,) = self._db.execute(
            "SELECT declares FROM events WHERE position = ?", (row.position,)
        ).fetchone()
        return bool(declares)

    def leave(self, sink: str) -> None:
        """The rows of :meth:`batch` are not on their way any more."""
        with self._lock:
            self._sending[sink] = 0

    def expire(self, seconds: float) -> int:
        """Drop what waits for longer, declared at once; how many events that were. Never a declaration, nor what is on its way."""
        with self._lock, self._broken():
            old = self._db.execute(
                "SELECT position, stream_id, seq, length(record) FROM events WHERE position > ? AND at < ? AND NOT declares ORDER BY position LIMIT ?",
                (max(self._sending.values()), time.time() - seconds, AGED_AT_ONCE),
            ).fetchall()
            if old:
                self._with_room(lambda: self._age(old))
            return len(old)

    def _age(self, old: Sequence[tuple[int, int, int, int]]) -> None:
        """Rows (position, stream, number, bytes) that are dropped for their age, in one transaction with what says so."""
        with self._transaction(*self._streams.values()):
            self._db.executemany("DELETE FROM events WHERE position = ?", [(row[0],) for row in old])
            self._bytes -= sum(row[3] for row in old)
            for number in sorted({row[1] for row in old}):
                stream = self._streams[number]
                self._settle(stream)
                for first, last in _ranges(row[2] for row in old if row[1] == number):
                    self._declare(stream, first, last, "spool_age")
                self._keep(stream)

    def checkpoint(self) -> None:
        """Take the WAL back into the file, now and then; ``emit`` does not wait for it."""
        if self._wal < CHECKPOINT_BYTES:
            return
        began = self._wal
        with self._broken(), self._checkpointing:
            _, frames, done = self._maintenance.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        with self._lock:
            if (
                frames == done and self._wal == began
            ):  # nobody wrote meanwhile: the WAL begins at its start again
                self._wal = 0
            if not self._reserve.held:
                self._reserve.take()

    # -- what anybody may ask

    @property
    def last(self) -> int:
        """The position of the newest row."""
        with self._lock:
            return self._last

    def behind(self, position: int) -> dict[str, int]:
        """Sinks that have not confirmed ``position``, each with where it stands. The caller holds ``confirmed``."""
        return {sink: each.position for sink, each in self._cursors.items() if each.position < position}

    def waiting(self) -> tuple[int, int]:
        """Events in the spool, and their bytes."""
        with self._lock, self._broken():
            (count,) = self._db.execute("SELECT count(*) FROM events").fetchone()
            return count, self._bytes

    # -- room; the caller holds the lock

    def _with_room(self, step: Callable[[], None]) -> None:
        """Do what frees room, or opens the spool, on a full disk too: with the reserve, which is taken again when there is room."""
        try:
            with self._broken():
                step()
        except SpoolFull:
            if not self._reserve.let_go():
                raise
            with self._broken():
                if self._opened:
                    self._take_back()
                step()
                if self._opened:
                    self._take_back("TRUNCATE")
            self._reserve.take()

    def _take_back(self, mode: Literal["PASSIVE", "TRUNCATE"] = "PASSIVE") -> None:
        """The WAL's pages go into the file, all of them: nobody writes meanwhile. The next write begins at its start."""
        with self._checkpointing:
            self._db.execute(f"PRAGMA wal_checkpoint({mode})")
        self._wal = 0

    # -- steps of a transaction; the caller holds the lock

    def _declare_all(self) -> None:
        for stream in self._streams.values():
            if stream.lost_from is not None:
                dropped = (stream.lost_from, stream.lost_to)
                with self._broken(), self._transaction(stream):
                    self._settle(stream)
                log.warning("of the spool %s, %d to %d are declared lost", self.path, *dropped)

    def _settle(self, stream: Standing) -> None:
        """Declare what the stream has dropped, as its next number."""
        if stream.lost_from is not None and stream.lost_to is not None:
            first, last = stream.lost_from, stream.lost_to
            stream.lost_from = stream.lost_to = None
            self._declare(stream, first, last, "spool_full")
            self._keep(stream)

    def _declare(self, stream: Standing, first: int, last: int, reason: str) -> None:
        seq = stream.next_seq
        stream.next_seq = seq + 1
        record = orjson.dumps(
            {
                **stream.envelope,
                "seq": seq,
                "type": "stream.lost",
                "occurred_at": datetime.now(UTC).isoformat(timespec="microseconds"),
                "payload": {"from_seq": first, "to_seq": last, "reason": reason},
            }
        )
        self._store(stream, seq, record, declares=True)

    def _store(self, stream: Standing, seq: int, record: bytes, *, declares: bool) -> None:
        self._db.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)",
            (self._last + 1, stream.id, seq, time.time(), declares, record),
        )
        self._last += 1
        self._bytes += len(record)
        self._wal += PAGE + len(record)

    def _keep(self, stream: Standing) -> None:
        self._db.execute(
            "UPDATE streams SET next_seq = ?, lost_from = ?, lost_to = ? WHERE id = ?",
            (stream.next_seq, stream.lost_from, stream.lost_to, stream.id),
        )
        stream.stored = stream.next_seq
        self._wal += PAGE

    @contextmanager
    def _transaction(self, *streams: Standing) -> Iterator[None]:
        """Everything, or nothing: also of what memory says about the streams."""
        last, size = self._last, self._bytes
        stood = [(each.next_seq, each.lost_from, each.lost_to, each.stored) for each in streams]
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._last, self._bytes = last, size
            for each, before in zip(streams, stood, strict=True):
                each.next_seq, each.lost_from, each.lost_to, each.stored = before
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _mine(self) -> None:
        if self._closed:
            raise LedgerError(
                "this Ledger is closed: open a new one, which continues the numbers of its spool"
            )
        if os.getpid() != self._owner:
            raise LedgerError(
                f"the spool {self.path} was opened by process {self._owner}, and this is a fork of it: open a Ledger after the fork, with a spool of its own"
            )

    @contextmanager
    def _broken(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) in NO_ROOM:
                raise SpoolFull(self._disk_full()) from None
            raise SpoolBroken(
                f"the spool {self.path} cannot be read or written ({error}): move it away to begin a new one with a new epoch; what it holds is lost then"
            ) from None
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise SpoolFull(self._disk_full()) from None
            raise SpoolBroken(
                f"the spool {self.path} cannot be read or written ({error.strerror}): see to its disk"
            ) from None


def _let_go_in_children(spool: Spool) -> None:
    """A fork has the lock too, and would keep the spool from the next process when this one is gone: it lets go of it at once."""
    mine = weakref.ref(spool)

    def let_go() -> None:
        theirs = mine()
        if theirs is not None and theirs._owner != os.getpid():
            theirs._release()

    os.register_at_fork(after_in_child=let_go)


def _size(path: str) -> int:
    """Bytes of a file that may not be there."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _standing(
    id: int, envelope: bytes, next_seq: int, lost_from: int | None, lost_to: int | None
) -> Standing:
    fields: dict[str, Any] = orjson.loads(envelope)
    key = key_of(fields["tenant"], fields["session_id"])
    return Standing(id, fields, key, next_seq, lost_from, lost_to, stored=next_seq)


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Maximal runs of numbers, in their order."""
    first = last = None
    for number in sorted(numbers):
        if last is None or first is None:
            first = last = number
        elif number == last + 1:
            last = number
        else:
            yield first, last
            first = last = number
    if first is not None and last is not None:
        yield first, last
