"""`fold`: the pure function from a set of events to turns, calls, usage and rollups. Never imports Faust, aiokafka or psycopg."""
