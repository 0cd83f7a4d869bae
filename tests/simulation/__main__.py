"""``python -m tests.simulation``: many seeds, or one again with its whole history. What ``make simulate`` runs."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.simulation.campaign import SHOWN_LINES, outcome_of, tell
from tests.simulation.mistakes import MISTAKES
from tests.simulation.page import renew

PORTION = 1000
"""Seeds after which a campaign says how far it is."""


def main() -> int:
    """Exit status 0: everything holds; 1: a seed breaks something."""
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone, with its whole history")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--mistake", choices=sorted(MISTAKES), help="with a mistake made on purpose")
    parser.add_argument("--json", type=Path, help="add the counts to this file, after every thousand seeds")
    parser.add_argument(
        "--resume", action="store_true", help="go on behind the seeds that the file of --json counts"
    )
    parser.add_argument("--page", type=Path, help="put the counts of --json into this page in the end")
    parser.add_argument("--beside", default="two quiet cores", help="what the page says of the machine")
    given = parser.parse_args()
    if given.page is not None and given.json is None:
        parser.error("--page takes its counts from --json: name a file there")
    if given.seed is not None:
        outcome = outcome_of((given.seed, given.mistake))
        if outcome.faults:
            tell(outcome, given.mistake, sys.maxsize)
        else:
            print("\n".join([*outcome.schedule, *outcome.history]))
            print(f"seed {given.seed} holds")
        print(f"state {outcome.digest}")
        return 1 if outcome.faults else 0
    if given.mistake is not None:
        return _campaign(given, given.first, given.seeds)
    last = given.first + given.seeds
    first = given.first + (_known(given.json).get("seeds", 0) if given.resume else 0)
    status = 0
    for start in range(first, last, PORTION):
        status |= _campaign(given, start, min(PORTION, last - start))
    if given.page is not None:
        renew(given.page, _known(given.json), given.beside)
    return status


def _campaign(given: argparse.Namespace, first: int, count: int) -> int:
    began = time.monotonic()
    counts: Counter[str] = Counter()
    broken: list[int] = []
    tasks = [(seed, given.mistake) for seed in range(first, first + count)]
    with get_context("spawn").Pool(given.jobs) as pool:
        for done, outcome in enumerate(pool.imap(outcome_of, tasks, chunksize=5 if given.mistake else 20), 1):
            counts += outcome.counts
            if outcome.faults:
                broken.append(outcome.seed)
                if len(broken) <= 3:
                    tell(outcome, given.mistake, SHOWN_LINES)
                if given.mistake is not None:
                    print(f"found after {done} seeds: {outcome.faults[0][0]}")
                    pool.terminate()
                    break
    took = time.monotonic() - began
    seeds = len(tasks) if given.mistake is None else done
    print(
        f"{seeds} seeds from {first} in {took:.0f} s: {counts['run: records']} records, {counts['run: commits']} commits, "
        f"{sum(count for name, count in counts.items() if name.startswith('fault: '))} faults; "
        f"{f'{len(broken)} break something: {broken[:20]}' if broken else 'everything holds'}"
    )
    sys.stdout.flush()
    if given.json is not None:
        _add(given.json, seeds, took, broken, counts)
    return 1 if broken else 0


def _known(path: Path | None) -> dict[str, Any]:
    return json.loads(path.read_text()) if path is not None and path.exists() else {}


def _add(path: Path, seeds: int, took: float, broken: list[int], counts: Counter[str]) -> None:
    known = _known(path)
    summed = Counter(known.get("counts", {})) + counts
    document = {
        "seeds": known.get("seeds", 0) + seeds,
        "seconds": round(known.get("seconds", 0) + took),
        "broken": known.get("broken", []) + broken,
        "counts": dict(sorted(summed.items())),
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of texts have one order then, in this process and those that it starts: a seed is one history.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    sys.exit(main())
