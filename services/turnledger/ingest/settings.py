"""Settings of the ingest worker, beside those that every command has: environment variables ``TURNLEDGER_…``."""

from __future__ import annotations

from dataclasses import dataclass

from turnledger.errors import TurnledgerError
from turnledger.settings import Settings

MOST_PROCESSES = 64


@dataclass(frozen=True)
class Flags:
    """What the operator says once, on the command line."""

    take_over: bool = False
    accept_loss: bool = False
    resume_stopped: bool = False
    standby: bool = False


class WorkerSettings(Settings):
    """Limits of the worker. Sizes in bytes, times as the name says."""

    processes: int = 1
    """Worker processes of one command, each a member of the group with limits of its own (1 to 64)."""
    instance_id: str | None = None
    """Static member id in the consumer group: a worker that restarts under it takes its partitions back without a rebalance. Two
    workers with one id are an error. Absent: a member that leaves the group when it ends. Of several processes each has it with its
    number: ``x-1``, ``x-2``."""
    session_timeout_seconds: float = 8.0
    """After this the group gives a dead worker's partitions away (6 to 10 s, design 3.2)."""
    round_events: int = 5000
    round_bytes: int = 4 * 1024 * 1024
    """A round, one transaction, ends at the first of both (design 3, point 2)."""
    linger_ms: int = 25
    """How long a round that is not full waits for more, once the broker has answered (it gathers for up to 50 ms itself)."""
    buffer_bytes: int = 32 * 1024 * 1024
    """Records fetched and not yet committed."""
    cache_bytes: int = 256 * 1024 * 1024
    """Open turns and streams in memory."""
    open_turn_seconds: float = 1.0
    """An open turn is written at most this often."""
    dead_share: float = 0.5
    dead_window: int = 1000
    """More than this share of dead letters in the last so many records stops a partition (contract 15)."""
    dead_letter_bytes: int = 64 * 1024
    """Raw bytes kept of a dead letter."""
    health_host: str = "127.0.0.1"
    health_port: int = 8081
    """0: a free one, named in the log."""
    red_after_seconds: float = 20.0
    """Without progress while there is lag, health turns red after this (under the 30 s of invariant I10)."""

    def process_count(self) -> int:
        """``processes``. Raises :class:`TurnledgerError` for a number that cannot be meant."""
        if self.processes < 1:
            raise TurnledgerError(
                f"--processes {self.processes} (or TURNLEDGER_PROCESSES) would apply nothing: give a number from 1 to {MOST_PROCESSES}, "
                "at most one a core."
            )
        if self.processes > MOST_PROCESSES:
            raise TurnledgerError(
                f"--processes {self.processes} (or TURNLEDGER_PROCESSES) is above {MOST_PROCESSES}, the most that one command starts: give "
                "one a core, and start another worker in the same group where that is not enough."
            )
        return self.processes
