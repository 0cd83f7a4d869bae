"""Processes that outlive us, told apart from strangers: a process is its id *and* its start, since ids are used again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Process:
    """A process that we started. ``started`` is opaque: equal text means the same life of the same id."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The running process ``pid``, or ``None`` when there is none (a zombie is none)."""
        started = _start_of(pid)
        return None if started is None else cls(pid, started)

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Process | None:
        """What :meth:`to_json` wrote; ``None`` for ``None``."""
        return None if value is None else cls(int(value["pid"]), str(value["started"]))

    def to_json(self) -> dict[str, Any]:
        """``{"pid", "started"}``."""
        return {"pid": self.pid, "started": self.started}

    def alive(self) -> bool:
        """Whether it still runs: the id is taken, and by the same life."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)  # reap it if it was our child: a zombie keeps its id
        return _start_of(self.pid) == self.started

    def kill9(self) -> None:
        """SIGKILL, and wait until it is gone. Nothing happens when it is gone already."""
        self._signal(signal.SIGKILL)
        if not wait_until(lambda: not self.alive(), seconds=10):
            raise TimeoutError(f"process {self.pid} did not end within 10 s of SIGKILL")

    def stop(self, *, with_signal: int = signal.SIGTERM, seconds: float = 30) -> None:
        """``with_signal``, then SIGKILL after ``seconds``."""
        self._signal(with_signal)
        if not wait_until(lambda: not self.alive(), seconds=seconds):
            self.kill9()

    def suspend(self) -> None:
        """SIGSTOP: a frozen process, for fault tests."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def wait_until(condition: Callable[[], bool], *, seconds: float) -> bool:
    """Whether ``condition`` came true within ``seconds``."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_SECONDS)
    return True


def working_in(folder: Path) -> list[Process]:
    """Running processes whose working directory is ``folder`` (Linux; elsewhere none are found)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(entry / "cwd")) == folder:
                process = Process.of(int(entry.name))
                if process is not None:
                    found.append(process)
    return found


def _start_of(pid: int) -> str | None:
    if sys.platform != "linux":
        return _start_by_ps(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    if fields[0] in "ZX":
        return None
    # Ticks count from boot, so a life is known by both.
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{fields[19]}"


def _start_by_ps(pid: int) -> str | None:
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split()
    return None if not answer or answer[0].startswith("Z") else " ".join(answer[1:])
