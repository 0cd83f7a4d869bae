"""`turnledger sessions list`: which sessions a person asks for, and how they look on a screen of any width, in a pipe and in a spreadsheet."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TextIO

import psycopg
from rich.console import Console
from rich.text import Text

from turnledger.contract.times import parse_instant
from turnledger.doctor.rows import told
from turnledger.doctor.tables import UNKNOWN, count, dollars, safe, second
from turnledger.errors import TurnledgerError
from turnledger.fold import columns
from turnledger.store.named import query

Row = Mapping[str, Any]
MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which sessions. All conditions hold at once; what is None or false asks for nothing."""

    count: int = 20
    tenant: str | None = None
    status: str | None = None
    agent: str | None = None
    since: int | None = None
    """µs since 1970: active then or later."""
    min_cost: Decimal | None = None
    """Dollars."""
    with_model: bool = False
    """With tokens in or out."""
    with_net: bool = False
    with_tools: bool = False
    with_mcp: bool = False
    with_detail: bool = False
    """Whose events are still there."""
    vacuumed_too: bool = False
    """Those as well whose detail was deleted."""

    def values(self) -> dict[str, Any]:
        """As the query takes them; money in micro-USD."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return found | {"min_cost": None if self.min_cost is None else self.min_cost * MICRO}


def dollars_of(text: str) -> Decimal:
    """An amount as a person types it: ``0.50``, ``$2``. Raises :class:`TurnledgerError`."""
    try:
        amount = Decimal(text.strip().removeprefix("$"))
    except InvalidOperation:
        amount = Decimal("nan")
    if not amount.is_finite() or amount < 0 or amount > 10**12:
        raise TurnledgerError(f"--min-cost {text!r} is no amount: say dollars, as in 0.50.")
    return amount


def list_sessions(connection: psycopg.Connection[Any], wanted: Wanted | None = None) -> list[dict[str, Any]]:
    """Rows of ``turnledger.sessions`` with ``total_mcp_calls``, the latest activity first, instants as text (contract 17)."""
    return told(connection, query("read/list_sessions"), (wanted or Wanted()).values())


# --- a screen -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Column:
    head: str
    cell: Callable[[Row], str]
    rank: int
    """Which columns a narrow screen shows: the least first, as long as they fit."""
    figures: bool = False


def _session(row: Row) -> str:
    """With a star while its events are still there, as people know it from the sandbox's own list."""
    return f"{safe(row['session_id'])}{'*' if row['detail'] == 'full' else ''}"


def _created(row: Row) -> str:
    """``MM-DD HH:MM:SS``, UTC."""
    at = row["created_at"]
    return (
        UNKNOWN
        if at is None
        else second(at).partition("-")[2].removesuffix("Z")
        if at[0] != "-"
        else second(at)
    )


def duration(row: Row) -> str:
    """``12s``, ``3m12s``, ``2h05m``; ``running`` without an end, ``?`` where the times do not say."""
    if row["status"] == "running":
        return "running"
    began, ended = (parse_instant(row[name]) if row[name] else None for name in ("created_at", "stopped_at"))
    if began is None or ended is None or ended < began:
        return "?"
    seconds = (ended - began) // MICRO
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"


def tokens(row: Row) -> str:
    """In and out together; with a mark where one of them is not known."""
    known = [row[name] for name in ("total_input_tokens", "output_tokens") if row[name] is not None]
    if not known:
        return UNKNOWN
    return count(sum(known)) + ("" if len(known) == 2 else " +?")


def _cost(row: Row) -> str:
    unpriced = row["unpriced_calls"]
    return dollars(row["cost_micro_usd"]) + (f" +{unpriced}?" if unpriced else "")


def _known(row: Row) -> str:
    return UNKNOWN if row["usage_total"] is None else f"{row['usage_reported']}/{row['usage_total']}"


def _text(name: str) -> Callable[[Row], str]:
    return lambda row: safe(row[name])


