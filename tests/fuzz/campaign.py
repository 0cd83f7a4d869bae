"""`python -m tests.fuzz.campaign MUTATIONS [FIRST_SEED]`: damages every format's fixtures and judges what the readers make of them.

A failure names its seed; ``python -m tests.fuzz.campaign 1 SEED`` shows it again.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.fixtures.harness import goldens
from tests.fuzz.judge import judge
from tests.fuzz.mutations import mutate

THOROUGH = 10
"""One in so many is folded and read twice."""


@dataclass
class Outcome:
    """What a campaign met."""

    mutations: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By format and kind of damage."""
    failures: list[str] = field(default_factory=list)


def run(mutations: int, first: int = 0) -> Outcome:
    """So many mutations, one a seed, over all fixtures in turn."""
    outcome = Outcome()
    for seed in range(first, first + mutations):
        rng = random.Random(seed)
        name = goldens.FILES[seed % len(goldens.FILES)]
        mutation = mutate(name, rng)
        outcome.mutations[name.split("/")[0], mutation.kind] += 1
        try:
            wrong = judge(mutation, thorough=seed % THOROUGH == 0)
        except Exception as error:  # whatever it is, it would reach the user: that is the finding
            wrong = [f"{type(error).__name__}: {error}"]
        outcome.failures += [f"seed {seed}, {name}, {mutation.kind}: {each}" for each in wrong[:3]]
    return outcome


def main(arguments: list[str]) -> int:
    """Run, print the table, and fail when a reader did."""
    mutations = int(arguments[0]) if arguments else 100_000
    first = int(arguments[1]) if len(arguments) > 1 else 0
    began = time.monotonic()
    outcome = run(mutations, first)
    formats = sorted({each for each, _ in outcome.mutations})
    kinds = sorted({kind for _, kind in outcome.mutations})
    print(f"| format | {' | '.join(kinds)} | all |")
    print("|---" * (len(kinds) + 2) + "|")
    for each in formats:
        counts = [outcome.mutations[each, kind] for kind in kinds]
        print(f"| {each} | {' | '.join(f'{count:,}' for count in counts)} | {sum(counts):,} |")
    print(
        f"\n{mutations:,} mutations from seed {first:,}: {len(outcome.failures)} failures, {time.monotonic() - began:.0f} s"
    )
    for failure in outcome.failures[:50]:
        print(failure[:400])
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
