"""How `turnledger sessions check` looks to a person: findings by their gravity with why and what next, then what the session holds."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from turnledger.doctor.check import Checked, Checkup, Told
from turnledger.doctor.findings import LEVELS, plural
from turnledger.doctor.tables import UNKNOWN, dollars, safe, show
from turnledger.doctor.tables import count as figure

Row = dict[str, Any]

MARKS = {"error": ("✗", "red"), "warning": ("!", "yellow"), "info": ("·", "cyan")}
"""The sign of a severity, and its colour on a terminal. The word stands beside it: a colour alone tells nobody anything."""
CELL = 60
"""Characters of one value in a row that is shown."""
SESSIONS_SHOWN = 20
"""Sessions of one check that `--all` names."""


class Page:
    """Writes styled lines: colours on a terminal that wants them (``NO_COLOR`` is honoured), plain text elsewhere, wrapped to the width."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._console = Console(file=out, highlight=False) if out.isatty() else None
        self.width = (
            self._console.width
            if self._console is not None
            else max(80, shutil.get_terminal_size((120, 24)).columns)
        )

    def line(self, text: str = "", style: str = "") -> None:
        if self._console is None:
            self._out.write(text + "\n")
        else:
            self._console.print(Text(text, style=style), soft_wrap=True)

    def wrapped(self, head: str, text: str, style: str = "") -> None:
        """``text`` behind ``head``, its further lines set in under it."""
        for line in textwrap.wrap(
            safe(text),
            max(40, self.width - 1),
            initial_indent=head,
            subsequent_indent=" " * len(head),
            break_on_hyphens=False,
        ) or [head]:
            self.line(line, style)


def checkup_page(out: TextIO, found: Checkup, *, rows: int, everything: bool) -> None:
    """The page of one run. ``rows``: of each finding that are shown."""
    page = Page(out)
    if everything:
        _all(page, found, rows)
    for checked in found.sessions if not everything else ():
        _session(page, out, checked, rows)
    for name in found.unsettled:
        page.wrapped(
            "  ",
            f"{name}: a worker has still to write; what it says now is not judged. Look again in a moment.",
        )
    page.line(_verdict(found), _style(found))


def _verdict(found: Checkup) -> str:
    told = [one.finding.severity for checked in found.sessions for one in checked.findings]
    told += ["error"] * len(found.ledger)
    counts = ", ".join(
        plural(told.count(level), level if level != "info" else "note")
        for level in LEVELS
        if told.count(level)
    )
    looked = plural(found.looked_at, "session")
    if not counts:
        return f"check: nothing odd in {looked}" + (", as far as it is written" if found.unsettled else "")
    return f"check: {looked}, {counts}"


def _style(found: Checkup) -> str:
    if found.red:
        return "bold red"
    return "bold yellow" if any(checked.worst == "warning" for checked in found.sessions) else "bold green"


def _session(page: Page, out: TextIO, checked: Checked, rows: int) -> None:
    row = checked.session
    page.line(safe(f"session {checked.tenant}/{checked.session_id}"), "bold")
    if row:
        said = [
            *([f"name {row['name']}"] if row.get("name") else []),
            f"agent {row['agent'] or UNKNOWN}",
            f"status {row['status']}",
            f"grade {row['grade']}",
            *([] if row["detail"] in (None, "full") else [f"detail {row['detail']}"]),
            f"cost {dollars(row['cost_micro_usd'])}"
            + (f" and {row['unpriced_calls']} unpriced" if row["unpriced_calls"] else ""),
            f"usage of {row['usage_reported']} of {row['usage_total']} parts",
        ]
        page.wrapped("  ", " · ".join(said))
    else:
        page.wrapped("  ", "its sums are not there yet; the rollup worker sets them.")
    page.line()
    for told in checked.findings:
        _finding(page, told, rows)
    if not checked.findings:
        page.line("no findings: nothing is missing, doubled, contradicted or unread", "green")
        page.line()
    _holds(page, out, checked)


