"""How tables and figures are shown to a person: rich on a terminal, plain aligned text elsewhere, control characters never."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import IO, Any

from rich.box import HEAVY_HEAD
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
    widths = [max(len(row[at]) for row in [names, *cells]) for at in range(len(names))]
    if out.isatty():
        _on_a_screen(Console(file=out, highlight=False), title, names, right, widths, cells)
        return
    out.write(f"{title}\n")
    for row in [names, *cells]:
        line = "  ".join(
            cell.rjust(width) if figures else cell.ljust(width)
            for cell, width, figures in zip(row, widths, right, strict=True)
        )
        out.write(line.rstrip() + "\n")
    out.write("\n")


def sentence(out: IO[str], said: str) -> None:
    """A sentence that is safe already: folded at words on a terminal, one line elsewhere."""
    if out.isatty():
        width = Console(file=out).width
        said = "\n".join(textwrap.wrap(said, width, break_on_hyphens=False, break_long_words=False))
    out.write(f"{said}\n")


LEAST_TEXT = 24
"""Characters that the widest column must have left, where it alone is folded: less is a column of syllables."""


def _on_a_screen(
    console: Console,
    title: str,
    names: Sequence[str],
    right: Sequence[bool],
    widths: Sequence[int],
    cells: Sequence[Sequence[str]],
) -> None:
    """A table with lines where it fits, else without, else with its widest text folded at words, else a block a row: never words cut into pieces."""
    number = len(names)
    boxed = sum(widths) + 3 * number + 1 <= console.width
    plain = sum(widths) + 2 * (number - 1)
    folds = not boxed and plain > console.width
    texts = [at for at in range(number) if not right[at]]
    widest = max(texts, key=lambda at: widths[at], default=None)
    left = console.width - (plain - (0 if widest is None else widths[widest]))
    if folds and (widest is None or left < max(LEAST_TEXT, _longest_word(cells, widest))):
        _blocks(console, title, names, cells)
        return
    table = Table(
        title=Text(title, style="bold"),
        title_justify="left",
        header_style="bold",
        box=HEAVY_HEAD if boxed else None,
        padding=(0, 1) if boxed else (0, 2, 0, 0),
        pad_edge=boxed,
    )
    for at, (name, figures) in enumerate(zip(names, right, strict=True)):
        folded = folds and at == widest
        table.add_column(
            Text(name),
            justify="right" if figures else "left",
            overflow="fold",
            no_wrap=not folded,
            width=left if folded else None,
        )
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)
    console.print()


def _longest_word(cells: Sequence[Sequence[str]], column: int) -> int:
    return max((len(word) for row in cells for word in row[column].split()), default=0)


def _blocks(console: Console, title: str, names: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Each row as lines of ``name  value``, long values folded under themselves."""
    console.print(Text(title, style="bold"))
    head = max(map(len, names)) + 2
    for row in cells:
        for name, value in zip(names, row, strict=True):
            folded = textwrap.wrap(value, max(20, console.width - head - 1), break_on_hyphens=False) or [""]
            for at, line in enumerate(folded):
                console.print(Text(f"{name if at == 0 else '':<{head}}{line}"), soft_wrap=True)
        console.print()
