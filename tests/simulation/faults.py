"""The schedule of faults of one seed: what strikes when, said in words, the same for the same seed."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import psycopg

ERRORS: dict[str, type[psycopg.Error]] = {
    "deadlock": psycopg.errors.DeadlockDetected,
    "disk full": psycopg.errors.DiskFull,
    "serialization failure": psycopg.errors.SerializationFailure,
    "read only": psycopg.errors.ReadOnlySqlTransaction,
    "lock timeout": psycopg.errors.LockNotAvailable,
}


@dataclass(frozen=True)
class Timed:
    """Something that happens at an instant (virtual seconds)."""

    at: float
    kind: str
    """``crash`` ``freeze`` ``rebalance`` ``database away`` ``broker away`` ``clock jump`` ``retention`` ``leave`` ``join``."""
    amount: float = 0.0
    """Seconds it lasts, or by which a clock jumps."""
    which: int = 0
    """Worker, counted over those that run."""

    def __str__(self) -> str:
        return f"at {self.at:.2f} s: {self.kind} (worker {self.which}, {self.amount:g} s)"


@dataclass(frozen=True)
class Struck:
    """Something that happens at the n-th statement, or the n-th commit of a kind."""

    place: str
    """``statement``, or the kind of a transaction: ``data`` ``claim`` ``rollup``."""
    ordinal: int
    action: tuple[Any, ...]

    @property
    def kind(self) -> str:
        action = self.action
        name = (
            next((n for n, e in ERRORS.items() if e is action[1]), "") if action[0] == "error" else action[0]
        )
        return f"{name} at a {self.place if self.place == 'statement' else f'{self.place} commit'}"

    def __str__(self) -> str:
        amount = self.action[1] if len(self.action) > 1 and isinstance(self.action[1], float) else None
        return f"{self.kind}, the {self.ordinal}th" + (f" ({amount:g} s)" if amount is not None else "")


@dataclass(frozen=True)
class Plan:
    """All faults of one run, and how long traffic comes."""

    seconds: float
    timed: tuple[Timed, ...]
    struck: tuple[Struck, ...]

    def lines(self) -> list[str]:
        return [*map(str, self.timed), *map(str, self.struck)]


COMMITS = ("lost before", "lost after", "late", "kill before", "kill after", "freeze before", "freeze after")


def _timed(dice: random.Random, seconds: float) -> Timed:
    kind = dice.choice(
        (
            "crash",
            "crash",
            "freeze",
            "freeze",
            "rebalance",
            "database away",
            "broker away",
            "clock jump",
            "retention",
            "leave",
            "join",
        )
    )
    amount = {
        "crash": lambda: dice.choice((0.0, 1.0, 6.0)),
        "freeze": lambda: dice.choice((0.5, 4.0, 12.0, 20.0)),
        "database away": lambda: dice.choice((0.2, 2.0, 9.0)),
        "broker away": lambda: dice.choice((0.5, 5.0)),
        "clock jump": lambda: dice.choice((-86_400.0, -3600.0, -40.0, 40.0, 3600.0, 86_400.0, 200_000.0)),
    }.get(kind, lambda: 0.0)()
    return Timed(round(dice.random() * seconds, 3), kind, amount, dice.randrange(3))


def _struck(dice: random.Random) -> Struck:
    if dice.random() < 0.45:
        place = dice.choice(("data", "data", "data", "claim", "rollup"))
        greatest = {"data": 25, "claim": 6, "rollup": 12}[place]
        return Struck(
            place,
            dice.randrange(1, greatest + 1),
            (dice.choice(COMMITS), dice.choice((0.01, 1.5, 6.0, 14.0))),
        )
    action: tuple[Any, ...]
    match dice.choice(("pause", "pause", "cut", "error", "kill", "freeze")):
        case "pause":
            action = ("pause", dice.choice((0.01, 0.5, 3.0)))
        case "error":
            action = ("error", ERRORS[dice.choice(list(ERRORS))])
        case "kill":
            action = ("kill", dice.choice((0.0, 4.0)))
        case "freeze":
            action = ("freeze", dice.choice((2.0, 12.0, 20.0)))
        case _:
            action = ("cut",)
    return Struck("statement", dice.randrange(1, 350), action)


def plan(dice: random.Random) -> Plan:
    """A schedule: most runs have a few faults, some many, one in ten none at all."""
    seconds = dice.choice((2.0, 6.0, 15.0))
    count = dice.choice((0, 1, 2, 3, 4, 5, 6, 8, 12, 20))
    timed: list[Timed] = []
    struck: dict[tuple[str, int], Struck] = {}
    for _ in range(count):
        if dice.random() < 0.45:
            timed.append(_timed(dice, seconds + 2.0))
        else:
            one = _struck(dice)
            struck.setdefault((one.place, one.ordinal), one)
    return Plan(
        seconds,
        tuple(sorted(timed, key=lambda one: one.at)),
        tuple(sorted(struck.values(), key=lambda one: (one.place, one.ordinal))),
    )


class Struckoff:
    """Counts statements and commits, and tells which fault strikes at the next one."""

    def __init__(self, plan: Plan) -> None:
        self._waiting = {(one.place, one.ordinal): one for one in plan.struck}
        self._counted: dict[str, int] = defaultdict(int)
        self.happened: Counter[str] = Counter()
        self.over = False

    def next(self, place: str) -> Struck | None:
        if self.over:
            return None
        self._counted[place] += 1
        found = self._waiting.pop((place, self._counted[place]), None)
        if found is not None:
            self.happened[found.kind] += 1
        return found
