"""The columns of every projected row: one list that the fold fills, the store copies and the migration creates.

A test compares these lists with the database. Kinds: ``text`` ``int4`` ``int8`` ``bool`` ``bytea`` ``jsonb``, ``ts`` (µs since 1970 UTC in
Python, ``timestamptz`` in Postgres) and ``numeric`` (a decimal as text in Python). Columns are added at the end only.
"""

from __future__ import annotations

Column = tuple[str, str]

BUCKETS: tuple[str, ...] = (
    "input_uncached",
    "cache_read",
    "cache_write_5m",
    "cache_write_1h",
    "cache_write_other",
    "output",
    "reasoning",
    "total_input",
)
"""Names inside a ``usage`` object; flat rows add ``_tokens`` (contract 17)."""

BUCKET_COLUMNS: tuple[Column, ...] = tuple((f"{name}_tokens", "int8") for name in BUCKETS)
USAGE_SUM: tuple[Column, ...] = (*BUCKET_COLUMNS, ("usage_reported", "int8"), ("usage_total", "int8"))

TURNS: tuple[Column, ...] = (
    ("turn_key", "text"),
    ("turn_id", "text"),
    ("turn_index", "int8"),
    ("kind", "text"),
    ("run_id", "text"),
    ("status", "text"),
    ("assigned_by", "text"),
    ("started_at", "ts"),
    ("completed_at", "ts"),
    ("duration_ms", "int8"),
    ("stop_why", "text"),
    ("round_trips", "int4"),
    ("tool_call_count", "int4"),
    ("event_count", "int4"),
    ("message_count", "int4"),
    ("inherited", "bool"),  # every event of it is inherited: such a turn is not counted (contract 12)
    ("gap_count", "int4"),
    ("grade", "text"),  # before `disputed`, which is arrival history
    *USAGE_SUM,
    ("order_key", "bytea"),
)

MODEL_CALLS: tuple[Column, ...] = (
    ("call_key", "text"),
    ("turn_key", "text"),
    ("model_call_id", "text"),
    ("message_id", "text"),
    ("request_id", "text"),
    ("trace_id", "text"),
    ("provider", "text"),
    ("protocol", "text"),
    ("model", "text"),
    ("kind", "text"),
    ("status", "text"),  # started completed failed
    ("error_class", "text"),
    ("status_code", "int4"),
    ("stop_reason", "text"),
    ("method", "text"),
    ("path", "text"),
    ("started_at", "ts"),
    ("completed_at", "ts"),
    ("hour_at", "ts"),  # the instant that decides its hour (contract 12)
    ("latency_ms", "int8"),
    ("ttft_ms", "int8"),
    ("retries", "int8"),
    ("token_convention", "text"),
    ("usage_source", "text"),
    ("fidelity", "text"),
    *BUCKET_COLUMNS,
    ("counts", "bool"),  # its figures count by themselves: no standing contribution covers it
    ("inherited_event", "bool"),  # an event of provenance `inherited` names it
    ("peak_input_tokens", "int8"),
    ("context_tokens", "int8"),
    ("context_window", "int8"),
    ("messages_count", "int8"),
    ("tools_count", "int8"),
    ("request_bytes", "int8"),
    ("response_bytes", "int8"),
    ("reported_cost_usd", "numeric"),
    ("least_at", "ts"),  # least occurred_at of its events: decides the owner (contract 8)
    ("order_key", "bytea"),
)

TOOL_CALLS: tuple[Column, ...] = (
    ("tool_key", "text"),
    ("turn_key", "text"),
    ("call_id", "text"),  # tool_call_id, under the harness ledger's name
    ("tool_name", "text"),
    ("origin", "text"),
    ("server_name", "text"),
    ("status", "text"),  # requested ok error denied
    ("pairing", "text"),
    ("requested_by", "text"),
    ("consumed_by", "text"),
    ("call_index", "int8"),
    ("denied_by", "text"),
    ("error_message", "text"),
    ("method", "text"),
    ("transport", "text"),
    ("request_id", "text"),
    ("duration_ms", "int8"),
    ("bytes_sent", "int8"),
    ("bytes_received", "int8"),
    ("requested_at", "ts"),
    ("completed_at", "ts"),
    ("trace_id", "text"),
    ("kind", "text"),
    ("inherited_event", "bool"),
    ("order_key", "bytea"),
)

