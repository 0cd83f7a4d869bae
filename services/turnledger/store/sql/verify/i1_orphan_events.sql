-- Events of streams that have no row.
select e.stream_no, count(*) as events
from ledger.events e
where not exists (select from ledger.streams st where st.stream_no = e.stream_no)
group by e.stream_no
order by e.stream_no
limit %(limit)s
