"""Following over weeks: crashes, a sink or a state disk that is away, clocks, many files, one process a state folder."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from tests.fixtures.harness import claude, codex
from tests.fixtures.harness.collector import Request, SmallCollector, results, serving
from tests.fixtures.harness.shipping import SETTLE, Ship, fold, imported
from turnledger.errors import TurnledgerError
from turnledger.harness.outlets import outlet, parse
from turnledger.ship import agenda, discovery, keeping, reading, service, standing, state
from turnledger.ship.state import State, StateAway, StateHeld

LINES = claude.ndjson(claude.conversation()).splitlines(keepends=True)
WHOLE = b"".join(LINES)


@pytest.fixture
def ship(tmp_path: Path) -> Ship:
    return Ship(tmp_path)


async def until(true: Callable[[], bool]) -> None:
    """Wait for what a follower does by itself."""
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("seed", range(12))
async def test_after_crashes_at_any_batch_everything_has_arrived_and_no_more_than_one_batch_twice(
    ship: Ship, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash between the sink and the checkpoint: the batch has arrived, and nothing knows it."""
    monkeypatch.setattr(reading, "ROWS", 3)
    draw, crashes = random.Random(seed), 0
    contents = {"a.jsonl": WHOLE, "b.jsonl": codex.ndjson(codex.rollout())}
    written = dict.fromkeys(contents, 0)
    confirm = State.confirm

    def crash(self: State, *arguments: Any) -> None:
        nonlocal crashes
        if draw.random() < 0.2:
            crashes += 1
            raise KeyboardInterrupt
        confirm(self, *arguments)

    monkeypatch.setattr(State, "confirm", crash)
    while any(written[name] < len(content) for name, content in contents.items()):
        for name, content in contents.items():
            more = draw.randrange(0, 700)
            with ship.path(name).open("ab") as file:
                file.write(content[written[name] : written[name] + more])
            written[name] += more
        try:
            await ship.look()
        except KeyboardInterrupt:
            ship.restart()
    monkeypatch.setattr(State, "confirm", confirm)
    await ship.settle()
    once = [record for name in contents for record in imported(ship.path(name))]
    assert set(ship.sink.records) == set(once)
    assert len(ship.sink.records) - len(once) <= 3 * crashes
    assert fold(ship.sink.records)["digest"] == fold(once)["digest"]


async def test_an_answer_of_the_sink_that_is_lost_sends_that_batch_again_and_loses_nothing(
    ship: Ship,
) -> None:
    ship.path("a.jsonl").write_bytes(WHOLE)
    ship.sink.away, ship.sink.arrives_unseen = 1, True
    await ship.look()
    await ship.look()
    once = imported(ship.path("a.jsonl"))
    assert sorted(ship.sink.records) == sorted([*once, *once])
    await ship.look()
    assert len(ship.sink.records) == 2 * len(once)


async def test_nothing_is_read_while_the_sink_is_away(ship: Ship, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    open_file = reading.growing.opened

    def counted(path: Path, *, settled: bool) -> Any:
        opened.append(path)
        return open_file(path, settled=settled)

    monkeypatch.setattr(reading.growing, "opened", counted)
    for number in range(50):
        ship.path(f"{number}.jsonl").write_bytes(WHOLE)
    ship.sink.away = 10**6
    await ship.follower.look()
    ship.clock.now += 1
    working = asyncio.create_task(ship.follower.work())
    await until(lambda: bool(opened))
    await asyncio.sleep(0.3)
    assert len(opened) <= 3  # a batch each time the sink seems to be there, and no more
    assert ship.follower.way.trouble == "the broker is away"
    ship.clock.now += 25
    (reason,) = ship.follower.reasons()
    assert reason.startswith("no event has left for 2") and reason.endswith("the broker is away")
    ship.sink.away = 0
    await working
    await ship.look()
    assert {row.record for row in ship.sink.rows} == set(imported(ship.path("0.jsonl")))
    assert ship.follower.reasons() == []


async def test_while_the_state_cannot_be_written_nothing_more_is_sent(
    ship: Ship, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "ROWS", 5)
    monkeypatch.setattr(keeping, "STATE_PAUSE", 0.05)
    confirm, failures = State.confirm, iter([False, True, True, True])

    def full(self: State, *arguments: Any) -> None:
        if next(failures, False):
            sent.append(len(ship.sink.rows))
            raise StateAway("the state cannot be written (disk full)")
        confirm(self, *arguments)

    sent: list[int] = []
    monkeypatch.setattr(State, "confirm", full)
    ship.path("a.jsonl").write_bytes(WHOLE)
    await ship.look()
    assert sent == [10, 10, 10]
    assert sorted(ship.sink.records) == sorted(imported(ship.path("a.jsonl")))
    assert ship.follower.keeping.trouble is None


def test_a_state_whose_disk_is_full_says_so_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    kept = State(tmp_path)
    number = kept.begin(tmp_path / "x", 1, 2).id
    (pages,) = kept._db.execute("PRAGMA page_count").fetchone()
    kept._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StateAway, match="make room or mend its disk"):
        kept.confirm(number, range(10_000))
    kept._db.execute("PRAGMA max_page_count = 1000000")
    kept.confirm(number, range(10_000))
    assert list(kept.sent(number)) == list(range(10_000))
    kept.close()


