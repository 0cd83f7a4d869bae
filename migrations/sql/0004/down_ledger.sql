-- As in 0001: a table without rows, and a view over it.
create table ledger.event_bodies (
    session_no      int8 not null,
    stream_no       int8 not null,
    seq             int8 not null,
    for_event_id    text,
    source          text,
    direction       text,
    content_type    text,
    original_bytes  int8,
    truncated       bool,
    sha256          text,
    part            int8,
    parts           int8,
    data            bytea
);
alter table ledger.event_bodies alter column data set storage external;
create index event_bodies_session on ledger.event_bodies (session_no);

create view turnledger.event_bodies as
select
    s.tenant,
    s.session_id,
    st.producer,
    st.epoch,
    st.stream,
    case when b.seq >= 0 then b.seq end as seq,
    b.for_event_id,
    b.source,
    b.direction,
    b.content_type,
    b.original_bytes,
    b.truncated,
    b.sha256,
    b.part,
    b.parts,
    b.data
from ledger.event_bodies b
join ledger.streams st on st.stream_no = b.stream_no
join ledger.sessions s on s.session_no = b.session_no;
