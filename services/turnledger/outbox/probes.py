"""Health and metrics of the sender. It watches progress with rows waiting, not the process."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from turnledger.health.progress import Progress


class Metrics:
    """Every metric of the sender, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.sent = Counter(
            "turnledger_outbox_sent_total", "Turn records that the broker has.", registry=registry
        )
        self.refused = Counter(
            "turnledger_outbox_refused_total",
            "Turn records that the broker will never take.",
            registry=registry,
        )
        self.failures = Counter(
            "turnledger_outbox_failures_total",
            "Times the broker or the database was away.",
            registry=registry,
        )
        self.waiting = Gauge("turnledger_outbox_waiting", "Rows that wait.", registry=registry)
        self.oldest = Gauge(
            "turnledger_outbox_oldest_seconds", "How long the oldest has waited.", registry=registry
        )
        self.active = Gauge("turnledger_outbox_active", "1 in the one sender that sends.", registry=registry)
        self.healthy = Gauge("turnledger_outbox_healthy", "1 when /healthz is green.", registry=registry)


class Health(Progress):
    """Red or green, and why in sentences. Another sender that is at it is progress."""

    waiting = 0

    def fails(self, seconds: float, reason: str) -> str:
        """See :class:`Progress`."""
        return f"nothing can be sent for {seconds:.0f} s: {reason}"

    def stands(self, seconds: float) -> str:
        """See :class:`Progress`."""
        return f"nothing was sent for {seconds:.0f} s, and {self.waiting} turns wait"

    def details(self) -> dict[str, Any]:
        """What /healthz says as well."""
        return {"waiting": self.waiting}
