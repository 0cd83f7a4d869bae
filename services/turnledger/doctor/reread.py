"""Invariant I1 against Kafka (`turnledger verify --topics`): every record of the topics is where the ledger says, and says what Kafka says.

Reads with a consumer of its own that belongs to no group, by assignment, between fixed ends: from where a partition began (or where the log
begins now) up to its ``next_offset``. It neither commits nor moves an offset. What has left retention is said, it is no fault.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import psycopg
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from turnledger.contract.canonical import content_hash
from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.contract.reader import Rejected
from turnledger.contract.redact import Redactor
from turnledger.doctor.audit import read_rows
from turnledger.doctor.faults import Fault, Report
from turnledger.doctor.rows import Row
from turnledger.doctor.scope import Scope
from turnledger.errors import TurnledgerError
from turnledger.fold.seen import StreamSeen
from turnledger.kafka import connect
from turnledger.store.keys import event_keys
from turnledger.store.named import query

AT_ONCE = 2000
"""Records that are compared with one question each."""
PATIENCE_SECONDS = 30.0
"""A broker that gives nothing for so long is away."""

GONE = "a record of Kafka is neither in the ledger nor in dead letters or conflicts"
DIFFERENT = "the ledger holds other bytes than Kafka"


class BrokerAway(TurnledgerError):
    """Kafka does not answer, so that I1 can be neither proven nor refuted."""


@dataclass(slots=True)
class _Batch:
    """What the ledger says of a batch, and what Kafka's records give."""

    row: Row
    whole: bool
    """All of it is read: none of it lies before where reading began."""
    records: int = 0
    accepted: int = 0
    duplicates: int = 0
    absent: int = 0
    """Repeats of an event that is not there any more: duplicates that nobody can compare."""
    conflicts: int = 0
    dead: int = 0
    gone: int = 0
    """Records of vacuumed sessions whose key was seen: accepted here, or repeats of what is gone. Nobody can tell which each was."""


@dataclass(slots=True)
class _Partition:
    topic: str
    number: int
    begin: int
    end: int
    batches: dict[int, _Batch] = field(default_factory=dict)
    """Those that were begun and are not closed, by number."""

    @property
    def place(self) -> Row:
        return {"topic": self.topic, "partition": self.number}


def reread(
    connection: psycopg.Connection[Any],
    bootstrap: str,
    report: Report,
    scope: Scope,
    *,
    record_limit: int,
    progress: Callable[[int], None] = lambda records: None,
) -> None:
    """Read again what the ledger has read, and add to ``report`` what differs. ``progress`` hears how many records were read.

    ``record_limit`` (bytes) as the worker has it. ``connection`` loads instants as µs. Raises :class:`BrokerAway`.
    """
    report.records = 0
    asyncio.run(_Rereader(connection, bootstrap, report, scope, record_limit, progress).run())


