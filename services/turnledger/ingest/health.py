"""Health of the worker. It watches the offset rows, not the process: after a broker outage a consumer can look alive and fetch nothing (design 3.2)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from turnledger.health.progress import FAILING_SECONDS
from turnledger.ingest.batch import Partition


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
        if self.database_failing is not None and now - self.database_failing > FAILING_SECONDS:
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

    def details(self) -> dict[str, Any]:
        """What /healthz says as well."""
        return {
            "partitions": {
                f"{topic}/{number}": {"next_offset": watched.next_offset, "lag": watched.lag}
                for (topic, number), watched in sorted(self.partitions.items())
            }
        }
