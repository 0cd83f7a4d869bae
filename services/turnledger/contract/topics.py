"""The Kafka topics: what a record of each is, how long it is kept, and how many partitions to give it."""

from __future__ import annotations

from dataclasses import dataclass

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. The settings are what ``turnledger topics create`` asks for; an operator may choose others."""

    name: str
    about: str
    key: str
    value: str
    """The id of the JSON Schema of its values."""
    cleanup_policy: str
    retention_ms: int
    max_message_bytes: int
    partitions: int
    advice: str


TOPICS: tuple[Topic, ...] = (
    Topic(
        name="turnledger.events",
        about="Every ledger event. The truth until it is in Postgres, and what replays read.",
        key="<tenant>/<session_id>",
        value="urn:turnledger:schema:envelope",
        cleanup_policy="delete",
        retention_ms=7 * DAY_MS,
        max_message_bytes=(1 << 20) + (1 << 16),
        partitions=24,
        advice="One partition is one worker at most, so give it as many as workers may ever be needed, and do not change the number: "
        "a session must stay on its partition. Retention must outlast the longest outage that workers must survive. Never compact it.",
    ),
    Topic(
        name="turnledger.live",
        about="Deltas of streamed answers, for those who watch. Never stored; losing it loses nothing of the ledger.",
        key="<tenant>/<session_id>",
        value="urn:turnledger:schema:envelope",
        cleanup_policy="delete",
        retention_ms=3_600_000,
        max_message_bytes=(1 << 20) + (1 << 16),
        partitions=24,
        advice="As many as turnledger.events, so that a session's live and ledger records can be read side by side.",
    ),
    Topic(
        name="turnledger.turns",
        about="The record of each turn at each of its revisions, for other systems.",
        key="<tenant>/<session_id>/<turn_key>",
        value="urn:turnledger:schema:turn-record",
        cleanup_policy="compact",
        retention_ms=-1,
        max_message_bytes=4 << 20,
        partitions=12,
        advice="A record stands in the partition of <tenant>/<session_id>, so that a session's turns come in their order; compaction keeps the last "
        "revision of each turn. Readers must take the greatest revision of a turn, not the last to come.",
    ),
)
