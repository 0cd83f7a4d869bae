"""Owns the whole rule of identity on a plain list of records (contract 3): accepted, duplicate, conflict or dead. No state outlives a call.

The ingest worker gives the same answers from ranges of numbers and the ledger's bytes; a test feeds both the same records.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from turnledger.contract.canonical import content_hash, same_content
from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.contract.reader import DEFAULT_LIMIT, Rejected
from turnledger.contract.redact import Redacted, Redactor
from turnledger.contract.shapes import hide
from turnledger.fold.model import Row

EventKey = tuple[str, str, str, int, str, int | None, str | None]
"""(tenant, session_id, producer, epoch, stream, seq, receipt_key): one of the last two is None."""


@dataclass(slots=True)
class Deduped:
    """What became of the records of one partition."""

    sessions: dict[tuple[str, str], list[Event]]
    """Accepted events by (tenant, session_id), in the order in which they came; ``position`` is set."""
    records: dict[str, int]
    """``read`` = ``accepted`` + ``duplicates`` + ``conflicts`` + ``dead``."""
    conflicts: list[Row] = field(default_factory=list)
    """One receipt per distinct losing hash: {tenant, session_id, producer, epoch, stream, seq, receipt_key, kept_sha256, lost_sha256, count,
    first_position, last_position}; hashes in hex."""
    dead_letters: list[Row] = field(default_factory=list)
    """{position, reason, field, detail, tenant, session_id}."""
    redactions: list[Row] = field(default_factory=list)
    """What was redacted in accepted events (contract 14): {tenant, session_id, producer, epoch, stream, seq, receipt_key, redactions}."""


def event_key(event: Event) -> EventKey:
    """The identity of an event: ``receipt_key`` is part of it only where there is no ``seq``."""
    receipt = event.receipt_key if event.seq is None else None
    return event.tenant, event.session_id, event.producer, event.epoch, event.stream, event.seq, receipt


def dedupe(
    records: Iterable[tuple[int, bytes]], *, limit: int = DEFAULT_LIMIT, redactor: Redactor | None = None
) -> Deduped:
    """Judge (position, bytes) in the order of the partition; the first of a key stays. ``limit``: greatest size of a record in bytes.

    Events are redacted as ingest does it; what is the same is judged on what was received.
    """
    read = FastReader(limit=limit).read
    read_redacted = FastReader(limit=sys.maxsize).read
    redact = (redactor or Redactor()).redact
    redactions: list[Row] = []
    kept: dict[EventKey, bytes] = {}
    sessions: dict[tuple[str, str], list[Event]] = defaultdict(list)
    counts = dict.fromkeys(("read", "accepted", "duplicates", "conflicts", "dead"), 0)
    receipts: dict[tuple[EventKey, str], Row] = {}
    dead_letters: list[Row] = []
    for position, raw in records:
        counts["read"] += 1
        event = read(raw)
        found: Redacted | None = None
        if not isinstance(event, Rejected) and (found := redact(raw)) is not None:
            event = read_redacted(found.raw)
        if isinstance(event, Rejected):
            counts["dead"] += 1
            dead_letters.append(_dead_letter(position, event))
            continue
        key = event_key(event)
        first = kept.get(key)
        if first is None:
            counts["accepted"] += 1
            event.position = position
            kept[key] = raw
            sessions[(event.tenant, event.session_id)].append(event)
            if found is not None:
                redactions.append({**_place(key), "redactions": found.rows()})
        elif same_content(first, raw):
            counts["duplicates"] += 1
        else:
            counts["conflicts"] += 1
            lost = content_hash(raw).hex()
            receipt = receipts.get((key, lost))
            if receipt is None:
                receipts[(key, lost)] = _receipt(key, content_hash(first).hex(), lost, position)
            else:
                receipt["count"] += 1
                receipt["last_position"] = position
    return Deduped(dict(sessions), counts, list(receipts.values()), dead_letters, redactions)


def _place(key: EventKey) -> Row:
    tenant, session_id, producer, epoch, stream, seq, receipt_key = key
    return {
        "tenant": tenant,
        "session_id": session_id,
        "producer": producer,
        "epoch": epoch,
        "stream": stream,
        "seq": seq,
        "receipt_key": receipt_key,
    }


def _receipt(key: EventKey, kept: str, lost: str, position: int) -> Row:
    return {
        **_place(key),
        "kept_sha256": kept,
        "lost_sha256": lost,
        "count": 1,
        "first_position": position,
        "last_position": position,
    }


def _dead_letter(position: int, why: Rejected) -> Row:
    return {
        "position": position,
        "reason": why.reason,
        "field": why.field,
        "detail": why.detail,
        "tenant": None if why.tenant is None else hide(why.tenant),
        "session_id": None if why.session_id is None else hide(why.session_id),
    }
