"""The two slots of projections and the rebuild that is under way: what the rows about them say (design 6)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from turnledger.errors import TurnledgerError
from turnledger.fold.version import FOLD_VERSION
from turnledger.store.named import query

Connection = psycopg.Connection[Any]

REBUILD_LOCK = "select pg_try_advisory_lock(hashtextextended('turnledger.rebuild', 0))"


class NotNow(TurnledgerError):
    """What was asked for does not fit what stands in the slots."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One slot."""

    generation: str
    """``a`` or ``b``."""
    state: str
    """``active`` ``building`` ``kept`` ``emptying`` ``empty``."""
    fold_version: int
    changed_at: datetime

    @property
    def slot(self) -> str:
        """Its schema."""
        return f"projection_{self.generation}"


@dataclass(frozen=True, slots=True)
class Rebuild:
    """The rebuild that is open."""

    rebuild_no: int
    generation: str
    fold_version: int
    tenant: str | None
    since: datetime | None
    phase: str
    """``folding``: in pieces. ``following``: what came in meanwhile. ``comparing``: piece by piece. ``ready``: to be switched to."""
    refused: int
    """Projections that Postgres would not take."""
    started_by: str
    started_at: datetime

    @property
    def slot(self) -> str:
        """Schema that is filled."""
        return f"projection_{self.generation}"

    @property
    def live(self) -> str:
        """Schema that readers see."""
        return "projection_b" if self.generation == "a" else "projection_a"


@dataclass(frozen=True, slots=True)
class Slots:
    """Both slots."""

    active: Generation
    other: Generation


def slots(connection: Connection) -> Slots:
    """What stands where. Raises :class:`NotNow` where the rows contradict each other."""
    found = [Generation(*row) for row in connection.execute(query("replay/generations"))]
    row = connection.execute(query("read/active")).fetchone()
    active = [one for one in found if row is not None and one.generation == row[0]]
    if len(found) != 2 or len(active) != 1 or active[0].state != "active":
        raise NotNow(
            "turnledger.active and ledger.generations contradict each other: restore both from one backup (no command of turnledger writes "
            "one without the other)."
        )
    return Slots(active[0], next(one for one in found if one is not active[0]))


def open_rebuild(connection: Connection) -> Rebuild | None:
    """The rebuild that was begun and neither switched to nor dropped."""
    row = connection.execute(query("replay/open")).fetchone()
    return None if row is None else Rebuild(*row)


def alone(connection: Connection) -> None:
    """Be the only one who rebuilds, switches or drops, until the connection ends. Raises :class:`NotNow`."""
    row = connection.execute(REBUILD_LOCK).fetchone()
    if row is None or not row[0]:
        there = open_rebuild(connection)
        what = (
            "another `turnledger replay` is at work"
            if there is None
            else f"the rebuild of generation {there.generation}, begun by {there.started_by} at {there.started_at:%Y-%m-%d %H:%M} UTC, is being "
            "worked on by another process"
        )
        raise NotNow(f"{what}: wait for it, or end it first (`turnledger replay status` says how far it is).")


def same_fold(generation: str, fold_version: int) -> None:
    """Raises :class:`NotNow` where this program folds otherwise than a generation was filled."""
    if fold_version != FOLD_VERSION:
        raise NotNow(
            f"generation {generation} is of fold version {fold_version}, this program folds version {FOLD_VERSION}: run the program of version "
            f"{fold_version}, or give the generation up with `turnledger replay drop`."
        )


def yielding(connection: Connection) -> None:
    """Whoever rebuilds has as many processes as were asked for: the server starts no more of them beside live work."""
    connection.execute("set max_parallel_workers_per_gather = 0")
