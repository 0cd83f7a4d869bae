"""Owns pieces of work as a harness does them: a turn, a model call, a tool call. Each begins once, ends once, and says how; pure but for the clock.

What a piece of work is about is frozen when it is made, at its dispatch: nothing that is told about it later, from whatever thread, is put down to
another turn, call or worker, and no later change of the caller's objects reaches it.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from turnledger.harness.numbering import LedgerError
from turnledger.harness.saying import failure

IDENTITIES = ("turn_id", "model_call_id", "tool_call_id", "turn_index", "trace_id")


class HungUp(BaseException):
    """The ledger was closed, or the process ended, while the work went on."""


CUT = (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit, HungUp)
"""What ends a piece of work from outside: it did not fail by itself."""
MOST_MESSAGE = 2048


class Said(NamedTuple):
    """An event that is to be emitted: its type and payload."""

    type: str
    payload: dict[str, Any]


def known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def frozen(about: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of what an event is about that shares nothing with the original. Raises :class:`LedgerError` for an ``origin`` that is not JSON."""
    fields = known(about)
    if "origin" in fields:
        try:
            fields["origin"] = orjson.loads(orjson.dumps(dict(fields["origin"])))
        except (TypeError, ValueError, orjson.JSONEncodeError) as error:
            raise LedgerError(
                f"origin is no object of scalars ({error}): give texts and numbers by name"
            ) from None
    return fields


