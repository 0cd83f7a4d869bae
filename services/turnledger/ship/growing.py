"""Owns one file as it stands while somebody may be writing it: what the system says of it, up to where its lines are whole, what stood before a place.

No clock decides anything here: that a file was written since is seen by its stamp, that it is another one by what stood before.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from turnledger.harness.reading import LINE_LIMIT
from turnledger.harness.sources import DATABASE_MAGIC, Growing

EDGE = 64 * 1024
"""Bytes at the head of a file, and before a place in it, whose hash says whether it is still the same file."""
BLOCK = 256 * 1024
COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
OF_DATABASE = ("-wal", "-journal")
BESIDE = {
    **dict.fromkeys((".db", ".sqlite"), OF_DATABASE),
    ".jsonl": (".meta.json",),
}
"""Files that belong to another one: what is written there is written in that one too. A suffix with a dot stands in place of the file's own."""


@dataclass(frozen=True, slots=True)
class Look:
    """What the system says of a file."""

    device: int
    inode: int
    size: int
    """With what a database has beside it."""
    stamp: str
    """Size, times and inode, also of what belongs to it: equal stamps mean that nobody wrote in between."""

    @property
    def file(self) -> tuple[int, int]:
        """Which file it is, whatever it is called."""
        return self.device, self.inode


def look(path: Path) -> Look | None:
    """None where there is no regular file. Raises :class:`OSError` where the system does not say."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None  # a pipe would be waited for
    size, stamps = found.st_size, [_stamp(found)]
    for beside in beside_of(path):
        try:
            other = beside.stat()
        except OSError:
            continue
        if beside.name.startswith(path.name):
            size += other.st_size
        stamps.append(_stamp(other, owned=False))
    return Look(found.st_dev, found.st_ino, size, " ".join(stamps))


def _stamp(found: os.stat_result, *, owned: bool = True) -> str:
    # The time of the last change of the inode can be set by nobody; it is why a file written back with its old time and size is seen. Of what stands
    # beside a database it is left out: for root, SQLite sets the owner of a -wal each time somebody reads it.
    changed = found.st_ctime_ns if owned else 0
    return f"{found.st_dev:x}.{found.st_ino:x}.{found.st_size}.{found.st_mtime_ns}.{changed}"


def beside_of(path: Path) -> list[Path]:
    """The files whose change changes what this one tells."""
    return [
        path.with_suffix(each) if each.startswith(".") else path.with_name(path.name + each)
        for each in BESIDE.get(path.suffix, ())
    ]


def belongs_to(path: Path) -> Path:
    """The file that a changed file belongs to; most belong to nobody but themselves."""
    name = path.name
    for suffix, others in BESIDE.items():
        for other in others:
            if not name.endswith(other):
                continue
            stem = name.removesuffix(other)
            if other.startswith("."):
                return path.with_name(stem + suffix)
            if stem.endswith(suffix):
                return path.with_name(stem)
    return path


@contextmanager
def opened(path: Path, *, settled: bool) -> Iterator[Growing]:
    """The file at this moment. Raises :class:`OSError`."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        size = os.fstat(file).st_size
        yield Growing(file, size, size if settled else end_of_lines(file, size), settled)
    finally:
        os.close(file)


def end_of_lines(file: int, size: int) -> int:
    """The place behind the last 0x0A. 0 where there is none, and for what is compressed: half of that is nothing."""
    if os.pread(file, 4, 0).startswith(COMPRESSED):
        return 0
    place = size
    while place > 0:
        start = max(place - BLOCK, 0)
        found = os.pread(file, place - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        if size - start > LINE_LIMIT:
            return size  # longer than any line that is read: it is passed over, and need not be waited for
        place = start
    return 0


def identity(file: int) -> tuple[int, int]:
    """Device and inode of an open file."""
    found = os.fstat(file)
    return found.st_dev, found.st_ino


def is_compressed(file: int) -> bool:
    """Whether the bytes are gzip or zstd, by their magic."""
    return os.pread(file, 4, 0).startswith(COMPRESSED)


def is_database(file: int) -> bool:
    """Whether the bytes are an SQLite database, by their magic."""
    return os.pread(file, len(DATABASE_MAGIC), 0) == DATABASE_MAGIC


def hash_before(file: int, place: int) -> bytes:
    """The hash of what stands before a place: all of it, or of a long file its head and what comes right before the place."""
    found = hashlib.sha256(b"%d " % place)
    if place <= 2 * EDGE:
        found.update(os.pread(file, place, 0))
    else:
        found.update(os.pread(file, EDGE, 0))
        found.update(os.pread(file, EDGE, place - EDGE))
    return found.digest()
