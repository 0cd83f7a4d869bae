-- Gaps of streams that have no row.
select g.stream_no, g.from_seq, g.to_seq, g.state, count(*) over () as faults
from ledger.gaps g
where not exists (select from ledger.streams st where st.stream_no = g.stream_no)
order by g.stream_no, g.from_seq
limit %(limit)s
