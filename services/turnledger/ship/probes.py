"""Health, metrics and standing of ship over HTTP, on loopback unless said: ``/healthz``, ``/metrics``, ``/status``."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from turnledger.health.server import Answer, ProbeServer
from turnledger.ship import standing
from turnledger.ship.follower import Follower

MOST_FILES = 100
"""Files with a series of their own, those that are farthest behind first: a VM may have thousands."""


class Standing(Collector):
    """Every metric of ship, by name; values are those of the moment of asking."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    def collect(self) -> Iterator[Metric]:
        follower = self._follower
        shown = standing.of_follower(follower, "")
        yield CounterMetricFamily(
            "turnledger_ship_events", "Events that arrived since the start.", value=follower.events
        )
        yield CounterMetricFamily(
            "turnledger_ship_readings", "Files read to their end since the start.", value=follower.readings
        )
        yield CounterMetricFamily(
            "turnledger_ship_refused", "Events that the sink will never take.", value=shown["refused"]
        )
        files = GaugeMetricFamily("turnledger_ship_files", "Files by state.", labels=["state"])
        for name, number in shown["files"].items():
            files.add_metric([name], number)
        yield files
        yield GaugeMetricFamily(
            "turnledger_ship_lag_bytes", "Bytes not told yet, of all files.", value=shown["lag"]["bytes"]
        )
        yield GaugeMetricFamily(
            "turnledger_ship_lag_seconds",
            "How long the file waits that waits longest.",
            value=shown["lag"]["seconds"],
        )
        behind = [each for each in shown["list"] if each["lag_bytes"] or each["lag_seconds"]]
        worst = heapq.nlargest(MOST_FILES, behind, key=lambda each: (each["lag_seconds"], each["lag_bytes"]))
        for name, what in (("bytes", "Bytes of a file not told yet"), ("seconds", "How long they wait")):
            family = GaugeMetricFamily(
                f"turnledger_ship_file_lag_{name}",
                f"{what}; the {MOST_FILES} files that wait longest.",
                labels=["file"],
            )
            for each in worst:
                family.add_metric([each["path"]], each[f"lag_{name}"])
            yield family


class Server(ProbeServer):
    """Answers on the loop that ships: whatever takes long happens beside it."""

    def __init__(self, follower: Follower, sink: str, host: str, port: int) -> None:
        registry = CollectorRegistry()
        healthy = Gauge("turnledger_ship_healthy", "1 when /healthz is green.", registry=registry)
        registry.register(Standing(follower))
        super().__init__(self, registry, healthy, host, port)
        self._follower, self._sink = follower, sink

    def reasons(self) -> list[str]:
        """See :class:`turnledger.health.server.Watched`."""
        return self._follower.reasons()

    def details(self) -> dict[str, Any]:
        """The sums; ``/status`` has the files as well."""
        shown = standing.of_follower(self._follower, self._sink)
        return {name: shown[name] for name in ("files", "events", "lag")}

    def page(self, path: str) -> Answer:
        """See :class:`ProbeServer`; and /status."""
        if path == "/status":
            shown = standing.of_follower(self._follower, self._sink)
            return "200 OK", "application/json", json.dumps(shown).encode() + b"\n"
        return super().page(path)
