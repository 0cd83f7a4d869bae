"""The small HTTP server of every long-running command: `/healthz` and `/metrics`, on loopback unless said."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from turnledger.errors import TurnledgerError

START_SECONDS = 10.0
"""How long a server in a thread of its own may take to listen before that is an error."""
Answer = tuple[str, str, bytes]
"""Status, content type, body."""


class Watched(Protocol):
    """What is red or green."""

    def reasons(self) -> list[str]:
        """Why health is red, in sentences; empty when it is green."""

    def details(self) -> Mapping[str, Any]:
        """What /healthz says beside its status and the reasons."""


class ProbeServer:
    """Answers GET /healthz (200 or 503, JSON) and GET /metrics, on an event loop that runs beside the work. ``healthy``: the gauge of ``registry`` that is
    1 when health is green."""

    def __init__(
        self, watched: Watched, registry: CollectorRegistry, healthy: Gauge, host: str, port: int
    ) -> None:
        self.watched, self.registry, self.healthy = watched, registry, healthy
        self.host = host
        self.port = port
        self._server: asyncio.Server | None = None

    async def look(self) -> None:
        """Before each answer: fetch what is known elsewhere. Most servers have nothing to fetch."""

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
        """Listen no more."""
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

    def answer(self, request_line: str) -> Answer:
        """What is answered to a request."""
        parts = request_line.split(" ")
        if len(parts) != 3 or parts[0] not in ("GET", "HEAD"):
            return "405 Method Not Allowed", "text/plain", b"GET /healthz or /metrics\n"
        return self.page(parts[1].split("?", 1)[0])

    def page(self, path: str) -> Answer:
        """What stands at a path."""
        if path == "/healthz":
            reasons = self.watched.reasons()
            told = {"status": "red" if reasons else "green", "reasons": reasons, **self.watched.details()}
            status = "503 Service Unavailable" if reasons else "200 OK"
            return status, "application/json", json.dumps(told).encode() + b"\n"
        if path == "/metrics":
            self.healthy.set(0 if self.watched.reasons() else 1)
            return "200 OK", CONTENT_TYPE_LATEST, generate_latest(self.registry)
        return "404 Not Found", "text/plain", b"GET /healthz or /metrics\n"


class BesideServer:
    """A server in a thread of its own, for work that keeps its own thread waiting."""

    def __init__(self, server: ProbeServer) -> None:
        self.server = server
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="probes", daemon=True)

    def run(self) -> None:
        """Listen; the server's ``port`` is the one that was taken. Raises a :class:`TurnledgerError` when the address is taken."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.server.start(), self._loop).result(START_SECONDS)

    def end(self) -> None:
        """Listen no more, and end the thread."""
        asyncio.run_coroutine_threadsafe(self.server.stop(), self._loop).result(START_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS)
