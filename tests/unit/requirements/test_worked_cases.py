"""Contract 16 in one place: every worked case as events and all that its right column says, from the object of ``turnledger fold``.

C10's reprice run and C24's vacuumed session belong to the rollups and the doctor, and are not here. What only a database remembers stands in
``tests/integration/test_ingest.py``: that C9 raises the revision once, that C23's hole is remembered as filled late.
"""

from __future__ import annotations

import json
import re
from itertools import permutations
from pathlib import Path
from typing import Any

from tests.unit.contract_cases.envelopes import (
    Case,
    Envelope,
    at,
    done,
    ev,
    fold,
    found,
    numbered,
    report,
    table,
    turn,
)
from turnledger.contract.canonical import content_hash
from turnledger.fold.document import Document, document
from turnledger.pricing import Price, packaged, price_call

TOTALS = "turns/*/usage/total_input"
FIVE = turn(
    "t",
    ev("tool_call.requested", tool="x", tool_name="bash"),
    ev("tool_call.completed", tool="x", status="ok"),
    done({"input": 10, "output": 5, "cache_read": 0}, call="1"),
)
SAME = {"input": 10, "output": 5, "cache_read": 2, "cache_write": 3, "reasoning": 2}


def usage(**known: int) -> dict[str, int | None]:
    """The first turn's usage: these figures, and nothing else known."""
    names = (
        "input_uncached",
        "cache_read",
        "cache_write_5m",
        "cache_write_1h",
        "cache_write_other",
        "output",
        "reasoning",
        "total_input",
        "reported",
        "total",
    )
    return {f"turns/0/usage/{name}": known.get(name) for name in names}


def only(**checks: int) -> dict[str, dict[str, int]]:
    """These findings and no others, but for the missing price of the invented model."""
    return {"checks": checks}


def thread(total: Any, last: Any = None, **given: Any) -> Envelope:
    """A total of the thread ``th``: of the input alone, or input/output/cached/reasoning."""

    def told(value: Any) -> dict[str, int]:
        names = ("input", "output", "cache_read", "reasoning")
        return {"input": value} if isinstance(value, int) else dict(zip(names, value, strict=True))

    more = {} if last is None else {"last": told(last)}
    return report(
        told(total),
        counter_kind="cumulative",
        provider="openai",
        model="m",
        token_convention="inclusive",
        provider_thread="th",
        **more,
        **given,
    )


def threaded(name: str, *events: Envelope, end: str | None = "completed") -> list[Envelope]:
    start, *rest = turn(name, *events, end=end)
    return [{**start, "payload": {"provider_thread": "th"}}, *rest]


def message(tokens: int, message_id: str, **given: Any) -> Envelope:
    return done({"input": tokens, "output": 0, "cache_read": 0}, message_id=message_id, turn="t", **given)


def forked(session: str, parent: str) -> Envelope:
    return ev("session.forked", s=session, parent_session_id=parent)


C5 = [
    *(message(tokens, name, s="p") for tokens, name in ((10, "m1"), (20, "m2"), (30, "m3"))),
    *(
        event
        for session, parent in (("f", "p"), ("r1", "f"), ("r2", "r1"))
        for event in (
            forked(session, parent),
            *(
                message(tokens, name, s=session)
                for tokens, name in ((10, "m1"), (20, "m2"), (30, "m3"), (5, "m4"))
            ),
        )
    ),
]


