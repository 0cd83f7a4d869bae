-- Columns that no view shows any more; the tables never had rows.
alter table {slot}.model_items drop column turn_no, drop column order_key, drop column content;
alter table {slot}.tool_responses drop column turn_no, drop column order_key;
alter table {slot}.model_items alter column stream_no set not null, alter column seq set not null;
alter table {slot}.tool_responses alter column stream_no set not null, alter column seq set not null;
