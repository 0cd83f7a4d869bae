"""What a killed process of a test run leaves is ended, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stack.guard import MARK
from tests.stack.servers import ROOT

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.mark.parametrize("killed", [True, False])
def test_the_guard_ends_the_commands_of_a_process_that_was_killed(tmp_path: Path, killed: bool) -> None:
    ours, stranger = tmp_path / "ours", tmp_path / "stranger"
    ours.mkdir()
    left, other = (
        subprocess.Popen(SLEEP, env=os.environ | {MARK: str(folder)}) for folder in (ours, stranger)
    )
    try:
        if not killed:
            ours.rmdir()  # whoever ends by itself deletes its folder
        guard = [sys.executable, "-m", "tests.stack.guard", str(ours)]
        subprocess.run(guard, stdin=subprocess.DEVNULL, cwd=ROOT, check=True)
        if killed:
            assert left.wait(timeout=30) != 0
        assert (left.poll() is None, other.poll()) == (not killed, None)
        assert not ours.exists()
    finally:
        for process in (left, other):
            process.kill()
            process.wait()
