"""Sessions folded one at a time sum up as all of them together do, also where one holds calls of another."""

from __future__ import annotations

import random
from collections import defaultdict
from functools import partial
from typing import Any

import orjson
import pytest

from tests.fixtures.harness import goldens
from tests.fixtures.harness.folded import catalogue
from turnledger.fold.apiece import Sums, apiece
from turnledger.fold.document import document
from turnledger.pricing import price_call

PRICE = partial(price_call, catalogue())


def events() -> list[dict[str, Any]]:
    """Every fixture: among them forks and branches that copy their origin's calls."""
    found = [event for name in goldens.FILES for event in goldens.read(name).events]
    return [*found, *({"tenant": "acme", **event} for event in goldens.read("pi/branch.jsonl").events)]


def sums(records: list[bytes]) -> Sums:
    by_session: dict[tuple[str, str], list[bytes]] = defaultdict(list)
    for record in records:
        event = orjson.loads(record)
        by_session[event.get("tenant", "default"), event["session_id"]].append(record)
    return apiece(by_session, by_session.__getitem__, PRICE)


@pytest.mark.parametrize("seed", range(3))
def test_the_sums_are_those_of_the_document(seed: int) -> None:
    told = [orjson.dumps(event) for event in events()]
    dice = random.Random(seed)
    records = [*told, *dice.sample(told, 50)]
    records += [orjson.dumps({**orjson.loads(each), "trace_id": "changed"}) for each in dice.sample(told, 5)]
    dice.shuffle(records)
    whole, found = document(records, PRICE), sums(records)
    assert found.sessions == whole["sessions"]
    assert [row for row in found.findings if row["check"] != "dead_letter"] == whole["findings"]
    assert dict(found.records) == whole["records"]
    assert whole["records"]["conflicts"] > 0


def test_a_branch_imported_with_its_origin_counts_its_own_calls_alone() -> None:
    told = [
        orjson.dumps(event)
        for name in ("pi/branch.jsonl", "pi/session.jsonl")
        for event in goldens.read(name).events
    ]
    calls = {row["session_id"][-1]: row["model_call_count"] for row in sums(told).sessions}
    assert calls == {"5": 4, "6": 1}
