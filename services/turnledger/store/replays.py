"""Replays of topics as the ledger keeps them: what was asked for, by whom, and how far each partition has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from turnledger.store.named import query

Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a replay reads: as typed, so that the same command means the same replay."""

    topic: str
    start: str
    end: str
    partitions: tuple[int, ...]
    """Ascending; empty for all."""
    tenant: str | None
    session_id: str | None

    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"partitions": list(self.partitions)}


@dataclass(frozen=True, slots=True)
class Begun:
    """A replay that has begun and not ended."""

    replay_no: int
    started_by: str
    started_at: datetime
    ranges: dict[int, tuple[int, int, int]]
    """(from, to, next offset) of each partition's second reading."""


def unfinished(connection: Connection, asked: Asked) -> Begun | None:
    """The latest replay of the same command that has not ended."""
    rows = connection.execute(query("replay_topics/unfinished"), asked.values()).fetchall()
    if not rows:
        return None
    number, by, at = rows[0][:3]
    return Begun(number, by, at, {row[3]: (row[4], row[5], row[6]) for row in rows if row[3] is not None})


def begin(connection: Connection, asked: Asked, ranges: Mapping[int, tuple[int, int]], *, by: str) -> Begun:
    """A new replay."""
    with connection.transaction():
        row = connection.execute(query("replay_topics/begin"), {**asked.values(), "by": by}).fetchone()
        assert row is not None
        numbers = sorted(ranges)
        connection.execute(
            query("replay_topics/partitions"),
            {
                "replay_no": row[0],
                "partitions": numbers,
                "starts": [ranges[number][0] for number in numbers],
                "ends": [ranges[number][1] for number in numbers],
            },
        )
    return Begun(row[0], by, row[1], {n: (ranges[n][0], ranges[n][1], ranges[n][0]) for n in numbers})


def reached(
    connection: Connection, replay_no: int, partition: int, next_offset: int, counts: Mapping[str, int]
) -> None:
    """A partition has come so far; ``counts`` are added to its own."""
    connection.execute(
        query("replay_topics/reached"),
        {"replay_no": replay_no, "partition": partition, "next_offset": next_offset, **counts},
    )


def sums(connection: Connection, replay_no: int, names: Sequence[str]) -> dict[str, int]:
    """Counts of all partitions together."""
    row = connection.execute(query("replay_topics/sums"), {"replay_no": replay_no}).fetchone()
    assert row is not None
    return dict(zip(names, row, strict=True))


def finish(connection: Connection, replay_no: int) -> None:
    connection.execute(query("replay_topics/finish"), {"replay_no": replay_no})


def hold(connection: Connection, replay_no: int) -> bool:
    """Whether this connection alone works on the replay from now on, until it is closed."""
    row = connection.execute(query("replay_topics/hold"), {"replay_no": replay_no}).fetchone()
    return bool(row and row[0])


def standings(connection: Connection, topic: str) -> list[tuple[int, int, int, str, str | None, bool, bool]]:
    """(partition, first offset, next offset, group, owner, whether its database process is there, whether projections
    are still to be written) of a topic."""
    return connection.execute(query("replay_topics/standings"), {"topic": topic}).fetchall()
