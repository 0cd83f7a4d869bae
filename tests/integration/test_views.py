"""The views: contract 17's names and natural keys, both generations, overlays only where they still fit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.stack import databases, servers
from turnledger.fold import columns

KEYS = ["tenant", "session_id"]
POSITION = [*KEYS, "producer", "epoch", "stream", "seq", "receipt_key"]
TOKENS = [
    "input_uncached_tokens",
    "cache_read_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "cache_write_other_tokens",
    "output_tokens",
    "reasoning_tokens",
    "total_input_tokens",
]

# Names that contract 11, 12 and 17 promise. Views may show more, never fewer.
PROMISED: dict[str, list[str]] = {
    "events": [*POSITION, "type", "occurred_at", "payload"],
    "turns": [*KEYS, "turn_key", "status", "grade", "revision", "digest", "record", "cost_micro_usd", *TOKENS],
    "model_calls": [*KEYS, "turn_key", "model_call_id", "provider", "model", "inherited", "cost_micro_usd", "price_id", *TOKENS],
    "model_items": [*KEYS, "turn_key", "item_type", "content"],
    "tool_calls": [*KEYS, "turn_key", "call_id", "tool_name", "origin", "pairing", "status"],
    "tool_responses": [*KEYS, "turn_key", "tool_call_id", "model_call_id"],
    "net_events": [*POSITION, "domain", "decision", "status_code"],
    "dns_events": [*POSITION, "qname", "rcode"],
    "fs_events": [*POSITION, "action", "path"],
    "exec_events": [*POSITION, "exec_id", "command", "exit_code"],
    "audit_events": [*POSITION, "pid", "exe", "argv"],
    "credential_events": [*POSITION, "source", "reference", "outcome"],
    "security_rule_events": [*POSITION, "rule_id", "rule_action"],
    "security_decisions": [*POSITION, "stage", "effective"],
    "security_asks": [*POSITION, "ask_id", "status"],
    "event_bodies": [*KEYS, "producer", "epoch", "stream", "seq", "for_event_id", "sha256"],
    "sessions": [
        *KEYS, "name", "agent", "mode", "status", "kind", "created_at", "last_activity_at", "stopped_at", "models", "message_count",
        "turn_count", "total_requests", "allowed_requests", "denied_requests", "error_requests", "model_call_count", "failed_model_calls",
        *TOKENS, "usage_reported", "usage_total", "cost_micro_usd", "unpriced_calls", "total_tool_calls", "tool_errors",
        "total_file_events", "exec_count", "audit_event_count", "guard_blocks", "guard_coercions", "open_gaps", "conflicts", "dead_letters",
        "grade", "detail",
    ],
    "ai_usage": [*KEYS, "provider", "model", "kind", "call_count", "failed_count", *TOKENS, "cost_micro_usd", "unpriced_calls", "total_duration_ms"],
    "tool_usage": [*KEYS, "tool_name", "origin", "kind", "call_count", "error_count", "denied_count", "total_bytes", "total_duration_ms"],
    "mcp_usage": [*KEYS, "server_name", "tool_name", "kind", "call_count", "error_count", "denied_count", "total_bytes", "total_duration_ms"],
    "usage_hourly": ["tenant", "hour", "provider", "model", "calls", *TOKENS, "cost_micro_usd", "unpriced_calls", "sessions"],
    "gaps": [*KEYS, "producer", "epoch", "stream", "from_seq", "to_seq", "state"],
    "conflicts": [*POSITION, "kept_sha256", "lost_sha256", "count", "first_position", "last_position"],
    "dead_letters": ["topic", "partition", "position", "reason", "field", "detail", *KEYS, "id", "outcome", "requeue_batch", "fixed", "received_sha256"],
    "ingest_batches": ["topic", "partition", "from_offset", "to_offset", "records", "accepted", "duplicates", "conflicts", "dead"],
    "topic_replays": [
        "id", "topic", "asked_from", "asked_to", "partitions", "tenant", "session_id", "started_by", "started_at", "finished_at",
        "partition", "from_offset", "to_offset", "next_offset", "records", "known", "dead", "requeued", "filled", "unverified",
        "contradictions", "unaccounted", "others",
    ],
    "requeue_batches": ["batch_no", "topic", "partition", "letters", "accepted", "duplicates", "conflicts", "requeued_by", "committed_at"],
    "partition_stops": ["topic", "partition", "at_offset", "dead", "share", "stopped_at", "resumed_at", "resumed_by", "resumed_why"],
    "accounts": ["topic", "partition", "records", "accepted", "duplicates", "conflicts", "dead", "requeued"],
    "redactions": [*POSITION, "redactions"],
    "call_prices": [*KEYS, "call_key", "part_key", "run", "reprice", "cost_micro_usd", "price_id", "catalog_version", "unpriced", "current"],
    "price_catalogues": ["version", "published_at", "source", "own", "by", "why", "at"],
    "reprices": ["run", "name", "version", "since", "until", "sessions", "by", "why"],
    "vacuums": [*KEYS, "batch_no", "events", "late", "days", "turns", "run", "vacuumed_by", "why", "vacuumed_at"],
    "retention_runs": ["run", "state", "run_by", "why", "rules", "chosen", "vacuumed", "left_alone", "events", "days", "started_at", "ended_at"],
    "archives": ["tenant", "day", "url", "events", "sessions", "digest", "archived_by", "archived_at"],
    "findings": [*KEYS, "check", "severity", "count", "rows"],
    # Under the harness ledger's own names (docs/sql.md).
    "session_summary": [
        "id", *KEYS, "mode", "status", "created_at", "stopped_at", "forked_from", "total_requests", "allowed_requests", "denied_requests",
        "total_input_tokens", "total_output_tokens", "total_estimated_cost", "total_tool_calls", "total_file_events", "exec_count",
        "audit_event_count",
    ],
    "substitution_events": [*KEYS, "id", "event_id", "timestamp", "material_class", "source", "substitution_ref", "outcome", "provider"],
    "security_decision_events": [*KEYS, "id", "event_id", "timestamp_unix_ms", "stage", "rule_id",
        "previous_decision", "requested_decision", "effective_decision"],
    "security_ask_events": [*KEYS, "id", "event_id", "timestamp_unix_ms", "ask_id", "rule_id", "status", "rule_json", "event_json"],
    "event_body_blobs": [*KEYS, "event_id", "source_table", "direction", "content_type", "original_bytes", "stored_bytes", "truncated",
        "body_hash", "body", "created_at"],
}  # fmt: skip

# And what the tables of the harness ledger call their columns, where ours are called otherwise.
ALSO: dict[str, list[str]] = {
    "model_calls": [
        "id",
        "timestamp",
        "turn_id",
        "input_tokens",
        "output_tokens",
        "estimated_cost_usd",
        "duration_ms",
        "usage_details",
    ],
    "tool_calls": [
        "id",
        "timestamp",
        "turn_id",
        "model_call_id",
        "decision",
        "call_index",
        "duration_ms",
        "method",
        "transport",
        "server_name",
    ],
    "tool_responses": ["call_id"],
    "fs_events": ["id", "timestamp", "directory", "name", "size"],
    "dns_events": ["id", "timestamp", "upstream_resolver_ms"],
    "security_rule_events": ["id", "timestamp", "timestamp_unix_ms", "rule_json", "event_json"],
    **{
        view: ["id", "timestamp"]
        for view in ("net_events", "exec_events", "audit_events", "credential_events")
    },
}


@pytest.fixture(scope="module")
def shared(stack: servers.Servers, database_template: str) -> Iterator[str]:
    """One database for all tests here: each takes back what it wrote."""
    url = databases.create(stack.database_url, template=database_template)
    yield url
    databases.drop(stack.database_url, url)


@pytest.fixture
def link(shared: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(shared) as connection:
        yield connection
        connection.rollback()


def rows(link: psycopg.Connection[Any], query: str) -> list[dict[str, Any]]:
    with link.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        return cursor.execute(query).fetchall()  # type: ignore[arg-type]


def session(link: psycopg.Connection[Any], session_id: str = "s", tenant: str = "default") -> int:
    row = link.execute(
        "insert into ledger.sessions (tenant, session_id, home_topic, home_partition) values (%s, %s, 't', 0) returning session_no",
        (tenant, session_id),
    ).fetchone()
    assert row is not None
    return int(row[0])


def stream(link: psycopg.Connection[Any], session_no: int) -> int:
    row = link.execute(
        "insert into ledger.streams (session_no, producer, epoch, stream) values (%s, 'harness', 2, 'ledger') returning stream_no",
        (session_no,),
    ).fetchone()
    assert row is not None
    return int(row[0])


def event(link: psycopg.Connection[Any], stream_no: int, seq: int, raw: bytes, kind: str = "x") -> None:
    link.execute(
        "insert into ledger.events (day, batch_no, stream_no, seq, kafka_offset, type, raw) values (ledger.today(), 1, %s, %s, 77, %s, %s)",
        (stream_no, seq, kind, raw),
    )


@pytest.mark.parametrize("view", sorted(PROMISED))
def test_a_view_of_an_empty_database_answers_with_the_promised_columns(
    link: psycopg.Connection[Any], view: str
) -> None:
    cursor = link.execute(f"select * from turnledger.{view}")  # type: ignore[arg-type]
    assert cursor.fetchall() == []
    names = [column.name for column in cursor.description or []]
    assert [name for name in [*PROMISED[view], *ALSO.get(view, [])] if name not in names] == []
    assert [
        name for name in names if name in columns.HIDDEN or (name.endswith("_no") and name != "batch_no")
    ] == []


def test_there_is_no_other_view(link: psycopg.Connection[Any]) -> None:
    found = link.execute("select table_name from information_schema.views where table_schema = 'turnledger'")
    assert {name for (name,) in found} == set(PROMISED)


def test_an_event_shows_its_payload_and_the_defaults_of_its_envelope(link: psycopg.Connection[Any]) -> None:
    numbered = stream(link, session(link))
    event(
        link,
        numbered,
        3,
        b'{"session_id":"s","seq":3,"type":"x","turn_id":"","turn_index":2.0,"payload":{"n":1e2}}',
    )
    (row,) = rows(link, "select * from turnledger.events")
    assert (row["tenant"], row["session_id"], row["producer"], row["epoch"], row["stream"]) == (
        "default",
        "s",
        "harness",
        2,
        "ledger",
    )
    assert (row["seq"], row["receipt_key"], row["position"]) == (3, None, 77)
    assert (row["schema_version"], row["kind"], row["provenance"]) == (1, "live", "observed")
    assert (row["turn_id"], row["turn_index"]) == (None, 2)
    assert row["payload"] == {"n": 100}
    assert row["raw"].endswith(b'{"n":1e2}}')


def test_an_event_without_a_number_shows_its_receipt_key(link: psycopg.Connection[Any]) -> None:
    number = session(link)
    numbered = stream(link, number)
    event(link, numbered, -1, b'{"session_id":"s","receipt_key":"span-1","type":"net.requested"}')
    link.execute(
        "insert into projection_a.net_events (session_no, stream_no, seq, domain) values (%s, %s, -1, 'a.example')",
        (number, numbered),
    )
    (row,) = rows(link, "select seq, receipt_key, payload from turnledger.events")
    assert row == {"seq": None, "receipt_key": "span-1", "payload": {}}
    (row,) = rows(link, "select seq, receipt_key, domain from turnledger.net_events")
    assert row == {"seq": None, "receipt_key": "span-1", "domain": "a.example"}


def test_a_number_that_postgres_cannot_hold_does_not_break_the_view(link: psycopg.Connection[Any]) -> None:
    numbered = stream(link, session(link))
    event(link, numbered, 0, b'{"session_id":"s","seq":0,"type":"x","payload":{"n":1e-20000}}')
    event(link, numbered, 1, b'{"session_id":"s","seq":1,"type":"x","payload":{"n":1}}')
    found = rows(link, "select seq, payload from turnledger.events order by seq")
    assert [row["seq"] for row in found] == [0, 1]
    assert found[1]["payload"] == {"n": 1}


def turn(
    link: psycopg.Connection[Any],
    slot: str,
    session_no: int,
    *,
    digest: str,
    record: dict[str, Any],
    **flat: Any,
) -> None:
    names = ["session_no", "turn_no", "digest", *flat]
    link.execute(
        f"insert into {slot}.turns ({', '.join(names)}) values ({', '.join(['%s'] * len(names))})",  # type: ignore[arg-type]
        [session_no, 1, digest, *flat.values()],
    )
    link.execute(
        f"insert into {slot}.turn_records (session_no, turn_no, revision, digest, record) values (%s, 1, 1, %s, %s)",  # type: ignore[arg-type]
        (session_no, digest, json.dumps(record).encode()),
    )


RECORD = {"turn_key": "t1", "grade": "complete", "usage": {"output": 60}, "status": "completed"}


def test_a_turn_without_overlay_shows_what_the_fold_said(link: psycopg.Connection[Any]) -> None:
    turn(
        link,
        "projection_a",
        session(link),
        digest="d1",
        record=RECORD,
        turn_key="t1",
        grade="complete",
        output_tokens=60,
    )
    (row,) = rows(link, "select * from turnledger.turns")
    assert (row["turn_key"], row["grade"], row["output_tokens"], row["cost_micro_usd"]) == (
        "t1",
        "complete",
        60,
        None,
    )
    assert row["record"] == {**RECORD, "revision": 1, "digest": "d1"}


def overlay(link: psycopg.Connection[Any], session_no: int, digest: str) -> None:
    link.execute(
        "insert into projection_a.turn_overlay (session_no, turn_no, digest, output_tokens, cost_micro_usd, grade, overlay)"
        " values (%s, 1, %s, 5, 700, 'disputed', %s)",
        (
            session_no,
            digest,
            Jsonb({"usage": {"output": 5}, "cost_micro_usd": 700, "inherited_usage": {"output": 55}}),
        ),
    )


def test_ownership_cost_and_grade_are_laid_over_record_and_figures(link: psycopg.Connection[Any]) -> None:
    number = session(link)
    turn(
        link,
        "projection_a",
        number,
        digest="d1",
        record=RECORD,
        turn_key="t1",
        grade="complete",
        output_tokens=60,
        reasoning_tokens=9,
    )
    overlay(link, number, "d1")
    (row,) = rows(link, "select * from turnledger.turns")
    assert (row["grade"], row["output_tokens"], row["reasoning_tokens"], row["cost_micro_usd"]) == (
        "disputed",
        5,
        None,
        700,
    )
    assert row["record"] == {
        "turn_key": "t1",
        "grade": "disputed",
        "status": "completed",
        "usage": {"output": 5},
        "inherited_usage": {"output": 55},
        "cost_micro_usd": 700,
        "revision": 1,
        "digest": "d1",
    }  # fmt: skip


def test_an_overlay_of_another_digest_is_not_laid_over(link: psycopg.Connection[Any]) -> None:
    number = session(link)
    turn(
        link,
        "projection_a",
        number,
        digest="d2",
        record=RECORD,
        turn_key="t1",
        grade="complete",
        output_tokens=60,
    )
    overlay(link, number, "d1")
    (row,) = rows(link, "select * from turnledger.turns")
    assert (row["grade"], row["output_tokens"], row["cost_micro_usd"]) == ("complete", 60, None)
    assert row["record"] == {**RECORD, "revision": 1, "digest": "d2"}


def test_the_pointer_alone_decides_which_generation_every_view_shows(link: psycopg.Connection[Any]) -> None:
    number = session(link)
    for slot, digest in (("projection_a", "a"), ("projection_b", "b")):
        turn(link, slot, number, digest=digest, record=RECORD, turn_key="t1")
        link.execute(f"insert into {slot}.sessions (session_no, name) values (%s, %s)", (number, slot))  # type: ignore[arg-type]
        link.execute(f"insert into {slot}.usage_hourly (tenant, model) values ('default', %s)", (slot,))  # type: ignore[arg-type]

    def shown() -> tuple[list[str], list[str], list[str]]:
        return (
            [row["digest"] for row in rows(link, "select digest from turnledger.turns")],
            [row["name"] for row in rows(link, "select name from turnledger.sessions")],
            [row["model"] for row in rows(link, "select model from turnledger.usage_hourly")],
        )

    assert shown() == (["a"], ["projection_a"], ["projection_a"])
    link.execute("update turnledger.active set generation = 'b'")
    assert shown() == (["b"], ["projection_b"], ["projection_b"])
    link.execute("update turnledger.active set generation = 'a'")
    assert shown() == (["a"], ["projection_a"], ["projection_a"])


def test_the_other_generation_is_never_executed(link: psycopg.Connection[Any]) -> None:
    number = session(link)
    for slot in ("projection_a", "projection_b"):
        turn(link, slot, number, digest="d", record=RECORD, turn_key="t1")
    link.execute("update turnledger.active set generation = 'b'")
    plan = "\n".join(
        line
        for (line,) in link.execute("explain (analyze, costs off, timing off) select * from turnledger.turns")
    )
    first, second = plan.split("One-Time Filter")[1:]
    assert "'a'" in first.splitlines()[0]
    assert "on turns t (never executed)" in first
    assert "'b'" in second.splitlines()[0]
    assert "on turns t_1 (actual rows=1" in second


def test_flat_questions_over_all_turns_do_not_read_the_records(link: psycopg.Connection[Any]) -> None:
    plan = "\n".join(
        line
        for (line,) in link.execute(
            "explain (costs off) select status, sum(output_tokens) from turnledger.turns group by 1"
        )
    )
    assert "turn_records" not in plan


def test_calls_show_who_owns_them_and_what_they_cost(link: psycopg.Connection[Any]) -> None:
    number = session(link)
    for key in ("c1", "c2"):
        link.execute(
            "insert into projection_a.model_calls (session_no, turn_no, call_key, model) values (%s, 1, %s, 'm')",
            (number, key),
        )
    link.execute(
        "insert into projection_a.call_overlay (session_no, call_key, inherited, owner_session_id, cost_micro_usd, price_id)"
        " values (%s, 'c1', true, 'parent', 12, 'p')",
        (number,),
    )
    found = rows(
        link,
        "select call_key, inherited, owner_session_id, cost_micro_usd, price_id from turnledger.model_calls order by 1",
    )
    assert [tuple(row.values()) for row in found] == [
        ("c1", True, "parent", 12, "p"),
        ("c2", None, None, None, None),
    ]


def test_findings_of_one_check_are_one_row(link: psycopg.Connection[Any]) -> None:
    number = session(link)
    for turn_no, count, found in ((1, 2, [{"n": 1}, {"n": 2}]), (2, 1, [{"n": 3}]), (None, 1, [])):
        link.execute(
            'insert into projection_a.findings (session_no, turn_no, source, "check", severity, count, rows) values (%s, %s, %s, %s, %s, %s, %s)',
            (number, turn_no, "fold", "null_model", "warning", count, Jsonb(found)),
        )
    assert rows(link, "select * from turnledger.findings") == [
        {
            "tenant": "default",
            "session_id": "s",
            "check": "null_model",
            "severity": "warning",
            "count": 4,
            "rows": [{"n": 1}, {"n": 2}, {"n": 3}],
        }
    ]


def test_rows_of_findings_stand_in_the_order_of_their_turns(link: psycopg.Connection[Any]) -> None:
    number = session(link)
    # The second turn of the session was written first, and got the first number.
    for turn_no, key, place in ((1, "second", b"\x02"), (2, "first", b"\x01")):
        link.execute(
            "insert into projection_a.turns (session_no, turn_no, digest, turn_key, order_key) values (%s, %s, 'd', %s, %s)",
            (number, turn_no, key, place),
        )
        link.execute(
            'insert into projection_a.findings (session_no, turn_no, source, "check", severity, count, rows)'
            " values (%s, %s, 'fold', 'null_model', 'warning', 1, %s)",
            (number, turn_no, Jsonb([{"turn_key": key}])),
        )
    (found,) = rows(link, "select * from turnledger.findings")
    assert found["rows"] == [{"turn_key": "first"}, {"turn_key": "second"}]


def test_the_same_session_id_of_two_tenants_stays_apart(link: psycopg.Connection[Any]) -> None:
    for tenant, name in (("x", "one"), ("y", "two")):
        link.execute(
            "insert into projection_a.sessions (session_no, name) values (%s, %s)",
            (session(link, "s", tenant), name),
        )
    found = rows(link, "select tenant, session_id, name from turnledger.sessions order by tenant")
    assert [tuple(row.values()) for row in found] == [("x", "s", "one"), ("y", "s", "two")]


def test_conflicts_and_gaps_show_natural_keys(link: psycopg.Connection[Any]) -> None:
    number = session(link)
    numbered = stream(link, number)
    link.execute(
        "insert into ledger.conflicts (session_no, stream_no, seq, kept_sha256, lost_sha256, count, topic, kept_partition, kept_offset,"
        " first_partition, first_offset, last_partition, last_offset) values (%s, %s, 7, '\\xaa', '\\xbb', 2, 't', 0, 1, 0, 2, 0, 3)",
        (number, numbered),
    )
    link.execute(
        "insert into ledger.gaps (stream_no, from_seq, to_seq, state, missing) values (%s, 3, 5, 'open', 3)",
        (numbered,),
    )
    (conflict,) = rows(link, "select * from turnledger.conflicts")
    assert (conflict["session_id"], conflict["epoch"], conflict["seq"]) == ("s", 2, 7)
    assert (conflict["kept_sha256"], conflict["lost_sha256"], conflict["count"]) == ("aa", "bb", 2)
    assert (conflict["kept_position"], conflict["first_position"], conflict["last_position"]) == (1, 2, 3)
    (gap,) = rows(link, "select * from turnledger.gaps")
    assert (
        gap["session_id"],
        gap["stream"],
        gap["from_seq"],
        gap["to_seq"],
        gap["state"],
        gap["missing"],
    ) == ("s", "ledger", 3, 5, "open", 3)


@pytest.mark.parametrize("page", ["duplicates-gaps-conflicts.md"])
def test_the_questions_that_a_page_asks_are_sql_that_the_views_answer(
    link: psycopg.Connection[Any], page: str
) -> None:
    text = (servers.ROOT / "docs" / page).read_text()
    questions = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    assert questions
    for question in questions:
        for statement in filter(str.strip, question.split(";")):
            assert link.execute(statement).fetchall() == []
