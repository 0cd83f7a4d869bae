"""The rules for files that grow and break (design 7): each has its test."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from tests.fixtures.harness import claude, codex, goldens
from tests.fixtures.harness.shipping import SETTLE, Ship, fold, imported
from turnledger.ship import growing

NAME = "claude_code/s.jsonl"
LINES = claude.ndjson(claude.conversation()).splitlines(keepends=True)


@pytest.fixture
def ship(tmp_path: Path) -> Ship:
    return Ship(tmp_path)


def findings(ship: Ship, name: str = NAME) -> dict[str, int]:
    return {each["check"]: each["count"] for each in ship.row(name)["findings"]}


async def test_a_cut_last_line_waits_for_its_end(ship: Ship) -> None:
    ship.path(NAME).write_bytes(b"".join(LINES[:3]) + LINES[3][:-1])
    await ship.look()
    assert sorted(ship.sink.records) == sorted(imported(ship.path(NAME), b"".join(LINES[:3])))
    assert (ship.row(NAME)["state"], ship.row(NAME)["lag_bytes"]) == ("held", len(LINES[3]) - 1)
    with ship.path(NAME).open("ab") as file:
        file.write(b"\n")
    await ship.look()
    assert sorted(ship.sink.records) == sorted(imported(ship.path(NAME), b"".join(LINES[:4])))
    assert ship.row(NAME)["state"] == "told"


async def test_a_whole_last_line_without_its_end_counts_when_the_file_has_settled(ship: Ship) -> None:
    ship.path(NAME).write_bytes(b"".join(LINES)[:-1])
    await ship.look()
    assert len(ship.sink.rows) < len(imported(ship.path(NAME)))
    await ship.look(SETTLE)
    assert sorted(ship.sink.records) == sorted(imported(ship.path(NAME)))
    assert findings(ship)["unterminated_last_line"] == 1


async def test_half_a_last_line_is_counted_when_the_file_has_settled_and_told_when_it_is_whole(
    ship: Ship,
) -> None:
    ship.path(NAME).write_bytes(b"".join(LINES)[:-20])
    await ship.settle()
    assert (ship.row(NAME)["quarantined"], ship.row(NAME)["lag_bytes"]) == (1, 0)
    ship.path(NAME).write_bytes(b"".join(LINES))
    await ship.look()
    assert sorted(ship.sink.records) == sorted(imported(ship.path(NAME)))
    assert ship.row(NAME)["quarantined"] == 0


async def test_lines_end_at_0x0a_alone(ship: Ship) -> None:
    line = claude.prompt("u9", None, 1, "a\u2028b\u2029c\u0085d\x0be\x0cf")
    ship.path(NAME).write_bytes(
        b"\xef\xbb\xbf" + json.dumps(line, ensure_ascii=False).encode() + b"\r\n" + b"".join(LINES)
    )
    await ship.look()
    assert ship.row(NAME)["quarantined"] == 0
    assert any(b"a\\u2028" in each or "a\u2028b".encode() in each for each in ship.sink.records)


async def test_bytes_that_are_no_utf8_are_replaced_and_the_file_goes_on(ship: Ship) -> None:
    ship.path(NAME).write_bytes(
        LINES[0].replace(b"first", b"fi\xffst") if b"first" in LINES[0] else b'{"x":"\xff"}\n' + LINES[0]
    )
    await ship.look()
    with ship.path(NAME).open("ab") as file:
        file.write(b"".join(LINES[1:]))
    await ship.look()
    assert findings(ship)["invalid_utf8"] == 1
    assert sorted(ship.sink.records) == sorted(imported(ship.path(NAME)))


async def test_two_objects_on_one_line_are_two(ship: Ship) -> None:
    ship.path(NAME).write_bytes(LINES[0] + LINES[1][:-1] + LINES[2] + b"".join(LINES[3:]))
    await ship.look()
    assert sorted(ship.sink.records) == sorted(imported(ship.path(NAME), b"".join(LINES)))
    assert findings(ship)["glued_objects"] == 1


async def test_a_broken_line_is_quarantined_with_its_place_and_the_next_is_told(ship: Ship) -> None:
    ship.path(NAME).write_bytes(LINES[0] + b"{torn\n" + b"".join(LINES[1:]))
    await ship.look()
    assert sorted(ship.sink.records) == sorted(imported(ship.path(NAME), b"".join(LINES)))
    (broken,) = [each for each in ship.row(NAME)["findings"] if each["check"] == "unreadable_line"]
    assert (broken["rows"][0]["offset"], broken["rows"][0]["bytes"]) == (len(LINES[0]), 5)


def test_a_line_longer_than_any_that_is_read_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing, "LINE_LIMIT", 1000)
    monkeypatch.setattr(growing, "BLOCK", 256)
    path = tmp_path / "long"
    path.write_bytes(b"{}\n" + b"x" * 900)
    with growing.opened(path, settled=False) as short:
        assert short.lines == 3
    path.write_bytes(b"{}\n" + b"x" * 2000)
    with growing.opened(path, settled=False) as long:
        assert long.lines == 2003


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
async def test_a_compressed_file_is_read_by_its_magic_when_it_is_whole(ship: Ship, pack: object) -> None:
    packed = pack(b"".join(LINES))  # type: ignore[operator]
    ship.path(NAME).write_bytes(packed[:-30])
    await ship.look()
    ship.path(NAME).write_bytes(packed)
    await ship.look()
    assert ship.sink.rows == []
    await ship.settle()
    assert sorted(ship.sink.records) == sorted(imported(ship.path(NAME), b"".join(LINES)))


async def test_a_file_that_was_packed_is_the_same_session(ship: Ship) -> None:
    rollout = codex.ndjson(codex.rollout())
    ship.path("r.jsonl").write_bytes(rollout)
    await ship.look()
    ship.path("r.jsonl.zst").write_bytes(zstandard.compress(rollout))
    ship.path("r.jsonl").unlink()
    await ship.settle()
    found = fold(ship.sink.records)
    assert found["digest"] == fold(imported(ship.path("r.jsonl.zst")))["digest"]
    assert found["records"]["conflicts"] == 0


async def test_a_truncated_file_is_a_new_generation_and_what_was_seen_stays(ship: Ship) -> None:
    ship.path(NAME).write_bytes(b"".join(LINES))
    await ship.look()
    ship.path(NAME).write_bytes(b"".join(LINES[:4]))
    await ship.look()
    assert ship.row(NAME)["generation"] == 1
    with ship.path(NAME).open("ab") as file:
        file.write(b"".join(LINES[4:]))
    await ship.look()
    assert ship.row(NAME)["generation"] == 1
    assert sorted(ship.sink.records) == sorted(imported(ship.path(NAME), b"".join(LINES)))


async def test_another_beginning_of_the_same_length_is_a_new_generation(ship: Ship) -> None:
    other = claude.ndjson([{**each, "sessionId": "0" * 36} for each in claude.conversation()])
    first = claude.ndjson([{**each, "sessionId": "1" * 36} for each in claude.conversation()])
    assert len(first) == len(other)
    ship.path(NAME).write_bytes(first)
    await ship.look()
    ship.path(NAME).write_bytes(other)
    await ship.look()
    assert ship.row(NAME)["generation"] == 1
    assert {row["session_id"] for row in fold(ship.sink.records)["sessions"]} == {"0" * 36, "1" * 36}


async def test_a_file_replaced_by_rename_is_a_new_generation_where_it_says_something_else(ship: Ship) -> None:
    for name, generation in (("rewrite-1", 0), ("rewrite-2", 1), ("rewrite-3", 2)):
        beside = ship.root / "writing.tmp"
        beside.write_bytes(goldens.content(f"gemini_cli/{name}.json"))
        beside.rename(ship.path("chat.json"))
        await ship.look()
        assert ship.row("chat.json")["generation"] == generation
    found = fold(ship.sink.records)
    parts = [imported(Path("x"), goldens.content(f"gemini_cli/rewrite-{n}.json")) for n in (1, 2, 3)]
    assert found["digest"] == fold([record for part in parts for record in part])["digest"]
    assert found["records"]["duplicates"] == 0


async def test_a_file_written_back_with_its_old_size_and_time_is_read(ship: Ship) -> None:
    ship.path(NAME).write_bytes(b"".join(LINES))
    old = ship.path(NAME).stat()
    await ship.look()
    ship.path(NAME).write_bytes(b"".join(LINES).replace(b"msg_1", b"msg_7"))
    os.utime(ship.path(NAME), ns=(old.st_atime_ns, old.st_mtime_ns))
    await ship.look()
    assert any(b"msg_7" in record for record in ship.sink.records)


async def test_a_file_that_only_got_another_time_sends_nothing_again(ship: Ship) -> None:
    ship.path(NAME).write_bytes(b"".join(LINES))
    await ship.look()
    sent = len(ship.sink.rows)
    for when in (0, 2**31):
        os.utime(ship.path(NAME), (when, when))
        await ship.look()
    assert (len(ship.sink.rows), ship.row(NAME)["generation"]) == (sent, 0)


@pytest.mark.parametrize("stopped", [False, True], ids=["while it runs", "while it is stopped"])
async def test_a_rotated_file_is_known_under_its_new_name_and_its_old_name_is_another(
    ship: Ship, stopped: bool
) -> None:
    ship.path("log.jsonl").write_bytes(b"".join(LINES))
    await ship.look()
    sent = len(ship.sink.rows)
    (ship.root / "old").mkdir()
    ship.path("log.jsonl").rename(ship.root / "old" / "log.1.jsonl")
    ship.path("log.jsonl").write_bytes(codex.ndjson(codex.rollout()))
    if stopped:
        ship.restart()
    await ship.look()
    assert len(ship.sink.rows) == sent + len(imported(ship.path("log.jsonl")))
    assert [ship.row(name)["generation"] for name in ("log.jsonl", "old/log.1.jsonl")] == [0, 0]
    assert ship.row("old/log.1.jsonl")["events"] == sent


async def test_what_was_written_right_before_a_rotation_is_told_whatever_the_file_is_called_now(
    ship: Ship,
) -> None:
    ship.path(NAME).write_bytes(b"".join(LINES[:3]))
    await ship.look()
    with ship.path(NAME).open("ab") as file:
        file.write(b"".join(LINES[3:]))
    ship.path(NAME).rename(ship.path(f"{NAME}.1"))
    ship.path(NAME).write_bytes(codex.ndjson(codex.rollout()))
    await ship.look()
    once = [*imported(ship.path(f"{NAME}.1")), *imported(ship.path(NAME))]
    assert sorted(ship.sink.records) == sorted(once)
    ship.path("another.jsonl.1").write_bytes(LINES[0])
    await ship.look()
    assert len(ship.follower.roll.files) == 2


async def test_another_file_that_was_given_the_inode_of_one_that_is_gone_is_not_taken_for_it(
    ship: Ship,
) -> None:
    ship.path(NAME).write_bytes(b"".join(LINES))
    await ship.look()
    followed = next(iter(ship.follower.roll.files.values()))
    for name in ("notes.txt", "new.jsonl"):
        ship.path(NAME).unlink(missing_ok=True)
        ship.path(name).write_bytes(b'{"hello":"world"}\n' * 400)
        followed.checkpoint.inode = ship.path(name).stat().st_ino
        await ship.look()
    (other,) = ship.follower.roll.files.values()
    assert (other.checkpoint.path, other.checkpoint.generation) == (ship.path("new.jsonl"), 0)
    assert ship.follower.roll.gone == 1


async def test_a_file_that_is_gone_and_comes_back_sends_nothing_again(ship: Ship) -> None:
    ship.path(NAME).write_bytes(b"".join(LINES))
    await ship.look()
    sent = len(ship.sink.rows)
    ship.path(NAME).unlink()
    await ship.look()
    ship.restart()
    ship.path(NAME).write_bytes(b"".join(LINES))
    await ship.look()
    assert len(ship.sink.rows) == sent


async def test_paths_are_no_part_of_an_identity(ship: Ship) -> None:
    for name in ("a/one.jsonl", "b/two.jsonl"):
        ship.path(name).write_bytes(b"".join(LINES))
    await ship.look()
    found = fold(ship.sink.records)
    assert found["records"]["duplicates"] == found["records"]["accepted"]


async def test_a_file_that_cannot_be_read_is_named_and_the_others_go_on(ship: Ship) -> None:
    ship.path("bad.jsonl").write_bytes(b"".join(LINES))
    ship.path("good.jsonl").write_bytes(codex.ndjson(codex.rollout()))
    await ship.follower.look()
    refused = os.open

    def no(path: object, *rest: int) -> int:
        if Path(str(path)).name == "bad.jsonl":
            raise PermissionError(13, "Permission denied")
        return refused(path, *rest)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(growing.os, "open", no)
        await ship.look()
    assert "bad.jsonl cannot be read (Permission denied)" in ship.row("bad.jsonl")["trouble"]
    assert ship.row("bad.jsonl")["state"] == "unreadable"
    assert ship.row("good.jsonl")["state"] == "told"
    await ship.look(10)
    assert ship.row("bad.jsonl")["trouble"] is None
    assert ship.row("bad.jsonl")["state"] == "told"


async def test_a_pipe_with_the_name_of_a_session_is_not_waited_for(ship: Ship) -> None:
    os.mkfifo(ship.root / "pipe.jsonl")
    await ship.look()
    assert ship.follower.roll.files == {}


async def test_a_file_of_nobody_becomes_somebodys_when_its_first_line_is_whole(ship: Ship) -> None:
    ship.path(NAME).write_bytes(LINES[0][:20])
    await ship.look()
    assert ship.row(NAME)["harness"] is None
    ship.path(NAME).write_bytes(b"".join(LINES))
    await ship.look()
    assert ship.row(NAME)["harness"] == "claude-code"


# -- databases


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, and its bytes; what a reader of a -wal shares with its writers is no content."""
    return {
        path.name: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith("-shm")
    }


