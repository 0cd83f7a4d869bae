"""Health and metrics of the sender. It watches progress with rows waiting, not the process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from turnledger.ingest.health import DATABASE_SECONDS, ProbeServer


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


class Health:
    """Red or green, and why in sentences."""

    def __init__(self, red_after: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.red_after = red_after
        self.clock = clock
        self.progress_at = clock()
        """When something was sent, nothing was waiting, or another sender was at it."""
        self.waiting = 0
        self.failing: tuple[float, str] | None = None
        """Since when the broker or the database fails, and how."""

    def progress(self) -> None:
        self.progress_at = self.clock()
        self.failing = None

    def failed(self, reason: str) -> None:
        self.failing = (self.failing[0] if self.failing else self.clock(), reason)

    def reasons(self) -> list[str]:
        """Why health is red; empty when it is green."""
        now = self.clock()
        if self.failing is not None and now - self.failing[0] > DATABASE_SECONDS:
            return [f"nothing can be sent for {now - self.failing[0]:.0f} s: {self.failing[1]}"]
        if now - self.progress_at > self.red_after:
            return [f"nothing was sent for {now - self.progress_at:.0f} s, and {self.waiting} turns wait"]
        return []


class Server(ProbeServer):
    """/healthz and /metrics."""

    def __init__(self, health: Health, metrics: Metrics, host: str, port: int) -> None:
        super().__init__(metrics.registry, metrics.healthy, host, port)
        self.health = health

    def reasons(self) -> list[str]:
        return self.health.reasons()

    def details(self) -> dict[str, Any]:
        return {"waiting": self.health.waiting}
