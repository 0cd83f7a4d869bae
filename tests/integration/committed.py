"""What Kafka believes a group has read."""

from __future__ import annotations

from aiokafka.admin import AIOKafkaAdminClient

from tests.stack.topics import Topic, run_apart


def committed(topic: Topic) -> dict[int, int]:
    """Committed offset by partition; partitions without one are left out."""

    async def ask() -> dict[int, int]:
        admin = AIOKafkaAdminClient(bootstrap_servers=topic.bootstrap)
        await admin.start()
        try:
            found = await admin.list_consumer_group_offsets(topic.group_id)
        finally:
            await admin.close()
        return {
            tp.partition: value.offset
            for tp, value in found.items()
            if tp.topic == topic.name and value.offset >= 0
        }

    return run_apart(ask())
