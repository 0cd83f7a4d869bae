"""Settings: environment variables with the prefix ``TURNLEDGER_`` (contract 17). Read at the edge and passed in; no module-level state."""

from __future__ import annotations

from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Addresses and limits. Every field ``x`` is the variable ``TURNLEDGER_X``."""

    model_config = SettingsConfigDict(env_prefix="TURNLEDGER_", extra="ignore")

    kafka_bootstrap: str | None = None
    """``host:port[,host:port…]``. Absent: the embedded stack of this folder, if one runs."""
    database_url: str | None = None
    """``postgresql://…``. Absent: the embedded stack of this folder, if one runs."""
    topic: str = "turnledger.events"
    group_id: str = "turnledger"
    """Consumer group; one group owns a topic (design 3.1)."""
    record_limit_bytes: int = 1024 * 1024
    """Greatest size of one record (contract 15)."""
