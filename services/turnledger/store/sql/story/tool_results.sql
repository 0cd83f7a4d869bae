-- What of a session's own tool calls was answered, how often its model calls were tried again, and how many came to no end, as the roll-up counts them: nothing
-- inherited, evaluations only where the session is one.
select
    (
        select count(*)
        from {slot}.tool_calls c
        where c.session_no = %(session_no)s
          and c.inherited_event is not true
          and (c.kind is distinct from 'eval' or %(eval)s)
          and c.pairing in ('paired', 'late_result', 'orphan_result')
    )::int8 as results,
    (
        select coalesce(sum(c.retries), 0)
        from {slot}.model_calls c
        where c.session_no = %(session_no)s
          and c.inherited_event is not true
          and (c.kind is distinct from 'eval' or %(eval)s)
    )::int8 as retries,
    (
        select count(*)
        from {slot}.model_calls c
        where c.session_no = %(session_no)s
          and c.inherited_event is not true
          and (c.kind is distinct from 'eval' or %(eval)s)
          and c.status = 'started'
    )::int8 as unanswered
