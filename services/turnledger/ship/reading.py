"""Owns one reading of one file: its events that were not sent yet, batch by batch, and the checkpoint that stands behind the last of them.

A file is read anew from its beginning whenever it was written, and what was sent is passed over by its fingerprint: a reader is a function of the whole
file, and only so is what is told line by line what `import` tells at once. A database's events go through a temporary file, so that the database is read
in one go and let go of, however long the broker is away.
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import orjson

from turnledger.contract.redact import Redactor
from turnledger.harness.importer import FileReading, told
from turnledger.harness.kafka import key_of
from turnledger.harness.outlets import Row
from turnledger.harness.sources import Source, unreadable
from turnledger.ship import growing
from turnledger.ship.growing import Look
from turnledger.ship.state import Checkpoint

ROWS = 500
"""Events of one batch: what is sent again after a crash."""
BATCH_BYTES = 200_000
"""Bytes of one batch, but for its first event: below the 256 KB that leave for Kafka at once."""
DATABASE = b"database"
"""What stands for the hash of a database, which is written everywhere: only another file is another one."""
SPILL_BYTES = 4 * 1024 * 1024
"""Of a database's events that are held in memory; above, in a file."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What the caller says about all files."""

    harness: str | None = None
    session: str | None = None
    tenant: str | None = None
    record_limit: int = 1024 * 1024
    """Greatest event in bytes (contract 15): the broker takes no greater one, so that one would stop everything behind it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Events to send, and their fingerprints."""

    rows: list[Row]
    events: list[int]


class Torn(Exception):
    """The database was written while it was read as a closed one: nothing of that reading counts."""


class Reading:
    """One reading. ``close`` whatever comes, from any thread: it waits for a ``next`` that nobody waits for any more."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        before: Look,
        sent: array[int],
        *,
        choices: Choices,
        redactor: Redactor,
        settled: bool,
        look: Callable[[Path], Look | None] = growing.look,
    ) -> None:
        self._checkpoint, self._look, self._sent = checkpoint, before, sent
        self._choices, self._redactor, self._settled = choices, redactor, settled
        self._look_again = look
        self._told = 0  # of this reading, and not sent before
        self._too_large = 0
        self._one = threading.Lock()
        self._open = ExitStack()
        path = checkpoint.path
        try:
            self._file = self._open.enter_context(growing.opened(path, settled=settled))
        except OSError as error:
            raise unreadable(path, error) from error
        self._source = Source(path, choices.session, growing=self._file)
        self.reading = FileReading(path, None)
        self._waits = not settled and growing.is_compressed(self._file.file)
        try:
            self.generation = checkpoint.generation + self._is_another()
            self._records = self._begin()
        except BaseException:
            self._open.close()
            raise

    def _is_another(self) -> bool:
        """Whether what was told before no longer stands at the beginning: truncated, replaced, or written anew."""
        was = self._checkpoint
        if not was.before:
            return False
        if was.before == DATABASE and growing.is_database(self._file.file):
            return (was.device, was.inode) != (self._look.device, self._look.inode)
        return self._file.size < was.told or growing.hash_before(self._file.file, was.told) != was.before

    def _begin(self) -> Iterator[tuple[int, Row]]:
        if self._waits:
            self._source.hold()
            return iter(())
        if growing.is_database(self._file.file):
            return self._of_database()
        return self._of_source()

    def _of_source(self) -> Iterator[tuple[int, Row]]:
        """The events that were not sent, each once."""
        choices = self._choices
        for event in told(
            self._source,
            self.reading,
            harness=choices.harness,
            tenant=choices.tenant,
            redactor=self._redactor,
        ):
            record = orjson.dumps(event)
            print_of = fingerprint(record)
            if self._was_sent(print_of):
                continue
            if len(record) > choices.record_limit:
                self._too_large += 1
                continue
            self._told += 1
            key = key_of(event.get("tenant", "default"), event["session_id"])
            yield print_of, Row(0, 0, 0, key, record)

    def _of_database(self) -> Iterator[tuple[int, Row]]:
        path = self._checkpoint.path
        closed = not any(
            path.with_name(path.name + each).exists() for each in growing.BESIDE[growing.DATABASES[0]]
        )
        spilling = tempfile.SpooledTemporaryFile(max_size=SPILL_BYTES)  # noqa: SIM115 - closed with the reading
        spill = self._open.enter_context(spilling)
        for print_of, row in self._of_source():
            spill.write(orjson.dumps([print_of, row.key.decode()]) + b"\n" + row.record + b"\n")
        if closed and self._look_again(path) != self._look:
            raise Torn
        spill.seek(0)
        return _spilt(spill)

    def _was_sent(self, print_of: int) -> bool:
        place = bisect_left(self._sent, print_of)
        return place < len(self._sent) and self._sent[place] == print_of

    def next(self) -> Batch | None:
        """The next events; None behind the last. Raises a sentence where the file cannot be read any more, and :class:`Torn`."""
        with self._one:
            return self._next()

    def _next(self) -> Batch | None:
        rows: list[Row] = []
        events: list[int] = []
        size = 0
        for print_of, row in self._records:
            rows.append(row)
            events.append(print_of)
            size += len(row.record)
            if len(rows) >= ROWS or size >= BATCH_BYTES:
                break
        return Batch(rows, events) if rows else None

    @property
    def held(self) -> bool:
        """Whether something waits to be written to its end, or for the file to settle."""
        if self._settled:
            return False
        whole = self.reading.container in ("document", "database")
        return self._file.held or (not whole and self._file.lines < self._file.size)

    def _told_to(self) -> int:
        """The place up to which everything was told."""
        container = self.reading.container
        if container == "database":
            return self._look.size
        if container == "document" or (container is None and not self.held):
            return 0 if self._file.held else self._file.size
        return self._file.lines

    def checkpoint(self) -> Checkpoint:
        """Where the file stands when all batches were sent."""
        was, file, reading = self._checkpoint, self._file, self.reading
        told_to, database = self._told_to(), growing.is_database(file.file)
        row = reading.row()
        notes: dict[str, Any] = {name: row[name] for name in ("sessions", "quarantined", "findings")}
        if self._too_large:
            notes["findings"] = [
                *notes["findings"],
                {"check": "event_too_large", "severity": "error", "count": self._too_large, "rows": []},
            ]
        if self.held:
            notes["held"] = True
        return replace(
            was,
            device=self._look.device,
            inode=self._look.inode,
            generation=self.generation,
            size=self._look.size,
            told=told_to,
            before=DATABASE if database else growing.hash_before(file.file, told_to),
            stamp=self._look.stamp,
            settled=self._settled,
            harness=reading.harness,
            events=was.events + self._told,
            notes=notes,
            touched_at=time.time(),
            gone=False,
        )

    def close(self) -> None:
        """Let go of the file."""
        with self._one:
            closing = getattr(self._records, "close", None)
            if closing is not None:
                closing()
            self._open.close()


def fingerprint(record: bytes) -> int:
    """8 bytes that stand for an event: of its identity and of all that it says, so that what is told differently is sent, as by `import`."""
    return int.from_bytes(hashlib.blake2b(record, digest_size=8).digest(), "big", signed=True)


def _spilt(spill: IO[bytes]) -> Iterator[tuple[int, Row]]:
    while head := spill.readline():
        print_of, key = orjson.loads(head)
        yield print_of, Row(0, 0, 0, key.encode(), spill.readline()[:-1])
