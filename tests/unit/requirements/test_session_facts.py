"""Cases T4-03 to T4-08 and T4-15 to T4-17 of the session facts, on our own event types."""

from __future__ import annotations

from typing import Any

from tests.unit.contract_cases.envelopes import Case, Envelope, ev, fold, found, table, turn
from turnledger.fold.document import document
from turnledger.pricing import packaged, price_call

T = "turns/0"


def observed(when: str, slots: dict[str, Any], required: list[str] | None = None) -> Envelope:
    return ev(
        "state.observed",
        state="ask",
        when=when,
        slots=slots,
        **({} if required is None else {"required": required}),
    )


def wrote(slot: str, old: Any, new: Any) -> Envelope:
    return ev("slot.written", slot=slot, old=old, new=new)


def receipt(seq: int, type_: str, **payload: Any) -> Envelope:
    """An event of a source whose epoch is unknown: number, time and type are its identity."""
    time = f"2026-05-04T10:00:{seq:02d}Z"
    return {**ev(type_, receipt=f"{seq}|{time}|{type_}", **payload), "occurred_at": time}


@table(
    Case(
        "T4-03: the same number with another type, the epoch unknown: both kept",
        [receipt(4, "slot.written", slot="a"), receipt(4, "guard.evaluated", guard="g", outcome="passed")],
        {
            "records": {"read": 2, "accepted": 2, "duplicates": 0, "conflicts": 0, "dead": 0},
            "gaps": [],
            "sessions/0/grade": "unknown",
        },
    ),
    Case(
        "T4-03: the same number, time and type again is the same event",
        [receipt(4, "slot.written", slot="a"), receipt(4, "slot.written", slot="a")],
        {"records": {"read": 2, "accepted": 1, "duplicates": 1, "conflicts": 0, "dead": 0}},
    ),
    Case(
        "T4-03: the same number, time and type with another body is a conflict",
        [receipt(4, "slot.written", slot="a"), receipt(4, "slot.written", slot="b")],
        {
            "records": {"read": 2, "accepted": 1, "duplicates": 0, "conflicts": 1, "dead": 0},
            "conflicts/*/receipt_key": ["4|2026-05-04T10:00:04Z|slot.written"],
            "conflicts/*/seq": [None],
            "sessions/0/grade": "disputed",
        },
        any_order=False,
    ),
    Case(
        "T4-03: where the epoch is known the number is the identity, and another type under it a conflict",
        [ev("slot.written", seq=4, slot="a"), ev("guard.evaluated", seq=4, guard="g", outcome="passed")],
        {
            "records": {"read": 2, "accepted": 1, "duplicates": 0, "conflicts": 1, "dead": 0},
            "conflicts/*/seq": [4],
        },
        any_order=False,
    ),
    Case(
        "T4-03: the same number in the epoch after a restart is another event",
        [
            ev("slot.written", seq=0, slot="a"),
            ev("guard.evaluated", epoch=1, seq=0, guard="g", outcome="passed"),
        ],
        {"records": {"read": 2, "accepted": 2, "duplicates": 0, "conflicts": 0, "dead": 0}, "gaps": []},
    ),
    Case(
        "T4-04: turn_index 0, 1, 1 are one event and two",
        [ev("guard.evaluated", index=index, guard="g", outcome="passed") for index in (0, 1, 1)],
        {
            "turns/*/turn_key": ["#0", "#1"],
            "turns/*/counts/events": [1, 2],
            "turns/*/assigned_by": ["index", "index"],
        },
    ),
    Case(
        "T4-05: ends at the second and the fifth of six: 2, 3 and an open 1, each end in what it closes",
        [
            ev("guard.evaluated", guard="a", outcome="passed"),
            ev("turn.completed", status="completed"),
            ev("guard.evaluated", guard="b", outcome="passed"),
            ev("guard.evaluated", guard="c", outcome="passed"),
            ev("turn.completed", status="failed"),
            ev("guard.evaluated", guard="d", outcome="passed"),
        ],
        {
            "turns/*/counts/events": [2, 3, 1],
            "turns/*/status": ["completed", "failed", "open"],
            "turns/*/assigned_by": ["boundary", "boundary", "boundary"],
            "turns/*/guards_evaluated/*/guard": [["a"], ["b", "c"], ["d"]],
            "checks/turn_without_start": 3,
        },
    ),
    Case(
        "T4-06: no index, no boundary, no times, two turns elsewhere: all in the first, by fallback",
        [
            *turn("a", ev_stream="rows"),
            *turn("b", ev_stream="rows"),
            *(
                {
                    **ev("guard.evaluated", ev_stream="trace", guard=guard, outcome="passed"),
                    "occurred_at": None,
                }
                for guard in ("x", "y")
            ),
        ],
        {
            "turns/*/turn_key": ["a", "b"],
            "turns/*/counts/events": [4, 2],
            "turns/*/assigned_by": ["fallback", "id"],
        },
    ),
    Case(
        "T4-06: with times such events lie where they happened, not in the first turn",
        [
            *turn("a", ev_stream="rows"),
            *turn(
                "b", ev("guard.evaluated", ev_stream="rows", guard="x", outcome="passed"), ev_stream="rows"
            ),
            {
                **ev("guard.evaluated", ev_stream="trace", guard="y", outcome="passed"),
                "occurred_at": "2026-05-04T10:00:03.500000Z",
            },
        ],
        {"turns/*/counts/events": [2, 4], "turns/*/assigned_by": ["id", "window"]},
    ),
    Case(
        "T4-07: required count and name, count 0 and name null: the name is missing",
        turn("t", observed("after", {"count": 0, "name": None}, ["count", "name"])),
        {f"{T}/required_slots_in_state": ["count", "name"], f"{T}/missing_required_slots": ["name"]},
    ),
    Case(
        "T4-07: 0, false, an empty text and empty collections are filled; null and absent are missing",
        turn(
            "t",
            observed(
                "after",
                {"zero": 0, "no": False, "text": "", "list": [], "dict": {}, "null": None},
                ["zero", "no", "text", "list", "dict", "null", "absent"],
            ),
        ),
        {f"{T}/missing_required_slots": ["null", "absent"]},
    ),
    Case(
        "T4-07: a slot that the state does not require is in neither list, filled or not",
        turn("t", observed("after", {"count": 1, "volunteered": None}, ["count"])),
        {f"{T}/required_slots_in_state": ["count"], f"{T}/missing_required_slots": []},
    ),
    Case(
        "T4-08: of 30 guards and 30 candidates the first 24 each, flagged; all 30 are events of the turn",
        turn(
            "t",
            *(ev("guard.evaluated", guard=f"g{i}", outcome="passed") for i in range(30)),
            ev("transition.decided", state="ask", verdict="stay", candidates=[f"c{i}" for i in range(30)]),
        ),
        {
            f"{T}/guards_evaluated/*/guard": [f"g{i}" for i in range(24)],
            f"{T}/verdict/candidates": [f"c{i}" for i in range(24)],
            f"{T}/truncated": {"guards": True, "candidates": True},
            f"{T}/counts/events": 33,
        },
    ),
    Case(
        "T4-08: 24 are kept whole and not flagged",
        turn(
            "t",
            *(ev("guard.evaluated", guard=f"g{i}", outcome="passed") for i in range(24)),
            ev("transition.decided", state="ask", verdict="stay", candidates=[f"c{i}" for i in range(24)]),
        ),
        {f"{T}/truncated": {"guards": False, "candidates": False}, f"{T}/guards_evaluated/23/guard": "g23"},
    ),
    Case(
        "T4-15: a written event explains the change and is passed through",
        turn("t", observed("before", {"a": 1}), wrote("a", 1, 2), observed("after", {"a": 2})),
        {f"{T}/slot_diff": [{"slot": "a", "old": 1, "new": 2}], f"{T}/unattributed_diff": []},
    ),
    Case(
        "T4-15: a change without an event is unattributed",
        turn("t", observed("before", {"a": 1}), observed("after", {"a": 2})),
        {f"{T}/slot_diff": None, f"{T}/unattributed_diff": [{"slot": "a", "old": 1, "new": 2}]},
    ),
    Case(
        "T4-15: a dict is compared, not skipped",
        turn("t", observed("before", {"a": {"x": 1}}), observed("after", {"a": {"x": 2}})),
        {f"{T}/unattributed_diff": [{"slot": "a", "old": {"x": 1}, "new": {"x": 2}}]},
    ),
    Case(
        "T4-15: a direct change after the write: the written entry stays, the rest is unattributed",
        turn("t", observed("before", {"a": 1}), wrote("a", 1, 2), observed("after", {"a": 3})),
        {
            f"{T}/slot_diff": [{"slot": "a", "old": 1, "new": 2}],
            f"{T}/unattributed_diff": [{"slot": "a", "old": 2, "new": 3}],
        },
    ),
    Case(
        "T4-15: a write and back to the original: the written entries stay, nothing is unattributed",
        turn(
            "t", observed("before", {"a": 1}), wrote("a", 1, 2), wrote("a", 2, 1), observed("after", {"a": 1})
        ),
        {
            f"{T}/slot_diff": [{"slot": "a", "old": 1, "new": 2}, {"slot": "a", "old": 2, "new": 1}],
            f"{T}/unattributed_diff": [],
        },
    ),
    Case(
        "T4-15: a removed slot changed to absent",
        turn("t", observed("before", {"a": 1}), observed("after", {})),
        {f"{T}/unattributed_diff": [{"slot": "a", "old": 1, "new": None}]},
    ),
    Case(
        "T4-15: no change and no event: nothing",
        turn("t", observed("before", {"a": 1}), observed("after", {"a": 1})),
        {f"{T}/slot_diff": None, f"{T}/unattributed_diff": []},
    ),
    Case(
        "T4-16: a turn with nothing but its start and end says its figures, and no more",
        turn("t"),
        {
            f"{T}/{absent}": None
            for absent in (
                "turn_index",
                "run_id",
                "user_input",
                "answer",
                "inherited_usage",
                "unattributed",
                "context",
                "compactions",
                "limits",
                "errors",
                "guards_evaluated",
                "verdict",
                "truncated",
                "slot_diff",
                "unattributed_diff",
                "required_slots_in_state",
                "missing_required_slots",
                "cost_micro_usd",
            )
        }
        | {f"{T}/schema_version": 2, f"{T}/kind": "live"},
    ),
)
def test_a_case_of_the_session_facts(case: Case) -> None:
    assert found(case) == case.expected


