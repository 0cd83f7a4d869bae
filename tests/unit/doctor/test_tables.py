"""Tables on a screen: lines around them where they fit, and never a word that is cut into pieces where they do not."""

from __future__ import annotations

import io
import re

import pytest

from turnledger.doctor.tables import sentence, show


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
ROWS = [
    [
        "s-1",
        "anthropic",
        12,
        "a sentence that is long enough to need more than one line of a narrow screen, and then some",
    ]
]


def drawn(
    monkeypatch: pytest.MonkeyPatch, width: int, heads: list[str], rows: list[list[object]]
) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    out = Terminal()
    show(out, "title", heads, rows)
    lines = [ESCAPES.sub("", line).rstrip() for line in out.getvalue().splitlines()]
    assert all(len(line) <= width for line in lines), lines
    return lines


HEADS = ["session", "provider", "calls>", "detail"]


def test_a_table_that_fits_has_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, 140, HEADS, ROWS)[1].startswith("┏━")


def test_a_wide_text_is_folded_at_words_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = drawn(monkeypatch, 80, HEADS, ROWS)
    assert lines[1].split() == ["session", "provider", "calls", "detail"]
    assert lines[2].startswith("s-1      anthropic     12  a sentence that is long enough to")
    assert " ".join(" ".join(lines[2:]).split()).endswith("of a narrow screen, and then some")


def test_more_columns_than_a_screen_holds_are_a_block_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    heads = [f"column-{number}" for number in range(12)]
    lines = drawn(monkeypatch, 80, heads, [[f"value-{number}" for number in range(12)]])
    assert lines[:3] == ["title", "column-0   value-0", "column-1   value-1"]
    assert len([line for line in lines if line.startswith("column-")]) == 12


def test_a_name_that_has_no_room_makes_blocks_and_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "default/demo-1130-1632-0844-return-vm-10"
    heads = ["session", "rule", "status", "last came", "content", "bytes>"]
    lines = drawn(monkeypatch, 80, heads, [[name, "count", "stopped", "2026-11-30 16:32:47Z", "yes", 1000]])
    assert f"session    {name}" in lines


def test_a_sentence_is_folded_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    said = "15 of 18 sessions would go, and nothing was changed"
    on_a_screen, in_a_pipe = Terminal(), io.StringIO()
    for out in (on_a_screen, in_a_pipe):
        sentence(out, said)
    assert on_a_screen.getvalue() == "15 of 18 sessions would go, and nothing\nwas changed\n"
    assert in_a_pipe.getvalue() == f"{said}\n"


def test_what_came_from_outside_moves_no_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\\x1b]0;x\\x07" in "\n".join(drawn(monkeypatch, 80, ["name"], [["\x1b]0;x\x07"]]))


def test_a_pipe_gets_plain_text() -> None:
    out = io.StringIO()
    show(out, "title", ["name", "calls>"], [["a", 1]])
    assert out.getvalue() == "title\nname  calls\na         1\n\n"
