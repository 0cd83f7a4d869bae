"""What slipped through to the topic is redacted by the worker (contract 14), and stays what it was: the same event, once."""

from __future__ import annotations

import base64
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.fixtures.leaks import leaks
from tests.integration.ingesting import (
    environment,
    event,
    one,
    outcomes,
    rows,
    until_applied,
    until_projected,
)
from tests.stack.commands import Running, run
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

    rolled = run("rollup", "--once", environment=environment(topic, database))
    assert rolled.returncode == 0, rolled.stderr
    finding = rows(
        database,
        "select severity, count from turnledger.findings where \"check\" = 'secret_redacted_at_ingest'",
    )
    assert finding == [("warning", 1)]


def test_no_secret_is_found_anywhere(database: str, topic: Topic, start: object, tmp_path: Path) -> None:
    """Hundreds of records with a secret each, in every place, through the real stack: then everything that it shows or keeps is searched."""
    thrown = [leak for n, leak in enumerate(leaks(2026)) if n % 2 == 0 or not leak.valid]
    settings = environment(topic, database) | {"TURNLEDGER_DEAD_SHARE": "1"}
    produce(topic, [Record(leak.raw, key=leak.key) for leak in thrown])
    worker: Running = start("worker", environment=settings)  # type: ignore[operator]
    until_applied(database, topic, len(thrown), worker, seconds=120)
    until_projected(database, topic)
    rolled = run("rollup", "--once", environment=settings)
    assert rolled.returncode == 0, rolled.stderr

    found = outcomes(database, topic)
    assert found["dead"] == sum(not leak.valid for leak in thrown)
    assert found["accepted"] == sum(leak.valid for leak in thrown)
    assert rows(database, "select count(*) from turnledger.redactions")[0][0] == found["accepted"]

    proof = run("verify", "--topics", environment=settings, seconds=200)
    assert proof.returncode == 0, proof.stdout + proof.stderr

    searched = dict(everything_stored(database))
    searched["what verify says"] = (proof.stdout + proof.stderr).encode()
    searched["the worker's log"] = worker.output().encode()
    searched["the rollup worker's log"] = (rolled.stdout + rolled.stderr).encode()
    health = re.search(r"http://[^/ ]+/", worker.output())
    assert health is not None
    with urllib.request.urlopen(f"{health[0]}metrics", timeout=10) as answer:
        searched["the metrics"] = answer.read()
    file = tmp_path / "thrown.ndjson"
    file.write_bytes(b"\n".join(leak.raw for leak in thrown if b"\n" not in leak.raw) + b"\n")
    for command in (
        ("fold", str(file), "--json"),
        ("fold", str(file)),
        ("sessions", "list", "--json"),
        ("sessions", "show", "leak-1", "--tenant", "default", "--json"),
    ):
        done = run(*command, environment=settings)
        assert done.returncode == 0, (command, done.stderr)
        searched[" ".join(command[:2])] = (done.stdout + done.stderr).encode()

    shown = {
        f"{leak.name}: in {where}"
        for where, data in searched.items()
        for leak in thrown
        for needle in leak.needles
        if needle in data
    }
    assert not shown, sorted(shown)[:10]


def everything_stored(database: str) -> Iterator[tuple[str, bytes]]:
    """(column, all its values) of every text, bytea and jsonb column of every table and view, and of base64 what it holds."""
    columns = rows(
        database,
        "select table_schema, table_name, column_name, data_type from information_schema.columns "
        "where table_schema in ('ledger', 'projection_a', 'projection_b', 'turnledger') "
        "and data_type in ('text', 'bytea', 'jsonb', 'json', 'character varying', 'ARRAY')",
    )
    assert len(columns) > 200, "the catalogue was not read"
    for schema, table, column, kind in columns:
        read = f'"{column}"' if kind == "bytea" else f"convert_to(\"{column}\"::text, 'UTF8')"
        values = [
            value
            for (value,) in rows(
                database, f'select {read} from "{schema}"."{table}" where "{column}" is not null'
            )
        ]
        joined = b"\n".join(values)
        inner = b"\n".join(
            base64.b64decode(b64) for b64 in re.findall(rb'"data": ?"([A-Za-z0-9+/]+=*)"', joined)
        )
        yield f"{schema}.{table}.{column}", joined + b"\n" + inner
