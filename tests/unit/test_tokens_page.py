"""The examples of docs/tokens.md, run: what the page says comes out of `turnledger fold FILE --json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.unit.contract_cases.envelopes import at
from turnledger.cli import build

PAGE = Path(__file__).parents[2] / "docs" / "tokens.md"
_EXAMPLE = re.compile(r"```ndjson\n(?P<events>.*?)```\n(?P<rest>.*?)(?=```ndjson|\n## |\Z)", re.DOTALL)
_ROW = re.compile(r"^\| `([a-z_]+/[^`]+)` \| `([^`]+)` \|$", re.MULTILINE)


def examples() -> Iterator[Any]:
    """(events, {path: value}) by the heading that they stand under."""
    text = PAGE.read_text(encoding="utf-8")
    for found in _EXAMPLE.finditer(text):
        heading = text[: found.start()].rsplit("\n## ", 1)[-1].splitlines()[0]
        line = text[: found.start()].count("\n") + 1
        values = {path: json.loads(value) for path, value in _ROW.findall(found["rest"])}
        yield pytest.param(found["events"], values, id=f"{heading}, line {line}")


@pytest.mark.parametrize(("events", "values"), list(examples()))
def test_an_example_of_the_page_is_true(events: str, values: dict[str, Any], tmp_path: Path) -> None:
    assert values, "an example without its values"
    file = tmp_path / "events.ndjson"
    file.write_text(events, encoding="utf-8")
    done = CliRunner().invoke(build(), ["fold", str(file), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["records"]["dead"] == 0
    told["checks"] = {row["check"]: row["count"] for row in told["findings"]}
    assert {path: at(told, path) for path in values} == values


def test_every_example_of_the_page_was_found() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(list(examples())) == text.count("```ndjson") == text.count("| where | value |") > 10
