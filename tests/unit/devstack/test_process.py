"""A process is its id and its start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from turnledger.devstack.process import Process, working_in

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
DEAF = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)",
]


def started(command: list[str], **options: object) -> tuple[subprocess.Popen[bytes], Process]:
    child = subprocess.Popen(command, **options)  # type: ignore[call-overload]
    process = Process.of(child.pid)
    assert process is not None
    return child, process


def test_it_survives_the_state_file() -> None:
    me = Process.of(os.getpid())
    assert me is not None
    assert Process.from_json(me.to_json()) == me
    assert me.alive()
    assert Process.from_json(None) is None


def test_a_stranger_with_the_same_id_is_another_process_and_is_never_signalled() -> None:
    child, process = started(SLEEP)
    stale = replace(process, started="another boot/1")
    assert not stale.alive()
    stale.kill9()
    stale.stop()
    assert child.poll() is None
    process.kill9()
    assert not process.alive()


def test_a_zombie_is_gone() -> None:
    child, process = started(SLEEP)
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert Process.of(child.pid) is None
    assert not process.alive()


def test_stop_kills_what_does_not_listen() -> None:
    child, process = started(DEAF, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    process.stop(seconds=0.3)
    assert not process.alive()


def test_processes_are_found_by_their_working_directory(tmp_path: Path) -> None:
    _, process = started(SLEEP, cwd=tmp_path)
    assert working_in(tmp_path) == [process]
    process.kill9()
    assert working_in(tmp_path) == []
