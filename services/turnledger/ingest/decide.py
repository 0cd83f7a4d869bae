"""What becomes of each record: accepted, a repeat (duplicate or conflict, told by the write), or dead (contract 3 and 15). No I/O.

The rule stands in :meth:`Decider.decide`: a number that its stream has not seen is accepted, one that it has seen is a repeat.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence

from turnledger.contract.canonical import content_hash, dumps
from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.contract.jsontext import parse
from turnledger.contract.reader import Rejected
from turnledger.contract.redact import Redactor
from turnledger.contract.shapes import hide, hide_bytes
from turnledger.fold.model import StreamKey
from turnledger.ingest.batch import Record
from turnledger.ingest.cache import RECEIPTS_IN_MEMORY, SessionEntry, SessionKey, StreamEntry
from turnledger.ingest.load import kafka_key
from turnledger.store.keys import receipt_hash
from turnledger.store.write import event_fields, event_parts, receipt_row, redaction_row
from turnledger.store.write_binary import EPOCH_MICROSECONDS, NULL, bytea, field_count, int4, int8, text
from turnledger.store.write_rows import DeadLetter, Repeat, Round, Share

DELTA = "model_call.delta"
"""Accepted, its position counts, its text is not stored (contract 6)."""

_TYPES_IN_MEMORY = 4096


class Group:
    """The events of one session in one partition of a round, in offset order."""

    __slots__ = (
        "events", "first_mismatch", "kafka_key", "key", "last_mismatch", "mismatched", "raws", "session_id", "share", "tenant", "unnumbered",
    )  # fmt: skip

    def __init__(self, key: SessionKey, share: Share) -> None:
        # Thousands a round with one or two events each: written out, it costs half of what a dataclass with factories does.
        self.key = key
        self.tenant, self.session_id = key
        self.kafka_key = kafka_key(key)
        self.share = share
        self.events: list[Event] = []
        self.raws: list[bytes] = []
        self.unnumbered = False
        """Some have only a receipt key."""
        self.mismatched = 0
        self.first_mismatch: Record | None = None
        self.last_mismatch = 0


def _group(event: Event, record: Record, share: Share, groups: dict[SessionKey, Group]) -> Group:
    """The group of an event; a record whose key is not that of its body is noted (contract 15)."""
    key = (event.tenant, event.session_id)
    group = groups.get(key)
    if group is None:
        group = groups[key] = Group(key, share)
    if record.key != group.kafka_key and (record.key is None or hide_bytes(record.key) != group.kafka_key):
        if group.first_mismatch is None:
            group.first_mismatch = record
        group.mismatched += 1
        group.last_mismatch = record.offset
    return group


class DeadWindow:
    """The stop rule: too large a share of dead letters among the last records of a partition (contract 15)."""

    def __init__(self, share: float, window: int, records: int = 0, dead: Iterable[int] = ()) -> None:
        """More than ``share`` of the last ``window`` records is too much. ``records`` were read before this worker took the partition,
        dead ones at the places ``dead`` among them (from 0, ascending)."""
        self.share = share
        self.window = window
        self._read = records
        self._dead = list(dead)
        self._forget()

    @property
    def dead(self) -> int:
        """Dead letters among the last records."""
        return len(self._dead)

    @property
    def exceeded(self) -> bool:
        return len(self._dead) > self.share * self.window

    def passed(self, records: int) -> None:
        """So many records that were not dead."""
        self._read += records
        self._forget()

    def died(self) -> bool:
        """One dead record; True when the share is too large now."""
        self._dead.append(self._read)
        self._read += 1
        self._forget()
        return self.exceeded

    def _forget(self) -> None:
        dead = self._dead
        oldest = self._read - self.window
        if dead and dead[0] < oldest:
            self._dead = [index for index in dead if index >= oldest]

    def copy(self) -> DeadWindow:
        return DeadWindow(self.share, self.window, self._read, self._dead)


class Decider:
    """Reads records and decides over them. Keeps nothing of them but the words of event types."""

    def __init__(self, record_limit: int, dead_letter_bytes: int, redactor: Redactor | None = None) -> None:
        self._reader = FastReader(limit=record_limit)
        self._redactor = redactor or Redactor()
        self._read_redacted = FastReader(limit=sys.maxsize).read
        self._cap = dead_letter_bytes
        self._types: dict[str, bytes] = {}
        self.passing: list[tuple[StreamEntry, bytes]] = []
        """Receipts that memory holds until their round is committed, of streams that have too many to keep."""

    def read(
        self, records: Sequence[Record], share: Share, groups: dict[SessionKey, Group], window: DeadWindow
    ) -> int:
        """Decode records into ``groups``; dead letters go to ``share``. Returns how many records were taken: all, or those up to the
        one at which the share of dead letters became too large."""
        read = self._reader.read
        by_kafka_key: dict[bytes | None, Group] = {}
        find = by_kafka_key.get
        passed = 0
        taken = 0
        suspects = self._redactor.suspects([record.value for record in records])
        for record in records:
            raw = record.value
            event = read(raw)
            if suspects and taken in suspects and type(event) is Event:
                event, raw = self._redacted(record, event, share)
            taken += 1
            if type(event) is not Event:
                share.dead.append(self._dead(record, event))
                window.passed(passed)
                passed = 0
                if window.died():
                    break
                continue
            passed += 1
            event.position = record.offset
            event.length = len(raw)  # type: ignore[arg-type]  # an event has a value
            # A group that is found by its own key, and whose session is the event's, needs no further look.
            group = find(record.key)
            if group is None or group.session_id != event.session_id or group.tenant != event.tenant:
                group = _group(event, record, share, groups)
                by_kafka_key[group.kafka_key] = group
            if event.seq is None:
                group.unnumbered = True
            group.events.append(event)
            group.raws.append(raw)  # type: ignore[arg-type]  # an event has a value
        window.passed(passed)
        share.records += taken
        return taken

    def _redacted(self, record: Record, event: Event, share: Share) -> tuple[Event | Rejected, bytes | None]:
        """The event and the bytes that are stored of a record in which there may be a secret (contract 14)."""
        raw = record.value
        assert raw is not None
        found = self._redactor.redact(raw)
        if found is None:
            return event, raw
        share.redacted[record.offset] = found
        return self._read_redacted(found.raw), found.raw

    def _dead(self, record: Record, why: object) -> DeadLetter:
        """Nothing of it may show a secret, neither its bytes: hidden before they are cut, so that no half of one is left."""
        assert isinstance(why, Rejected)
        raw, key = record.value, record.key
        kept = None if raw is None else hide_bytes(raw)
        return DeadLetter(
            offset=record.offset,
            reason=why.reason,
            field=why.field,
            detail=why.detail,
            tenant=None if why.tenant is None else hide(why.tenant),
            session_id=None if why.session_id is None else hide(why.session_id),
            raw=None if kept is None else kept[: self._cap],
            raw_bytes=None if raw is None else len(raw),
            key=None if key is None else hide_bytes(key)[: self._cap],
            received_sha256=None if raw is None or kept is raw else _hash_of(raw),
        )

    def decide(
        self,
        entry: SessionEntry,
        group: Group,
        round_: Round,
        new_stream: Callable[[SessionEntry, StreamKey], StreamEntry],
        touched: list[StreamEntry],
    ) -> list[Event]:
        """The accepted events of a group, in offset order; rows, repeats and receipts go to ``round_`` and the group's share."""
        streams = entry.streams
        types = self._types.get
        share = group.share
        add_row = share.rows.extend
        redacted = share.redacted
        accepted: list[Event] = []
        accept = accepted.append
        key: StreamKey | None = None
        stream: StreamEntry | None = None
        for event, raw in zip(group.events, group.raws, strict=True):
            named = (event.producer, event.epoch, event.stream)
            if named != key or stream is None:
                key = named
                stream = streams.get(named)
                if stream is None:
                    stream = new_stream(entry, named)
                if not stream.touched:
                    stream.touched = True
                    touched.append(stream)
            seq = event.seq
            if seq is None:
                known = self._receipt(event, stream, round_)
                if known is not None:
                    known.session_no, known.raw, known.offset = entry.session_no, raw, event.position
                    if redacted:
                        known.received_sha256 = share.received_sha256(event.position)
                    share.repeats.append(known)
                    continue
                seq = -stream.next_ordinal  # -1 - ordinal; the ordinal was just given
            elif stream.seen.add(seq):
                if stream.first is None:
                    stream.first = stream.last = seq
                elif seq > stream.last:  # type: ignore[operator]  # set together with first
                    stream.last = seq
                elif seq < stream.first:
                    stream.first = seq
            else:
                received = share.received_sha256(event.position) if redacted else None
                share.repeats.append(
                    Repeat(entry.session_no, stream.stream_no, seq, None, None, raw, event.position, received)
                )
                continue
            type_field = types(event.type)
            at = event.at
            hidden = redacted.get(event.position) if redacted else None
            if type_field is not None and at is not None and hidden is None:
                # What event_parts makes of it, without the call.
                add_row(
                    (
                        b"",
                        type_field,
                        event_fields(
                            8,
                            stream.stream_no,
                            8,
                            seq,
                            8,
                            event.position,
                            8,
                            at - EPOCH_MICROSECONDS,
                            -1,
                            len(raw),
                        ),
                        raw,
                    )
                )
            else:
                received = None
                if type_field is None:
                    type_field = self._type_field(event.type)
                    if event.type == DELTA:
                        raw, received = self._without_text(event, raw)
                if hidden is not None:
                    received = hidden.received_sha256
                    # An archive also tells the hash of what came where a text was left out: nothing was redacted there.
                    if hidden.notes:
                        round_.redactions.append(
                            redaction_row(
                                entry.session_no, stream.stream_no, seq, event.receipt_key, hidden.rows()
                            )
                        )
                        round_.marks.append(entry.session_no)
                add_row(event_parts(stream.stream_no, seq, event.position, at, type_field, raw, received))
            accept(event)
        share.accepted += len(accepted)
        if group.mismatched:
            round_.mismatches.append(_mismatch_row(entry.session_no, round_.topic, group))
        return accepted

    def _receipt(self, event: Event, stream: StreamEntry, round_: Round) -> Repeat | None:
        """A repeat where the receipt is known; else it gets the stream's next ordinal."""
        receipt_key = event.receipt_key
        assert receipt_key is not None
        key_hash = receipt_hash(receipt_key)
        known = stream.receipts.get(key_hash)
        if known is not None:
            return Repeat(0, stream.stream_no, -1 - known, receipt_key, key_hash, b"", 0)
        ordinal = stream.next_ordinal
        stream.next_ordinal = ordinal + 1
        stream.receipts[key_hash] = ordinal
        if ordinal >= RECEIPTS_IN_MEMORY:
            stream.receipts_whole = False
            self.passing.append((stream, key_hash))
        round_.receipts.append(receipt_row(stream.stream_no, key_hash, ordinal))
        return None

    def _type_field(self, type_: str) -> bytes:
        data = text(type_)
        # Deltas are never found here, so that each comes to where its text is left out.
        if type_ != DELTA and len(self._types) < _TYPES_IN_MEMORY:
            self._types[type_] = data
        return data

    @staticmethod
    def _without_text(event: Event, raw: bytes) -> tuple[bytes, bytes | None]:
        """A delta's record without its text, and the hash of what was received."""
        if "text" not in event.payload:
            return raw, None
        event.payload = {name: value for name, value in event.payload.items() if name != "text"}
        record = parse(raw)
        record["payload"] = {name: value for name, value in record["payload"].items() if name != "text"}
        return dumps(record), content_hash(raw)


def _hash_of(raw: bytes) -> bytes | None:
    """The content hash, where the bytes are an object that could ever be accepted as it came."""
    try:
        return content_hash(raw)
    except ValueError:
        return None


def _mismatch_row(session_no: int, topic: str, group: Group) -> bytes:
    first = group.first_mismatch
    assert first is not None
    key = first.key
    return b"".join(
        (
            field_count(7),
            int8(session_no),
            text(topic),
            int4(group.share.step.partition),
            int8(first.offset),
            int8(group.last_mismatch),
            int8(group.mismatched),
            NULL if key is None else bytea(hide_bytes(key)),
        )
    )
