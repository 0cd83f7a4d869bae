"""Every metric of the ingest worker, by name, in one place. Values come a round at a time, never an event."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    """The metrics of one worker, in a registry of its own. Labels hold partitions, reasons and verdicts: never a session or a secret."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.records = Counter(
            "turnledger_ingest_records_total",
            "Records applied, by partition and outcome (accepted, duplicate, conflict, dead).",
            ("partition", "outcome"),
            registry=registry,
        )
        self.holes = Counter(
            "turnledger_ingest_holes_total",
            "Offsets that held no record, by partition.",
            ("partition",),
            registry=registry,
        )
        self.bytes = Counter(
            "turnledger_ingest_bytes_total",
            "Bytes of keys and values applied.",
            registry=registry,
        )
        self.rounds = Counter(
            "turnledger_ingest_rounds_total",
            "Transactions committed.",
            registry=registry,
        )
        self.round_records = Histogram(
            "turnledger_ingest_round_records",
            "Records a transaction.",
            buckets=(0, 1, 10, 100, 500, 1000, 2500, 5000, 10000),
            registry=registry,
        )
        self.prepare_seconds = Histogram(
            "turnledger_ingest_prepare_seconds",
            "Decoding, deciding and folding one round.",
            buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5),
            registry=registry,
        )
        self.write_seconds = Histogram(
            "turnledger_ingest_write_seconds",
            "Writing one round, from fence to commit.",
            buckets=(0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5),
            registry=registry,
        )
        self.units = Counter(
            "turnledger_ingest_projected_total",
            "Turns and session-level parts written.",
            registry=registry,
        )
        self.refused = Counter(
            "turnledger_ingest_refused_total",
            "Projection rows that Postgres would not take (contract 15).",
            registry=registry,
        )
        self.retries = Counter(
            "turnledger_ingest_retries_total",
            "Writes tried again, by what went wrong.",
            ("reason",),
            registry=registry,
        )
        self.claims = Counter(
            "turnledger_ingest_claims_total",
            "Partitions claimed.",
            registry=registry,
        )
        self.verdicts = Counter(
            "turnledger_ingest_fence_lost_total",
            "Partitions that did not come through the fence, by verdict.",
            ("verdict",),
            registry=registry,
        )
        self.next_offset = Gauge(
            "turnledger_ingest_next_offset",
            "The first offset not yet applied.",
            ("partition",),
            registry=registry,
        )
        self.lag = Gauge(
            "turnledger_ingest_lag_records",
            "Records in Kafka that are not applied.",
            ("partition",),
            registry=registry,
        )
        self.owned = Gauge(
            "turnledger_ingest_partitions",
            "Partitions that this worker applies.",
            registry=registry,
        )
        self.stopped = Gauge(
            "turnledger_ingest_partitions_stopped",
            "Partitions that stand still and need a person.",
            registry=registry,
        )
        self.sessions = Gauge(
            "turnledger_ingest_cached_sessions",
            "Sessions in memory.",
            registry=registry,
        )
        self.cache_bytes = Gauge(
            "turnledger_ingest_cache_bytes",
            "Estimate of what they hold.",
            registry=registry,
        )
        self.evicted = Gauge(
            "turnledger_ingest_evicted_sessions",
            "Sessions dropped from memory for room.",
            registry=registry,
        )
        self.loads = Counter(
            "turnledger_ingest_cold_loads_total",
            "Sessions read back from the ledger.",
            registry=registry,
        )
        self.ahead = Gauge(
            "turnledger_ingest_ahead_sessions",
            "Sessions that were read while standing by and that no round has needed yet.",
            registry=registry,
        )
        self.foreign = Counter(
            "turnledger_ingest_foreign_sessions_total",
            "Sessions written here that live on another worker's partition.",
            registry=registry,
        )
        self.buffered_bytes = Gauge(
            "turnledger_ingest_buffered_bytes",
            "Fetched and not yet committed.",
            registry=registry,
        )
        self.healthy = Gauge(
            "turnledger_ingest_healthy",
            "1 when /healthz is green.",
            registry=registry,
        )


class ProcessMetrics:
    """What the parent of several worker processes adds to their pages, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry(auto_describe=False)
        self.up = Gauge(
            "turnledger_ingest_process_up",
            "1 when the worker process runs and serves its health.",
            ("process",),
            registry=registry,
        )
        self.restarts = Counter(
            "turnledger_ingest_process_restarts_total",
            "Times that a worker process died and was to be started again.",
            ("process",),
            registry=registry,
        )
        self.healthy = Gauge(
            "turnledger_ingest_processes_healthy",
            "1 when /healthz of all worker processes is green.",
            registry=registry,
        )
