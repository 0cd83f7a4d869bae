-- What was laid over records that are gone; sums and grades stay.
update {slot}.turn_overlay
set overlay = case when overlay ? 'inherited_usage' then jsonb_build_object('inherited_usage', overlay -> 'inherited_usage') else '{}'::jsonb end
where session_no = %(session_no)s
