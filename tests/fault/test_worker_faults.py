"""What a worker does when the database, the broker, another worker or the topic fails it. Real servers, real signals."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete

from tests.integration.ingesting import (
    applied,
    environment,
    event,
    one,
    outcomes,
    rows,
    until_applied,
    until_projected,
)
from tests.stack.commands import Running, eventually, run
from tests.stack.servers import Servers
from tests.stack.topics import Record, Topic, create_topic, produce, run_apart

Start = Callable[..., Running]


def health(worker: Running) -> dict[str, Any]:
    """What /healthz says; empty while the server is not up."""
    found = re.search(r"health at (http://\S+)'", worker.output())
    if found is None:
        return {}
    try:
        with urllib.request.urlopen(found.group(1), timeout=5) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as refused:
        return dict(json.load(refused))
    except OSError:
        return {}


def is_red(worker: Running, says: str) -> bool:
    told = health(worker)
    return told.get("status") == "red" and any(says in reason for reason in told["reasons"])


def is_green(worker: Running) -> bool:
    return health(worker).get("status") == "green"


def chain_is_whole(database: str, topic: Topic) -> bool:
    """The audit rows of each partition follow each other without a break, and end where the row says (I2)."""
    broken = rows(
        database,
        """
        with chain as (
            select partition, from_offset, to_offset, epoch,
                lag(to_offset) over w as before, lag(epoch) over w as epoch_before, lag(batch_no) over w as batch_before, batch_no
            from ledger.ingest_batches where topic = %s
            window w as (partition by partition order by from_offset)
        )
        select * from chain where before <> from_offset or epoch < epoch_before or batch_no < batch_before
        """,
        topic.name,
    )
    ends = rows(
        database,
        "select 1 from ledger.ingest_progress p where topic = %s and next_offset <> coalesce((select max(to_offset) "
        "from ledger.ingest_batches b where b.topic = p.topic and b.partition = p.partition), first_offset)",
        topic.name,
    )
    return not broken and not ends


def sessions(count: int, each: int, prefix: str = "s", first: int = 0) -> list[Record]:
    return [event(f"{prefix}{n}", seq) for seq in range(first, first + each) for n in range(count)]


def test_while_the_database_is_away_nothing_is_acknowledged_and_then_everything_is_applied(
    stack: Servers, topic: Topic, database: str, start: Start
) -> None:
    worker = start("worker", environment=environment(topic, database))
    produce(topic, sessions(20, 10))
    until_applied(database, topic, 200, worker)
    stack.postgres.kill9()
    try:
        produce(topic, sessions(20, 40, first=10))
        eventually(lambda: is_red(worker, "the database fails"), seconds=30, what="health red")
        assert worker.running()
    finally:
        stack.postgres.start()
    until_applied(database, topic, 1000, worker, seconds=60)
    eventually(lambda: is_green(worker), seconds=30, what="health green again")
    assert outcomes(database, topic) == {
        "records": 1000,
        "accepted": 1000,
        "duplicates": 0,
        "conflicts": 0,
        "dead": 0,
    }
    assert chain_is_whole(database, topic)
    assert "Traceback" not in worker.output()
    assert worker.stop() == 0


def test_a_worker_ends_within_thirty_seconds_even_with_a_dead_database(
    stack: Servers, topic: Topic, database: str, start: Start
) -> None:
    worker = start("worker", environment=environment(topic, database))
    produce(topic, sessions(5, 2))
    until_applied(database, topic, 10, worker)
    stack.postgres.kill9()
    try:
        produce(topic, sessions(5, 2, first=2))
        eventually(lambda: "the database fails" in worker.output(), seconds=30, what="the outage is noticed")
        worker.stop(seconds=30)
    finally:
        stack.postgres.start()
    again = start("worker", environment=environment(topic, database))
    until_applied(database, topic, 20, again)
    assert outcomes(database, topic)["accepted"] == 20


def test_a_worker_that_starts_before_its_database_waits_for_it(
    stack: Servers, topic: Topic, database: str, start: Start
) -> None:
    produce(topic, sessions(5, 2))
    stack.postgres.stop()
    try:
        worker = start("worker", environment=environment(topic, database))
        eventually(
            lambda: "could not be claimed yet" in worker.output() or "the database fails" in worker.output(),
            seconds=60,
            what="it says so",
        )
        assert worker.running()
    finally:
        stack.postgres.start()
    until_applied(database, topic, 10, worker)


def test_connections_that_are_cut_in_the_middle_lose_and_double_nothing(
    topic: Topic, database: str, start: Start
) -> None:
    worker = start("worker", environment=environment(topic, database))
    total = 0
    with psycopg.connect(database, autocommit=True) as admin:
        for part in range(8):
            produce(topic, sessions(50, 20, first=20 * part))
            total += 1000
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "
                "and application_name like 'turnledger ingest%%'"
            )
    until_applied(database, topic, total, worker)
    until_projected(database, topic)
    assert outcomes(database, topic) == {
        "records": total,
        "accepted": total,
        "duplicates": 0,
        "conflicts": 0,
        "dead": 0,
    }
    assert chain_is_whole(database, topic)
    assert rows(database, "select count(*) from projection_a.session_facts") == [(50,)]


def test_a_frozen_worker_that_wakes_up_applies_nothing_that_another_has(
    topic: Topic, database: str, start: Start
) -> None:
    zombie = start("worker", environment=environment(topic, database))
    produce(topic, sessions(40, 50))
    eventually(lambda: applied(database, topic) > 0, what="the work has begun")
    zombie.suspend()
    heir = start("worker", environment=environment(topic, database))
    produce(topic, sessions(40, 50, first=50))
    until_applied(database, topic, 4000, heir, seconds=60)
    zombie.resume()
    produce(topic, sessions(40, 25, first=100))
    until_applied(database, topic, 5000, heir, seconds=60)
    eventually(lambda: is_green(zombie) and is_green(heir), seconds=60, what="both are green")
    assert outcomes(database, topic) == {
        "records": 5000,
        "accepted": 5000,
        "duplicates": 0,
        "conflicts": 0,
        "dead": 0,
    }
    assert chain_is_whole(database, topic)
    assert "error of its own" not in zombie.output() + heir.output()


def test_a_second_group_is_refused_with_a_sentence_and_may_take_over_when_told(
    topic: Topic, database: str, start: Start
) -> None:
    first = start("worker", environment=environment(topic, database))
    produce(topic, sessions(5, 2))
    until_applied(database, topic, 10, first)
    other = environment(topic, database) | {"TURNLEDGER_GROUP_ID": "another"}
    second = start("worker", environment=other)
    eventually(
        lambda: is_red(second, f"belongs to the group {topic.group_id}, not to another"), what="the refusal"
    )
    produce(topic, sessions(5, 2, first=2))
    until_applied(database, topic, 20, first)
    assert first.stop() == 0
    assert second.stop() == 0
    third = start("worker", "--take-over", environment=other)
    produce(topic, sessions(5, 2, first=4))
    until_applied(database, topic, 30, third)
    assert rows(database, "select distinct group_id from ledger.ingest_progress") == [("another",)]


def says_how_to_go_on(topic: Topic, partition: int, at: int) -> str:
    """The sentence of a partition whose last 100 records hold 51 dead letters, where half may be."""
    return (
        f"partition {partition} of {topic.name} is stopped at {at}: 51 of its last 100 records are dead letters, and at most 50% may be. "
        f"Look at them (`turnledger dead list --topic {topic.name} --partition {partition}`), repair what sends them, then let it go on "
        f"with `turnledger dead resume --topic {topic.name} --partition {partition} --why …`."
    )


def garbage(count: int, partition: int) -> list[Record]:
    return [Record(b"garbage", key=b"k", partition=partition) for _ in range(count)]


def placed(records: list[Record], partition: int) -> list[Record]:
    return [Record(record.value, record.key, partition) for record in records]


@pytest.mark.partitions(2)
def test_too_many_dead_letters_stop_their_partition_alone_until_somebody_resumes_it(
    topic: Topic, database: str, start: Start
) -> None:
    settings = environment(topic, database) | {"TURNLEDGER_DEAD_WINDOW": "100"}
    # The last turn of the partition that stops is open: what was applied is projected all the same.
    opened = [event("s0", 10, "turn.started", turn_id="t")]
    bad = [
        *placed([*sessions(5, 10), *opened], 0),
        *garbage(90, 0),
        *placed(sessions(5, 10, "late"), 0),
    ]
    produce(topic, [*bad, *placed(sessions(5, 40, "other"), 1)])
    worker = start("worker", environment=settings)
    eventually(lambda: is_red(worker, says_how_to_go_on(topic, 0, 102)), what="the partition stops")
    until_applied(database, topic, 102 + 200, worker)
    until_projected(database, topic)
    assert rows(database, "select turn_key from projection_a.turns where status = 'open'") != []
    stopped = outcomes(database, topic)
    assert (stopped["accepted"], stopped["dead"]) == (51 + 200, 51)
    assert rows(
        database,
        "select partition, at_offset, dead, records_window, share, resumed_by from turnledger.partition_stops",
    ) == [(0, 102, 51, 100, 0.5, None)]
    # The other partition goes on.
    produce(topic, placed(sessions(5, 20, "more"), 1))
    until_applied(database, topic, 402, worker)
    assert worker.stop() == 0
    # A restart is no resume: it must not drain the topic bit by bit.
    worker = start("worker", environment=settings)
    eventually(lambda: is_red(worker, says_how_to_go_on(topic, 0, 102)), what="it stays stopped")
    assert outcomes(database, topic)["dead"] == 51

    wrong = run("dead", "resume", "--partition", "1", "--why", "x", environment=settings)
    assert wrong.returncode == 2
    assert f"partition 1 of {topic.name} does not stand still for dead letters" in wrong.stderr, wrong.stderr
    done = run(
        "dead", "resume", "--partition", "0", "--why", "the sender is repaired", "--by", "ada", environment=settings,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"partition 0 of {topic.name} goes on at 102\n"), done.stderr
    until_applied(database, topic, 191 + 300, worker)
    eventually(lambda: is_green(worker), what="health green")
    assert rows(
        database,
        "select resumed_by, resumed_why, resumed_at > stopped_at from turnledger.partition_stops",
    ) == [("ada", "the sender is repaired", True)]
    assert outcomes(database, topic)["dead"] == 90
    assert worker.stop() == 0
    # Ninety of the last 140 records were dead, and whoever starts anew does not stop at what was resumed: 39 of them count.
    again = start("worker", environment=settings)
    produce(topic, placed(sessions(5, 2, "late", first=10), 0))
    until_applied(database, topic, 501, again)
    assert is_green(again)


@pytest.mark.partitions(1)
def test_a_worker_that_is_told_to_resume_goes_on_and_the_next_one_does_too(
    topic: Topic, database: str, start: Start
) -> None:
    settings = environment(topic, database) | {"TURNLEDGER_DEAD_WINDOW": "100"}
    produce(topic, [*garbage(60, 0), *placed(sessions(5, 10), 0)])
    first = start("worker", environment=settings)
    eventually(lambda: is_red(first, says_how_to_go_on(topic, 0, 51)), what="the partition stops")
    assert first.stop() == 0
    resumed = start("worker", "--resume-stopped", environment=settings)
    until_applied(database, topic, 110, resumed)
    assert resumed.stop() == 0
    again = start("worker", environment=settings)
    produce(topic, placed(sessions(5, 2, first=10), 0))
    until_applied(database, topic, 120, again)
    assert rows(database, "select resumed_why from turnledger.partition_stops") == [("--resume-stopped",)]


@pytest.mark.partitions(1)
def test_a_topic_that_was_made_anew_stops_the_partition(topic: Topic, database: str, start: Start) -> None:
    worker = start("worker", environment=environment(topic, database))
    produce(topic, sessions(5, 10))
    until_applied(database, topic, 50, worker)
    assert worker.stop() == 0

    async def anew() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=topic.bootstrap)
        await admin.start()
        try:
            await admin.delete_topics([topic.name])
            for _ in range(100):
                answer = await admin.create_topics([NewTopic(topic.name, 1, 1)])
                if all(code == 0 for _, code, *_ in answer.topic_errors):
                    return
        finally:
            await admin.close()
        raise AssertionError("the topic could not be made anew")

    run_apart(anew())
    produce(topic, sessions(7, 10, prefix="other"))
    second = start("worker", environment=environment(topic, database))
    eventually(
        lambda: is_red(second, "holds another record at 49 than the one that was applied"), what="it stops"
    )
    assert outcomes(database, topic)["records"] == 50
    assert rows(database, "select 1 from ledger.sessions where session_id like 'other%%'") == []


@pytest.mark.partitions(1)
def test_events_that_retention_took_stop_the_partition_until_the_loss_is_accepted(
    topic: Topic, database: str, start: Start
) -> None:
    worker = start("worker", environment=environment(topic, database))
    produce(topic, sessions(5, 10))
    until_applied(database, topic, 50, worker)
    assert worker.stop() == 0
    produce(topic, sessions(5, 10, first=10))

    async def forget() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=topic.bootstrap)
        await admin.start()
        try:
            await admin.delete_records({TopicPartition(topic.name, 0): RecordsToDelete(before_offset=80)})
        finally:
            await admin.close()

    run_apart(forget())
    second = start("worker", environment=environment(topic, database))
    says = f"partition 0 of {topic.name} starts at 80 but 50 is next: 30 events are gone from Kafka"
    eventually(lambda: is_red(second, says), what="it stops")
    assert second.stop() == 0
    third = start("worker", "--accept-loss", environment=environment(topic, database))
    until_applied(database, topic, 100, third)
    holes = one(rows(database, "select sum(records), sum(holes), sum(accepted) from ledger.ingest_batches"))
    assert holes == (70, 30, 70)
    assert chain_is_whole(database, topic)


def test_a_session_sent_through_two_topics_by_two_workers_is_stored_once(
    stack: Servers, topic: Topic, database: str, start: Start
) -> None:
    """One writer a session: whoever is not its home writes under the home's lock, and the home's worker decides anew."""
    beside = create_topic(stack.kafka_bootstrap, 2)
    at_home = start("worker", environment=environment(topic, database))
    abroad = start("worker", environment=environment(beside, database))
    records = sessions(20, 60)
    for part in range(6):
        chunk = records[part * 200 : part * 200 + 200]
        produce(topic, chunk)
        produce(beside, chunk)
    until_applied(database, topic, 1200, at_home)
    until_applied(database, beside, 1200, abroad)
    eventually(
        lambda: (
            rows(database, "select count(*), count(distinct (stream_no, seq)) from ledger.events")
            == [(1200, 1200)]
        ),
        what="each event is there once",
    )
    total = rows(database, "select sum(accepted), sum(duplicates), sum(conflicts) from ledger.ingest_batches")
    assert total == [(1200, 1200, 0)]
    assert chain_is_whole(database, topic) and chain_is_whole(database, beside)
    until_projected(database, topic)
    until_projected(database, beside)
    assert rows(database, "select sum(event_count), count(*) from projection_a.session_facts") == [(1200, 20)]


def test_partitions_move_to_a_second_worker_and_back_without_a_loss(
    topic: Topic, database: str, start: Start
) -> None:
    first = start("worker", environment=environment(topic, database))
    produce(topic, sessions(30, 10))
    until_applied(database, topic, 300, first)
    second = start("worker", environment=environment(topic, database))
    eventually(lambda: len(health(second).get("partitions", {})) == 2, what="the second worker has its share")
    produce(topic, sessions(30, 10, first=10))
    until_applied(database, topic, 600, first)
    assert second.stop() == 0
    eventually(
        lambda: len(health(first).get("partitions", {})) == 4, seconds=60, what="the first has all again"
    )
    produce(topic, sessions(30, 10, first=20))
    until_applied(database, topic, 900, first)
    until_projected(database, topic)
    assert outcomes(database, topic) == {
        "records": 900,
        "accepted": 900,
        "duplicates": 0,
        "conflicts": 0,
        "dead": 0,
    }
    assert chain_is_whole(database, topic)
    settings = environment(topic, database)
    assert run("rollup", "--once", environment=settings).returncode == 0
    verified = run("verify", environment=settings)
    assert verified.returncode == 0, verified.stdout


def test_two_workers_with_one_static_member_id_are_fatal_for_the_second(
    topic: Topic, database: str, start: Start
) -> None:
    first = start("worker", "--instance-id", "same", environment=environment(topic, database))
    produce(topic, sessions(5, 2))
    until_applied(database, topic, 10, first)
    second = start("worker", "--instance-id", "same", environment=environment(topic, database))
    assert second.wait(seconds=60) == 2
    assert "two workers cannot have one --instance-id" in second.output()
    produce(topic, sessions(5, 2, first=2))
    until_applied(database, topic, 20, first)
    assert outcomes(database, topic)["accepted"] == 20


def test_sessions_that_do_not_fit_into_memory_are_read_back_and_give_the_same(
    topic: Topic, database: str, start: Start
) -> None:
    settings = environment(topic, database) | {
        "TURNLEDGER_CACHE_BYTES": "100000",
        "TURNLEDGER_ROUND_EVENTS": "100",
        "TURNLEDGER_OPEN_TURN_SECONDS": "0.1",
    }
    worker = start("worker", environment=settings)
    for part in range(4):
        records = []
        for seq in range(part * 5, part * 5 + 5):
            for n in range(60):
                kind = (
                    "turn.started",
                    "tool_call.requested",
                    "note",
                    "tool_call.completed",
                    "turn.completed",
                )[seq % 5]
                fields: dict[str, Any] = {"turn_id": f"t{seq // 5}"}
                if kind.startswith("tool_call"):
                    # Of the turn before: a late result for every turn but the first.
                    fields["tool_call_id"] = f"tool-{(seq + (0 if kind.endswith('requested') else -5)) // 5}"
                records.append(event(f"s{n}", seq, kind, **fields))
                records.append(event(f"s{n}", None, "note", receipt_key=f"r{seq}", stream="spans"))
        produce(topic, records)
        until_applied(database, topic, 600 * (part + 1), worker)
        until_projected(database, topic)
    assert outcomes(database, topic)["accepted"] == 2400
    evicted = re.search(r"turnledger_ingest_cold_loads_total (\d+)", metrics(worker))
    assert evicted is not None and int(evicted.group(1)) > 60
    assert run("rollup", "--once", environment=settings).returncode == 0
    verified = run("verify", environment=settings)
    assert verified.returncode == 0, verified.stdout


def metrics(worker: Running) -> str:
    """What /metrics says."""
    found = re.search(r"health at (http://\S+)/healthz'", worker.output())
    assert found is not None
    with urllib.request.urlopen(found.group(1) + "/metrics", timeout=5) as answer:
        return str(answer.read().decode())
