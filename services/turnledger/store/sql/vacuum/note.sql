insert into ledger.vacuums (
    batch_no, session_no, events, late, event_bytes, days, turns, basis, open_gaps, disputed_turns, run_no, vacuumed_by, why
)
values (
    %(batch_no)s, %(session_no)s, %(events)s, %(late)s, %(event_bytes)s, %(days)s, %(turns)s, %(basis)s, %(open_gaps)s,
    %(disputed_turns)s, %(run_no)s, %(by)s, %(why)s
)
