"""Owns how a harness file is opened: as lines, as one JSON document, as text, or as an SQLite database. It knows no harness.

A source can be read any number of times and is never written to, locked or otherwise disturbed.
"""

from __future__ import annotations

import io
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, cast

from turnledger.errors import TurnledgerError
from turnledger.harness import documents
from turnledger.harness.documents import Document, read_document
from turnledger.harness.reading import Condition, Record, plain_bytes, quarantine, read_records

Container = Literal["lines", "document", "text", "database"]

TEXT_LIMIT = 512 * 1024 * 1024
"""Greatest text in bytes: unlike lines, it is held whole."""
HEAD = 64 * 1024
"""Bytes from which a broken document may still be recognised."""
DATABASE_MAGIC = b"SQLite format 3\x00"
_WAL_HEADER = slice(18, 20)
BUSY_MS = 2_000
DAMAGE = (sqlite3.Error, UnicodeDecodeError, OverflowError)
"""What the library raises where a database is damaged; the second for names of tables and columns."""


class Extent(io.RawIOBase):
    """The bytes of an open file from ``start`` to ``end``, read without moving its place: what is appended or renamed meanwhile is not seen."""

    def __init__(self, file: int, end: int, start: int = 0) -> None:
        super().__init__()
        self._file, self._start, self._end, self._place = file, start, end, start

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        left = max(self._end - self._place, 0)
        wanted = left if size is None or size < 0 else min(size, left)
        parts = []
        while wanted and (part := os.pread(self._file, wanted, self._place)):
            parts.append(part)
            self._place += len(part)
            wanted -= len(part)
        return b"".join(parts)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: self._start, os.SEEK_CUR: self._place, os.SEEK_END: self._end}[whence]
        self._place = base + offset
        return self._place

    def tell(self) -> int:
        return self._place - self._start


@dataclass(slots=True)
class Growing:
    """A file that somebody may be writing, as it stood at one moment: all passes over it see the same bytes of the same file."""

    file: int
    """A file descriptor that the caller opened, and closes."""
    size: int
    """Bytes of the whole."""
    lines: int
    """Bytes up to which lines and texts are read: the end of the last whole line, or all."""
    settled: bool
    """Whether it has been quiet for so long that it counts as closed: then nothing is held back."""
    behind: tuple[int, int] = (0, 0)
    """Number of the first record that is read, and its place: those before it were told."""
    held: bool = False
    """Whether a reader kept back what may still be written anew; set while it is read."""


@dataclass(slots=True)
class Source:
    """One file. ``session``: the name that the caller gives, for formats that hold none."""

    path: Path
    session: str | None = None
    content: bytes | None = None
    """The bytes, where they are not those of ``path``."""
    growing: Growing | None = None
    """Where it is followed while it is written; else it is closed."""
    condition: Condition = field(default_factory=Condition)
    """What was odd about the file, after its last complete reading."""
    _document: Document | None = None
    _asked: bool = False
    _of_document: Condition = field(default_factory=Condition)

    @property
    def unsettled(self) -> bool:
        """Whether what stands at its end may still be written anew."""
        return self.growing is not None and not self.growing.settled

    def hold(self) -> None:
        """A reader keeps back a record that may still be written anew: it is told when it is whole, or when the file has settled."""
        if self.growing is not None:
            self.growing.held = True

    def open(self, *, whole: bool = True) -> IO[bytes]:
        """The raw bytes; unless ``whole``, of a file that grows only its whole lines."""
        if self.content is not None:
            return io.BytesIO(self.content)
        if self.growing is not None:
            if whole:
                return cast(IO[bytes], Extent(self.growing.file, self.growing.size))
            _number, start = self.growing.behind
            return cast(IO[bytes], Extent(self.growing.file, self.growing.lines, start))
        try:
            return self.path.open("rb")
        except OSError as error:
            raise unreadable(self.path, error) from error

    def head(self, size: int = HEAD) -> bytes:
        """The first plain bytes."""
        taken = b""
        for chunk in self._plain(Condition(), whole=True):
            taken += chunk
            if len(taken) >= size:
                break
        return taken[:size]

    def is_database(self) -> bool:
        """Whether it is an SQLite database, by its magic."""
        with self.open() as file:
            return file.read(len(DATABASE_MAGIC)) == DATABASE_MAGIC

    def records(self, *, having: tuple[bytes, ...] = (), whole: bool = False) -> Iterator[Record]:
        """The JSON objects of its lines, in file order; may be called again. ``having``: only of lines that hold one of these words.

        ``whole``: also a last line that is still being written, for those who only ask whose it is.
        """
        condition = Condition()
        behind = self.growing.behind if self.growing is not None and not whole else (0, 0)
        try:
            with self.open(whole=whole) as file:
                yield from read_records(file, condition, having=having, behind=behind)
        except OSError as error:
            raise unreadable(self.path, error) from error
        if not having:
            self.condition = condition

    def document(self) -> Document | None:
        """The one JSON value that it holds; None where it holds none, which ``condition`` then says."""
        if not self._asked:
            self._document = read_document(
                str(self.path), lambda condition: self._plain(condition, whole=True), self._of_document
            )
            self._asked = True
        self.condition = self._of_document
        return self._document

    def is_one_line(self) -> bool:
        """Whether all that it holds is one line, longer than what is parsed whole."""
        size, ended = 0, False
        for chunk in self._plain(Condition(), whole=True):
            size += len(chunk)
            _line, end, behind = (b"", b"", chunk) if ended else chunk.partition(b"\n")
            ended = ended or bool(end)
            if behind.strip():
                return False
        return size > documents.WHOLE

    def text(self) -> str:
        """Its text; bytes that are no UTF-8 are replaced and counted."""
        condition = Condition()
        raw = self._whole(condition) or b""
        try:
            said = raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            said = raw.decode("utf-8-sig", errors="replace")
            condition.invalid_utf8 = sum("\ufffd" in line for line in said.split("\n"))
        condition.unterminated = bool(said) and not said.endswith("\n")
        self.condition = condition
        return said

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        """A connection that can only read. Damage shows as one of ``DAMAGE`` when it or its rows are read."""
        if self.content is not None:
            connection = sqlite3.connect(":memory:")
            image = bytearray(self.content)
            image[_WAL_HEADER] = b"\x01\x01"  # an image has no -wal beside it
            connection.deserialize(bytes(image))
            yield _prepared(connection)
            connection.close()
            return
        with _connected(self.path) as connection:
            yield connection

    def _plain(self, condition: Condition, *, whole: bool) -> Iterator[bytes]:
        try:
            with self.open(whole=whole) as file:
                yield from plain_bytes(file, condition)
        except OSError as error:
            raise unreadable(self.path, error) from error

    def _whole(self, condition: Condition) -> bytes | None:
        parts, size = [], 0
        for chunk in self._plain(condition, whole=False):
            size += len(chunk)
            if size > TEXT_LIMIT:
                condition.quarantined.append(quarantine(0, 0, chunk, "too_large"))
                return None
            parts.append(chunk)
        return b"".join(parts)


