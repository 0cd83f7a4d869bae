delete from {slot}.hour_parts p
using (
    select 'epoch'::timestamptz + make_interval(secs => k.hour / 1000000) as hour, k.provider, k.model
    from unnest(%(hours)s::int8[], %(providers)s::text[], %(models)s::text[]) k (hour, provider, model)
) b
where p.session_no = %(session_no)s and p.hour is not distinct from b.hour and p.provider = b.provider and p.model = b.model
