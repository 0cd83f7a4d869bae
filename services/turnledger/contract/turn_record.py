"""The turn record, version 2, as a pydantic model: what one turn's JSON document holds (contract 10). The schemas come from it.

Durations are ms, money integer micro-USD, instants RFC 3339 in UTC with six digits and ``Z``, tokens counts. A field is present only
when its input was; null is unknown, not zero.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from turnledger.contract.fields import Count, Integer, Number


class Part(BaseModel):
    """A part of the record. Later versions may add fields."""

    model_config = ConfigDict(extra="allow", frozen=True, populate_by_name=True)


class Usage(Part):
    """Tokens in disjoint buckets. A sum skips nulls and says of how many parts it knows."""

    input_uncached: Count | None = Field(None, description="Input tokens that no cache served or kept.")
    cache_read: Count | None = Field(None, description="Input tokens read from a cache.")
    cache_write_5m: Count | None = Field(None, description="Input tokens written to a cache for 5 minutes.")
    cache_write_1h: Count | None = Field(None, description="Input tokens written to a cache for 1 hour.")
    cache_write_other: Count | None = Field(
        None, description="Input tokens written to a cache, lifetime unknown."
    )
    output: Count | None = Field(None, description="Output tokens, reasoning included.")
    reasoning: Count | None = Field(
        None, description="Reasoning tokens, a part of output; never added to it."
    )
    total_input: Count | None = Field(None, description="Uncached input, cache reads and all cache writes.")
    reported: Count | None = Field(None, description="Parts with at least one known counter.")
    total: Count | None = Field(None, description="Parts in all.")


class Answer(Part):
    """What the turn answered."""

    text: str | None = Field(None, description="The answer as text.")
    value: Any = Field(None, description="The answer as a value.")
    exact: bool | None = Field(None, description="Whether it is the very answer, not a reconstruction.")


class Stop(Part):
    """Why the turn stopped."""

    why: Literal[
        "failed", "interrupted", "limit", "tool_pending", "answered", "text_without_tool_call", "unknown"
    ] = Field(description="The first that holds, in this order.")
    last_event: str | None = Field(None, description="Type of the turn's last event before its end.")


class ModelCall(Part):
    """One request to a provider and its response, failed ones too."""

    model_call_id: str | None = Field(None, description="The harness's id; unique inside its turn at best.")
    message_id: str | None = Field(None, description="The provider's id of the response.")
    provider: str | None = Field(None, description="Who was asked.")
    model: str | None = Field(None, description="The model that answered.")
    index: Count | None = Field(None, description="Which call of the turn.")
    status: str | None = Field(None, description="started, completed or failed.")
    stop_reason: str | None = Field(None, description="Why the model stopped, in the provider's words.")
    status_code: Integer | None = Field(None, description="HTTP status.")
    latency_ms: Count | None = Field(None, description="From request to last byte, in ms.")
    ttft_ms: Count | None = Field(None, description="From request to first token, in ms.")
    retries: Count | None = Field(None, description="Attempts that failed before it.")
    usage: Usage | None = Field(None, description="Its own tokens.")
    fidelity: str | None = Field(None, description="exact, lower_bound, estimated or unknown.")
    cost_micro_usd: Integer | None = Field(
        None, description="Its price in micro-USD. Laid over, outside the digest."
    )
    cost_fidelity: str | None = Field(
        None, description="exact, lower_bound or upper_bound. Outside the digest."
    )
    price_id: str | None = Field(None, description="The catalogue entry that priced it. Outside the digest.")
    inherited: bool | None = Field(
        None, description="Whether another session owns it: shown, not summed. Outside the digest."
    )


class ToolCall(Part):
    """One logical tool call: request, execution, transport and result."""

    tool_call_id: str | None = Field(None, description="The provider's id; some providers reuse ids.")
    tool_name: str | None = Field(None, description="The tool.")
    origin: str | None = Field(None, description="native, mcp, builtin, local or unknown.")
    server_name: str | None = Field(None, description="The MCP server.")
    status: str | None = Field(None, description="requested, ok, error or denied.")
    requested_by: str | None = Field(None, description="`model_call_id` of the call that asked for it.")
    consumed_by: str | None = Field(None, description="`model_call_id` of the call that got its result.")
    duration_ms: Count | None = Field(None, description="How long it ran, in ms.")
    error: Any = Field(None, description="What went wrong.")
    pairing: (
        Literal["paired", "pending", "missing_result", "orphan_result", "late_result", "denied"] | None
    ) = Field(None, description="How request and result fit together.")


class Context(Part):
    """How full the model's context was."""

    tokens: Count | None = Field(None, description="Size in tokens.")
    window: Count | None = Field(None, description="The model's window in tokens.")
    used_ppm: Count | None = Field(None, description="tokens / window in parts per million.")


