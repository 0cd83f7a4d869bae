"""Exactly once, whatever is killed: two workers, one killed with -9 and begun again, the broker restarted, everything delivered twice."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.ingesting import (
    applied,
    at,
    environment,
    event,
    outcomes,
    rows,
    until_applied,
    until_projected,
)
from tests.stack.commands import Running, eventually, run
from tests.stack.servers import Servers
from tests.stack.topics import Record, Topic, produce

SESSIONS = 200
EVENTS = 100
SEED = 20_260_301


def session_events(number: int) -> list[Record]:
    """One session: seven turns of fourteen events, a start and an end."""
    session = f"s{number:03d}"
    made: list[Record] = [
        event(session, 0, "session.started", occurred_at=at(0), payload={"agent": "tester", "name": session})
    ]

    def add(type_: str, **fields: Any) -> None:
        seq = len(made)
        made.append(event(session, seq, type_, occurred_at=at(seq + number / 1000), **fields))

    for turn in range(7):
        id_: dict[str, Any] = {"turn_id": f"turn-{turn}"}
        add("turn.started", payload={"input_preview": f"question {turn}"}, **id_)
        add("message.recorded", payload={"role": "user", "text": f"question {turn}"}, **id_)
        for call in range(2):
            model: dict[str, Any] = id_ | {"model_call_id": f"call-{turn}-{call}"}
            tool: dict[str, Any] = id_ | {
                "tool_call_id": f"tool-{turn}-{call}",
                "model_call_id": f"call-{turn}-{call}",
            }
            add(
                "model_call.started", payload={"provider": "anthropic", "model": "claude-sonnet-4-5"}, **model
            )
            add(
                "model_call.completed",
                payload={
                    "provider": "anthropic",
                    "model": "claude-sonnet-4-5",
                    "message_id": f"{session}-m-{turn}-{call}",
                    "stop_reason": "tool_use",
                    "usage": {"input": 10 + turn, "cache_read": 3, "output": 5 + call},
                },
                **model,
            )
            add("tool_call.requested", payload={"tool_name": "bash"}, **tool)
            add("tool_call.completed", payload={"status": "ok", "duration_ms": 12}, **tool)
            add("net.requested", payload={"domain": "example.org", "port": 443, "decision": "allowed"}, **id_)
        add("answer.finalized", payload={"text": f"answer {turn}", "exact": True}, **id_)
        add("turn.completed", payload={"status": "completed", "duration_ms": 900}, **id_)
    add("session.ended", payload={"status": "stopped"})
    assert len(made) == EVENTS
    return made


def twice_and_shuffled(records: list[list[Record]], dice: random.Random) -> list[Record]:
    """Each record twice, the order of every session and of the sessions among each other thrown."""
    lanes = []
    for session in records:
        lane = session * 2
        dice.shuffle(lane)
        lanes.append(lane)
    order = [number for number, lane in enumerate(lanes) for _ in lane]
    dice.shuffle(order)
    return [lanes[number].pop() for number in order]


@pytest.mark.timeout(280)
@pytest.mark.partitions(4)
def test_every_event_is_there_exactly_once_and_the_projections_are_those_of_the_fold(
    stack: Servers, topic: Topic, database: str, start: Callable[..., Running], tmp_path: Path
) -> None:
    dice = random.Random(SEED)
    sessions = [session_events(number) for number in range(SESSIONS)]
    file = tmp_path / "events.ndjson"
    file.write_bytes(b"".join((record.value or b"") + b"\n" for session in sessions for record in session))
    records = twice_and_shuffled(sessions, dice)
    assert len(records) == 40_000
    settings = environment(topic, database)

    first = start("worker", environment=settings)
    second = start("worker", environment=settings)
    produce(topic, records[:20_000])
    eventually(lambda: applied(database, topic) > 2_000, what="the work has begun")
    first.kill9()
    third = start("worker", environment=settings)
    until_applied(database, topic, 20_000, third)
    produce(topic, records[20_000:32_000])
    stack.kafka.restart()
    produce(topic, records[32_000:])
    until_applied(database, topic, 40_000, second, seconds=120)
    until_projected(database, topic)
    assert third.running() and second.running()

    assert outcomes(database, topic) == {
        "records": 40_000,
        "accepted": 20_000,
        "duplicates": 20_000,
        "conflicts": 0,
        "dead": 0,
    }
    counted = rows(
        database,
        "select count(*), count(distinct (stream_no, seq)), count(distinct s.session_id) from ledger.events "
        "join ledger.streams using (stream_no) join ledger.sessions s using (session_no)",
    )
    assert counted == [(20_000, 20_000, 200)]
    raws = {row[0] for row in rows(database, "select raw from ledger.events")}
    assert raws == {record.value for session in sessions for record in session}

    folded = run("fold", str(file), "--json", environment=settings)
    assert folded.returncode == 0, folded.stderr
    document = json.loads(folded.stdout)
    wanted = {(turn["session_id"], turn["turn_key"]): turn["digest"] for turn in document["turns"]}
    assert len(wanted) == 1_400
    stored = rows(
        database,
        "select s.session_id, t.turn_key, r.digest, r.record from projection_a.turn_records r "
        "join projection_a.turns t using (session_no, turn_no) join ledger.sessions s using (session_no)",
    )
    assert {(row[0], row[1]): row[2] for row in stored} == wanted
    assert all(hashlib.sha256(row[3]).hexdigest() == row[2] for row in stored)
    net = rows(database, "select count(*) from projection_a.net_events")
    assert net == [(len(document["net_events"]),)] == [(2_800,)]

    assert run("rollup", "--once", environment=settings).returncode == 0
    verified = run("verify", environment=settings)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert second.stop() == 0
    assert third.stop() == 0
