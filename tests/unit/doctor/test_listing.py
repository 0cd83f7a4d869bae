"""How `turnledger sessions list` looks: at 80 and at 140 columns, without colours where none are wanted, and in a pipe."""

from __future__ import annotations

import io
from typing import Any

import pytest

from turnledger.doctor.listing import duration, page, tokens
from turnledger.fold import columns


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def row(**values: Any) -> dict[str, Any]:
    empty = dict.fromkeys(
        ("tenant", "session_id", *(name for name, _ in columns.SESSIONS), "total_mcp_calls")
    )
    return {
        **empty,
        "tenant": "default",
        "session_id": "0190d4e2-7a31-7c55-9c1e-3f6f2a9b8c7d",
        "name": "nightly",
        "agent": "coder",
        "status": "stopped",
        "detail": "full",
        "created_at": "2026-03-01T10:00:00.000000Z",
        "stopped_at": "2026-03-01T10:03:12.900000Z",
        "last_activity_at": "2026-03-01T10:03:12.900000Z",
        "total_input_tokens": 20177,
        "output_tokens": 201,
        "usage_reported": 3,
        "usage_total": 4,
        "cost_micro_usd": 1_234_500,
        "unpriced_calls": 0,
        "grade": "partial",
    } | values


def shown(
    monkeypatch: pytest.MonkeyPatch, width: int, *rows: dict[str, Any], no_color: bool = False
) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    page(out, rows)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 140])
def test_a_line_a_session_that_is_no_wider_than_the_screen(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    lines = shown(monkeypatch, width, row(), row(session_id="short", status="running"), no_color=True)
    plain = [line.replace("\x1b[1m", "").replace("\x1b[0m", "").replace("\x1b[2m", "") for line in lines]
    assert all(len(line) <= width for line in plain[:3]), plain
    assert plain[1].split()[0] == "0190d4e2-7a31-7c55-9c1e-3f6f2a9b8c7d*"
    assert plain[3].startswith("not at this width: ")


def test_a_narrow_screen_keeps_cost_coverage_tokens_and_grade(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 80, row())
    assert lines[0].replace("\x1b[1m", "").replace("\x1b[0m", "").split() == [
        "session",
        "dur",
        "cost",
        "known",
        "tokens",
        "grade",
    ]
    assert "3m12s  $1.2345    3/4  20,378" in lines[1]


def test_no_color_means_none_and_a_pipe_has_no_escapes_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert any("\x1b[33m" in line for line in shown(monkeypatch, 80, row()))
    assert not any("\x1b[3" in line for line in shown(monkeypatch, 80, row(), no_color=True))
    out = io.StringIO()
    page(out, [row()])
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().splitlines()[0].split()[-2:] == ["last", "activity"]


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"stopped_at": "2026-03-01T10:00:59.999999Z"}, "59s"),
        ({}, "3m12s"),
        ({"stopped_at": "2026-03-01T12:05:59.000000Z"}, "2h05m"),
        ({"status": "running", "stopped_at": None}, "running"),
        ({"stopped_at": None}, "?"),
        ({"created_at": None}, "?"),
        ({"stopped_at": "2026-02-28T10:00:00.000000Z"}, "?"),
    ],
)
def test_a_duration_is_short_and_never_invented(times: dict[str, Any], said: str) -> None:
    assert duration(row(**times)) == said


def test_tokens_that_are_not_known_are_not_zero() -> None:
    assert tokens(row()) == "20,378"
    assert tokens(row(output_tokens=None)) == "20,177 +?"
    assert tokens(row(output_tokens=None, total_input_tokens=None)) == "–"
