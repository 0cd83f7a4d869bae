"""How one line of a ledger's text is fitted to a terminal: control characters never, wide characters counted, colours only where they are wanted."""

from __future__ import annotations

import os
import shutil
from functools import cache
from typing import IO, Any

from rich.cells import cell_len, chop_cells
from rich.color import ColorSystem
from rich.style import Style

from turnledger.doctor.tables import UNKNOWN, safe

PIPED_COLUMNS = 120
"""Columns of a line where no terminal and no ``COLUMNS`` say how many there are."""
LEAST_COLUMNS = 40
"""A narrower line would tell nothing."""
ELLIPSIS = "…"


def one_line(value: object) -> str:
    """Text of any shape as one line that moves no cursor: white space is one space, what cannot be printed is spelt out."""
    return UNKNOWN if value is None else safe(" ".join(str(value).split()))


def fit(text: str, columns: int) -> str:
    """The beginning of a line in at most so many columns, with a mark where something is left out."""
    columns = max(columns, 1)
    if len(text) <= columns and (text.isascii() or cell_len(text) <= columns):
        return text
    cut = text[: columns - 1]
    if not cut.isascii():
        cut = chop_cells(cut, columns - 1)[0] if cut and columns > 1 else ""
    return cut.rstrip() + ELLIPSIS


def begin(value: object, columns: int) -> str:
    """``fit(one_line(value), columns)``, without reading a long text to its end."""
    if isinstance(value, str) and len(value) > 8 * columns + 1000:
        value = value[: 8 * columns + 1000]
    return fit(one_line(value), columns)


@cache
def _style(name: str) -> Style:
    return Style.parse(name)


class Page:
    """Lines for a person: ``columns`` wide, coloured where ``out`` is a terminal that wants it."""

    def __init__(self, out: IO[str], *, columns: int | None = None, colours: bool | None = None) -> None:
        self.out = out
        self.colours = wants_colours(out) if colours is None else colours
        given = shutil.get_terminal_size((PIPED_COLUMNS, 24)).columns if columns is None else columns
        self.columns = max(given, LEAST_COLUMNS)

    def paint(self, text: str, style: str) -> str:
        """``text``, which must be safe already, in a style of rich's."""
        if not self.colours or not text:
            return text
        return _style(style).render(text, color_system=ColorSystem.STANDARD)

    def write(self, line: str = "") -> None:
        """One line whose parts are safe already."""
        self.out.write(line + "\n")


def wants_colours(out: Any) -> bool:
    """A terminal, no ``NO_COLOR``, and one that is not ``dumb``."""
    return bool(out.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
