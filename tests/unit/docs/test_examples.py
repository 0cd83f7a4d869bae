"""The worked numbers of the documentation: each example is folded, and what the page says of it is there."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from turnledger.fold.document import document, lines
from turnledger.pricing import packaged, price_call

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = ("duplicates-gaps-conflicts.md",)

_BLOCK = re.compile(r"<!-- (example|result): (\w+) -->\n```(?:json)?\n(.*?)```\n", re.DOTALL)


def blocks(page: str) -> list[tuple[str, str, str]]:
    """(kind, name, text) of the marked blocks of a page, in its order."""
    return [match.groups() for match in _BLOCK.finditer((DOCS / page).read_text())]  # type: ignore[misc]


def examples() -> list[tuple[str, str, str]]:
    """(name, lines, result) of every example."""
    found = []
    for page in PAGES:
        texts = {(kind, name): text for kind, name, text in blocks(page)}
        found += [
            (name, text, texts["result", name]) for (kind, name), text in texts.items() if kind == "example"
        ]
    return found


def holds(said: Any, found: Any, place: str = "") -> None:
    """Everything that the page says is so. What it does not say is left out; lists are told whole."""
    if isinstance(said, dict):
        for name, value in said.items():
            assert name in found, f"{place}.{name}"
            holds(value, found[name], f"{place}.{name}")
    elif isinstance(said, list):
        assert len(said) == len(found), f"{place}: {found}"
        for at, (one, other) in enumerate(zip(said, found, strict=True)):
            holds(one, other, f"{place}[{at}]")
    else:
        assert said == found, place


def test_each_page_has_examples_and_each_example_a_result() -> None:
    for page in PAGES:
        marked = blocks(page)
        names = [name for kind, name, _ in marked if kind == "example"]
        assert names == [name for kind, name, _ in marked if kind == "result"]
        assert len(names) == len(set(names)) > 0
        # A marker whose block is spelt in another way would be passed over.
        assert (DOCS / page).read_text().count("<!-- ") == len(marked)


@pytest.mark.parametrize(("name", "text", "result"), examples(), ids=[name for name, _, _ in examples()])
def test_what_the_page_says_of_its_example_is_so(name: str, text: str, result: str) -> None:
    found = document(lines([text.encode()]), partial(price_call, packaged()))
    holds(json.loads(result), found)
