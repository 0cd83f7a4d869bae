"""Owns the second reading: records that the ledger has read before, each held against what is there, and what is missing filled (design 3.2).

A record's place in the ledger is its position, or its key where another record had that first. What the ledger has is left alone, so that
reading a third time changes nothing. What it lacks is decided by the code that decides live records, as a foreign writer, and joins the batch
that once read it: the audit chain accounts for it already. A dead letter that is an event by today's rules is requeued (contract 15).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from turnledger.contract.canonical import content_hash
from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.contract.reader import Rejected
from turnledger.ingest import foreign
from turnledger.ingest.batch import Partition, Record
from turnledger.ingest.cache import SessionKey
from turnledger.ingest.decide import Decider, Group
from turnledger.ingest.foreign import NEVER, HomesMoved, InTheWay
from turnledger.ingest.link import Connection
from turnledger.ingest.prepare import Prepared
from turnledger.ingest.requeue import Requeue
from turnledger.store import fence, write
from turnledger.store.keys import event_keys
from turnledger.store.named import query
from turnledger.store.read import writable_slot
from turnledger.store.write_rows import Round, Share

AT_ONCE = 2000
"""Records that are held against the ledger by one question each."""


@dataclass(slots=True)
class Found:
    """What became of records that were read again."""

    records: int = 0
    known: int = 0
    """Events, repeats of events, contradictions with a receipt, dead letters that were settled: the ledger has them."""
    dead: int = 0
    """Dead letters that still are."""
    requeued: int = 0
    """Dead letters that are events now."""
    filled: int = 0
    """Events that the ledger lacked."""
    unverified: int = 0
    """Their numbers were seen, but the event has left the ledger (retention): they stay out."""
    contradictions: int = 0
    """Contradict their event, and nothing in the ledger says so: `turnledger verify --topics` names them."""
    unaccounted: int = 0
    """No event by the rules, and no dead letter: verify names them."""
    others: int = 0
    """Of other tenants or sessions than those that are meant."""

    def add(self, other: Found) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


class Again:
    """Holds records of one topic against the ledger. ``dry``: says what it would do, and leaves everything as it is."""

    def __init__(
        self,
        connection: Connection,
        decider: Decider,
        topic: str,
        *,
        by: str,
        record_limit: int,
        dead_letter_bytes: int,
        tenant: str | None = None,
        session_id: str | None = None,
        dry: bool = False,
    ) -> None:
        """``connection`` is in autocommit mode. ``tenant``, ``session_id``: only their records."""
        self.connection = connection
        self.decider = decider
        self.topic = topic
        self.by = by
        self.cap = dead_letter_bytes
        self.tenant = tenant
        self.session_id = session_id
        self.dry = dry
        self.reader = FastReader(limit=record_limit)

    def take(self, partition: int, records: Sequence[Record]) -> Found:
        """Records in their order. Raises ``InTheWay``, and what psycopg raises: run it again then, what was done is known."""
        found = Found(records=len(records))
        if not records:
            return found
        bounds = {
            "topic": self.topic,
            "partition": partition,
            "first": records[0].offset,
            "last": records[-1].offset,
        }
        stored = {row[0] for row in self.connection.execute(query("replay_topics/events"), bounds)}
        letters = {row[1]: row for row in self.connection.execute(query("replay_topics/letters"), bounds)}
        lacking: list[tuple[Record, Event]] = []
        again: dict[int, bytes] = {}
        for record in records:
            if self.tenant is None and self.session_id is None and record.offset in stored:
                found.known += 1
                continue
            read = self.reader.read(record.value)
            if not self._meant(read):
                found.others += 1
            elif record.offset in stored:
                found.known += 1
            elif record.offset in letters:
                number, _, is_open = letters[record.offset]
                if not is_open:
                    found.known += 1
                elif isinstance(read, Event) and record.value is not None:
                    again[number] = record.value
                else:
                    found.dead += 1
            elif isinstance(read, Event):
                lacking.append((record, read))
            else:
                found.unaccounted += 1
        if lacking:
            self._by_key(partition, lacking, bounds, found)
        if again:
            self._requeue(again, found)
        return found

    def _meant(self, read: Event | Rejected) -> bool:
        return self.tenant in (None, read.tenant) and self.session_id in (None, read.session_id)

    # ---- repeats -----------------------------------------------------------------------------------------------------------------

    def _by_key(
        self, partition: int, records: Sequence[tuple[Record, Event]], bounds: dict[str, Any], found: Found
    ) -> None:
        """Records that are no events where they stand: repeats, or lacking."""
        asked = event_keys([event for _, event in records])
        first = {row[0]: row for row in self.connection.execute(query("verify/topic_keys"), asked)}
        lacking: list[Record] = []
        others: list[tuple[int, int, bytes]] = []
        for index, (record, _) in enumerate(records, 1):
            have = first.get(index)
            if have is None:
                lacking.append(record)
                continue
            _, stream_no, seq, raw, received, *_ = have
            assert record.value is not None
            lost = content_hash(record.value)
            if lost == (content_hash(raw) if received is None else received):
                found.known += 1
            else:
                others.append((stream_no, seq, lost))
        if others:
            told = {
                row[0]
                for row in self.connection.execute(
                    query("verify/topic_receipts"),
                    {
                        "streams": [one[0] for one in others],
                        "seqs": [one[1] for one in others],
                        "hashes": [one[2] for one in others],
                    },
                )
            }
            found.known += len(told)
            found.contradictions += len(others) - len(told)
        if lacking:
            batches = self.connection.execute(query("verify/topic_batches"), bounds).fetchall()
            for batch_no, from_offset, to_offset, *_ in batches:
                some = [record for record in lacking if from_offset <= record.offset < to_offset]
                if some:
                    self._fill(partition, batch_no, some, found)

    # ---- what is missing ---------------------------------------------------------------------------------------------------------

    def _fill(self, partition: int, batch_no: int, records: Sequence[Record], found: Found) -> None:
        share = foreign.attempt(
            self.connection,
            lambda homes: self._filled(partition, batch_no, records, homes),
            dry=self.dry,
            in_the_way=lambda: InTheWay(
                f"records {records[0].offset} to {records[-1].offset} of partition {partition} of {self.topic} could not be filled in, because "
                "others write their sessions all the time: nothing of them was changed, run it again (look for long transactions in "
                "pg_stat_activity)."
            ),
        )
        found.filled += share.accepted
        found.unverified += share.unverified
        found.contradictions += share.conflicts
        found.known += share.duplicates - share.unverified

    def _filled(
        self, partition: int, batch_no: int, records: Sequence[Record], homes: set[Partition]
    ) -> Share:
        """Inside a transaction: lock, decide, write under the number of the batch that once read them."""
        connection = self.connection
        wanted = {(self.topic, partition)} | homes
        connection.execute(
            query("fence/lock"), {"topics": [p[0] for p in wanted], "partitions": [p[1] for p in wanted]}
        )
        at = records[0].offset
        share = Share(fence.Step(partition, at, at, 0, 0))
        fresh = Prepared(0, Round(self.topic, writable_slot(connection), [share], accounted=True), [], {}, {})
        groups_by_key: dict[SessionKey, Group] = {}
        fresh.records = self.decider.read(records, share, groups_by_key, NEVER.copy())
        groups = list(groups_by_key.values())
        entries = foreign.load_entries(connection, fresh, groups)
        unlocked = {entry.home for entry in entries.values()} - wanted
        if unlocked:
            raise HomesMoved(unlocked)
        moved = foreign.fold_entries(connection, fresh, self.decider, groups, entries)
        # A generation that is being built follows by batches, and these events join an old one.
        connection.execute(query("replay/fill"), {"sessions": [entries[key].session_no for key in moved]})
        fresh.round.disturb = sorted({entry.home for entry in entries.values()})
        today = connection.execute("select ledger.today()").fetchone()
        assert today is not None
        passed = {partition: fence.Passed(partition, batch_no, 0, today[0])}
        write.write_in(connection, fresh.round, passed, careful=True)
        return share

    def _requeue(self, again: dict[int, bytes], found: Found) -> None:
        work = Requeue(
            self.connection, self.decider, by=self.by, dead_letter_bytes=self.cap, dry=self.dry, whole=again
        )
        for became in work.run(sorted(again)):
            if became.before:
                found.known += 1
            elif became.outcome == "dead":
                found.dead += 1
            else:
                found.requeued += 1