def joined(fixed: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What an event is about: what was frozen, and what is given with it. Raises :class:`LedgerError` where they name two turns or calls."""
    fields = known(given)
    for name in IDENTITIES:
        if name in fields and name in fixed and fields[name] != fixed[name]:
            raise LedgerError(
                f"this work was dispatched with {name} {fixed[name]!r}, an event of it cannot have {fields[name]!r}: emit it with what it belongs to"
            )
    if "origin" in fields and "origin" in fixed:
        fields["origin"] = {**fields["origin"], **fixed["origin"]}
    return {**fixed, **fields}


def said_of(error: BaseException) -> str:
    """An error as a text: its type and its words."""
    words = str(error)
    return (f"{type(error).__name__}: {words}" if words else type(error).__name__)[:MOST_MESSAGE]


def new_id() -> str:
    """An id that nobody else has."""
    return uuid.uuid4().hex


class Piece(ABC):
    """A piece of work: it begins once and ends once, from whatever thread. Subclasses say how."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.about = frozen(about)
        self._lock = threading.Lock()
        self._began: float | None = None
        self._ended = False

    @property
    def running(self) -> bool:
        """Whether it has begun and not ended."""
        return self._began is not None and not self._ended

    def begin(self) -> list[Said]:
        """What to emit now: nothing when it has begun, or ended, before."""
        with self._lock:
            if self._began is not None or self._ended:
                return []
            self._began = time.monotonic()
        return self.opening()

    def end(self, said: Said | None) -> list[Said]:
        """What to emit at its end: nothing when it has ended before; the first end stands. One that never began has no end."""
        with self._lock:
            if self._ended:
                return []
            self._ended = True
            if self._began is None:
                return []
        return [said if said is not None else self.closing(None)]

    def undo(self, said: Said) -> None:
        """It could not be emitted, so it has not happened: it can be tried again."""
        if said.type.endswith(".started"):
            self._began = None
        else:
            self._ended = False

    @property
    def elapsed_ms(self) -> int:
        """ms since it began."""
        return 0 if self._began is None else round((time.monotonic() - self._began) * 1000)

    @abstractmethod
    def opening(self) -> list[Said]:
        """What says that it began."""

    @abstractmethod
    def closing(self, error: BaseException | None) -> Said:
        """What says that it ended: by itself, or by an error that went through it."""


class TurnPiece(Piece):
    """``turn.started`` to ``turn.completed``."""

    def __init__(self, about: Mapping[str, Any], started: Mapping[str, Any]) -> None:
        super().__init__({"turn_id": new_id(), **known(about)})
        self._started = known(started)

    def opening(self) -> list[Said]:
        """See :class:`Piece`."""
        return [Said("turn.started", self._started)]

    def completed(self, status: str, error: Any = None) -> Said:
        """The end with this status."""
        payload = known({"status": status, "error": error, "duration_ms": self.elapsed_ms})
        return Said("turn.completed", payload)

    def closing(self, error: BaseException | None) -> Said:
        """Completed; interrupted from outside; aborted where nobody waits for it any more; else failed."""
        if error is None:
            return self.completed("completed")
        if isinstance(error, (SystemExit, GeneratorExit, HungUp)):
            return self.completed("aborted", said_of(error))
        return self.completed("interrupted" if isinstance(error, CUT) else "failed", said_of(error))


class ModelCallPiece(Piece):
    """``model_call.started`` to ``model_call.completed`` or ``model_call.failed``."""

    def __init__(self, about: Mapping[str, Any], started: Mapping[str, Any]) -> None:
        super().__init__({"model_call_id": new_id(), **known(about)})
        self._started = known(started)
        self._first_token_ms: int | None = None

    def opening(self) -> list[Said]:
        """See :class:`Piece`."""
        return [Said("model_call.started", self._started)]

    def first_token(self) -> None:
        """The first token is here, now; later ones change nothing."""
        if self._first_token_ms is None:
            self._first_token_ms = self.elapsed_ms

    def completed(self, fields: Mapping[str, Any]) -> Said:
        """The provider answered: provider, model and times are those of the call unless given."""
        own = {
            "provider": self._started.get("provider"),
            "model": self._started.get("model"),
            "latency_ms": self.elapsed_ms,
            "ttft_ms": self._first_token_ms,
        }
        return Said("model_call.completed", {**known(own), **known(fields)})

    def failed(self, fields: Mapping[str, Any]) -> Said:
        """It failed for good."""
        own = {"provider": self._started.get("provider"), "model": self._started.get("model")}
        return Said("model_call.failed", {**known(own), **known(fields)})

    def closing(self, error: BaseException | None) -> Said:
        """Completed without a usage: unknown, not zero; cut from outside; else failed, by the error's status and words."""
        if error is None:
            return self.completed({})
        kind = "cut" if isinstance(error, CUT) else "timeout" if isinstance(error, TimeoutError) else None
        status = getattr(error, "status_code", None)
        return self.failed(failure(said_of(error), status=status if type(status) is int else None, kind=kind))


class ToolCallPiece(Piece):
    """``tool_call.requested`` and ``tool_call.started`` to ``tool_call.completed`` or ``tool_call.denied``."""

    def __init__(self, about: Mapping[str, Any], requested: Mapping[str, Any]) -> None:
        super().__init__({"tool_call_id": new_id(), **known(about)})
        self._requested = known(requested)
        self._told = False

    def request(self) -> list[Said]:
        """What the model asked for, once; ``begin`` says it where nobody did before."""
        with self._lock:
            if self._told or self._ended:
                return []
            self._told = True
        return [Said("tool_call.requested", self._requested)]

    def undo(self, said: Said) -> None:
        """See :class:`Piece`."""
        if said.type == "tool_call.requested":
            self._told = self._ended = False
            self._began = None
        else:
            super().undo(said)

    def opening(self) -> list[Said]:
        """See :class:`Piece`."""
        return [*self.request(), Said("tool_call.started", {"tool_name": self._requested["tool_name"]})]

    def completed(self, status: str, fields: Mapping[str, Any]) -> Said:
        """The result; name and duration are the call's own unless given."""
        own = {"tool_name": self._requested["tool_name"], "duration_ms": self.elapsed_ms}
        return Said("tool_call.completed", {"status": status, **own, **known(fields)})

    def denied(self, fields: Mapping[str, Any]) -> list[Said]:
        """It was not allowed, before or while it ran: what to emit, nothing where it has ended before."""
        with self._lock:
            if self._ended:
                return []
            self._ended = True
            told, self._told = self._told, True
        return [
            *([] if told else [Said("tool_call.requested", self._requested)]),
            Said("tool_call.denied", known(fields)),
        ]

    def closing(self, error: BaseException | None) -> Said:
        """``ok``, or ``error`` with the error's words."""
        if error is None:
            return self.completed("ok", {})
        return self.completed("error", {"error_message": said_of(error)})
