"""The fence: who may apply a partition, and from which offset (design 3.1). Postgres owns the truth about offsets.

A claim raises the epoch of a partition; each data transaction begins with :func:`apply`, which goes through only where offset and epoch
are what its worker thinks; after an answer that was lost, :func:`judge` says from the rows what became of the transaction.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import psycopg

from turnledger.errors import TurnledgerError
from turnledger.store.named import query

CLAIM_LOCK_MS = 2000
"""How long a claim waits for the row before it takes the process that holds it for frozen (design 3.1)."""
CLAIM_ATTEMPTS = 5

Connection = psycopg.Connection[Any]


class OtherGroup(TurnledgerError):
    """Another consumer group owns the topic: two groups would steal from each other for ever."""


class RowLocked(TurnledgerError):
    """The progress row stays locked by a process that is not the recorded one."""


class LogBroken(TurnledgerError):
    """The Kafka log does not continue what was applied: records are gone, or the topic is another one."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One partition as it was claimed."""

    topic: str
    partition: int
    next_offset: int
    epoch: int
    disturbed: int
    anchor_offset: int | None
    anchor_crc: int | None
    flushed_batch: int
    former_owner: str | None = None
    """Who claimed it before."""
    terminated: int | None = None
    """Process id of the frozen backend that was ended to get the row."""

    def continues(self, epoch: int, next_offset: int, disturbed: int) -> bool:
        """Whether nobody touched the partition since we had it: then what we remember still holds. An eager rebalance revokes
        everything from everybody and gives most of it back."""
        return (self.epoch, self.next_offset, self.disturbed) == (epoch + 1, next_offset, disturbed)


@dataclass(frozen=True, slots=True)
class Step:
    """What a round does to one partition: from where to where, under which epoch."""

    partition: int
    from_offset: int
    to_offset: int
    """Exclusive. Equal to ``from_offset`` in a transaction that only writes projections."""
    epoch: int
    disturbed: int
    anchor_offset: int | None = None
    anchor_crc: int | None = None
    flushed_batch: int | None = None
    """Up to which batch projections are whole when this commits; None: up to this very batch."""


@dataclass(frozen=True, slots=True)
class Passed:
    """One partition that came through the fence."""

    partition: int
    batch_no: int | None
    """None where the step has no records."""
    disturbed: int
    day: date
    """Day of ingest, UTC: the transaction's clock."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The database process behind a connection."""

    pid: int
    start: datetime


def backend(connection: Connection) -> Backend:
    """Which process serves this connection: written into the rows, so that it can be ended when its worker is frozen."""
    row = connection.execute(
        "select pid, backend_start from pg_stat_activity where pid = pg_backend_pid()"
    ).fetchone()
    assert row is not None
    return Backend(row[0], row[1])


def claim(
    connection: Connection,
    topic: str,
    partition: int,
    *,
    group_id: str,
    owner: str,
    start: int,
    take_over: bool = False,
) -> Claim:
    """Claim one partition in a transaction of its own.

    ``start`` is the earliest offset of the log: where a partition begins that was never read. Raises :class:`OtherGroup`, or
    :class:`RowLocked` when the row stays locked; database errors pass through.
    """
    key = {"topic": topic, "partition": partition}
    ended: int | None = None
    for _ in range(CLAIM_ATTEMPTS):
        try:
            with connection.transaction():
                connection.execute(f"set local lock_timeout = {CLAIM_LOCK_MS}")
                connection.execute(query("fence/begin"), {**key, "group_id": group_id, "start": start})
                row = connection.execute(
                    query("fence/claim"),
                    {**key, "group_id": group_id, "owner": owner, "take_over": take_over},
                ).fetchone()
                if row is None:
                    raise _other_group(connection, topic, partition, group_id)
        except psycopg.errors.LockNotAvailable:
            ended = _end_frozen(connection, topic, partition) or ended
            continue
        return Claim(topic, partition, row[0], row[1], row[2], row[3], row[4], row[5], row[6], ended)
    raise RowLocked(
        f"the progress row of partition {partition} of {topic} stays locked by another database process: "
        "look for it in pg_stat_activity (turnledger's processes name themselves) and end it; the claim is tried again meanwhile."
    )


