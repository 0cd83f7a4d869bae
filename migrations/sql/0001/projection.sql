-- One generation of projections (design 4, 6): what the fold wrote, to be thrown away and rebuilt at will. `{slot}` is projection_a or projection_b.
-- Written once as text from turnledger.fold.columns and frozen; a test compares the lists with the database.
-- Keys made of payload text (call_key, model …) carry no unique index: such text may be longer than an index entry can be.

create schema {slot};

-- Narrow: the columns people filter by. No index on what changes. `digest` is that of its record, so that an overlay is checked without it.
create table {slot}.turns (
    session_no                int8 not null,
    turn_no                   int4 not null,
    turn_key                  text collate "C",
    turn_id                   text collate "C",
    turn_index                int8,
    kind                      text collate "C",
    run_id                    text collate "C",
    status                    text,
    assigned_by               text,
    started_at                timestamptz,
    completed_at              timestamptz,
    duration_ms               int8,
    stop_why                  text,
    round_trips               int4,
    tool_call_count           int4,
    event_count               int4,
    message_count             int4,
    inherited                 bool,
    gap_count                 int4,
    grade                     text,
    input_uncached_tokens     int8,
    cache_read_tokens         int8,
    cache_write_5m_tokens     int8,
    cache_write_1h_tokens     int8,
    cache_write_other_tokens  int8,
    output_tokens             int8,
    reasoning_tokens          int8,
    total_input_tokens        int8,
    usage_reported            int8,
    usage_total               int8,
    order_key                 bytea,
    revision                  int4 not null default 1,
    digest                    text not null collate "C",
    primary key (session_no, turn_no)
) with (fillfactor = 50);

-- The canonical bytes before ownership and cost, so that the digest is provable on what is stored. Up to 8 KB inline, uncompressed.
create table {slot}.turn_records (
    session_no  int8 not null,
    turn_no     int4 not null,
    revision    int4 not null,
    digest      text not null collate "C",
    record      bytea not null,
    primary key (session_no, turn_no)
) with (toast_tuple_target = 8160);
alter table {slot}.turn_records alter column record set storage external;

-- turn_no is null for session-level work, here and below.
create table {slot}.model_calls (
    session_no                int8 not null,
    turn_no                   int4,
    call_key                  text collate "C",
    turn_key                  text collate "C",
    model_call_id             text collate "C",
    message_id                text collate "C",
    request_id                text collate "C",
    trace_id                  text collate "C",
    provider                  text collate "C",
    protocol                  text,
    model                     text collate "C",
    kind                      text collate "C",
    status                    text,
    error_class               text,
    status_code               int4,
    stop_reason               text,
    method                    text,
    path                      text,
    started_at                timestamptz,
    completed_at              timestamptz,
    hour_at                   timestamptz,
    latency_ms                int8,
    ttft_ms                   int8,
    retries                   int8,
    token_convention          text,
    usage_source              text,
    fidelity                  text,
    input_uncached_tokens     int8,
    cache_read_tokens         int8,
    cache_write_5m_tokens     int8,
    cache_write_1h_tokens     int8,
    cache_write_other_tokens  int8,
    output_tokens             int8,
    reasoning_tokens          int8,
    total_input_tokens        int8,
    counts                    bool,
    inherited_event           bool,
    peak_input_tokens         int8,
    context_tokens            int8,
    context_window            int8,
    messages_count            int8,
    tools_count               int8,
    request_bytes             int8,
    response_bytes            int8,
    reported_cost_usd         numeric,
    least_at                  timestamptz,
    order_key                 bytea
);
create index model_calls_turn on {slot}.model_calls (session_no, turn_no);

create table {slot}.tool_calls (
    session_no       int8 not null,
    turn_no          int4,
    tool_key         text collate "C",
    turn_key         text collate "C",
    call_id          text collate "C",
    tool_name        text collate "C",
    origin           text collate "C",
    server_name      text collate "C",
    status           text,
    pairing          text,
    requested_by     text,
    consumed_by      text,
    call_index       int8,
    denied_by        text,
    error_message    text,
    method           text,
    transport        text,
    request_id       text collate "C",
    duration_ms      int8,
    bytes_sent       int8,
    bytes_received   int8,
    requested_at     timestamptz,
    completed_at     timestamptz,
    trace_id         text collate "C",
    kind             text collate "C",
    inherited_event  bool,
    order_key        bytea
);
create index tool_calls_turn on {slot}.tool_calls (session_no, turn_no);

