"""Vacuumed sessions as others meet them: a live worker, `verify --topics`, and who asks for what is gone."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.integration.ingesting import environment, one, outcomes, rows, until_applied, until_projected
from tests.integration.letting_go import PRICE, apply, let_go, numbers, rolled_up, verified
from tests.integration.test_requeue import Here, here
from tests.integration.test_vacuum import event, worked
from tests.stack.commands import Running
from tests.stack.topics import Record, Topic, produce
from turnledger.doctor.verify import Topics, verify
from turnledger.retention.vacuum import Went

__all__ = ["here"]


def test_who_asks_for_what_is_gone_is_told_when_by_whom_and_why(database: str, here: Here) -> None:
    apply(database, "log", worked("s"))
    rolled_up(database)
    settings = {"TURNLEDGER_DATABASE_URL": database}
    status, out, _ = here.run(settings, "sessions", "vacuum", "s", "--dry-run")
    assert (status, out.startswith("default/s: 10 events ("), "would go" in out) == (0, True, True)
    assert rows(database, "select count(*) from turnledger.events") == [(10,)]
    assert here.run(settings, "sessions", "vacuum", "s")[0] == 2
    assert here.run(settings, "sessions", "vacuum", "s", "--why", "asked by its owner", "--by", "ada")[0] == 0
    rolled_up(database)
    status, _, err = here.run(settings, "sessions", "report", "s")
    assert (status, "by ada (asked by its owner)" in err) == (2, True)
    status, out, err = here.run(settings, "sessions", "timeline", "s", "--json")
    assert (status, "by ada (asked by its owner)" in err) == (0, True)
    assert json.loads(out)["lines"] == []
    status, out, err = here.run(settings, "sessions", "show", "s", "--json")
    assert status == 0, err
    assert json.loads(out)["session"]["detail"] == "vacuumed"
    assert here.run(settings, "sessions", "show", "s")[0] == 0
    status, out, err = here.run(settings, "sessions", "check", "s", "--json")
    assert (status in (0, 1), "projection_differs_from_fold" in out) == (True, False), err


@pytest.mark.partitions(1)
def test_beside_a_live_worker_what_comes_again_or_late_is_told_apart_and_kafka_agrees(
    topic: Topic, database: str, start: Callable[..., Running]
) -> None:
    def sent(raws: list[bytes]) -> list[Record]:
        return [Record(raw, key=b"default/" + json.loads(raw)["session_id"].encode()) for raw in raws]

    settings = environment(topic, database)
    first = [*worked("s"), *worked("other"), event("s", None, "note", receipt_key="r")]
    conflicting = [event("s", 6, "note"), worked("s")[0]]
    produce(topic, sent([*first, *conflicting]))
    worker = start("worker", environment=settings)
    until_applied(database, topic, 23, worker)
    until_projected(database, topic)
    rolled_up(database)
    before = numbers(database)
    # The worker holds the session in memory: it must notice.
    assert let_go(database, "default/s") == [Went(11, sum(map(len, [*worked("s"), first[-1]])), late=False)]
    late = [event("s", 12, "note"), event("s", None, "note", receipt_key="q"), *worked("third")]
    produce(topic, sent([*first, *late]))
    until_applied(database, topic, 56, worker)
    until_projected(database, topic)
    assert outcomes(database, topic) == {
        "records": 56, "accepted": 33, "duplicates": 22, "conflicts": 1, "dead": 0,
    }  # fmt: skip
    assert one(rows(database, "select sum(unverified) from turnledger.ingest_batches")) == (11,)
    verified(database)
    kept = [row for row in numbers(database)["sessions"] if row[0]["session_id"] != "third"]
    assert kept == before["sessions"]
    assert rows(database, "select from_seq, to_seq, state from turnledger.gaps") == [(10, 11, "open")]
    topics = Topics(topic.bootstrap, 1024 * 1024)
    report = verify(database, PRICE, topics=topics, settle_seconds=5)
    assert report.holds, report.as_json()
    # A worker that begins anew finds the session as it was left.
    worker.kill9()
    again = start("worker", environment=settings)
    produce(topic, sent([event("s", 10, "note"), *first]))
    until_applied(database, topic, 78, again)
    until_projected(database, topic)
    verified(database)
    assert rows(database, "select from_seq, to_seq, state from turnledger.gaps where state = 'open'") == [
        (11, 11, "open")
    ]
    report = verify(database, PRICE, topics=topics, settle_seconds=5)
    assert report.holds, report.as_json()