@table(
    Case(
        "C1: five events, each three times",
        [event for _ in range(3) for event in numbered(FIVE)],
        {
            "records": {"read": 15, "accepted": 5, "duplicates": 10, "conflicts": 0, "dead": 0},
            "turns/*/counts/events": [5],
            "gaps": [],
            "sessions/0/total_tool_calls": 1,
            **usage(input_uncached=10, cache_read=0, output=5, total_input=10, reported=1, total=1),
            **only(),
        },
    ),
    Case(
        "C2: output 3, 120, 358 (final), then 120 again",
        turn(
            "t",
            report({"output": 3}, provider="anthropic", counter_kind="snapshot", call="1"),
            report({"output": 120}, provider="anthropic", counter_kind="snapshot", call="1"),
            done({"output": 358}, call="1"),
            report({"output": 120}, provider="anthropic", counter_kind="snapshot", call="1"),
        ),
        {
            "model_calls/*/output_tokens": [358],
            "model_calls/*/fidelity": ["exact"],
            **usage(output=358, reported=1, total=1),
        },
    ),
    Case(
        "C3: the same figures from a stream sample and the final message, exclusive",
        turn(
            "t",
            report(
                SAME, message_id="m1", counter_kind="snapshot", provider="p", token_convention="exclusive"
            ),
            done(SAME, message_id="m1", provider="p", token_convention="exclusive"),
        ),
        {
            "sessions/0/model_call_count": 1,
            **usage(
                input_uncached=10,
                cache_read=2,
                cache_write_other=3,
                output=5,
                reasoning=2,
                total_input=15,
                reported=1,
                total=1,
            ),
        },
    ),
    Case(
        "C4: cumulative 100, 100, 250, 250, then 40, 70",
        turn("t", *(thread(total) for total in (100, 100, 250, 250, 40, 70))),
        {TOTALS: [320], "turns/0/grade": "partial", **only(usage_counter_reset=1)},
    ),
    Case(
        "C5: a fork copies 10, 20, 30 and adds 5; resumed twice",
        C5,
        {
            "sessions/*/session_id": ["f", "p", "r1", "r2"],
            "sessions/*/input_uncached_tokens": [5, 60, None, None],
            "sessions/0/inherited_usage/input_uncached": 60,
            "usage_hourly/*/input_uncached_tokens": [65],
            "usage_hourly/*/calls": [4],
        },
    ),
    Case(
        "C5b: a sub-agent that numbers its calls 1, 2 like its parent",
        [
            *(
                done({"input": tokens, "output": 0, "cache_read": 0}, call=call, turn="t", s="p")
                for tokens, call in ((10, "1"), (20, "2"))
            ),
            *(
                done(
                    {"input": tokens, "output": 0, "cache_read": 0}, call=call, turn="t", s="sub", parent="p"
                )
                for tokens, call in ((10, "1"), (20, "2"))
            ),
        ],
        {
            "sessions/*/input_uncached_tokens": [30, 30],
            "model_calls/*/inherited": [False, False, False, False],
            "usage_hourly/*/input_uncached_tokens": [60],
        },
    ),
    Case(
        "C6: two tenants use session s with the same seqs",
        [*FIVE, *({**event, "tenant": "other"} for event in FIVE)],
        {
            "records/accepted": 10,
            "sessions/*/tenant": ["default", "other"],
            "sessions/*/output_tokens": [5, 5],
            "turns/*/counts/events": [5, 5],
            "usage_hourly/*/output_tokens": [5, 5],
            **only(),
        },
    ),
    Case(
        "C6: two sessions of a tenant hold the same turn and step",
        [*FIVE, *({**event, "session_id": "r"} for event in FIVE)],
        {
            "records/accepted": 10,
            "sessions/*/output_tokens": [5, 5],
            "turns/*/turn_key": ["t", "t"],
            "turns/*/counts/events": [5, 5],
            "model_calls/*/inherited": [False, False],
            "usage_hourly/*/output_tokens": [10],
            **only(),
        },
    ),
    Case(
        "C9: t1 without result, t2 without request",
        turn(
            "t",
            ev("tool_call.requested", tool="t1", tool_name="bash"),
            ev("tool_call.completed", tool="t2", status="ok"),
        ),
        {
            "tool_calls/*/call_id": ["t1", "t2"],
            "tool_calls/*/pairing": ["missing_result", "orphan_result"],
            "turns/0/grade": "partial",
            "sessions/0/total_tool_calls": 2,
            **only(tool_missing_result=1, tool_orphan_result=1),
        },
    ),
    Case(
        "C9: t1's result after the end",
        [
            *turn(
                "t",
                ev("tool_call.requested", tool="t1", tool_name="bash"),
                ev("tool_call.completed", tool="t2", status="ok"),
            ),
            ev("tool_call.completed", tool="t1", status="ok", turn="t"),
        ],
        {
            "tool_calls/*/pairing": ["late_result", "orphan_result"],
            "sessions/0/total_tool_calls": 2,
            **only(tool_orphan_result=1),
        },
    ),
    Case(
        "C11: thread totals 12/3/2/1 (last the same), then 20/5/2/1",
        threaded("t", thread((12, 3, 2, 1), (12, 3, 2, 1)), thread((20, 5, 2, 1))),
        {
            **usage(
                input_uncached=18, cache_read=2, total_input=20, output=5, reasoning=1, reported=1, total=1
            ),
            "turns/0/grade": "complete",
            **only(),
        },
    ),
    Case(
        "C12: first total seen 100/50/2/1 with last 10/5/2/1",
        threaded("t", thread((100, 50, 2, 1), (10, 5, 2, 1))),
        {
            **usage(
                input_uncached=8, cache_read=2, total_input=10, output=5, reasoning=1, reported=1, total=1
            ),
            "turns/0/grade": "partial",
            **only(usage_unknown_start=1),
        },
    ),
    Case(
        "C13: a 20 then, late, 30; b 50, last 20",
        [
            *threaded("a", thread(20)),
            *threaded("b", end=None),
            thread(30, turn="a"),
            thread(50, 20, turn="b"),
            ev("turn.completed", turn="b"),
        ],
        {TOTALS: [30, 20], "sessions/0/total_input_tokens": 50, **only()},
    ),
    Case(
        "C13b: totals 20, 40, 30 with last 20, 20, 10; the next turn 60, last 10",
        [*threaded("a", thread(20, 20), thread(40, 20), thread(30, 10)), *threaded("b", thread(60, 10))],
        {TOTALS: [40, 20], **only(usage_counter_contradiction=1)},
    ),
    Case(
        "C14: a 20; b no total but a final report of 30; c 60, last 10",
        [
            *threaded("a", thread(20)),
            *threaded("b", report({"input": 30}, provider="openai", model="m", final=True)),
            *threaded("c", thread(60, 10)),
        ],
        {
            TOTALS: [20, 30, 10],
            "sessions/0/total_input_tokens": 60,
            "turns/*/grade": ["complete", "complete", "partial"],
            **only(usage_unknown_start=1),
        },
    ),
    Case(
        "C15: decisions allowed, denied, error",
        [
            ev("net.requested", domain="example.org", port=443, decision=decision)
            for decision in ("allowed", "denied", "error")
        ],
        {
            "sessions/0/total_requests": 3,
            "sessions/0/allowed_requests": 1,
            "sessions/0/denied_requests": 1,
            "sessions/0/error_requests": 1,
            "net_events/*/decision": ["allowed", "denied", "error"],
        },
    ),
    Case(
        "C16: native bash, proxy entry srv__x and its MCP tools/call x, MCP tools/list",
        turn(
            "t",
            ev("tool_call.requested", tool="a", tool_name="bash", call_tool_origin="native"),
            ev("tool_call.completed", tool="a", status="ok"),
            ev(
                "tool_call.requested", tool="b", tool_name="srv__x", call_tool_origin="mcp", server_name="srv"
            ),
            ev("mcp.observed", method="tools/list", direction="request", server_name="srv", request_id=1),
            ev("mcp.observed", method="tools/list", direction="response", server_name="srv", request_id=1),
            ev(
                "mcp.observed",
                method="tools/call",
                direction="request",
                server_name="srv",
                tool_name="x",
                request_id=2,
            ),
            ev(
                "mcp.observed",
                method="tools/call",
                direction="response",
                server_name="srv",
                tool_name="x",
                request_id=2,
            ),
            ev("tool_call.completed", tool="b", status="ok"),
        ),
        {
            "sessions/0/total_tool_calls": 2,
            "tool_calls/*/tool_name": ["bash", "srv__x"],
            "tool_calls/*/pairing": ["paired", "paired"],
            "mcp_usage/*/tool_name": ["x"],
            "mcp_usage/*/call_count": [1],
            **only(),
        },
    ),
    Case(
        "C17: calls (10,20) and (null,null)",
        turn("t", done({"input": 10, "output": 20}, call="1"), done(call="2")),
        {
            **usage(input_uncached=10, output=20, reported=1, total=2),
            "sessions/0/model_call_count": 2,
            "sessions/0/usage_reported": 1,
            "sessions/0/usage_total": 2,
        },
    ),
    Case(
        "C18: two exchanges of one turn both emit gemini_read_file_0, one answered",
        turn(
            "t",
            ev("tool_call.requested", tool="gemini_read_file_0", call="1", tool_name="read_file"),
            ev("tool_call.completed", tool="gemini_read_file_0", status="ok"),
            ev("tool_call.requested", tool="gemini_read_file_0", call="2", tool_name="read_file"),
        ),
        {
            "sessions/0/total_tool_calls": 2,
            "tool_calls/*/pairing": ["paired", "missing_result"],
            "checks/tool_missing_result": 1,
        },
    ),
    Case(
        "C19: 429, 429, 200 with 20/5",
        turn(
            "t",
            *(
                ev(
                    "model_call.failed",
                    call=call,
                    provider="anthropic",
                    model="m",
                    error_class="rate_limit",
                    status_code=429,
                )
                for call in ("1", "2")
            ),
            done({"input": 20, "output": 5, "cache_read": 0}, call="3", status_code=200),
        ),
        {
            "sessions/0/model_call_count": 3,
            "sessions/0/failed_model_calls": 2,
            "model_calls/2/retries": 2,
            **usage(input_uncached=20, cache_read=0, output=5, total_input=20, reported=1, total=1),
        },
    ),
    Case(
        "C20: exec 1 exits in a new epoch after exec 1 of the old one exited",
        [
            ev("process.started", exec_id="1", command="make"),
            ev("process.exited", exec_id="1", exit_code=0),
            ev("process.exited", exec_id="1", exit_code=9, epoch=1),
        ],
        {
            "exec_events/*/epoch": [0, 1],
            "exec_events/*/exit_code": [0, 9],
            "exec_events/*/command": ["make", None],
            "sessions/0/exec_count": 1,
        },
    ),
    Case(
        "C21: 30 guards and 30 candidates",
        turn(
            "t",
            *(ev("guard.evaluated", guard=f"g{i}", outcome="passed") for i in range(30)),
            ev("transition.decided", state="a", verdict="go", candidates=[f"c{i}" for i in range(30)]),
        ),
        {
            "turns/0/guards_evaluated/*/guard": [f"g{i}" for i in range(24)],
            "turns/0/verdict/candidates": [f"c{i}" for i in range(24)],
            "turns/0/truncated": {"guards": True, "candidates": True},
            "records/accepted": 33,
            "turns/0/counts/events": 33,
        },
    ),
    Case(
        "C22: required count and name, after-snapshot count 0 and name null",
        turn(
            "t",
            ev(
                "state.observed",
                state="a",
                when="after",
                slots={"count": 0, "name": None},
                required=["count", "name"],
            ),
        ),
        {"turns/0/missing_required_slots": ["name"]},
    ),
    Case(
        "C23: 0, 1, 4 dense, then stream.lost 2–2",
        [
            *(ev("recorder.settled", seq=seq, ev_stream="bus") for seq in (0, 1, 4)),
            ev("stream.lost", stream="bus", from_seq=2, to_seq=2, reason="full"),
        ],
        {
            "gaps/*/from_seq": [2, 3],
            "gaps/*/to_seq": [2, 3],
            "gaps/*/state": ["declared_lost", "open"],
            "sessions/0/open_gaps": 1,
            "sessions/0/grade": "gaps",
        },
    ),
    Case(
        "C23: and then 3",
        [
            *(ev("recorder.settled", seq=seq, ev_stream="bus") for seq in (0, 1, 4)),
            ev("stream.lost", stream="bus", from_seq=2, to_seq=2, reason="full"),
            ev("recorder.settled", seq=3, ev_stream="bus"),
        ],
        {
            "gaps/*/from_seq": [2],
            "gaps/*/to_seq": [2],
            "gaps/*/state": ["declared_lost"],
            "sessions/0/open_gaps": 0,
            "sessions/0/grade": "complete",
            **only(declared_loss=1),
        },
    ),
    Case(
        "C26: a turn's cumulative stream says 500/40, its calls sum to 480/40",
        turn(
            "t",
            done({"input": 300, "output": 30}, provider="openai", call="1"),
            done({"input": 180, "output": 10}, provider="openai", call="2"),
            report(
                {"input": 500, "output": 40}, provider="openai", counter_kind="cumulative", usage_stream="u"
            ),
        ),
        {
            **usage(total_input=500, output=40, reported=1, total=1),
            "turns/0/unattributed/total_input": 20,
            "turns/0/unattributed/output": 0,
            "sessions/0/model_call_count": 2,
            "turns/0/grade": "partial",
            **only(usage_call_total_differs=1),
        },
    ),
    Case(
        "C27: live and transcript report one message_id with 118 and 120",
        turn(
            "t",
            done({"output": 118}, message_id="m1", ev_stream="live"),
            report(
                {"output": 120},
                message_id="m1",
                provider="anthropic",
                source="transcript",
                stop_reason="end_turn",
                ev_stream="file:a",
            ),
        ),
        {
            "model_calls/*/output_tokens": [118],
            "model_calls/*/fidelity": ["exact"],
            **usage(output=118, reported=1, total=1),
        },
    ),
)
def test_a_worked_case(case: Case) -> None:
    told = found(case)
    if "checks" in told:
        told["checks"].pop("unpriced_model", None)
    assert told == case.expected


