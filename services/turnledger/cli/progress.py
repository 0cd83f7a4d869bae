"""Progress on standard error while a terminal watches; nothing anywhere else, so that output stays what it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Told(Protocol):
    """Says how far the work is; of other things than at first where it names them."""

    def __call__(self, count: int, nouns: str | None = None, /) -> None: ...


@contextmanager
def counting(verb: str, nouns: str) -> Iterator[Told]:
    """``told(n)`` shows ``verb n nouns`` with a spinner, for work whose end is not known."""
    if not sys.stderr.isatty():
        yield lambda _count, _nouns=None: None
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{verb} 0 {nouns}") as status:
        yield lambda count, others=None: status.update(f"{verb} {count:,} {others or nouns}")


@contextmanager
def barred(nouns: str) -> Iterator[Callable[[int, int], None]]:
    """``told(done, total)`` moves a bar with the rate and the time left, for work whose end becomes known when it has begun."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        MofNCompleteColumn(),
        TextColumn(f"{nouns}, {{task.fields[rate]}}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, rate="")

        def told(done: int, total: int) -> None:
            speed = bar.tasks[0].speed
            bar.update(task, completed=done, total=total, rate="" if speed is None else f"{speed:,.0f}/s")

        yield told
