"""Owns the disk that a spool keeps for the moment when there is no other: a file of zeros beside it, let go of when what was sent must be taken out.

Taking rows out of a database takes room first: its log has to go back into its file. A spool that had filled its disk could never be emptied.
"""

from __future__ import annotations

import os
from pathlib import Path

RESERVE_BYTES = 4 * 1024 * 1024
"""As much as the log of a spool can hold (``WAL_LIMIT`` in ``harness.spool`` and the greatest event twice), which its file may have to grow by."""


class Reserve:
    """A file of :data:`RESERVE_BYTES`. On a file system that compresses or copies on write it promises less."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.held = False
        self.take()

    def take(self) -> bool:
        """Hold it, unless the disk has no room: whether it is held now."""
        if not self.held:
            try:
                file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError:
                return False
            try:
                os.posix_fallocate(file, 0, RESERVE_BYTES)
                self.held = True
            except OSError:
                os.ftruncate(file, 0)
            finally:
                os.close(file)
        return self.held

    def let_go(self) -> bool:
        """Give the room to the spool: whether there was some to give."""
        if not self.held:
            return False
        os.truncate(self._path, 0)
        self.held = False
        return True

    def remove(self) -> None:
        """A spool that nobody has open keeps nothing."""
        self.held = False
        self._path.unlink(missing_ok=True)
