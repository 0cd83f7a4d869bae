"""The table of what is read: fresh in the docs, complete, and printed by the command."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from turnledger.cli import build
from turnledger.harness import catalogue
from turnledger.harness.formats import FORMATS, NAMES

ROOT = Path(__file__).parents[3]


def test_the_docs_hold_the_table_that_the_readers_make() -> None:
    assert (ROOT / "docs" / "harnesses.md").read_text(encoding="utf-8") == catalogue.markdown()


def test_a_stale_page_is_said_and_a_fresh_one_is_written(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("old")
    assert catalogue.main(["--check", str(page)]) == 1
    assert catalogue.main([str(page)]) == 0
    assert catalogue.main(["--check", str(page)]) == 0
    assert catalogue.main([]) == 2


@pytest.mark.parametrize("name", NAMES)
def test_every_format_has_notes(name: str) -> None:
    notes = ROOT / "services" / "turnledger" / "harness" / name.replace("-", "_") / "README.md"
    said = notes.read_text(encoding="utf-8")
    assert "## Identity" in said and "## What it cannot tell" in said and "## What absence means" in said


def test_the_command_prints_every_harness_as_a_table_and_as_one_object() -> None:
    shown = CliRunner().invoke(build(), ["harnesses"])
    assert shown.exit_code == 0 and all(name in shown.stdout for name in NAMES)
    told = orjson.loads(CliRunner().invoke(build(), ["harnesses", "--json"]).stdout)
    assert [row["name"] for row in told["harnesses"]] == [each.name for each in FORMATS]
    assert all(value for row in told["harnesses"] for value in row.values())
