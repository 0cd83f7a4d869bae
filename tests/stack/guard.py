"""Ends what a killed process of a test run left: waits until the pipe from it closes, then stops its stack and its commands."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from turnledger.devstack import Stack

MARK = "TESTS_OF"
"""The variable, inherited by all that a test starts, that names the folder of the process that began it."""


def main() -> None:
    """``python -m tests.stack.guard FOLDER``: the folder holds the stack's state folder ``state``."""
    folder = Path(sys.argv[1])
    sys.stdin.buffer.read()
    if folder.exists():
        Stack(folder / "state").down(remove=True)
        for left in marked(folder):
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()
        shutil.rmtree(folder, ignore_errors=True)


def marked(folder: Path) -> Iterator[psutil.Process]:
    """The processes that bear the mark of ``folder``, as far as we may look."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == str(folder):
                yield process


if __name__ == "__main__":
    main()
