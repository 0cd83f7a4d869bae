"""What must hold after a run (design 9), judged from what was produced and what the tables hold. Uses nothing of ``ingest``.

I1 to I3 are counted over plain sets of what is in the log; I4 and I7 come from folding each session's accepted events from scratch.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from tests.simulation.log import Broker
from tests.simulation.rollup import sums
from tests.simulation.statements import KINDS, decoded
from tests.simulation.tables import Row, Server
from turnledger.contract.canonical import content_hash
from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.contract.reader import Rejected
from turnledger.doctor.held import HeldEvent, StoredStream, events_faults
from turnledger.doctor.refold import StoredProjection, gap_faults, projection_faults
from turnledger.fold.document import session_rows
from turnledger.fold.model import SessionFold
from turnledger.fold.seen import StreamSeen
from turnledger.fold.session import fold_session
from turnledger.store.read import SessionRef

Identity = tuple[str, str, str, int, str, int | str]
"""(tenant, session, producer, epoch, stream, number or receipt key)."""


def identity(event: Event) -> Identity:
    number: int | str | None = event.seq if event.seq is not None else event.receipt_key
    assert number is not None
    return (event.tenant, event.session_id, event.producer, event.epoch, event.stream, number)


class Oracle:
    """One judgement. ``faults`` holds (invariant, what)."""

    def __init__(self, server: Server, broker: Broker) -> None:
        self.server = server
        self.broker = broker
        self.faults: list[tuple[str, str]] = []
        self.rows = {name: list(table.rows.values()) for name, table in server.tables.items()}
        self.checked: Counter[str] = Counter()
        """How many things each invariant was checked on."""
        self.folds: dict[int, SessionFold] = {}
        self.refs: dict[int, SessionRef] = {}

    def fault(self, invariant: str, what: str) -> None:
        if len(self.faults) < 20:
            self.faults.append((invariant, what))

    def judge(self) -> list[tuple[str, str]]:
        self.records()
        self.chain()
        self.sessions()
        self.rollups()
        return self.faults

    # --- I1: what was produced is there once ---

    def records(self) -> None:
        read = FastReader(limit=1 << 20).read
        by_identity: dict[Identity, Counter[bytes]] = defaultdict(Counter)
        hash_of: dict[Identity, set[bytes]] = defaultdict(set)
        dead: set[tuple[int, int]] = set()
        for place, value in self.broker.everything.items():
            event = read(value)
            if isinstance(event, Rejected):
                dead.add(place)
                continue
            assert value is not None
            name = identity(event)
            digest = content_hash(value)
            by_identity[name][digest] += 1
            hash_of[name].add(digest)
        self._dead(dead)
        stored = self._stored()
        self.checked["I1 identities"] += len(by_identity)
        for name in by_identity.keys() | stored.keys():
            kept = stored.get(name)
            if kept is None:
                self.fault("I1", f"{name} was produced and is nowhere")
            elif name not in by_identity:
                self.fault("I1", f"{name} is in the ledger and was never produced")
            elif kept not in by_identity[name]:
                self.fault("I1", f"{name} is in the ledger with a content that nobody produced")
        self._conflicts(by_identity, stored)

    def _dead(self, dead: set[tuple[int, int]]) -> None:
        letters = {(row["partition"], row["kafka_offset"]) for row in self.rows["dead_letters"]}
        self.checked["I1 dead letters"] += len(dead)
        for place in dead ^ letters:
            self.fault(
                "I1",
                f"partition and offset {place}: {'no dead letter' if place in dead else 'a dead letter of a good record'}",
            )

    def _stored(self) -> dict[Identity, bytes]:
        """Content hashes of the ledger's events."""
        sessions = {row["session_no"]: row for row in self.rows["sessions"]}
        streams = {row["stream_no"]: row for row in self.rows["streams"]}
        read = FastReader(limit=1 << 20).read
        found: dict[Identity, bytes] = {}
        for row in self.rows["events"]:
            stream = streams.get(row["stream_no"])
            session = sessions.get(stream["session_no"]) if stream is not None else None
            if stream is None or session is None:
                self.fault("I1", f"an event of stream_no {row['stream_no']} has no stream or no session")
                continue
            event = read(row["raw"])
            assert isinstance(event, Event)
            name = identity(event)
            place = (
                session["tenant"],
                session["session_id"],
                stream["producer"],
                stream["epoch"],
                stream["stream"],
            )
            if name[:5] != place or (event.seq is not None and event.seq != row["seq"]):
                self.fault("I1", f"{name} stands at the place of {place} {row['seq']}")
            if name in found:
                self.fault("I1", f"{name} is in the ledger twice")
            found[name] = row["received_sha256"] or content_hash(row["raw"])
        return found

    def _conflicts(
        self, produced: Mapping[Identity, Counter[bytes]], stored: Mapping[Identity, bytes]
    ) -> None:
        """One receipt for each losing content, with how often it came."""
        sessions = {row["session_no"]: row for row in self.rows["sessions"]}
        streams = {row["stream_no"]: row for row in self.rows["streams"]}
        ordinals = {(row["stream_no"], -1 - row["ordinal"]): row["key_hash"] for row in self.rows["receipts"]}
        names = {
            (
                *name[:5],
                hashlib.sha256(str(name[5]).encode()).digest()[:16] if isinstance(name[5], str) else name[5],
            ): name
            for name in produced
        }
        wanted = {
            (name, lost): count
            for name, contents in produced.items()
            for lost, count in contents.items()
            if name in stored and lost != stored[name]
        }
        found: dict[tuple[Identity, bytes], int] = {}
        for row in self.rows["conflicts"]:
            stream = streams[row["stream_no"]]
            session = sessions[stream["session_no"]]
            number = row["seq"] if row["seq"] >= 0 else ordinals[row["stream_no"], row["seq"]]
            place = (
                session["tenant"],
                session["session_id"],
                stream["producer"],
                stream["epoch"],
                stream["stream"],
                number,
            )
            name = names[place]
            found[name, row["lost_sha256"]] = row["count"]
            if row["kept_sha256"] != stored.get(name):
                self.fault("I1", f"the receipt of a conflict of {name} names another content as kept")
        self.checked["I1 conflicts"] += len(wanted)
        for key in wanted.keys() | found.keys():
            if wanted.get(key, 0) != found.get(key, 0):
                self.fault(
                    "I1",
                    f"{key[0]} came {wanted.get(key, 0)} times with the losing content {key[1].hex()[:8]}, its receipt says {found.get(key, 0)}",
                )

    # --- I2, I3: the chain of batches ---

    def chain(self) -> None:
        events: Counter[int] = Counter(row["batch_no"] for row in self.rows["events"])
        letters: Counter[int] = Counter(row["batch_no"] for row in self.rows["dead_letters"])
        for progress in self.rows["ingest_progress"]:
            partition = progress["partition"]
            batches = [row for row in self.rows["ingest_batches"] if row["partition"] == partition]
            batches.sort(key=lambda row: row["from_offset"])
            at = progress["first_offset"]
            last_batch, last_epoch = 0, 0
            for row in batches:
                self.checked["I2 batches"] += 1
                if row["from_offset"] != at:
                    self.fault(
                        "I2",
                        f"partition {partition}: a batch begins at {row['from_offset']} where {at} is next",
                    )
                at = row["to_offset"]
                held = [
                    offset
                    for offset in range(row["from_offset"], row["to_offset"])
                    if (partition, offset) in self.broker.everything
                ]
                if row["records"] != len(held):
                    self.fault(
                        "I2",
                        f"partition {partition}: a batch counts {row['records']} records where {len(held)} were",
                    )
                if row["accepted"] + row["duplicates"] + row["conflicts"] + row["dead"] != row["records"]:
                    self.fault(
                        "I2",
                        f"partition {partition}: the parts of batch {row['batch_no']} are not its records",
                    )
                if row["accepted"] != events[row["batch_no"]] or row["dead"] != letters[row["batch_no"]]:
                    self.fault(
                        "I2",
                        f"partition {partition}: batch {row['batch_no']} counts other events or dead letters than there are",
                    )
                if row["unverified"]:
                    self.fault(
                        "I1", f"partition {partition}: batch {row['batch_no']} could not find what came again"
                    )
                if (
                    row["batch_no"] <= last_batch
                    or row["epoch"] < last_epoch
                    or row["epoch"] > progress["owner_epoch"]
                ):
                    self.fault("I3", f"partition {partition}: batch {row['batch_no']} is not in order")
                last_batch, last_epoch = row["batch_no"], row["epoch"]
            if at != progress["next_offset"]:
                self.fault(
                    "I2", f"partition {partition}: the batches end at {at}, next is {progress['next_offset']}"
                )
            last = max(
                (offset for number, offset in self.broker.everything if number == partition), default=None
            )
            if last is not None and progress["next_offset"] <= last:
                self.fault(
                    "I2", f"partition {partition}: {last} was produced, and {progress['next_offset']} is next"
                )
            self.checked["I3 partitions"] += 1
        conflicts = sum(row["conflicts"] for row in self.rows["ingest_batches"])
        if conflicts != sum(row["count"] for row in self.rows["conflicts"]):
            self.fault("I2", "the batches count other conflicts than the receipts")

    # --- I4, I7: sessions ---

    def sessions(self) -> None:
        read = FastReader(limit=1 << 20).read
        streams: dict[int, list[StoredStream]] = defaultdict(list)
        by_number: dict[int, StoredStream] = {}
        session_of: dict[int, int] = {}
        for row in self.rows["streams"]:
            one = StoredStream(
                row["stream_no"],
                (row["producer"], row["epoch"], row["stream"]),
                *(row[name] for name in ("low", "hi", "holes", "receipts", "open_gaps")),
            )
            streams[row["session_no"]].append(one)
            by_number[row["stream_no"]] = one
            session_of[row["stream_no"]] = row["session_no"]
        for row in self.rows["stream_chunks"]:
            by_number[row["stream_no"]].chunks[row["chunk"]] = row["bits"]
        for row in self.rows["stream_days"]:
            by_number[row["stream_no"]].days[row["day"]] = (row["seq_from"], row["seq_to"])
        for row in self.rows["receipts"]:
            by_number[row["stream_no"]].known[row["ordinal"]] = (row["key_hash"], row["day"])
        for row in self.rows["gaps"]:
            if row["closed_at"] is None:
                by_number[row["stream_no"]].gaps.append(
                    tuple(row[n] for n in ("from_seq", "to_seq", "state", "ranges", "missing"))  # type: ignore[arg-type]
                )
        events: dict[int, list[HeldEvent]] = defaultdict(list)
        for row in self.rows["events"]:
            event = read(row["raw"])
            assert isinstance(event, Event)
            event.position = row["kafka_offset"]
            events[session_of[row["stream_no"]]].append(
                HeldEvent(event, row["stream_no"], row["seq"], row["day"])
            )
        stored = StoredProjection(self._projection())
        for row in self.rows["sessions"]:
            number = row["session_no"]
            ref = self.refs[number] = SessionRef(number, row["tenant"], row["session_id"])
            self._seen(ref, streams[number], events[number])
            for fault in events_faults(ref, streams[number], events[number]):
                self.fault(fault.invariant, f"{fault.what}: {fault.row}")
            fold = self.folds[number] = fold_session(
                row["tenant"], row["session_id"], [one.event for one in events[number]]
            )
            self.checked["I4 turns"] += len(fold.turns)
            self.checked["I7 streams"] += len(streams[number])
            for fault in projection_faults(ref, fold, events[number], stored):
                self.fault(fault.invariant, f"{fault.what}: {fault.row}")
            for fault in gap_faults(ref, fold.gaps, streams[number]):
                self.fault(fault.invariant, f"{fault.what}: {fault.row}")
        self._gap_history()

    def _seen(self, ref: SessionRef, streams: Iterable[StoredStream], events: Iterable[HeldEvent]) -> None:
        """The holes that a stream remembers are the numbers that are not there."""
        numbers: dict[int, set[int]] = defaultdict(set)
        for one in events:
            if one.seq >= 0:
                numbers[one.stream_no].add(one.seq)
        for stream in streams:
            there = numbers[stream.stream_no]
            missing = set(range(max(there, default=-1) + 1)) - there
            seen = StreamSeen(stream.hi, stream.chunks)
            remembered = {seq for first, last in seen.holes() for seq in range(first, last + 1)}
            if remembered != missing or stream.holes != len(missing):
                self.fault(
                    "I7",
                    f"{ref.tenant}/{ref.session_id} {stream.key}: remembers the holes {remembered}, missing are {missing}",
                )

    def _gap_history(self) -> None:
        """A closed row says what became of its numbers."""
        there = {(row["stream_no"], row["seq"]) for row in self.rows["events"]}
        for row in self.rows["gaps"]:
            self.checked["I7 gaps"] += 1
            if row["state"] == "filled_late":
                for seq in range(row["from_seq"], row["to_seq"] + 1):
                    if (row["stream_no"], seq) not in there:
                        self.fault(
                            "I7",
                            f"stream_no {row['stream_no']}: {seq} counts as filled late and is not there",
                        )

    # --- I5: rollups ---

    def rollups(self) -> None:
        """Shares and hours are what the fresh folds add up to."""
        hours: dict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
        for number, fold in self.folds.items():
            ref = self.refs[number]
            computed = sums(session_rows(fold, (), 0))
            for table, rows in (("hour_parts", computed.hour_parts), ("rollup_ai_usage", computed.ai_usage)):
                self.checked["I5 rows"] += len(rows)
                stored = [row for row in self.rows[table] if row["session_no"] == number]
                plain = [
                    {k: v for k, v in row.items() if k not in ("serial", "session_no")} for row in stored
                ]
                if sorted(map(repr, plain)) != sorted(map(repr, rows)):
                    self.fault(
                        "I5", f"{table} of {ref.tenant}/{ref.session_id} says {plain}, computed is {rows}"
                    )
            for row in computed.hour_parts:
                for name, value in row.items():
                    if isinstance(value, int) and name != "hour":
                        hours[ref.tenant, row["hour"], row["provider"], row["model"]][name] += value
        stored_hours = {
            tuple(row[name] for name in ("tenant", "hour", "provider", "model")): row
            for row in self.rows["usage_hourly"]
        }
        for key in hours.keys() | stored_hours.keys():
            self.checked["I5 hours"] += 1
            row = stored_hours.get(key, {})
            for name in ("calls", "usage_total", "usage_reported", "total_input_tokens", "cost_micro_usd"):
                if (row.get(name) or 0) != hours[key][name]:
                    self.fault(
                        "I5",
                        f"usage_hourly {key}: {name} is {row.get(name)}, its parts are {hours[key][name]}",
                    )

    def _projection(self) -> dict[tuple[str, int], list[Row]]:
        found: dict[tuple[str, int], list[Row]] = defaultdict(list)
        for table in KINDS:
            for row in self.rows[table]:
                full = decoded(table, row)
                if table == "findings" and full["source"] != "fold":
                    continue
                found[table, full["session_no"]].append(full)
        return found


def digest(server: Server) -> str:
    """What all tables hold, as one number: two runs of one seed give the same."""
    state: dict[str, Any] = {
        name: sorted(repr(sorted((str(k), str(v)) for k, v in row.items())) for row in table.rows.values())
        for name, table in server.tables.items()
    }
    return hashlib.sha256(orjson.dumps(state, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]
