select pg_try_advisory_lock(hashtextextended('turnledger.topic_replay ' || %(replay_no)s::int8, 0))
