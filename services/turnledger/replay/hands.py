"""The processes that work on the pieces of a rebuild: started as commands, tied to this one by their standard input (decision 14)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from turnledger.errors import TurnledgerError
from turnledger.replay.generation import Rebuild
from turnledger.settings import Settings

MOST = 64
LIVES = 5
"""So often a process that dies is started again, unless it had worked for a while."""
SETTLED_SECONDS = 20.0
END_SECONDS = 20.0
NICE = 15
AUTOGROUP = Path("/proc/self/autogroup")
"""Where Linux shares processors between login sessions first, priorities only count among the processes of one. A session of its own has its own there."""


class HandsFailed(TurnledgerError):
    """A process that works on pieces does not stay alive."""


class Processes:
    """``count`` processes. A context manager: at its end they end after the piece at hand."""

    def __init__(self, count: int, database_url: str, rebuild: Rebuild, *, rate: float = 0.0) -> None:
        """``rate``: events a second at most, of all of them; 0 is no limit."""
        if not 1 <= count <= MOST:
            raise TurnledgerError(
                f"--workers {count} cannot be meant: give a number from 1 to {MOST}, one a core."
            )
        self.count = count
        self.database_url = database_url
        self.rebuild = rebuild
        self.rate = rate
        self._running: list[tuple[subprocess.Popen[bytes], float]] = []
        self._deaths = 0

    def __enter__(self) -> Self:
        self._running = [self._start() for _ in range(self.count)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process, _ in self._running:
            assert process.stdin is not None
            process.stdin.close()
        until = time.monotonic() + END_SECONDS
        for process, _ in self._running:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                # A piece is one transaction: killing it leaves nothing behind.
                process.kill()
                process.wait()

    def wait(self, seconds: float) -> None:
        """Let them work. Raises :class:`HandsFailed`."""
        time.sleep(seconds)
        for at, (process, since) in enumerate(self._running):
            status = process.poll()
            if status is None:
                continue
            if time.monotonic() - since > SETTLED_SECONDS:
                self._deaths = 0
            self._deaths += 1
            if status == 2 or self._deaths > LIVES:
                raise HandsFailed(
                    f"a process of the rebuild ended with status {status}: what it said stands above. Everything done so far is kept; run the same "
                    "command again to go on."
                )
            time.sleep(0.5 * self._deaths)
            self._running[at] = self._start()

    @property
    def pids(self) -> list[int]:
        """Of those that are at work."""
        return [process.pid for process, _ in self._running]

    def _start(self) -> tuple[subprocess.Popen[bytes], float]:
        # -P: the folder it is started in is no place for modules.
        command = [sys.executable, "-P", "-m", "turnledger", "replay", "work", str(self.rebuild.rebuild_no)]
        command += ["--rate", str(self.rate / self.count)]
        environment = os.environ | {"TURNLEDGER_DATABASE_URL": self.database_url}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True)
        return process, time.monotonic()


class HandSettings(Settings):
    """How a rebuild shares processors: the environment variable ``TURNLEDGER_REBUILD_IDLE``."""

    rebuild_idle: bool = True
    """It takes only what processor time is left (Linux). False: the small share of a low priority, so that it goes on where nothing is left."""


def polite() -> bool:
    """In a process of a rebuild: it takes what processor time is left, so that whoever serves live work comes first. It costs nothing where a core is free.
    Returns whether that is all it shall take (``TURNLEDGER_REBUILD_IDLE``).

    The process that switches is not among them: while partitions stand still it must be fast. Raises :class:`TurnledgerError` for a setting that
    cannot be read.
    """
    idle = HandSettings().rebuild_idle
    os.nice(max(0, NICE - os.nice(0)))
    # No such file, or no such scheduler: then the priority counts by itself.
    with suppress(OSError):
        AUTOGROUP.write_text(str(NICE), encoding="ascii")
    if idle and sys.platform == "linux":
        # A low priority alone is left its share, and finishes its turn while live work waits: at half load that was twice the time until a turn is visible.
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    return idle


def tied() -> Callable[[float], bool]:
    """In such a process: whether the one that started it is gone or done, asked for so many seconds."""
    gone = threading.Event()

    def watch() -> None:
        while os.read(0, 64):
            pass
        gone.set()

    threading.Thread(target=watch, name="tether", daemon=True).start()
    return gone.wait
