"""Writes accepted events of closed days: files first, the manifest last, so that a folder with a manifest is whole whoever was killed."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from hashlib import sha256
from typing import IO, Any, cast

import orjson
import psycopg
import zstandard

from turnledger.archive.manifest import (
    CONFLICTS,
    EVENTS,
    NAME,
    NOTES,
    STREAMS,
    File,
    Manifest,
    decoded,
    folder,
)
from turnledger.archive.place import Place
from turnledger.errors import TurnledgerError
from turnledger.store.named import query

Connection = psycopg.Connection[Any]
Progress = Callable[[int, str], None]

GRACE_SECONDS = 300
"""A day is closed so long after its end, and when no transaction is left that began on it."""
PART_BYTES = 64 * 1024 * 1024
"""Of events in one file, before compression."""
LEVEL = 9
"""Of zstd: a third smaller than at 3, at 73 MB/s of one core instead of 580, on the events of the bench (which are much alike)."""
ATTEMPTS = 3
CHUNK = 500 if psycopg.pq.version() >= 170_000 else 1
_NO_BREAKS = bytes.maketrans(b"\n\r", b"  ")
"""Breaks stand between tokens alone in JSON: a space there changes no content."""


class DayOpen(TurnledgerError):
    """Events may still come in on that day."""


@dataclass(frozen=True, slots=True)
class _Session:
    session_id: str
    session_no: int
    events: int
    first_batch: int
    last_batch: int


@dataclass(slots=True)
class Plan:
    """One tenant's day that would be written."""

    tenant: str
    day: date
    sessions: list[_Session] = field(default_factory=list)
    conflicts: int = 0

    @property
    def events(self) -> int:
        return sum(one.events for one in self.sessions)

    @property
    def folder(self) -> str:
        return folder(self.tenant, self.day)


@dataclass(frozen=True, slots=True)
class Written:
    """One tenant's day as it is in its archive."""

    manifest: Manifest
    url: str
    before: bool
    """It was there already, whole."""


class _Moved(Exception):
    """A session was vacuumed while it was read."""


def closed_days(connection: Connection, wanted: list[date] | None = None) -> list[date]:
    """The closed days that have a partition, or those of ``wanted``. Raises :class:`DayOpen` for one that is open."""
    row = connection.execute(query("archive/closed"), {"grace": GRACE_SECONDS}).fetchone()
    assert row is not None
    days = [one[0] for one in connection.execute(query("archive/days"), {"open": row[0]})]
    if wanted is None:
        return days
    for day in wanted:
        if day >= row[0]:
            raise DayOpen(
                f"{day.isoformat()} is not closed: events may still come in on it. It is {GRACE_SECONDS // 60} minutes after its end (UTC), when no "
                "transaction is left that began on it."
            )
    return sorted(set(days) & set(wanted))


def plan(connection: Connection, day: date, tenant: str | None = None) -> list[Plan]:
    """What there is of a day, a tenant at a time."""
    found: dict[str, Plan] = {}
    wanted = {"day": day, "tenant": tenant}
    for name, *session in connection.execute(query("archive/sessions"), wanted):
        found.setdefault(name, Plan(name, day)).sessions.append(_Session(*session))
    for name, conflicts in connection.execute(query("archive/conflicted"), wanted):
        found.setdefault(name, Plan(name, day)).conflicts = conflicts
    return [found[name] for name in sorted(found)]


def write(
    connection: Connection,
    place: Place,
    tenant: str,
    day: date,
    *,
    by: str,
    progress: Progress = lambda count, what: None,
) -> Written | None:
    """Write one tenant's day and note it, unless it is there already; None where there is nothing of it. ``connection`` is in autocommit mode.

    Raises ``Damaged`` where something else is in its place, ``PlaceAway``, and what psycopg raises: then no manifest was written.
    """
    for _ in range(ATTEMPTS):
        plans = plan(connection, day, tenant)
        if not plans:
            return None
        (one,) = plans
        known = _known(place, one)
        try:
            written = known or Written(
                _write(connection, place, one, by, progress), f"{place.url}/{one.folder}", before=False
            )
        except _Moved:
            continue
        _note(connection, written, by)
        return written
    raise TurnledgerError(
        f"sessions of {tenant} are vacuumed while {day.isoformat()} is read: run it again when the retention run has ended."
    )


