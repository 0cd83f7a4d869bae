-- As write/streams, but that nothing came: when something did last is what retention goes by.
update ledger.streams s
set low = u.low, hi = u.hi, holes = u.holes, receipts = u.receipts, open_gaps = u.open_gaps
from unnest(
    %(streams)s::int8[], %(lows)s::int8[], %(his)s::int8[], %(holes)s::int8[], %(receipts)s::int8[], %(open_gaps)s::int8[]
) as u (stream_no, low, hi, holes, receipts, open_gaps)
where s.stream_no = u.stream_no
