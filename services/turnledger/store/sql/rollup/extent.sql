-- The highest number of a turn that a session has rows of, projected or set by the last roll-up, and what its shares depend on. None where it is to
-- be read at once whatever it has: its events are gone or contradict each other.
select
    coalesce(
        greatest(
            (select max(t.turn_no) from {slot}.turns t where t.session_no = f.session_no),
            (select max(t.turn_no) from {slot}.model_calls t where t.session_no = f.session_no),
            (select max(t.turn_no) from {slot}.tool_calls t where t.session_no = f.session_no),
            (select max(t.turn_no) from {slot}.usage_parts t where t.session_no = f.session_no),
            (select max(t.turn_no) from {slot}.turn_overlay t where t.session_no = f.session_no),
            (select max(t.turn_no) from {slot}.call_overlay t where t.session_no = f.session_no),
            (select max(t.turn_no) from {slot}.part_overlay t where t.session_no = f.session_no),
            (select max(t.turn_no) from {slot}.repriced t where t.session_no = f.session_no),
            (select max(t.turn_no) from {slot}.call_claims t where t.session_no = f.session_no)
        ),
        -1
    ) as highest,
    f.kind, f.parent_session_id, f.fork_parent_session_id, f.fork_stream, f.fork_at_seq
from {slot}.session_facts f
where f.session_no = %(session_no)s
    and not exists (select from ledger.conflicts c where c.session_no = f.session_no)
    and not exists (select from ledger.vacuums v where v.session_no = f.session_no)
