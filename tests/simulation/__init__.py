"""The seeded simulator: the real ingest handler over a log and a database in memory, with faults on a schedule (tests/README.md)."""
