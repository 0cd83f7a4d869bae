-- Back to 0001: only where the ledger holds no events, so no row is lost.
alter table {slot}.net_events
    drop column request_headers,
    drop column response_headers,
    drop column policy_mode,
    drop column policy_action,
    drop column policy_rule,
    drop column policy_reason;
alter table {slot}.dns_events
    drop column policy_mode,
    drop column policy_action,
    drop column policy_rule,
    drop column policy_reason;
alter table {slot}.security_decisions
    drop column rule_id,
    drop column rule_action,
    drop column detection_level,
    drop column rule,
    drop column event;
alter table {slot}.security_asks
    drop column rule_id,
    drop column rule_action,
    drop column detection_level,
    drop column rule,
    drop column event,
    drop column previous,
    drop column requested,
    drop column effective;
drop table {slot}.event_bodies, {slot}.model_items, {slot}.tool_responses;

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
