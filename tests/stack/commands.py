"""`turnledger` as a process: run to its end, or started and killed by its id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.stack.servers import ROOT, environment_without_addresses

COMMAND = [sys.executable, "-c", "from turnledger.cli import main; main()"]
"""The console script of the environment that runs the tests, also where it is not on the PATH."""


class Running:
    """A command that runs. Its output goes to a file, so that nothing blocks when nobody reads it."""

    def __init__(self, arguments: tuple[str, ...], environment: Mapping[str, str], log: Path) -> None:
        self.arguments, self.log = arguments, log
        with log.open("ab") as file:
            self.popen = subprocess.Popen(
                [*COMMAND, *arguments],
                env=environment_without_addresses() | {"PYTHONUNBUFFERED": "1"} | dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def running(self) -> bool:
        return self.popen.poll() is None

    def output(self) -> str:
        """What it said so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def kill9(self) -> None:
        """SIGKILL, and wait for its end."""
        self.popen.kill()
        self.popen.wait(timeout=10)

    def suspend(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self, *, seconds: float = 30) -> int:
        """SIGTERM; its exit status. It is an error when it takes longer than ``seconds``."""
        self.popen.terminate()
        return self.popen.wait(timeout=seconds)

    def wait(self, *, seconds: float = 60) -> int:
        """Its exit status, once it ended by itself."""
        return self.popen.wait(timeout=seconds)


def run(
    *arguments: str, environment: Mapping[str, str], stdin: bytes = b"", seconds: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; ``stdout`` and ``stderr`` are text."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=environment_without_addresses() | dict(environment),
        input=stdin,
        capture_output=True,
        cwd=ROOT,
        timeout=seconds,
        check=False,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    )


def eventually(condition: Callable[[], object], *, seconds: float = 60, what: str = "the condition") -> None:
    """Wait until ``condition`` answers something true; fail with ``what`` after ``seconds``."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what} did not hold within {seconds} s"
        time.sleep(0.05)
