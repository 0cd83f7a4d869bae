"""Who runs a command: kept with what it changes."""

from __future__ import annotations

import getpass
import os
import socket


def person() -> str:
    """Who runs this: user and host."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
