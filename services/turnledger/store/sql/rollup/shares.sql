-- Shares of a long session: of one level, and of some blocks of it.
select block, share from {slot}.rollup_shares where session_no = %(session_no)s and level = %(level)s and block = any(%(blocks)s::int4[])
