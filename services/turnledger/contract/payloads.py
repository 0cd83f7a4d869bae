"""The payload of every event type: one pydantic model each (contract 6 and 8).

Times are ms, sizes bytes, instants RFC 3339 unless a field says otherwise. Fields that a model does not name are kept as they are.
The models say what a producer should send; reading is tolerant, with the functions of ``contract.fields``.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from turnledger.contract.fields import (
    Count,
    Identifier,
    Integer,
    Number,
)
from turnledger.contract.fields import boolean as boolean
from turnledger.contract.fields import choice as choice
from turnledger.contract.fields import count as count
from turnledger.contract.fields import identifier as identifier
from turnledger.contract.fields import integer as integer
from turnledger.contract.fields import items as items
from turnledger.contract.fields import mapping as mapping
from turnledger.contract.fields import number as number
from turnledger.contract.fields import text as text

ErrorClass = Literal["rate_limit", "timeout", "overloaded", "auth", "refused", "cut", "other"]


class Fields(BaseModel):
    """The fields of a payload, or of an object inside one. Null means absent."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


class Payload(Fields):
    """What one event type says."""

    # Anything, since a producer may have a field of its own by that name; it is kept, and the notes stand in ``turnledger_redactions``.
    redactions: Any = Field(
        None,
        description="What was redacted before it came here, or at ingest: a list of `{what, where, count}` (contract 14). "
        "Written by publishers and ingest, not by harnesses.",
    )


# --- sessions and streams: session-level work, always ---


class SessionStarted(Payload):
    """A session began, or went on after a stop. Facts about the host may stand beside these fields."""

    agent: str | None = Field(None, description="The agent program.")
    agent_config_ref: str | None = Field(
        None, description="Reference of the configuration it was launched with."
    )
    mode: str | None = Field(None, description="How it runs, in the harness's words.")
    name: str | None = Field(None, description="Display name: an alias, never a key.")
    model: str | None = Field(None, description="The model it was launched with.")
    tools: list[Any] | None = Field(None, description="Tools on offer: names or descriptions.")
    command: str | None = Field(None, description="The command line of the launch.")
    persistent: bool | None = Field(None, description="Whether its disk outlives it.")


class SessionForked(Payload):
    """The session began as a copy of another one's history."""

    parent_session_id: str = Field(description="The session that was copied.")
    at_seq: Count | None = Field(None, description="The last inherited position of `stream` in the parent.")
    stream: str | None = Field(None, description="The parent's stream in which `at_seq` counts.")


class SessionToolsChanged(Payload):
    """The tools on offer changed."""

    tools: list[Any] = Field(description="All tools from now on: names or descriptions.")


class SessionEnded(Payload):
    """The session is over."""

    status: str = Field(description="How: stopped, crashed, lost, or the harness's own word.")
    exit_code: Integer | None = Field(None, description="Exit code of its main process.")


class StreamNamed(Payload):
    """Which stream a declaration concerns: the one it stands in, unless named; each part by itself."""

    producer: str | None = Field(None, description="Absent: the event's own.")
    epoch: Count | None = Field(None, description="Absent: the event's own.")
    stream: str | None = Field(None, description="Absent: the event's own.")


class StreamDeclared(StreamNamed):
    """What holes in a stream mean, from this epoch on until redeclared."""

    density: Literal["dense", "sparse", "unknown"] = Field(
        description="dense: every number comes, a hole is a gap; sparse: numbers are left out on purpose."
    )
    first_seq: Count | None = Field(None, description="The first number that was ever given. Absent: 0.")


class StreamClosed(StreamNamed):
    """No number above `last_seq` will come."""

    last_seq: Count = Field(description="The last number, this event's own counted.")


class StreamLost(StreamNamed):
    """These numbers will never come: a bounded spool ran full, a disk died."""

    from_seq: Count = Field(description="First lost number.")
    to_seq: Count = Field(description="Last lost number.")
    reason: str = Field(description="Why.")


class StreamElided(StreamNamed):
    """These numbers were left out on purpose."""

    from_seq: Count = Field(description="First number left out.")
    to_seq: Count = Field(description="Last number left out.")
    reason: str = Field(description="Why.")


