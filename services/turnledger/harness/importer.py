"""Owns reading harness files as a whole: which files, whose they are (by content), their events, and what could not be read.

Nothing here publishes. A file's events depend on its content alone: neither its path nor the files beside it are part of an identity.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from turnledger.errors import TurnledgerError
from turnledger.harness import claude_code, codex
from turnledger.harness.facts import Envelope, Notes, identifier
from turnledger.harness.reading import Condition, Record, records_of

HARNESSES = ("claude-code", "codex")
SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson")
"""Files of a folder that are looked into; a file named by itself is read whatever its name."""
ROWS = 100
"""Rows listed of one finding; its count is exact."""


@dataclass(slots=True)
class FileReading:
    """What one file told."""

    path: Path
    harness: str | None
    events: list[Envelope] = field(default_factory=list)
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
            "events": len(self.events),
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
                    if name.endswith(SUFFIXES):
                        found.setdefault(Path(folder) / name)
        elif path.exists():
            found.setdefault(path)
        else:
            raise TurnledgerError(f"{path} does not exist: name a session file or a folder of them")
    return list(found)


def _refuse(error: OSError) -> None:
    raise TurnledgerError(
        f"{error.filename} cannot be listed ({error.strerror}): check its permissions or name the files in it"
    ) from error


def read_file(path: Path, *, harness: str | None = None, tenant: str | None = None) -> FileReading:
    """Read one file. ``harness`` overrides detection; ``tenant`` goes into every event.

    A file that is nobody's is no error: it gives no events and a finding.
    """
    condition = Condition()
    records = list(records_of(path, condition))
    whose = harness or harness_of(record.value for record in records)
    reading = FileReading(path, whose, quarantined=len(condition.quarantined))
    notes = Notes()
    if whose is None:
        reading.findings.append(_finding("unknown_harness", "warning", 1, []))
    else:
        for event in _events(whose, path, records, notes):
            if tenant is not None:
                event = {"tenant": tenant, **event}
            reading.events.append(event)
        reading.sessions = sorted({event["session_id"] for event in reading.events}, key=str.encode)
    reading.findings += _findings(condition, notes)
    return reading


def harness_of(records: Iterable[dict[str, Any]]) -> str | None:
    """Whose file it is: the first record that can be only one harness's decides."""
    for record in records:
        if claude_code.recognises(record):
            return "claude-code"
        if codex.recognises(record):
            return "codex"
    return None


def _events(harness: str, path: Path, records: list[Record], notes: Notes) -> Iterator[Envelope]:
    if harness == "claude-code":
        values = [record.value for record in records]
        return claude_code.envelopes(values, notes, tool_of_agent=_tool_of_agent(path))
    if harness == "codex":
        return codex.envelopes(records, notes)
    raise TurnledgerError(f"--harness {harness} is not known: it can be {' or '.join(HARNESSES)}")


def _tool_of_agent(path: Path) -> str | None:
    """The tool call that started a sub-agent, from the small file that newer Claude Code writes beside the sub-agent's own."""
    name = path.name.split(".jsonl", 1)[0]
    beside = path.with_name(f"{name}.meta.json")
    if not name.startswith("agent-") or not beside.is_file():
        return None
    try:
        meta = orjson.loads(beside.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None  # it only adds a link; the sub-agent then has a turn of its own
    return identifier(meta.get("toolUseId")) if isinstance(meta, dict) else None


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
            rows = [{"type": name, "count": number} for name, number in sorted(counter.items())]
            found.append(_finding(check, severity, counter.total(), rows))
    for name, number in sorted(notes.traits.items()):
        found.append(_finding(name, "info", number, []))
    return found
