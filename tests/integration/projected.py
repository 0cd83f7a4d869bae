"""Sessions as ingest leaves them in the projections, made of events without a broker, and what the views show of their sums."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import psycopg

from turnledger.contract.times import utc_text
from turnledger.fold.dedupe import dedupe
from turnledger.fold.document import contribution_row, document
from turnledger.fold.findings import grouped
from turnledger.fold.model import Row, SessionFold
from turnledger.fold.rollup import PriceFunction
from turnledger.fold.session import fold_session
from turnledger.pricing import Price, packaged, price_call
from turnledger.store import copying, write

PRICE = partial(price_call, packaged())
SLOT = "projection_a"
Event = dict[str, Any]


# --- events -----------------------------------------------------------------------------------------------------------------------


def call(session: str, seq: int, message: str | None, tokens: int, **more: Any) -> Event:
    """One finished model call of turn ``t``; ``tokens`` in, 5 out."""
    usage = more.pop("usage", {"input": tokens, "output": 5, "cache_read": 0})
    payload = {
        "provider": "anthropic",
        "model": "claude-opus-4-5",
        "stop_reason": "end_turn",
        "latency_ms": 40,
        "usage": usage,
        **more.pop("payload", {}),
    }
    if message is not None:
        payload["message_id"] = message
    return {
        "session_id": session,
        "seq": seq,
        "type": "model_call.completed",
        "turn_id": "t",
        "occurred_at": f"2026-05-01T10:{seq:02d}:00Z",
        "payload": payload,
        **more,
    }


def plain(session: str, seq: int, kind: str, payload: Event | None = None, **more: Any) -> Event:
    return {
        "session_id": session,
        "seq": seq,
        "type": kind,
        "turn_id": "t",
        "occurred_at": f"2026-05-01T10:{seq:02d}:00Z",
        "payload": payload or {},
        **more,
    }


def started(session: str, **payload: Any) -> Event:
    return {
        "session_id": session,
        "seq": 0,
        "type": "session.started",
        "occurred_at": "2026-05-01T10:00:00Z",
        "payload": payload,
    }


def turn(session: str, *inside: Event) -> list[Event]:
    last = max(event["seq"] for event in inside) + 1
    return [
        plain(session, 1, "turn.started", {"input_preview": "go"}),
        *inside,
        plain(session, last, "turn.completed", {"status": "completed"}),
    ]


def forked(session: str, parent: str, at_seq: int | None) -> Event:
    payload: Event = {"parent_session_id": parent}
    if at_seq is not None:
        payload["at_seq"] = at_seq
    return {
        "session_id": session,
        "seq": 0,
        "type": "session.forked",
        "occurred_at": "2026-05-01T12:00:00Z",
        "payload": payload,
    }


def c5() -> dict[str, list[Event]]:
    """Parent calls 10, 20, 30; a fork copies them and adds 5; resumed twice (contract 16)."""
    copied = [(2, "m1", 10), (3, "m2", 20), (4, "m3", 30)]
    own = (5, "m4", 5)
    sessions = {"p": [started("p"), *turn("p", *(call("p", *one) for one in copied))]}
    for name, parent in (("f", "p"), ("r1", "f"), ("r2", "r1")):
        sessions[name] = [
            forked(name, parent, None),
            *turn(name, *(call(name, *one) for one in (*copied, own))),
        ]
    return sessions


def numbered_fork() -> dict[str, list[Event]]:
    """A fork that holds its parent's calls by their numbers alone, up to position 3; a sub-agent that counts from 1 too."""
    parent = [
        call("np", 2, None, 7, model_call_id="1"),
        call("np", 3, None, 8, model_call_id="2"),
        call("np", 4, None, 9, model_call_id="3"),
    ]
    copy = [
        call("nf", 2, None, 7, model_call_id="1"),
        call("nf", 3, None, 8, model_call_id="2"),
        call("nf", 4, None, 90, model_call_id="3"),
    ]
    sub = [call("sub", 2, None, 70, model_call_id="1", parent_session_id="np")]
    inherited = [call("heir", 2, None, 9, model_call_id="3", parent_session_id="np", provenance="inherited")]
    return {
        "np": [started("np"), *turn("np", *parent)],
        "nf": [forked("nf", "np", 3), *turn("nf", *copy)],
        "sub": [started("sub"), *turn("sub", *sub)],
        "heir": [started("heir"), *turn("heir", *inherited)],
    }