class StreamSuperseded(Payload):
    """Another stream tells the same better (a newer reader of the same file): the fold leaves the named one out."""

    producer: str = Field(description="Of the stream that is left out.")
    epoch: Count = Field(description="Of the stream that is left out.")
    stream: str = Field(description="The stream that is left out; the ledger keeps it.")
    reason: str = Field(description="Why.")


class CaptureRecorded(Payload):
    """An immutable input of the launch."""

    capture_id: Identifier = Field(description="Its id.")
    content_sha256: str = Field(description="SHA-256 of its content, hex.")
    bytes: Count = Field(description="Its size in bytes.")
    caller: str | None = Field(None, description="Who launched.")
    skill: str | None = Field(None, description="The skill that was asked for.")
    provider: str | None = Field(None, description="The provider that was asked for.")
    model: str | None = Field(None, description="The model that was asked for.")


class DriverClaimed(Payload):
    """A driver took the session over."""

    generation: Identifier = Field(description="Which incarnation of the driver.")
    exec: Identifier | None = Field(None, description="The process that drives.")


class DriverExited(Payload):
    """A driver ended. Says nothing about the turn, the attempt or the session."""

    generation: Identifier = Field(description="Which incarnation of the driver.")
    outcome: str = Field(description="The driver's own outcome.")


class AttemptStarted(Payload):
    """One attempt to run the work with one provider."""

    attempt_id: Identifier = Field(description="Its id in the session.")
    provider: str = Field(description="The provider that is tried.")
    account: str | None = Field(None, description="The account that is used.")


class AttemptFinished(Payload):
    """An attempt ended. Says nothing about the turn or the session."""

    attempt_id: Identifier = Field(description="Its id in the session.")
    outcome: str = Field(description="The attempt's own outcome.")


class ProviderSessionObserved(Payload):
    """The provider's own id of the conversation became known."""

    provider_session_id: str = Field(description="The provider's id.")
    attempt_id: Identifier | None = Field(None, description="The attempt that saw it.")
    account: str | None = Field(None, description="The account that is used.")


# --- turns and messages ---


class TurnStarted(Payload):
    """A user-visible exchange began."""

    input_preview: str | None = Field(None, description="Beginning of the user's input.")
    provider_turn_id: str | None = Field(None, description="The provider's id of the turn.")
    provider_thread: str | None = Field(
        None, description="The thread that it uses: names its running token counter."
    )


class TurnCompleted(Payload):
    """A turn ended. An absent or unlisted status reads as completed."""

    status: Literal["completed", "failed", "interrupted", "aborted"] | None = Field(
        None, description="How it ended."
    )
    error: Any = Field(None, description="What went wrong: a text or an object.")
    duration_ms: Count | None = Field(None, description="As the harness measured it, in ms.")


class MessageRecorded(Payload):
    """One message of the conversation."""

    role: Literal["system", "user", "assistant", "tool"] = Field(description="Who speaks.")
    text: str | None = Field(None, description="Its text.")
    content: Any = Field(None, description="Its content as the provider has it: a text or an array of items.")
    phase: str | None = Field(None, description="Where in the turn it stands, in the harness's words.")
    token_count: Count | None = Field(None, description="Its size in tokens. Never added to usage.")
    token_source: str | None = Field(None, description="Who counted.")


# --- model calls and usage ---


class Usage(Fields):
    """Token counters as the provider sent them. Null is unknown, not zero."""

    input: Count | None = Field(
        None, description="Input tokens; whether cached ones are inside says the convention."
    )
    output: Count | None = Field(None, description="Output tokens.")
    cache_read: Count | None = Field(None, description="Input tokens read from a cache.")
    cache_write: Count | None = Field(None, description="Input tokens written to a cache, all lifetimes.")
    cache_write_5m: Count | None = Field(None, description="Written to live 5 minutes.")
    cache_write_1h: Count | None = Field(None, description="Written to live 1 hour.")
    reasoning: Count | None = Field(None, description="Reasoning tokens.")
    total: Count | None = Field(None, description="The provider's own total.")