def test_a_second_process_on_a_state_folder_is_refused_with_a_sentence(tmp_path: Path) -> None:
    first = State(tmp_path)
    first.listen("http://127.0.0.1:1")
    with pytest.raises(StateHeld, match=rf"process {os.getpid()} ships with .* already: end that one"):
        State(tmp_path)
    first.close()
    State(tmp_path).close()


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / state.NAME)
    other.execute("CREATE TABLE theirs (n INTEGER)")
    other.commit()
    other.close()
    with pytest.raises(TurnledgerError, match="is a database of something else"):
        State(tmp_path)


def test_a_damaged_state_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / state.NAME).write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with pytest.raises(TurnledgerError, match="move it away and start again"):
        State(tmp_path)


async def test_a_state_that_was_lost_sends_everything_again_and_the_ledger_is_the_same(ship: Ship) -> None:
    ship.path("a.jsonl").write_bytes(WHOLE)
    await ship.look()
    ship.state.close()
    for path in ship.home.iterdir():
        path.unlink()
    ship._start()
    await ship.look()
    found = fold(ship.sink.records)
    assert found["records"]["duplicates"] == found["records"]["accepted"]
    assert found["digest"] == fold(imported(ship.path("a.jsonl")))["digest"]


async def test_a_wall_clock_that_goes_back_changes_nothing(
    ship: Ship, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1e9)
    ship.path("a.jsonl").write_bytes(b"".join(LINES[:3]))
    os.utime(ship.path("a.jsonl"), (2e9, 2e9))
    await ship.look()
    monkeypatch.setattr("time.time", lambda: 1.0)
    with ship.path("a.jsonl").open("ab") as file:
        file.write(b"".join(LINES[3:]))
    os.utime(ship.path("a.jsonl"), (1, 1))
    ship.restart()
    await ship.settle()
    assert sorted(ship.sink.records) == sorted(imported(ship.path("a.jsonl")))


async def test_files_of_a_folder_that_goes_and_comes_back_are_followed_on(ship: Ship) -> None:
    ship.path("deep/a.jsonl").write_bytes(b"".join(LINES[:3]))
    await ship.look()
    ship.path("deep/a.jsonl").unlink()
    (ship.root / "deep").rmdir()
    ship.root.rmdir()
    await ship.look()
    assert ship.follower.roll.found.missing == [ship.root]
    assert ship.follower.roll.files == {}
    ship.root.mkdir()
    ship.path("deep/a.jsonl").write_bytes(WHOLE)
    await ship.look()
    assert sorted(ship.sink.records) == sorted(imported(ship.path("deep/a.jsonl")))