USAGE_PARTS: tuple[Column, ...] = (
    # Contributions of cumulative counters that stand, and what of them no call explains. A call's own part is its row in model_calls.
    ("part_key", "text"),
    ("turn_key", "text"),
    ("provider", "text"),
    ("model", "text"),
    ("hour_at", "ts"),
    ("kind", "text"),
    ("token_convention", "text"),
    ("fidelity", "text"),
    *USAGE_SUM,
    ("inherited_event", "bool"),  # an inherited report: in `inherited_usage`, in no sum
)

FACTS: tuple[Column, ...] = (
    # One row a session: what `sessions` of contract 12 needs and no turn, call or tool row tells. Set from the fold, never incremented.
    ("name", "text"),
    ("agent", "text"),
    ("mode", "text"),
    ("status", "text"),
    ("kind", "text"),
    ("models", "jsonb"),
    ("parent_session_id", "text"),
    ("fork_parent_session_id", "text"),
    ("fork_stream", "text"),
    ("fork_at_seq", "int8"),
    ("created_at", "ts"),
    ("last_activity_at", "ts"),
    ("stopped_at", "ts"),
    ("message_count", "int8"),
    ("total_requests", "int8"),
    ("allowed_requests", "int8"),
    ("denied_requests", "int8"),
    ("error_requests", "int8"),
    ("total_file_events", "int8"),
    ("exec_count", "int8"),
    ("audit_event_count", "int8"),
    ("guard_blocks", "int8"),
    ("guard_coercions", "int8"),
    ("event_count", "int8"),
    ("stream_grade", "text"),  # `unknown` when no stream is dense or sparse, else `complete`
)

# Point events: one row each, written once. (column, payload field, kind); the common columns come before.
POINT_COMMON: tuple[Column, ...] = (
    ("event_id", "text"),
    ("occurred_at", "ts"),
    ("trace_id", "text"),
    ("turn_id", "text"),
    ("turn_index", "int8"),
    ("model_call_id", "text"),
    ("tool_call_id", "text"),
    ("kind", "text"),
    ("process_name", "text"),  # origin.process
    ("pid", "text"),  # origin.pid
)

_RULE: tuple[Column, ...] = (
    ("rule_id", "text"),
    ("rule_action", "text"),
    ("detection_level", "text"),
    ("rule", "jsonb"),
    ("event", "jsonb"),
)
_POLICY: tuple[Column, ...] = (
    ("policy_mode", "text"),
    ("policy_action", "text"),
    ("policy_rule", "text"),
    ("policy_reason", "text"),
)

POINTS: dict[str, tuple[str, tuple[Column, ...]]] = {
    "net_events": (
        "net.requested",
        (
            ("domain", "text"),
            ("port", "int8"),
            ("decision", "text"),
            ("method", "text"),
            ("path", "text"),
            ("query", "text"),
            ("status_code", "int8"),
            ("bytes_sent", "int8"),
            ("bytes_received", "int8"),
            ("duration_ms", "int8"),
            ("matched_rule", "text"),
            ("conn_type", "text"),
            ("request_headers", "jsonb"),
            ("response_headers", "jsonb"),
            *_POLICY,
        ),
    ),
    "dns_events": (
        "dns.queried",
        (
            ("qname", "text"),
            ("qtype", "text"),
            ("qclass", "text"),
            ("rcode", "text"),
            ("answer_ip", "text"),
            ("decision", "text"),
            ("matched_rule", "text"),
            ("source_proto", "text"),
            ("resolver_ms", "int8"),
            *_POLICY,
        ),
    ),
    "fs_events": (
        "fs.changed",
        (("action", "text"), ("path", "text"), ("size", "int8"), ("entry_kind", "text")),
    ),
    "audit_events": (
        "process.audited",
        (
            ("ppid", "int8"),
            ("uid", "int8"),
            ("exe", "text"),
            ("argv", "jsonb"),
            ("comm", "text"),
            ("cwd", "text"),
            ("tty", "text"),
            ("parent_exe", "text"),
        ),
    ),
    "credential_events": (
        "credential.used",
        (
            ("source", "text"),
            ("reference", "text"),
            ("outcome", "text"),
            ("provider", "text"),
            ("material", "text"),
        ),
    ),
    "security_rule_events": (
        "security.rule_matched",
        (
            ("for_event_id", "text"),
            ("rule_id", "text"),
            ("rule_action", "text"),
            ("detection_level", "text"),
            ("rule", "jsonb"),
            ("event", "jsonb"),
        ),
    ),
    "security_decisions": (
        "security.decided",
        (
            ("for_event_id", "text"),
            ("stage", "text"),
            ("previous", "text"),
            ("requested", "text"),
            ("effective", "text"),
            *_RULE,
        ),
    ),
    "security_asks": (
        "security.asked",
        (
            ("ask_id", "text"),
            ("status", "text"),
            ("for_event_id", "text"),
            ("stage", "text"),
            *_RULE,
            ("previous", "text"),
            ("requested", "text"),
            ("effective", "text"),
        ),
    ),
    "event_bodies": (
        # A row is one part as it came; the view and ``fold.bodies`` put the parts of a body together.
        "body.recorded",
        (
            ("for_event_id", "text"),
            ("source", "text"),
            ("direction", "text"),
            ("content_type", "text"),
            ("original_bytes", "int8"),
            ("truncated", "bool"),
            ("sha256", "text"),
            ("part", "int8"),
            ("parts", "int8"),
        ),
    ),
}
"""Tables whose row is one event of one type: (type, payload fields)."""