class UsageFields(Payload):
    """A usage report: `usage` and what stands beside it."""

    usage: Usage | None = Field(None, description="The counters.")
    token_convention: str | None = Field(
        None,
        description="exclusive, inclusive, inclusive_thoughts_separate or unknown: what `input` and `output` include. "
        "Any other word reads as unknown.",
    )
    counter_kind: Literal["per_call", "snapshot", "cumulative", "rollup"] | None = Field(
        None, description="What the counters count. Absent: per_call."
    )
    usage_stream: str | None = Field(
        None, description="The running total of a cumulative report. Absent: the thread, else the stream."
    )
    last: Usage | None = Field(None, description="Of a cumulative report: the latest single request.")
    start_known: bool | None = Field(
        None, description="Whether the first report's running value began at zero."
    )
    final: bool | None = Field(None, description="Whether no later report of this call will come.")
    source: Literal["response", "event", "transcript", "estimate"] | None = Field(
        None, description="Where it was read. Absent: response when there is a message_id, else event."
    )
    provider_thread: str | None = Field(None, description="The provider's thread.")
    provider: str | None = Field(None, description="Who was asked: anthropic, openai, google, …")
    model: str | None = Field(None, description="The model that answered.")
    message_id: str | None = Field(None, description="The provider's id of the response.")
    request_id: Identifier | None = Field(None, description="The provider's id of the request.")
    stop_reason: str | None = Field(None, description="Why the model stopped, in the provider's words.")
    peak_input: Count | None = Field(
        None, description="Greatest input of a single request, in tokens. A gauge."
    )
    context_window: Count | None = Field(None, description="The model's window in tokens. A gauge.")
    reported_cost_usd: Number | None = Field(
        None, description="The harness's own cost in USD. Never mixed with ours."
    )


class ModelCallStarted(Payload):
    """A request to a provider went out."""

    provider: str = Field(description="Who is asked.")
    model: str | None = Field(None, description="The model that is asked for.")
    method: str | None = Field(None, description="HTTP method.")
    path: str | None = Field(None, description="Path of the request.")
    stream: bool | None = Field(None, description="Whether the answer is streamed.")
    input_tokens_estimate: Count | None = Field(
        None, description="The harness's guess of its input, in tokens."
    )
    context_tokens: Count | None = Field(None, description="Size of the context, in tokens.")
    context_window: Count | None = Field(None, description="The model's window, in tokens.")
    messages_count: Count | None = Field(None, description="Messages in the request.")
    tools_count: Count | None = Field(None, description="Tools in the request.")


class ModelCallDelta(Payload):
    """A piece of a streamed answer: live only. Its position counts, its text is not stored."""

    ordinal: Count = Field(description="Which piece, from 0.")
    text: str = Field(description="The piece.")


class ModelCallCompleted(UsageFields):
    """A provider answered. Its usage report is final."""

    protocol: str | None = Field(None, description="Wire protocol of the provider's API.")
    status_code: Integer | None = Field(None, description="HTTP status.")
    latency_ms: Count | None = Field(None, description="From request to last byte, in ms.")
    ttft_ms: Count | None = Field(None, description="From request to first token, in ms.")
    text: str | None = Field(None, description="The answer's text.")
    thinking: str | None = Field(None, description="The answer's reasoning, where it is given.")
    request_bytes: Count | None = Field(None, description="Size of the request in bytes.")
    response_bytes: Count | None = Field(None, description="Size of the response in bytes.")


class ModelCallFailed(UsageFields):
    """A request failed for good. What it reports counts all the same."""

    error_class: ErrorClass = Field(description="What went wrong.")
    status_code: Integer | None = Field(None, description="HTTP status.")
    message: str | None = Field(None, description="The provider's words.")


class ModelCallRetried(Payload):
    """An attempt failed and is made again."""

    attempt: Count = Field(description="Which retry, from 1.")
    max_attempts: Count | None = Field(None, description="How many are allowed.")
    delay_ms: Count | None = Field(None, description="Wait before it, in ms.")
    error_class: ErrorClass = Field(description="What went wrong.")


class UsageReported(UsageFields):
    """A usage report by itself: a streamed sample, a running total, a sum that a parent reports."""


# --- tools ---


