"""A share of the campaign of ``replays``: each of its commands killed once, and a replay, a rebuild and a switch where chance would seldom do it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fault.replays import KINDS, campaign
from tests.stack.servers import Servers

TOPICS = ("replay topics, never read", "empty")
PROJECTIONS = ("replay projections", "begun")
SWITCH = ("replay switch", "built")
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


@pytest.mark.timeout(600)
def test_who_is_killed_between_what_is_in_doubt_and_its_comparison_is_followed_by_one_that_compares_it(
    stack: Servers, database_template: str, tmp_path: Path
) -> None:
    with campaign(stack, database_template, tmp_path) as run:
        for command, place in (
            (PROJECTIONS, "doubts are forgotten"),
            (PROJECTIONS, "a comparison is planned"),
            (PROJECTIONS, "nobody was looked at again"),
            (SWITCH, "a switch has not followed"),
            (SWITCH, "a switch has not looked again"),
        ):
            run.place(*command, place)


@pytest.mark.timeout(420)
def test_a_replay_that_is_killed_between_a_round_that_is_written_and_one_that_is_folded_loses_and_doubles_nothing(
    stack: Servers, database_template: str, tmp_path: Path
) -> None:
    with campaign(stack, database_template, tmp_path) as run:
        for place in ("a round is folded beside a write", "a round is folded on one that is committed"):
            run.place(*TOPICS, place)