EXEC_EVENTS: tuple[Column, ...] = (
    # process.started and process.exited merged (contract 11); keyed by the position of the event that opened the row.
    ("exec_id", "text"),
    ("command", "text"),
    ("source", "text"),
    ("exit_code", "int8"),
    ("duration_ms", "int8"),
    ("stdout_preview", "text"),
    ("stderr_preview", "text"),
    ("stdout_bytes", "int8"),
    ("stderr_bytes", "int8"),
    ("started_at", "ts"),
    ("exited_at", "ts"),
)

BODY_PART: tuple[Column, ...] = (
    # What a part's bytes say; the bytes themselves stand in the ledger alone.
    ("stored_bytes", "int8"),
    (
        "verified",
        "bool",
    ),  # of a body in one part: its bytes hash to `sha256`; null where only the whole could tell
)
MODEL_ITEMS: tuple[Column, ...] = (
    # One content of one trace, at the position of the first event that says it. The content itself stands in the ledger alone.
    (
        "item_index",
        "int8",
    ),  # from 1 within one exchange; an item that was there before is counted and has no row
    ("item_type", "text"),  # request reasoning response tool_call tool_response
    ("role", "text"),
    ("tool_name", "text"),
    ("provider", "text"),
    ("model", "text"),
    ("content_sha256", "text"),  # of its UTF-8 bytes, of anything but text of its canonical JSON
    ("content_bytes", "int8"),
    ("content_field", "text"),  # the payload's field that holds it
)
TOOL_RESPONSES: tuple[Column, ...] = (
    ("response_index", "int8"),  # place of the id in its event's list, from 1
    ("context_tokens", "int8"),
)

POINT_TABLES: dict[str, tuple[Column, ...]] = {
    **{table: own for table, (_, own) in POINTS.items()},
    "event_bodies": (*POINTS["event_bodies"][1], *BODY_PART),
    "exec_events": EXEC_EVENTS,
    "model_items": MODEL_ITEMS,
    "tool_responses": TOOL_RESPONSES,
}
"""Every table whose rows stand at positions of events: its own columns, after the position and ``POINT_COMMON``."""

HIDDEN: frozenset[str] = frozenset({"order_key", "hour_at", "least_at", "inherited_event", "content_field"})
"""Columns that only turnledger's own machinery reads: the SQL views and ``--json`` leave them out, everything else is shown (contract 17)."""

