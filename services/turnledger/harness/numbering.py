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
from turnledger.harness.facts import TEXT_LIMIT
from turnledger.harness.kafka import key_of
from turnledger.harness.moving import BODY_ABOUT, Moved, bodies_of, cut_texts
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
        self._body_limit = body_bytes if bodies else None
        self._moved: list[Moved] = []
        """Texts that the last record was too short for."""
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
    ) -> tuple[int, list[bytes]]:
        """(number, records): the event, and behind it the bodies of its long texts under the next numbers. Spent only when the ledger accepts all."""
        seq = self.next_seq
        records = self.records(seq, type, payload, correlation)
        self.next_seq = seq + len(records)
        return seq, records

    def records(
        self, seq: int, type: str, payload: Mapping[str, Any] | None, correlation: Mapping[str, Any]
    ) -> list[bytes]:
        """The records of an event from a number on that the caller spends: its own, and those of the texts that are too long for it (contract 6)."""
        record = self.record(seq, type, payload, correlation)
        if len(record) <= TEXT_LIMIT or type == BODY or not self._moved:
            return [record]
        moved, told = self._moved, orjson.loads(record)
        about = {name: told[name] for name in BODY_ABOUT if name in told}
        bodies = bodies_of(type, told["event_id"], told["payload"], moved, self._body_limit)
        return [record, *(self.record(seq + 1 + at, BODY, body, about) for at, body in enumerate(bodies))]

    def record(
        self, seq: int, type: str, payload: Mapping[str, Any] | None, correlation: Mapping[str, Any]
    ) -> bytes:
        """The record of an event under a number that the caller spends. Raises :class:`LedgerError` for what the ledger would refuse."""
        fields = {name: value for name, value in correlation.items() if value is not None}
        fields.setdefault("occurred_at", datetime.now(UTC).isoformat(timespec="microseconds"))
        self._moved = []
        return self._encode({"seq": seq, "type": type, **fields, "payload": dict(payload or {})})

    def _encode(self, fields: dict[str, Any]) -> bytes:
        try:
            # Redacted before anything is cut, so that no half of a secret is left.
            whole = self._redactor.clean({**self._fixed, **fields})
            record = orjson.dumps(whole)
            if len(record) > TEXT_LIMIT and whole["type"] != BODY:
                payload, self._moved = cut_texts(whole.get("payload") or {})
                if self._moved:
                    whole.setdefault("event_id", secrets.token_hex(6))
                    record = orjson.dumps({**whole, "payload": payload})
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