class Compaction(Part):
    """The context was compacted."""

    tokens_before: Count | None = Field(None, description="Size before, in tokens.")
    tokens_after: Count | None = Field(None, description="Size after, in tokens.")
    strategy: str | None = Field(None, description="How.")


class Verdict(Part):
    """The last decision of the agent's state machine."""

    state: str | None = Field(None, description="The state it was in.")
    verdict: str | None = Field(None, description="What was decided.")
    candidates: list[Any] | None = Field(None, description="What could have been decided; the first 24.")


class Truncated(Part):
    """Which lists of the record were cut at 24. The ledger has all."""

    guards: bool | None = Field(None, description="guards_evaluated.")
    candidates: bool | None = Field(None, description="verdict.candidates.")


class Counts(Part):
    """Events of the turn, by kind."""

    events: Count | None = Field(None, description="All.")
    net: Count | None = Field(None, description="net.requested.")
    dns: Count | None = Field(None, description="dns.queried.")
    fs: Count | None = Field(None, description="fs.changed.")
    process: Count | None = Field(None, description="process.*")
    security: Count | None = Field(None, description="security.*")


class SeqSpan(Part):
    """From which to which number the turn reaches in one stream."""

    producer: str = Field(description="Of the stream.")
    epoch: Count = Field(description="Of the stream.")
    stream: str = Field(description="The stream.")
    first: Count = Field(alias="from", description="Least number.")
    last: Count = Field(alias="to", description="Greatest number.")


class Gap(Part):
    """A hole in a stream that the turn's span encloses."""

    producer: str = Field(description="Of the stream.")
    epoch: Count = Field(description="Of the stream.")
    stream: str = Field(description="The stream.")
    from_seq: Count = Field(description="First missing number.")
    to_seq: Count = Field(description="Last missing number.")
    state: Literal["open", "declared_lost", "declared_elided"] = Field(description="What is known of it.")


class Limit(Part):
    """A budget was used up."""

    limit: str | None = Field(None, description="token_budget, iterations, rate, time or cost.")
    value: Number | None = Field(None, description="How much was used, in the limit's own unit.")
    threshold: Number | None = Field(None, description="How much was allowed, in the same unit.")


class Error(Part):
    """Something went wrong: a model call that failed, or the turn."""

    source: str = Field(description="model_call or turn.")
    model_call_id: str | None = Field(None, description="The call that failed.")
    error_class: str | None = Field(None, description="What went wrong, of a model call.")
    status_code: Integer | None = Field(None, description="HTTP status, of a model call.")
    message: str | None = Field(None, description="The provider's words.")
    error: Any = Field(None, description="What the turn's end says.")


class Guard(Part):
    """A guard looked at the work."""

    guard: str | None = Field(None, description="Its name.")
    outcome: str | None = Field(None, description="passed, blocked or coerced.")
    reason: str | None = Field(None, description="Why.")


class SlotChange(Part):
    """A slot of the agent's state changed. Values are redacted."""

    slot: str = Field(description="Its name.")
    old: Any = Field(None, description="The value before.")
    new: Any = Field(None, description="The value after.")