class _Rereader:
    def __init__(
        self,
        connection: psycopg.Connection[Any],
        bootstrap: str,
        report: Report,
        scope: Scope,
        record_limit: int,
        progress: Callable[[int], None],
    ) -> None:
        self.connection = connection
        self.bootstrap = bootstrap
        self.report = report
        self.scope = scope
        self.reader = FastReader(limit=record_limit)
        self.stored_reader = FastReader(limit=sys.maxsize)
        self.redactor = Redactor()
        self.progress = progress
        self.readable_dead = 0
        self.lacking: dict[str, int] = {}
        """Records, by topic, that batches read and the log does not hold any more, although it begins before them."""

    async def run(self) -> None:
        consumer = connect.reader(self.bootstrap, "turnledger verify")
        try:
            # Each step has its own limit: a reading of hours is no outage.
            await asyncio.wait_for(consumer.start(), PATIENCE_SECONDS)
            wanted = self.partitions()
            there = await asyncio.wait_for(
                connect.partitions_of(self.bootstrap, {row["topic"] for row in wanted}), PATIENCE_SECONDS
            )
            for row in wanted:
                topic, number = row["topic"], row["partition"]
                if number in there.get(topic, ()):
                    await self.partition(consumer, row)
                    continue
                lacks = f"partition {number} of it" if topic in there else "such topic"
                self.report.not_checked.append(
                    f"I1 of {topic} against Kafka: the broker at {self.bootstrap} has no {lacks}"
                )
        except connect.AWAY as error:
            why = await connect.why(self.bootstrap, error)
            raise BrokerAway(
                f"the broker at {self.bootstrap} does not answer ({why}): start it, set TURNLEDGER_KAFKA_BOOTSTRAP, or leave out --topics."
            ) from None
        finally:
            await consumer.stop()
        self.report.not_checked += [
            f"{count} records of {topic} against Kafka: they were read once and are gone from the middle of the log (is it compacted?)"
            for topic, count in self.lacking.items()
        ]
        self.report.not_checked = list(dict.fromkeys(self.report.not_checked))
        if self.readable_dead:
            self.report.notes.append(
                f"{self.readable_dead} dead letters would be accepted now: `turnledger dead requeue` sends them through again, they were "
                "refused by an earlier version or limit"
            )

    def partitions(self) -> list[Row]:
        with self.connection.transaction():
            return read_rows(self.connection, query("verify/partitions"), {"floor": self.scope.floor})

    async def partition(self, consumer: AIOKafkaConsumer, row: Row) -> None:
        topic, number = row["topic"], row["partition"]
        at = TopicPartition(topic, number)
        if row["from_offset"] is None:
            return
        consumer.assign([at])
        starts, ends = await consumer.beginning_offsets([at]), await consumer.end_offsets([at])
        begin = row["from_offset"] if self.scope.floor else row["first_offset"]
        end = row["next_offset"]
        if ends[at] < end:
            what = "the log ends before what was applied: the topic was made anew, or cut"
            told = {"topic": topic, "partition": number, "log_end": ends[at], "next_offset": end}
            self.report.add([Fault("I1", what, told)])
            end = ends[at]
        if starts[at] > begin:
            self.left_retention(topic, number, begin, starts[at])
            begin = starts[at]
        if begin < end:
            await self.read(consumer, at, _Partition(topic, number, begin, end))

    def left_retention(self, topic: str, number: int, first: int, after: int) -> None:
        self.report.not_checked.append(
            f"offsets {first} to {after - 1} of partition {number} of {topic} against Kafka: they have left retention"
        )

    async def read(self, consumer: AIOKafkaConsumer, at: TopicPartition, partition: _Partition) -> None:
        consumer.seek(at, partition.begin)
        loop = asyncio.get_running_loop()
        moved = loop.time()
        position = partition.begin
        while position < partition.end:
            try:
                fetched = await consumer.getmany(at, timeout_ms=1000, max_records=AT_ONCE)
            except OffsetOutOfRangeError:
                # Retention was faster than this reading.
                start = (await consumer.beginning_offsets([at]))[at]
                self.left_retention(at.topic, at.partition, position, min(start, partition.end))
                partition.begin = position = start
                partition.batches.clear()
                consumer.seek(at, start)
                continue
            records = [one for one in fetched.get(at, ()) if one.offset < partition.end]
            position = fetched[at][-1].offset + 1 if fetched.get(at) else await consumer.position(at)
            if records:
                self.compare(partition, records)
                moved = loop.time()
            elif position < partition.end and loop.time() - moved > PATIENCE_SECONDS:
                raise TimeoutError(f"nothing comes from offset {position} of partition {at.partition}")
        self.close(partition, partition.end)

    # ---- one piece of a partition ------------------------------------------------------------------------------------------------

    def compare(self, partition: _Partition, records: Sequence[ConsumerRecord[bytes, bytes]]) -> None:
        """Records in their order, each with what the ledger has of it."""
        bounds = {**partition.place, "first": records[0].offset, "last": records[-1].offset}
        with self.connection.transaction():
            # A range is asked for a thousand times: a plan that reads all events, because few rows were there when they were counted, costs their square.
            self.connection.execute("set local enable_seqscan = off")
            batches = read_rows(self.connection, query("verify/topic_batches"), bounds)
            stored = {
                row.pop("kafka_offset"): row
                for row in read_rows(self.connection, query("verify/topic_events"), bounds)
            }
            dead = {
                row["kafka_offset"]: row["open"]
                for row in read_rows(self.connection, query("verify/topic_dead"), bounds)
            }
            for row in batches:
                known = _Batch(row, whole=row["from_offset"] >= partition.begin)
                partition.batches.setdefault(row["batch_no"], known)
            held = iter(sorted(partition.batches.values(), key=lambda one: int(one.row["from_offset"])))
            batch = next(held, None)
            repeats: list[tuple[int, Event, bytes, _Batch | None]] = []
            for record in records:
                while batch is not None and batch.row["to_offset"] <= record.offset:
                    batch = next(held, None)
                inside = batch if batch is not None and batch.row["from_offset"] <= record.offset else None
                self.judge(partition, record, inside, stored, dead, repeats)
            if repeats:
                self.repeats(partition, repeats)
        assert self.report.records is not None
        self.report.records += len(records)
        self.progress(self.report.records)
        self.close(partition, records[-1].offset + 1)

    def judge(
        self,
        partition: _Partition,
        record: ConsumerRecord[bytes, bytes],
        batch: _Batch | None,
        stored: dict[int, Row],
        dead: dict[int, bool],
        repeats: list[tuple[int, Event, bytes, _Batch | None]],
    ) -> None:
        """One record: it is an event here, a dead letter, or else a repeat, which is looked up by its key."""
        raw = record.value
        read = self.reader.read(raw)
        if isinstance(read, Event) and raw is not None:
            read = self.as_stored(read, raw)
        if not self.wanted(read):
            return
        if batch is not None:
            batch.records += 1
        have = stored.get(record.offset)
        place = {**partition.place, "position": record.offset}
        if have is not None and raw is not None:
            if batch is not None:
                batch.accepted += 1
            names = (have["tenant"], have["session_id"], have["producer"], have["epoch"], have["stream"])
            told = {**place, **{name: have[name] for name in _NAMES}, "seq": have["seq"]}
            if not self.same(have, raw):
                self.report.add([Fault("I1", DIFFERENT, told)])
            elif type(read) is Event and names != _names(read):
                self.report.add([Fault("I1", "an event stands under names that Kafka does not say", told)])
        elif record.offset in dead:
            if batch is not None:
                batch.dead += 1
            self.readable_dead += dead[record.offset] and not isinstance(read, Rejected)
        elif isinstance(read, Rejected):
            what = "a record of Kafka that is no event has no dead letter"
            self.report.add([Fault("I1", what, {**place, "reason": read.reason, "field": read.field})])
        else:
            assert raw is not None  # an event has a value
            repeats.append((record.offset, read, raw, batch))

    def as_stored(self, event: Event, raw: bytes) -> Event | Rejected:
        """The event under the names that ingest gave it: it redacts them where they hold a secret (contract 14)."""
        found = self.redactor.redact(raw)
        return event if found is None else self.stored_reader.read(found.raw)

    def wanted(self, read: Event | Rejected) -> bool:
        session = self.scope.session
        return session is None or (read.tenant, read.session_id) == (session.tenant, session.session_id)

    def same(self, have: Row, raw: bytes) -> bool:
        """Whether what is stored is what came: the same bytes, or the hash of what was received before something was left out."""
        received = have["received_sha256"]
        if received is not None:
            return bool(received == content_hash(raw))
        return bool(have["sha256"] == sha256(raw).digest())

    def repeats(
        self, partition: _Partition, repeats: Sequence[tuple[int, Event, bytes, _Batch | None]]
    ) -> None:
        """Records whose key another one had first: equal to it, or with a receipt for the difference."""
        events = [event for _, event, _, _ in repeats]
        first = self.first_of(events)
        vacuumed = self.gone(events) if len(first) < len(events) else set()
        contradictions: list[tuple[Row, Row, bytes]] = []
        for index, (offset, event, raw, batch) in enumerate(repeats, 1):
            place = {**partition.place, "position": offset, **_told(event)}
            have = first.get(index)
            if have is None:
                if index in vacuumed:
                    if batch is not None:
                        batch.gone += 1
                elif batch is not None and batch.row["unverified"]:
                    batch.absent += 1
                    batch.duplicates += 1
                else:
                    self.report.add([Fault("I1", GONE, place)])
                continue
            here = (have["topic"], have["partition"], have["kafka_offset"])
            lost = content_hash(raw)
            received = have["received_sha256"]
            if here == (partition.topic, partition.number, offset):
                # An event of a batch that is not written down as it was.
                if batch is not None:
                    batch.accepted += 1
                if lost != (received if received is not None else content_hash(have["raw"])):
                    self.report.add([Fault("I1", DIFFERENT, place)])
            elif lost == (received if received is not None else content_hash(have["raw"])):
                if batch is not None:
                    batch.duplicates += 1
            else:
                if batch is not None:
                    batch.conflicts += 1
                contradictions.append((place, have, lost))
        self.receipts(contradictions)

    def first_of(self, events: Sequence[Event]) -> dict[int, Row]:
        """What is stored under the keys of ``events``, by their number from 1."""
        rows = read_rows(self.connection, query("verify/topic_keys"), event_keys(events))
        return {row["i"]: row for row in reversed(rows)}

    def gone(self, events: Sequence[Event]) -> set[int]:
        """Which of ``events``, by their number from 1, are of vacuumed sessions that have seen their keys."""
        rows = read_rows(self.connection, query("verify/topic_gone"), event_keys(events))
        chunks: dict[int, dict[int, bytes]] = {}
        wanted = {"streams": sorted({row["stream_no"] for row in rows})}
        for row in read_rows(self.connection, query("verify/chunks"), wanted) if rows else ():
            chunks.setdefault(row["stream_no"], {})[row["chunk"]] = row["bits"]
        found = set()
        for row in rows:
            seq = events[row["i"] - 1].seq
            # A vacuum writes the row of each stream as it is: what came later, and made it longer, is there to be found.
            known = StreamSeen(row["hi"], chunks.get(row["stream_no"], {}))
            if row["received"] if seq is None else seq in known:
                found.add(row["i"])
        return found

    def receipts(self, contradictions: Sequence[tuple[Row, Row, bytes]]) -> None:
        if not contradictions:
            return
        with_receipt = {
            row["i"]
            for row in read_rows(
                self.connection,
                query("verify/topic_receipts"),
                {
                    "streams": [have["stream_no"] for _, have, _ in contradictions],
                    "seqs": [have["seq"] for _, have, _ in contradictions],
                    "hashes": [lost for _, _, lost in contradictions],
                },
            )
        }
        self.report.add(
            Fault(
                "I1",
                "a record that contradicts the event of its key has no receipt",
                {**place, "lost_sha256": lost.hex()},
            )
            for index, (place, _, lost) in enumerate(contradictions, 1)
            if index not in with_receipt
        )

    def close(self, partition: _Partition, position: int) -> None:
        """Batches that lie before ``position`` are read: their counts are what their records gave."""
        for number in [
            number for number, one in partition.batches.items() if one.row["to_offset"] <= position
        ]:
            batch = partition.batches.pop(number)
            if not batch.whole or self.scope.session is not None:
                continue
            lacking = batch.row["records"] - batch.records
            if lacking > 0:
                # Compacted away: what is left says nothing about counts.
                self.lacking[partition.topic] = self.lacking.get(partition.topic, 0) + lacking
            else:
                self.report.add(_count_faults(partition, batch))


