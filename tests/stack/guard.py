"""Ends the stack of a test run that was killed: waits until the pipe from the run closes, then stops what is left."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from turnledger.devstack import Stack


def main() -> None:
    """``python -m tests.stack.guard FOLDER``: the folder holds the stack's state folder ``state``."""
    folder = Path(sys.argv[1])
    sys.stdin.buffer.read()
    if folder.exists():
        Stack(folder / "state").down(remove=True)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
