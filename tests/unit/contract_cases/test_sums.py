"""Contract 11 and 12: how point events become rows, and what each column of a session counts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.contract_cases.cases import Event, end, ev, fold, mark, start, user

EVAL = {"kind": "eval", "run_id": "r", "turn_id": "e"}


def began(seq: int, exec_id: object, **envelope: Any) -> Event:
    return ev(seq, "process.started", {"exec_id": exec_id, "command": f"c{seq}"}, **envelope)


def exited(seq: int, exec_id: object, code: int = 0, **envelope: Any) -> Event:
    return ev(seq, "process.exited", {"exec_id": exec_id, "exit_code": code}, **envelope)


# (epoch, seq, exec_id, command, exit_code) of each row, and exec_count
EXEC: dict[str, tuple[list[Event], list[tuple[int, int, str, str | None, int | None]], int]] = {
    "start and exit are one row": ([began(0, 1), exited(1, 1, 3)], [(0, 0, "1", "c0", 3)], 1),
    "ids are compared as text": ([began(0, 1), exited(1, "1")], [(0, 0, "1", "c0", 0)], 1),
    "an id of 1.0 is 1": ([began(0, 1.0), exited(1, 1)], [(0, 0, "1", "c0", 0)], 1),
    "an id of 01 is another": (
        [began(0, "01"), exited(1, "1")],
        [(0, 0, "01", "c0", None), (0, 1, "1", None, 0)],
        1,
    ),
    "over the streams of a producer": (
        [began(0, 1), exited(0, 1, stream="z")],
        [(0, 0, "1", "c0", 0)],
        1,
    ),
    "not over producers": (
        [began(0, 1), exited(0, 1, producer="p")],
        [(0, 0, "1", "c0", None), (0, 0, "1", None, 0)],
        1,
    ),
    "not over epochs": (
        [began(0, 1), exited(1, 1), exited(0, 1, 9, epoch=1)],
        [(0, 0, "1", "c0", 0), (1, 0, "1", None, 9)],
        1,
    ),
    "a second start opens a row": (
        [began(0, 1), began(1, 1), exited(2, 1)],
        [(0, 0, "1", "c0", None), (0, 1, "1", "c1", 0)],
        2,
    ),
    "an exit before the start is kept as such": (
        [exited(0, 1), began(1, 1)],
        [(0, 0, "1", None, 0), (0, 1, "1", "c1", None)],
        1,
    ),
    "a second exit is kept as such": (
        [began(0, 1), exited(1, 1), exited(2, 1, 9)],
        [(0, 0, "1", "c0", 0), (0, 2, "1", None, 9)],
        1,
    ),
}


@pytest.mark.parametrize(("events", "rows", "count"), EXEC.values(), ids=EXEC.keys())
def test_processes(
    events: list[Event], rows: list[tuple[int, int, str, str | None, int | None]], count: int
) -> None:
    for arrival in (events, events[::-1]):
        found = fold(*arrival)
        assert [
            (row["epoch"], row["seq"], row["exec_id"], row["command"], row["exit_code"])
            for row in found["exec_events"]
        ] == rows
        assert found["sessions"][0]["exec_count"] == count


def decided(seq: int, decision: object, **envelope: Any) -> Event:
    return ev(seq, "net.requested", {"domain": "d", "port": 1, "decision": decision}, **envelope)


def changed(seq: int, action: str) -> Event:
    return ev(seq, "fs.changed", {"action": action, "path": "/x"})


def guard(seq: int, outcome: str, **envelope: Any) -> Event:
    return ev(seq, "guard.evaluated", {"guard": "g", "outcome": outcome}, **envelope)


def call(seq: int, message_id: str, **envelope: Any) -> Event:
    usage = {"input": 10, "output": 1, "cache_read": 0}
    payload = {"provider": "anthropic", "model": "claude-opus-4-5", "message_id": message_id, "usage": usage}
    return ev(seq, "model_call.completed", payload, **envelope)


def tool(seq: int, name: str | None = None, /, origin: str | None = None, **envelope: Any) -> Event:
    payload = {"tool_name": name, "call_tool_origin": origin}
    return ev(seq, "tool_call.requested", payload, turn_id="a", **envelope)


ACTIONS = ("created", "modified", "deleted", "restored", "read", "import", "export", "overflow")
DECISIONS = ("allowed", "denied", "denied", "error", "redirected", "novel", None, "Allowed")
NOON = "2026-05-01T12:00:"

SESSION: dict[str, tuple[list[Event], dict[str, object]]] = {
    "requests by exactly these decisions": (
        [decided(seq, word) for seq, word in enumerate(DECISIONS)],
        {"total_requests": 8, "allowed_requests": 1, "denied_requests": 2, "error_requests": 1},
    ),
    "file events without overflow": (
        [changed(seq, action) for seq, action in enumerate(ACTIONS)],
        {"total_file_events": 7},
    ),
    "guards": (
        [guard(0, "passed"), guard(1, "blocked"), guard(2, "blocked"), guard(3, "coerced")],
        {"guard_blocks": 2, "guard_coercions": 1},
    ),
    "audits": (
        [ev(0, "process.audited", {"pid": 1}), ev(1, "process.audited", {"pid": 1})],
        {"audit_event_count": 2},
    ),
    "messages that are not inherited": (
        [user(0), ev(1, "message.recorded", {"role": "assistant"}), user(2, provenance="inherited")],
        {"message_count": 2},
    ),
    "turns not all of whose events are inherited": (
        [
            user(0, turn_id="a", provenance="inherited"),
            user(1, turn_id="b", provenance="inherited"),
            mark(2, "n", turn_id="b"),
        ],
        {"turn_count": 1},
    ),
    "a derived event is not inherited": (
        [mark(0, "n", turn_id="a", provenance="derived")],
        {"turn_count": 1},
    ),
    "tools and their errors, a denial being none": (
        [
            *(start(0, "a"), tool(1, "x", tool_call_id="1"), tool(2, "x", tool_call_id="2"), tool(3, "x")),
            ev(4, "tool_call.completed", {"status": "error"}, tool_call_id="1"),
            ev(5, "tool_call.denied", {"by": "user"}, tool_call_id="2"),
        ],
        {"total_tool_calls": 3, "tool_errors": 1},
    ),
    "created at the first start in order, not the least": (
        [ev(0, "session.started", at="09"), ev(1, "session.started", at="05"), mark(2, "n", at="03")],
        {"created_at": NOON + "09.000000Z", "last_activity_at": NOON + "09.000000Z"},
    ),
    "created at the least time where nothing says it started": (
        [mark(0, "n", at="09"), mark(1, "m", at="03")],
        {"created_at": NOON + "03.000000Z", "last_activity_at": NOON + "09.000000Z"},
    ),
    "no times": ([mark(0, "n")], {"created_at": None, "last_activity_at": None, "stopped_at": None}),
    "running without a word": ([mark(0, "n")], {"status": "running", "stopped_at": None}),
    "ended": (
        [ev(0, "session.ended", {"status": "crashed"}, at="05")],
        {"status": "crashed", "stopped_at": NOON + "05.000000Z"},
    ),
    "resumed": (
        [ev(0, "session.ended", {"status": "lost"}), ev(1, "session.resumed")],
        {"status": "running"},
    ),
    "work after the end does not resume": (
        [ev(0, "session.ended", {"status": "lost"}), mark(1, "n")],
        {"status": "lost"},
    ),
    "the last in order, not in arrival": (
        [ev(1, "session.ended", {"status": "lost"}), ev(0, "session.started")],
        {"status": "lost"},
    ),
    "eval when all are": ([mark(0, "n", **EVAL), mark(1, "m", **EVAL)], {"kind": "eval"}),
    "import when all are": ([mark(0, "n", kind="import")], {"kind": "import"}),
    "import when none is live": ([mark(0, "n", **EVAL), mark(1, "n", kind="import")], {"kind": "import"}),
    "live when one is, beside eval": ([mark(0, "n", **EVAL), mark(1, "n")], {"kind": "live"}),
    "live when one is, beside import": ([mark(0, "n", kind="import"), mark(1, "n")], {"kind": "live"}),
    "an eval session sums its turns": (
        [call(0, "m", **EVAL)],
        {"turn_count": 1, "model_call_count": 1, "total_input_tokens": 10, "usage_total": 1},
    ),
    "a mixed session leaves eval turns out": (
        [
            *(
                call(0, "m", **EVAL),
                decided(1, "denied", **EVAL),
                guard(2, "blocked", **EVAL),
                user(3, **EVAL),
            ),
            *(ev(4, "tool_call.requested", {"tool_name": "x"}, **EVAL), call(5, "n", turn_id="a")),
        ],
        {
            "turn_count": 1,
            "model_call_count": 1,
            "total_input_tokens": 10,
            "usage_total": 1,
            "total_requests": 0,
            "guard_blocks": 0,
            "message_count": 0,
            "total_tool_calls": 0,
        },
    ),
    "null is not zero": (
        [mark(0, "n")],
        {"output_tokens": None, "cost_micro_usd": None, "usage_reported": 0, "usage_total": 0},
    ),
}


@pytest.mark.parametrize(("events", "expected"), SESSION.values(), ids=SESSION.keys())
def test_columns_of_a_session(events: list[Event], expected: dict[str, object]) -> None:
    (row,) = fold(*events)["sessions"]
    assert {name: row[name] for name in expected} == expected


def test_eval_never_counts_in_an_hour_and_import_does() -> None:
    found = fold(call(0, "m", **EVAL), call(1, "n", turn_id="a", kind="import"))
    assert [(row["calls"], row["sessions"]) for row in found["usage_hourly"]] == [(1, 1)]


def test_an_hour_counts_sessions_once_and_knows_no_session() -> None:
    found = fold(
        *(call(0, "m", at="01"), call(1, "n", at="02"), call(0, "o", session_id="t", at="59:59")),
        call(2, "p", occurred_at="2026-05-01T15:00:00+02:00"),
    )
    assert [(row["hour"], row["calls"], row["sessions"]) for row in found["usage_hourly"]] == [
        ("2026-05-01T12:00:00.000000Z", 3, 2),
        ("2026-05-01T13:00:00.000000Z", 1, 1),
    ]
    assert all("session_id" not in row for row in found["usage_hourly"])


def test_tools_are_summed_by_name_and_origin_and_an_unknown_name_has_a_row() -> None:
    found = fold(
        *(
            start(0, "a"),
            tool(1, "x", "native", tool_call_id="1"),
            tool(2, "x", "native", tool_call_id="2"),
            tool(3, "x"),
            tool(4),
        ),
        ev(
            5,
            "tool_call.completed",
            {"status": "error", "duration_ms": 5, "bytes_sent": 1, "bytes_received": 2},
            tool_call_id="1",
        ),
        ev(6, "tool_call.denied", {"by": "user"}, tool_call_id="2"),
    )
    names = (
        "tool_name",
        "origin",
        "call_count",
        "error_count",
        "denied_count",
        "total_bytes",
        "total_duration_ms",
    )
    assert [tuple(row[name] for name in names) for row in found["tool_usage"]] == [
        ("unknown", "unknown", 1, 0, 0, None, None),
        ("x", "native", 2, 1, 1, 3, 5),
        ("x", "unknown", 1, 0, 0, None, None),
    ]


def test_a_servers_tools_are_summed_without_its_prefix() -> None:
    def served(seq: int, name: str) -> Event:
        return ev(
            seq,
            "tool_call.requested",
            {"tool_name": name, "server_name": "srv", "call_tool_origin": "mcp"},
            turn_id="a",
        )

    found = fold(
        start(0, "a"), served(1, "srv__x"), served(2, "x"), served(3, "other__x"), tool(4, "x"), end(5, "a")
    )
    assert [(row["server_name"], row["tool_name"], row["call_count"]) for row in found["mcp_usage"]] == [
        ("srv", "other__x", 1),
        ("srv", "x", 2),
    ]
