"""``traffic_without_model_call`` (contract 13): requests to a model provider's host beside which no model call stands."""

from __future__ import annotations

import pytest

from tests.unit.fold.events import Story, checks
from turnledger.fold.state import SessionState


def request(story: Story, domain: str, decision: str = "allowed", **more: object) -> None:
    story("net.requested", domain=domain, port=443, decision=decision, **more)


@pytest.mark.parametrize(
    "domain", ["api.anthropic.com", "API.OpenAI.com.", "generativelanguage.googleapis.com"]
)
def test_a_turn_with_traffic_to_a_provider_and_no_call_is_a_finding(domain: str) -> None:
    story = Story(turn="t")
    story("turn.started")
    request(story, domain)
    (found,) = story.turn().findings
    assert (found["check"], found["severity"]) == ("traffic_without_model_call", "warning")
    assert found["row"] == {
        "producer": "harness", "epoch": 0, "stream": "ledger", "seq": 1, "domain": domain, "turn_key": "t",
    }  # fmt: skip


@pytest.mark.parametrize("domain", ["anthropic.com.example", "notopenai.com", "openai.com", "pypi.org"])
def test_other_hosts_are_no_providers(domain: str) -> None:
    story = Story(turn="t")
    story("turn.started")
    request(story, domain)
    assert "traffic_without_model_call" not in checks(story.fold())


def test_a_denied_request_used_no_tokens() -> None:
    story = Story(turn="t")
    request(story, "api.openai.com", "denied")
    assert "traffic_without_model_call" not in checks(story.fold())


def test_a_turn_with_a_call_explains_its_traffic_and_not_that_of_another() -> None:
    story = Story()
    request(story, "api.openai.com", turn="a")
    story("model_call.started", turn="a", call="c", provider="openai", model="m")
    request(story, "api.openai.com", turn="b")
    fold = story.fold()
    assert [
        [one["check"] for one in turn.findings].count("traffic_without_model_call") for turn in fold.turns
    ] == [0, 1]


def test_a_running_total_explains_the_traffic_of_its_turn() -> None:
    story = Story(turn="a")
    request(story, "api.openai.com")
    story(
        "usage.reported",
        provider="openai",
        counter_kind="cumulative",
        start_known=True,
        usage={"input": 5, "output": 1, "cache_read": 0},
    )
    assert "traffic_without_model_call" not in checks(story.fold())


def test_outside_turns_any_call_of_the_session_explains_it() -> None:
    story = Story()
    request(story, "api.openai.com", stream="net")
    assert checks(story.fold()) == ["traffic_without_model_call"]
    story("model_call.started", turn="a", call="c", provider="openai", model="m")
    assert "traffic_without_model_call" not in checks(story.fold())


def test_a_call_that_comes_later_takes_the_finding_back() -> None:
    story = Story()
    story("turn.started", turn="a")
    story("turn.completed", turn="a")
    request(story, "api.openai.com", second=9)
    state = SessionState("default", "s")
    state.extend(story.events)
    before = state.take_changes(True).findings
    assert before is not None
    assert [one["check"] for one in before] == ["traffic_without_model_call"]
    state.extend([story("model_call.started", turn="b", call="c", provider="openai", model="m")])
    assert state.take_changes(True).findings == []