class ToolCallRequested(Payload):
    """A model asked for a tool."""

    tool_name: str = Field(description="The tool.")
    arguments: Any = Field(None, description="Its arguments, any JSON.")
    call_index: Count | None = Field(None, description="Which of the calls of one response, from 0.")
    call_tool_origin: Literal["native", "mcp", "builtin", "local", "unknown"] | None = Field(
        None, description="Where the tool lives. Absent: unknown."
    )
    server_name: str | None = Field(None, description="The MCP server.")


class ToolCallStarted(Payload):
    """A tool began to run."""

    tool_name: str | None = Field(None, description="The tool.")


class ToolCallCompleted(Payload):
    """A tool gave its result."""

    status: Literal["ok", "error"] = Field(description="The tool's own outcome.")
    tool_name: str | None = Field(None, description="The tool.")
    error_message: str | None = Field(None, description="What went wrong.")
    duration_ms: Count | None = Field(None, description="How long it ran, in ms.")
    preview: str | None = Field(None, description="Beginning of the result.")
    bytes_sent: Count | None = Field(None, description="Size of the request in bytes.")
    bytes_received: Count | None = Field(None, description="Size of the result in bytes.")
    method: str | None = Field(None, description="Method of the transport.")
    request_id: Identifier | None = Field(None, description="Id of the transport's request.")
    transport: str | None = Field(None, description="How it was reached.")
    server_name: str | None = Field(None, description="The MCP server.")


class ToolCallDenied(Payload):
    """A tool call was not allowed. Beats a result, is no error."""

    by: Literal["policy", "guard", "user"] = Field(description="Who denied it.")
    rule: str | None = Field(None, description="The rule that did.")
    reason: str | None = Field(None, description="Why.")


class ToolResultsSubmitted(Payload):
    """Results went back to the model. The envelope's `model_call_id` is the call that consumes them."""

    tool_call_ids: list[Any] = Field(description="The tool calls whose results are in it.")
    context_tokens: Count | None = Field(None, description="Size of the context after it, in tokens.")


# --- guards, state, limits, context ---


class GuardEvaluated(Payload):
    """A guard looked at the work."""

    guard: str = Field(description="Its name.")
    outcome: Literal["passed", "blocked", "coerced"] = Field(description="What it did.")
    reason: str | None = Field(None, description="Why.")


class SlotWritten(Payload):
    """A slot of the agent's state was written. Values are redacted."""

    slot: str = Field(description="Its name.")
    old: Any = Field(None, description="The value before, redacted.")
    new: Any = Field(None, description="The value after, redacted.")


class TransitionDecided(Payload):
    """The agent's state machine decided where to go."""

    state: str = Field(description="The state it is in.")
    verdict: str = Field(description="What was decided.")
    candidates: list[Any] = Field(description="What could have been decided.")


class StateObserved(Payload):
    """A snapshot of the agent's state. Values are redacted."""

    state: str = Field(description="The state it is in.")
    slots: dict[str, Any] = Field(description="Value by slot, redacted.")
    required: list[Any] | None = Field(None, description="Names of the slots that must be filled.")
    when: Literal["before", "after"] = Field(description="Before or after the transition.")


class LimitReached(Payload):
    """A budget is used up."""

    limit: Literal["token_budget", "iterations", "rate", "time", "cost"] = Field(description="Which.")
    value: Number | None = Field(None, description="How much was used, in the limit's own unit.")
    threshold: Number | None = Field(None, description="How much was allowed, in the same unit.")


class CompactionStarted(Payload):
    """The context is being compacted."""

    trigger: str | None = Field(None, description="Why.")


class ContextCompacted(Payload):
    """The context was compacted."""

    tokens_before: Count | None = Field(None, description="Size before, in tokens.")
    tokens_after: Count | None = Field(None, description="Size after, in tokens.")
    strategy: str | None = Field(None, description="How.")
    range: Any = Field(None, description="What was compacted, in the harness's own terms.")
    summary: str | None = Field(None, description="What stands in its place.")


class AnswerFinalized(Payload):
    """The turn's answer to the user: `text` or `value`."""

    text: str | None = Field(None, description="The answer as text.")
    value: Any = Field(None, description="The answer as a value.")
    exact: bool = Field(description="Whether it is the very answer, not a reconstruction.")


class SubagentStarted(Payload):
    """A sub-agent was started."""

    agent: str = Field(description="Which.")
    child_session_id: str | None = Field(None, description="Its own session.")


