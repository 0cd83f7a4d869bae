"""Owns what outlives a run of ship: one SQLite file with a checkpoint a file and the fingerprints of the events that were sent. One process at a time.

Nothing here reads a harness's file. What is lost with this folder is never an event: it is sent again, and the ledger knows it.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
import time
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from turnledger.errors import TurnledgerError

APPLICATION_ID = 0x746C7368
VERSION = 1
NAME, LOCK = "ship.db", "ship.lock"
LOOKS = 10
SCHEMA = """
CREATE TABLE files (
    id INTEGER PRIMARY KEY,
    path BLOB NOT NULL UNIQUE,
    device INTEGER NOT NULL, inode INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    size INTEGER NOT NULL, told INTEGER NOT NULL, before BLOB NOT NULL, stamp TEXT NOT NULL, settled INTEGER NOT NULL,
    harness TEXT, events INTEGER NOT NULL, notes TEXT NOT NULL,
    touched_at REAL NOT NULL, gone INTEGER NOT NULL
);
CREATE INDEX files_by_inode ON files (device, inode);
CREATE TABLE sent (file INTEGER NOT NULL, event INTEGER NOT NULL, PRIMARY KEY (file, event)) WITHOUT ROWID;
"""


class StateHeld(TurnledgerError):
    """Another process ships with this state folder."""


class StateAway(TurnledgerError):
    """The state cannot be written now: its disk is full, or fails."""


@dataclass(slots=True)
class Checkpoint:
    """How far one file has been told.

    ``told`` bytes of its ``generation`` were read when it had ``size``; ``before`` is the hash of what stood before that place
    (:func:`turnledger.ship.growing.hash_before`). ``stamp``: what the system said of the file then; equal means that nobody wrote since.
    """

    id: int
    path: Path
    device: int
    inode: int
    generation: int = 0
    size: int = 0
    told: int = 0
    before: bytes = b""
    stamp: str = ""
    settled: bool = False
    """Whether it was read as a closed file."""
    harness: str | None = None
    events: int = 0
    """Events that were sent of it, over all generations."""
    notes: dict[str, Any] = field(default_factory=dict)
    """``sessions``, ``quarantined`` and ``findings`` of its last reading."""
    touched_at: float = 0.0
    """Wall time of the last reading; only what is forgotten depends on it."""
    gone: bool = False


COLUMNS = "id, path, device, inode, generation, size, told, before, stamp, settled, harness, events, notes, touched_at, gone"


class State:
    """Safe for threads. Raises :class:`StateAway` where the disk does not take a write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise TurnledgerError(
                f"the state folder {folder} cannot be made ({error.strerror}): give another one with --state"
            ) from None
        self._lock = threading.Lock()
        self._held = _hold(folder)
        try:
            with _away(folder):
                self._db = _connect(folder / NAME)
                self._prepare()
        except BaseException:
            os.close(self._held)
            raise

    def _prepare(self) -> None:
        db = self._db
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")  # what a power cut takes is sent again
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if not tables:
            db.executescript(
                f"BEGIN; {SCHEMA} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT;"
            )
        elif application != APPLICATION_ID:
            raise TurnledgerError(
                f"{self.folder / NAME} is a database of something else: give another folder with --state"
            )
        _check_version(db, self.folder)
        (last,) = db.execute(
            "SELECT max(coalesce((SELECT max(id) FROM files), 0), coalesce((SELECT max(file) FROM sent), 0))"
        ).fetchone()
        self._next = last + 1

    def listen(self, address: str | None) -> None:
        """Write where this process answers, for ``ship status``."""
        said = json.dumps({"pid": os.getpid(), "address": address}).encode()
        try:
            os.ftruncate(self._held, 0)
            os.pwrite(self._held, said + b"\n", 0)
        except OSError as error:
            raise StateAway(
                f"the state in {self.folder} cannot be written ({error.strerror}): make room or mend its disk"
            ) from None

    def close(self) -> None:
        """Let go of the folder."""
        with self._lock:
            self._db.close()
            os.close(self._held)

    def checkpoints(self) -> list[Checkpoint]:
        """All of them."""
        with self._lock, _away(self.folder):
            return _rows(self._db)

    def begin(self, path: Path, device: int, inode: int) -> Checkpoint:
        """The checkpoint of a file that was not known, under an id that no other had: what is remembered of one file is not another's."""
        with self._writing():
            self._evict(path, by=self._next)
            self._db.execute(
                "INSERT INTO files (id, path, device, inode, generation, size, told, before, stamp, settled, events, notes, touched_at, gone) "
                "VALUES (?, ?, ?, ?, 0, 0, 0, x'', '', 0, 0, '{}', ?, 0)",
                (self._next, os.fsencode(path), device, inode, time.time()),
            )
        made, self._next = self._next, self._next + 1
        return Checkpoint(made, path, device, inode, touched_at=time.time())

    def call(self, file: int, path: Path) -> None:
        """A file is there, under this path."""
        with self._writing():
            self._evict(path, by=file)
            self._db.execute("UPDATE files SET path = ?, gone = 0 WHERE id = ?", (os.fsencode(path), file))

    def _evict(self, path: Path, *, by: int) -> None:
        """Whoever had the path has it no more, and nothing else by which it could be met again."""
        for (other,) in self._db.execute(
            "SELECT id FROM files WHERE path = ? AND id <> ?", (os.fsencode(path), by)
        ).fetchall():
            self._forget(other)

    def _forget(self, file: int) -> None:
        self._db.execute("DELETE FROM sent WHERE file = ?", (file,))
        self._db.execute("DELETE FROM files WHERE id = ?", (file,))

    def _keep(self, c: Checkpoint) -> None:
        # What it is called is not a reading's to say: it may have been moved meanwhile.
        self._db.execute(
            "UPDATE files SET device = ?, inode = ?, generation = ?, size = ?, told = ?, before = ?, stamp = ?, settled = ?, harness = ?, "
            "events = ?, notes = ?, touched_at = ? WHERE id = ?",
            (
                c.device, c.inode, c.generation, c.size, c.told, c.before, c.stamp, c.settled, c.harness,
                c.events, json.dumps(c.notes), c.touched_at, c.id,
            ),
        )  # fmt: skip

    def mark_gone(self, files: Iterable[int]) -> None:
        """These are not there any more."""
        with self._writing():
            self._db.executemany("UPDATE files SET gone = 1 WHERE id = ?", [(file,) for file in files])

    def sent(self, file: int) -> array[int]:
        """Fingerprints of what was sent of a file, in order: 8 bytes each, also here."""
        with self._lock, _away(self.folder):
            found = array("q")
            for (event,) in self._db.execute("SELECT event FROM sent WHERE file = ? ORDER BY event", (file,)):
                found.append(event)
            return found

    def confirm(
        self,
        file: int,
        events: Iterable[int],
        checkpoint: Checkpoint | None = None,
        outdated: Iterable[int] = (),
    ) -> None:
        """These events of a file are safe where they were sent; ``checkpoint``: and they were the last; ``outdated``: sent once, and not in the file
        any more."""
        with self._writing():
            if not self._db.execute("SELECT 1 FROM files WHERE id = ?", (file,)).fetchone():
                return  # forgotten while it was read: nobody asks for it again
            if checkpoint is not None:
                self._keep(checkpoint)
            self._db.executemany(
                "DELETE FROM sent WHERE file = ? AND event = ?", [(file, each) for each in outdated]
            )
            self._db.executemany(
                "INSERT OR IGNORE INTO sent VALUES (?, ?)", [(file, each) for each in events]
            )

    def forget(self, files: Iterable[int], *, wholly: bool) -> None:
        """Let go of fingerprints, and ``wholly`` of the checkpoint as well. What is told again is a duplicate."""
        with self._writing():
            for file in files:
                if wholly:
                    self._forget(file)
                else:
                    self._db.execute("DELETE FROM sent WHERE file = ?", (file,))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock, _away(self.folder):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise


