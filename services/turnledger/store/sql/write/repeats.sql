-- What is stored at numbers that came again. A stream's last day is open upwards: its seq_to is written late (design 3.2).
select r.i, e.raw, e.received_sha256, e.kafka_offset, e.batch_no
from unnest(%(streams)s::int8[], %(seqs)s::int8[]) with ordinality as r (stream_no, seq, i)
join ledger.stream_days d
    on d.stream_no = r.stream_no
    and d.seq_from <= r.seq
    and (d.seq_to >= r.seq or d.day = (select max(m.day) from ledger.stream_days m where m.stream_no = r.stream_no))
join ledger.events e on e.stream_no = r.stream_no and e.seq = r.seq and e.day = d.day