def unreadable(path: Path, error: OSError) -> TurnledgerError:
    """The sentence for a file that cannot be opened or read."""
    reason = error.strerror or str(error)
    return TurnledgerError(f"{path} cannot be read ({reason}): check the path and its permissions")


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    """A live database is read inside one transaction; one that nobody has open is read as a plain file, so that nothing is made beside it."""
    wal, journal = (Path(f"{path}{suffix}") for suffix in ("-wal", "-journal"))
    if not wal.exists() and not journal.exists():
        with _opened(path, "mode=ro&immutable=1") as connection:
            yield connection
        return
    try:
        with _opened(path, "mode=ro") as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            live = True
    except sqlite3.OperationalError:
        live = False  # a folder that cannot be written to has no room for the -shm file that a reader of a -wal needs
    if live:
        with _opened(path, "mode=ro") as connection:
            yield connection
        return
    with tempfile.TemporaryDirectory(prefix="turnledger-") as folder:
        copy = Path(folder) / "copy.db"
        try:
            shutil.copyfile(path, copy)
            for beside, suffix in ((wal, "-wal"), (journal, "-journal")):
                if beside.exists():
                    shutil.copyfile(beside, f"{copy}{suffix}")
        except OSError as error:
            raise unreadable(path, error) from error
        with _opened(copy, "mode=ro") as connection:
            yield connection


@contextmanager
def _opened(path: Path, how: str) -> Iterator[sqlite3.Connection]:
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None)
    except sqlite3.Error as error:
        raise TurnledgerError(
            f"{path} cannot be opened as a database ({error}): check the path and its permissions"
        ) from error
    try:
        _prepared(connection).execute("BEGIN")
        yield connection
    finally:
        connection.close()


def _prepared(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.row_factory = sqlite3.Row
    connection.text_factory = _decoded
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    connection.execute("PRAGMA query_only = 1")
    return connection


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")


def tables_of(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Table name to column names."""
    names = [str(row[0]) for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        name: tuple(str(row[1]) for row in connection.execute(f'PRAGMA table_info("{_quoted(name)}")'))
        for name in names
    }


def indexed(connection: sqlite3.Connection, table: str, column: str) -> bool:
    """Whether rows of a table are found by a column without reading all of them."""
    try:
        indexes = connection.execute(f'PRAGMA index_list("{_quoted(table)}")').fetchall()
        firsts = [
            connection.execute(f'PRAGMA index_info("{_quoted(str(index[1]))}")').fetchone()
            for index in indexes
            if not index[4]  # an index of some rows only
        ]
    except DAMAGE:
        return False
    return any(first is not None and first[2] == column for first in firsts)


def is_key(connection: sqlite3.Connection, table: str, column: str) -> bool:
    """Whether a table is ordered by a column of integers, so that a row is found by it at once."""
    try:
        columns = connection.execute(f'PRAGMA table_info("{_quoted(table)}")').fetchall()
    except DAMAGE:
        return False
    keys = [(str(each[1]), str(each[2]).upper()) for each in columns if each[5]]
    return keys == [(column, "INTEGER")]


def rows_of(
    connection: sqlite3.Connection,
    table: str,
    condition: Condition,
    order: str = "rowid",
    *,
    where: str = "1",
    values: tuple[Any, ...] = (),
) -> Iterator[dict[str, Any]]:
    """The rows of a table in the order of their ids; damage ends the table and is counted, what was read before it stays."""
    read = 0
    try:
        for row in connection.execute(
            f'SELECT * FROM "{_quoted(table)}" WHERE {where} ORDER BY {order}', values
        ):
            yield dict(row)
            read += 1
    except DAMAGE:
        condition.quarantined.append(quarantine(read, 0, table.encode(), "damaged_table"))


def _quoted(name: str) -> str:
    return name.replace('"', '""')
