"""What must not pile up over weeks, and what must not be mixed up: fingerprints, what is due, watches, files that move while they are read."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.harness import claude, codex
from tests.fixtures.harness.shipping import Ship, Sink, imported
from turnledger.harness.outlets import Row
from turnledger.ship import discovery, follower, hints
from turnledger.ship.state import State

LINES = claude.ndjson(claude.conversation()).splitlines(keepends=True)
WHOLE = b"".join(LINES)


@pytest.fixture
def ship(tmp_path: Path) -> Ship:
    return Ship(tmp_path)


def fingerprints(ship: Ship, name: str) -> int:
    (found,) = [each for each in ship.state.checkpoints() if each.path == ship.path(name)]
    return len(ship.state.sent(found.id))


async def test_of_a_file_that_is_cut_and_written_again_only_what_it_holds_is_remembered(ship: Ship) -> None:
    for day in range(4):
        ship.path("a.jsonl").write_bytes(
            claude.ndjson([claude.prompt(f"d{day}-{n}", None, 500 + n, "text") for n in range(20)])
        )
        await ship.look()
        await ship.settle()
    once = len(imported(ship.path("a.jsonl")))
    assert len(ship.sink.records) > 3 * once / 2
    assert fingerprints(ship, "a.jsonl") == once
    sent = len(ship.sink.records)
    ship.restart()
    await ship.settle()
    assert len(ship.sink.records) == sent


async def test_a_reading_that_told_nothing_is_kept_as_well(ship: Ship) -> None:
    ship.path("nobodys.jsonl").write_bytes(b'{"a": 1}\n')
    await ship.settle()
    ship.restart()
    await ship.settle()
    assert ship.follower.readings == 0


async def test_while_it_is_written_anew_nothing_is_let_go_of(ship: Ship) -> None:
    ship.path("a.jsonl").write_bytes(WHOLE)
    await ship.settle()
    ship.path("a.jsonl").write_bytes(b"".join(LINES[:3]))
    await ship.look()
    ship.path("a.jsonl").write_bytes(WHOLE)
    await ship.settle()
    assert sorted(ship.sink.records) == sorted(imported(ship.path("a.jsonl")))


async def test_a_file_that_another_one_replaces_takes_its_fingerprints_along(ship: Ship) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        ship.path(name).write_bytes(WHOLE)
        await ship.look()
    ship.path("a.jsonl").unlink()
    await ship.look()
    ship.path("b.jsonl").rename(ship.path("a.jsonl"))
    await ship.look()
    await ship.settle()
    (left,) = ship.state.checkpoints()
    (files,) = ship.state._db.execute("SELECT count(DISTINCT file) FROM sent").fetchone()
    assert (left.path, files) == (ship.path("a.jsonl"), 1)


def test_an_id_is_given_once_also_after_its_file_was_forgotten(tmp_path: Path) -> None:
    kept = State(tmp_path)
    first = kept.begin(tmp_path / "a", 1, 1).id
    kept.confirm(first, [7])
    kept.forget([first], wholly=True)
    kept.confirm(first, [8])  # a reading that ended behind it
    assert kept.begin(tmp_path / "b", 1, 2).id > first
    assert list(kept.sent(first)) == []
    kept.close()


async def test_while_nothing_can_be_sent_what_is_due_does_not_pile_up(ship: Ship) -> None:
    ship.path("a.jsonl").write_bytes(LINES[0])
    await ship.follower.look()
    for line in LINES[1:]:
        ship.clock.now += 1
        with ship.path("a.jsonl").open("ab") as file:
            file.write(line)
        await ship.follower.roll.hear([ship.path("a.jsonl")])
    small, large = ship.follower.agenda._due
    assert len(small) + len(large) == 1
    assert await ship.follower.work() == 1
    assert sorted(ship.sink.records) == sorted(imported(ship.path("a.jsonl")))


class Slow(Sink):
    """Waits with the first batch until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.came, self.go_on = asyncio.Event(), asyncio.Event()

    async def send(self, rows: Sequence[Row], offset: int | None) -> int | None:
        self.came.set()
        await self.go_on.wait()
        return await super().send(rows, offset)


