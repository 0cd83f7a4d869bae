drop table ledger.partition_stops, ledger.requeue_batches;
drop index ledger.dead_letters_requeued, ledger.dead_letters_refused, ledger.dead_letters_record;
alter table ledger.dead_letters
    drop constraint dead_letters_outcome,
    drop constraint dead_letters_settled,
    drop column outcome,
    drop column requeue_batch,
    drop column fixed,
    drop column requeued_by,
    drop column tried_at,
    add unique (topic, partition, kafka_offset);
