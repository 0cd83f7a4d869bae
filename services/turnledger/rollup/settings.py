"""Settings of the rollup worker, beside those that every command has: environment variables ``TURNLEDGER_ROLLUP_…``."""

from __future__ import annotations

from turnledger.settings import Settings


class RollupSettings(Settings):
    """Times in seconds."""

    rollup_interval: float = 0.25
    """How long the worker waits before it looks again, unless more sessions are due than it takes at once."""
    rollup_hours_interval: float = 2.0
    """``usage_hourly`` is set at most this often: the current hour is stale after nearly every session."""
    rollup_health_host: str = "127.0.0.1"
    rollup_health_port: int = 8082
    """0: a free one, named in the log."""
    rollup_red_after: float = 20.0
    """Health turns red when marks wait and nothing was rolled up for so long (under the 30 s of invariant I10)."""
