drop view turnledger.topic_replays;
drop table ledger.topic_replay_partitions, ledger.topic_replays;
