"""Rows of the source's tables of behaviours that a ledger decides and that are not about usage: what is one event, what ends what, whose it is.

T3: the session-event ledger (A.17), with the rules (L) they show; T4: the session facts (B.10). What is left out steers work or draws pages: claims and
leases (T3-07, -08 and -11d but for what their events say), launch inputs and their drills (T3-01, -05, -06b to d, -20's second half, -23, -25 to -28,
-51 to -57), a recorder's own files (T3-40 to -42, -47 to -50, -58: readers of harness files), which event types a producer keeps (T4-01), its collector
(T4-12 to -14) and the endpoint (T4-10).
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from tests.unit.contract_cases.envelopes import Case, Envelope, at, done, ev, fold, found, table, turn
from turnledger.fold.document import document
from turnledger.pricing import packaged, price_call

DONE = {"status": "completed", "duration_ms": 10_000, "at": "2026-05-04T10:00:20Z"}
REFUSED_OR_KEPT = {"read": 2, "accepted": 1, "duplicates": 0, "conflicts": 1, "dead": 0}


def _line(event: Envelope) -> bytes:
    return json.dumps({"session_id": "s", "receipt_key": json.dumps(event), **event}).encode()


def written_down(key: str, **payload: Any) -> Envelope:
    """An observation under its natural name."""
    return ev("attempt.finished", receipt=key, at="2026-05-04T10:00:20Z", **payload)


@table(
    Case(
        "T3-11a, L-2: an end without a start is kept; the same again is the same event",
        [ev("turn.completed", seq=4, turn="t", **DONE), ev("turn.completed", seq=4, turn="t", **DONE)],
        {
            "records": {"read": 2, "accepted": 1, "duplicates": 1, "conflicts": 0, "dead": 0},
            "turns/*/status": ["completed"],
            "turns/*/duration_ms": [10_000],
        },
        any_order=False,
    ),
    Case(
        "T3-11b, L-3: the same end with another status is a conflict, and the first one stays",
        [
            ev("turn.completed", seq=4, turn="t", **DONE),
            ev("turn.completed", seq=4, turn="t", **{**DONE, "status": "failed"}),
        ],
        {
            "records": REFUSED_OR_KEPT,
            "turns/*/status": ["completed"],
            "sessions/*/grade": ["disputed"],
        },
        any_order=False,
    ),
    Case(
        "T3-11c, A.8: no start is made up for a turn of which only its end came",
        [ev("turn.completed", turn="t", **DONE)],
        {
            "records/accepted": 1,
            "turns/*/started_at": [None],
            "turns/*/grade": ["partial"],
            "checks": {"turn_without_start": 1},
        },
    ),
    Case(
        "T3-24, L-6: one observation twice is one; another under its name is a conflict",
        [
            written_down("k:terminal", attempt_id="1", outcome="completed"),
            written_down("k:terminal", attempt_id="1", outcome="completed"),
            written_down("k:terminal", attempt_id="1", outcome="failed"),
        ],
        {
            "records": {"read": 3, "accepted": 1, "duplicates": 1, "conflicts": 1, "dead": 0},
            "conflicts/*/receipt_key": ["k:terminal"],
        },
        any_order=False,
    ),
    Case(
        "T3-06e, L-12: a turn that was started without a launch input is a turn, and borrows nothing",
        turn("owned"),
        {"turns/*/turn_key": ["owned"], "turns/*/status": ["completed"], "sessions/*/agent": [None]},
    ),
    Case(
        "T3-21, L-19: a turn that completed leaves its session open",
        turn("t"),
        {"turns/*/status": ["completed"], "sessions/*/status": ["running"], "sessions/*/stopped_at": [None]},
    ),
    Case(
        "T3-07, T3-08, T3-22: a driver's or a process's exit ends neither a turn nor the session",
        [
            *turn("t", ev("process.started", exec_id="1", command="x"), end=None),
            ev("driver.exited", generation=1, outcome="interrupted"),
            ev("process.exited", exec_id="1", exit_code=1),
        ],
        {
            "turns/*/status": ["open"],
            "turns/*/completed_at": [None],
            "sessions/*/status": ["running"],
        },
    ),
    Case(
        "T3-43, T3-50, T3-56: a recorder's or an attempt's failure is not the turn's, and not the session's",
        [
            *turn(
                "t",
                ev("attempt.started", attempt_id="1", provider="openai"),
                ev("attempt.finished", attempt_id="1", outcome="failed"),
                ev("recorder.settled", outcome="failed"),
            ),
        ],
        {
            "turns/*/status": ["completed"],
            "turns/*/errors": [None],
            "sessions/*/status": ["running"],
        },
    ),
    Case(
        "A.9: the end of a session makes no end of a turn: it is abandoned, and completed by nobody",
        [*turn("t", end=None), ev("session.ended", status="crashed", exit_code=1)],
        {
            "turns/*/status": ["abandoned"],
            "turns/*/completed_at": [None],
            "sessions/*/status": ["crashed"],
        },
    ),
    Case(
        "T3-20, L-14, L-15: a start comes again with another origin: a conflict, the origin of the first stays",
        [
            {**ev("turn.started", seq=0, turn="t"), "origin": {"exec": "1", "task": "a"}},
            {**ev("turn.started", seq=0, turn="t"), "origin": {"exec": "2", "task": "a"}},
        ],
        {"records": REFUSED_OR_KEPT, "sessions/*/grade": ["disputed"]},
        any_order=False,
    ),
    Case(
        "T3-20, L-15: an origin that leaves a field out is another one",
        [
            {**ev("turn.started", seq=0, turn="t"), "origin": {"exec": "1", "task": "a"}},
            {**ev("turn.started", seq=0, turn="t"), "origin": {"exec": "1"}},
        ],
        {"records": REFUSED_OR_KEPT},
        any_order=False,
    ),
    Case(
        "T3-04, Q-8: a session begins and was last active at the least and greatest instant, whatever their order",
        [
            ev("net.requested", domain="a.example", decision="allowed", at="2026-10-01T00:20:00.5Z"),
            ev("net.requested", domain="b.example", decision="allowed", at="2026-10-01T00:00:00Z"),
            ev("net.requested", domain="c.example", decision="allowed", at=None),
        ],
        {
            "sessions/*/created_at": ["2026-10-01T00:00:00.000000Z"],
            "sessions/*/last_activity_at": ["2026-10-01T00:20:00.500000Z"],
        },
    ),
    Case(
        "T4-02, D-6, D-7: a durable trace 1–5 and a ring 4–8 of one stream are 1–8, once each; another session's 6 is not among them",
        [
            ev("stream.declared", seq=0, density="dense"),
            *(ev("slot.written", seq=seq, slot=f"s{seq}", new=seq, turn="t") for seq in (1, 2, 3, 4, 5)),
            *(ev("slot.written", seq=seq, slot=f"s{seq}", new=seq, turn="t", at=f"2026-05-04T10:00:{seq:02d}Z") for seq in (4, 5)),
            *(ev("slot.written", seq=seq, slot=f"s{seq}", new=seq, turn="t") for seq in (6, 7, 8)),
            ev("slot.written", s="other", seq=6, slot="s6", new=6, turn="t"),
        ],
        {
            "records": {"read": 12, "accepted": 10, "duplicates": 2, "conflicts": 0, "dead": 0},
            "turns/session_id=s/seq_spans": [
                [{"producer": "harness", "epoch": 0, "stream": "ledger", "from": 1, "to": 8}]
            ],
            "turns/session_id=s/slot_diff/*/slot": [[f"s{seq}" for seq in range(1, 9)]],
        },
    ),
    Case(
        "T4-09: an end that names its session and an index is the end of that turn and of no other",
        [
            ev("message.recorded", index=3, role="user", text="a"),
            ev("message.recorded", index=4, role="user", text="b"),
            ev("turn.completed", index=4, status="completed", source="live"),
        ],
        {"turns/*/turn_index": [3, 4], "turns/*/status": ["open", "completed"]},
    ),
    Case(
        "T4-11: a slot that somebody filled and nobody requires is in neither list",
        turn("t", ev("state.observed", state="ask", when="after", slots={"count": 1, "extra": 2}, required=["count", "name"])),
        {
            "turns/0/required_slots_in_state": ["count", "name"],
            "turns/0/missing_required_slots": ["name"],
        },
    ),
    Case(
        "D-11: events of other sessions never say anything about a turn",
        [
            *turn("t"),
            ev("guard.evaluated", s="other", turn="t", guard="g", outcome="blocked"),
            ev("slot.written", s="other", turn="t", slot="a", new=1),
        ],
        {
            "turns/session_id=s/guards_evaluated": [None],
            "turns/session_id=s/slot_diff": [None],
            "sessions/session_id=s/guard_blocks": [0],
        },
    ),
    Case(
        "T4-18, D-17: an evaluation of two turns: its run, its kind, each turn its own events; the live sums beside it stay",
        [
            *turn("live", done({"input": 1, "output": 1, "cache_read": 0}, call="l")),
            *turn("e1", done({"input": 10, "output": 10, "cache_read": 0}, call="1"), kind="eval", run="r"),
            *turn("e2", done({"input": 20, "output": 20, "cache_read": 0}, call="2"), kind="eval", run="r"),
        ],
        {
            "turns/*/kind": ["live", "eval", "eval"],
            "turns/*/run_id": [None, "r", "r"],
            "turns/*/counts/events": [3, 3, 3],
            "turns/*/usage/output": [1, 10, 20],
            "sessions/*/output_tokens": [1],
            "usage_hourly/*/output_tokens": [1],
        },
    ),
    Case(
        "capsem 39: everything is keyed by the session's id: two sessions of one name are two",
        [
            ev("session.started", s="a", name="box", agent="one"),
            ev("session.started", s="b", name="box", agent="two"),
        ],
        {"sessions/*/session_id": ["a", "b"], "sessions/*/name": ["box", "box"], "sessions/*/agent": ["one", "two"]},
    ),
)  # fmt: skip
def test_a_row_that_a_ledger_decides(case: Case) -> None:
    assert found(case) == case.expected


def test_t3_25_q_6_one_record_that_nobody_can_read_hides_no_answer() -> None:
    records = [b"{", *map(_line, turn("t", ev("answer.finalized", text="ok", exact=True)))]
    told: Any = document(records, partial(price_call, packaged()))
    assert at(told, "turns/*/answer") == [{"text": "ok", "exact": True}]
    assert told["records"] == {"read": 4, "accepted": 3, "duplicates": 0, "conflicts": 0, "dead": 1}


@pytest.mark.parametrize("exact", [True, False])
def test_t3_40_t3_41_the_answer_is_as_exact_as_it_was_told(exact: bool) -> None:
    said = ev("message.recorded", role="assistant", phase="commentary", text="working")
    told = fold(*turn("t", said, ev("answer.finalized", text="final report", exact=exact)))
    assert at(told, "turns/0/answer") == {"text": "final report", "exact": exact}