def test_c7_start_request_result_usage_and_end_in_every_order_two_at_one_time_have_one_digest() -> None:
    events = numbered(FIVE)
    events[2]["occurred_at"] = events[1]["occurred_at"]
    lines = [json.dumps(event).encode() for event in events]
    digests = {plain(order)["digest"] for order in permutations(lines)}
    assert len(digests) == 1


def test_c8_the_first_stays_and_the_other_is_one_receipt_with_its_count() -> None:
    x, y = (
        json.dumps({"session_id": "s", "seq": 7, "type": "odd", "payload": {"v": v}}).encode() for v in "XY"
    )
    told = plain([x, y, y])
    assert told["records"] == {"read": 3, "accepted": 1, "duplicates": 0, "conflicts": 2, "dead": 0}
    assert told["conflicts"] == [
        {
            "tenant": "default",
            "session_id": "s",
            "producer": "harness",
            "epoch": 0,
            "stream": "ledger",
            "seq": 7,
            "receipt_key": None,
            "kept_sha256": content_hash(x).hex(),
            "lost_sha256": content_hash(y).hex(),
            "count": 2,
            "first_position": 2,
            "last_position": 3,
        }
    ]
    assert at(told, "sessions/*/grade") == ["disputed"]
    assert at(told, "sessions/*/conflicts") == [1]


