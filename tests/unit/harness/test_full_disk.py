"""A disk that is really full: what was taken goes when the sink is there, what was not is declared to the number, or refused, as was asked for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.stack.servers import ROOT
from tests.unit.harness.full_disk import command


def on_a_full_disk(folder: Path, policy: str) -> dict[str, Any]:
    done = subprocess.run(
        command(folder, policy), capture_output=True, text=True, cwd=ROOT, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_what_a_full_disk_drops_is_declared_and_the_rest_arrives(tmp_path: Path) -> None:
    told = on_a_full_disk(tmp_path, "drop")
    assert told["error"] is None and told["dropped"] == 50
    events = told["events"]
    # Every number once, in order; those that are not there are named by the declarations, and no other.
    numbers = [seq for seq, *_ in events]
    declared = [seq for _, _, first, last in events if first is not None for seq in range(first, last + 1)]
    assert numbers == sorted(set(numbers))
    assert sorted(numbers + declared) == list(range(numbers[-1] + 1))
    assert len(declared) == 50
    kept = [n for _, n, first, _ in events if first is None]
    assert kept[-1] == "after" and told["after"] in numbers
    assert len(kept) - 1 == told["emitted"] - 50


def test_a_full_disk_raises_a_named_error_when_told_to_and_the_rest_arrives(tmp_path: Path) -> None:
    told = on_a_full_disk(tmp_path, "raise")
    assert told["dropped"] == 0
    assert told["error"].startswith("the disk of the spool ") and told["error"].endswith("on_full='drop'")
    assert told["events"] == [
        *([n, n, None, None] for n in range(told["emitted"])),
        [told["emitted"], "after", None, None],
    ]
    # 16 KiB for each, in 9 of the 16 MB: the log of a spool once took nine tenths of its disk, and could not be emptied again.
    assert told["emitted"] > 400