class SubagentFinished(Payload):
    """A sub-agent ended."""

    agent: str = Field(description="Which.")
    status: str = Field(description="Its own outcome.")


# --- what the machine did ---


class NetRequested(Payload):
    """The session asked for something on the network. Fields of the policy may stand beside these."""

    domain: str = Field(description="Host name.")
    port: Count = Field(description="TCP port.")
    decision: Literal["allowed", "denied", "error", "redirected"] = Field(description="What became of it.")
    method: str | None = Field(None, description="HTTP method.")
    path: str | None = Field(None, description="Path.")
    query: str | None = Field(None, description="Query string.")
    status_code: Integer | None = Field(None, description="HTTP status.")
    bytes_sent: Count | None = Field(None, description="Bytes sent.")
    bytes_received: Count | None = Field(None, description="Bytes received.")
    duration_ms: Count | None = Field(None, description="How long it took, in ms.")
    matched_rule: str | None = Field(None, description="The rule that decided.")
    request_headers: Any = Field(None, description="Header values, redacted.")
    response_headers: Any = Field(None, description="Header values, redacted.")
    conn_type: str | None = Field(None, description="Kind of connection.")
    policy_mode: str | None = Field(None, description="How the policy is applied.")
    policy_action: str | None = Field(None, description="What the policy asks for.")
    policy_rule: str | None = Field(None, description="The policy's rule.")
    policy_reason: str | None = Field(None, description="Why the policy asks for it.")


class DnsQueried(Payload):
    """The session asked for a name."""

    qname: str = Field(description="The name.")
    qtype: Identifier = Field(description="Record type, as a word or a number.")
    qclass: Identifier | None = Field(None, description="Record class, as a word or a number.")
    rcode: Identifier | None = Field(None, description="Response code, as a word or a number.")
    answer_ip: str | None = Field(None, description="The address in the answer.")
    decision: str | None = Field(None, description="What became of it.")
    matched_rule: str | None = Field(None, description="The rule that decided.")
    source_proto: str | None = Field(None, description="How the question came.")
    resolver_ms: Count | None = Field(None, description="How long the resolver took, in ms.")
    policy_mode: str | None = Field(None, description="How the policy is applied.")
    policy_action: str | None = Field(None, description="What the policy asks for.")
    policy_rule: str | None = Field(None, description="The policy's rule.")
    policy_reason: str | None = Field(None, description="Why the policy asks for it.")


class FsChanged(Payload):
    """A file was touched. `overflow` says that changes were missed."""

    action: Literal["created", "modified", "deleted", "restored", "read", "import", "export", "overflow"] = (
        Field(description="What happened.")
    )
    path: str = Field(description="The file.")
    size: Count | None = Field(None, description="Its size in bytes.")
    entry_kind: str | None = Field(None, description="File, directory, link, …")


class ProcessStarted(Payload):
    """A process was started."""

    exec_id: Identifier = Field(description="Its id in the producer's epoch; compared as text.")
    command: str = Field(description="The command line.")
    source: str | None = Field(None, description="Who started it.")


class ProcessExited(Payload):
    """A process ended. Says nothing about the tool call or the turn."""

    exec_id: Identifier = Field(description="Its id in the producer's epoch; compared as text.")
    exit_code: Integer = Field(description="Its exit code; negative for a signal.")
    duration_ms: Count | None = Field(None, description="How long it ran, in ms.")
    stdout_preview: str | None = Field(None, description="Beginning of its output.")
    stderr_preview: str | None = Field(None, description="Beginning of its error output.")
    stdout_bytes: Count | None = Field(None, description="Size of its output in bytes.")
    stderr_bytes: Count | None = Field(None, description="Size of its error output in bytes.")


class ProcessAudited(Payload):
    """The kernel saw a process start."""

    pid: Integer = Field(description="Process id.")
    ppid: Integer = Field(description="Its parent's process id.")
    uid: Integer = Field(description="The user it runs as.")
    exe: str = Field(description="The program.")
    argv: Any = Field(description="Its arguments: an array of texts, or one text.")
    comm: str | None = Field(None, description="Its short name.")
    cwd: str | None = Field(None, description="Its directory.")
    tty: str | None = Field(None, description="Its terminal.")
    parent_exe: str | None = Field(None, description="Its parent's program.")