def varied() -> dict[str, list[Event]]:
    """Tools, MCP, failures, an unknown model, a running total, eval turns, decisions, something outside turns, another tenant."""
    tools = [
        plain(
            "v",
            2,
            "tool_call.requested",
            {"tool_name": "bash", "call_tool_origin": "native"},
            tool_call_id="a",
        ),
        plain(
            "v",
            3,
            "tool_call.completed",
            {"status": "ok", "duration_ms": 7, "bytes_sent": 3},
            tool_call_id="a",
        ),
        plain(
            "v",
            4,
            "tool_call.requested",
            {"tool_name": "srv__x", "call_tool_origin": "mcp", "server_name": "srv"},
            tool_call_id="b",
        ),
        plain("v", 5, "tool_call.completed", {"status": "error", "bytes_received": 9}, tool_call_id="b"),
        plain("v", 6, "tool_call.requested", {"tool_name": "rm"}, tool_call_id="c"),
        plain("v", 7, "tool_call.denied", {"by": "policy"}, tool_call_id="c"),
        plain(
            "v",
            8,
            "model_call.failed",
            {"provider": "anthropic", "error_class": "rate_limit"},
            model_call_id="x",
        ),
        call("v", 9, "n1", 500, payload={"model": "unheard-of"}),
        call(
            "v", 10, "n2", 1000, usage={"input": 1000, "output": 50, "cache_read": 200, "cache_write_1h": 10}
        ),
        plain("v", 11, "net.requested", {"domain": "example.org", "port": 443, "decision": "denied"}),
    ]
    total = {"input": 60, "output": 6, "cache_read": 20, "total": 66}
    thread = [
        plain(
            "w",
            2,
            "usage.reported",
            {
                "provider": "openai",
                "model": "gpt-5.1",
                "counter_kind": "cumulative",
                "usage": total,
                "start_known": True,
            },
        ),
    ]
    evaluated = [{**event, "kind": "eval", "run_id": "r"} for event in turn("v2", call("v2", 2, "e1", 77))]
    return {
        "v": [started("v", name="varied", agent="a"), *turn("v", *tools)],
        "w": [started("w"), *turn("w", *thread)],
        "v2": [started("v2"), *evaluated, {**call("v2", 20, "l1", 5), "turn_id": None}],
    }  # fmt: skip


def lines(sessions: dict[str, list[Event]], *, tenant: str | None = None) -> list[bytes]:
    added = {} if tenant is None else {"tenant": tenant}
    return [json.dumps({**event, **added}).encode() for events in sessions.values() for event in events]


def meanwhile(happens: Callable[[], object]) -> PriceFunction:
    """Prices; while the first one is asked for, something else happens."""
    waits = [happens]

    def price(*given: Any, **named: Any) -> Price:
        if waits:
            waits.pop()()
        return PRICE(*given, **named)

    return price


# --- the projections, as ingest leaves them ----------------------------------------------------------------------------------------


def project(connection: psycopg.Connection[Any], records: Sequence[bytes]) -> None:
    """Write the fold of these records as the ingest worker would, and mark the sessions. What was projected of them before is replaced."""
    with connection.transaction():
        for (tenant, session_id), events in dedupe(enumerate(records, 1)).sessions.items():
            session_no = _session_no(connection, tenant, session_id)
            fold = fold_session(tenant, session_id, events)
            _put(connection, session_no, fold, {one.turn.key: at for at, one in enumerate(fold.turns, 1)})
            connection.execute("insert into ledger.marks (session_no) values (%s)", (session_no,))