# What ownership and prices lay over the projected rows (contract 8 and 9). Written by the rollup worker, laid over by the views and by ``fold``.
CALL_OVERLAY: tuple[Column, ...] = (
    ("call_key", "text"),
    ("inherited", "bool"),
    ("owner_session_id", "text"),  # the session that sums the call
    ("cost_micro_usd", "int8"),
    ("cost_fidelity", "text"),  # exact lower_bound upper_bound
    ("price_id", "text"),
    ("catalog_version", "int4"),
    ("unpriced", "bool"),  # it has figures and the catalogue does not know its model
)
PART_OVERLAY: tuple[Column, ...] = (
    ("part_key", "text"),
    ("cost_micro_usd", "int8"),
    ("cost_fidelity", "text"),
    ("price_id", "text"),
    ("catalog_version", "int4"),
    ("unpriced", "bool"),
)
REPRICED: tuple[Column, ...] = (
    # Every price that a call or a contribution ever had, where a reprice run set one: the first as run 0, the last one counts.
    ("call_key", "text"),  # of one of the two
    ("part_key", "text"),
    ("run_no", "int4"),
    ("cost_micro_usd", "int8"),
    ("cost_fidelity", "text"),
    ("price_id", "text"),
    ("catalog_version", "int4"),
    ("unpriced", "bool"),
)
TURN_OVERLAY: tuple[Column, ...] = (
    # The turn after ownership; `overlay` replaces the record's members of the same names (model_calls, usage, inherited_usage, cost_micro_usd).
    ("turn_key", "text"),
    *USAGE_SUM,
    ("cost_micro_usd", "int8"),
    ("unpriced_calls", "int8"),
    ("grade", "text"),
    ("overlay", "jsonb"),
)

# Rollups (contract 12), without the leading tenant and session_id. Instants as everywhere: µs in Python, timestamptz in Postgres.
SESSIONS: tuple[Column, ...] = (
    ("name", "text"),
    ("agent", "text"),
    ("mode", "text"),
    ("status", "text"),
    ("kind", "text"),
    ("created_at", "ts"),
    ("last_activity_at", "ts"),
    ("stopped_at", "ts"),
    ("models", "jsonb"),
    ("message_count", "int8"),
    ("turn_count", "int8"),
    ("total_requests", "int8"),
    ("allowed_requests", "int8"),
    ("denied_requests", "int8"),
    ("error_requests", "int8"),
    ("model_call_count", "int8"),
    ("failed_model_calls", "int8"),
    *USAGE_SUM,
    ("cost_micro_usd", "int8"),
    ("unpriced_calls", "int8"),
    ("total_tool_calls", "int8"),
    ("tool_errors", "int8"),
    ("total_file_events", "int8"),
    ("exec_count", "int8"),
    ("audit_event_count", "int8"),
    ("guard_blocks", "int8"),
    ("guard_coercions", "int8"),
    ("open_gaps", "int8"),
    ("conflicts", "int8"),
    ("dead_letters", "int8"),
    ("grade", "text"),
    ("detail", "text"),
    ("inherited_usage", "jsonb"),  # a `usage` object, null when nothing is inherited
)
AI_USAGE: tuple[Column, ...] = (
    ("provider", "text"),
    ("model", "text"),
    ("kind", "text"),
    ("call_count", "int8"),
    ("failed_count", "int8"),
    *USAGE_SUM,
    ("cost_micro_usd", "int8"),
    ("unpriced_calls", "int8"),
    ("total_duration_ms", "int8"),
)
_TOOL_FIGURES: tuple[Column, ...] = (
    ("kind", "text"),
    ("call_count", "int8"),
    ("error_count", "int8"),
    ("denied_count", "int8"),
    ("total_bytes", "int8"),
    ("total_duration_ms", "int8"),
)
TOOL_USAGE: tuple[Column, ...] = (("tool_name", "text"), ("origin", "text"), *_TOOL_FIGURES)
MCP_USAGE: tuple[Column, ...] = (("server_name", "text"), ("tool_name", "text"), *_TOOL_FIGURES)
HOUR_PARTS: tuple[Column, ...] = (
    # What one session adds to one row of usage_hourly; live and import only.
    ("hour", "ts"),
    ("provider", "text"),
    ("model", "text"),
    ("calls", "int8"),
    *USAGE_SUM,
    ("cost_micro_usd", "int8"),
    ("unpriced_calls", "int8"),
)
USAGE_HOURLY: tuple[Column, ...] = (
    *HOUR_PARTS,
    ("sessions", "int8"),
)  # its key begins with the tenant, it has no session_id