def _known(place: Place, one: Plan) -> Written | None:
    """The archive that is there already, where it holds what the ledger does. What is there is never overwritten: some of it may be nowhere else."""
    name = f"{one.folder}/{NAME}"
    if place.size(name) is None:
        return None
    url = f"{place.url}/{one.folder}"
    manifest = decoded(place.read(name), f"{place.url}/{name}")
    if (manifest.tenant, manifest.day) != (one.tenant, one.day.isoformat()) or manifest.events < one.events:
        raise TurnledgerError(
            f"{url} holds {manifest.events} events of {manifest.tenant} on {manifest.day}, and the ledger {one.events} of {one.tenant} on "
            f"{one.day.isoformat()}: it is of another ledger. Give this one another folder."
        )
    for file in manifest.files:
        if place.size(f"{one.folder}/{file.name}") != file.bytes:
            raise TurnledgerError(
                f"{url}/{file.name} is not there whole: `turnledger archive {place.url} --check` names what is damaged. Move the folder away to "
                "write it anew."
            )
    return Written(manifest, url, before=True)


def _note(connection: Connection, written: Written, by: str) -> None:
    manifest = written.manifest
    connection.execute(
        query("archive/note"),
        {
            "tenant": manifest.tenant,
            "day": manifest.day,
            "url": written.url,
            "events": manifest.events,
            "sessions": manifest.sessions,
            "vacuumed": manifest.vacuumed,
            "bytes": manifest.size,
            "last_batch": manifest.last_batch,
            "digest": manifest.digest,
            "by": by,
        },
    )


def _write(connection: Connection, place: Place, one: Plan, by: str, progress: Progress) -> Manifest:
    wanted = {"tenant": one.tenant, "day": one.day}
    sources = [
        dict(zip(("topic", "partition", "first_position", "last_position", "events"), row, strict=True))
        for row in connection.execute(query("archive/sources"), wanted)
    ]
    vacuumed = connection.execute(
        query("archive/vacuumed"), {"tenant": one.tenant, "day": one.day.isoformat()}
    ).fetchone()
    assert vacuumed is not None
    output = _Output(place, one.folder)
    sessions = 0
    try:
        for session in one.sessions:
            sessions += _session(connection, output, one.day, session)
            progress(output.events, "events")
        for row in connection.execute(query("archive/conflicts"), wanted):
            output.conflict(row)
    except BaseException:
        output.abandon()
        raise
    files = output.end()
    manifest = Manifest(
        tenant=one.tenant,
        day=one.day.isoformat(),
        events=output.events,
        sessions=sessions,
        streams=output.streams,
        conflicts=output.conflicts,
        vacuumed=vacuumed[0],
        first_batch=min((session.first_batch for session in one.sessions), default=0),
        last_batch=max((session.last_batch for session in one.sessions), default=0),
        events_sha256=output.hash.hexdigest(),
        sources=sources,
        files=files,
        written_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        written_by=by,
    )
    place.put(f"{one.folder}/{NAME}", manifest.encoded())
    return manifest


def _session(connection: Connection, output: _Output, day: date, session: _Session) -> bool:
    """The events of one session, in flat memory."""
    wanted = {"session_no": session.session_no, "day": day}
    ranges: dict[tuple[str, int, str], dict[str, Any]] = {}
    events = 0
    with connection.cursor(binary=True) as cursor:
        for producer, epoch, stream, seq, raw, received, redactions in cursor.stream(
            query("archive/events"), wanted, size=CHUNK
        ):
            events += 1
            output.event(raw, received, redactions)
            one = ranges.get((producer, epoch, stream))
            if one is None:
                one = ranges[producer, epoch, stream] = {
                    "session_id": session.session_id, "producer": producer, "epoch": epoch, "stream": stream,
                    "numbered": 0, "first_seq": None, "last_seq": None, "receipts": 0,
                }  # fmt: skip
            if seq < 0:
                one["receipts"] += 1
                continue
            one["numbered"] += 1
            one["first_seq"] = seq if one["first_seq"] is None else one["first_seq"]
            one["last_seq"] = seq
    if events != session.events:
        raise _Moved
    output.ranges(ranges.values())
    return events > 0


