"""A share of the campaigns of ``publishing``: each kind of point once, and a broker that is away for some seconds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fault.publishing import POINTS, away_campaign, kill_campaign
from tests.integration.ingesting import environment
from tests.stack.commands import Running
from tests.stack.servers import Servers
from tests.stack.topics import Topic

SEEDS = int(os.environ.get("TURNLEDGER_PUBLISHER_KILLS", str(len(POINTS))))


@pytest.mark.timeout(300 + 10 * SEEDS)  # the stack may start in it
def test_what_emit_returned_for_is_in_postgres_once_wherever_its_process_is_killed(
    topic: Topic, database: str, start: Callable[..., Running], tmp_path: Path
) -> None:
    worker = start("worker", environment=environment(topic, database))
    kills = kill_campaign(topic, database, worker, tmp_path, first=1_000, seeds=SEEDS)
    assert kills.points.total() == SEEDS
    assert kills.returned > 0 and kills.events > 0


def test_a_broker_that_goes_and_comes_back_gets_everything_in_order_and_memory_stays(
    topic: Topic, stack: Servers, tmp_path: Path
) -> None:
    away = away_campaign(stack, topic, tmp_path, seconds=5)
    assert away.while_away > 0
    assert away.spooled >= away.while_away
    # What waits is on disk: memory grows by less than half of it.
    assert away.memory_at_most - away.memory_before < 0.5 * away.spooled * 8000
    # A harness that waited for the broker would have stood still as long as that was away.
    assert away.longest_emit < away.seconds / 2
