"""The simulator: thousands of seeds hold, mistakes made on purpose are found, a seed is one history."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

SEEDS = int(os.environ.get("TURNLEDGER_SIMULATION_SEEDS", "2000"))


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments], capture_output=True, text=True, check=False
    )


def test_every_seed_keeps_the_invariants() -> None:
    run = simulate("--seeds", str(SEEDS))
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
    assert f"{SEEDS} seeds" in run.stdout


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
