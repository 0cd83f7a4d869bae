-- view: call_prices
select
    s.tenant,
    s.session_id,
    p.call_key,
    p.part_key,
    p.run_no as run,
    n.name as reprice,
    p.cost_micro_usd,
    p.cost_fidelity,
    p.price_id,
    p.catalog_version,
    p.unpriced,
    p.current
from (
    select
        r.session_no, r.call_key, r.part_key, r.run_no, r.cost_micro_usd, r.cost_fidelity, r.price_id, r.catalog_version, r.unpriced,
        r.run_no = max(r.run_no) over (partition by r.session_no, r.call_key, r.part_key) as current
    from {slot}.repriced r
    union all
    select o.session_no, o.call_key, null, 0, o.cost_micro_usd, o.cost_fidelity, o.price_id, o.catalog_version, o.unpriced, true
    from {slot}.call_overlay o
    where not exists (select from {slot}.repriced r where r.session_no = o.session_no and r.call_key = o.call_key)
    union all
    select o.session_no, null, o.part_key, 0, o.cost_micro_usd, o.cost_fidelity, o.price_id, o.catalog_version, o.unpriced, true
    from {slot}.part_overlay o
    where not exists (select from {slot}.repriced r where r.session_no = o.session_no and r.part_key = o.part_key)
) p
join ledger.sessions s on s.session_no = p.session_no
left join ledger.reprices n on n.run_no = p.run_no
where (select generation from turnledger.active) = '{letter}'