def _finding(page: Page, told: Told, rows: int) -> None:
    one = told.finding
    mark, colour = MARKS[one.severity]
    page.line(f"{mark} {one.severity}: {safe(one.check)} ({figure(one.count)})", f"bold {colour}")
    page.wrapped("    why   ", told.reason.why)
    page.wrapped("    next  ", told.reason.next)
    for row in one.rows[:rows]:
        page.wrapped("    row   ", _row(row))
    if len(one.rows) > rows:
        page.line(f"          … and {plural(len(one.rows) - rows, 'more row')} (--rows N shows them)")
    page.line()


PLACE = (
    "what",
    "table",
    "key",
    "turn_key",
    "producer",
    "epoch",
    "stream",
    "seq",
    "receipt_key",
    "from_seq",
    "to_seq",
)
"""What finds a row stands first, in this order; Postgres keeps the names of a document in an order of its own."""


def _row(row: Row) -> str:
    names = [*(name for name in PLACE if name in row), *(name for name in row if name not in PLACE)]
    return "  ".join(f"{name}={_cell(row[name])}" for name in names if row[name] is not None)


def _cell(value: object) -> str:
    text = safe(value)
    return text if len(text) <= CELL else f"{text[: CELL - 1]}…"


def _holds(page: Page, out: TextIO, checked: Checked) -> None:
    """What is there: rows by table, tool calls by origin and by name, the latest rows."""
    held = ", ".join(f"{name} {figure(number)}" for name, number in checked.counts.items() if number)
    page.wrapped("rows      ", held or "none")
    if checked.origins:
        total = sum(row["calls"] for row in checked.origins)
        said = ", ".join(f"{figure(row['calls'])} {row['origin'] or 'unknown'}" for row in checked.origins)
        page.wrapped("tools by  ", f"{said} ({figure(total)} in all)")
    page.line()
    show(
        out,
        "tool calls",
        ["tool", "origin", "status", "calls>", "average ms>"],
        [
            [_cell(row["tool_name"]), row["origin"], row["status"], figure(row["calls"]), row["average_ms"]]
            for row in checked.tools
        ],
    )
    for table, rows in checked.latest.items():
        if rows:
            _records(page, f"latest {table}", rows)


def _records(page: Page, title: str, rows: Sequence[Row]) -> None:
    """A line a row, name by name: as many columns as these would be garbage at 80."""
    page.line(title, "bold")
    for row in rows:
        page.wrapped("  ", _row(row))
    page.line()


def _all(page: Page, found: Checkup, rows: int) -> None:
    """By check: how many sessions, which, and the reason of the first of them."""
    groups: dict[str, list[tuple[Checked, Told]]] = {}
    for checked in found.sessions:
        for told in checked.findings:
            groups.setdefault(told.finding.check, []).append((checked, told))
    listed = sorted(
        groups.values(), key=lambda group: (LEVELS.index(group[0][1].finding.severity), -len(group))
    )
    for row in found.ledger:
        page.line(f"✗ error: {safe(row['what'])}", "bold red")
        page.wrapped("    row   ", _row({name: value for name, value in row.items() if name != "what"}))
        page.line()
    for group in listed:
        first = group[0][1]
        mark, colour = MARKS[first.finding.severity]
        total = sum(told.finding.count for _, told in group)
        page.line(
            f"{mark} {first.finding.severity}: {safe(first.finding.check)} ({figure(total)} in {plural(len(group), 'session')})",
            f"bold {colour}",
        )
        for checked, told in group[: max(1, rows)]:
            page.wrapped(
                "    ",
                f"{checked.tenant}/{checked.session_id} ({figure(told.finding.count)}): {told.reason.why}",
            )
        page.wrapped("    next  ", first.reason.next)
        others = group[max(1, rows) :]
        if others:
            names = ", ".join(
                f"{checked.tenant}/{checked.session_id}" for checked, _ in others[:SESSIONS_SHOWN]
            )
            more = f" and {len(others) - SESSIONS_SHOWN} more" if len(others) > SESSIONS_SHOWN else ""
            page.wrapped("    also  ", f"{names}{more}")
        page.line()