async def test_a_file_that_is_rotated_while_it_is_read_is_the_same_one_and_the_one_in_its_place_another(
    ship: Ship, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow()
    ship.sink = ship.follower.way._make = slow
    ship.path("a.jsonl").write_bytes(WHOLE)
    await ship.follower.look()
    ship.clock.now += 1
    reading = asyncio.create_task(ship.follower.work())
    await slow.came.wait()
    ship.path("a.jsonl").rename(ship.path("a.1.jsonl"))
    ship.path("a.jsonl").write_bytes(codex.ndjson(codex.rollout()))
    await ship.follower.look()
    ship.clock.now += 1
    rotated = ship.follower.roll.files[1]
    assert (rotated.reading, rotated.due) == (True, None)  # no second reading of it begins
    slow.go_on.set()
    await reading
    await ship.settle()
    once = [each for name in ("a.1.jsonl", "a.jsonl") for each in imported(ship.path(name))]
    assert sorted(slow.records) == sorted(once)
    kept = {each.path.name: each for each in ship.state.checkpoints()}
    assert set(kept) == {"a.jsonl", "a.1.jsonl"}
    assert {name: each.told for name, each in kept.items()} == {
        name: ship.path(name).stat().st_size for name in kept
    }
    ship.restart()
    await ship.settle()
    assert len(slow.records) == len(once)


async def test_a_file_that_was_rotated_before_a_look_saw_it_is_not_told_again(ship: Ship) -> None:
    ship.path("a.jsonl").write_bytes(b"".join(LINES[:3]))
    await ship.look()
    with ship.path("a.jsonl").open("ab") as file:
        file.write(b"".join(LINES[3:]))
    await ship.follower.look()
    ship.clock.now += 1
    ship.path("a.jsonl").rename(ship.path("a.1.jsonl"))
    ship.path("a.jsonl").write_bytes(codex.ndjson(codex.rollout()))
    await ship.follower.work()
    await ship.look()
    await ship.settle()
    once = [each for name in ("a.1.jsonl", "a.jsonl") for each in imported(ship.path(name))]
    assert sorted(ship.sink.records) == sorted(once)


async def test_a_file_that_is_replaced_all_the_time_is_read_all_the_same(ship: Ship) -> None:
    ship.path("a.jsonl").write_bytes(LINES[0])
    await ship.follower.look()
    for _ in range(5):
        ship.clock.now += 1
        ship.path("beside").write_bytes(WHOLE)
        ship.path("beside").replace(ship.path("a.jsonl"))
        await ship.follower.work()
    assert set(ship.sink.records) == set(imported(ship.path("a.jsonl")))


async def test_a_file_that_is_gone_while_it_is_read_keeps_what_was_told_of_it(ship: Ship) -> None:
    slow = Slow()
    ship.sink = ship.follower.way._make = slow
    ship.path("a.jsonl").write_bytes(WHOLE)
    await ship.follower.look()
    ship.clock.now += 1
    reading = asyncio.create_task(ship.follower.work())
    await slow.came.wait()
    os.link(ship.path("a.jsonl"), ship.home / "elsewhere")
    ship.path("a.jsonl").unlink()
    await ship.follower.look()
    slow.go_on.set()
    await reading
    assert ship.follower.roll.gone == 1
    (kept,) = ship.state.checkpoints()
    assert (kept.gone, kept.told) == (True, len(WHOLE))
    (ship.home / "elsewhere").rename(ship.path("a.jsonl"))
    await ship.settle()
    assert sorted(slow.records) == sorted(imported(ship.path("a.jsonl")))


async def test_what_an_earlier_file_of_the_same_id_left_is_not_gone_on_from(
    ship: Ship, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "GOING_ON", 0)
    ship.path("a.jsonl").write_bytes(WHOLE)
    await ship.look()
    (number,) = ship.follower.roll.files
    (begun,) = ship.follower._begun.values()
    ship.path("b.jsonl").write_bytes(codex.ndjson(codex.rollout()))
    await ship.follower.look()
    ship.follower._begun[number + 1] = begun
    await ship.look()
    assert sorted(ship.sink.records) == sorted(
        [*imported(ship.path("a.jsonl")), *imported(ship.path("b.jsonl"))]
    )


# -- watches


async def test_what_the_system_did_not_tell_of_is_seen_by_the_looks_and_it_is_listened_to_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full queue of the system drops what it would have told, also of the folder that is to be watched."""
    listened = 0

    async def silent(folders: Sequence[Path], stop: asyncio.Event) -> AsyncIterator[set[Path]]:
        nonlocal listened
        listened += 1
        await stop.wait()
        return
        yield set()

    monkeypatch.setattr(discovery, "changes", silent)
    monkeypatch.setattr(hints, "MOST_MISSES", 2)
    ship = Ship(tmp_path, clock=time.monotonic, ship_scan_seconds=0.2, ship_poll_seconds=0.05)
    running = asyncio.create_task(ship.follower.run())
    heard: list[bool] = []
    for number in range(100):
        ship.path(f"{number}/a.jsonl").write_bytes(LINES[0])
        await asyncio.sleep(0.1)
        heard.append(ship.follower.hints.told)
        if not heard[-1]:
            break
    ship.follower.stop.set()
    await running
    assert listened >= 2
    assert heard[-1] is False, "a system that stays silent is one that does not tell"


async def test_what_the_system_tells_of_before_or_after_a_look_was_not_missed(ship: Ship) -> None:
    roll = ship.follower.roll
    ship.path("a.jsonl").write_bytes(LINES[0])
    await ship.follower.look()
    ship.path("new/b.jsonl").write_bytes(LINES[0])
    await roll.hear([ship.root / "new"])
    with ship.path("a.jsonl").open("ab") as file:
        file.write(LINES[1])
    await ship.follower.look()
    await roll.hear([ship.path("a.jsonl")])
    await ship.follower.look()
    assert roll.missed == set()
    ship.path("c.jsonl").write_bytes(LINES[0])
    await ship.follower.look()
    assert roll.missed == set()
    await ship.follower.look()
    assert roll.missed == {ship.path("c.jsonl")}


async def test_a_system_that_refuses_is_asked_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch, ship: Ship
) -> None:
    pauses: list[float] = []

    async def refused(*_: Any) -> Any:
        raise OSError(28, "OS file watch limit reached")
        yield

    async def waited(event: asyncio.Event, seconds: float) -> bool:
        pauses.append(seconds)
        if len(pauses) == 12:
            ship.follower.stop.set()
        return event.is_set()

    monkeypatch.setattr(discovery, "changes", refused)
    monkeypatch.setattr(hints, "wait", waited)
    monkeypatch.setattr(ship.follower.hints, "_folders_change", lambda *_: asyncio.sleep(0))
    await ship.follower.hints.run()
    assert pauses[:3] == [4.0, 8.0, 16.0] and pauses[-1] == hints.LONGEST_PAUSE
