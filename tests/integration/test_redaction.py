"""What slipped through to the topic is redacted by the worker (contract 14), and stays what it was: the same event, once."""

from __future__ import annotations

import json

from tests.integration.ingesting import (
    environment,
    event,
    one,
    outcomes,
    rows,
    until_applied,
    until_projected,
)
from tests.stack.commands import Running, eventually
from tests.stack.topics import Record, Topic, produce

SECRET = "sk-ant-" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z"


def test_an_event_is_stored_redacted_and_known_by_what_was_received(
    database: str, topic: Topic, start: object
) -> None:
    told = event("s", 0, "message.recorded", payload={"role": "user", "text": f"my key is {SECRET}"})
    other = event("s", 0, "message.recorded", payload={"role": "user", "text": f"my key is {SECRET}x"})
    spelt = Record(json.dumps(json.loads(told.value or b""), indent=1).encode(), key=told.key)
    broken = Record(b'{"session_id":"s","text":"' + SECRET.encode() + b'"', key=SECRET.encode())
    produce(topic, [told, told, spelt, other, broken])
    worker: Running = start("worker", environment=environment(topic, database))  # type: ignore[operator]
    until_applied(database, topic, 5, worker)
    until_projected(database, topic)

    raw, received = one(rows(database, "select raw, received_sha256 from ledger.events"))
    assert json.loads(raw)["payload"]["text"].startswith("my key is credential:anthropic:")
    assert len(received) == 32
    assert outcomes(database, topic) == {
        "records": 5,
        "accepted": 1,
        "duplicates": 2,
        "conflicts": 1,
        "dead": 1,
    }
    assert one(rows(database, "select redactions from turnledger.redactions")) == (
        [{"what": "anthropic", "where": "payload.text", "count": 1}],
    )
    dead, key = one(rows(database, "select raw, key from ledger.dead_letters"))
    assert SECRET.encode() not in dead and SECRET.encode() not in key
    assert dead.startswith(b'{"session_id":"s","text":"credential:anthropic:')

    start("rollup", environment=environment(topic, database))  # type: ignore[operator]

    def found() -> bool:
        return rows(
            database,
            "select severity, count from turnledger.findings where \"check\" = 'secret_redacted_at_ingest'",
        ) == [("warning", 1)]

    eventually(found, seconds=30, what="the finding")
