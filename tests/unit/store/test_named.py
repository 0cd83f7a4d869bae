"""Every named query stands in a file of its own, and each file holds one statement."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from turnledger.store.named import query

ROOT = Path(str(files("turnledger.store"))) / "sql"
NAMES = sorted(str(path.relative_to(ROOT).with_suffix("")) for path in ROOT.rglob("*.sql"))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_holds_one_statement_without_a_semicolon(name: str) -> None:
    lines = [line.partition("--")[0] for line in query(name).decode().splitlines()]
    # What a `do` runs is a text of that one statement.
    statement = re.sub(r"\$body\$.*?\$body\$", "", "".join(lines))
    assert statement.strip()
    assert ";" not in statement


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(FileNotFoundError):
        query("read/nothing_of_the_kind")
