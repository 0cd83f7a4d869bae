"""One method for each event type of the contract (section 6). Generated: `python -m turnledger.harness.event_methods` writes this file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack

R = TypeVar("R", covariant=True)
"""What ``emit`` gives: the event's number, or something to wait for it."""


def _said(more: Mapping[str, Any] | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are known; ``more`` are fields of the harness's own."""
    return {**(more or {}), **{name: value for name, value in fields.items() if value is not None}}


class Counters(TypedDict, total=False):
    """Token counters as the provider sent them: one that is absent is unknown, not zero."""

    input: int
    """Input tokens; whether cached ones are inside says the convention."""
    output: int
    """Output tokens."""
    cache_read: int
    """Input tokens read from a cache."""
    cache_write: int
    """Input tokens written to a cache, all lifetimes."""
    cache_write_5m: int
    """Written to live 5 minutes."""
    cache_write_1h: int
    """Written to live 1 hour."""
    reasoning: int
    """Reasoning tokens."""
    total: int
    """The provider's own total."""


class About(TypedDict, total=False):
    """What an event is about (contract 2): fields of its envelope."""

    turn_id: str | None
    """The turn."""
    model_call_id: str | None
    """The model call."""
    tool_call_id: str | None
    """The tool call."""
    trace_id: str | None
    """The causal chain."""
    event_id: str | None
    """The harness's own id of the event, to join within the session."""
    parent_session_id: str | None
    """The session that this one comes from."""
    turn_index: int | None
    """Order of the turn in its session, from 0."""
    origin: Mapping[str, Any] | None
    """Who did it: scalars by name."""
    provenance: Literal["observed", "derived", "inherited", "claimed"] | None
    """Absent: observed."""
    occurred_at: str | None
    """RFC 3339 with an offset. Absent: now."""


class AboutFork(TypedDict, total=False):
    """The same for ``session.forked``, whose payload has the parent."""

    turn_id: str | None
    """The turn."""
    model_call_id: str | None
    """The model call."""
    tool_call_id: str | None
    """The tool call."""
    trace_id: str | None
    """The causal chain."""
    event_id: str | None
    """The harness's own id of the event, to join within the session."""
    turn_index: int | None
    """Order of the turn in its session, from 0."""
    origin: Mapping[str, Any] | None
    """Who did it: scalars by name."""
    provenance: Literal["observed", "derived", "inherited", "claimed"] | None
    """Absent: observed."""
    occurred_at: str | None
    """RFC 3339 with an offset. Absent: now."""


class Telling(Generic[R]):
    """A method for each event type, with the fields of its payload. ``more`` takes fields of its own, the rest what it is about.

    Each gives what ``emit`` gives, and raises what that raises. A field that is None is left out: absent and null are the same (contract 6).
    """

    @abstractmethod
    def emit(self, type: str, payload: Mapping[str, Any] | None = None, **about: Any) -> R:
        """Number an event and hand it on."""

    def session_started(
        self,
        *,
        agent: str | None = None,
        agent_config_ref: str | None = None,
        mode: str | None = None,
        name: str | None = None,
        model: str | None = None,
        tools: list[Any] | None = None,
        command: str | None = None,
        persistent: bool | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``session.started``: A session began, or went on after a stop. Facts about the host may stand beside these fields.

        agent: The agent program.
        agent_config_ref: Reference of the configuration it was launched with.
        mode: How it runs, in the harness's words.
        name: Display name: an alias, never a key.
        model: The model it was launched with.
        tools: Tools on offer: names or descriptions.
        command: The command line of the launch.
        persistent: Whether its disk outlives it.
        """
        return self.emit(
            "session.started",
            _said(
                more,
                {
                    "agent": agent,
                    "agent_config_ref": agent_config_ref,
                    "mode": mode,
                    "name": name,
                    "model": model,
                    "tools": tools,
                    "command": command,
                    "persistent": persistent,
                },
            ),
            **about,
        )

    def session_resumed(
        self,
        *,
        agent: str | None = None,
        agent_config_ref: str | None = None,
        mode: str | None = None,
        name: str | None = None,
        model: str | None = None,
        tools: list[Any] | None = None,
        command: str | None = None,
        persistent: bool | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``session.resumed``: A session began, or went on after a stop. Facts about the host may stand beside these fields.

        agent: The agent program.
        agent_config_ref: Reference of the configuration it was launched with.
        mode: How it runs, in the harness's words.
        name: Display name: an alias, never a key.
        model: The model it was launched with.
        tools: Tools on offer: names or descriptions.
        command: The command line of the launch.
        persistent: Whether its disk outlives it.
        """
        return self.emit(
            "session.resumed",
            _said(
                more,
                {
                    "agent": agent,
                    "agent_config_ref": agent_config_ref,
                    "mode": mode,
                    "name": name,
                    "model": model,
                    "tools": tools,
                    "command": command,
                    "persistent": persistent,
                },
            ),
            **about,
        )

    def session_forked(
        self,
        *,
        parent_session_id: str,
        at_seq: int | None = None,
        stream: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[AboutFork],
    ) -> R:
        """``session.forked``: The session began as a copy of another one's history.

        parent_session_id: The session that was copied.
        at_seq: The last inherited position of `stream` in the parent.
        stream: The parent's stream in which `at_seq` counts.
        """
        return self.emit(
            "session.forked",
            _said(more, {"parent_session_id": parent_session_id, "at_seq": at_seq, "stream": stream}),
            **about,
        )

    def session_tools_changed(
        self, *, tools: list[Any], more: Mapping[str, Any] | None = None, **about: Unpack[About]
    ) -> R:
        """``session.tools_changed``: The tools on offer changed.

        tools: All tools from now on: names or descriptions.
        """
        return self.emit("session.tools_changed", _said(more, {"tools": tools}), **about)

    def session_ended(
        self,
        *,
        status: str,
        exit_code: int | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``session.ended``: The session is over.

        status: How: stopped, crashed, lost, or the harness's own word.
        exit_code: Exit code of its main process.
        """
        return self.emit("session.ended", _said(more, {"status": status, "exit_code": exit_code}), **about)

    def stream_declared(
        self,
        *,
        density: Literal["dense", "sparse", "unknown"],
        producer: str | None = None,
        epoch: int | None = None,
        stream: str | None = None,
        first_seq: int | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``stream.declared``: What holes in a stream mean, from this epoch on until redeclared.

        producer: Absent: the event's own.
        epoch: Absent: the event's own.
        stream: Absent: the event's own.
        density: dense: every number comes, a hole is a gap; sparse: numbers are left out on purpose.
        first_seq: The first number that was ever given. Absent: 0.
        """
        return self.emit(
            "stream.declared",
            _said(
                more,
                {
                    "producer": producer,
                    "epoch": epoch,
                    "stream": stream,
                    "density": density,
                    "first_seq": first_seq,
                },
            ),
            **about,
        )

    def stream_closed(
        self,
        *,
        last_seq: int,
        producer: str | None = None,
        epoch: int | None = None,
        stream: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``stream.closed``: No number above `last_seq` will come.

        producer: Absent: the event's own.
        epoch: Absent: the event's own.
        stream: Absent: the event's own.
        last_seq: The last number, this event's own counted.
        """
        return self.emit(
            "stream.closed",
            _said(more, {"producer": producer, "epoch": epoch, "stream": stream, "last_seq": last_seq}),
            **about,
        )

    def stream_lost(
        self,
        *,
        from_seq: int,
        to_seq: int,
        reason: str,
        producer: str | None = None,
        epoch: int | None = None,
        stream: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``stream.lost``: These numbers will never come: a bounded spool ran full, a disk died.

        producer: Absent: the event's own.
        epoch: Absent: the event's own.
        stream: Absent: the event's own.
        from_seq: First lost number.
        to_seq: Last lost number.
        reason: Why.
        """
        return self.emit(
            "stream.lost",
            _said(
                more,
                {
                    "producer": producer,
                    "epoch": epoch,
                    "stream": stream,
                    "from_seq": from_seq,
                    "to_seq": to_seq,
                    "reason": reason,
                },
            ),
            **about,
        )

    def stream_elided(
        self,
        *,
        from_seq: int,
        to_seq: int,
        reason: str,
        producer: str | None = None,
        epoch: int | None = None,
        stream: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``stream.elided``: These numbers were left out on purpose.

        producer: Absent: the event's own.
        epoch: Absent: the event's own.
        stream: Absent: the event's own.
        from_seq: First number left out.
        to_seq: Last number left out.
        reason: Why.
        """
        return self.emit(
            "stream.elided",
            _said(
                more,
                {
                    "producer": producer,
                    "epoch": epoch,
                    "stream": stream,
                    "from_seq": from_seq,
                    "to_seq": to_seq,
                    "reason": reason,
                },
            ),
            **about,
        )

    def stream_superseded(
        self,
        *,
        producer: str,
        epoch: int,
        stream: str,
        reason: str,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``stream.superseded``: Another stream tells the same better (a newer reader of the same file): the fold leaves the named one out.

        producer: Of the stream that is left out.
        epoch: Of the stream that is left out.
        stream: The stream that is left out; the ledger keeps it.
        reason: Why.
        """
        return self.emit(
            "stream.superseded",
            _said(more, {"producer": producer, "epoch": epoch, "stream": stream, "reason": reason}),
            **about,
        )

    def capture_recorded(
        self,
        *,
        capture_id: str,
        content_sha256: str,
        bytes: int,
        caller: str | None = None,
        skill: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``capture.recorded``: An immutable input of the launch.

        capture_id: Its id.
        content_sha256: SHA-256 of its content, hex.
        bytes: Its size in bytes.
        caller: Who launched.
        skill: The skill that was asked for.
        provider: The provider that was asked for.
        model: The model that was asked for.
        """
        return self.emit(
            "capture.recorded",
            _said(
                more,
                {
                    "capture_id": capture_id,
                    "content_sha256": content_sha256,
                    "bytes": bytes,
                    "caller": caller,
                    "skill": skill,
                    "provider": provider,
                    "model": model,
                },
            ),
            **about,
        )

    def driver_claimed(
        self,
        *,
        generation: str,
        exec: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``driver.claimed``: A driver took the session over.

        generation: Which incarnation of the driver.
        exec: The process that drives.
        """
        return self.emit("driver.claimed", _said(more, {"generation": generation, "exec": exec}), **about)

    def driver_exited(
        self, *, generation: str, outcome: str, more: Mapping[str, Any] | None = None, **about: Unpack[About]
    ) -> R:
        """``driver.exited``: A driver ended. Says nothing about the turn, the attempt or the session.

        generation: Which incarnation of the driver.
        outcome: The driver's own outcome.
        """
        return self.emit(
            "driver.exited", _said(more, {"generation": generation, "outcome": outcome}), **about
        )

    def attempt_started(
        self,
        *,
        attempt_id: str,
        provider: str,
        account: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``attempt.started``: One attempt to run the work with one provider.

        attempt_id: Its id in the session.
        provider: The provider that is tried.
        account: The account that is used.
        """
        return self.emit(
            "attempt.started",
            _said(more, {"attempt_id": attempt_id, "provider": provider, "account": account}),
            **about,
        )

    def attempt_finished(
        self, *, attempt_id: str, outcome: str, more: Mapping[str, Any] | None = None, **about: Unpack[About]
    ) -> R:
        """``attempt.finished``: An attempt ended. Says nothing about the turn or the session.

        attempt_id: Its id in the session.
        outcome: The attempt's own outcome.
        """
        return self.emit(
            "attempt.finished", _said(more, {"attempt_id": attempt_id, "outcome": outcome}), **about
        )

    def provider_session_observed(
        self,
        *,
        provider_session_id: str,
        attempt_id: str | None = None,
        account: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``provider_session.observed``: The provider's own id of the conversation became known.

        provider_session_id: The provider's id.
        attempt_id: The attempt that saw it.
        account: The account that is used.
        """
        return self.emit(
            "provider_session.observed",
            _said(
                more,
                {"provider_session_id": provider_session_id, "attempt_id": attempt_id, "account": account},
            ),
            **about,
        )

    def turn_started(
        self,
        *,
        input_preview: str | None = None,
        provider_turn_id: str | None = None,
        provider_thread: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``turn.started``: A user-visible exchange began.

        input_preview: Beginning of the user's input.
        provider_turn_id: The provider's id of the turn.
        provider_thread: The thread that it uses: names its running token counter.
        """
        return self.emit(
            "turn.started",
            _said(
                more,
                {
                    "input_preview": input_preview,
                    "provider_turn_id": provider_turn_id,
                    "provider_thread": provider_thread,
                },
            ),
            **about,
        )

    def turn_completed(
        self,
        *,
        status: Literal["completed", "failed", "interrupted", "aborted"] | None = None,
        error: Any = None,
        duration_ms: int | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``turn.completed``: A turn ended. An absent or unlisted status reads as completed.

        status: How it ended.
        error: What went wrong: a text or an object.
        duration_ms: As the harness measured it, in ms.
        """
        return self.emit(
            "turn.completed",
            _said(more, {"status": status, "error": error, "duration_ms": duration_ms}),
            **about,
        )

    def message_recorded(
        self,
        *,
        role: Literal["system", "user", "assistant", "tool"],
        text: str | None = None,
        content: Any = None,
        phase: str | None = None,
        token_count: int | None = None,
        token_source: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``message.recorded``: One message of the conversation.

        role: Who speaks.
        text: Its text.
        content: Its content as the provider has it: a text or an array of items.
        phase: Where in the turn it stands, in the harness's words.
        token_count: Its size in tokens. Never added to usage.
        token_source: Who counted.
        """
        return self.emit(
            "message.recorded",
            _said(
                more,
                {
                    "role": role,
                    "text": text,
                    "content": content,
                    "phase": phase,
                    "token_count": token_count,
                    "token_source": token_source,
                },
            ),
            **about,
        )

    def model_call_started(
        self,
        *,
        provider: str,
        model: str | None = None,
        method: str | None = None,
        path: str | None = None,
        stream: bool | None = None,
        input_tokens_estimate: int | None = None,
        context_tokens: int | None = None,
        context_window: int | None = None,
        messages_count: int | None = None,
        tools_count: int | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``model_call.started``: A request to a provider went out.

        provider: Who is asked.
        model: The model that is asked for.
        method: HTTP method.
        path: Path of the request.
        stream: Whether the answer is streamed.
        input_tokens_estimate: The harness's guess of its input, in tokens.
        context_tokens: Size of the context, in tokens.
        context_window: The model's window, in tokens.
        messages_count: Messages in the request.
        tools_count: Tools in the request.
        """
        return self.emit(
            "model_call.started",
            _said(
                more,
                {
                    "provider": provider,
                    "model": model,
                    "method": method,
                    "path": path,
                    "stream": stream,
                    "input_tokens_estimate": input_tokens_estimate,
                    "context_tokens": context_tokens,
                    "context_window": context_window,
                    "messages_count": messages_count,
                    "tools_count": tools_count,
                },
            ),
            **about,
        )

    def model_call_delta(
        self, *, ordinal: int, text: str, more: Mapping[str, Any] | None = None, **about: Unpack[About]
    ) -> R:
        """``model_call.delta``: A piece of a streamed answer: live only. Its position counts, its text is not stored.

        ordinal: Which piece, from 0.
        text: The piece.
        """
        return self.emit("model_call.delta", _said(more, {"ordinal": ordinal, "text": text}), **about)

    def model_call_completed(
        self,
        *,
        usage: Counters | None = None,
        token_convention: str | None = None,
        counter_kind: Literal["per_call", "snapshot", "cumulative", "rollup"] | None = None,
        usage_stream: str | None = None,
        last: Counters | None = None,
        start_known: bool | None = None,
        final: bool | None = None,
        source: Literal["response", "event", "transcript", "estimate"] | None = None,
        provider_thread: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        message_id: str | None = None,
        request_id: str | None = None,
        stop_reason: str | None = None,
        peak_input: int | None = None,
        context_window: int | None = None,
        reported_cost_usd: int | float | None = None,
        protocol: str | None = None,
        status_code: int | None = None,
        latency_ms: int | None = None,
        ttft_ms: int | None = None,
        text: str | None = None,
        thinking: str | None = None,
        request_bytes: int | None = None,
        response_bytes: int | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``model_call.completed``: A provider answered. Its usage report is final.

        usage: The counters.
        token_convention: exclusive, inclusive, inclusive_thoughts_separate or unknown: what `input` and `output` include. Any other word reads as unknown.
        counter_kind: What the counters count. Absent: per_call.
        usage_stream: The running total of a cumulative report. Absent: the thread, else the stream.
        last: Of a cumulative report: the latest single request.
        start_known: Whether the first report's running value began at zero.
        final: Whether no later report of this call will come.
        source: Where it was read. Absent: response when there is a message_id, else event.
        provider_thread: The provider's thread.
        provider: Who was asked: anthropic, openai, google, …
        model: The model that answered.
        message_id: The provider's id of the response.
        request_id: The provider's id of the request.
        stop_reason: Why the model stopped, in the provider's words.
        peak_input: Greatest input of a single request, in tokens. A gauge.
        context_window: The model's window in tokens. A gauge.
        reported_cost_usd: The harness's own cost in USD. Never mixed with ours.
        protocol: Wire protocol of the provider's API.
        status_code: HTTP status.
        latency_ms: From request to last byte, in ms.
        ttft_ms: From request to first token, in ms.
        text: The answer's text.
        thinking: The answer's reasoning, where it is given.
        request_bytes: Size of the request in bytes.
        response_bytes: Size of the response in bytes.
        """
        return self.emit(
            "model_call.completed",
            _said(
                more,
                {
                    "usage": usage,
                    "token_convention": token_convention,
                    "counter_kind": counter_kind,
                    "usage_stream": usage_stream,
                    "last": last,
                    "start_known": start_known,
                    "final": final,
                    "source": source,
                    "provider_thread": provider_thread,
                    "provider": provider,
                    "model": model,
                    "message_id": message_id,
                    "request_id": request_id,
                    "stop_reason": stop_reason,
                    "peak_input": peak_input,
                    "context_window": context_window,
                    "reported_cost_usd": reported_cost_usd,
                    "protocol": protocol,
                    "status_code": status_code,
                    "latency_ms": latency_ms,
                    "ttft_ms": ttft_ms,
                    "text": text,
                    "thinking": thinking,
                    "request_bytes": request_bytes,
                    "response_bytes": response_bytes,
                },
            ),
            **about,
        )

    def model_call_failed(
        self,
        *,
        error_class: Literal["rate_limit", "timeout", "overloaded", "auth", "refused", "cut", "other"],
        usage: Counters | None = None,
        token_convention: str | None = None,
        counter_kind: Literal["per_call", "snapshot", "cumulative", "rollup"] | None = None,
        usage_stream: str | None = None,
        last: Counters | None = None,
        start_known: bool | None = None,
        final: bool | None = None,
        source: Literal["response", "event", "transcript", "estimate"] | None = None,
        provider_thread: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        message_id: str | None = None,
        request_id: str | None = None,
        stop_reason: str | None = None,
        peak_input: int | None = None,
        context_window: int | None = None,
        reported_cost_usd: int | float | None = None,
        status_code: int | None = None,
        message: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``model_call.failed``: A request failed for good. What it reports counts all the same.

        usage: The counters.
        token_convention: exclusive, inclusive, inclusive_thoughts_separate or unknown: what `input` and `output` include. Any other word reads as unknown.
        counter_kind: What the counters count. Absent: per_call.
        usage_stream: The running total of a cumulative report. Absent: the thread, else the stream.
        last: Of a cumulative report: the latest single request.
        start_known: Whether the first report's running value began at zero.
        final: Whether no later report of this call will come.
        source: Where it was read. Absent: response when there is a message_id, else event.
        provider_thread: The provider's thread.
        provider: Who was asked: anthropic, openai, google, …
        model: The model that answered.
        message_id: The provider's id of the response.
        request_id: The provider's id of the request.
        stop_reason: Why the model stopped, in the provider's words.
        peak_input: Greatest input of a single request, in tokens. A gauge.
        context_window: The model's window in tokens. A gauge.
        reported_cost_usd: The harness's own cost in USD. Never mixed with ours.
        error_class: What went wrong.
        status_code: HTTP status.
        message: The provider's words.
        """
        return self.emit(
            "model_call.failed",
            _said(
                more,
                {
                    "usage": usage,
                    "token_convention": token_convention,
                    "counter_kind": counter_kind,
                    "usage_stream": usage_stream,
                    "last": last,
                    "start_known": start_known,
                    "final": final,
                    "source": source,
                    "provider_thread": provider_thread,
                    "provider": provider,
                    "model": model,
                    "message_id": message_id,
                    "request_id": request_id,
                    "stop_reason": stop_reason,
                    "peak_input": peak_input,
                    "context_window": context_window,
                    "reported_cost_usd": reported_cost_usd,
                    "error_class": error_class,
                    "status_code": status_code,
                    "message": message,
                },
            ),
            **about,
        )

    def model_call_retried(
        self,
        *,
        attempt: int,
        error_class: Literal["rate_limit", "timeout", "overloaded", "auth", "refused", "cut", "other"],
        max_attempts: int | None = None,
        delay_ms: int | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``model_call.retried``: An attempt failed and is made again.

        attempt: Which retry, from 1.
        max_attempts: How many are allowed.
        delay_ms: Wait before it, in ms.
        error_class: What went wrong.
        """
        return self.emit(
            "model_call.retried",
            _said(
                more,
                {
                    "attempt": attempt,
                    "max_attempts": max_attempts,
                    "delay_ms": delay_ms,
                    "error_class": error_class,
                },
            ),
            **about,
        )

    def usage_reported(
        self,
        *,
        usage: Counters | None = None,
        token_convention: str | None = None,
        counter_kind: Literal["per_call", "snapshot", "cumulative", "rollup"] | None = None,
        usage_stream: str | None = None,
        last: Counters | None = None,
        start_known: bool | None = None,
        final: bool | None = None,
        source: Literal["response", "event", "transcript", "estimate"] | None = None,
        provider_thread: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        message_id: str | None = None,
        request_id: str | None = None,
        stop_reason: str | None = None,
        peak_input: int | None = None,
        context_window: int | None = None,
        reported_cost_usd: int | float | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``usage.reported``: A usage report by itself: a streamed sample, a running total, a sum that a parent reports.

        usage: The counters.
        token_convention: exclusive, inclusive, inclusive_thoughts_separate or unknown: what `input` and `output` include. Any other word reads as unknown.
        counter_kind: What the counters count. Absent: per_call.
        usage_stream: The running total of a cumulative report. Absent: the thread, else the stream.
        last: Of a cumulative report: the latest single request.
        start_known: Whether the first report's running value began at zero.
        final: Whether no later report of this call will come.
        source: Where it was read. Absent: response when there is a message_id, else event.
        provider_thread: The provider's thread.
        provider: Who was asked: anthropic, openai, google, …
        model: The model that answered.
        message_id: The provider's id of the response.
        request_id: The provider's id of the request.
        stop_reason: Why the model stopped, in the provider's words.
        peak_input: Greatest input of a single request, in tokens. A gauge.
        context_window: The model's window in tokens. A gauge.
        reported_cost_usd: The harness's own cost in USD. Never mixed with ours.
        """
        return self.emit(
            "usage.reported",
            _said(
                more,
                {
                    "usage": usage,
                    "token_convention": token_convention,
                    "counter_kind": counter_kind,
                    "usage_stream": usage_stream,
                    "last": last,
                    "start_known": start_known,
                    "final": final,
                    "source": source,
                    "provider_thread": provider_thread,
                    "provider": provider,
                    "model": model,
                    "message_id": message_id,
                    "request_id": request_id,
                    "stop_reason": stop_reason,
                    "peak_input": peak_input,
                    "context_window": context_window,
                    "reported_cost_usd": reported_cost_usd,
                },
            ),
            **about,
        )

    def tool_call_requested(
        self,
        *,
        tool_name: str,
        arguments: Any = None,
        call_index: int | None = None,
        call_tool_origin: Literal["native", "mcp", "builtin", "local", "unknown"] | None = None,
        server_name: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``tool_call.requested``: A model asked for a tool.

        tool_name: The tool.
        arguments: Its arguments, any JSON.
        call_index: Which of the calls of one response, from 0.
        call_tool_origin: Where the tool lives. Absent: unknown.
        server_name: The MCP server.
        """
        return self.emit(
            "tool_call.requested",
            _said(
                more,
                {
                    "tool_name": tool_name,
                    "arguments": arguments,
                    "call_index": call_index,
                    "call_tool_origin": call_tool_origin,
                    "server_name": server_name,
                },
            ),
            **about,
        )

    def tool_call_started(
        self, *, tool_name: str | None = None, more: Mapping[str, Any] | None = None, **about: Unpack[About]
    ) -> R:
        """``tool_call.started``: A tool began to run.

        tool_name: The tool.
        """
        return self.emit("tool_call.started", _said(more, {"tool_name": tool_name}), **about)

    def tool_call_completed(
        self,
        *,
        status: Literal["ok", "error"],
        tool_name: str | None = None,
        error_message: str | None = None,
        duration_ms: int | None = None,
        preview: str | None = None,
        bytes_sent: int | None = None,
        bytes_received: int | None = None,
        method: str | None = None,
        request_id: str | None = None,
        transport: str | None = None,
        server_name: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``tool_call.completed``: A tool gave its result.

        status: The tool's own outcome.
        tool_name: The tool.
        error_message: What went wrong.
        duration_ms: How long it ran, in ms.
        preview: Beginning of the result.
        bytes_sent: Size of the request in bytes.
        bytes_received: Size of the result in bytes.
        method: Method of the transport.
        request_id: Id of the transport's request.
        transport: How it was reached.
        server_name: The MCP server.
        """
        return self.emit(
            "tool_call.completed",
            _said(
                more,
                {
                    "status": status,
                    "tool_name": tool_name,
                    "error_message": error_message,
                    "duration_ms": duration_ms,
                    "preview": preview,
                    "bytes_sent": bytes_sent,
                    "bytes_received": bytes_received,
                    "method": method,
                    "request_id": request_id,
                    "transport": transport,
                    "server_name": server_name,
                },
            ),
            **about,
        )

    def tool_call_denied(
        self,
        *,
        by: Literal["policy", "guard", "user"],
        rule: str | None = None,
        reason: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``tool_call.denied``: A tool call was not allowed. Beats a result, is no error.

        by: Who denied it.
        rule: The rule that did.
        reason: Why.
        """
        return self.emit("tool_call.denied", _said(more, {"by": by, "rule": rule, "reason": reason}), **about)

    def tool_results_submitted(
        self,
        *,
        tool_call_ids: list[Any],
        context_tokens: int | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``tool_results.submitted``: Results went back to the model. The envelope's `model_call_id` is the call that consumes them.

        tool_call_ids: The tool calls whose results are in it.
        context_tokens: Size of the context after it, in tokens.
        """
        return self.emit(
            "tool_results.submitted",
            _said(more, {"tool_call_ids": tool_call_ids, "context_tokens": context_tokens}),
            **about,
        )

    def guard_evaluated(
        self,
        *,
        guard: str,
        outcome: Literal["passed", "blocked", "coerced"],
        reason: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``guard.evaluated``: A guard looked at the work.

        guard: Its name.
        outcome: What it did.
        reason: Why.
        """
        return self.emit(
            "guard.evaluated", _said(more, {"guard": guard, "outcome": outcome, "reason": reason}), **about
        )

    def slot_written(
        self,
        *,
        slot: str,
        old: Any = None,
        new: Any = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``slot.written``: A slot of the agent's state was written. Values are redacted.

        slot: Its name.
        old: The value before, redacted.
        new: The value after, redacted.
        """
        return self.emit("slot.written", _said(more, {"slot": slot, "old": old, "new": new}), **about)

    def transition_decided(
        self,
        *,
        state: str,
        verdict: str,
        candidates: list[Any],
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``transition.decided``: The agent's state machine decided where to go.

        state: The state it is in.
        verdict: What was decided.
        candidates: What could have been decided.
        """
        return self.emit(
            "transition.decided",
            _said(more, {"state": state, "verdict": verdict, "candidates": candidates}),
            **about,
        )

    def state_observed(
        self,
        *,
        state: str,
        slots: Mapping[str, Any],
        when: Literal["before", "after"],
        required: list[Any] | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``state.observed``: A snapshot of the agent's state. Values are redacted.

        state: The state it is in.
        slots: Value by slot, redacted.
        required: Names of the slots that must be filled.
        when: Before or after the transition.
        """
        return self.emit(
            "state.observed",
            _said(more, {"state": state, "slots": slots, "required": required, "when": when}),
            **about,
        )

    def limit_reached(
        self,
        *,
        limit: Literal["token_budget", "iterations", "rate", "time", "cost"],
        value: int | float | None = None,
        threshold: int | float | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``limit.reached``: A budget is used up.

        limit: Which.
        value: How much was used, in the limit's own unit.
        threshold: How much was allowed, in the same unit.
        """
        return self.emit(
            "limit.reached", _said(more, {"limit": limit, "value": value, "threshold": threshold}), **about
        )

    def context_compaction_started(
        self, *, trigger: str | None = None, more: Mapping[str, Any] | None = None, **about: Unpack[About]
    ) -> R:
        """``context.compaction_started``: The context is being compacted.

        trigger: Why.
        """
        return self.emit("context.compaction_started", _said(more, {"trigger": trigger}), **about)

    def context_compacted(
        self,
        *,
        tokens_before: int | None = None,
        tokens_after: int | None = None,
        strategy: str | None = None,
        range: Any = None,
        summary: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``context.compacted``: The context was compacted.

        tokens_before: Size before, in tokens.
        tokens_after: Size after, in tokens.
        strategy: How.
        range: What was compacted, in the harness's own terms.
        summary: What stands in its place.
        """
        return self.emit(
            "context.compacted",
            _said(
                more,
                {
                    "tokens_before": tokens_before,
                    "tokens_after": tokens_after,
                    "strategy": strategy,
                    "range": range,
                    "summary": summary,
                },
            ),
            **about,
        )

    def answer_finalized(
        self,
        *,
        exact: bool,
        text: str | None = None,
        value: Any = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``answer.finalized``: The turn's answer to the user: `text` or `value`.

        text: The answer as text.
        value: The answer as a value.
        exact: Whether it is the very answer, not a reconstruction.
        """
        return self.emit(
            "answer.finalized", _said(more, {"text": text, "value": value, "exact": exact}), **about
        )

    def subagent_started(
        self,
        *,
        agent: str,
        child_session_id: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``subagent.started``: A sub-agent was started.

        agent: Which.
        child_session_id: Its own session.
        """
        return self.emit(
            "subagent.started", _said(more, {"agent": agent, "child_session_id": child_session_id}), **about
        )

    def subagent_finished(
        self, *, agent: str, status: str, more: Mapping[str, Any] | None = None, **about: Unpack[About]
    ) -> R:
        """``subagent.finished``: A sub-agent ended.

        agent: Which.
        status: Its own outcome.
        """
        return self.emit("subagent.finished", _said(more, {"agent": agent, "status": status}), **about)

    def net_requested(
        self,
        *,
        domain: str,
        port: int,
        decision: Literal["allowed", "denied", "error", "redirected"],
        method: str | None = None,
        path: str | None = None,
        query: str | None = None,
        status_code: int | None = None,
        bytes_sent: int | None = None,
        bytes_received: int | None = None,
        duration_ms: int | None = None,
        matched_rule: str | None = None,
        request_headers: Any = None,
        response_headers: Any = None,
        conn_type: str | None = None,
        policy_mode: str | None = None,
        policy_action: str | None = None,
        policy_rule: str | None = None,
        policy_reason: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``net.requested``: The session asked for something on the network. Fields of the policy may stand beside these.

        domain: Host name.
        port: TCP port.
        decision: What became of it.
        method: HTTP method.
        path: Path.
        query: Query string.
        status_code: HTTP status.
        bytes_sent: Bytes sent.
        bytes_received: Bytes received.
        duration_ms: How long it took, in ms.
        matched_rule: The rule that decided.
        request_headers: Header values, redacted.
        response_headers: Header values, redacted.
        conn_type: Kind of connection.
        policy_mode: How the policy is applied.
        policy_action: What the policy asks for.
        policy_rule: The policy's rule.
        policy_reason: Why the policy asks for it.
        """
        return self.emit(
            "net.requested",
            _said(
                more,
                {
                    "domain": domain,
                    "port": port,
                    "decision": decision,
                    "method": method,
                    "path": path,
                    "query": query,
                    "status_code": status_code,
                    "bytes_sent": bytes_sent,
                    "bytes_received": bytes_received,
                    "duration_ms": duration_ms,
                    "matched_rule": matched_rule,
                    "request_headers": request_headers,
                    "response_headers": response_headers,
                    "conn_type": conn_type,
                    "policy_mode": policy_mode,
                    "policy_action": policy_action,
                    "policy_rule": policy_rule,
                    "policy_reason": policy_reason,
                },
            ),
            **about,
        )

    def dns_queried(
        self,
        *,
        qname: str,
        qtype: str,
        qclass: str | None = None,
        rcode: str | None = None,
        answer_ip: str | None = None,
        decision: str | None = None,
        matched_rule: str | None = None,
        source_proto: str | None = None,
        resolver_ms: int | None = None,
        policy_mode: str | None = None,
        policy_action: str | None = None,
        policy_rule: str | None = None,
        policy_reason: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``dns.queried``: The session asked for a name.

        qname: The name.
        qtype: Record type, as a word or a number.
        qclass: Record class, as a word or a number.
        rcode: Response code, as a word or a number.
        answer_ip: The address in the answer.
        decision: What became of it.
        matched_rule: The rule that decided.
        source_proto: How the question came.
        resolver_ms: How long the resolver took, in ms.
        policy_mode: How the policy is applied.
        policy_action: What the policy asks for.
        policy_rule: The policy's rule.
        policy_reason: Why the policy asks for it.
        """
        return self.emit(
            "dns.queried",
            _said(
                more,
                {
                    "qname": qname,
                    "qtype": qtype,
                    "qclass": qclass,
                    "rcode": rcode,
                    "answer_ip": answer_ip,
                    "decision": decision,
                    "matched_rule": matched_rule,
                    "source_proto": source_proto,
                    "resolver_ms": resolver_ms,
                    "policy_mode": policy_mode,
                    "policy_action": policy_action,
                    "policy_rule": policy_rule,
                    "policy_reason": policy_reason,
                },
            ),
            **about,
        )

    def fs_changed(
        self,
        *,
        action: Literal["created", "modified", "deleted", "restored", "read", "import", "export", "overflow"],
        path: str,
        size: int | None = None,
        entry_kind: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``fs.changed``: A file was touched. `overflow` says that changes were missed.

        action: What happened.
        path: The file.
        size: Its size in bytes.
        entry_kind: File, directory, link, …
        """
        return self.emit(
            "fs.changed",
            _said(more, {"action": action, "path": path, "size": size, "entry_kind": entry_kind}),
            **about,
        )

    def process_started(
        self,
        *,
        exec_id: str,
        command: str,
        source: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``process.started``: A process was started.

        exec_id: Its id in the producer's epoch; compared as text.
        command: The command line.
        source: Who started it.
        """
        return self.emit(
            "process.started",
            _said(more, {"exec_id": exec_id, "command": command, "source": source}),
            **about,
        )

    def process_exited(
        self,
        *,
        exec_id: str,
        exit_code: int,
        duration_ms: int | None = None,
        stdout_preview: str | None = None,
        stderr_preview: str | None = None,
        stdout_bytes: int | None = None,
        stderr_bytes: int | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``process.exited``: A process ended. Says nothing about the tool call or the turn.

        exec_id: Its id in the producer's epoch; compared as text.
        exit_code: Its exit code; negative for a signal.
        duration_ms: How long it ran, in ms.
        stdout_preview: Beginning of its output.
        stderr_preview: Beginning of its error output.
        stdout_bytes: Size of its output in bytes.
        stderr_bytes: Size of its error output in bytes.
        """
        return self.emit(
            "process.exited",
            _said(
                more,
                {
                    "exec_id": exec_id,
                    "exit_code": exit_code,
                    "duration_ms": duration_ms,
                    "stdout_preview": stdout_preview,
                    "stderr_preview": stderr_preview,
                    "stdout_bytes": stdout_bytes,
                    "stderr_bytes": stderr_bytes,
                },
            ),
            **about,
        )

    def process_audited(
        self,
        *,
        pid: int,
        ppid: int,
        uid: int,
        exe: str,
        argv: Any,
        comm: str | None = None,
        cwd: str | None = None,
        tty: str | None = None,
        parent_exe: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``process.audited``: The kernel saw a process start.

        pid: Process id.
        ppid: Its parent's process id.
        uid: The user it runs as.
        exe: The program.
        argv: Its arguments: an array of texts, or one text.
        comm: Its short name.
        cwd: Its directory.
        tty: Its terminal.
        parent_exe: Its parent's program.
        """
        return self.emit(
            "process.audited",
            _said(
                more,
                {
                    "pid": pid,
                    "ppid": ppid,
                    "uid": uid,
                    "exe": exe,
                    "argv": argv,
                    "comm": comm,
                    "cwd": cwd,
                    "tty": tty,
                    "parent_exe": parent_exe,
                },
            ),
            **about,
        )

    def credential_used(
        self,
        *,
        source: str,
        reference: str,
        outcome: Literal["captured", "brokered", "injected", "error"],
        provider: str | None = None,
        material: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``credential.used``: A credential was used. Never holds the secret.

        source: Where it came from.
        reference: A reference that names it.
        outcome: What was done with it.
        provider: Whose credential it is.
        material: What kind of secret it is; never the secret.
        """
        return self.emit(
            "credential.used",
            _said(
                more,
                {
                    "source": source,
                    "reference": reference,
                    "outcome": outcome,
                    "provider": provider,
                    "material": material,
                },
            ),
            **about,
        )

    def security_rule_matched(
        self,
        *,
        for_event_id: str,
        rule_id: str,
        rule_action: str,
        detection_level: str,
        rule: Any,
        event: Any,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``security.rule_matched``: A rule matched an event.

        for_event_id: `event_id` of the event that it matched.
        rule_id: The rule.
        rule_action: What the rule asks for.
        detection_level: How serious it is.
        rule: The rule itself.
        event: What it matched.
        """
        return self.emit(
            "security.rule_matched",
            _said(
                more,
                {
                    "for_event_id": for_event_id,
                    "rule_id": rule_id,
                    "rule_action": rule_action,
                    "detection_level": detection_level,
                    "rule": rule,
                    "event": event,
                },
            ),
            **about,
        )

    def security_decided(
        self,
        *,
        for_event_id: str,
        stage: str,
        previous: str,
        requested: str,
        effective: str,
        rule_id: str | None = None,
        rule_action: str | None = None,
        detection_level: str | None = None,
        rule: Any = None,
        event: Any = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``security.decided``: What became of an event under the rules.

        for_event_id: `event_id` of the event.
        stage: Where it was decided.
        previous: The decision before.
        requested: The decision that was asked for.
        effective: The decision that holds.
        rule_id: The rule that led to it.
        rule_action: What that rule asks for.
        detection_level: How serious it is.
        rule: The rule itself.
        event: What it decided about.
        """
        return self.emit(
            "security.decided",
            _said(
                more,
                {
                    "for_event_id": for_event_id,
                    "stage": stage,
                    "previous": previous,
                    "requested": requested,
                    "effective": effective,
                    "rule_id": rule_id,
                    "rule_action": rule_action,
                    "detection_level": detection_level,
                    "rule": rule,
                    "event": event,
                },
            ),
            **about,
        )

    def security_asked(
        self,
        *,
        for_event_id: str,
        ask_id: str,
        status: str,
        stage: str | None = None,
        rule_id: str | None = None,
        rule_action: str | None = None,
        detection_level: str | None = None,
        rule: Any = None,
        event: Any = None,
        previous: str | None = None,
        requested: str | None = None,
        effective: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``security.asked``: A person was asked.

        for_event_id: `event_id` of the event.
        stage: Where it was asked.
        ask_id: The question.
        status: Open, or its answer.
        rule_id: The rule that asks.
        rule_action: What that rule asks for.
        detection_level: How serious it is.
        rule: The rule itself.
        event: What is asked about.
        previous: The decision before.
        requested: The decision that was asked for.
        effective: The decision that holds.
        """
        return self.emit(
            "security.asked",
            _said(
                more,
                {
                    "for_event_id": for_event_id,
                    "stage": stage,
                    "ask_id": ask_id,
                    "status": status,
                    "rule_id": rule_id,
                    "rule_action": rule_action,
                    "detection_level": detection_level,
                    "rule": rule,
                    "event": event,
                    "previous": previous,
                    "requested": requested,
                    "effective": effective,
                },
            ),
            **about,
        )

    def mcp_observed(
        self,
        *,
        method: str,
        direction: Literal["request", "response"],
        server_name: str | None = None,
        tool_name: str | None = None,
        request_id: str | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``mcp.observed``: Evidence of the MCP protocol. Only `tools/call` is a tool call.

        method: JSON-RPC method.
        direction: Which way it went.
        server_name: The server.
        tool_name: The tool.
        request_id: JSON-RPC id; compared as text.
        """
        return self.emit(
            "mcp.observed",
            _said(
                more,
                {
                    "method": method,
                    "direction": direction,
                    "server_name": server_name,
                    "tool_name": tool_name,
                    "request_id": request_id,
                },
            ),
            **about,
        )

    def body_recorded(
        self,
        *,
        for_event_id: str,
        source: str,
        direction: str,
        original_bytes: int,
        truncated: bool,
        sha256: str,
        data: str,
        content_type: str | None = None,
        part: int | None = None,
        parts: int | None = None,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``body.recorded``: A body that was too long for its event, or a part of it.

        for_event_id: `event_id` of the event that it belongs to.
        source: net, model_call, tool_call, …
        direction: request, response, …
        content_type: Its media type.
        original_bytes: Its full size in bytes.
        truncated: Whether it was cut.
        sha256: SHA-256 of the full body, hex.
        part: Which part.
        parts: How many parts.
        data: The bytes, base64.
        """
        return self.emit(
            "body.recorded",
            _said(
                more,
                {
                    "for_event_id": for_event_id,
                    "source": source,
                    "direction": direction,
                    "content_type": content_type,
                    "original_bytes": original_bytes,
                    "truncated": truncated,
                    "sha256": sha256,
                    "part": part,
                    "parts": parts,
                    "data": data,
                },
            ),
            **about,
        )

    def artifact_checked(
        self,
        *,
        path: str,
        expected: Any,
        present: bool,
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``artifact.checked``: A file that the work should have made was looked for.

        path: The file.
        expected: What should be there.
        present: Whether it was there.
        """
        return self.emit(
            "artifact.checked", _said(more, {"path": path, "expected": expected, "present": present}), **about
        )

    def recorder_settled(
        self, *, outcome: str, more: Mapping[str, Any] | None = None, **about: Unpack[About]
    ) -> R:
        """``recorder.settled``: The recorded command ended: its own result, not the turn's and not the session's.

        outcome: The command's own outcome.
        """
        return self.emit("recorder.settled", _said(more, {"outcome": outcome}), **about)

    def counter_reported(
        self,
        *,
        name: str,
        labels: Mapping[str, Any],
        value: int | float,
        temporality: Literal["cumulative", "delta"],
        more: Mapping[str, Any] | None = None,
        **about: Unpack[About],
    ) -> R:
        """``counter.reported``: A harness's own metric, for reconciling. Never added to totals.

        name: The metric.
        labels: Its labels.
        value: Its value.
        temporality: A running total, or what was added.
        """
        return self.emit(
            "counter.reported",
            _said(more, {"name": name, "labels": labels, "value": value, "temporality": temporality}),
            **about,
        )
