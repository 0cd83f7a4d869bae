drop table {slot}.rollup_shares;
create index call_overlay_session on {slot}.call_overlay (session_no);
create index part_overlay_session on {slot}.part_overlay (session_no);
create index repriced_session on {slot}.repriced (session_no);
create index call_claims_session on {slot}.call_claims (session_no);
alter table {slot}.call_overlay drop column turn_no;
alter table {slot}.part_overlay drop column turn_no;
alter table {slot}.repriced drop column turn_no;
alter table {slot}.call_claims drop column turn_no;
