"""What a person sees while the demo runs: a live table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from turnledger.demo.ledger_view import Account, Row
from turnledger.doctor.tables import count, dollars, safe

PLAIN_SECONDS = 5.0
"""How often a line is printed where no table can live."""
HEADS = ("session", "agent", "status", "turns>", "calls>", "tools>", "in>", "out>", "cost>", "gaps>", "grade")
"""A head that ends in ``>`` names a column of figures."""


class Screen:
    """``say`` prints a line that stays; ``live`` shows what changes."""

    def __init__(self, out: TextIO | None = None) -> None:
        self.out = out or sys.stdout
        self._console = Console(file=self.out)
        self._live: Live | None = None
        self._began = time.monotonic()
        self._printed = -PLAIN_SECONDS

    def say(self, sentence: str) -> None:
        """A line about what the demo does, with the seconds since its start."""
        line = f"{time.monotonic() - self._began:6.1f} s  {sentence}"
        if self.out.isatty():
            self._console.print(Text(line))  # above the live table, when there is one
        else:
            self.write(line)

    def heading(self, title: str) -> None:
        """A line over what follows."""
        if self.out.isatty():
            self._console.print(Text(f"\n{title}", style="bold"))
        else:
            self.write(f"\n{title}")

    def write(self, text: str) -> None:
        """A line as it is."""
        self.out.write(text + "\n")
        self.out.flush()

    @contextmanager
    def live(self) -> Iterator[None]:
        """Inside, :meth:`show` repaints in place."""
        if not self.out.isatty():
            yield
            return
        with Live(console=self._console, auto_refresh=False, transient=False) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def show(self, sent: int, account: Account, sessions: Sequence[Row], services: str) -> None:
        """How far it is."""
        line = (
            f"sent {sent:,} · read {account.records:,} = {account.accepted:,} accepted + {account.duplicates:,} duplicates "
            f"+ {account.conflicts:,} conflicts + {account.dead:,} dead · {services}"
        )
        if self._live is not None:
            self._live.update(Group(sessions_table(sessions), Text(line)), refresh=True)
        elif time.monotonic() - self._printed >= PLAIN_SECONDS:
            self._printed = time.monotonic()
            turns = sum(row["turn_count"] or 0 for row in sessions)
            cost = sum(row["cost_micro_usd"] or 0 for row in sessions)
            self.say(f"{line} · {len(sessions)} sessions, {turns} turns, {dollars(cost)}")


def sessions_table(sessions: Sequence[Row]) -> Table:
    """Sessions with their figures."""
    table = Table(header_style="bold")
    for head in HEADS:
        table.add_column(head.removesuffix(">"), justify="right" if head.endswith(">") else "left")
    for row in sessions:
        table.add_row(*map(Text, session_cells(row)))
    return table


def session_cells(row: Row) -> list[str]:
    """One session in the order of :data:`HEADS`."""
    cells: list[Any] = [
        row["session_id"],
        row["agent"],
        row["status"],
        count(row["turn_count"]),
        count(row["model_call_count"]),
        count(row["total_tool_calls"]),
        count(row["total_input_tokens"]),
        count(row["output_tokens"]),
        dollars(row["cost_micro_usd"]),
        count(row["open_gaps"]),
        row["grade"],
    ]
    return [safe(cell) for cell in cells]