class _Compressed:
    """One file that is being written."""

    def __init__(self, stack: ExitStack, place: Place, folder_: str, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.lines = 0
        self.plain = 0
        self._counted = _Counted(stack.enter_context(place.writing(f"{folder_}/{name}")))
        self._zstd = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).stream_writer(
            cast(IO[bytes], self._counted), closefd=False
        )

    def line(self, data: bytes) -> None:
        self._zstd.write(data + b"\n")
        self.lines += 1
        self.plain += len(data) + 1

    def end(self) -> File:
        self._zstd.flush(zstandard.FLUSH_FRAME)
        return File(self.name, self.kind, self.lines, self._counted.size, self._counted.hash.hexdigest())


class _Counted(io.RawIOBase):
    """Hashes what passes to a file."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.size = 0
        self.hash = sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self.file.write(piece)
        self.hash.update(piece)
        self.size += len(piece)
        return len(piece)


class _Output:
    """The files of one archive. Those of one kind are cut at ``PART_BYTES``; empty kinds have none."""

    def __init__(self, place: Place, folder_: str) -> None:
        self.place = place
        self.folder = folder_
        self.events = 0
        self.streams = 0
        self.conflicts = 0
        self.hash = sha256()
        self._open: dict[str, tuple[ExitStack, _Compressed]] = {}
        self._parts: dict[str, int] = {}
        self._files: list[File] = []

    def event(self, raw: bytes, received: bytes | None, redactions: Any) -> None:
        line = bytes(raw)
        if b"\n" in line or b"\r" in line:
            line = line.translate(_NO_BREAKS)
        if received is not None:
            note: dict[str, Any] = {"line": self.events, "received_sha256": bytes(received).hex()}
            if redactions is not None:
                note["redactions"] = redactions
            self._file(NOTES).line(orjson.dumps(note))
        self._file(EVENTS).line(line)
        self.hash.update(line + b"\n")
        self.events += 1

    def ranges(self, rows: Any) -> None:
        for row in rows:
            self._file(STREAMS).line(orjson.dumps(row))
            self.streams += 1

    def conflict(self, row: tuple[Any, ...]) -> None:
        names = (
            "session_id",
            "producer",
            "epoch",
            "stream",
            "seq",
            "receipt_key",
            "kept_sha256",
            "lost_sha256",
            "count",
        )
        self._file(CONFLICTS).line(orjson.dumps(dict(zip(names, row, strict=True))))
        self.conflicts += 1

    def _file(self, kind: str) -> _Compressed:
        found = self._open.get(kind)
        if found is not None and found[1].plain >= PART_BYTES:
            self._close(kind)
            found = None
        if found is None:
            number = self._parts[kind] = self._parts.get(kind, -1) + 1
            stack = ExitStack()
            name = f"{kind}-{number:05d}.ndjson.zst"
            found = self._open[kind] = (stack, _Compressed(stack, self.place, self.folder, name, kind))
        return found[1]

    def _close(self, kind: str) -> None:
        stack, file = self._open.pop(kind)
        with stack:
            self._files.append(file.end())

    def end(self) -> list[File]:
        for kind in list(self._open):
            self._close(kind)
        return sorted(self._files, key=lambda file: (file.kind, file.name))

    def abandon(self) -> None:
        """What was begun has no manifest, and is written over by the next run."""
        for stack, _ in self._open.values():
            stack.close()
        self._open.clear()


def plans(connection: Connection, days: list[date], tenant: str | None) -> Iterator[Plan]:
    """What there is of those days."""
    for day in days:
        yield from plan(connection, day, tenant)