create table {slot}.usage_parts (
    session_no                int8 not null,
    turn_no                   int4,
    part_key                  text collate "C",
    turn_key                  text collate "C",
    provider                  text collate "C",
    model                     text collate "C",
    hour_at                   timestamptz,
    kind                      text collate "C",
    token_convention          text,
    fidelity                  text,
    input_uncached_tokens     int8,
    cache_read_tokens         int8,
    cache_write_5m_tokens     int8,
    cache_write_1h_tokens     int8,
    cache_write_other_tokens  int8,
    output_tokens             int8,
    reasoning_tokens          int8,
    total_input_tokens        int8,
    usage_reported            int8,
    usage_total               int8,
    inherited_event           bool
);
create index usage_parts_turn on {slot}.usage_parts (session_no, turn_no);

create table {slot}.session_facts (
    session_no              int8 not null primary key,
    name                    text,
    agent                   text,
    mode                    text,
    status                  text,
    kind                    text collate "C",
    models                  jsonb,
    parent_session_id       text,
    fork_parent_session_id  text,
    fork_stream             text,
    fork_at_seq             int8,
    created_at              timestamptz,
    last_activity_at        timestamptz,
    stopped_at              timestamptz,
    message_count           int8,
    total_requests          int8,
    allowed_requests        int8,
    denied_requests         int8,
    error_requests          int8,
    total_file_events       int8,
    exec_count              int8,
    audit_event_count       int8,
    guard_blocks            int8,
    guard_coercions         int8,
    event_count             int8,
    stream_grade            text
) with (fillfactor = 50);

-- net.requested: seq as in ledger.events (below 0 for a receipt), here and below.
create table {slot}.net_events (
    session_no      int8 not null,
    stream_no       int8 not null,
    seq             int8 not null,
    event_id        text collate "C",
    occurred_at     timestamptz,
    trace_id        text collate "C",
    turn_id         text collate "C",
    turn_index      int8,
    model_call_id   text collate "C",
    tool_call_id    text collate "C",
    kind            text collate "C",
    process_name    text,
    pid             text,
    domain          text collate "C",
    port            int8,
    decision        text collate "C",
    method          text,
    path            text,
    query           text,
    status_code     int8,
    bytes_sent      int8,
    bytes_received  int8,
    duration_ms     int8,
    matched_rule    text,
    conn_type       text
);
create index net_events_session on {slot}.net_events (session_no);

-- dns.queried
create table {slot}.dns_events (
    session_no     int8 not null,
    stream_no      int8 not null,
    seq            int8 not null,
    event_id       text collate "C",
    occurred_at    timestamptz,
    trace_id       text collate "C",
    turn_id        text collate "C",
    turn_index     int8,
    model_call_id  text collate "C",
    tool_call_id   text collate "C",
    kind           text collate "C",
    process_name   text,
    pid            text,
    qname          text,
    qtype          text,
    qclass         text,
    rcode          text,
    answer_ip      text,
    decision       text collate "C",
    matched_rule   text,
    source_proto   text,
    resolver_ms    int8
);
create index dns_events_session on {slot}.dns_events (session_no);

-- fs.changed
create table {slot}.fs_events (
    session_no     int8 not null,
    stream_no      int8 not null,
    seq            int8 not null,
    event_id       text collate "C",
    occurred_at    timestamptz,
    trace_id       text collate "C",
    turn_id        text collate "C",
    turn_index     int8,
    model_call_id  text collate "C",
    tool_call_id   text collate "C",
    kind           text collate "C",
    process_name   text,
    pid            text,
    action         text,
    path           text,
    size           int8,
    entry_kind     text
);
create index fs_events_session on {slot}.fs_events (session_no);

