"""Owns reading harness files as a whole: which files, whose they are (by content), their events, and what could not be read.

Nothing here publishes. A file's events depend on its content alone: neither its path nor the files beside it are part of an identity.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnledger.contract.redact import Redactor
from turnledger.contract.shapes import hide
from turnledger.errors import TurnledgerError
from turnledger.harness import detection, formats
from turnledger.harness.facts import Envelope, Notes
from turnledger.harness.format import Format, Telling
from turnledger.harness.moving import with_bodies
from turnledger.harness.reading import Condition, quarantine
from turnledger.harness.sources import DAMAGE, Container, Source

HARNESSES = formats.NAMES
Clean = Callable[[Iterator[Envelope]], Iterator[Envelope]]
SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".jsonl.zstd", ".ndjson")
"""Files of a folder that are looked into; a file named by itself is read whatever its name."""
OTHERS = (".json", ".traj", ".db", ".sqlite", ".aider.chat.history.md")
"""Files of a folder that are looked into and, where they are nobody's, passed over: most of such names are something else."""
BESIDE = (".meta.json",)
"""Never files of their own: they belong to the one beside them."""
TOGETHER = 32
"""Events that are looked at together for what must not leave: among so many there is seldom any."""
ROWS = 100
"""Rows listed of one finding; its count is exact."""


@dataclass(slots=True)
class Begun:
    """A file that grows, and was told up to ``condition.records``: what the next reading goes on from. Of no use where that reading was broken off."""

    whose: Format
    telling: Telling
    notes: Notes
    condition: Condition = field(default_factory=Condition)
    sessions: set[str] = field(default_factory=set)

    def take(self, condition: Condition) -> None:
        """What was odd about the lines that came."""
        mine = self.condition
        mine.records, mine.compression = condition.records, condition.compression
        mine.invalid_utf8 += condition.invalid_utf8
        mine.glued += condition.glued
        mine.unterminated |= condition.unterminated
        mine.quarantined += condition.quarantined


@dataclass(slots=True)
class FileReading:
    """What one file told."""

    path: Path
    harness: str | None
    container: Container | None = None
    """As what it was read."""
    begun: Begun | None = None
    events: list[Envelope] = field(default_factory=list)
    """Where they are kept; :func:`told` keeps none."""
    told: int = 0
    """How many it told."""
    sessions: list[str] = field(default_factory=list)
    quarantined: int = 0
    findings: list[dict[str, Any]] = field(default_factory=list)
    """{check, severity, count, rows}."""

    def row(self) -> dict[str, Any]:
        """The row of ``files`` in contract 17."""
        return {
            "path": str(self.path),
            "harness": self.harness,
            "sessions": self.sessions,
            "events": self.told,
            "quarantined": self.quarantined,
            "findings": self.findings,
        }