class Projector:
    """The same as the worker does it for a session that goes on: turns keep their numbers, and marks name those that moved."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.numbers: dict[int, dict[str, int]] = {}
        self.written: dict[int, dict[int | None, list[Any]]] = {}

    def project(self, records: Sequence[bytes]) -> dict[int, list[int]]:
        """The turns that moved, by session_no."""
        moved: dict[int, list[int]] = {}
        with self.connection.transaction():
            for (tenant, session_id), events in dedupe(enumerate(records, 1)).sessions.items():
                session_no = _session_no(self.connection, tenant, session_id)
                fold = fold_session(tenant, session_id, events)
                numbers = self.numbers.setdefault(session_no, {})
                for one in fold.turns:
                    numbers.setdefault(one.turn.key, len(numbers) + 1)
                rows = _put(self.connection, session_no, fold, numbers)
                before = self.written.get(session_no, {})
                moved[session_no] = sorted(
                    number
                    for number in {*before, *rows}
                    if number is not None and before.get(number) != rows.get(number)
                )
                self.written[session_no] = rows
                self.connection.execute(
                    "insert into ledger.marks (session_no, turns, slot) values (%s, %s::int4[], %s)",
                    (session_no, moved[session_no], SLOT),
                )
        return moved


def lengthen(connection: psycopg.Connection[Any], session_id: str, turns: int) -> int:
    """Give a session with one projected turn so many like it, under keys of their own; its session_no. No marks."""
    ((session_no,),) = connection.execute(
        "select session_no from ledger.sessions where session_id = %s", (session_id,)
    ).fetchall()
    for table, key in (
        ("turns", None),
        ("turn_records", None),
        ("model_calls", "call_key"),
        ("tool_calls", "tool_key"),
    ):
        described = connection.execute(f"select * from {SLOT}.{table} limit 0").description or []  # type: ignore[call-overload]
        said = {"turn_no": "n"}
        said |= {name: f"t.{name} || '-' || n" for name in ("turn_key", "turn_id", "message_id", key)}
        listed = ", ".join(said.get(column.name, f"t.{column.name}") for column in described)
        connection.execute(
            f"insert into {SLOT}.{table} select {listed} from {SLOT}.{table} t, generate_series(2, %s) n where t.session_no = %s",  # type: ignore[call-overload]
            (turns, session_no),
        )
    return int(session_no)


def _session_no(connection: psycopg.Connection[Any], tenant: str, session_id: str) -> int:
    known = connection.execute(
        "select session_no from ledger.sessions where tenant = %s and session_id = %s", (tenant, session_id)
    ).fetchone()
    if known is None:
        known = connection.execute(
            "insert into ledger.sessions (tenant, session_id, home_topic, home_partition) values (%s, %s, 'x', 0) returning session_no",
            (tenant, session_id),
        ).fetchone()
    assert known is not None
    return int(known[0])


def _put(
    connection: psycopg.Connection[Any], session_no: int, fold: SessionFold, numbers: dict[str, int]
) -> dict[int | None, list[Any]]:
    """Replace all rows of a session; what was written, by the number of its turn."""
    rows: dict[str, list[bytes]] = {table: [] for table in write.PROJECTED}
    written: dict[int | None, list[Any]] = {}
    rows["session_facts"].append(write.FACTS.encode(session_no, fold.facts))
    places = [(numbers[one.turn.key], one) for one in fold.turns]
    for turn_no, one in places:
        rows["turns"].append(write.TURNS.encode(session_no, turn_no, 1, one.digest, one.flat))
        rows["turn_records"].append(
            write.TURN_RECORDS.encode(session_no, turn_no, 1, one.digest, one.body, {})
        )
        written[turn_no] = [rows["turns"][-1], rows["turn_records"][-1]]
    groups: list[tuple[int | None, Any]] = [*places, (None, fold)]
    for turn_no, held in groups:
        made = {
            "model_calls": [write.MODEL_CALLS.encode(session_no, turn_no, row) for row in held.calls],
            "tool_calls": [write.TOOL_CALLS.encode(session_no, turn_no, row) for row in held.tools],
            "usage_parts": [
                write.USAGE_PARTS.encode(session_no, turn_no, contribution_row(part))
                for part in held.parts
                if part.call_key is None
            ],
            "findings": [
                write.FINDINGS.encode(session_no, turn_no, "fold", row)
                for row in grouped(fold.tenant, fold.session_id, held.findings)
            ],
        }
        for table, encoded in made.items():
            rows[table] += encoded
        written.setdefault(turn_no, []).append(made)
    for table, encoded in rows.items():
        connection.execute(f"delete from {SLOT}.{table} where session_no = %s", (session_no,))
        copying.copy(connection, f"{SLOT}.{table}", write.PROJECTED[table].names, encoded)
    connection.execute(
        "delete from ledger.gaps where stream_no in (select stream_no from ledger.streams where session_no = %s)",
        (session_no,),
    )
    for gap in fold.gaps:
        stream = connection.execute(
            "insert into ledger.streams (session_no, producer, epoch, stream) values (%s, %s, %s, %s) "
            "on conflict (session_no, producer, epoch, stream) do update set stream = excluded.stream returning stream_no",
            (session_no, gap["producer"], gap["epoch"], gap["stream"]),
        ).fetchone()
        assert stream is not None
        connection.execute(
            "insert into ledger.gaps (stream_no, from_seq, to_seq, state, missing) values (%s, %s, %s, %s, %s)",
            (*stream, gap["from_seq"], gap["to_seq"], gap["state"], gap["to_seq"] - gap["from_seq"] + 1),
        )
    return written


# --- what is compared --------------------------------------------------------------------------------------------------------------

TABLES = ("sessions", "ai_usage", "tool_usage", "mcp_usage", "usage_hourly", "model_calls")


def shown(connection: psycopg.Connection[Any], table: str) -> list[Row]:
    """The rows of a view in the form of ``--json``."""
    with connection.cursor(binary=True) as cursor:
        cursor.execute(f"select * from turnledger.{table}")  # type: ignore[call-overload]  # a name of TABLES
        described = cursor.description or []
        return [
            {
                column.name: utc_text(value)
                if column.type_display == "timestamptz" and value is not None
                else value
                for column, value in zip(described, row, strict=True)
            }
            for row in cursor
        ]


def unordered(rows: Sequence[Row]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)


def assert_equal_to_fold(
    connection: psycopg.Connection[Any], records: Sequence[bytes], price: PriceFunction = PRICE
) -> dict[str, Any]:
    expected = document(records, price)
    for table in TABLES:
        named = (
            expected[table][0].keys() if expected[table] else set[str]()
        )  # views have other names beside the contract's
        rows = [{name: row[name] for name in named} for row in shown(connection, table)]
        assert unordered(rows) == unordered(expected[table]), table
    records_of = {
        (row["tenant"], row["session_id"], row["turn_key"]): row["record"]
        for row in shown(connection, "turns")
    }
    assert len(records_of) == len(expected["turns"])
    for one in expected["turns"]:
        assert records_of[one["tenant"], one["session_id"], one["turn_key"]] == one
    ours = ("unpriced_model", "fork_cycle", "inherited_without_source")
    found = [row for row in shown(connection, "findings") if row["check"] in ours]
    assert unordered(found) == unordered([row for row in expected["findings"] if row["check"] in ours])
    assert connection.execute("select count(*) from ledger.marks").fetchone() == (0,)
    return expected
