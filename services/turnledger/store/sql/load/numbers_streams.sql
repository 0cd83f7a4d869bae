select nextval('ledger.streams_stream_no_seq') from generate_series(1, %(count)s)
