"""`turnledger import --dry-run --json` writes its object session by session: byte for byte what all sessions folded at once are."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from tests.fixtures.harness import goldens
from turnledger.cli import build
from turnledger.contract.canonical import dumps
from turnledger.fold.document import document
from turnledger.harness.importer import files_in, read_file
from turnledger.pricing import packaged, price_call

NAMES = (
    "pi/branch.jsonl",
    "pi/session.jsonl",
    "gemini_cli/rewrite-1.json",
    "gemini_cli/rewrite-3.json",
    "codex/rollout.jsonl",
    "opencode/export.json",
    "capsem/vm-7/session.sql",
)


@pytest.mark.parametrize("limit", [1_048_576, 450])
def test_the_object_is_that_of_all_sessions_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    for name in NAMES:
        path = tmp_path / name.replace(".sql", ".db")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(goldens.content(name))
    # A line that contradicts an earlier one, in the longer of two files of one thread.
    again = goldens.content("codex/rollout.jsonl").replace(b"find the bug", b"find another")
    (tmp_path / "codex" / "z.jsonl").write_bytes(again)
    monkeypatch.setenv("TURNLEDGER_RECORD_LIMIT_BYTES", str(limit))
    done = CliRunner().invoke(build(), ["import", "--dry-run", "--json", str(tmp_path)])
    assert done.exit_code == 0, done.output
    readings = [read_file(path) for path in files_in([tmp_path])]
    records = [orjson.dumps(event) for reading in readings for event in reading.events]
    whole = document(records, partial(price_call, packaged()), limit=limit)
    assert whole["conflicts"]
    inherited = any(call["inherited"] for call in whole["model_calls"])
    assert (bool(whole["dead_letters"]), inherited) == ((True, False) if limit == 450 else (False, True))
    assert done.stdout_bytes == dumps({"files": [each.row() for each in readings], **whole}) + b"\n"
