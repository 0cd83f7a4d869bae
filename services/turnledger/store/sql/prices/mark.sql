-- Sessions with calls or contributions of the given hours, in either generation, are to be rolled up again: how many. `timeless`: those without an
-- hour too. A null bound is none.
with priced as (
    select session_no, hour_at from projection_a.model_calls
    union all
    select session_no, hour_at from projection_a.usage_parts
    union all
    select session_no, hour_at from projection_b.model_calls
    union all
    select session_no, hour_at from projection_b.usage_parts
),
touched as (
    select distinct session_no
    from priced
    where case
        when hour_at is null then %(timeless)s
        else (%(since)s::int8 is null or hour_at >= 'epoch'::timestamptz + make_interval(secs => %(since)s::int8 / 1000000))
            and (%(until)s::int8 is null or hour_at < 'epoch'::timestamptz + make_interval(secs => %(until)s::int8 / 1000000) + interval '1 hour')
    end
),
marked as (
    insert into ledger.marks (session_no) select session_no from touched order by session_no returning 1
)
select count(*)::int8 from marked
