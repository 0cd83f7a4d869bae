-- Open ranges; a fragmented row stands for many (contract 4).
select coalesce(sum(g.ranges), 0)::int8 as ranges
from ledger.streams st
join ledger.gaps g on g.stream_no = st.stream_no
where st.session_no = %(session_no)s and g.state in ('open', 'fragmented')
