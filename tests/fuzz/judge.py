"""Owns what a reader may do with a damaged file: nothing that the ledger refuses, no figure that the file does not hold, no silence."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from typing import Any

import orjson
import pytest

from tests.fixtures.harness import goldens
from tests.fixtures.harness.folded import catalogue
from tests.fuzz.mutations import Mutation
from turnledger.contract.reader import Rejected, read
from turnledger.fold.document import document
from turnledger.harness import documents
from turnledger.harness.importer import FileReading
from turnledger.harness.sources import DAMAGE, Source, tables_of
from turnledger.pricing import price_call

SUMMED = ("opencode/", "gemini_cli/")
"""Formats whose reader adds two figures of one record (reasoning to output, tool prompts to input)."""
ORDERLESS = (
    "claude_code/conversation.jsonl",
    "qwen_code/chat.jsonl",
    "copilot_cli/events.jsonl",
    "openhands/conv-4/events.jsonl",
)
"""Lines that may stand twice and anywhere: the totals stay."""
BUCKETS = (
    "input_uncached",
    "cache_read",
    "cache_write_5m",
    "cache_write_1h",
    "cache_write_other",
    "output",
    "reasoning",
)
_FIGURE = re.compile(rb"([\d.,]+)([kM]?)")


def judge(mutation: Mutation, *, thorough: bool) -> list[str]:
    """What is wrong with the reading of a damaged file; empty where nothing is. ``thorough`` folds it too and reads it twice."""
    reading = goldens.read(mutation.name, mutation.content)
    wrong = []
    records = [orjson.dumps(event) for event in reading.events]
    for event, record in zip(reading.events, records, strict=True):
        answer = read(record)
        if isinstance(answer, Rejected):
            wrong.append(f"{event['type']} would be a dead letter: {answer}")
    wrong += _invented(mutation, reading)
    wrong += _silent(mutation, reading)
    if mutation.name.endswith((".json", ".traj")) and not _walked_alike(mutation, reading):
        wrong.append("a document that is not held says something else")
    if thorough:
        if goldens.read(mutation.name, mutation.content).events != reading.events:
            wrong.append("read twice, it says two things")
        found = document(records, partial(price_call, catalogue()))
        # One file cannot contradict itself: an identity that is used for two things is no identity.
        if found["records"]["conflicts"] and mutation.kind not in (
            "duplicate",
            "type",
            "flip",
            "insert",
            "drop_key",
        ):
            wrong.append("it contradicts itself")
        if (
            mutation.kind in ("shuffle", "duplicate")
            and mutation.name in ORDERLESS
            and _sums(found) != _whole(mutation.name)
        ):
            wrong.append("lines that moved or stand twice change the totals")
    return wrong


def _walked_alike(mutation: Mutation, reading: FileReading) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "WHOLE", -1)
        walked = goldens.read(mutation.name, mutation.content)
    # A single line is told as a line where it is short.
    return walked.events == reading.events and (walked.row() == reading.row() or reading.container == "lines")


def _sums(found: dict[str, Any]) -> list[Any]:
    return [[row["session_id"], *(row[f"{name}_tokens"] for name in BUCKETS)] for row in found["sessions"]]


@cache
def _whole(name: str) -> list[Any]:
    records = [orjson.dumps(event) for event in goldens.read(name).events]
    return _sums(document(records, partial(price_call, catalogue())))


@cache
def _has_zeros(name: str) -> bool:
    """Whether the undamaged file is told with zeros, as formats do in which absence means zero."""
    return any(figure == 0 for _, figure in _told(goldens.read(name)))


def _told(reading: FileReading) -> Iterator[tuple[str, int]]:
    for event in reading.events:
        payload = event["payload"]
        for holder in (payload.get("usage"), payload.get("last")):
            if isinstance(holder, dict):
                for name, figure in holder.items():
                    yield f"{event['type']}.{name}", figure


def _invented(mutation: Mutation, reading: FileReading) -> list[str]:
    held: set[int] | None = None
    wrong = []
    for name, figure in _told(reading):
        if type(figure) is not int or figure < 0:
            wrong.append(f"{name} is {figure!r}")
            continue
        if figure == 0 and (
            mutation.kind != "type" or mutation.replaced is None or _has_zeros(mutation.name)
        ):
            continue
        held = _held(mutation) if held is None else held
        if figure in held:
            continue
        if mutation.name.startswith(SUMMED) and any(figure - each in held for each in held):
            continue
        wrong.append(f"{name} = {figure} stands nowhere in the file")
    return wrong


def _held(mutation: Mutation) -> set[int]:
    """Every whole number that the damaged file holds, at any depth, in texts that are JSON too."""
    source = goldens.source(mutation.name, mutation.content)
    found: set[int] = set()
    if mutation.name.endswith(".md"):
        for digits, unit in _FIGURE.findall(mutation.content):
            factor = {b"k": 1000, b"M": 1_000_000}.get(unit, 1)
            plain = digits.replace(b",", b"").decode()
            if plain.strip(".") and plain.count(".") <= 1:
                found |= {int(float(plain) * factor), round(float(plain) * factor)}
    elif source.is_database():
        _rows(source, found)
    else:
        for record in source.records():
            _numbers(record.value, found)
        document = source.document()
        _numbers(document.whole() if document is not None else None, found)
    return found


def _rows(source: Source, found: set[int]) -> None:
    with source.database() as connection:
        try:
            tables = list(tables_of(connection))
        except DAMAGE:
            return
        for table in tables:
            with suppress(*DAMAGE):  # what stands before the damage is held all the same
                for row in connection.execute(f'SELECT * FROM "{table}" ORDER BY rowid'):
                    _numbers(list(row), found)


def _numbers(value: Any, found: set[int]) -> None:
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        found.add(value)
    elif isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        found.add(int(value))
    elif isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        try:
            _numbers(json.loads(value), found)
        except (ValueError, RecursionError):
            return
    elif isinstance(value, dict):
        for each in value.values():
            _numbers(each, found)
    elif isinstance(value, list):
        for each in value:
            _numbers(each, found)


def _silent(mutation: Mutation, reading: FileReading) -> list[str]:
    """What cannot be read is counted and named."""
    checks = {finding["check"] for finding in reading.findings}
    if reading.harness is None:
        wrong = [] if "unknown_harness" in checks else ["nobody's file, and nothing says so"]
        return [*wrong, *(["events of a file that is nobody's"] if reading.events else [])]
    if reading.quarantined and not checks & {"unreadable_line"}:
        return ["what could not be read is counted and not named"]
    if mutation.name.endswith(".jsonl"):
        bad = sum(not _reads(line) for line in mutation.content.split(b"\n") if line.strip(b" \t\r"))
        glued = sum(finding["count"] for finding in reading.findings if finding["check"] == "glued_objects")
        if reading.quarantined + glued < bad:
            return [f"{bad} lines are broken, {reading.quarantined} are counted"]
    elif mutation.name.endswith((".json", ".traj")) and not reading.events and not reading.findings:
        return ["a document that tells nothing and says nothing"]
    return []


def _reads(line: bytes) -> bool:
    try:
        value = json.loads(line.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)
