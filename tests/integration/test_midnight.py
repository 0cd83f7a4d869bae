"""A stream across midnight UTC: where a number stands is known by its day, on both sides, warm and cold, beside `verify` and a rebuild.

The database's day is `ledger.today()`: here it is that of a table, so that midnight comes when the test says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.integration.ingesting import (
    at,
    environment,
    event,
    outcomes,
    rows,
    until_applied,
    until_projected,
)
from tests.integration.projected import PRICE
from tests.stack.commands import Running, run
from tests.stack.topics import Record, Topic, produce
from turnledger.doctor.verify import verify
from turnledger.rollup.settings import RollupSettings
from turnledger.rollup.worker import Rollup

Start = Callable[..., Running]


def set_the_clock(database: str) -> None:
    """The database's day is that of a row from now on: today."""
    with psycopg.connect(database, autocommit=True) as link:
        link.execute("create table public.clock as select ledger.today() as day")
        link.execute("create or replace function ledger.today() returns date language sql stable return (select day from public.clock)")  # fmt: skip


def midnight(database: str, days: int = 1) -> None:
    with psycopg.connect(database, autocommit=True) as link:
        link.execute("update public.clock set day = day + %s", (days,))


def said(seq: int | None, kind: str = "message.recorded", session: str = "s", **more: Any) -> Record:
    payload = {"role": "assistant", "text": f"word {seq}"} if kind == "message.recorded" else {}
    return event(session, seq, kind, turn_id="t", occurred_at=at(seq or 0), payload=payload, **more)


def receipt(name: str, session: str = "unnumbered") -> Record:
    return event(session, None, "note", receipt_key=name, payload={"n": name})


def days(database: str) -> list[tuple[int, int, int]]:
    """(days since the first, least number, greatest number) of the stream of ``s``; the last one's greatest is written late."""
    return rows(
        database,
        "select d.day - min(d.day) over (), d.seq_from, d.seq_to from ledger.stream_days d join ledger.streams st using (stream_no)"
        " join ledger.sessions s using (session_no) where s.session_id = 's' order by 1",
    )


def numbers_by_day(database: str) -> dict[int, list[int]]:
    found = rows(
        database,
        "select e.day - (select min(day) from ledger.events), array_agg(e.seq order by e.seq) from ledger.events e"
        " join ledger.streams st using (stream_no) join ledger.sessions s using (session_no) where s.session_id = 's' group by 1 order by 1",
    )
    return dict(found)


@pytest.mark.partitions(1)
def test_a_stream_across_midnight_is_one_stream(topic: Topic, database: str, start: Start) -> None:
    set_the_clock(database)
    settings = environment(topic, database)
    worker = start("worker", environment=settings)
    start("rollup", "--health-port", "0", environment=settings)
    # The evening: 5 and 6 are on their way still, 0 opens the turn.
    evening = [said(0, "turn.started"), *(said(seq) for seq in (1, 2, 3, 4, 7, 8, 9))]
    sent = len(produce(topic, [*evening, receipt("a"), receipt("b")]))
    until_applied(database, topic, sent, worker)

    midnight(database)
    # `verify` looks on while the day changes: what is still to be written is no fault.
    beside = start("verify", "--settle", "60", environment=settings)
    other = event("s", 3, "message.recorded", turn_id="t", occurred_at=at(3), payload={"role": "user"})
    morning = [
        *(said(seq) for seq in (10, 11, 12)),
        said(5),  # late: the number of an evening, on the day that it came
        said(2),  # of the evening, again
        said(11),  # of the morning, again
        said(5),  # the late one, again
        other,  # another content at a number of the evening
        receipt("a"),
        receipt("c"),
    ]
    sent += len(produce(topic, morning))
    until_applied(database, topic, sent, worker)
    assert outcomes(database, topic) == {
        "records": 20, "accepted": 15, "duplicates": 4, "conflicts": 1, "dead": 0,
    }  # fmt: skip
    assert numbers_by_day(database) == {0: [0, 1, 2, 3, 4, 7, 8, 9], 1: [5, 10, 11, 12]}
    assert [row[:2] for row in days(database)] == [(0, 0), (1, 5)]
    assert beside.wait() == 0, beside.output()

    # Read from the ledger again, on the third day: it finds numbers of every day.
    worker.kill9()
    midnight(database)
    worker = start("worker", environment=settings)
    night = [
        said(6),
        said(4),
        said(12),
        said(5),
        said(13, "turn.completed"),
        said(6),
        receipt("b"),
        receipt("c"),
    ]
    sent += len(produce(topic, night))
    until_applied(database, topic, sent, worker)
    until_projected(database, topic)
    assert outcomes(database, topic) == {
        "records": 28, "accepted": 17, "duplicates": 10, "conflicts": 1, "dead": 0,
    }  # fmt: skip
    assert numbers_by_day(database) == {0: [0, 1, 2, 3, 4, 7, 8, 9], 1: [5, 10, 11, 12], 2: [6, 13]}
    assert [row[:2] for row in days(database)] == [(0, 0), (1, 5), (2, 6)]
    gaps = rows(
        database, "select from_seq, to_seq, state, closed_at is not null from ledger.gaps order by from_seq"
    )
    assert gaps == [(5, 5, "filled_late", True), (6, 6, "filled_late", True)]

    # Folded anew from all three days beside the worker, it is the same.
    rebuilt = run("replay", "projections", "--workers", "1", environment=settings)
    assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
    proven = run("verify", "--topics", "--settle", "60", environment=settings)
    assert proven.returncode == 0, proven.stdout + proven.stderr


def test_a_clock_that_is_set_back_over_midnight_hides_no_number(
    topic: Topic, database: str, start: Start
) -> None:
    """What a stream wrote tomorrow is found again today, also by a worker that reads it from the ledger."""
    set_the_clock(database)
    settings = environment(topic, database)
    midnight(database)
    worker = start("worker", environment=settings)
    sent = len(produce(topic, [said(0, "turn.started"), said(1), said(2)]))
    until_applied(database, topic, sent, worker)
    midnight(database, -1)
    sent += len(produce(topic, [said(3), said(2)]))
    until_applied(database, topic, sent, worker)
    worker.kill9()
    worker = start("worker", environment=settings)
    sent += len(produce(topic, [said(3), said(1), said(4, "turn.completed")]))
    until_applied(database, topic, sent, worker)
    until_projected(database, topic)
    found = outcomes(database, topic)
    assert (found["accepted"], found["duplicates"], found["conflicts"]) == (5, 3, 0)
    Rollup(RollupSettings(), database, PRICE).drain()
    proven = verify(database, PRICE, settle_seconds=0.0)
    assert proven.holds, proven.as_json()
