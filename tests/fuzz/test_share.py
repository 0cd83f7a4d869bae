"""The share of the campaign that every run of the tests does: 5,000 damaged files; `make fuzz` does 100,000."""

from __future__ import annotations

from tests.fixtures.harness import goldens
from tests.fuzz.campaign import run
from tests.fuzz.judge import judge
from tests.fuzz.mutations import KINDS, Mutation

SHARE = 5_000


def test_damaged_files_reach_nobody_as_exceptions_or_as_invented_figures() -> None:
    outcome = run(SHARE, first=1_000_000)
    assert outcome.failures == []
    assert {kind for _, kind in outcome.mutations} == set(KINDS)


def test_every_format_may_be_cut_at_any_byte() -> None:
    for name in (
        "gemini_cli/rewrite-1.json",
        "sidecar/run-17.jsonl",
        "aider/history.md",
        "openhands/conv-4/events/event-00004-e5.json",
    ):
        content = goldens.content(name)
        for place in range(len(content)):
            assert judge(Mutation(name, "cut", content[:place]), thorough=False) == [], (name, place)


def test_the_judge_sees_a_figure_that_is_invented() -> None:
    content = goldens.content("pi/session.jsonl")
    told = Mutation("pi/session.jsonl", "type", content.replace(b'"output": 80', b'"output": "80"'), "80")
    assert judge(told, thorough=False) == []
    reading = goldens.read("pi/session.jsonl")
    figures = [event["payload"]["usage"]["output"] for event in reading.events if "usage" in event["payload"]]
    assert 80 in figures
