"""Owns where a spool's rows go: a topic, a collector, a file. An outlet takes rows in order and returns when they are safe there; it keeps nothing."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.partitioner import DefaultPartitioner

from turnledger.errors import TurnledgerError
from turnledger.harness.http import Collector, CollectorAway, HttpSink
from turnledger.harness.kafka import KafkaAway, Sink, producing, refusal

STOP_SECONDS = 5.0
"""A producer whose broker is away would wait for it longer than anybody who closes a ledger; its records are in the spool."""


class OutletAway(TurnledgerError):
    """A sink that cannot take rows now. They stay where they are, and come again."""


class Row(NamedTuple):
    """One record of a spool. ``position`` is its place in the order of ``emit``, never used twice."""

    position: int
    stream: int
    seq: int
    key: bytes
    record: bytes


@dataclass(frozen=True, slots=True)
class FileSink:
    """A file that events are appended to, one a line."""

    path: Path

    def __str__(self) -> str:
        return f"file:{self.path}"


class Outlet(Protocol):
    """A sink while somebody sends to it."""

    async def open(self) -> int | None:
        """Connect; the offset that the first rows ever sent there begin at, where the sink has such a thing. Raises :class:`OutletAway`."""

    async def send(self, rows: Sequence[Row], offset: int | None) -> int | None:
        """Return when all rows are safe. ``offset``: what the last call that was confirmed returned, also one of an earlier process, else what ``open`` did.

        Raises :class:`OutletAway`: then any of the rows may have arrived, and the same rows come again before others.
        """

    async def close(self) -> None:
        """Let go of what is open. A closed outlet is not used again."""


class Refusing(Protocol):
    """An outlet that says of single rows that they will never be taken there."""

    def refused(self) -> list[tuple[Row, str]]:
        """Those of the last :meth:`Outlet.send`, each with why. All others of it are safe."""


AnySink = Sink | HttpSink | FileSink


def parse(text: str) -> AnySink:
    """``kafka://host:port[,host:port…][/topic]``, ``https://host[:port][/path]`` or ``file:PATH``. Raises a :class:`TurnledgerError` with the way out
    for anything else."""
    if text.startswith(("https:", "http:")):
        return HttpSink.parse(text)
    if not text.startswith("file:"):
        return Sink.parse(text)
    path = text.removeprefix("file:")
    if path.startswith("//"):  # file://host/path names another machine; file:///path this one
        path = path.removeprefix("//")
        if not path.startswith("/"):
            raise OutletAway(
                f"the sink {text!r} names a host: a file looks like file:events.ndjson or file:///var/spool/events.ndjson"
            )
    if not path or path.endswith("/"):
        raise OutletAway(f"the sink {text!r} names no file: it looks like file:events.ndjson")
    return FileSink(Path(path).absolute())


def outlet(sink: AnySink) -> Outlet:
    """The outlet of a sink, not connected yet: that happens with the first rows."""
    if isinstance(sink, HttpSink):
        return HttpOutlet(Collector.of_settings(sink))
    return FileOutlet(sink.path) if isinstance(sink, FileSink) else KafkaOutlet(sink)


class KafkaOutlet:
    """Sends rows as one batch per partition and waits for it: a batch arrives whole or not at all, so that no later row overtakes one that comes again."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._open = AsyncExitStack()
        self._producer: AIOKafkaProducer | None = None
        self._partition = DefaultPartitioner()

    async def open(self) -> int | None:
        """See :class:`Outlet`."""
        try:
            self._producer = await self._open.enter_async_context(producing(self._sink))
        except KafkaAway as error:
            raise OutletAway(str(error)) from None
        return None

    async def send(self, rows: Sequence[Row], offset: int | None) -> int | None:
        """See :class:`Outlet`. Nothing to remember: the ledger knows a record that comes twice."""
        assert self._producer is not None, "send() before open()"
        try:
            await self._send(self._producer, rows)
        except (KafkaError, OSError) as error:
            raise OutletAway(refusal(error, self._sink)) from None
        return None

    async def _send(self, producer: AIOKafkaProducer, rows: Sequence[Row]) -> None:
        partitions = sorted(await producer.partitions_for(self._sink.topic))
        by_partition: dict[int, list[Row]] = {}
        for row in rows:
            by_partition.setdefault(self._partition(row.key, partitions, partitions), []).append(row)
        for partition, mine in by_partition.items():
            batch = producer.create_batch()
            for row in mine:
                if batch.append(key=row.key, value=row.record, timestamp=None) is None:
                    await self._arrive(producer, batch, partition)
                    batch = producer.create_batch()
                    if batch.append(key=row.key, value=row.record, timestamp=None) is None:
                        raise AssertionError(
                            f"an empty batch did not take a record of {len(row.record)} bytes"
                        )
            await self._arrive(producer, batch, partition)

    async def _arrive(self, producer: AIOKafkaProducer, batch: object, partition: int) -> None:
        await (await producer.send_batch(batch, self._sink.topic, partition=partition))

    async def close(self) -> None:
        """See :class:`Outlet`."""
        try:
            await asyncio.wait_for(self._open.aclose(), STOP_SECONDS)
        except TimeoutError:
            return  # the broker is away: nothing is left in the producer that the spool does not have