DATABASE = "capsem/vm-7/session.sql"


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
async def test_a_database_in_use_is_read_without_a_trace_and_its_writer_never_waits(
    ship: Ship, mode: str
) -> None:
    path = ship.path(DATABASE)
    path.write_bytes(goldens.content(DATABASE))
    writer = sqlite3.connect(path, isolation_level=None, timeout=0)
    writer.execute(f"PRAGMA journal_mode = {mode}")
    writer.execute("CREATE TABLE more (n INTEGER)")
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO more VALUES (1)")
    before = tree(path.parent)
    await ship.look()
    assert tree(path.parent) == before
    writer.execute("COMMIT")
    await ship.settle()
    writer.execute("INSERT INTO more VALUES (2)")
    writer.close()
    assert fold(ship.sink.records)["digest"] == fold(imported(path))["digest"]


async def test_a_database_is_let_go_of_before_its_events_are_sent(ship: Ship) -> None:
    path = ship.path(DATABASE)
    path.write_bytes(goldens.content(DATABASE))
    writer = sqlite3.connect(path, isolation_level=None, timeout=0)
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE more (n INTEGER)")
    waiting = ship.sink.send
    blocked: list[int] = []

    async def send(rows: object, offset: object) -> None:
        # A reader that still had its snapshot would leave frames behind that no checkpoint can move.
        writer.execute("INSERT INTO more VALUES (1)")
        busy, frames, moved = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        blocked.extend((busy, frames, moved))
        await waiting(rows, offset)  # type: ignore[arg-type]

    ship.sink.send = send  # type: ignore[method-assign,assignment]
    await ship.look()
    assert ship.sink.rows
    assert set(blocked) == {0}
    writer.close()


async def test_a_closed_database_that_is_written_while_it_is_read_is_read_again(
    ship: Ship, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ship.path(DATABASE)
    path.write_bytes(goldens.content(DATABASE))
    await ship.follower.look()
    ship.clock.now += 1
    look, asked = growing.look, 0

    def written_in_between(path: Path) -> growing.Look | None:
        nonlocal asked
        asked += 1
        seen = look(path)
        return seen if asked != 2 or seen is None else replace(seen, stamp="another")

    monkeypatch.setattr(growing, "look", written_in_between)
    await ship.follower.work()
    assert (asked, ship.sink.rows) == (2, [])
    await ship.settle()
    assert sorted(ship.sink.records) == sorted(imported(path))
