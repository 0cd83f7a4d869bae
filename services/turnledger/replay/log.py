"""Applies a numbered log of records that is no topic of Kafka (an archive) as if it were one of one partition: fenced, audited, exactly once.

The same handler as live ingest, as a foreign writer (design 3.2): what is known is a duplicate, what is missing is filled. Where it stands is its
row of ``ledger.ingest_progress``, so that it goes on after a kill; its records are in the audit chain under the log's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from turnledger.errors import TurnledgerError
from turnledger.ingest import prepare
from turnledger.ingest.batch import Partition, Record
from turnledger.ingest.decide import Decider
from turnledger.ingest.foreign import NEVER, InTheWay, attempt, write_foreign
from turnledger.ingest.link import Connection
from turnledger.ingest.seat import Piece, Seat
from turnledger.store import fence, write
from turnledger.store.named import query
from turnledger.store.read import active_slot

ATTEMPTS = 10
"""Of one piece, where its data is refused or its fence is lost in between."""


class LogTaken(TurnledgerError):
    """Another process applies the same log."""


@dataclass(slots=True)
class Counts:
    """What became of records."""

    records: int = 0
    accepted: int = 0
    duplicates: int = 0
    unverified: int = 0
    conflicts: int = 0
    dead: int = 0

    def add(self, other: Counts) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class LogRecord:
    """A record of a log, as the handler takes it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 0


class _Undone(Exception):
    """Rolls back what was tried."""


class Log:
    """One log that is being applied by this process."""

    def __init__(
        self, connection: Connection, decider: Decider, name: str, *, group_id: str, owner: str
    ) -> None:
        """Claims the log. ``connection`` is in autocommit mode. Raises ``fence.OtherGroup``, and what psycopg raises."""
        self.connection = connection
        self.decider = decider
        self.name = name
        self.backend = fence.backend(connection)
        claim = fence.claim(connection, name, 0, group_id=group_id, owner=owner, start=0)
        self.seat = Seat((name, 0), claim, NEVER.copy(), disturbed=claim.disturbed)
        self.next_offset = claim.next_offset
        """The first record that is not applied."""
        self._rounds = 0

    def apply(self, records: Sequence[Record], to_offset: int) -> Counts:
        """Apply ``records``, which go on from ``next_offset`` and end before ``to_offset``, in one transaction. Raises :class:`LogTaken`,
        :class:`InTheWay`, and what psycopg raises: then nothing was done, or, where the connection broke, the row of the log tells."""
        careful = False
        for _ in range(ATTEMPTS):
            try:
                prepared = attempt(
                    self.connection,
                    partial(self._write, records, to_offset, careful),
                    dry=False,
                    in_the_way=lambda: self._in_the_way(to_offset),
                )
            except write.DataRefused:
                careful = True
            except write.FenceLost:
                self._look_again()
            else:
                self.next_offset = self.seat.expected = to_offset
                return _counts(prepared)
        raise self._in_the_way(to_offset)

    def _in_the_way(self, to_offset: int) -> InTheWay:
        return InTheWay(
            f"records {self.next_offset} to {to_offset - 1} of {self.name} could not be applied, because others write their sessions all the "
            "time: nothing of them was changed, run it again (look for long transactions in pg_stat_activity)."
        )

    def _write(
        self, records: Sequence[Record], to_offset: int, careful: bool, homes: set[Partition]
    ) -> prepare.Prepared:
        prepared = self._prepared(records, to_offset, careful)
        write_foreign(self.connection, prepared, self.decider, self.backend, homes)
        return prepared

    def _prepared(self, records: Sequence[Record], to_offset: int, careful: bool) -> prepare.Prepared:
        self._rounds += 1
        size = sum(len(record.value or b"") for record in records)
        self.seat.expected = self.next_offset
        piece = Piece(self.seat, self.next_offset, to_offset, records, size, ())
        prepared = prepare.begin(self._rounds, self.name, active_slot(self.connection), [piece])
        prepared.careful = careful
        return prepared

    def _look_again(self) -> None:
        """The row is not what we think: a foreign writer of a session that is at home here, or another process of this log."""
        standing = fence.read(self.connection, self.name, [0]).get(0)
        claim = self.seat.claim
        if standing is None or standing.epoch != claim.epoch or standing.next_offset != self.next_offset:
            raise LogTaken(
                f"another process applies {self.name} by now: let it end, and run this again to see that nothing is left."
            )
        self.seat.disturbed = standing.disturbed


def dry_run(
    connection: Connection, decider: Decider, name: str, records: Sequence[Record], *, group_id: str
) -> Counts:
    """What would become of ``records`` now; nothing is changed. Holds what applying them would, for as long."""
    found = Counts()
    try:
        with connection.transaction():
            log = Log(connection, decider, name, group_id=group_id, owner="dry run")
            start = records[0].offset
            connection.execute(query("replay_archive/set_back"), {"topic": name, "next_offset": start})
            log.next_offset = start
            found = log.apply(records, records[-1].offset + 1)
            raise _Undone
    except _Undone:
        return found


def _counts(prepared: prepare.Prepared) -> Counts:
    found = Counts()
    for share in prepared.round.shares:
        found.add(
            Counts(
                share.records,
                share.accepted,
                share.duplicates,
                share.unverified,
                share.conflicts,
                len(share.dead),
            )
        )
    return found