class CredentialUsed(Payload):
    """A credential was used. Never holds the secret."""

    source: str = Field(description="Where it came from.")
    reference: str = Field(description="A reference that names it.")
    outcome: Literal["captured", "brokered", "injected", "error"] = Field(
        description="What was done with it."
    )
    provider: str | None = Field(None, description="Whose credential it is.")
    material: str | None = Field(None, description="What kind of secret it is; never the secret.")


class SecurityRuleMatched(Payload):
    """A rule matched an event."""

    for_event_id: str = Field(description="`event_id` of the event that it matched.")
    rule_id: Identifier = Field(description="The rule.")
    rule_action: str = Field(description="What the rule asks for.")
    detection_level: str = Field(description="How serious it is.")
    rule: Any = Field(description="The rule itself.")
    event: Any = Field(description="What it matched.")


class SecurityDecided(Payload):
    """What became of an event under the rules."""

    for_event_id: str = Field(description="`event_id` of the event.")
    stage: str = Field(description="Where it was decided.")
    previous: str = Field(description="The decision before.")
    requested: str = Field(description="The decision that was asked for.")
    effective: str = Field(description="The decision that holds.")
    rule_id: Identifier | None = Field(None, description="The rule that led to it.")
    rule_action: str | None = Field(None, description="What that rule asks for.")
    detection_level: str | None = Field(None, description="How serious it is.")
    rule: Any = Field(None, description="The rule itself.")
    event: Any = Field(None, description="What it decided about.")


class SecurityAsked(Payload):
    """A person was asked."""

    for_event_id: str = Field(description="`event_id` of the event.")
    stage: str | None = Field(None, description="Where it was asked.")
    ask_id: Identifier = Field(description="The question.")
    status: str = Field(description="Open, or its answer.")
    rule_id: Identifier | None = Field(None, description="The rule that asks.")
    rule_action: str | None = Field(None, description="What that rule asks for.")
    detection_level: str | None = Field(None, description="How serious it is.")
    rule: Any = Field(None, description="The rule itself.")
    event: Any = Field(None, description="What is asked about.")
    previous: str | None = Field(None, description="The decision before.")
    requested: str | None = Field(None, description="The decision that was asked for.")
    effective: str | None = Field(None, description="The decision that holds.")


class McpObserved(Payload):
    """Evidence of the MCP protocol. Only `tools/call` is a tool call."""

    method: str = Field(description="JSON-RPC method.")
    direction: Literal["request", "response"] = Field(description="Which way it went.")
    server_name: str | None = Field(None, description="The server.")
    tool_name: str | None = Field(None, description="The tool.")
    request_id: Identifier | None = Field(None, description="JSON-RPC id; compared as text.")


class BodyRecorded(Payload):
    """A body that was too long for its event, or a part of it."""

    for_event_id: str = Field(description="`event_id` of the event that it belongs to.")
    source: str = Field(description="net, model_call, tool_call, …")
    direction: str = Field(description="request, response, …")
    content_type: str | None = Field(None, description="Its media type.")
    original_bytes: Count = Field(description="Its full size in bytes.")
    truncated: bool = Field(description="Whether it was cut.")
    sha256: str = Field(description="SHA-256 of the full body, hex.")
    part: Count | None = Field(None, description="Which part.")
    parts: Count | None = Field(None, description="How many parts.")
    data: str = Field(description="The bytes, base64.")


class ArtifactChecked(Payload):
    """A file that the work should have made was looked for."""

    path: str = Field(description="The file.")
    expected: Any = Field(description="What should be there.")
    present: bool = Field(description="Whether it was there.")


class RecorderSettled(Payload):
    """The recorded command ended: its own result, not the turn's and not the session's."""

    outcome: str = Field(description="The command's own outcome.")


class CounterReported(Payload):
    """A harness's own metric, for reconciling. Never added to totals."""

    name: str = Field(description="The metric.")
    labels: dict[str, Any] = Field(description="Its labels.")
    value: Number = Field(description="Its value.")
    temporality: Literal["cumulative", "delta"] = Field(description="A running total, or what was added.")
