"""The simulator: thousands of seeds hold, mistakes made on purpose are found, a seed is one history."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SEEDS = int(os.environ.get("TURNLEDGER_SIMULATION_SEEDS", "2000"))


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.timeout(1800)
def test_every_seed_keeps_the_invariants() -> None:
    run = simulate("--seeds", str(SEEDS))
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
    assert sum(map(int, re.findall(r"^(\d+) seeds from", run.stdout, re.M))) == SEEDS


@pytest.mark.parametrize(
    ("mistake", "within", "rules"),
    [
        ("forgets the fence", 300, {"I1", "I2", "I3", "one writer a session"}),
        ("acknowledges before the commit", 60, {"I1", "I2", "I3", "I9 lag returns to 0"}),
        ("adds instead of setting", 10, {"I5"}),
        ("compares clocks", 10, {"I1"}),
        ("drops a late event", 20, {"I1"}),
    ],
)
def test_a_mistake_made_on_purpose_is_found(mistake: str, within: int, rules: set[str]) -> None:
    run = simulate("--mistake", mistake, "--seeds", str(within))
    found = re.search(r"^found after (\d+) seeds: (.*)$", run.stdout, re.M)
    assert run.returncode == 1 and found is not None, run.stdout[-3000:] + run.stderr[-2000:]
    assert int(found[1]) <= within
    assert found[2] in rules
    assert "schedule of faults" in run.stdout


def test_a_seed_is_one_history() -> None:
    runs = [simulate("--seed", "17") for _ in range(2)]
    assert runs[0].returncode == 0, runs[0].stdout
    assert "the faults are over" in runs[0].stdout
    assert runs[0].stdout == runs[1].stdout


def test_a_seed_that_breaks_something_breaks_it_again() -> None:
    found = simulate("--mistake", "compares clocks", "--seeds", "10")
    seed = re.search(r"^seed (\d+) breaks what must hold", found.stdout, re.M)
    assert seed is not None, found.stdout
    again = simulate("--mistake", "compares clocks", "--seed", seed[1])
    assert again.returncode == 1
    first_fault = found.stdout.splitlines()[1]
    assert first_fault.startswith("  I1: ") and first_fault in again.stdout


def test_a_campaign_goes_on_where_it_ended(tmp_path: Path) -> None:
    counts = tmp_path / "counts.json"
    first = simulate("--seeds", "2", "--json", str(counts))
    assert first.returncode == 0, first.stdout + first.stderr
    again = simulate("--seeds", "3", "--resume", "--json", str(counts))
    assert again.returncode == 0, again.stdout + again.stderr
    assert re.findall(r"^(\d+) seeds from (\d+) in", again.stdout, re.M) == [("1", "2")]
    whole = simulate("--seeds", "3", "--json", str(tmp_path / "whole.json"))
    assert whole.returncode == 0, whole.stdout + whole.stderr
    found, wanted = (json.loads(file.read_text()) for file in (counts, tmp_path / "whole.json"))
    assert (found["seeds"], found["broken"]) == (3, [])
    assert found["counts"] == wanted["counts"]
