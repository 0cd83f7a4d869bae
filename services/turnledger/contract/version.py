"""Versions of what goes over the wire, and what happens to a newer one (contract 2 and 10).

A record of a higher version is read with the fields known here; its other fields stay in the stored bytes, and the fold reports the
finding ``newer_schema_version``. Nothing is refused for its version.
"""

from __future__ import annotations

from turnledger.contract.event import Event

ENVELOPE_VERSION = 1
"""What the envelope's absent ``schema_version`` means, and the highest that is known here."""

TURN_RECORD_VERSION = 2
"""``schema_version`` of the turn record."""


def is_newer(event: Event) -> bool:
    """Whether an event's envelope is of a version above the highest known here."""
    return event.schema_version > ENVELOPE_VERSION
