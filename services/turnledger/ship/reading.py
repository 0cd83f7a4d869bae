"""Owns one reading of one file: its events that were not sent yet, batch by batch, and the checkpoint that stands behind the last of them.

A file is read anew from its beginning when it was written, and what was sent is passed over by its fingerprint: a reader is a function of the whole
file, and only so is what is told line by line what `import` tells at once. Where a format can be told on from where the last reading ended, that is done
while the file grows, and the whole is read once when it has settled. A database's events go through a temporary file, so that the database is read
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
from turnledger.harness.importer import Begun, FileReading, told
from turnledger.harness.kafka import key_of
from turnledger.harness.outlets import Row
from turnledger.harness.sources import Source, unreadable
from turnledger.ship import growing
from turnledger.ship.discovery import is_candidate
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
    """Another file has the path, or the database is in the middle of a transaction, or was written while it was read as a closed one: nothing of that
    reading counts."""


class Reading:
    """One reading. ``close`` whatever comes, from any thread: it waits for a ``next`` that nobody waits for any more."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        before: Look,
        sent: Callable[[int], array[int]],
        *,
        choices: Choices,
        redactor: Redactor,
        settled: bool,
        begun: Begun | None = None,
    ) -> None:
        self._was, self.look = checkpoint, before
        self._choices, self._redactor, self._settled = choices, redactor, settled
        self._told = 0  # of this reading, and not sent before
        self._too_large = 0
        self._one = threading.Lock()
        self._at_hand: Batch | None = None
        self._following: Batch | None = None
        self._failed: Exception | None = None
        self.checkpoint: Checkpoint | None = None
        """Where the file stands when everything was sent; known behind the last batch."""
        self._open = ExitStack()
        path = checkpoint.path
        try:
            self._file = self._open.enter_context(growing.opened(path, settled=settled))
        except OSError as error:
            raise unreadable(path, error) from error
        if growing.identity(self._file.file) != before.file:
            self._open.close()
            raise Torn  # another file took its path in between
        self._source = Source(path, choices.session, growing=self._file)
        self.reading = FileReading(path, None)
        self._waits = not settled and growing.is_compressed(self._file.file)
        try:
            another = self._is_another()
            self.generation = checkpoint.generation + another
            self._begun = begun if checkpoint.before and not another else None
            if self._begun is not None:
                self._file.behind = (self._begun.condition.records, checkpoint.told)
            # What stands behind a place was not sent; an event that repeats an earlier one is a duplicate.
            self._sent = array("q") if self._begun is not None else sent(checkpoint.id)
            self._met = bytearray(len(self._sent))
            """1 where an event that was sent still stands in the file."""
            self._records = self._begin()
        except BaseException:
            self._open.close()
            raise

    def _is_another(self) -> bool:
        """Whether what was told before no longer stands at the beginning: truncated, replaced, or written anew."""
        was = self._was
        if not was.before:
            return False
        if was.before == DATABASE and growing.is_database(self._file.file):
            return (was.device, was.inode) != self.look.file
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
            begun=self._begun,
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
        path = self._was.path
        wal, journal = (path.with_name(f"{path.name}{each}").exists() for each in growing.OF_DATABASE)
        if journal and not wal and not self._settled:
            raise Torn  # a reader that takes a lock would keep the writer from ending its transaction
        closed = not wal and not journal
        spilling = tempfile.SpooledTemporaryFile(max_size=SPILL_BYTES)  # noqa: SIM115 - closed with the reading
        spill = self._open.enter_context(spilling)
        for print_of, row in self._of_source():
            spill.write(orjson.dumps([print_of, row.key.decode()]) + b"\n" + row.record + b"\n")
        if closed and growing.look(path) != self.look:
            raise Torn
        spill.seek(0)
        return _spilt(spill)

    def _was_sent(self, print_of: int) -> bool:
        place = bisect_left(self._sent, print_of)
        if place == len(self._sent) or self._sent[place] != print_of:
            return False
        self._met[place] = 1
        return True

    def peek(self) -> Batch | None:
        """The batch at hand; None behind the last. Raises a sentence where the file cannot be read any more."""
        with self._one:
            if self._at_hand is None:
                self._at_hand = self._next()
            return self._at_hand

    def following(self) -> Batch | None:
        """The batch behind the one at hand. Behind the last, there is the checkpoint."""
        with self._one:
            if self._following is None and self.checkpoint is None:
                self._following = self._next()
            return self._following

    def outdated(self) -> list[int]:
        """Fingerprints of events that were sent and that a file at rest, read to its end, does not hold any more: of a file that is cut or written anew
        for weeks they would pile up. Should it come to hold them again, they are sent again, and the ledger knows them."""
        if self.checkpoint is None or not self._settled or self.reading.quarantined:
            return []
        return [each for each, met in zip(self._sent, self._met, strict=True) if not met]

    def at_hand(self) -> list[int]:
        """Fingerprints of the batch at hand."""
        return self._at_hand.events if self._at_hand is not None else []

    def turn(self) -> None:
        """The following batch is the one at hand."""
        self._at_hand, self._following = self._following, None

    def _next(self) -> Batch | None:
        if self._failed is not None:
            raise self._failed  # what has ended by an error has not come to its end
        try:
            batch = self._batch()
            if batch is None:
                self.checkpoint = self._checkpoint()
        except Exception as error:
            self._failed = error
            raise
        return batch

    def _batch(self) -> Batch | None:
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

    @property
    def begun(self) -> Begun | None:
        """What the next reading may go on from, once all of this one was sent: whole lines, of a file that can be told on."""
        if self._settled and growing.end_of_lines(self._file.file, self._file.size) < self._file.size:
            return None
        return self.reading.begun

    def _told_to(self) -> int:
        """The place up to which everything was told."""
        container = self.reading.container
        if container == "database":
            return self.look.size
        if container == "document" or (container is None and not self.held):
            return 0 if self._file.held else self._file.size
        return self._file.lines

    def _checkpoint(self) -> Checkpoint:
        was, file, reading = self._was, self._file, self.reading
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
        if self._begun is not None:
            notes["partial"] = True
        if not self._settled and not all(self._met):
            notes["outdated"] = True
        return replace(
            was,
            device=self.look.device,
            inode=self.look.inode,
            generation=self.generation,
            size=self.look.size,
            told=told_to,
            before=DATABASE if database else growing.hash_before(file.file, told_to),
            stamp=self.look.stamp,
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


def stands_before(path: Path, checkpoint: Checkpoint) -> bool:
    """Whether a file begins with what was told of another name; of what is written anew as a whole, nothing says so but its inode."""
    try:
        with growing.opened(path, settled=True) as file:
            if checkpoint.before == DATABASE or checkpoint.told == 0:
                return is_candidate(path)
            return (
                file.size >= checkpoint.told
                and growing.hash_before(file.file, checkpoint.told) == checkpoint.before
            )
    except OSError:
        return False


def fingerprint(record: bytes) -> int:
    """8 bytes that stand for an event: of its identity and of all that it says, so that what is told differently is sent, as by `import`."""
    return int.from_bytes(hashlib.blake2b(record, digest_size=8).digest(), "big", signed=True)


def _spilt(spill: IO[bytes]) -> Iterator[tuple[int, Row]]:
    while head := spill.readline():
        print_of, key = orjson.loads(head)
        yield print_of, Row(0, 0, 0, key.encode(), spill.readline()[:-1])