def files_in(paths: Iterable[Path]) -> list[Path]:
    """The files named, and those below the folders named, each once, in a fixed order."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            for folder, folders, names in os.walk(path, onerror=_refuse):
                folders.sort()
                for name in sorted(names):
                    if name.endswith((*SUFFIXES, *OTHERS)) and not name.endswith(BESIDE):
                        path = Path(folder) / name
                        if path.is_file():  # a pipe would be waited for
                            found.setdefault(path)
        elif path.exists():
            found.setdefault(path)
        else:
            raise TurnledgerError(f"{path} does not exist: name a session file or a folder of them")
    return list(found)


def _refuse(error: OSError) -> None:
    raise TurnledgerError(
        f"{error.filename} cannot be listed ({error.strerror}): check its permissions or name the files in it"
    ) from error


def passed_over(reading: FileReading, named: Iterable[Path]) -> bool:
    """Whether a file of a folder is none of a harness and need not be mentioned."""
    name = reading.path.name
    return reading.harness is None and name.endswith(OTHERS) and reading.path not in set(named)


def read_file(
    path: Path,
    *,
    harness: str | None = None,
    tenant: str | None = None,
    session: str | None = None,
    redactor: Redactor | None = None,
) -> FileReading:
    """Read one file. ``harness`` overrides detection; ``tenant`` goes into every event; ``session`` names the session where the file does not;
    ``redactor``: rules of contract 14, without bodies unless said.

    A file that is nobody's is no error: it gives no events and a finding.
    """
    return read_source(Source(path, session), harness=harness, tenant=tenant, redactor=redactor)


def read_source(
    source: Source,
    *,
    harness: str | None = None,
    tenant: str | None = None,
    redactor: Redactor | None = None,
) -> FileReading:
    """Read one source to its end and keep what it told."""
    reading = FileReading(source.path, None)
    reading.events = list(told(source, reading, harness=harness, tenant=tenant, redactor=redactor))
    reading.told = len(reading.events)
    return reading


def told(
    source: Source,
    reading: FileReading,
    *,
    harness: str | None = None,
    tenant: str | None = None,
    redactor: Redactor | None = None,
    begun: Begun | None = None,
) -> Iterator[Envelope]:
    """The events of one source, one by one, redacted; when they are through, ``reading`` says all but the events themselves.

    ``begun``: what an earlier reading of a file that grows left in ``reading.begun``; then only what stands behind that is told. Raises
    :class:`turnledger.harness.format.Anew` where that cannot be.
    """
    clean = _cleaning(redactor or Redactor(bodies=False), tenant)
    if begun is None:
        begun = yield from _begin(source, reading, harness, clean)
    if begun is not None:
        reading.harness, reading.container, reading.begun = begun.whose.name, "lines", begun
        for event in clean(begun.telling.more(lambda having: source.records(having=having))):
            begun.sessions.add(event["session_id"])
            yield event
        begun.take(source.condition)
        reading.sessions = sorted(begun.sessions, key=str.encode)
        reading.quarantined = len(begun.condition.quarantined)
        reading.findings += _findings(begun.condition, begun.notes)


def _begin(
    source: Source, reading: FileReading, harness: str | None, clean: Clean
) -> Generator[Envelope, None, Begun | None]:
    """Whose file it is. The events of one that is read as a whole; one that grows, and whose reader can go on, is only begun."""
    notes = Notes()
    chosen = formats.named(harness) if harness is not None else None
    found = detection.forced(source, chosen) if chosen is not None else detection.detect(source)
    sessions: set[str] = set()
    if found is not None:
        reading.harness, reading.container = found[0].name, found[1]
        if source.growing is not None and found[1] == "lines" and found[0].follow is not None:
            return Begun(found[0], found[0].follow(source, notes), notes)
        if source.unsettled and found[1] == "document" and source.document() is None:
            source.hold()  # half a document is none: its writer is at it
            return None
        for event in clean(_told(source, *found, notes)):
            sessions.add(event["session_id"])
            yield event
    else:
        reading.findings.append(_finding("unknown_harness", "warning", 1, []))
    reading.sessions = sorted(sessions, key=str.encode)
    reading.quarantined = len(source.condition.quarantined)
    reading.findings += _findings(source.condition, notes)
    return None


def _cleaning(redactor: Redactor, tenant: str | None) -> Clean:
    """What makes events ready to leave: their long texts moved behind them, redacted, and under their tenant."""

    def clean(events: Iterator[Envelope]) -> Iterator[Envelope]:
        held: list[Envelope] = []
        for event in with_bodies(events, redactor):
            held.append(event if tenant is None else {"tenant": tenant, **event})
            if len(held) == TOGETHER:
                yield from redactor.clean_all(held)
                held = []
        yield from redactor.clean_all(held)

    return clean


def harness_of(records: Iterable[dict[str, Any]]) -> str | None:
    """Whose lines these are: the first record that can be only one harness's decides."""
    found = detection.of_records(records)
    return found.name if found is not None else None


def _told(source: Source, whose: Format, container: Container, notes: Notes) -> Iterator[Envelope]:
    read = whose.reader(container)
    if read is None:
        raise TurnledgerError(
            f"{source.path} is no file of {whose.title}: leave --harness out, or name another"
        )
    try:
        yield from read(source, notes)
    except DAMAGE as error:
        source.condition.quarantined.append(quarantine(0, 0, str(error).encode(), "damaged_table"))


def _finding(check: str, severity: str, count: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"check": check, "severity": severity, "count": count, "rows": rows[:ROWS]}


def _findings(condition: Condition, notes: Notes) -> list[dict[str, Any]]:
    found = []
    if condition.quarantined:
        rows = [
            {
                "record": each.number,
                "offset": each.offset,
                "bytes": each.size,
                "sha256": each.sha256,
                "reason": each.reason,
            }
            for each in condition.quarantined
        ]
        found.append(_finding("unreadable_line", "error", len(rows), rows))
    if condition.invalid_utf8:
        found.append(_finding("invalid_utf8", "warning", condition.invalid_utf8, []))
    if condition.glued:
        found.append(_finding("glued_objects", "info", condition.glued, []))
    if condition.unterminated:
        found.append(_finding("unterminated_last_line", "info", 1, []))
    for check, severity, counter in (
        ("unknown_record_type", "warning", notes.unknown),
        ("record_without_event", "info", notes.untold),
    ):
        if counter:
            rows = [{"type": hide(name), "count": number} for name, number in sorted(counter.items())]
            found.append(_finding(check, severity, counter.total(), rows))
    for name, number in sorted((+notes.traits).items()):
        found.append(_finding(name, "info", number, []))
    return found
