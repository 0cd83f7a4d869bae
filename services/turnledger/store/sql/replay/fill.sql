-- Whoever follows by batches would not find what happened to these sessions: where a generation is built or kept, it is noted.
insert into ledger.filled (session_no)
select unnest(%(sessions)s::int8[])
where exists (select from ledger.generations where state in ('building', 'kept'))
