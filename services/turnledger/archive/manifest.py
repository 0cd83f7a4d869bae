"""What an archive says of itself: counts, ranges, the hash of every file, and a digest over all of that. Without its manifest a folder is none."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import date
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from turnledger.contract.canonical import dumps
from turnledger.contract.jsontext import JsonError, parse
from turnledger.errors import TurnledgerError

NAME = "manifest.json"
FORMAT = "turnledger archive"
VERSION = 1

EVENTS, NOTES, STREAMS, CONFLICTS = "events", "notes", "streams", "conflicts"
"""Kinds of files. ``events``: an envelope a line, as it is stored. ``notes``: {line, received_sha256, redactions} of events that are not stored as
they came, by line counted through all files from 0. ``streams``: ranges. ``conflicts``: receipts of contradictions."""


class Damaged(TurnledgerError):
    """An archive is not what its manifest says, or has none."""


@dataclass(frozen=True, slots=True)
class File:
    """One file of an archive."""

    name: str
    kind: str
    lines: int
    bytes: int
    """Compressed."""
    sha256: str
    """Of the compressed bytes."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One tenant's day."""

    tenant: str
    day: str
    events: int
    sessions: int
    streams: int
    conflicts: int
    vacuumed: int
    """Events of that day that were gone already when it was written."""
    first_batch: int
    last_batch: int
    events_sha256: str
    """Of the lines of all files of events, as they are before compression: equal for the same set of numbered events, however it is cut into files."""
    sources: list[dict[str, Any]] = field(default_factory=list)
    """{topic, partition, first_position, last_position, events}."""
    files: list[File] = field(default_factory=list)
    written_at: str = ""
    written_by: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of everything else."""
        return sha256(dumps(self._row())).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of its files, compressed."""
        return sum(file.bytes for file in self.files)

    def of(self, kind: str) -> list[File]:
        return [file for file in self.files if file.kind == kind]

    def _row(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    def encoded(self) -> bytes:
        text = json.dumps({**self._row(), "digest": self.digest}, indent=2, ensure_ascii=False)
        return text.encode() + b"\n"


def folder(tenant: str, day: date) -> str:
    """Where a tenant's day is, below the place of archives."""
    return f"tenant={quote(tenant, safe='')}/day={day.isoformat()}"


def decoded(data: bytes, where: str) -> Manifest:
    """Raises :class:`Damaged`, with ``where`` it is."""
    try:
        found = parse(data)
    except JsonError:
        found = None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise Damaged(
            f"{where} is no manifest of an archive: what was written there is cut, changed or of something else."
        )
    if found.get("version") != VERSION:
        raise Damaged(
            f"{where} is of version {found.get('version')!r} and this program reads version {VERSION}: read it with the version that wrote it."
        )
    told = found.pop("digest", None)
    fields = {name: value for name, value in found.items() if name not in ("format", "version")}
    try:
        manifest = Manifest(**{**fields, "files": [File(**one) for one in fields.get("files", ())]})
        digest = manifest.digest
    except (TypeError, ValueError):
        raise Damaged(f"{where} lacks what a manifest says, or says more: it was changed.") from None
    if told != digest:
        raise Damaged(f"{where} is not what its digest says: it was changed after it was written.")
    return manifest
