"""Who works on pieces comes after live work, also where Linux shares processors between login sessions."""

from __future__ import annotations

import subprocess
import sys

from turnledger.replay.hands import AUTOGROUP, NICE

POLITE = """
import os
from turnledger.replay.hands import AUTOGROUP, polite
polite()
print(os.nice(0), AUTOGROUP.read_text().split()[-1] if AUTOGROUP.exists() else "")
"""


def test_such_a_process_comes_after_the_others() -> None:
    said = subprocess.run(
        [sys.executable, "-c", POLITE], capture_output=True, text=True, check=True, start_new_session=True
    ).stdout.split()
    assert said == [str(NICE)] * (2 if AUTOGROUP.exists() else 1)
