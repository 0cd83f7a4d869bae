-- Tables of the harness ledger that are called otherwise here. Its `event_type` and `algorithm` are not told apart by us.
create view turnledger.substitution_events as
select
    tenant,
    session_id,
    seq as id,
    event_id,
    occurred_at as "timestamp",
    'credential' as material_class,
    source,
    reference as substitution_ref,
    outcome,
    provider,
    trace_id,
    turn_id
from turnledger.credential_events;

create view turnledger.security_decision_events as
select
    tenant,
    session_id,
    seq as id,
    for_event_id as event_id,
    occurred_at as "timestamp",
    floor(extract(epoch from occurred_at) * 1000)::int8 as timestamp_unix_ms,
    stage,
    rule_id,
    previous as previous_decision,
    requested as requested_decision,
    effective as effective_decision,
    event as event_json,
    trace_id,
    turn_id
from turnledger.security_decisions;

create view turnledger.security_ask_events as
select
    tenant,
    session_id,
    seq as id,
    for_event_id as event_id,
    occurred_at as "timestamp",
    floor(extract(epoch from occurred_at) * 1000)::int8 as timestamp_unix_ms,
    ask_id,
    rule_id,
    status,
    rule as rule_json,
    event as event_json,
    trace_id,
    turn_id
from turnledger.security_asks;

create view turnledger.event_body_blobs as
select
    tenant,
    session_id,
    seq as id,
    for_event_id as event_id,
    source as source_table,
    direction,
    content_type,
    original_bytes,
    stored_bytes,
    truncated,
    sha256 as body_hash,
    data as body,
    trace_id,
    turn_id,
    occurred_at as created_at
from turnledger.event_bodies;
