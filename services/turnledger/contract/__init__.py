"""`contract`: what an event is: envelope, payloads, readers, canonical form. Never imports Faust, aiokafka or psycopg."""
