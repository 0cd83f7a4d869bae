"""Owns which offsets of a topic a replay means: what was asked for, what the log still holds of it, and what of that the ledger has read before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from turnledger.contract.times import parse_ago, parse_instant
from turnledger.errors import TurnledgerError

BEGINNING, NOW = "beginning", "now"
MOST = 2**63 - 1
REPLAY = "replay"
"""Who owns a partition that a replay reads for the first time, before the @."""


class NotARange(TurnledgerError):
    """What was asked for is no range of offsets."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of what was asked for. Both None: the beginning of the log, or its end."""

    offset: int | None = None
    at: int | None = None
    """ms since 1970: the first record of that time or later, by the broker's clock."""


def parse_bound(option: str, typed: str, now: float) -> Bound:
    """``beginning`` or ``now``, an offset, an RFC 3339 time, or so long ago (``90s`` ``30m`` ``24h`` ``7d``). ``now`` in seconds since 1970.
    Raises :class:`NotARange`."""
    if typed in (BEGINNING, NOW):
        if (typed == BEGINNING) != (option == "--from"):
            raise NotARange(f"{option} {typed} is the wrong end: a range goes --from {BEGINNING} --to {NOW}.")
        return Bound()
    if typed.isascii() and typed.isdigit():
        if int(typed) > MOST:
            raise NotARange(f"{option} {typed} is beyond every offset that a partition can have.")
        return Bound(offset=int(typed))
    seconds = parse_ago(typed)
    at = parse_instant(typed) if seconds is None else round((now - seconds) * 1_000_000)
    if at is None:
        word = BEGINNING if option == "--from" else NOW
        raise NotARange(
            f"{option} {typed!r} is neither an offset nor a time: say {word}, a number, 2026-03-01T10:00:00Z (with its offset), or 90s, 30m, "
            "24h, 7d for so long ago."
        )
    return Bound(at=at // 1000)


@dataclass(frozen=True, slots=True)
class Log:
    """A partition as the broker has it when a replay begins."""

    start: int
    end: int
    """The offset after the last record."""
    from_time: int | None = None
    """The first record of the time that was asked for as the beginning; None where there is none, or none was asked for."""
    to_time: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """A partition as the ledger has it."""

    first_offset: int
    next_offset: int
    group_id: str
    owner: str | None
    alive: bool
    """The database process of the worker that claimed it is still there: it reads on by itself."""
    behind: bool = False
    """The last batches are in the ledger, and their projections are still to be written."""

    @property
    def replayed(self) -> bool:
        """Whoever is there is no worker, which would read on."""
        return self.alive and self.owner is not None and self.owner.startswith(f"{REPLAY}@")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a replay does with a partition. Offsets; each end is exclusive."""

    partition: int
    asked_from: int
    asked_to: int
    gone: int
    """Offsets of what was asked for that the log does not reach back to any more."""
    cut: bool
    """The time that was asked for may lie before where the log begins now: how much of it is gone cannot be told."""
    again: tuple[int, int]
    """Read before: each record is held against the ledger."""
    unread: tuple[int, int]
    """Never read: applied as a worker would."""
    owner: str | None = None
    """The worker that reads ``unread`` by itself, so that the replay leaves it alone."""
    refused: str | None = None
    """Why ``unread`` cannot be read."""


NAMED = 20
"""So many runs of offsets without a record are named, the rest is counted."""


@dataclass(slots=True)
class Missing:
    """Offsets of one partition that were read over and have no record: compacted away, or markers of transactions."""

    offsets: int = 0
    ranges: int = 0
    """Runs of them."""
    named: list[tuple[int, int]] = field(default_factory=list)
    """The first runs; each end is exclusive."""
    _end: int = 0
    """Of the last run."""
    _reached: int = 0

    def read(self, start: int, offsets: Sequence[int], reached: int) -> None:
        """Records at ``offsets``, ascending, are all that stands from ``start`` up to ``reached``. What was told before is not counted again."""
        at = max(start, self._reached)
        if reached - start > len(offsets):
            for offset in (*offsets, reached):
                if offset > at:
                    self._add(at, offset)
                at = max(at, offset + 1)
        self._reached = max(self._reached, reached)

    def _add(self, start: int, end: int) -> None:
        self.offsets += end - start
        if self.ranges == 0 or start > self._end:
            self.ranges += 1
            if self.ranges <= NAMED:
                self.named.append((start, end))
        elif self.ranges <= NAMED:
            self.named[-1] = (self.named[-1][0], end)
        self._end = end


def plan(
    partition: int, log: Log, standing: Standing | None, start: Bound, end: Bound, *, chosen: bool = False
) -> Plan:
    """What is to be done with one partition. ``chosen``: only some tenant's or session's records are meant."""
    before = 0 if standing is None else standing.first_offset
    asked_from = min(before, log.start) if start == Bound() else _first(log, start)
    asked_to = max(asked_from, min(log.end, _last(log, end)))
    following = max(asked_from, log.start) if standing is None else standing.next_offset
    lowest = min(max(asked_from, log.start), asked_to)
    again = (max(lowest, before), min(asked_to, following)) if standing is not None else (lowest, lowest)
    again = (again[0], max(again))
    unread = (max(lowest, following), asked_to)
    unread = (unread[0], max(unread))
    owner = refused = None
    left = unread[0] < unread[1]
    if standing is not None and standing.replayed and (left or standing.behind):
        refused = f"another replay ({standing.owner}) is at it, or was killed a moment ago: let it end, then run this again"
    elif left:
        if standing is not None and standing.alive:
            owner = standing.owner
        elif chosen:
            refused = (
                f"records {unread[0]} to {unread[1] - 1} of it were never read, and reading some tenant's or session's alone would leave the others "
                "out for good: start a worker, or leave out --tenant and --session"
            )
        elif standing is not None and log.start > following:
            refused = (
                f"the ledger stands at {following} and the log begins at {log.start}: {log.start - following} records are gone from Kafka, which a "
                "person must accept (`turnledger worker --accept-loss`)"
            )
        elif standing is not None and unread[0] > following:
            refused = (
                f"the ledger stands at {following}, so that beginning at {unread[0]} would leave {unread[0] - following} records out for good: "
                f"begin at {following} or before"
            )
    gone = max(0, min(log.start, asked_to) - asked_from)
    cut = start.at is not None and 0 < log.start == log.from_time
    return Plan(partition, asked_from, asked_to, gone, cut, again, unread, owner, refused)


def _first(log: Log, bound: Bound) -> int:
    if bound.offset is not None:
        return bound.offset
    # No record of that time or later: the range is empty.
    return log.end if log.from_time is None else log.from_time


def _last(log: Log, bound: Bound) -> int:
    if bound.offset is not None:
        return bound.offset
    return log.end if bound.at is None or log.to_time is None else log.to_time


def chosen_partitions(there: Mapping[int, Log], named: list[int] | None, topic: str) -> list[int]:
    """The partitions that are meant: all of them unless some are named. Raises :class:`NotARange`."""
    if not named:
        return sorted(there)
    unknown = sorted(set(named) - set(there))
    if unknown:
        raise NotARange(
            f"{topic} has no partition {unknown[0]}: it has {len(there)}, numbered from 0 to {max(there)}."
        )
    return sorted(set(named))