async def test_files_below_a_folder_that_cannot_be_listed_are_not_gone(
    ship: Ship, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship.path("deep/a.jsonl").write_bytes(WHOLE)
    await ship.look()
    scan = os.scandir

    def refused(folder: Path) -> Any:
        if Path(folder).name == "deep":
            raise PermissionError(13, "Permission denied", str(folder))
        return scan(folder)

    monkeypatch.setattr(discovery.os, "scandir", refused)
    await ship.look()
    assert len(ship.follower.roll.files) == 1
    assert ship.follower.reasons() == [f"{ship.root / 'deep'} cannot be looked at (Permission denied)"]


async def test_thousands_of_files_are_told_once_and_then_cost_a_look(ship: Ship) -> None:
    for number in range(500):
        ship.path(f"{number % 20}/{number}.jsonl").write_bytes(LINES[0])
    await ship.look()
    assert ship.follower.readings == 500
    ship.restart()
    await ship.look()
    assert ship.follower.readings == 0
    assert standing.of_follower(ship.follower, "")["files"]["told"] == 500


async def test_a_large_file_does_not_stand_before_small_ones_nor_is_read_all_the_time(
    ship: Ship, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agenda, "LARGE", 10_000)
    ship.path("large.jsonl").write_bytes(WHOLE * 3)
    ship.path("small.jsonl").write_bytes(LINES[0])
    await ship.follower.look()
    ship.clock.now += 1
    taken, _ = ship.follower.agenda.take(large=False)
    assert taken is not None and taken.checkpoint.path.name == "small.jsonl"
    assert ship.follower.agenda.take(large=False)[0] is None
    large, _ = ship.follower.agenda.take(large=True)
    assert large is not None
    ship.follower._told(large, large.checkpoint, large.look, took=100.0)
    large.reading = False
    ship.follower.roll.seen(large, replace(large.look, stamp="written again"))
    assert large.due == ship.clock.now + 4 * 100.0


async def test_ships_own_state_is_not_followed(tmp_path: Path) -> None:
    ship = Ship(tmp_path)
    ship.follower.folders = (tmp_path,)
    ship.path("a.jsonl").write_bytes(WHOLE)
    await ship.look()
    assert [each.checkpoint.path.name for each in ship.follower.roll.files.values()] == ["a.jsonl"]


async def test_what_is_gone_for_long_is_forgotten_and_what_is_quiet_is_followed_on(
    ship: Ship, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone.jsonl", "quiet.jsonl"):
        ship.path(name).write_bytes(WHOLE)
    await ship.look()
    ship.path("gone.jsonl").unlink()
    await ship.look()
    later = 2 * ship.follower.settings.ship_forget_seconds
    now = reading.time.time()
    monkeypatch.setattr("time.time", lambda: now + later)
    await ship.follower.roll.forget()
    (left,) = ship.state.checkpoints()
    assert left.path.name == "quiet.jsonl"
    assert list(ship.state.sent(left.id)) == []
    await ship.look()
    assert ship.follower.readings == 2


async def test_run_follows_what_the_system_tells_and_ends_when_told_to(tmp_path: Path) -> None:
    ship = Ship(tmp_path, clock=time.monotonic, ship_scan_seconds=3600.0)
    running = asyncio.create_task(ship.follower.run())
    await asyncio.sleep(0.5)
    ship.path("new/folder/a.jsonl").write_bytes(WHOLE)
    once = imported(ship.path("new/folder/a.jsonl"))
    await until(lambda: len(ship.sink.rows) >= len(once))
    with ship.path("new/folder/a.jsonl").open("ab") as file:
        file.write(claude.ndjson([claude.prompt("u7", None, 500, "more")]))
    await until(lambda: len(ship.sink.rows) > len(once))
    ship.follower.stop.set()
    await running
    assert sorted(set(ship.sink.records)) == sorted(imported(ship.path("new/folder/a.jsonl")))


async def test_where_the_system_does_not_tell_looking_has_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: Any) -> Any:
        raise OSError(28, "OS file watch limit reached")
        yield

    monkeypatch.setattr(discovery, "changes", refused)
    ship = Ship(tmp_path, clock=time.monotonic, ship_poll_seconds=0.2)
    running = asyncio.create_task(ship.follower.run())
    await asyncio.sleep(0.3)
    ship.path("a.jsonl").write_bytes(WHOLE)
    await until(lambda: bool(ship.sink.rows))
    assert ship.follower.hints.told is False
    ship.follower.stop.set()
    await running


def test_a_file_is_no_folder_to_follow(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(WHOLE)
    with pytest.raises(TurnledgerError, match="is a file: ship follows folders"):
        service.folders_of([tmp_path / "a.jsonl"])


async def test_the_standing_without_a_process_says_what_is_behind_and_gone(ship: Ship) -> None:
    for name in ("told.jsonl", "grown.jsonl", "gone.jsonl"):
        ship.path(name).write_bytes(WHOLE)
    await ship.look()
    ship.state.close()
    ship.path("gone.jsonl").unlink()
    with ship.path("grown.jsonl").open("ab") as file:
        file.write(LINES[0])
    stands = state.look(ship.home)
    shown = standing.of_state(stands)
    assert (stands.pid, shown["running"]) == (None, False)
    assert shown["files"] == {"told": 1, "behind": 1, "held": 0, "unreadable": 0, "nobody's": 0, "gone": 1}
    assert shown["lag"]["bytes"] == len(LINES[0])


def test_metrics_name_the_files_that_wait(tmp_path: Path) -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    from turnledger.ship.probes import Standing

    ship = Ship(tmp_path)
    ship.path("a.jsonl").write_bytes(WHOLE)
    asyncio.run(ship.follower.look())
    ship.clock.now += 7
    registry = CollectorRegistry()
    registry.register(Standing(ship.follower))
    page = generate_latest(registry).decode()
    path = ship.path("a.jsonl")
    assert f"turnledger_ship_lag_bytes {float(len(WHOLE))}" in page
    assert f'turnledger_ship_file_lag_seconds{{file="{path}"}} 7.0' in page
    assert f'turnledger_ship_file_lag_bytes{{file="{path}"}} {float(len(WHOLE))}' in page
    assert 'turnledger_ship_files{state="behind"} 1.0' in page


def test_settling_is_shorter_than_what_is_forgotten() -> None:
    from turnledger.ship.settings import ShipSettings

    assert ShipSettings().ship_settle_seconds == SETTLE < ShipSettings().ship_forget_seconds


async def test_a_collector_gets_what_kafka_gets_and_what_it_refuses_for_good_is_counted_and_not_sent_again(
    ship: Ship,
) -> None:
    def refuse_the_first(request: Request) -> web.StreamResponse:
        collector.taken += request.events[1:]
        return results(["refused", *["accepted"] * (len(request.events) - 1)], "tenant")

    ship.path("a.jsonl").write_bytes(b"".join(LINES[:3]))
    with serving(SmallCollector()) as collector:
        ship.follower.way._make = lambda: outlet(parse(collector.url))
        collector.answers = [refuse_the_first]
        await ship.look()
        with ship.path("a.jsonl").open("ab") as file:
            file.write(b"".join(LINES[3:]))
        await ship.look()
        await ship.follower.way.close()
        once = imported(ship.path("a.jsonl"))
        assert len(collector.taken) == len(once) - 1
        assert all(orjson.dumps(event) in once for event in collector.taken)
        assert standing.of_follower(ship.follower, "")["refused"] == 1
