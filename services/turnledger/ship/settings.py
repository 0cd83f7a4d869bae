"""Settings of `turnledger ship`, beside those that every command has: environment variables ``TURNLEDGER_SHIP_…``."""

from __future__ import annotations

from turnledger.settings import Settings


class ShipSettings(Settings):
    """Times in seconds."""

    ship_state: str | None = None
    """Folder of the checkpoints. Absent: ``turnledger/ship`` below ``$XDG_STATE_HOME``, or ``~/.local/state``."""
    ship_scan_seconds: float = 30.0
    """How often all folders are looked through where the system tells of changes; that telling may miss some."""
    ship_poll_seconds: float = 2.0
    """How often where it does not."""
    ship_settle_seconds: float = 30.0
    """A file that has been quiet for so long is read as a closed one: a last line without its end counts, if it is whole."""
    ship_forget_seconds: float = 30 * 24 * 3600.0
    """How long it is remembered what a file told that is gone, or that has been quiet."""
    ship_health_host: str = "127.0.0.1"
    ship_health_port: int = 8083
    """0: a free one, named in the log."""
    ship_red_after: float = 20.0
    """Health turns red when events wait and none could be sent for so long (under the 30 s of invariant I10)."""