-- process.audited
create table {slot}.audit_events (
    session_no     int8 not null,
    stream_no      int8 not null,
    seq            int8 not null,
    event_id       text collate "C",
    occurred_at    timestamptz,
    trace_id       text collate "C",
    turn_id        text collate "C",
    turn_index     int8,
    model_call_id  text collate "C",
    tool_call_id   text collate "C",
    kind           text collate "C",
    process_name   text,
    pid            text,
    ppid           int8,
    uid            int8,
    exe            text,
    argv           jsonb,
    comm           text,
    cwd            text,
    tty            text,
    parent_exe     text
);
create index audit_events_session on {slot}.audit_events (session_no);

-- credential.used
create table {slot}.credential_events (
    session_no     int8 not null,
    stream_no      int8 not null,
    seq            int8 not null,
    event_id       text collate "C",
    occurred_at    timestamptz,
    trace_id       text collate "C",
    turn_id        text collate "C",
    turn_index     int8,
    model_call_id  text collate "C",
    tool_call_id   text collate "C",
    kind           text collate "C",
    process_name   text,
    pid            text,
    source         text,
    reference      text,
    outcome        text,
    provider       text collate "C",
    material       text
);
create index credential_events_session on {slot}.credential_events (session_no);

-- security.rule_matched
create table {slot}.security_rule_events (
    session_no       int8 not null,
    stream_no        int8 not null,
    seq              int8 not null,
    event_id         text collate "C",
    occurred_at      timestamptz,
    trace_id         text collate "C",
    turn_id          text collate "C",
    turn_index       int8,
    model_call_id    text collate "C",
    tool_call_id     text collate "C",
    kind             text collate "C",
    process_name     text,
    pid              text,
    for_event_id     text collate "C",
    rule_id          text,
    rule_action      text,
    detection_level  text,
    rule             jsonb,
    event            jsonb
);
create index security_rule_events_session on {slot}.security_rule_events (session_no);

-- security.decided
create table {slot}.security_decisions (
    session_no     int8 not null,
    stream_no      int8 not null,
    seq            int8 not null,
    event_id       text collate "C",
    occurred_at    timestamptz,
    trace_id       text collate "C",
    turn_id        text collate "C",
    turn_index     int8,
    model_call_id  text collate "C",
    tool_call_id   text collate "C",
    kind           text collate "C",
    process_name   text,
    pid            text,
    for_event_id   text collate "C",
    stage          text,
    previous       text,
    requested      text,
    effective      text
);
create index security_decisions_session on {slot}.security_decisions (session_no);

-- security.asked
create table {slot}.security_asks (
    session_no     int8 not null,
    stream_no      int8 not null,
    seq            int8 not null,
    event_id       text collate "C",
    occurred_at    timestamptz,
    trace_id       text collate "C",
    turn_id        text collate "C",
    turn_index     int8,
    model_call_id  text collate "C",
    tool_call_id   text collate "C",
    kind           text collate "C",
    process_name   text,
    pid            text,
    ask_id         text,
    status         text,
    for_event_id   text collate "C",
    stage          text
);
create index security_asks_session on {slot}.security_asks (session_no);

-- process.started and process.exited merged; the position is that of the event that opened the row.
create table {slot}.exec_events (
    session_no      int8 not null,
    stream_no       int8 not null,
    seq             int8 not null,
    event_id        text collate "C",
    occurred_at     timestamptz,
    trace_id        text collate "C",
    turn_id         text collate "C",
    turn_index      int8,
    model_call_id   text collate "C",
    tool_call_id    text collate "C",
    kind            text collate "C",
    process_name    text,
    pid             text,
    exec_id         text collate "C",
    command         text,
    source          text,
    exit_code       int8,
    duration_ms     int8,
    stdout_preview  text,
    stderr_preview  text,
    stdout_bytes    int8,
    stderr_bytes    int8,
    started_at      timestamptz,
    exited_at       timestamptz
);
create index exec_events_position on {slot}.exec_events (session_no, stream_no, seq);

create table {slot}.model_items (
    session_no      int8 not null,
    turn_no         int4,
    item_index      int8,
    item_type       text,
    model_call_id   text collate "C",
    tool_call_id    text collate "C",
    trace_id        text collate "C",
    role            text,
    content_sha256  text,
    content         jsonb,
    kind            text collate "C",
    order_key       bytea
);
create index model_items_turn on {slot}.model_items (session_no, turn_no);