def test_c9_the_late_result_is_another_content_of_the_turn() -> None:
    before = turn(
        "t",
        ev("tool_call.requested", tool="t1", tool_name="bash"),
        ev("tool_call.completed", tool="t2", status="ok"),
    )
    late = ev("tool_call.completed", tool="t1", status="ok", turn="t")
    digests = [fold(*events)["turns"][0]["digest"] for events in (before, [*before, late], [*before, late])]
    assert digests[0] != digests[1] == digests[2]


def test_c10_an_unknown_model_has_no_cost_and_a_second_catalogue_no_say_in_a_digest() -> None:
    """The reprice run is not the fold's."""

    def catalogue(cost: int, version: int) -> Any:
        def price(provider: str | None, model: str | None, usage: Any, *given: Any, **named: Any) -> Price:
            if model != "m":
                return Price(None, None, None, None, unpriced=True)
            return Price(cost * usage["input_uncached"], "exact", "anthropic/m", version)

        return price

    events = turn(
        "t",
        done({"input": 1000, "output": 0, "cache_read": 0}, call="1"),
        done({"input": 500, "output": 0, "cache_read": 0}, call="2", model="unheard-of"),
    )
    first, second = (plain(events, catalogue(2 * version, version)) for version in (1, 2))
    assert at(first, "model_calls/*/cost_micro_usd") == [2000, None]
    assert at(first, "model_calls/*/catalog_version") == [1, None]
    assert at(first, "sessions/*/cost_micro_usd") == [2000]
    assert at(first, "sessions/*/unpriced_calls") == [1]
    assert at(second, "sessions/*/cost_micro_usd") == [4000]
    assert first["digest"] == second["digest"]


