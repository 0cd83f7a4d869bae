"""Settings of the outbox's sender, beside those that every command has: environment variables ``TURNLEDGER_OUTBOX_…``."""

from __future__ import annotations

from turnledger.settings import Settings


class OutboxSettings(Settings):
    """Times in seconds."""

    outbox_topic: str = "turnledger.turns"
    outbox_batch: int = 200
    """Turns that are read, sent and let go of together: what is held in memory."""
    outbox_interval: float = 0.25
    """How long the sender waits when nothing waits for it."""
    outbox_health_host: str = "127.0.0.1"
    outbox_health_port: int = 8083
    """0: a free one, named in the log."""
    outbox_red_after: float = 20.0
    """Health turns red when rows wait and nothing was sent for so long (under the 30 s of invariant I10)."""
