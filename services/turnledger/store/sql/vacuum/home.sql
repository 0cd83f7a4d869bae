select home_topic, home_partition from ledger.sessions where session_no = %(session_no)s
