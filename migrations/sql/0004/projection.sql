-- What the harness ledger has and revision 0001 had no column for; `{slot}` is projection_a or projection_b. Columns are added at the end only.
-- Written once as text from turnledger.fold.columns and frozen; a test compares the lists with the database.

alter table {slot}.net_events
    add column request_headers jsonb,
    add column response_headers jsonb,
    add column policy_mode text,
    add column policy_action text,
    add column policy_rule text,
    add column policy_reason text;

alter table {slot}.dns_events
    add column policy_mode text,
    add column policy_action text,
    add column policy_rule text,
    add column policy_reason text;

alter table {slot}.security_decisions
    add column rule_id text,
    add column rule_action text,
    add column detection_level text,
    add column rule jsonb,
    add column event jsonb;

alter table {slot}.security_asks
    add column rule_id text,
    add column rule_action text,
    add column detection_level text,
    add column rule jsonb,
    add column event jsonb,
    add column previous text,
    add column requested text,
    add column effective text;

-- One part of a body as it came (body.recorded). Its bytes stand in ledger.events alone: a second copy of what is most of a ledger tells nothing.
create table {slot}.event_bodies (
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
    for_event_id    text,
    source          text,
    direction       text,
    content_type    text,
    original_bytes  int8,
    truncated       bool,
    sha256          text,
    part            int8,
    parts           int8,
    stored_bytes    int8,
    verified        bool
);
create index event_bodies_session on {slot}.event_bodies (session_no);

-- Both were there without rows. Their rows stand at positions of events, like all other point rows, and are written once: a turn that is folded
-- again leaves them alone.
alter table {slot}.model_items
    add column stream_no int8,
    add column seq int8,
    add column event_id text collate "C",
    add column occurred_at timestamptz,
    add column turn_id text collate "C",
    add column turn_index int8,
    add column process_name text,
    add column pid text,
    add column tool_name text,
    add column provider text,
    add column model text,
    add column content_bytes int8,
    add column content_field text;
alter table {slot}.tool_responses
    add column event_id text collate "C",
    add column trace_id text collate "C",
    add column turn_id text collate "C",
    add column turn_index int8,
    add column process_name text,
    add column pid text,
    add column response_index int8;
create index model_items_session on {slot}.model_items (session_no);
create index tool_responses_session on {slot}.tool_responses (session_no);
drop index {slot}.model_items_turn;
drop index {slot}.tool_responses_turn;
