-- Events of streams that have no row.
select e.stream_no, min(e.seq) as first_seq, count(*) as events, count(*) over () as faults
from ledger.events e
where e.batch_no >= %(floor)s and e.day >= %(day)s
    and not exists (select from ledger.streams st where st.stream_no = e.stream_no)
group by e.stream_no
order by e.stream_no
limit %(limit)s
