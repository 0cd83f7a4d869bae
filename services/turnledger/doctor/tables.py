"""How tables and figures are shown to a person: rich on a terminal, plain aligned text elsewhere, control characters never."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import IO, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

UNKNOWN = "–"
"""Null is not zero (contract 8)."""


def safe(value: object) -> str:
    """A value as text for a terminal: what came from outside moves no cursor and sets no title."""
    if value is None:
        return UNKNOWN
    text = str(value)
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def dollars(micro_usd: int | None) -> str:
    """Micro-USD exactly, as dollars: at least two digits, at most six."""
    if micro_usd is None:
        return UNKNOWN
    sign = "-" if micro_usd < 0 else ""
    whole, rest = divmod(abs(micro_usd), 1_000_000)
    digits = f"{rest:06d}".rstrip("0").ljust(2, "0")
    return f"{sign}${whole:,}.{digits}"


def count(value: int | None) -> str:
    """An integer with its thousands apart."""
    return UNKNOWN if value is None else f"{value:,}"


def second(instant: str | None) -> str:
    """An instant of ``contract.times.utc_text``, to the second."""
    return UNKNOWN if instant is None else f"{instant.partition('.')[0]}Z".replace("T", " ")


def show(out: IO[str], title: str, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """One table. A head that ends in ``>`` names a column of figures, set to the right. Nothing at all for no rows."""
    cells = [[safe(cell) for cell in row] for row in rows]
    if not cells:
        return
    names = [head.removesuffix(">") for head in heads]
    right = [head.endswith(">") for head in heads]
    if out.isatty():
        table = Table(title=Text(title, style="bold"), title_justify="left", header_style="bold")
        for name, figures in zip(names, right, strict=True):
            table.add_column(Text(name), justify="right" if figures else "left", overflow="fold")
        for row in cells:
            table.add_row(*map(Text, row))
        Console(file=out).print(table)
        return
    widths = [max(len(row[at]) for row in [names, *cells]) for at in range(len(names))]
    out.write(f"{title}\n")
    for row in [names, *cells]:
        line = "  ".join(
            cell.rjust(width) if figures else cell.ljust(width)
            for cell, width, figures in zip(row, widths, right, strict=True)
        )
        out.write(line.rstrip() + "\n")
    out.write("\n")
