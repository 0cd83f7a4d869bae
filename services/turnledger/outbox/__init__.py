"""`outbox`: turn records that leave for other systems, after they are committed, at least once, in order within a session."""
