select pg_try_advisory_lock(hashtextextended('turnledger.topic_replays', 0) + %(replay_no)s)
