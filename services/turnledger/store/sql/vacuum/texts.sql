-- Of a tool call nothing stays that an agent or a tool said.
update {slot}.tool_calls set error_message = null where session_no = %(session_no)s and error_message is not null