class TurnRecord(Part):
    """One user-visible exchange: the user's input and all work until the answer.

    The digest covers what depends on the turn's own events: not revision, digest, cost, inherited, inherited_usage and a disputed
    grade. Ownership and cost are laid over the stored bytes where a record is shown.
    """

    schema_version: Literal[2] = Field(description="Version of this record. Missing reads as 1.")
    tenant: str = Field(description="Part of every key.")
    session_id: str = Field(description="The session.")
    turn_key: str = Field(
        description="Its key in the session: the id, else #<index>, else the position of its opening event."
    )
    turn_id: str | None = Field(None, description="Its id, where an event carries one.")
    turn_index: Count | None = Field(None, description="Its index, where an event carries one.")
    kind: Literal["live", "eval", "import"] = Field(description="Of its first event.")
    run_id: str | None = Field(None, description="The evaluation run.")
    revision: Count = Field(
        1, description="Distinct digests written for it. Arrival history, outside the digest."
    )
    digest: str | None = Field(None, description="SHA-256 of its canonical JSON, hex.")
    status: Literal["open", "completed", "failed", "interrupted", "aborted", "abandoned"] = Field(
        description="How it stands."
    )
    assigned_by: Literal["id", "index", "link", "boundary", "window", "fallback"] = Field(
        description="The weakest rule that any of its events needed to belong to it."
    )
    started_at: str | None = Field(None, description="When it began.")
    completed_at: str | None = Field(None, description="When it ended.")
    duration_ms: Count | None = Field(None, description="How long it took, in ms.")
    duration_source: Literal["reported", "derived"] | None = Field(
        None, description="reported by the harness, or derived from its two instants."
    )
    user_input: str | None = Field(None, description="Beginning of the user's input.")
    answer: Answer | None = Field(None, description="What it answered; the last in order.")
    stop: Stop | None = Field(None, description="Why it stopped.")
    model_calls: list[ModelCall] | None = Field(None, description="Its model calls in order.")
    round_trips: Count | None = Field(None, description="Distinct model calls.")
    tool_calls: list[ToolCall] | None = Field(None, description="Its tool calls in order.")
    usage: Usage | None = Field(None, description="The sum over its parts.")
    inherited_usage: Usage | None = Field(
        None, description="Of calls that another session owns. Outside the digest."
    )
    unattributed: Usage | None = Field(None, description="What of a running total no call explains.")
    cost_micro_usd: Integer | None = Field(None, description="In micro-USD. Laid over, outside the digest.")
    context: Context | None = Field(None, description="How full the context was.")
    compactions: list[Compaction] | None = Field(None, description="In order.")
    limits: list[Limit] | None = Field(None, description="Limits that were reached, in order.")
    errors: list[Error] | None = Field(None, description="Errors, in order.")
    guards_evaluated: list[Guard] | None = Field(None, description="The first 24, in order.")
    verdict: Verdict | None = Field(None, description="The last in order.")
    truncated: Truncated | None = Field(None, description="Which lists were cut.")
    slot_diff: list[SlotChange] | None = Field(
        None, description="Changes of slots that events explain, values redacted."
    )
    unattributed_diff: list[SlotChange] | None = Field(
        None, description="Changes of slots that no event explains, values redacted."
    )
    required_slots_in_state: list[Any] | None = Field(
        None, description="Slots that the state requires, from the snapshot after the transition."
    )
    missing_required_slots: list[Any] | None = Field(
        None, description="Required slots that are absent or null; 0, false and empty are filled."
    )
    counts: Counts | None = Field(None, description="Events of the turn, by kind.")
    seq_spans: list[SeqSpan] | None = Field(None, description="Where its events stand.")
    gaps: list[Gap] | None = Field(None, description="Gaps that its spans enclose.")
    grade: Literal["disputed", "gaps", "partial", "unknown", "complete"] = Field(
        description="The worst that holds."
    )
