"""Reads archives back: finds them, proves each whole before anything of it is used, and gives its lines in their order."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import IO, Any, cast

import orjson
import zstandard

from turnledger.archive.manifest import EVENTS, NAME, NOTES, Damaged, File, Manifest, decoded
from turnledger.archive.place import Place

CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Archive:
    """One tenant's day, with its manifest proven and its files not yet."""

    place: Place
    folder: str
    manifest: Manifest

    @property
    def url(self) -> str:
        return f"{self.place.url}/{self.folder}" if self.folder else self.place.url

    def check(self) -> None:
        """Read every file and hold it against the manifest. Raises :class:`Damaged`, which names the file."""
        lines = sha256()
        for file in self.manifest.files:
            self._check(file, lines)
        if lines.hexdigest() != self.manifest.events_sha256:
            raise Damaged(
                f"the events of {self.url} are not those that its manifest says: its files were exchanged."
            )

    def _check(self, file: File, lines: Any) -> None:
        where = f"{self.url}/{file.name}"
        digest, size, count = sha256(), 0, 0
        try:
            with self.place.reading(self._name(file)) as source:
                while piece := source.read(CHUNK):
                    digest.update(piece)
                    size += len(piece)
            if (size, digest.hexdigest()) != (file.bytes, file.sha256):
                raise Damaged(
                    f"{where} is damaged: it has {size} bytes with another hash than the {file.bytes} that its manifest says. Restore it from a "
                    "copy; nothing of this archive is loaded until then."
                )
        except FileNotFoundError:
            raise Damaged(
                f"{where} is gone: restore it from a copy; nothing of this archive is loaded until then."
            ) from None
        for line in self.lines(file):
            count += 1
            if file.kind == EVENTS:
                lines.update(line + b"\n")
        if count != file.lines:
            raise Damaged(f"{where} has {count} lines, and its manifest says {file.lines}.")

    def lines(self, file: File) -> Iterator[bytes]:
        """The lines of one file, without their ends, in flat memory. Raises :class:`Damaged`."""
        try:
            with self._plain(file) as reader:
                for line in reader:
                    yield line.removesuffix(b"\n")
        except (zstandard.ZstdError, FileNotFoundError) as error:
            raise Damaged(
                f"{self.url}/{file.name} cannot be unpacked ({error}): restore it from a copy, then run this again."
            ) from None

    def events(self) -> Iterator[tuple[int, bytes, dict[str, Any] | None]]:
        """(number from 0, envelope, its note where it is not stored as it came) of every event in order."""
        notes = self.rows(NOTES)
        note = next(notes, None)
        number = 0
        for file in self.manifest.of(EVENTS):
            for line in self.lines(file):
                if note is not None and note["line"] == number:
                    yield number, line, note
                    note = next(notes, None)
                else:
                    yield number, line, None
                number += 1

    def rows(self, kind: str) -> Iterator[dict[str, Any]]:
        """The lines of files that are not events, read."""
        for file in self.manifest.of(kind):
            for line in self.lines(file):
                yield orjson.loads(line)

    def _name(self, file: File) -> str:
        return f"{self.folder}/{file.name}" if self.folder else file.name

    @contextmanager
    def _plain(self, file: File) -> Iterator[IO[bytes]]:
        with self.place.reading(self._name(file)) as source:
            reader = zstandard.ZstdDecompressor().stream_reader(source, closefd=False)
            with io.BufferedReader(cast(io.RawIOBase, reader), CHUNK) as buffered:
                yield cast(IO[bytes], buffered)


def find(place: Place) -> tuple[list[Archive], list[Damaged]]:
    """The archives in a folder or below it, by tenant and day, and manifests that are none. A folder without a manifest is no archive."""
    found: list[Archive] = []
    damaged: list[Damaged] = []
    for name in place.names():
        if name != NAME and not name.endswith(f"/{NAME}"):
            continue
        folder = name.removesuffix(NAME).rstrip("/")
        where = f"{place.url}/{name}"
        try:
            found.append(Archive(place, folder, decoded(place.read(name), where)))
        except Damaged as error:
            damaged.append(error)
    found.sort(key=lambda one: (one.manifest.day, one.manifest.tenant))
    return found, damaged


def unfinished(place: Place) -> list[str]:
    """Folders with files of an archive and no manifest: whoever wrote them was cut short."""
    names = place.names()
    whole = {name.removesuffix(NAME) for name in names if name.endswith(NAME)}
    parts = {name.rpartition("/")[0] + "/" for name in names if name.endswith(".ndjson.zst")}
    return sorted(folder.rstrip("/") for folder in parts - whole)