def _count_faults(partition: _Partition, batch: _Batch) -> Iterator[Fault]:
    row = batch.row
    place = {**partition.place, "batch_no": row["batch_no"], "from_offset": row["from_offset"]}
    if batch.records > row["records"]:
        counts = {"records": row["records"], "in_kafka": batch.records}
        yield Fault("I1", "a batch read fewer records than Kafka holds", {**place, **counts})
        return
    names = ("accepted", "duplicates", "conflicts", "dead")
    given = (batch.accepted + row["vacuumed"], batch.duplicates, batch.conflicts, batch.dead)
    # Of what is gone, so many were accepted here; the others were repeats, of which nobody can tell the one kind from the other.
    repeats = batch.gone - row["vacuumed"]
    if batch.gone or row["vacuumed"]:
        lacking = row["duplicates"] - batch.duplicates, row["conflicts"] - batch.conflicts
        if min(lacking) >= 0 and sum(lacking) == repeats:
            given = (given[0], row["duplicates"], row["conflicts"], given[3])
    if given != tuple(row[name] for name in names):
        told = {f"{name}_in_kafka": count for name, count in zip(names, given, strict=True)}
        counted = {name: row[name] for name in names}
        yield Fault("I1", "a batch's counts are not what Kafka's records give", {**place, **counted, **told})
    elif batch.absent != row["unverified"] and not batch.gone:
        counts = {"unverified": row["unverified"], "without_their_first": batch.absent}
        yield Fault("I1", "repeats have no first event, and were not counted so", {**place, **counts})


_NAMES = ("tenant", "session_id", "producer", "epoch", "stream")


def _names(event: Event) -> tuple[str, str, str, int, str]:
    return event.tenant, event.session_id, event.producer, event.epoch, event.stream


def _told(event: Event) -> Row:
    return {
        **dict(zip(_NAMES, _names(event), strict=True)),
        "seq": event.seq,
        **({"receipt_key": event.receipt_key} if event.seq is None else {}),
    }
