"""Health of the worker, and its own small HTTP server (`/healthz`, `/metrics`), on loopback by default. Never Faust's.

Health watches the offset rows, not the process: after a broker outage a consumer can look alive and fetch nothing (design 3.2).
"""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from turnledger.errors import TurnledgerError
from turnledger.ingest.batch import Partition
from turnledger.ingest.metrics import Metrics

DATABASE_SECONDS = 5.0
"""How long a database may fail before health is red."""


@dataclass(slots=True)
class Watched:
    """One partition as health sees it. Times are ``time.monotonic()``."""

    next_offset: int
    end_offset: int
    progress_at: float
    stopped: str | None = None

    @property
    def lag(self) -> int:
        return max(0, self.end_offset - self.next_offset)


@dataclass
class Health:
    """Red or green, and why in sentences."""

    red_after: float
    clock: Callable[[], float] = time.monotonic
    partitions: dict[Partition, Watched] = field(default_factory=dict)
    waiting: dict[Partition, float] = field(default_factory=dict)
    """Assigned and not claimed yet, since when."""
    refused: dict[Partition, str] = field(default_factory=dict)
    """Assigned and not to be had: why."""
    broker_seen: float | None = None
    """When the broker last answered."""
    database_failing: float | None = None
    database_reason: str = ""
    losses: list[float] = field(default_factory=list)
    """When a partition was lost to another worker."""
    started: float = 0.0
    joined: bool = False

    def __post_init__(self) -> None:
        self.started = self.clock()

    def progress(self, partition: Partition, next_offset: int) -> None:
        """The offset row moved."""
        watched = self.partitions.get(partition)
        now = self.clock()
        if watched is None:
            self.partitions[partition] = Watched(next_offset, next_offset, now)
        else:
            watched.next_offset = next_offset
            watched.progress_at = now

    def end(self, partition: Partition, end_offset: int) -> None:
        """Where the log ends, as the broker says."""
        watched = self.partitions.get(partition)
        if watched is not None:
            if watched.lag == 0:
                # Nothing was owed until now.
                watched.progress_at = self.clock()
            watched.end_offset = end_offset

    def database_failed(self, reason: str) -> None:
        if self.database_failing is None:
            self.database_failing = self.clock()
        self.database_reason = reason

    def database_works(self) -> None:
        self.database_failing = None

    def lost(self) -> int:
        """A partition was lost to another worker. Returns how often in the last minute."""
        now = self.clock()
        self.losses = [at for at in self.losses if now - at < 60] + [now]
        return len(self.losses)

    def reasons(self) -> list[str]:
        """Why health is red; empty when it is green."""
        now = self.clock()
        said = []
        if self.database_failing is not None and now - self.database_failing > DATABASE_SECONDS:
            said.append(f"the database fails for {now - self.database_failing:.0f} s: {self.database_reason}")
        seen = self.started if self.broker_seen is None else self.broker_seen
        if now - seen > self.red_after:
            said.append(f"the broker has not answered for {now - seen:.0f} s")
        if not self.joined and now - self.started > self.red_after:
            said.append(f"the worker has not joined its consumer group for {now - self.started:.0f} s")
        for partition, since in self.waiting.items():
            if partition not in self.refused and now - since > self.red_after:
                said.append(
                    f"partition {partition[1]} of {partition[0]} waits for its claim for {now - since:.0f} s"
                )
        said += self.refused.values()
        for partition, watched in self.partitions.items():
            if watched.stopped is not None:
                said.append(watched.stopped)
            elif watched.lag and now - watched.progress_at > self.red_after:
                said.append(
                    f"partition {partition[1]} of {partition[0]} stands at {watched.next_offset} for "
                    f"{now - watched.progress_at:.0f} s with {watched.lag} records waiting"
                )
        recent = [at for at in self.losses if now - at < 60]
        if len(recent) >= 3:
            said.append(
                f"{len(recent)} partitions were lost to other workers within a minute: look for a second group or a worker that hangs"
            )
        return said


class ProbeServer(ABC):
    """Answers GET /healthz (200 or 503, JSON) and GET /metrics, on an event loop that runs beside the work."""

    def __init__(self, registry: CollectorRegistry, healthy: Gauge, host: str, port: int) -> None:
        self.registry = registry
        self.healthy = healthy
        self.host = host
        self.port = port
        self._server: asyncio.Server | None = None

    @abstractmethod
    def reasons(self) -> list[str]:
        """Why health is red, in sentences; empty when it is green."""

    @abstractmethod
    def details(self) -> dict[str, Any]:
        """What /healthz says beside its status and the reasons."""

    async def look(self) -> None:  # noqa: B027 - nothing is what most servers have to fetch
        """Before each answer: fetch what is known elsewhere."""

    async def start(self) -> None:
        """Raises a :class:`TurnledgerError` when the address is taken."""
        try:
            self._server = await asyncio.start_server(self._serve, self.host, self.port)
        except OSError as error:
            raise TurnledgerError(
                f"the health server cannot listen on {self.host}:{self.port} ({error.strerror or error}): choose another port with "
                "--health-port, 0 for a free one."
            ) from None
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                head = await reader.readuntil(b"\r\n\r\n")
                await self.look()
                status, kind, body = self.answer(head.split(b"\r\n", 1)[0].decode("latin-1"))
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            pass  # whoever asked is gone or speaks no HTTP
        finally:
            writer.close()

    def answer(self, request_line: str) -> tuple[str, str, bytes]:
        """(status, content type, body) of a request."""
        parts = request_line.split(" ")
        if len(parts) != 3 or parts[0] not in ("GET", "HEAD"):
            return "405 Method Not Allowed", "text/plain", b"GET /healthz or /metrics\n"
        path = parts[1].split("?", 1)[0]
        if path == "/healthz":
            reasons = self.reasons()
            body = json.dumps({"status": "red" if reasons else "green", "reasons": reasons, **self.details()})
            return (
                ("503 Service Unavailable" if reasons else "200 OK"),
                "application/json",
                body.encode() + b"\n",
            )
        if path == "/metrics":
            self.healthy.set(0 if self.reasons() else 1)
            return "200 OK", CONTENT_TYPE_LATEST, generate_latest(self.registry)
        return "404 Not Found", "text/plain", b"GET /healthz or /metrics\n"


class HealthServer(ProbeServer):
    """The ingest worker's."""

    def __init__(self, health: Health, metrics: Metrics, host: str, port: int) -> None:
        super().__init__(metrics.registry, metrics.healthy, host, port)
        self.health = health

    def reasons(self) -> list[str]:
        return self.health.reasons()

    def details(self) -> dict[str, Any]:
        return {
            "partitions": {
                f"{topic}/{number}": {"next_offset": watched.next_offset, "lag": watched.lag}
                for (topic, number), watched in sorted(self.health.partitions.items())
            }
        }
