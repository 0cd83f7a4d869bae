-- The bodies of a session, put together; of some events alone where they are named.
select *
from turnledger.event_bodies
where tenant = %(tenant)s and session_id = %(session_id)s
  and (%(for_events)s::text[] is null or for_event_id = any (%(for_events)s::text[]) or event_id = any (%(for_events)s::text[]))
order by for_event_id, direction, source, part
