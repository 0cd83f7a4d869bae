"""The review of a price update: every day from which a model seen costs something else, and only those."""

from __future__ import annotations

import json
from typing import Any

from turnledger.contract.times import parse_instant
from turnledger.doctor.prices import review
from turnledger.pricing import packaged
from turnledger.pricing.own import OwnList, parse

NOW = parse_instant("2026-11-30T12:00:00Z") or 0
SEEN = [
    {"provider": "anthropic", "model": "claude-opus-4-5-20251101", "calls": 3},
    {"provider": "house", "model": "m", "calls": 2},
    {"provider": "openai", "model": "gpt-4o", "calls": 1},
]


def own(*models: Any) -> OwnList:
    return parse(json.dumps({"models": models}).encode())


def changes(old: OwnList, new: OwnList) -> list[tuple[str, str, str]]:
    found = review(SEEN, packaged().with_own(1, old), packaged().with_own(2, new), NOW)
    assert found.seen == 3
    return [
        (one["model"], one["change"], one["from"][:10]) for one in (change.row() for change in found.changes)
    ]


OPUS = {"provider": "anthropic", "model": "claude-opus-4-5"}
HOUSE = {"provider": "house", "model": "m", "prices": [{"input": "1"}]}


def test_every_day_from_which_a_model_seen_costs_something_else_is_told() -> None:
    dated = {**OPUS, "prices": [{"input": "4"}, {"from": "2027-01-01", "input": "3"}]}
    assert changes(own(), own(dated, HOUSE)) == [
        ("claude-opus-4-5-20251101", "changed", "2026-11-30"),
        ("claude-opus-4-5-20251101", "changed", "2027-01-01"),
        ("m", "priced", "2026-11-30"),
    ]


def test_a_price_that_begins_later_changes_nothing_now() -> None:
    dated = {**OPUS, "prices": [{"from": "2027-01-01", "input": "3"}]}
    assert changes(own(), own(dated)) == [("claude-opus-4-5-20251101", "changed", "2027-01-01")]


def test_what_loses_its_price_is_told_and_what_stays_is_not() -> None:
    assert changes(own(HOUSE), own()) == [("m", "unpriced", "2026-11-30")]
    assert changes(own(HOUSE), own(HOUSE)) == []


def test_entries_that_no_call_has_asked_for_are_counted() -> None:
    other = {"provider": "house", "model": "never-called", "prices": [{"input": "1"}]}
    found = review(SEEN, packaged().with_own(1, own()), packaged().with_own(2, own(other)), NOW)
    assert (found.changes, found.unseen) == ([], 1)