def _other_group(connection: Connection, topic: str, partition: int, group_id: str) -> OtherGroup:
    holder = connection.execute(query("fence/holder"), {"topic": topic, "partition": partition}).fetchone()
    name = holder[0] if holder is not None else "?"
    return OtherGroup(
        f"partition {partition} of {topic} belongs to the group {name}, not to {group_id}: two groups would steal it from each other for "
        f"ever. Start the worker with --group {name}, or with --take-over when {name} is gone for good."
    )


def _end_frozen(connection: Connection, topic: str, partition: int) -> int | None:
    """End the recorded process that holds the row: it is frozen inside its transaction, and no server timeout ends a backend that
    waits in COPY. Returns its id, None where the recorded process is gone."""
    with connection.transaction():
        row = connection.execute(query("fence/holder"), {"topic": topic, "partition": partition}).fetchone()
        if row is None or row[2] is None:
            return None
        ended = connection.execute(query("fence/terminate"), {"pid": row[2], "start": row[3]}).fetchone()
    return int(row[2]) if ended is not None and ended[0] else None


def check_log(claimed: Claim, start: int, end: int) -> None:
    """Whether a log that begins at ``start`` and ends before ``end`` continues what was applied. Raises :class:`LogBroken`."""
    topic, partition, following = claimed.topic, claimed.partition, claimed.next_offset
    if start > following:
        gone = start - following
        raise LogBroken(
            f"partition {partition} of {topic} starts at {start} but {following} is next: {gone} "
            f"{'event is' if gone == 1 else 'events are'} gone from Kafka. Restore the topic, or accept the loss by starting the "
            "worker with --accept-loss (they are counted as holes)."
        )
    if end < following:
        raise LogBroken(
            f"partition {partition} of {topic} ends at {end} but {following} is next: the topic was made anew, or cut by an unclean "
            "election. Restore the topic, or give the new one another name."
        )


def check_anchor(claimed: Claim, offset: int, crc: int) -> None:
    """Whether the record found at the anchor is the one that was applied. Raises :class:`LogBroken`.

    A record behind the anchor says that compaction or retention took it: accepted, :func:`check_log` saw where the log begins.
    """
    if offset == claimed.anchor_offset and crc != claimed.anchor_crc:
        raise LogBroken(
            f"partition {claimed.partition} of {claimed.topic} holds another record at {offset} than the one that was applied: the topic "
            "was made anew, or cut by an unclean election. Restore the topic, or give the new one another name."
        )


def apply(connection: Connection, topic: str, steps: Sequence[Step], served_by: Backend) -> dict[int, Passed]:
    """The first statement of a data transaction: move what is still ours. ``steps`` ascend by partition.

    A partition that does not come back was not moved: roll back and :func:`judge` it.
    """
    rows = connection.execute(
        query("fence/apply"),
        {
            "topic": topic,
            "partitions": [s.partition for s in steps],
            "froms": [s.from_offset for s in steps],
            "tos": [s.to_offset for s in steps],
            "epochs": [s.epoch for s in steps],
            "anchors": [s.anchor_offset for s in steps],
            "crcs": [s.anchor_crc for s in steps],
            "flushed": [s.flushed_batch for s in steps],
            "pid": served_by.pid,
            "start": served_by.start,
        },
    ).fetchall()
    return {row[0]: Passed(*row) for row in rows}


@dataclass(frozen=True, slots=True)
class Stop:
    """Too large a share of dead letters: a partition is not read beyond ``at_offset`` until somebody lets it go on (contract 15)."""

    partition: int
    at_offset: int
    """The first offset that was not read."""
    dead: int
    """Dead letters among the last ``window`` records."""
    window: int
    share: float
    """That was allowed."""


