insert into {slot}.hour_marks (tenant, hour, provider, model)
select %(tenant)s, h.hour, h.provider, h.model
from unnest(%(hours)s::timestamptz[], %(providers)s::text[], %(models)s::text[]) h (hour, provider, model)
