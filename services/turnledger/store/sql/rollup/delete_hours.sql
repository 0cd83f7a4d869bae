delete from {slot}.hour_parts p
using (
    select k.session_no, 'epoch'::timestamptz + make_interval(secs => k.hour / 1000000) as hour, k.provider, k.model
    from unnest(%(sessions)s::int8[], %(hours)s::int8[], %(providers)s::text[], %(models)s::text[]) k (session_no, hour, provider, model)
) b
where p.session_no = b.session_no and p.hour is not distinct from b.hour and p.provider = b.provider and p.model = b.model