class HttpOutlet:
    """Sends rows to a collector, a request a batch. What it refuses for good is not sent again: the spool declares it."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._refused: list[tuple[Row, str]] = []

    async def open(self) -> int | None:
        """See :class:`Outlet`."""
        await self._collector.open()
        return None

    async def send(self, rows: Sequence[Row], offset: int | None) -> int | None:
        """See :class:`Outlet`. Nothing to remember: the ledger knows an event that comes twice."""
        try:
            said = await self._collector.send(rows)
        except CollectorAway as error:
            raise OutletAway(str(error)) from None
        self._refused = [(rows[each.place], each.reason) for each in said]
        return None

    def refused(self) -> list[tuple[Row, str]]:
        """See :class:`Refusing`."""
        return self._refused

    async def close(self) -> None:
        """See :class:`Outlet`."""
        await self._collector.close()


class FileOutlet:
    """Appends one line a row and syncs. One writer at a time: the file is locked. Waits for the disk: made for a sender's own thread.

    ``offset`` is the file's length after the last batch that was confirmed. What stands behind it after a crash is the beginning of the batch that
    comes again, and only the rest of that is written, so that no line is there twice and none is half.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._whole = False
        """Whether the file ends where the last batch that was confirmed does, as far as this process knows."""

    async def open(self) -> int | None:
        """See :class:`Outlet`: the length of the file."""
        try:
            return self._lock()
        except OSError as error:
            raise OutletAway(self._failed(error)) from None

    async def send(self, rows: Sequence[Row], offset: int | None) -> int | None:
        """See :class:`Outlet`."""
        lines = b"".join(row.record + b"\n" for row in rows)
        try:
            return self._append(lines, offset)
        except OSError as error:
            raise OutletAway(self._failed(error)) from None

    def _failed(self, error: OSError) -> str:
        return f"{self._path} does not take events ({error.strerror}): make room or correct the path"

    def _lock(self) -> int:
        file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise OutletAway(
                f"{self._path} is written by another Ledger: end that one, or give each a file of its own"
            ) from None
        self._file = file
        return os.lseek(file, 0, os.SEEK_END)

    def _append(self, lines: bytes, offset: int | None) -> int:
        assert self._file is not None, "send() before open()"
        file = self._file
        if not self._whole:
            end = os.lseek(file, 0, os.SEEK_END)
            lines = _rest(file, end, lines, end if offset is None else offset)
        self._whole = False
        left = memoryview(lines)
        while left:
            left = left[os.write(file, left) :]
        os.fsync(file)
        self._whole = True
        return os.lseek(file, 0, os.SEEK_END)

    async def close(self) -> None:
        """See :class:`Outlet`."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _rest(file: int, end: int, lines: bytes, offset: int) -> bytes:
    """What of the lines is not behind ``offset`` yet. What stands there and is not their beginning is somebody else's, and theirs are written whole."""
    there = os.pread(file, len(lines) + 1, offset) if offset < end else b""
    if there and lines.startswith(there):
        return lines[len(there) :]
    cut = end > 0 and os.pread(file, 1, end - 1) != b"\n"
    return b"\n" + lines if cut else lines
