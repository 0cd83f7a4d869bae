"""Owns what a harness author writes: ``with ledger.turn() as turn``, ``turn.model_call(…)``, ``call.tool_call(…)``, for plain and for async code.

Each scope emits its start and its end, also when an exception, a cancellation or a timeout goes through it, or nobody closes it before the ledger
is closed. ``start`` and ``close`` may come any number of times. A scope has every typed method of the ledger, and puts what it is about into each event.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, Self, TypeVar, Unpack

from turnledger.harness.collecting import Collector, Fact, Taps
from turnledger.harness.typed import About, Counters, R, Telling
from turnledger.harness.work import ModelCallPiece, Piece, Said, ToolCallPiece, TurnPiece, frozen, joined

TurnT = TypeVar("TurnT", covariant=True)
CallT = TypeVar("CallT", covariant=True)
ToolT = TypeVar("ToolT", covariant=True)
Later = Coroutine[Any, Any, int]
ErrorClass = Literal["rate_limit", "timeout", "overloaded", "auth", "refused", "cut", "other"]
Status = Literal["completed", "failed", "interrupted", "aborted"]


class Publisher(Protocol[R]):
    """What a scope needs of its ledger."""

    session_id: str
    taps: Taps
    open_scopes: dict[Any, None]

    def emit(self, type: str, payload: Mapping[str, Any] | None = None, **about: Any) -> R:
        """See :meth:`Telling.emit`."""


class Work(Telling[R], Generic[R, TurnT, CallT, ToolT]):
    """Where pieces of work begin: a ledger, or a scope, whose attribution they take over as it is at that moment."""

    @property
    @abstractmethod
    def about(self) -> Mapping[str, Any]:
        """What is frozen for everything that happens here."""

    @abstractmethod
    def _turn(self, piece: TurnPiece) -> TurnT: ...

    @abstractmethod
    def _model_call(self, piece: ModelCallPiece) -> CallT: ...

    @abstractmethod
    def _tool_call(self, piece: ToolCallPiece) -> ToolT: ...

    def turn(
        self,
        *,
        input_preview: str | None = None,
        provider_turn_id: str | None = None,
        provider_thread: str | None = None,
        **about: Unpack[About],
    ) -> TurnT:
        """A turn that has not begun: ``with`` or ``start()`` begins it. A new ``turn_id`` unless given.

        It ends ``completed``; ``failed`` by an exception or a timeout, ``interrupted`` by a cancellation, ``aborted`` where nobody closes it.
        """
        own = joined(self.about, about)
        started = {
            "input_preview": input_preview,
            "provider_turn_id": provider_turn_id,
            "provider_thread": provider_thread,
        }
        return self._turn(TurnPiece(own, started))

    def model_call(
        self,
        provider: str,
        *,
        model: str | None = None,
        input_tokens_estimate: int | None = None,
        context_tokens: int | None = None,
        context_window: int | None = None,
        messages_count: int | None = None,
        tools_count: int | None = None,
        stream: bool | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> CallT:
        """A model call that has not begun. ``complete`` says what came of it; left without, it is completed with an unknown usage.

        An exception makes it ``model_call.failed``: ``timeout``, ``cut`` (a cancellation), or the class that its ``status_code`` and words say.
        """
        own = joined(self.about, about)
        started = {
            **(more or {}),
            "provider": provider,
            "model": model,
            "stream": stream,
            "input_tokens_estimate": input_tokens_estimate,
            "context_tokens": context_tokens,
            "context_window": context_window,
            "messages_count": messages_count,
            "tools_count": tools_count,
        }
        return self._model_call(ModelCallPiece(own, started))

    def tool_call(
        self,
        tool_name: str,
        *,
        arguments: Any = None,
        call_index: int | None = None,
        call_tool_origin: Literal["native", "mcp", "builtin", "local", "unknown"] | None = None,
        server_name: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> ToolT:
        """A tool call that has not begun: ``request()`` says that the model asked for it, ``with`` or ``start()`` that it runs (and asks, where nobody did).

        An exception makes it a result with status ``error``.
        """
        own = joined(self.about, about)
        requested = {
            **(more or {}),
            "tool_name": tool_name,
            "arguments": arguments,
            "call_index": call_index,
            "call_tool_origin": call_tool_origin,
            "server_name": server_name,
        }
        return self._tool_call(ToolCallPiece(own, requested))


# -- plain code


class SyncWork(Work[int, "Turn", "ModelCall", "ToolCall"]):
    """Pieces of work for code without an event loop."""

    _home: Publisher[int]

    def _turn(self, piece: TurnPiece) -> Turn:
        return Turn(self._home, piece)

    def _model_call(self, piece: ModelCallPiece) -> ModelCall:
        return ModelCall(self._home, piece)

    def _tool_call(self, piece: ToolCallPiece) -> ToolCall:
        return ToolCall(self._home, piece)

    def dispatched(self, **about: Unpack[About]) -> Dispatched:
        """Everything as here, with this attribution frozen besides: for work that runs elsewhere and tells about itself later."""
        return Dispatched(self._home, joined(self.about, frozen(about)))


class Dispatched(SyncWork):
    """Attribution that was frozen when the work was handed on."""

    def __init__(self, home: Publisher[int], about: Mapping[str, Any]) -> None:
        self._home = home
        self._about = about

    @property
    def about(self) -> Mapping[str, Any]:
        """See :class:`Work`."""
        return self._about

    def emit(self, type: str, payload: Mapping[str, Any] | None = None, **about: Any) -> int:
        """See :meth:`Ledger.emit`; what was frozen is in the event."""
        return self._home.emit(type, payload, **joined(self._about, about))


class Scope(SyncWork):
    """A piece of work with a start and an end. Safe for threads."""

    def __init__(self, home: Publisher[int], piece: Piece) -> None:
        self._home, self._piece = home, piece

    @property
    def about(self) -> Mapping[str, Any]:
        """See :class:`Work`."""
        return self._piece.about

    def emit(self, type: str, payload: Mapping[str, Any] | None = None, **about: Any) -> int:
        """See :meth:`Ledger.emit`; what the piece of work is about is in the event."""
        return self._home.emit(type, payload, **joined(self._piece.about, about))

    def start(self) -> Self:
        """Emit the start, unless it has begun before."""
        self._emit(self._piece.begin())
        if self._piece.running:
            self._home.open_scopes[self] = None
        return self

    def close(self) -> None:
        """Emit the end, unless it has one or never began."""
        self._end(None)

    def hang_up(self, error: BaseException) -> None:
        """Emit the end that an error made, unless it has one."""
        self._end(self._piece.closing(error))

    def _end(self, said: Said | None) -> None:
        self._emit(self._piece.end(said))
        self._home.open_scopes.pop(self, None)

    def _emit(self, said: Iterable[Said]) -> None:
        for each in said:
            try:
                self.emit(each.type, each.payload)
            except BaseException:
                self._piece.undo(each)
                raise

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.hang_up(error)


class Turn(Scope):
    """``turn.started`` to ``turn.completed``. Collects the facts about state that the session tells meanwhile."""

    _piece: TurnPiece

    def __init__(self, home: Publisher[int], piece: TurnPiece) -> None:
        super().__init__(home, piece)
        self._collector = Collector(home.taps, home.session_id, piece.about["turn_id"])

    @property
    def turn_id(self) -> str:
        """Its id."""
        return str(self._piece.about["turn_id"])

    @property
    def facts(self) -> list[Fact]:
        """What was told of slots, transitions, guards and states from its start to its end."""
        return self._collector.facts

    def start(self) -> Self:
        """Open the collector, then emit the start: no slot is written between the two."""
        self._collector.start()
        try:
            return super().start()
        finally:
            self._collector.keep(self._piece.running)

    def end(self, status: Status = "completed", error: Any = None) -> None:
        """End with this status; an end that came before stands."""
        self._end(self._piece.completed(status, error))

    def _end(self, said: Said | None) -> None:
        try:
            super()._end(said)
        finally:
            self._collector.close()


class ModelCall(Scope):
    """``model_call.started`` to ``model_call.completed`` or ``model_call.failed``."""

    _piece: ModelCallPiece

    @property
    def model_call_id(self) -> str:
        """Its id."""
        return str(self._piece.about["model_call_id"])

    def first_token(self) -> None:
        """The first token is here: the time to it goes into the end."""
        self._piece.first_token()

    def complete(self, *, usage: Counters | None = None, **fields: Any) -> None:
        """End it with what the provider answered: fields of ``model_call.completed``. An end that came before stands."""
        self._end(self._piece.completed({"usage": usage, **fields}))

    def fail(self, error_class: ErrorClass, **fields: Any) -> None:
        """End it as failed for good: fields of ``model_call.failed``."""
        self._end(self._piece.failed({"error_class": error_class, **fields}))


class ToolCall(Scope):
    """``tool_call.requested``, ``tool_call.started`` to ``tool_call.completed`` or ``tool_call.denied``."""

    _piece: ToolCallPiece

    @property
    def tool_call_id(self) -> str:
        """Its id."""
        return str(self._piece.about["tool_call_id"])

    def request(self) -> Self:
        """Emit that the model asked for it, once."""
        self._emit(self._piece.request())
        return self

    def complete(self, **fields: Any) -> None:
        """End it with its result: fields of ``tool_call.completed``. An end that came before stands."""
        self._end(self._piece.completed("ok", fields))

    def fail(self, error_message: str, **fields: Any) -> None:
        """End it with a result that is an error."""
        self._end(self._piece.completed("error", {"error_message": error_message, **fields}))

    def deny(
        self, by: Literal["policy", "guard", "user"], *, rule: str | None = None, reason: str | None = None
    ) -> None:
        """It was not allowed; with ``with``, nothing is emitted behind it."""
        self._emit(self._piece.denied({"by": by, "rule": rule, "reason": reason}))
        self._home.open_scopes.pop(self, None)


# -- async code


class AsyncWork(Work[Later, "AsyncTurn", "AsyncModelCall", "AsyncToolCall"]):
    """Pieces of work for async code."""

    _home: Publisher[Later]

    def _turn(self, piece: TurnPiece) -> AsyncTurn:
        return AsyncTurn(self._home, piece)

    def _model_call(self, piece: ModelCallPiece) -> AsyncModelCall:
        return AsyncModelCall(self._home, piece)

    def _tool_call(self, piece: ToolCallPiece) -> AsyncToolCall:
        return AsyncToolCall(self._home, piece)

    def dispatched(self, **about: Unpack[About]) -> AsyncDispatched:
        """See :meth:`SyncWork.dispatched`."""
        return AsyncDispatched(self._home, joined(self.about, frozen(about)))


class AsyncDispatched(AsyncWork):
    """See :class:`Dispatched`."""

    def __init__(self, home: Publisher[Later], about: Mapping[str, Any]) -> None:
        self._home = home
        self._about = about

    @property
    def about(self) -> Mapping[str, Any]:
        """See :class:`Work`."""
        return self._about

    async def emit(self, type: str, payload: Mapping[str, Any] | None = None, **about: Any) -> int:
        """See :meth:`Dispatched.emit`."""
        return await self._home.emit(type, payload, **joined(self._about, about))


class AsyncScope(AsyncWork):
    """See :class:`Scope`."""

    def __init__(self, home: Publisher[Later], piece: Piece) -> None:
        self._home, self._piece = home, piece
        self._behind: asyncio.Future[None] | None = None

    @property
    def about(self) -> Mapping[str, Any]:
        """See :class:`Work`."""
        return self._piece.about

    async def emit(self, type: str, payload: Mapping[str, Any] | None = None, **about: Any) -> int:
        """See :meth:`Scope.emit`."""
        return await self._home.emit(type, payload, **joined(self._piece.about, about))

    async def start(self) -> Self:
        """See :meth:`Scope.start`."""
        await self._emit(self._piece.begin())
        if self._piece.running:
            self._home.open_scopes[self] = None
        return self

    async def close(self) -> None:
        """See :meth:`Scope.close`."""
        await self._end(None)

    async def hang_up(self, error: BaseException) -> None:
        """See :meth:`Scope.hang_up`."""
        await self._end(self._piece.closing(error))

    async def _end(self, said: Said | None) -> None:
        try:
            await self._emit(self._piece.end(said))
        except asyncio.CancelledError:
            # It waited for room, without a spool, and is cancelled once more: the end comes behind.
            self._behind = asyncio.ensure_future(self._emit(self._piece.end(said)))
            self._home.open_scopes.pop(self, None)
            raise
        self._home.open_scopes.pop(self, None)

    async def _emit(self, said: Iterable[Said]) -> None:
        for each in said:
            try:
                await self.emit(each.type, each.payload)
            except BaseException:
                self._piece.undo(each)
                raise

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            await self.hang_up(error)


class AsyncTurn(AsyncScope):
    """See :class:`Turn`."""

    _piece: TurnPiece

    def __init__(self, home: Publisher[Later], piece: TurnPiece) -> None:
        super().__init__(home, piece)
        self._collector = Collector(home.taps, home.session_id, piece.about["turn_id"])

    @property
    def turn_id(self) -> str:
        """Its id."""
        return str(self._piece.about["turn_id"])

    @property
    def facts(self) -> list[Fact]:
        """See :attr:`Turn.facts`."""
        return self._collector.facts

    async def start(self) -> Self:
        """See :meth:`Turn.start`."""
        self._collector.start()
        try:
            return await super().start()
        finally:
            self._collector.keep(self._piece.running)

    async def end(self, status: Status = "completed", error: Any = None) -> None:
        """See :meth:`Turn.end`."""
        await self._end(self._piece.completed(status, error))

    async def _end(self, said: Said | None) -> None:
        try:
            await super()._end(said)
        finally:
            self._collector.close()


class AsyncModelCall(AsyncScope):
    """See :class:`ModelCall`."""

    _piece: ModelCallPiece

    @property
    def model_call_id(self) -> str:
        """Its id."""
        return str(self._piece.about["model_call_id"])

    def first_token(self) -> None:
        """See :meth:`ModelCall.first_token`."""
        self._piece.first_token()

    async def complete(self, *, usage: Counters | None = None, **fields: Any) -> None:
        """See :meth:`ModelCall.complete`."""
        await self._end(self._piece.completed({"usage": usage, **fields}))

    async def fail(self, error_class: ErrorClass, **fields: Any) -> None:
        """See :meth:`ModelCall.fail`."""
        await self._end(self._piece.failed({"error_class": error_class, **fields}))


class AsyncToolCall(AsyncScope):
    """See :class:`ToolCall`."""

    _piece: ToolCallPiece

    @property
    def tool_call_id(self) -> str:
        """Its id."""
        return str(self._piece.about["tool_call_id"])

    async def request(self) -> Self:
        """See :meth:`ToolCall.request`."""
        await self._emit(self._piece.request())
        return self

    async def complete(self, **fields: Any) -> None:
        """See :meth:`ToolCall.complete`."""
        await self._end(self._piece.completed("ok", fields))

    async def fail(self, error_message: str, **fields: Any) -> None:
        """See :meth:`ToolCall.fail`."""
        await self._end(self._piece.completed("error", {"error_message": error_message, **fields}))

    async def deny(
        self, by: Literal["policy", "guard", "user"], *, rule: str | None = None, reason: str | None = None
    ) -> None:
        """See :meth:`ToolCall.deny`."""
        await self._emit(self._piece.denied({"by": by, "rule": rule, "reason": reason}))
        self._home.open_scopes.pop(self, None)
