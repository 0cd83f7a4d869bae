-- What was found of a session, with the first rows of each: a long session may have one in every turn.
select "check", severity, count, jsonb_path_query_array(rows, '$[0 to $last]', jsonb_build_object('last', %(rows)s::int4 - 1)) as rows
from turnledger.findings
where tenant = %(tenant)s and session_id = %(session_id)s
order by "check"
