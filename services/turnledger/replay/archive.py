"""`turnledger replay archive`: archived events through the same handler as live ingest; what is known is a duplicate, what is missing is filled.

An archive is applied as a log of its own (``replay.log``): where it stands is in the ledger, so that it goes on after a kill, and no record is
applied twice. It is proven whole before its first record is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from turnledger.archive.manifest import CONFLICTS, Damaged
from turnledger.archive.place import Place
from turnledger.archive.read import Archive, find, unfinished
from turnledger.contract.canonical import content_hash
from turnledger.contract.redact import Note, Redacted, Redactor
from turnledger.errors import TurnledgerError
from turnledger.ingest.batch import Record
from turnledger.ingest.cache import SessionKey
from turnledger.ingest.decide import DeadWindow, Decider, Group
from turnledger.ingest.link import Connection
from turnledger.replay.log import Counts, Log, LogRecord, dry_run
from turnledger.store.keys import event_hash
from turnledger.store.maintain import make_event_partitions
from turnledger.store.named import query
from turnledger.store.write_rows import Share

GROUP = "turnledger replay archive"
ROUND_EVENTS = 2000
ROUND_BYTES = 4 * 1024 * 1024
"""Of one transaction: a worker of the same sessions waits for it."""

Progress = Callable[[int, str], None]


@dataclass(slots=True)
class Loaded:
    """What became of one archive; after a dry run, what would."""

    archive: Archive
    name: str
    """Of its log in the ledger."""
    counts: Counts = field(default_factory=Counts)
    before: int = 0
    """Events that an earlier replay of it had applied."""
    conflicts: int = 0
    """Contradictions that this ledger did not know."""
    damaged: str | None = None
    """Why nothing of it was loaded."""


@dataclass(slots=True)
class Replayed:
    """One run."""

    archives: list[Loaded] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    """Manifests that are none."""
    unfinished: list[str] = field(default_factory=list)
    """Folders without a manifest: their writer was cut short."""

    @property
    def whole(self) -> bool:
        return not self.damaged and all(one.damaged is None for one in self.archives)


class _Head(msgspec.Struct):
    """What the key of a record is made of."""

    session_id: str
    tenant: str | None = None


class ArchiveDecider(Decider):
    """Judges archived events as what came, not as what is left of them: their notes say the hash of that."""

    def __init__(self, dead_letter_bytes: int, redactor: Redactor) -> None:
        # What was accepted stays accepted, whatever limit is set now.
        super().__init__(sys.maxsize, dead_letter_bytes, redactor)
        self.notes: dict[int, dict[str, Any]] = {}
        """Of the records at hand, by position."""

    def read(
        self, records: Sequence[Record], share: Share, groups: dict[SessionKey, Group], window: DeadWindow
    ) -> int:
        taken = super().read(records, share, groups, window)
        dead = {letter.offset for letter in share.dead}
        for record in records[:taken]:
            note = self.notes.get(record.offset)
            if note is None or record.offset in dead:
                continue
            # Rules may have become stricter since: then there is more to tell.
            now = share.redacted.get(record.offset)
            assert record.value is not None
            notes = tuple(
                Note(one["what"], one["where"], one["count"]) for one in note.get("redactions") or ()
            )
            share.redacted[record.offset] = Redacted(
                record.value if now is None else now.raw,
                bytes.fromhex(note["received_sha256"]),
                notes if now is None else (*notes, *now.notes),
            )
        return taken


def replay(
    connection: Connection,
    place: Place,
    decider: ArchiveDecider,
    *,
    by: str,
    tenant: str | None = None,
    since: str | None = None,
    until: str | None = None,
    dry: bool = False,
    progress: Progress = lambda count, what: None,
) -> Replayed:
    """Load the archives at ``place``: of one ``tenant``, of days from ``since`` to ``until`` (both included, as in manifests). ``connection`` is in
    autocommit mode. What is damaged is left out whole and named; the others are loaded.

    Raises a :class:`TurnledgerError` where there is none, ``PlaceAway``, ``LogTaken``, ``InTheWay``, and what psycopg raises: run it again then.
    """
    archives, damaged = find(place)
    chosen = [
        one
        for one in archives
        if tenant in (None, one.manifest.tenant)
        and (since is None or one.manifest.day >= since)
        and (until is None or one.manifest.day <= until)
    ]
    done = Replayed(damaged=[str(error) for error in damaged], unfinished=unfinished(place))
    if not chosen and not damaged:
        what = (
            "no archive"
            if not archives
            else f"none of its {len(archives)} archives is of those that are meant"
        )
        raise TurnledgerError(f"{place.url} holds {what}: `turnledger archive` writes them.")
    if not dry:
        with connection.transaction():
            make_event_partitions(connection)
    for one in chosen:
        loaded = Loaded(one, log_name(one))
        done.archives.append(loaded)
        try:
            one.check()
        except Damaged as error:
            loaded.damaged = str(error)
            continue
        _load(connection, decider, loaded, by=by, dry=dry, progress=progress)
    if not dry:
        # When everything is there: the kept event may have come on another day.
        for loaded in done.archives:
            if loaded.damaged is None and loaded.archive.manifest.conflicts:
                loaded.conflicts = _conflicts(connection, loaded)
    return done


def log_name(archive: Archive) -> str:
    """Under which an archive is applied: another content is another log."""
    manifest = archive.manifest
    return f"archive:{manifest.tenant}/{manifest.day}#{manifest.digest[:16]}"


def _load(
    connection: Connection,
    decider: ArchiveDecider,
    loaded: Loaded,
    *,
    by: str,
    dry: bool,
    progress: Progress,
) -> None:
    log = None if dry else Log(connection, decider, loaded.name, group_id=GROUP, owner=by)
    start = 0 if log is None else log.next_offset
    loaded.before = start
    for records, notes in _rounds(loaded.archive, start):
        decider.notes = notes
        loaded.counts.add(
            dry_run(connection, decider, loaded.name, records, group_id=GROUP)
            if log is None
            else log.apply(records, records[-1].offset + 1)
        )
        progress(records[-1].offset + 1, "events")


def _rounds(archive: Archive, start: int) -> Iterator[tuple[list[LogRecord], dict[int, dict[str, Any]]]]:
    """The records from ``start`` on, with their notes, in transactions' worth."""
    head = msgspec.json.Decoder(_Head)
    records: list[LogRecord] = []
    notes: dict[int, dict[str, Any]] = {}
    size = 0
    for number, line, note in archive.events():
        if number < start:
            continue
        try:
            found = head.decode(line)
            key = f"{found.tenant or 'default'}/{found.session_id}".encode()
        except (msgspec.DecodeError, UnicodeEncodeError):
            key = None  # the reader will say what is wrong with it
        records.append(LogRecord(number, key, line))
        size += len(line)
        if note is not None:
            notes[number] = note
        if len(records) >= ROUND_EVENTS or size >= ROUND_BYTES:
            yield records, notes
            records, notes, size = [], {}, 0
    if records:
        yield records, notes


