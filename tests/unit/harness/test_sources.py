"""How files are opened: databases without disturbing them, documents whole, whose they are by content, and what a folder's other files are."""

from __future__ import annotations

import gzip
import os
import sqlite3
from pathlib import Path

import orjson
import pytest
import zstandard
from typer.testing import CliRunner

from tests.fixtures.harness import goldens
from turnledger.cli import build
from turnledger.errors import TurnledgerError
from turnledger.harness import detection
from turnledger.harness.importer import files_in, passed_over, read_file
from turnledger.harness.sources import Source


def database(folder: Path, *, wal: bool) -> tuple[Path, sqlite3.Connection]:
    """A session ledger that its harness has open."""
    path = folder / "vm-7" / "session.db"
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    if wal:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript((goldens.FOLDER / "capsem/vm-7/session.sql").read_text())
    connection.commit()
    return path, connection


def test_a_closed_database_is_read_without_a_trace(tmp_path: Path) -> None:
    path, connection = database(tmp_path, wal=False)
    connection.close()
    before = (path.stat().st_mtime_ns, path.read_bytes())
    os.chmod(path.parent, 0o555)
    try:
        reading = read_file(path)
    finally:
        os.chmod(path.parent, 0o755)
    assert (reading.harness, reading.sessions) == ("capsem", ["vm-7"])
    assert (path.stat().st_mtime_ns, path.read_bytes()) == before
    assert [each.name for each in path.parent.iterdir()] == ["session.db"]


def test_a_database_in_use_is_read_with_what_its_log_holds_and_its_writer_goes_on(tmp_path: Path) -> None:
    path, writer = database(tmp_path, wal=True)
    writer.execute(
        "INSERT INTO fs_events (event_id, timestamp, action, path) VALUES ('aaaaaaaaaaff', '2026-03-04T10:09:00Z', 'created', 'late')"
    )
    writer.commit()
    assert Path(f"{path}-wal").stat().st_size > 0
    told = [event["payload"]["path"] for event in read_file(path).events if event["type"] == "fs.changed"]
    assert told == ["a.txt", "late"]
    writer.execute(
        "INSERT INTO fs_events (event_id, timestamp, action, path) VALUES ('aaaaaaaaaafe', '2026-03-04T10:09:01Z', 'created', 'later')"
    )
    writer.commit()
    writer.close()
    told = [event["payload"]["path"] for event in read_file(path).events if event["type"] == "fs.changed"]
    assert told == ["a.txt", "late", "later"]


