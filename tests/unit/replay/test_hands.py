"""Who works on pieces comes after live work, also where Linux shares processors between login sessions."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from turnledger.replay.hands import AUTOGROUP, NICE

POLITE = """
import os
from turnledger.replay.hands import AUTOGROUP, polite
polite()
print(getattr(os, "sched_getscheduler", lambda pid: None)(0), os.nice(0), AUTOGROUP.read_text().split()[-1] if AUTOGROUP.exists() else "")
"""


@pytest.mark.parametrize("idle", [True, False])
def test_such_a_process_comes_after_the_others(idle: bool) -> None:
    said = subprocess.run(
        [sys.executable, "-c", POLITE],
        env=os.environ | {"TURNLEDGER_REBUILD_IDLE": str(idle)},
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
    ).stdout.split()
    policy = None if sys.platform != "linux" else os.SCHED_IDLE if idle else os.SCHED_OTHER
    assert said == [str(policy)] + [str(NICE)] * (2 if AUTOGROUP.exists() else 1)
