"""`turnledger import` as a person runs it: what it prints, and what it sends to a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fixtures.harness import claude, codex
from tests.fixtures.harness.consumed import consumed
from tests.stack.commands import run
from tests.stack.topics import Topic


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Claude Code session with a broken line, a Codex rollout, and a file of somebody else."""
    files = tmp_path / "sessions"
    (files / "deep").mkdir(parents=True)
    (files / "one.jsonl").write_bytes(claude.ndjson(claude.conversation()) + b"{torn\n")
    (files / "deep" / "rollout.jsonl").write_bytes(codex.ndjson(codex.rollout()))
    (files / "other.jsonl").write_bytes(b'{"hello":"world"}\n')
    (files / "notes.txt").write_text("not looked into")
    return files


def test_a_dry_run_prints_the_object_of_the_surface_with_files(folder: Path) -> None:
    done = run("import", str(folder), "--dry-run", "--json", environment={})
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    shown = json.loads(done.stdout)
    assert [
        (Path(f["path"]).name, f["harness"], f["sessions"], f["quarantined"]) for f in shown["files"]
    ] == [
        ("one.jsonl", "claude-code", [claude.SESSION], 1),
        ("other.jsonl", None, [], 0),
        ("rollout.jsonl", "codex", [codex.THREAD], 0),
    ]
    assert shown["records"]["dead"] == 0
    assert sum(f["events"] for f in shown["files"]) == shown["records"]["read"]
    assert [(row["session_id"], row["output_tokens"]) for row in shown["sessions"]] == [
        (codex.THREAD, 37),
        (claude.SESSION, 100),
    ]
    assert all(row["cost_micro_usd"] > 0 for row in shown["sessions"])


def test_a_dry_run_for_people_says_what_each_session_cost_and_what_was_not_read(folder: Path) -> None:
    done = run("import", str(folder), "--dry-run", environment={})
    assert done.returncode == 0, done.stderr
    (ours,) = [line.split() for line in done.stdout.splitlines() if line.startswith(claude.SESSION)]
    # agent, turns, calls, failed, tools, then tokens: uncached, read, written for 5 m, for 1 h, for nobody knows how long, output
    assert ours[1:12] == ["claude-code", "2", "4", "0", "2", "40", "750", "7", "0", "0", "100"]
    assert "unreadable_line" in done.stdout
    assert "unknown_harness" in done.stdout
    assert "nothing was published" in done.stdout


def test_a_file_that_tells_nothing_says_why(folder: Path) -> None:
    done = run("import", str(folder / "one.jsonl"), "--harness", "codex", "--dry-run", environment={})
    assert done.returncode == 0, done.stderr
    assert "thread_unknown" in done.stdout
    assert "0 events; nothing was published" in done.stdout


def test_an_import_publishes_what_the_dry_run_showed_and_twice_is_the_same(
    folder: Path, topic: Topic
) -> None:
    dry = json.loads(run("import", str(folder), "--dry-run", "--json", environment={}).stdout)
    for _ in range(2):
        done = run("import", str(folder), environment=topic.environment())
        assert done.returncode == 0, done.stderr
    found = consumed(topic)
    assert len(found) == 2 * dry["records"]["read"]
    published = b"".join(record.value + b"\n" for record in found)
    again = json.loads(run("fold", "-", "--json", environment={}, stdin=published).stdout)
    assert again["digest"] == dry["digest"]
    assert again["records"]["duplicates"] == dry["records"]["read"]
    assert {record.key for record in found} == {
        f"default/{claude.SESSION}".encode(),
        f"default/{codex.THREAD}".encode(),
    }


def test_a_tenant_is_in_every_event_and_key(folder: Path, topic: Topic) -> None:
    done = run("import", str(folder / "one.jsonl"), "--tenant", "acme", environment=topic.environment())
    assert done.returncode == 0, done.stderr
    assert {(record.key, json.loads(record.value)["tenant"]) for record in consumed(topic)} == {
        (f"acme/{claude.SESSION}".encode(), "acme")
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["/nowhere/at/all", "--dry-run"], "does not exist"),
        (["{folder}", "--dry-run", "--harness", "abacus"], "can be claude-code, codex, gemini-cli"),
        (["{folder}", "--json"], "use it with --dry-run"),
        (["{folder}/deep/empty", "--dry-run"], "no session files below"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(folder: Path, arguments: list[str], sentence: str) -> None:
    (folder / "deep" / "empty").mkdir()
    done = run("import", *(each.format(folder=folder) for each in arguments), environment={})
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_broker_that_is_away_is_one_sentence(folder: Path) -> None:
    environment = {"TURNLEDGER_KAFKA_BOOTSTRAP": "127.0.0.1:9"}
    done = run("import", str(folder), environment=environment)
    assert done.returncode == 2
    assert "does not answer" in done.stderr
    assert "Traceback" not in done.stderr