def _figure(name: str) -> Callable[[Row], str]:
    return lambda row: count(row[name])


COLUMNS: Final = (
    _Column("tenant", _text("tenant"), 3),
    _Column("session", _session, 0),
    _Column("name", _text("name"), 17),
    _Column("agent", _text("agent"), 13),
    _Column("status", _text("status"), 10),
    _Column("created", _created, 7),
    _Column("dur", duration, 6, figures=True),
    _Column("cost", _cost, 1, figures=True),
    _Column("known", _known, 2, figures=True),
    _Column("net", _figure("total_requests"), 9, figures=True),
    _Column("tokens", tokens, 4, figures=True),
    _Column("tool", _figure("total_tool_calls"), 8, figures=True),
    _Column("mcp", _figure("total_mcp_calls"), 12, figures=True),
    _Column("fs", _figure("total_file_events"), 11, figures=True),
    _Column("turns", _figure("turn_count"), 14, figures=True),
    _Column("calls", _figure("model_call_count"), 15, figures=True),
    _Column("gaps", _figure("open_gaps"), 16, figures=True),
    _Column("grade", _text("grade"), 5),
    _Column("last activity", lambda row: second(row["last_activity_at"]), 18),
)
GRADES: Final = {"complete": "green", "partial": "yellow", "gaps": "red", "disputed": "red"}
_BETWEEN = 2


def page(out: TextIO, rows: Sequence[Row]) -> None:
    """One line a session: as many columns as the screen is wide, all of them in a pipe."""
    if not rows:
        out.write(
            "no sessions: publish some events, wait for the rollup worker, or ask for more (--all, fewer conditions).\n"
        )
        return
    several = len({row["tenant"] for row in rows}) > 1
    listed = [one for one in COLUMNS if several or one.head != "tenant"]
    cells = [[one.cell(row) for one in listed] for row in rows]
    widths = [max(len(one.head), *(len(line[at]) for line in cells)) for at, one in enumerate(listed)]
    console = Console(file=out, highlight=False) if out.isatty() else None
    shown = list(range(len(listed))) if console is None else fitting(listed, widths, console.width)
    for line, row in [([one.head for one in listed], None), *zip(cells, rows, strict=True)]:
        text = (
            (" " * _BETWEEN)
            .join(
                line[at].rjust(widths[at]) if listed[at].figures else line[at].ljust(widths[at])
                for at in shown
            )
            .rstrip()
        )
        if console is None:
            out.write(text + "\n")
            continue
        styled = Text(text, style="bold" if row is None else "")
        if row is not None and row["grade"] in GRADES and text.endswith(str(row["grade"])):
            styled.stylize(GRADES[row["grade"]], len(text) - len(row["grade"]))
        console.print(styled, soft_wrap=True)
    left_out = [one.head for at, one in enumerate(listed) if at not in shown]
    if console is not None and left_out:
        console.print(
            Text(f"not at this width: {', '.join(left_out)} (--json and --csv have everything)", style="dim")
        )


def fitting(listed: Sequence[_Column], widths: Sequence[int], width: int) -> list[int]:
    """The places of the columns that a screen of ``width`` shows, in their order: by rank, as long as there is room."""
    room = width
    chosen: list[int] = []
    for at in sorted(range(len(listed)), key=lambda place: listed[place].rank):
        needs = widths[at] + (_BETWEEN if chosen else 0)
        if chosen and needs > room:
            continue
        chosen.append(at)
        room -= needs
    return sorted(chosen)


# --- a spreadsheet ------------------------------------------------------------------------------------------------------------------


CSV: Final = ("tenant", "session_id", *(name for name, _ in columns.SESSIONS), "total_mcp_calls")


def write_csv(out: TextIO, rows: Sequence[Row]) -> None:
    """Every column under its own name, a header first; what is not known is empty, lists and objects are JSON."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV)
    for row in rows:
        writer.writerow([_plain(row[name]) for name in CSV])


def _plain(value: Any) -> Any:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else value
