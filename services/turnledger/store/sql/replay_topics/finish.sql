update ledger.topic_replays set finished_at = now() where replay_no = %(replay_no)s
