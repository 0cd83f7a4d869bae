"""The identity of events as the ledger's queries take it: (tenant, session, producer, epoch, stream) and a number, or half a hash (contract 3)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from turnledger.contract.event import Event


def receipt_hash(receipt_key: str) -> bytes:
    """Identity of a receipt in ``ledger.receipts``: half a SHA-256."""
    return sha256(receipt_key.encode()).digest()[:16]


def event_hash(seq: int | None, receipt_key: str | None) -> bytes | None:
    """That of an event without a number; None for one that has a number."""
    return None if seq is not None or receipt_key is None else receipt_hash(receipt_key)


def event_keys(events: Sequence[Event]) -> dict[str, list[Any]]:
    """The keys of ``events`` as parameters of ``verify/topic_keys`` and its like, a list a column."""
    return {
        "tenants": [event.tenant for event in events],
        "sessions": [event.session_id for event in events],
        "producers": [event.producer for event in events],
        "epochs": [event.epoch for event in events],
        "streams": [event.stream for event in events],
        "seqs": [event.seq for event in events],
        "hashes": [event_hash(event.seq, event.receipt_key) for event in events],
    }
