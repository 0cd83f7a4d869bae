"""Shipping while a file grows, in whatever pieces, tells what importing it once tells: the same events, so the same digest."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fixtures.harness import codex, goldens
from tests.fixtures.harness.shipping import Ship, fold, imported
from tests.property.test_harness_copies import GROWING, of_lines, of_rows, size
from turnledger.harness.sources import Growing
from turnledger.ship import follower, reading

LINES = [name for name, (piece, _) in GROWING.items() if piece is of_lines]
DOCUMENTS = [name for name, (piece, _) in GROWING.items() if piece not in (of_lines, of_rows)]
DATABASES = [name for name, (piece, _) in GROWING.items() if piece is of_rows]
GOING_ON = ("claude_code/conversation.jsonl", "codex/rollout.jsonl")
SMALLEST = "sidecar/run-17.jsonl"


async def agrees(ship: Ship, name: str) -> None:
    """After all is quiet: what arrived is the import, and arrived once."""
    await ship.settle()
    once = imported(ship.path(name))
    assert sorted(ship.sink.records) == sorted(once)
    assert fold(ship.sink.records)["digest"] == fold(once)["digest"]
    assert ship.row(name)["lag_bytes"] == 0


@pytest.mark.parametrize("name", LINES)
async def test_lines_that_come_in_random_pieces_with_restarts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "GOING_ON", 0)
    ship, content, seed = Ship(tmp_path), goldens.content(name), random.Random(name)
    at = 0
    while at < len(content):
        step = seed.choice((1, 2, 3, 90, 250, 900))
        with ship.path(name).open("ab") as file:
            file.write(content[at : at + step])
        at += step
        await ship.look()
        if seed.random() < 0.1:
            ship.restart()
    await agrees(ship, name)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes of lines each reading looked at; even the smallest file is told on where it can be."""
    monkeypatch.setattr(follower, "GOING_ON", 0)
    opened, sizes = reading.growing.opened, []

    @contextmanager
    def watched(path: Path, *, settled: bool) -> Iterator[Growing]:
        with opened(path, settled=settled) as file:
            yield file
            sizes.append(file.lines - file.behind[1])

    monkeypatch.setattr(reading.growing, "opened", watched)
    return sizes


async def grows(ship: Ship, name: str, lines: list[bytes]) -> None:
    for line in lines:
        with ship.path(name).open("ab") as file:
            file.write(line)
        await ship.look()


@pytest.mark.parametrize("name", GOING_ON)
async def test_a_file_that_is_told_on_is_read_from_where_it_stood_and_once_whole_when_it_has_settled(
    name: str, tmp_path: Path, read: list[int]
) -> None:
    ship, lines = Ship(tmp_path), goldens.content(name).splitlines(keepends=True)
    await grows(ship, name, lines)
    assert read == [len(line) for line in lines]
    await agrees(ship, name)
    assert read[len(lines) :] == [len(goldens.content(name))]


async def test_a_line_that_changes_what_earlier_ones_mean_has_the_file_read_anew(
    tmp_path: Path, read: list[int]
) -> None:
    ship, name = Ship(tmp_path), "codex/rollout.jsonl"
    recorded = codex.line(
        "token_usage_record", 900, turn_id="t9", response_id="resp_1", usage={"input_tokens": 5}
    )
    lines = codex.ndjson([*codex.rollout(), recorded]).splitlines(keepends=True)
    await grows(ship, name, lines)
    await ship.look()
    assert read[-2:] == [len(lines[-1]), sum(map(len, lines))]
    assert set(ship.sink.records) >= set(imported(ship.path(name)))


async def test_a_file_that_is_told_on_and_written_anew_is_read_from_its_beginning(
    tmp_path: Path, read: list[int]
) -> None:
    ship, name = Ship(tmp_path), "claude_code/conversation.jsonl"
    lines = goldens.content(name).splitlines(keepends=True)
    await grows(ship, name, lines[:5])
    ship.path(name).write_bytes(b"".join([lines[0], *lines[2:]]))
    await ship.look()
    assert read[-1] == sum(map(len, lines)) - len(lines[1])
    assert ship.row(name)["generation"] == 1


async def test_lines_that_come_byte_by_byte(tmp_path: Path) -> None:
    ship, content = Ship(tmp_path), goldens.content(SMALLEST)
    for at in range(len(content)):
        with ship.path(SMALLEST).open("ab") as file:
            file.write(content[at : at + 1])
        await ship.look()
    await agrees(ship, SMALLEST)


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_documents_that_are_rewritten_message_by_message_and_seen_half_written(
    name: str, tmp_path: Path
) -> None:
    ship, (piece, least), seed = Ship(tmp_path), GROWING[name], random.Random(name)
    for end in range(least, size(name, piece) + 1):
        whole = goldens.content(name) if end == size(name, piece) else piece(name, 0, end)
        ship.path(name).write_bytes(whole[: seed.randrange(1, len(whole))])
        await ship.look()
        ship.path(name).write_bytes(whole)
        await ship.look()
    await agrees(ship, name)


@pytest.mark.parametrize("name", DATABASES)
async def test_a_database_that_its_harness_fills_row_by_row(name: str, tmp_path: Path) -> None:
    ship = Ship(tmp_path)
    writer = sqlite3.connect(ship.path(name), isolation_level=None)
    writer.execute("PRAGMA journal_mode = WAL")
    script = (goldens.FOLDER / name).read_text().splitlines()
    writer.executescript("\n".join(line for line in script if line.startswith("CREATE")))
    for line in script:
        if line.startswith("INSERT"):
            writer.execute(line)
            await ship.look()
    await agrees(ship, name)
    writer.close()