create table {slot}.tool_responses (
    session_no      int8 not null,
    turn_no         int4,
    stream_no       int8,
    seq             int8,
    tool_call_id    text collate "C",
    model_call_id   text collate "C",
    context_tokens  int8,
    occurred_at     timestamptz,
    kind            text collate "C",
    order_key       bytea
);
create index tool_responses_turn on {slot}.tool_responses (session_no, turn_no);

-- What depends on other sessions and on prices, laid over the rows above where they are shown (contract 8, 9; design 5).
create table {slot}.call_overlay (
    session_no        int8 not null,
    call_key          text collate "C",
    inherited         bool,
    owner_session_id  text,
    cost_micro_usd    int8,
    cost_fidelity     text,
    price_id          text,
    catalog_version   int4,
    unpriced          bool
);
create index call_overlay_session on {slot}.call_overlay (session_no);

create table {slot}.part_overlay (
    session_no       int8 not null,
    part_key         text collate "C",
    cost_micro_usd   int8,
    cost_fidelity    text,
    price_id         text,
    catalog_version  int4,
    unpriced         bool
);
create index part_overlay_session on {slot}.part_overlay (session_no);

-- Valid only where `digest` is that of the turn's record; `overlay` replaces the record's members of the same names.
create table {slot}.turn_overlay (
    session_no                int8 not null,
    turn_no                   int4 not null,
    digest                    text not null collate "C",
    turn_key                  text collate "C",
    input_uncached_tokens     int8,
    cache_read_tokens         int8,
    cache_write_5m_tokens     int8,
    cache_write_1h_tokens     int8,
    cache_write_other_tokens  int8,
    output_tokens             int8,
    reasoning_tokens          int8,
    total_input_tokens        int8,
    usage_reported            int8,
    usage_total               int8,
    cost_micro_usd            int8,
    unpriced_calls            int8,
    grade                     text,
    overlay                   jsonb,
    primary key (session_no, turn_no)
);

-- Calls that several sessions may hold (design 5, steps 3 and 4). `identity` is a SHA-256 of what two sessions' calls have in common if they are
-- the same call; a row of call_groups is the lock of all who decide about one.
create table {slot}.call_groups (
    identity  bytea not null primary key,
    version   int8 not null default 1                  -- how often it was decided about
) with (fillfactor = 50);
-- Who may hold it. `content` is a hash of what the decision looks at, so that an unchanged call is not decided again; an empty call_key claims a
-- place in a family of sessions.
create table {slot}.call_claims (
    identity    bytea not null,
    session_no  int8  not null,
    call_key    text  not null collate "C",
    content     bytea not null
);
create index call_claims_identity on {slot}.call_claims (identity);
create index call_claims_session on {slot}.call_claims (session_no);

-- `source` is who sets the rows: `fold` (ingest) or `rollup`. `rows` is an array.
create table {slot}.findings (
    session_no  int8 not null,
    turn_no     int4,
    source      text not null,
    "check"     text not null collate "C",
    severity    text not null check (severity in ('error', 'warning', 'info')),
    count       int8 not null,
    rows        jsonb not null
);
create index findings_turn on {slot}.findings (session_no, turn_no);

-- Rollups: recomputed and set, never incremented (contract 12). A sum that eight bytes cannot hold is unknown.
create function {slot}.fitting(total numeric) returns int8
    language sql immutable strict parallel safe
    return case when total <= 9223372036854775807 then total::int8 end;

create table {slot}.sessions (
    session_no                int8 not null primary key,
    name                      text,
    agent                     text,
    mode                      text,
    status                    text,
    kind                      text collate "C",
    created_at                timestamptz,
    last_activity_at          timestamptz,
    stopped_at                timestamptz,
    models                    jsonb,
    message_count             int8,
    turn_count                int8,
    total_requests            int8,
    allowed_requests          int8,
    denied_requests           int8,
    error_requests            int8,
    model_call_count          int8,
    failed_model_calls        int8,
    input_uncached_tokens     int8,
    cache_read_tokens         int8,
    cache_write_5m_tokens     int8,
    cache_write_1h_tokens     int8,
    cache_write_other_tokens  int8,
    output_tokens             int8,
    reasoning_tokens          int8,
    total_input_tokens        int8,
    usage_reported            int8,
    usage_total               int8,
    cost_micro_usd            int8,
    unpriced_calls            int8,
    total_tool_calls          int8,
    tool_errors               int8,
    total_file_events         int8,
    exec_count                int8,
    audit_event_count         int8,
    guard_blocks              int8,
    guard_coercions           int8,
    open_gaps                 int8,
    conflicts                 int8,
    dead_letters              int8,
    grade                     text,
    detail                    text,
    inherited_usage           jsonb
) with (fillfactor = 50);

