"""Small things about files that the whole room needs: locks between processes, files written whole, free ports."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PORTS = range(20_000, 32_000)
"""Below the range from which systems take the ports of outgoing connections, so that a server that is down for a
moment finds its port free again."""


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; the lock goes with the process that holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_whole(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write ``text`` so that a reader sees the old file or the new one."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.touch(mode=mode)
    new.chmod(mode)
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    for port in random.sample(PORTS, len(PORTS)):
        if not port_taken(port):
            return port
    raise OSError(f"no free port between {PORTS.start} and {PORTS.stop}")


def port_taken(port: int) -> bool:
    """Whether somebody listens on the loopback ``port``."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a closed link may linger
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def keep_or_change(port: int | None, owner: str, say: Callable[[str], None]) -> int:
    """The port that ``owner`` had before, when it is free or becomes free at once; else another, said aloud."""
    if port is None:
        return free_port()
    end = time.monotonic() + 5  # a server that was killed a moment ago may still hold it
    while port_taken(port):
        if time.monotonic() > end:
            say(f"port {port} is taken by another program now; {owner} gets another one")
            return free_port()
        time.sleep(0.05)
    return port


def tail(path: Path, lines: int = 5) -> str:
    """The last ``lines`` of a log, in one line and cut, for the sentence that says why a process ended."""
    try:
        text = path.read_bytes()[-20_000:].decode(errors="replace")
    except OSError:
        return "no log was written"
    said = [line.strip()[:300] for line in text.splitlines() if line.strip()]
    return " | ".join(said[-lines:]) or "the log is empty"
