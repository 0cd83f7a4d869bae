"""A share of the campaign of ``replays``: each of its commands killed once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fault.replays import KINDS, campaign
from tests.stack.servers import Servers

POINTS = int(os.environ.get("TURNLEDGER_REPLAY_KILLS", str(len(KINDS))))


@pytest.mark.timeout(420 + 15 * POINTS)  # the stack may start in it
def test_whatever_replay_is_killed_the_same_command_ends_it_as_if_nothing_had_happened(
    stack: Servers, database_template: str, tmp_path: Path
) -> None:
    with campaign(stack, database_template, tmp_path) as run:
        for seed in range(POINTS):
            run.point(seed)
    assert run.kills.killed.total() >= POINTS
    assert {name for name, _ in run.kills.killed} == {kind.name for kind in KINDS[:POINTS]}
