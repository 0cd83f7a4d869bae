"""Health and metrics of the rollup worker. It watches progress with marks waiting, not the process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from turnledger.health.progress import Progress
from turnledger.health.server import BesideServer, ProbeServer


class Metrics:
    """Every metric of the rollup worker, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.sessions = Counter(
            "turnledger_rollup_sessions_total",
            "Sessions taken up, by outcome (set, removed, busy, waits, torn, met, refused).",
            ("outcome",),
            registry=registry,
        )
        self.seconds = Histogram(
            "turnledger_rollup_session_seconds",
            "One session, from its lock to its commit.",
            buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2, 10),
            registry=registry,
        )
        self.hours = Counter(
            "turnledger_rollup_hours_total", "Buckets of usage_hourly that were set.", registry=registry
        )
        self.failures = Counter(
            "turnledger_rollup_database_failures_total", "Times the database was away.", registry=registry
        )
        self.marks = Gauge("turnledger_rollup_marks", "Marks that wait.", registry=registry)
        self.oldest = Gauge(
            "turnledger_rollup_oldest_mark_seconds", "How long the oldest has waited.", registry=registry
        )
        self.audited = Gauge(
            "turnledger_audit_sessions",
            "Sessions that the last `turnledger replay sample` folded anew.",
            registry=registry,
        )
        self.differing = Gauge(
            "turnledger_audit_differing_sessions",
            "Those of them whose projection is not what their events say.",
            registry=registry,
        )
        self.audit_age = Gauge(
            "turnledger_audit_age_seconds", "How long ago that was; -1: never.", registry=registry
        )
        self.healthy = Gauge("turnledger_rollup_healthy", "1 when /healthz is green.", registry=registry)


class Health(Progress):
    """Red or green, and why in sentences. Written by the worker's thread, read by the server's."""

    def __init__(self, red_after: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(red_after, clock)
        self.marks = 0
        self.oldest = 0.0
        self.refused: dict[int, str] = {}
        """session_no: why its rows cannot be set."""

    def fails(self, seconds: float, reason: str) -> str:
        """See :class:`Progress`."""
        return f"the database fails for {seconds:.0f} s: {reason}"

    def stands(self, seconds: float) -> str:
        """See :class:`Progress`."""
        return f"nothing was rolled up for {seconds:.0f} s, and {self.marks} marks wait"

    def reasons(self) -> list[str]:
        """See :class:`Progress`; and sessions that are refused, whatever moves."""
        refused = [f"session_no {number} cannot be rolled up: {why}" for number, why in self.refused.items()]
        return super().reasons() + refused

    def details(self) -> dict[str, Any]:
        """What /healthz says as well."""
        return {"marks": self.marks, "oldest_mark_seconds": round(self.oldest, 3)}


def server(health: Health, metrics: Metrics, host: str, port: int) -> BesideServer:
    """Its server, in a thread of its own: the worker's waits for the database."""
    return BesideServer(ProbeServer(health, metrics.registry, metrics.healthy, host, port))
