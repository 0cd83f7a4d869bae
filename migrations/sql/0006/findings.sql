select
    s.tenant,
    s.session_id,
    p."check",
    -- One check has one severity; were it not so, the gravest is shown.
    (array['error', 'warning', 'info'])[min(array_position(array['error', 'warning', 'info'], p.severity))] as severity,
    sum(p.count)::int8 as count,
    jsonb_path_query_array(jsonb_agg(p.rows order by p.source, t.order_key, p.turn_no), '$[*][*]') as rows
from (
    select session_no, turn_no, source, "check", severity, count, rows
    from {slot}.findings
    union all
    select
        session_no, null, 'ingest', 'key_mismatch', 'warning', count,
        jsonb_build_array(jsonb_build_object('topic', topic, 'partition', partition, 'first', first_offset, 'last', last_offset))
    from ledger.key_mismatches
) p
-- The numbers of turns are given as they are written; the order of contract 5 is that of their keys.
left join {slot}.turns t on t.session_no = p.session_no and t.turn_no = p.turn_no
join ledger.sessions s on s.session_no = p.session_no
where (select generation from turnledger.active) = '{letter}'
group by s.tenant, s.session_id, p."check"