def _conflicts(connection: Connection, loaded: Loaded) -> int:
    """Receipts of contradictions whose kept event is here, as the archive tells them: the losing records are nowhere."""
    rows = list(loaded.archive.rows(CONFLICTS))
    known = 0
    for start in range(0, len(rows), ROUND_EVENTS):
        piece = rows[start : start + ROUND_EVENTS]
        with connection.transaction():
            homes = {(row[6], row[7]) for row in _kept(connection, loaded, piece)}
            connection.execute(
                query("fence/lock"),
                {"topics": [home[0] for home in homes], "partitions": [home[1] for home in homes]},
            )
            marked = set()
            for index, session_no, stream_no, seq, raw, received, _, _ in _kept(connection, loaded, piece):
                row = piece[index - 1]
                kept = bytes(received) if received is not None else content_hash(bytes(raw))
                if kept.hex() != row["kept_sha256"]:
                    continue  # another event was first here: that is told where it came again
                added = connection.execute(
                    query("replay_archive/conflict"),
                    {
                        "session_no": session_no,
                        "stream_no": stream_no,
                        "seq": seq,
                        "receipt_key": row["receipt_key"],
                        "kept": kept,
                        "lost": bytes.fromhex(row["lost_sha256"]),
                        "topic": loaded.name,
                        "position": start + index - 1,
                    },
                ).rowcount
                known += added
                if added:
                    marked.add(session_no)
            connection.execute(query("rollup/mark"), {"sessions": sorted(marked)})
    return known


def _kept(connection: Connection, loaded: Loaded, rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    wanted = {
        "tenant": loaded.archive.manifest.tenant,
        "sessions": [row["session_id"] for row in rows],
        "producers": [row["producer"] for row in rows],
        "epochs": [row["epoch"] for row in rows],
        "streams": [row["stream"] for row in rows],
        "seqs": [row["seq"] for row in rows],
        "hashes": [event_hash(row["seq"], row["receipt_key"]) for row in rows],
    }
    return connection.execute(query("replay_archive/kept"), wanted).fetchall()
