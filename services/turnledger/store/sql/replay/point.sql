update turnledger.active set generation = %(generation)s, switched_at = clock_timestamp()
