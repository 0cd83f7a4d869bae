"""Owns how an event of an imported file gets its identity: by the record's own id and content, or by its number in a file that only grows.

Which of the two a format takes is its adapter's choice and stands in its notes (design 7).
"""

from __future__ import annotations

from typing import Any

from turnledger.harness.facts import Envelope, cut, digest, known

KEY_BYTES = 400
"""Of a record's id that go into a key; its hash covers the rest."""
EVENTS_A_RECORD = 256
"""Numbers that one record of a growing file may use."""

DECLARED, STARTED, TOLD, ANSWERED, ENDED = 0, 1, 5, 8, 9
"""Ranks: events of one instant and no number are ordered by their keys (contract 5), so a key begins with one."""


class Told:
    """Events of one session whose records have ids of their own: files that are rewritten, sliced or copied.

    Equal keys are equal events, in whatever file and at whatever place they stand, since the key holds a hash of what is told.
    """

    def __init__(self, producer: str, version: int, session: str) -> None:
        self._producer = producer
        self._version = version
        self._session = session
        self._declared: set[str] = set()

    @property
    def session(self) -> str:
        """The session that is told about."""
        return self._session

    def declared(self, stream: str = "main") -> list[Envelope]:
        """The declaration that holes in this stream mean nothing, once a stream."""
        if stream in self._declared:
            return []
        self._declared.add(stream)
        return [
            self.event("stream.declared", {"density": "unknown"}, key="stream", rank=DECLARED, stream=stream)
        ]

    def event(
        self,
        kind: str,
        payload: dict[str, Any],
        *,
        key: str,
        rank: int = TOLD,
        stream: str = "main",
        at: str | None = None,
        call: str | None = None,
        tool: str | None = None,
        turn: str | None = None,
        trace: str | None = None,
        parent: str | None = None,
        provenance: str | None = None,
    ) -> Envelope:
        """One event. ``key`` names what it tells within the session; the hash of what it tells stands behind it."""
        event: Envelope = {
            "session_id": self._session,
            "producer": self._producer,
            "epoch": self._version,
            "kind": "import",
            "stream": stream,
            "type": kind,
        }
        if at is not None:
            event["occurred_at"] = at
        if turn is not None:
            event["turn_id"] = turn
        if call is not None:
            event["model_call_id"] = call
        if tool is not None:
            event["tool_call_id"] = tool
        if trace is not None:
            event["trace_id"] = trace
        if parent is not None:
            event["parent_session_id"] = parent
        if provenance is not None:
            event["provenance"] = provenance
        event["payload"] = payload
        base = f"{rank}{cut(key, KEY_BYTES)[0]}"
        event["receipt_key"] = f"{base}:{digest([key, event])}"
        return event


class Numbered:
    """Events of one stream of a file that only grows: an event's number is its record's × 256 + its place in the record."""

    def __init__(self, producer: str, version: int, session: str, stream: str) -> None:
        self._producer = producer
        self._version = version
        self._session = session
        self._stream = stream
        self._number = 0
        self._ordinal = 0

    def at(self, number: int, ordinal: int = 0) -> None:
        """Go to a record, or to a place in it."""
        self._number, self._ordinal = number, ordinal

    def event(
        self,
        kind: str,
        payload: dict[str, Any],
        *,
        at: str | None = None,
        call: str | None = None,
        tool: str | None = None,
        turn: str | None = None,
        trace: str | None = None,
        parent: str | None = None,
        provenance: str | None = None,
        event_id: str | None = None,
    ) -> Envelope:
        """The next event of the record; a record tells at most 256."""
        seq = self._number * EVENTS_A_RECORD + min(self._ordinal, EVENTS_A_RECORD - 1)
        self._ordinal += 1
        return known(
            {
                "session_id": self._session,
                "producer": self._producer,
                "epoch": self._version,
                "stream": self._stream,
                "seq": seq,
                "type": kind,
                "occurred_at": at,
                "kind": "import",
                "event_id": event_id,
                "turn_id": turn,
                "model_call_id": call,
                "tool_call_id": tool,
                "trace_id": trace,
                "parent_session_id": parent,
                "provenance": provenance,
                "payload": payload,
            }
        )
