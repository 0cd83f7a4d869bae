"""A share of the campaign of ``shipping``: each kind of point once, into a file."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.fault.shipping import POINTS
from tests.stack.servers import ROOT

SEEDS = int(os.environ.get("TURNLEDGER_SHIP_KILLS", str(len(POINTS))))


@pytest.mark.timeout(120 + 30 * SEEDS)
def test_what_files_hold_has_arrived_wherever_ship_was_killed() -> None:
    """In a process of its own: it forks, and has no threads and no databases open then."""
    command = [
        sys.executable,
        "-m",
        "tests.fault.shipping",
        "--first",
        "1000",
        "--seeds",
        str(SEEDS),
        "--kafka",
        "0",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"kill -9 at {2 * SEEDS} seeded points" in done.stdout