create table {slot}.ai_usage (
    session_no                int8 not null,
    provider                  text collate "C",
    model                     text collate "C",
    kind                      text collate "C",
    call_count                int8,
    failed_count              int8,
    input_uncached_tokens     int8,
    cache_read_tokens         int8,
    cache_write_5m_tokens     int8,
    cache_write_1h_tokens     int8,
    cache_write_other_tokens  int8,
    output_tokens             int8,
    reasoning_tokens          int8,
    total_input_tokens        int8,
    usage_reported            int8,
    usage_total               int8,
    cost_micro_usd            int8,
    unpriced_calls            int8,
    total_duration_ms         int8
);
create index ai_usage_session on {slot}.ai_usage (session_no);

create table {slot}.tool_usage (
    session_no         int8 not null,
    tool_name          text collate "C",
    origin             text collate "C",
    kind               text collate "C",
    call_count         int8,
    error_count        int8,
    denied_count       int8,
    total_bytes        int8,
    total_duration_ms  int8
);
create index tool_usage_session on {slot}.tool_usage (session_no);

create table {slot}.mcp_usage (
    session_no         int8 not null,
    server_name        text collate "C",
    tool_name          text collate "C",
    kind               text collate "C",
    call_count         int8,
    error_count        int8,
    denied_count       int8,
    total_bytes        int8,
    total_duration_ms  int8
);
create index mcp_usage_session on {slot}.mcp_usage (session_no);

-- A session's share of usage_hourly; `hour` is null where no instant is known.
create table {slot}.hour_parts (
    session_no                int8 not null,
    tenant                    text not null collate "C",
    hour                      timestamptz,
    provider                  text collate "C",
    model                     text collate "C",
    calls                     int8,
    input_uncached_tokens     int8,
    cache_read_tokens         int8,
    cache_write_5m_tokens     int8,
    cache_write_1h_tokens     int8,
    cache_write_other_tokens  int8,
    output_tokens             int8,
    reasoning_tokens          int8,
    total_input_tokens        int8,
    usage_reported            int8,
    usage_total               int8,
    cost_micro_usd            int8,
    unpriced_calls            int8
);
create index hour_parts_session on {slot}.hour_parts (session_no);
create index hour_parts_hour on {slot}.hour_parts (tenant, hour);

create table {slot}.usage_hourly (
    tenant                    text not null collate "C",
    hour                      timestamptz,
    provider                  text collate "C",
    model                     text collate "C",
    calls                     int8,
    input_uncached_tokens     int8,
    cache_read_tokens         int8,
    cache_write_5m_tokens     int8,
    cache_write_1h_tokens     int8,
    cache_write_other_tokens  int8,
    output_tokens             int8,
    reasoning_tokens          int8,
    total_input_tokens        int8,
    usage_reported            int8,
    usage_total               int8,
    cost_micro_usd            int8,
    unpriced_calls            int8,
    sessions                  int8
) with (fillfactor = 50);
create unique index usage_hourly_key on {slot}.usage_hourly
    (tenant, hour, ledger.text_hash(provider), ledger.text_hash(model)) nulls not distinct;

-- Buckets of usage_hourly whose sum is stale (design 5, steps 5 and 6).
create table {slot}.hour_marks (
    id        int8 not null generated by default as identity primary key,
    tenant    text not null collate "C",
    hour      timestamptz,
    provider  text collate "C",
    model     text collate "C"
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
-- When a session may be rolled up again, so that a busy one cannot starve the others (design 5, step 1).
create table {slot}.rollup_due (
    session_no  int8 not null primary key,
    due_at      timestamptz not null,
    took_ms     int4 not null
) with (fillfactor = 50);