def test_a_process_that_ends_is_a_second_event_of_its_row(tmp_path: Path) -> None:
    path, writer = database(tmp_path, wal=False)
    before = read_file(path).events
    with writer:
        writer.execute("UPDATE exec_events SET exit_code = 3, duration_ms = 9 WHERE exec_id = 2")
    after = read_file(path).events
    assert [event for event in before if event not in after] == []
    (new,) = [event for event in after if event not in before]
    assert (new["type"], new["payload"]["exit_code"]) == ("process.exited", 3)


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_packed_documents_and_logs_are_what_they_hold(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    for name in ("gemini_cli/rewrite-3.json", "deepseek_harness/session.v3.jsonl", "aider/history.md"):
        plain = goldens.read(name)
        assert goldens.read(name, pack(goldens.content(name))).events == plain.events


def test_a_log_of_many_zstd_frames_is_one_log() -> None:
    name = "deepseek_harness/session.v3.jsonl"
    frames = b"".join(
        zstandard.ZstdCompressor().compress(line) for line in goldens.content(name).splitlines(keepends=True)
    )
    assert goldens.read(name, frames).events == goldens.read(name).events


def test_content_decides_and_not_the_name(tmp_path: Path) -> None:
    wrong = tmp_path / "events.jsonl"
    wrong.write_bytes(goldens.content("gemini_cli/rewrite-3.json"))
    assert read_file(wrong).harness == "gemini-cli"
    wrong.write_bytes(goldens.content("aider/history.md"))
    assert read_file(wrong).harness == "aider"


def test_a_document_on_one_line_is_a_document() -> None:
    name = "gemini_cli/rewrite-3.json"
    flat = orjson.dumps(orjson.loads(goldens.content(name)))
    assert goldens.read(name, flat).events == goldens.read(name).events


@pytest.mark.parametrize(
    "name",
    [
        "gemini_cli/rewrite-3.json",
        "opencode/export.json",
        "swe_agent/run.traj",
        "cline/1772000000000/ui_messages.json",
    ],
)
def test_a_document_that_was_cut_is_its_harnesss_and_is_counted(name: str) -> None:
    reading = goldens.read(name, goldens.content(name)[:-40])
    assert (reading.harness, reading.quarantined, reading.events) == (goldens.HARNESS_OF[name], 1, [])
    assert (
        reading.findings[0]["check"] == "unreadable_line"
        and reading.findings[0]["rows"][0]["reason"] == "json"
    )


def test_a_database_that_is_damaged_is_nobodys_or_counted() -> None:
    name = "capsem/vm-7/session.sql"
    content = goldens.content(name)
    half = goldens.read(name, content[: len(content) // 2])
    assert half.harness is None or half.quarantined > 0
    assert half.findings


def test_harness_overrides_and_an_unknown_one_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(
        b'{"type":"message","id":"a","timestamp":"2026-03-04T10:00:00Z","message":{"role":"odd"}}\n'
    )
    assert read_file(path).harness is None
    assert read_file(path, harness="pi", session="s").harness == "pi"
    with pytest.raises(TurnledgerError, match="--harness nobody is not known: it can be claude-code, codex,"):
        read_file(path, harness="nobody")
    (tmp_path / "one.db").write_bytes(goldens.content("capsem/vm-7/session.sql"))
    with pytest.raises(TurnledgerError, match="is no file of Codex CLI"):
        read_file(tmp_path / "one.db", harness="codex")


@pytest.mark.parametrize(
    ("name", "session"),
    [
        ("openhands/conv-4/events.jsonl", "conv-4"),
        ("openhands/conv-4/events/event-00004-e5.json", "conv-4"),
        ("openhands/trajectory-9.json", "trajectory-9"),
        ("cline/1772000000000/ui_messages.json", "1772000000000"),
        ("sidecar/run-17.jsonl", "run-17"),
        ("capsem/vm-7/session.sql", "vm-7"),
    ],
)
def test_a_file_that_does_not_name_its_session_takes_its_folders_or_files_name_or_the_callers(
    name: str, session: str
) -> None:
    named, called = goldens.read(name), goldens.read(name, session="called")
    assert (named.sessions, called.sessions) == ([session], ["called"])
    assert "session_from_name" in {finding["check"] for finding in named.findings}
    assert "session_from_name" not in {finding["check"] for finding in called.findings}


def test_files_of_a_folder_that_are_nobodys_are_passed_over_and_named_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "x"}')
    (tmp_path / "notes.jsonl").write_text('{"note": 1}\n')
    (tmp_path / "chat.json").write_bytes(goldens.content("gemini_cli/rewrite-1.json"))
    kept = [
        reading.path.name
        for path in files_in([tmp_path])
        if not passed_over(reading := read_file(path), [tmp_path])
    ]
    assert kept == ["chat.json", "notes.jsonl"]
    assert not passed_over(read_file(tmp_path / "package.json"), [tmp_path / "package.json"])


@pytest.mark.parametrize("name", [each for each in goldens.FILES if not each.endswith(".sql")])
def test_no_harness_takes_anothers_file(name: str) -> None:
    for each in detection.FORMATS:
        if each.name != goldens.HARNESS_OF[name]:
            assert detection.detect(Source(Path(name), None, goldens.content(name)), [each]) is None


def test_import_dry_run_shows_all_of_them_as_one_object(tmp_path: Path) -> None:
    for name in ("gemini_cli/rewrite-3.json", "pi/session.jsonl"):
        (tmp_path / Path(name).name).write_bytes(goldens.content(name))
    done = CliRunner().invoke(build(), ["import", "--dry-run", "--json", str(tmp_path)])
    assert done.exit_code == 0, done.output
    shown = orjson.loads(done.stdout)
    assert [(Path(row["path"]).name, row["harness"]) for row in shown["files"]] == [
        ("rewrite-3.json", "gemini-cli"),
        ("session.jsonl", "pi"),
    ]
    assert sum(row["output_tokens"] for row in shown["sessions"]) == 75 + 150