def stop(connection: Connection, topic: str, stops: Sequence[Stop]) -> None:
    """Write down where partitions stop (contract 15), in the transaction that brings them there."""
    connection.execute(
        query("write/stops"),
        {
            "topic": topic,
            "partitions": [one.partition for one in stops],
            "offsets": [one.at_offset for one in stops],
            "dead": [one.dead for one in stops],
            "windows": [one.window for one in stops],
            "shares": [one.share for one in stops],
        },
    )


def stopped(
    connection: Connection, topic: str, partition: int, next_offset: int
) -> tuple[Stop | None, int | None]:
    """The stop at ``next_offset`` that nobody has lifted, and the last place from which somebody let the partition go on."""
    row = connection.execute(
        query("fence/stop"), {"topic": topic, "partition": partition, "next_offset": next_offset}
    ).fetchone()
    assert row is not None
    return (None if row[1] is None else Stop(partition, *row[1:])), row[0]


def resume(connection: Connection, topic: str, partition: int | None, *, by: str, why: str) -> dict[int, int]:
    """Let partitions go on from where dead letters stopped them; all of the topic's where none is named. Returns their places."""
    rows = connection.execute(
        query("fence/resume"), {"topic": topic, "partition": partition, "by": by, "why": why}
    )
    return {row[0]: row[1] for row in rows}


def resumed(connection: Connection, topic: str, places: Mapping[int, int]) -> list[int]:
    """Those of the partitions, stopped at ``places``, that somebody let go on since."""
    rows = connection.execute(
        query("fence/resumed"),
        {"topic": topic, "partitions": list(places), "offsets": list(places.values())},
    )
    return [row[0] for row in rows]


@dataclass(frozen=True, slots=True)
class Standing:
    """A progress row as it stands."""

    partition: int
    next_offset: int
    epoch: int
    disturbed: int
    flushed_batch: int


def read(connection: Connection, topic: str, partitions: Sequence[int]) -> dict[int, Standing]:
    """The rows as they are, without locks."""
    rows = connection.execute(
        query("fence/read"), {"topic": topic, "partitions": list(partitions)}
    ).fetchall()
    return {row[0]: Standing(*row) for row in rows}


def ours(connection: Connection, topic: str, partitions: Sequence[int], group_id: str) -> set[int]:
    """Those of the partitions that belong to our group. Locks nothing."""
    rows = connection.execute(
        query("fence/ours"), {"topic": topic, "partitions": list(partitions), "group_id": group_id}
    )
    return {row[0] for row in rows}


class Verdict(enum.Enum):
    """What became of a step (the case table of design 3.1)."""

    APPLIED = "applied"
    """The lost commit had been applied: go on."""
    NOT_APPLIED = "not_applied"
    """Nothing happened: drop the caches, the same batch again."""
    DISTURBED = "disturbed"
    """Nothing happened and a foreign writer wrote one of our sessions: drop the caches, the same batch again."""
    OTHER_OWNER = "other_owner"
    """Another worker claimed it: drop it, claim again only while the group assigns it."""
    MOVED = "moved"
    """The row is where nobody put it (a fail-over, a restore): drop it, seek to the row, alarm."""


def judge(step: Step, standing: Standing | None) -> Verdict:
    """What became of ``step``, from the row read after its answer was lost or it did not come through the fence."""
    if standing is None:
        return Verdict.MOVED
    if standing.epoch != step.epoch:
        return Verdict.OTHER_OWNER if standing.epoch > step.epoch else Verdict.MOVED
    if standing.next_offset == step.to_offset and step.to_offset > step.from_offset:
        return Verdict.APPLIED
    if standing.next_offset == step.from_offset:
        return Verdict.NOT_APPLIED if standing.disturbed == step.disturbed else Verdict.DISTURBED
    return Verdict.MOVED
