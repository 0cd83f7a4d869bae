"""What the tests of retention and archives share: records applied without a broker, rollups set, everything verified, numbers compared."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from functools import partial
from typing import Any

import psycopg

from tests.integration.ingesting import one, rows
from turnledger.contract.redact import Redactor
from turnledger.doctor.faults import Report
from turnledger.doctor.scope import one_session
from turnledger.doctor.verify import verify
from turnledger.ingest.decide import Decider
from turnledger.pricing import packaged, price_call
from turnledger.replay.log import Counts, Log, LogRecord
from turnledger.retention.vacuum import Order, Stays, Went, foresee, vacuum
from turnledger.rollup.settings import RollupSettings
from turnledger.rollup.worker import Rollup
from turnledger.store.connect import connect

PRICE = partial(price_call, packaged())
ORDER = Order("tester", "a test")

NUMBERS = {
    "sessions": "select to_jsonb(s) - 'detail' from turnledger.sessions s order by tenant, session_id",
    "ai_usage": "select to_jsonb(a) from turnledger.ai_usage a order by tenant, session_id, provider, model",
    "tool_usage": "select to_jsonb(t) from turnledger.tool_usage t order by tenant, session_id, tool_name, origin",
    "mcp_usage": "select to_jsonb(m) from turnledger.mcp_usage m order by tenant, session_id, server_name, tool_name",
    "usage_hourly": "select to_jsonb(u) from turnledger.usage_hourly u order by tenant, hour, provider, model",
    "turns": "select tenant, session_id, turn_key, digest, status, grade, total_input_tokens, output_tokens, cost_micro_usd, usage_total "
    "from turnledger.turns order by tenant, session_id, turn_key",
}
"""Everything that a retention run must not move."""


def decider() -> Decider:
    return Decider(1024 * 1024, 65536, Redactor())


def records(raws: Iterable[bytes]) -> list[LogRecord]:
    """Records from position 0 on, each under the key of its body."""
    found = []
    for offset, raw in enumerate(raws):
        try:
            body = json.loads(raw)
            key = f"{body.get('tenant', 'default')}/{body['session_id']}".encode()
        except (ValueError, KeyError, TypeError, AttributeError):
            key = b"?"
        found.append(LogRecord(offset, key, raw))
    return found


def apply(database: str, name: str, raws: Sequence[bytes], *, rounds: int = 1) -> Counts:
    """Apply raw records as a log of that name, in so many transactions."""
    found = Counts()
    with connect(database, "test", autocommit=True) as connection:
        log = Log(connection, decider(), name, group_id="test", owner="test")
        given = records(raws)
        size = max(1, -(-len(given) // rounds))
        for start in range(log.next_offset, len(given), size):
            piece = given[start : start + size]
            found.add(log.apply(piece, piece[-1].offset + 1))
    return found


def rolled_up(database: str) -> None:
    rollup = Rollup(RollupSettings(), database, PRICE)
    rollup.drain()
    rollup.close()


def verified(database: str) -> Report:
    """Rollups are set, and all that `verify` proves holds."""
    rolled_up(database)
    report = verify(database, PRICE, settle_seconds=5)
    assert report.holds, report.as_json()
    return report


def numbers(database: str) -> dict[str, list[tuple[Any, ...]]]:
    return {name: rows(database, statement) for name, statement in NUMBERS.items()}


def let_go(database: str, *sessions: str, order: Order = ORDER) -> list[Went | Stays]:
    """Vacuum these sessions (``tenant/session_id``). What a dry run says before is what becomes of each."""
    found = []
    with connect(database, "test", autocommit=True, lock_seconds=5) as connection:
        for name in sessions:
            ref = one_session(connection, name).session
            assert ref is not None
            foreseen = foresee(connection, ref, order)
            found.append(vacuum(connection, ref, order))
            assert found[-1] == foreseen
    return found


def shuffled(raws: Sequence[bytes], seed: int) -> list[bytes]:
    again = list(raws)
    random.Random(seed).shuffle(again)
    return again


def execute(database: str, statement: str, *values: Any) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(statement, values)


def moved_back(database: str, days: int) -> date:
    """Everything in the ledger came so many days ago, as its partitions have it."""
    today = one(rows(database, "select ledger.today()"))[0]
    day = today - timedelta(days=days)
    execute(database, "select ledger.make_event_partitions(%s, 1)", day)
    for table in ("ledger.events", "ledger.stream_days", "ledger.receipts"):
        execute(database, f"update {table} set day = %s", day)
    execute(
        database,
        "update ledger.ingest_batches set committed_at = committed_at - make_interval(days => %s)",
        days,
    )
    execute(database, "update ledger.conflicts set first_at = first_at - make_interval(days => %s)", days)
    return today - timedelta(days=days)
