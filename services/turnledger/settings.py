"""Settings: environment variables with the prefix ``TURNLEDGER_`` (contract 17). Read at the edge and passed in; no module-level state."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from turnledger.errors import TurnledgerError

LEAST_KEY = 16
"""Bytes of a redaction key: a shorter one can be tried out."""


class Settings(BaseSettings):
    """Addresses and limits. Every field ``x`` is the variable ``TURNLEDGER_X``."""

    model_config = SettingsConfigDict(env_prefix="TURNLEDGER_", extra="ignore")

    kafka_bootstrap: str | None = None
    """``host:port[,host:port…]``. Absent: the embedded stack of this folder, if one runs."""
    kafka_tls: bool = False
    """Whether the broker is spoken to over TLS (docs/operations.md)."""
    kafka_ca_file: str | None = None
    """PEM file of the authorities whose certificates a broker may have. Absent: those of the system, or of ``SSL_CERT_FILE``."""
    kafka_certificate_file: str | None = None
    """PEM file of the certificate that is shown to a broker which asks for one."""
    kafka_key_file: str | None = None
    """PEM file of its key, without a password. Absent: it stands in the certificate's file."""
    database_url: str | None = None
    """``postgresql://…``. Absent: the embedded stack of this folder, if one runs."""
    topic: str = "turnledger.events"
    group_id: str = "turnledger"
    """Consumer group; one group owns a topic (design 3.1)."""
    record_limit_bytes: int = 1024 * 1024
    """Greatest size of one record (contract 15)."""
    redaction_key: SecretStr | None = None
    """Key of the digests that stand for slot values (contract 14), the same wherever values must compare. Absent: a publisher makes one for
    itself, and everybody else takes slot values as redacted by their producer."""

    body_streams: str = ""
    """Streams whose bodies leave a publisher (contract 14), with commas between them; ``*`` is all. None, unless said."""
    body_limit_bytes: int = 64 * 1024
    """Greatest part of one body that leaves a publisher."""

    collector_token: SecretStr | None = None
    """What a publisher with a sink ``https://`` shows its collector (``Authorization: Bearer …``)."""

    spool_bytes: int = 256 * 1024 * 1024
    """Bytes of events that a publisher's spool holds for sinks that are away (docs/harness.md)."""
    spool_age_seconds: float = 7 * 24 * 3600.0
    """Seconds that an event waits in a spool before it is dropped and declared lost."""
    spool_on_full: Literal["drop", "raise"] = "drop"
    """What ``emit`` does with an event that a spool has no room for: drop it and declare its number lost, or raise."""

    def __init__(self, **given: Any) -> None:
        """Raises :class:`TurnledgerError` for a variable that cannot be read, without its value: that may be a secret."""
        try:
            super().__init__(**given)
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            name = f"TURNLEDGER_{first['loc'][0]}".upper()
            raise TurnledgerError(
                f"{name} cannot be used ({first['msg'].lower()}): set it anew, or leave it away for what it is by default"
            ) from None

    def bodies(self) -> bool | dict[str, bool]:
        """``body_streams`` as the rules of redaction take it."""
        names = [name.strip() for name in self.body_streams.split(",") if name.strip()]
        return True if "*" in names else dict.fromkeys(names, True)

    def slot_key(self) -> bytes | None:
        """``redaction_key`` as bytes. Raises :class:`TurnledgerError` for one that is too short."""
        if self.redaction_key is None:
            return None
        key = self.redaction_key.get_secret_value().encode()
        if len(key) < LEAST_KEY:
            raise TurnledgerError(
                f"TURNLEDGER_REDACTION_KEY has {len(key)} bytes: give at least {LEAST_KEY}, for example what `openssl rand -hex 32` prints"
            )
        return key