def test_c25_defaults_nulls_order_and_spelling_make_no_other_record() -> None:
    told = plain(
        [
            b'{"session_id":"s","seq":1,"type":"odd","occurred_at":"2026-05-04T10:00:00Z"}',
            b'{"turn_id":null,"payload":{},"epoch":0,"type":"odd","occurred_at":"2026-05-04T10:00:00.000+00:00",'
            b'"seq":1.0,"session_id":"s"}',
        ]
    )
    assert told["records"] == {"read": 2, "accepted": 1, "duplicates": 1, "conflicts": 0, "dead": 0}


def test_every_case_of_the_table_is_here() -> None:
    source = Path(__file__).read_text(encoding="utf-8").lower()
    told = {
        int(number)
        for number in re.findall(r'"c(\d+)b?: |def test_c(\d+)_', source)
        for number in number
        if number
    }
    assert told == set(range(1, 28)) - {24}


def plain(events: Any, price: Any = None) -> Document:
    records = [event if isinstance(event, bytes) else json.dumps(event).encode() for event in _placed(events)]
    return document(records, price or (lambda *given, **named: price_call(packaged(), *given, **named)))


def _placed(events: Any) -> list[Any]:
    events = list(events)
    return events if isinstance(events[0], bytes) else list(numbered(events))
