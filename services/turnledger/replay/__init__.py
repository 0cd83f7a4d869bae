"""`replay`: history that comes back, through the same handler as live ingest, and projections that are made anew."""
