-- What ingest had to redact (contract 14): one row an accepted event. The event is stored redacted, with the hash of what was received.
create table ledger.redactions (
    session_no   int8  not null,
    stream_no    int8  not null,
    seq          int8  not null,                       -- as in events: below 0 for a receipt
    receipt_key  text,                                 -- of a receipt, redacted itself
    redactions   jsonb not null                        -- [{what, where, count}]; never a value
);
create index redactions_session on ledger.redactions (session_no);

create view turnledger.redactions as
select
    s.tenant,
    s.session_id,
    st.producer,
    st.epoch,
    st.stream,
    case when r.seq >= 0 then r.seq end as seq,
    r.receipt_key,
    r.redactions
from ledger.redactions r
join ledger.streams st on st.stream_no = r.stream_no
join ledger.sessions s on s.session_no = r.session_no;
