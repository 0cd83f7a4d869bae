"""How `turnledger sessions check` looks: at 80 and at 140 columns, without colours where none are wanted, and in a pipe."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

from turnledger.doctor.check import Checked, Checkup, Told
from turnledger.doctor.check_page import checkup_page
from turnledger.doctor.findings import Finding, Reason

SESSION = {
    "name": "nightly", "agent": "coder", "status": "stopped", "grade": "gaps", "detail": "full", "cost_micro_usd": 1230, "unpriced_calls": 1,
    "usage_reported": 1, "usage_total": 2,
}  # fmt: skip
LONG = Reason(
    "two numbers never came, and " * 8 + "that is why", "send them again, " * 9 + "then look once more"
)
GAP = {"to_seq": 8, "from_seq": 7, "producer": "harness", "epoch": 0, "stream": "ledger", "state": "open"}
COLOURS = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def checkup(*findings: Finding) -> Checkup:
    checked = Checked(
        "default",
        "0190d4e2-7a31-7c55-9c1e-3f6f2a9b8c7d",
        dict(SESSION),
        [Told(one, LONG) for one in findings],
        {"turns": 1, "model_calls": 2, "tool_calls": 0},
        [{"origin": "mcp", "calls": 3, "average_ms": None}],
        [{"tool_name": "a tool with a name that is longer than it should be " * 2, "origin": "mcp", "status": "ok", "calls": 3, "average_ms": 7.25}],
        {"net_events": [{"domain": "a.example", "path": "/" + "x" * 300, "status_code": None}]},
    )  # fmt: skip
    return Checkup([checked], 1)


RED = Finding("open_gap", "error", 1, [GAP])
YELLOW = Finding("null_tokens", "warning", 3, [GAP, GAP, GAP])


def drawn(out: io.StringIO, found: Checkup, **options: Any) -> str:
    checkup_page(out, found, **{"rows": 2, "everything": False} | options)
    return out.getvalue()


def on_a_screen(
    monkeypatch: pytest.MonkeyPatch, width: int, found: Checkup, *, no_color: bool = False, **options: Any
) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    return drawn(Terminal(), found, **options)


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("width", [80, 140])
def test_no_line_is_wider_than_the_screen_and_no_word_is_cut(
    monkeypatch: pytest.MonkeyPatch, width: int, everything: bool
) -> None:
    lines = [
        ESCAPES.sub("", line)
        for line in on_a_screen(monkeypatch, width, checkup(RED, YELLOW), everything=everything).splitlines()
    ]
    assert all(len(line.rstrip()) <= width for line in lines), [
        line for line in lines if len(line.rstrip()) > width
    ]
    words = " ".join(" ".join(lines).split())
    assert LONG.why in words


def test_a_finding_says_its_gravity_in_words_and_its_row_begins_with_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = ESCAPES.sub("", on_a_screen(monkeypatch, 140, checkup(RED, YELLOW)))
    assert "✗ error: open_gap (1)\n    why   two numbers never came" in said
    assert "    row   producer=harness  epoch=0  stream=ledger  from_seq=7  to_seq=8  state=open\n" in said
    assert "! warning: null_tokens (3)" in said
    assert "… and 1 more row (--rows N shows them)" in said
    assert said.splitlines()[-1] == "check: 1 session, 1 error, 1 warning"


def test_colours_stand_on_a_terminal_alone_and_not_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    assert COLOURS.search(on_a_screen(monkeypatch, 80, checkup(RED)))
    assert not COLOURS.search(on_a_screen(monkeypatch, 80, checkup(RED), no_color=True))
    assert "\x1b" not in drawn(io.StringIO(), checkup(RED, YELLOW))


def test_nothing_odd_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(io.StringIO(), checkup()).splitlines()[-1] == "check: nothing odd in 1 session"


def test_what_is_not_judged_yet_is_named() -> None:
    found = checkup()
    found.unsettled = ["default/s"]
    said = drawn(io.StringIO(), found)
    assert "default/s: a worker has still to write" in said
    assert said.splitlines()[-1] == "check: nothing odd in 1 session, as far as it is written"


def test_text_from_outside_moves_no_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = Finding("unknown_event_type", "info", 1, [{"type": "\x1b]0;title\x07"}])
    said = on_a_screen(monkeypatch, 80, checkup(odd))
    assert "\x1b]" not in said and "\\x1b]0;title\\x07" in said
