"""Health and metrics of the rollup worker. It watches progress with marks waiting, not the process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from turnledger.ingest.health import DATABASE_SECONDS, ProbeServer

START_SECONDS = 10.0
"""How long the server may take to listen before that is an error."""


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


class Health:
    """Red or green, and why in sentences. Written by the worker's thread, read by the server's."""

    def __init__(self, red_after: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.red_after = red_after
        self.clock = clock
        self.progress_at = clock()
        """When a session was rolled up, or none was waiting."""
        self.marks = 0
        self.oldest = 0.0
        self.failing: tuple[float, str] | None = None
        """Since when the database fails, and how."""
        self.refused: dict[int, str] = {}
        """session_no: why its rows cannot be set."""

    def progress(self) -> None:
        self.progress_at = self.clock()
        self.failing = None

    def failed(self, reason: str) -> None:
        self.failing = (self.failing[0] if self.failing else self.clock(), reason)

    def reasons(self) -> list[str]:
        """Why health is red; empty when it is green."""
        now, said = self.clock(), []
        if self.failing is not None and now - self.failing[0] > DATABASE_SECONDS:
            said.append(f"the database fails for {now - self.failing[0]:.0f} s: {self.failing[1]}")
        elif now - self.progress_at > self.red_after:
            said.append(
                f"nothing was rolled up for {now - self.progress_at:.0f} s, and {self.marks} marks wait"
            )
        said += [f"session_no {number} cannot be rolled up: {why}" for number, why in self.refused.items()]
        return said


class Server(ProbeServer):
    """/healthz and /metrics in a thread of its own: the worker's own thread waits for the database."""

    def __init__(self, health: Health, metrics: Metrics, host: str, port: int) -> None:
        super().__init__(metrics.registry, metrics.healthy, host, port)
        self.health = health
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="probes", daemon=True)

    def reasons(self) -> list[str]:
        return self.health.reasons()

    def details(self) -> dict[str, Any]:
        return {"marks": self.health.marks, "oldest_mark_seconds": round(self.health.oldest, 3)}

    def run(self) -> None:
        """Listen; ``port`` is the one that was taken. Raises a :class:`TurnledgerError` when the address is taken."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.start(), self._loop).result(START_SECONDS)

    def end(self) -> None:
        asyncio.run_coroutine_threadsafe(self.stop(), self._loop).result(START_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS)
