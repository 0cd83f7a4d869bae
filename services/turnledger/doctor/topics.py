"""Creates the topic of events where it is missing. Never changes one that exists."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError, for_code

from turnledger.contract.topics import TOPICS, Topic
from turnledger.errors import TurnledgerError
from turnledger.kafka import connect
from turnledger.kafka.connect import ANSWER_SECONDS

EVENTS = next(topic for topic in TOPICS if topic.name == "turnledger.events")
TURNS = next(topic for topic in TOPICS if topic.name == "turnledger.turns")
"""The topics that this version reads and writes; their settings are those of the catalogue, whatever they are called."""


class TopicError(TurnledgerError):
    """The topic could not be created, or is not as it was asked for."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as it is now."""

    name: str
    partitions: int
    created: bool
    """Whether this call made it."""


async def create(
    bootstrap: str, name: str, *, like: Topic = EVENTS, partitions: int | None = None, replicas: int = 1
) -> TopicState:
    """Make ``name`` with the settings of ``like`` and ``partitions`` (the catalogue's unless said), or find it. Raises :class:`TopicError`.

    An existing topic with another number than the one asked for is an error: raising it would move sessions to other partitions.
    """
    answers = False
    try:
        async with connect.asking(bootstrap) as admin:
            answers = True
            wanted = NewTopic(name, partitions or like.partitions, replicas, topic_configs=_settings(like))
            answer = await admin.create_topics([wanted])
            created = _verdict(name, answer.topic_errors[0], bootstrap)
            found = await _partitions(admin, name)
    except connect.AWAY as error:
        if answers:
            raise TopicError(
                f"the broker at {bootstrap} did not create {name} ({error!r}): try again when it answers."
            ) from None
        why = await connect.why(bootstrap, error)
        raise TopicError(
            f"the broker at {bootstrap} does not answer ({why}): start it (`turnledger dev up` runs one here) or set TURNLEDGER_KAFKA_BOOTSTRAP."
        ) from None
    if partitions is not None and found != partitions:
        raise TopicError(
            f"{name} at {bootstrap} is there with {found} partitions, not {partitions}: leave out --partitions to take it as it is, "
            "or name another topic in TURNLEDGER_TOPIC (another number would move sessions between partitions)."
        )
    return TopicState(name, found, created)


def _settings(like: Topic) -> dict[str, str]:
    return {
        "cleanup.policy": like.cleanup_policy,
        "retention.ms": str(like.retention_ms),
        "max.message.bytes": str(like.max_message_bytes),
    }


def _verdict(name: str, answer: tuple[object, ...], bootstrap: str) -> bool:
    code = int(str(answer[1]))
    if code == 0:
        return True
    if code == TopicAlreadyExistsError.errno:
        return False
    kind = for_code(code)
    detail = answer[2] if len(answer) > 2 and answer[2] else kind.description
    raise TopicError(f"the broker at {bootstrap} refused to create {name}: {detail}.")


async def _partitions(admin: AIOKafkaAdminClient, name: str) -> int:
    """A fresh topic takes a moment to be known to every broker."""
    loop = asyncio.get_running_loop()
    until = loop.time() + ANSWER_SECONDS
    while True:
        (topic,) = await admin.describe_topics([name])
        if topic["error_code"] == 0 and topic["partitions"]:
            return len(topic["partitions"])
        if loop.time() > until:
            raise TopicError(
                f"{name} was created, but the broker does not describe it ({for_code(topic['error_code']).__name__}): look at its log."
            )
        await asyncio.sleep(0.1)
