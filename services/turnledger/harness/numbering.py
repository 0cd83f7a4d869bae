"""Owns the envelopes of one stream: each event is redacted, cut, checked against the contract and given the next number. No I/O."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import orjson

from turnledger.contract.fast import FastReader
from turnledger.contract.reader import Rejected
from turnledger.contract.redact import BODY, BODY_LIMIT, Redactor
from turnledger.errors import TurnledgerError
from turnledger.harness.facts import cut
from turnledger.harness.kafka import key_of
from turnledger.settings import LEAST_KEY, Settings

RECORD_LIMIT = 1024 * 1024
"""Greatest event in bytes (contract 15)."""


class LedgerError(TurnledgerError):
    """An event that the ledger would not take, or that could not be delivered."""


class Numbering:
    """Makes envelopes of one stream and gives each the next number. No I/O; not safe for threads by itself."""

    def __init__(
        self,
        session_id: str,
        *,
        tenant: str = "default",
        producer: str = "harness",
        stream: str = "ledger",
        epoch: int | None = None,
        kind: str = "live",
        run_id: str | None = None,
        bodies: bool = False,
        body_bytes: int = BODY_LIMIT,
        redaction_key: str | bytes | None = None,
    ) -> None:
        self._redactor = Redactor(
            slot_key=_slot_key(redaction_key), bodies=bodies, body_limit=body_bytes if bodies else None
        )
        self._reader = FastReader(limit=RECORD_LIMIT)
        self.epoch = time.time_ns() // 1000 if epoch is None else epoch
        self.next_seq = 0
        fixed: dict[str, Any] = {
            "schema_version": 1,
            "tenant": tenant,
            "session_id": session_id,
            "producer": producer,
            "epoch": self.epoch,
            "stream": stream,
            "kind": kind,
        }
        if run_id is not None:
            fixed["run_id"] = run_id
        self._fixed = fixed
        # A bad session id is said here, not at the first event.
        first: dict[str, Any] = orjson.loads(self._encode({"seq": 0, "type": "session.started"}))
        self.key = key_of(first["tenant"], first["session_id"])
        self.envelope = {name: first[name] for name in fixed}
        """What every event of the stream has in common, as it leaves (nothing in it needs redaction any more)."""

    def continue_at(self, epoch: int, next_seq: int) -> None:
        """Go on where a spool says that the stream stands."""
        self.epoch = self._fixed["epoch"] = self.envelope["epoch"] = epoch
        self.next_seq = next_seq

    def event(
        self, type: str, payload: Mapping[str, Any] | None, correlation: Mapping[str, Any]
    ) -> tuple[int, bytes]:
        """(number, record). The number is spent only when the event is one that the ledger accepts."""
        seq = self.next_seq
        record = self.record(seq, type, payload, correlation)
        self.next_seq = seq + 1
        return seq, record

    def record(
        self, seq: int, type: str, payload: Mapping[str, Any] | None, correlation: Mapping[str, Any]
    ) -> bytes:
        """The record of an event under a number that the caller spends. Raises :class:`LedgerError` for what the ledger would refuse."""
        fields = {name: value for name, value in correlation.items() if value is not None}
        fields.setdefault("occurred_at", datetime.now(UTC).isoformat(timespec="microseconds"))
        return self._encode({"seq": seq, "type": type, **fields, "payload": dict(payload or {})})

    def _encode(self, fields: dict[str, Any]) -> bytes:
        try:
            # Redacted before anything is cut, so that no half of a secret is left.
            whole = self._redactor.clean({**self._fixed, **fields})
            payload = whole.get("payload") or {}
            record = orjson.dumps(
                {**whole, "payload": payload if whole["type"] == BODY else _cut_texts(payload)}
            )
        except (orjson.JSONEncodeError, TypeError) as error:
            raise LedgerError(
                f"the event {fields.get('type')!r} is not JSON ({error}): give texts, numbers, booleans, lists and objects"
            ) from None
        answer = self._reader.read(record)
        if isinstance(answer, Rejected):
            place = f" in {answer.field}" if answer.field else ""
            raise LedgerError(
                f"the ledger would refuse the event {fields.get('type')!r}: {answer.reason}{place} ({answer.detail}); correct it and emit again"
            )
        return record


def _cut_texts(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Long texts are cut, with their full size and the word ``truncated`` (contract 6). Bodies are off by default (contract 14)."""
    result = dict(payload)
    for name, value in payload.items():
        if isinstance(value, str) and len(value) > 16 * 1024:
            result[name], size = cut(value)
            if size is not None:
                result[f"{name}_bytes"], result["truncated"] = size, True
    return result


@cache
def _key_of_process() -> bytes:
    """Where nobody gives a key: one that ends with the process. Slot values of all its streams compare, with no other process's."""
    return secrets.token_bytes(32)


def _slot_key(given: str | bytes | None) -> bytes:
    if given is None:
        return Settings().slot_key() or _key_of_process()
    key = given.encode() if isinstance(given, str) else given
    if len(key) < LEAST_KEY:
        raise LedgerError(f"redaction_key has {len(key)} bytes: give at least {LEAST_KEY}")
    return key
