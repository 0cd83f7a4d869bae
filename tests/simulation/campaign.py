"""One seed as a value that a process can give to another, and how a seed that breaks something is told."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.mistakes import MISTAKES
from tests.simulation.oracle import digest
from tests.simulation.world import Variant, World, play

SHOWN_LINES = 40


@dataclass
class Outcome:
    """What became of one seed."""

    seed: int
    faults: list[tuple[str, str]]
    schedule: list[str]
    history: list[str]
    digest: str
    counts: Counter[str] = field(default_factory=Counter)


def outcome_of(task: tuple[int, str | None]) -> Outcome:
    seed, mistake = task
    world = play(seed, MISTAKES[mistake] if mistake is not None else Variant())
    return Outcome(
        seed, world.server.faults, world.plan.lines(), world.notes, digest(world.server), _counts(world)
    )


def _counts(world: World) -> Counter[str]:
    counts: Counter[str] = Counter()
    for group, found in (
        ("fault", world.happened + world.struckoff.happened),
        ("checked", world.oracle.checked if world.oracle is not None else Counter[str]()),
        ("traffic", Counter(world.traffic.counts)),
    ):
        for name, count in found.items():
            counts[f"{group}: {name}"] += count
    counts["run: records"] += len(world.broker.everything)
    counts["run: commits"] += world.server.commits
    counts["run: workers"] += len(world.workers)
    counts["run: batches under an older lease"] += sum(w.consumer.stale_deliveries for w in world.workers)
    counts["run: virtual seconds"] += round(world.loop.time())
    return counts


def tell(outcome: Outcome, mistake: str | None, lines: int) -> None:
    again = f"make simulate SEED={outcome.seed}" + (f' ARGS="--mistake {mistake!r}"' if mistake else "")
    print(f"seed {outcome.seed} breaks what must hold. Again, with its whole history: {again}")
    for rule, what in outcome.faults[:5]:
        print(f"  {rule}: {what[:600]}")
    print("  schedule of faults:")
    for line in outcome.schedule or ["none"]:
        print(f"    {line}")
    print(f"  history (seconds, what){'' if lines > len(outcome.history) else f', the last {lines}'}:")
    for line in outcome.history[-lines:]:
        print(f"    {line[:220]}")
    sys.stdout.flush()