def test_t4_16_the_fields_of_a_bare_record_are_these() -> None:
    (record,) = fold(*turn("t"))["turns"]
    assert sorted(record) == [
        "assigned_by",
        "completed_at",
        "counts",
        "digest",
        "duration_ms",
        "duration_source",
        "gaps",
        "grade",
        "kind",
        "model_calls",
        "revision",
        "round_trips",
        "schema_version",
        "seq_spans",
        "session_id",
        "started_at",
        "status",
        "stop",
        "tenant",
        "tool_calls",
        "turn_id",
        "turn_key",
        "usage",
    ]


def test_t4_17_a_file_of_versions_1_and_2_a_broken_line_and_another_session() -> None:
    lines = [
        b'{"session_id":"s","seq":0,"type":"turn.started","turn_id":"t"}',
        b'{"schema_version":2,"session_id":"s","seq":1,"type":"turn.completed","turn_id":"t","new":1}',
        b'{"session_id":"s","seq":2,"type":"turn.st',
        b'{"session_id":"other","seq":0,"type":"turn.started","turn_id":"u"}',
    ]
    told = document(lines, lambda *given, **named: price_call(packaged(), *given, **named))
    assert told["records"] == {"read": 4, "accepted": 3, "duplicates": 0, "conflicts": 0, "dead": 1}
    assert [(row["session_id"], row["turn_key"], row["counts"]["events"]) for row in told["turns"]] == [
        ("other", "u", 1),
        ("s", "t", 2),
    ]
    assert [(row["position"], row["reason"]) for row in told["dead_letters"]] == [(3, "json")]
    assert {(row["session_id"], row["check"]): row["count"] for row in told["findings"]} == {
        (None, "dead_letter"): 1,
        ("s", "newer_schema_version"): 1,
    }
