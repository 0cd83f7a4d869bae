"""A round with sessions that another partition is home of (design 3.2: one writer a session).

Whoever writes a session holds the progress row of its home. Here all rows needed are locked in order, everything is loaded fresh inside
the transaction, nothing is cached, and the homes of others are marked disturbed: their worker drops its cache and decides anew. Rare: it
happens after a change of the number of partitions, or when one session is sent through two topics.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import psycopg

from turnledger.contract.event import Event
from turnledger.errors import TurnledgerError
from turnledger.fold.state import SessionState
from turnledger.ingest import load, prepare
from turnledger.ingest.batch import Partition
from turnledger.ingest.cache import SessionEntry, SessionKey
from turnledger.ingest.decide import DeadWindow, Decider, Group
from turnledger.ingest.link import Connection
from turnledger.ingest.prepare import Folder, Prepared
from turnledger.store import fence, write
from turnledger.store.named import query
from turnledger.store.read import session_events

T = TypeVar("T")

TRANSIENT = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.CheckViolation,  # midnight came between the look at the day and the rows of it
)
"""Somebody else wrote at the same time: the same again."""

NEVER = DeadWindow(1.0, 1)
"""The stop rule is for what live workers read."""


ATTEMPTS = 8
PAUSE_SECONDS = 0.1
"""The first pause between attempts; each is doubled."""


class InTheWay(TurnledgerError):
    """Other writers keep what a foreign writer needs."""


class _Undone(Exception):
    """Rolls back what was tried."""


def attempt(
    connection: Connection,
    work: Callable[[set[Partition]], T],
    *,
    dry: bool,
    in_the_way: Callable[[], InTheWay],
) -> T:
    """``work(homes)`` in a transaction of its own, again with what it learns of homes, and again when others were at it. ``dry``: rolled back at its
    end. Raises ``in_the_way()`` when others always are, and what psycopg raises."""
    homes: set[Partition] = set()
    pause = PAUSE_SECONDS
    for _ in range(ATTEMPTS):
        done: list[T] = []
        try:
            with connection.transaction():
                done.append(work(homes))
                if dry:
                    raise _Undone
        except HomesMoved as moved:
            homes |= moved.homes
            continue
        except TRANSIENT:
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause *= 2
            continue
        except _Undone:
            pass
        return done[0]
    raise in_the_way()


def write_foreign(
    connection: Connection,
    prepared: Prepared,
    decider: Decider,
    served_by: fence.Backend,
    homes: Iterable[Partition],
) -> None:
    """Decide, fold and write ``prepared.pieces`` in one transaction of its own. May be called again after a failure.

    ``homes``: where the sessions live as far as is known. Raises as ``write.write``, and :class:`HomesMoved`.
    """
    for number, window in prepared.windows.items():
        prepared.seats[number].window = window
    fresh = prepare.begin(prepared.number, prepared.round.topic, prepared.round.slot, prepared.pieces)
    groups = [group for found in prepare.read(fresh, decider).values() for group in found.values()]
    # Of partitions with other sessions that wait to be written: this round does not make those whole.
    flushed = {share.step.partition: share.step.flushed_batch for share in prepared.round.shares}
    round_ = prepared.round = fresh.round
    for share in round_.shares:
        share.step = replace(share.step, flushed_batch=flushed.get(share.step.partition))
    prepared.stopping = fresh.stopping
    round_.shares.sort(key=lambda share: share.step.partition)
    wanted = {(round_.topic, share.step.partition) for share in round_.shares} | set(homes)
    with connection.transaction():
        connection.execute(
            query("fence/lock"), {"topics": [p[0] for p in wanted], "partitions": [p[1] for p in wanted]}
        )
        passed = write.pass_fence(connection, round_, served_by)
        entries = load_entries(connection, fresh, groups)
        unlocked = {entry.home for entry in entries.values()} - wanted
        if unlocked:
            raise HomesMoved(unlocked)
        fold_entries(connection, fresh, decider, groups, entries)
        # A home that came through this round's fence is our own.
        passed_here = {(round_.topic, share.step.partition) for share in round_.shares}
        round_.disturb = sorted({entry.home for entry in entries.values()} - passed_here)
        write.write_in(connection, round_, passed, careful=prepared.careful)


class HomesMoved(Exception):
    """A session appeared meanwhile whose home was not locked: once more, with it."""

    def __init__(self, homes: set[Partition]) -> None:
        super().__init__(sorted(homes))
        self.homes = homes


def load_entries(
    connection: Connection, fresh: Prepared, groups: Sequence[Group], also: Iterable[SessionKey] = ()
) -> dict[SessionKey, SessionEntry]:
    """All sessions of the round, and ``also`` those, as the ledger has them now; states come with :func:`fold_entries`, where something is
    accepted. A session that nobody has seen begins in the partition of its first record."""
    keys = list(dict.fromkeys((*(group.key for group in groups), *also)))
    found = load.find(connection, keys)
    entries = {
        entry.key: entry
        for entry in load.load(connection, list(found.values()), fresh.round.slot, states=False)
    }
    numbers = iter(load.numbers(connection, "sessions", len(keys)))
    for group in groups:
        if group.key not in entries:
            home = (fresh.round.topic, group.share.step.partition)
            entries[group.key] = load.new_entry(group.key, next(numbers), home)
    return entries


def fold_entries(
    connection: Connection,
    fresh: Prepared,
    decider: Decider,
    groups: Sequence[Group],
    entries: Mapping[SessionKey, SessionEntry],
    also: Collection[SessionKey] = (),
) -> list[SessionKey]:
    """Decide the groups, and fold the sessions that got events, and ``also`` those, from their whole history. Returns which those are, in the
    order of their records."""
    # Each event may open a stream, and declare another one lost.
    numbers = iter(load.numbers(connection, "streams", 2 * fresh.records + 1))
    folder = Folder(fresh, decider, numbers.__next__)
    decider.passing = []
    accepted: dict[SessionKey, list[Event]] = {key: [] for key in also if key in entries}
    for group in groups:
        entry = entries[group.key]
        _receipts(connection, entry, group)
        accepted.setdefault(group.key, []).extend(folder.decide(entry, group))
    moved = [key for key, events in accepted.items() if events or key in also]
    for key in moved:
        entry = entries[key]
        if entry.vacuumed:
            entry.state.extend(accepted[key])
        else:
            history = [] if not entry.wipe else session_events(connection, entry.session_no)
            entry.state = SessionState.from_history(*key, [*history, *accepted[key]], written=False)
        changes = entry.state.take_changes(True, force=True)
        missing = folder.missing_receipts(entry, changes)
        ordinals = load.known_receipts(connection, list(missing)) if missing else {}
        folder.write(entry, changes, ordinals)
    late = []
    folder.finish(lambda stream, is_late: late.append(stream) if is_late else None)
    folder.late_rows(late)
    return moved


def _receipts(connection: Connection, entry: SessionEntry, group: Group) -> None:
    for (stream_no, key_hash), ordinal in load.known_receipts(
        connection, list(load.unknown_receipts(entry, group.events))
    ).items():
        stream = next(one for one in entry.streams.values() if one.stream_no == stream_no)
        stream.receipts[key_hash] = ordinal