@dataclass(frozen=True, slots=True)
class Standing:
    """What a state folder says to somebody who only looks. ``pid`` and ``address``: of the process that ships, where one does."""

    pid: int | None
    address: str | None
    checkpoints: list[Checkpoint]


def look(folder: Path) -> Standing:
    """Read a state folder without holding it. Raises a sentence where there is none."""
    database = folder / NAME
    if not database.is_file():
        raise TurnledgerError(
            f"{folder} holds no state of ship: name the folder that `turnledger ship` was given with --state"
        )
    with _away(folder):
        db = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)
        try:
            _check_version(db, folder)
            checkpoints = _rows(db)
        finally:
            db.close()
    said = holder(folder)
    return Standing(said.get("pid"), said.get("address"), checkpoints)


def holder(folder: Path) -> dict[str, Any]:
    """What the process that holds a state folder said of itself; empty where none does."""
    try:
        file = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return {}  # nobody holds it
    except BlockingIOError:
        return _said(file)
    finally:
        os.close(file)


def _said(file: int) -> dict[str, Any]:
    try:
        said = json.loads(os.pread(file, 4096, 0) or b"{}")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _hold(folder: Path) -> int:
    try:
        file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise TurnledgerError(
            f"the state folder {folder} cannot be used ({error.strerror}): correct its permissions, or give another one with --state"
        ) from None
    if not _locked(file):
        pid = _said(file).get("pid", "(unknown)")
        os.close(file)
        raise StateHeld(
            f"process {pid} ships with the state folder {folder} already: end that one, or give this one a folder of its own with --state"
        ) from None
    return file


def _locked(file: int) -> bool:
    """Whoever looks whether somebody holds the lock holds it for a moment: a second is given to that."""
    for _ in range(LOOKS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(1.0 / LOOKS)
    return False


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)


def _check_version(db: sqlite3.Connection, folder: Path) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version != VERSION:
        raise TurnledgerError(
            f"{folder} holds a state of version {version}, this turnledger knows {VERSION}: go on with the one that wrote it, or give "
            "another folder with --state (everything is then sent again, and the ledger counts it as duplicates)"
        )


def _rows(db: sqlite3.Connection) -> list[Checkpoint]:
    return [
        replace(
            Checkpoint(*row),
            path=Path(os.fsdecode(row[1])),
            settled=bool(row[9]),
            notes=json.loads(row[12]),
            gone=bool(row[14]),
        )
        for row in db.execute(f"SELECT {COLUMNS} FROM files ORDER BY path")
    ]


@contextmanager
def _away(folder: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise StateAway(
                f"the state in {folder} cannot be written ({error}): make room or mend its disk; nothing more is sent until then"
            ) from None
        raise TurnledgerError(
            f"the state in {folder} cannot be read ({error}): move it away and start again (everything is then sent again, and the ledger counts "
            "it as duplicates)"
        ) from None
