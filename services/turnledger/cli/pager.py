"""A long output on a terminal goes through the person's pager; anywhere else it goes where it goes."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO


def pager() -> list[str] | None:
    """The command of ``PAGER``, else ``less``; None where there is none, or where nobody watches."""
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        return None
    wanted = os.environ.get("PAGER")
    if wanted is None:
        return ["less"] if shutil.which("less") else None
    command = shlex.split(wanted)
    if not command or command == ["cat"] or not shutil.which(command[0]):
        return None
    return command


@contextmanager
def paged(command: list[str] | None) -> Iterator[IO[str]]:
    """Where to write. A pager that is left before the end ends the writing without a word."""
    if command is None:
        yield sys.stdout
        return
    # -F: a page that fits is just printed; -R: our colours, and nothing else that a terminal would obey; -S: a line is a line.
    environment = {"LESS": "FRSX", **os.environ}
    reader = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, encoding="utf-8", env=environment)
    assert reader.stdin is not None
    try:
        # Ctrl-C is the pager's while it is open.
        with suppress(BrokenPipeError, KeyboardInterrupt):
            yield reader.stdin
    finally:
        with suppress(BrokenPipeError):
            reader.stdin.close()
        while reader.poll() is None:
            with suppress(KeyboardInterrupt):
                reader.wait()
