"""Vacuumed sessions (contract 12): events and detail go, every number stays; what comes again is known, what is new is kept and said."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.integration.ingesting import one, rows
from tests.integration.letting_go import PRICE, apply, execute, let_go, numbers, rolled_up, shuffled, verified
from tests.property.budget import times
from tests.property.fleets import _sown, build, plain
from turnledger.doctor.verify import verify
from turnledger.retention.vacuum import Stays, Went


def event(session: str, seq: int | None, type_: str, **fields: Any) -> bytes:
    second = "" if seq is None else f"2026-03-01T10:{seq // 60:02d}:{seq % 60:02d}Z"
    body = {"session_id": session, "type": type_, "occurred_at": second or None, **fields}
    return json.dumps(body if seq is None else {**body, "seq": seq}).encode()


def worked(session: str, **start: Any) -> list[bytes]:
    """A session of one turn with a call (100 tokens in, 20 out), a tool, a request and a file; it has ended."""
    call = {"turn_id": "t", "model_call_id": "c"}
    done = {
        "provider": "anthropic",
        "model": "claude-sonnet-4-5",
        "message_id": f"m-{session}",
        "usage": {"input": 60, "output": 20, "cache_read": 40},
        "stop_reason": "end_turn",
        "text": "an answer that nobody may read for ever",
    }
    return [
        event(session, 0, "session.started", payload={"agent": "a", **start}),
        event(session, 1, "turn.started", turn_id="t", payload={"input_preview": "a question"}),
        event(session, 2, "model_call.started", **call, payload={"provider": "anthropic"}),
        event(session, 3, "model_call.completed", **call, payload=done),
        event(session, 4, "tool_call.requested", **call, tool_call_id="x", payload={"tool_name": "bash"}),
        event(
            session, 5, "tool_call.completed", turn_id="t", tool_call_id="x", payload={"status": "error", "error_message": "no such file"},
        ),
        event(session, 6, "net.requested", turn_id="t", payload={"domain": "a.example", "decision": "allowed"}),
        event(session, 7, "fs.changed", turn_id="t", payload={"action": "created", "path": "a"}),
        event(session, 8, "turn.completed", turn_id="t", payload={"status": "completed"}),
        event(session, 9, "session.ended", payload={"status": "stopped"}),
    ]  # fmt: skip


def test_c24_a_vacuumed_sessions_event_that_comes_again_is_an_unverified_duplicate_and_nothing_moves(
    database: str,
) -> None:
    apply(database, "first", worked("s"))
    rolled_up(database)
    before = numbers(database)
    assert let_go(database, "default/s") == [Went(10, sum(map(len, worked("s"))), late=False)]
    verified(database)
    again = apply(database, "again", [worked("s")[3]])
    assert (again.records, again.duplicates, again.unverified, again.accepted) == (1, 1, 1, 0)
    verified(database)
    assert numbers(database) == before
    assert one(
        rows(database, "select detail, total_input_tokens, output_tokens from turnledger.sessions")
    ) == ("vacuumed", 100, 20)


def test_events_records_and_texts_are_gone_and_digests_calls_and_sums_are_not(database: str) -> None:
    apply(database, "first", worked("s"))
    rolled_up(database)
    digest = one(rows(database, "select digest from turnledger.turns"))
    let_go(database, "default/s")
    rolled_up(database)
    assert rows(database, "select 1 from turnledger.events") == []
    assert one(rows(database, "select digest, record from turnledger.turns")) == (*digest, None)
    for view in ("net_events", "fs_events", "model_items"):
        assert rows(database, f"select 1 from turnledger.{view}") == []
    assert one(rows(database, "select tool_name, status, error_message from turnledger.tool_calls")) == (
        "bash",
        "error",
        None,
    )
    kept = one(
        rows(database, "select events, late, turns, vacuumed_by, why, run, days from turnledger.vacuums")
    )
    assert kept[:6] == (10, 0, 1, "tester", "a test", None)
    assert list(kept[6].values()) == [10]


def test_what_is_new_after_a_vacuum_is_kept_and_a_finding_and_the_sums_stay(database: str) -> None:
    sent = worked("s")
    apply(database, "first", sent)
    rolled_up(database)
    before = numbers(database)
    let_go(database, "default/s")
    # It goes on: another turn, and a number far beyond, so that there is a hole of 6.
    more = [
        event("s", 10, "turn.started", turn_id="u"),
        event("s", 11, "net.requested", turn_id="u", payload={"domain": "b.example", "decision": "denied"}),
        event("s", 18, "turn.completed", turn_id="u"),
        event("s", None, "note", receipt_key="r"),
    ]
    assert apply(database, "more", more).accepted == 4
    verified(database)
    assert numbers(database) == before
    finding = one(
        rows(
            database,
            "select severity, count, rows from turnledger.findings where \"check\" = 'late_after_vacuum'",
        )
    )
    assert finding[:2] == ("warning", 4)
    assert [(row["seq"], row["receipt_key"]) for row in finding[2]] == [
        (10, None),
        (11, None),
        (18, None),
        (None, "r"),
    ]
    assert rows(database, "select from_seq, to_seq, state from turnledger.gaps") == [(12, 17, "open")]
    # All of it again: what is there is compared, what is gone is not.
    again = apply(database, "again", shuffled([*sent, *more], 3))
    assert (again.accepted, again.duplicates, again.unverified, again.conflicts) == (0, 14, 10, 0)
    conflict = apply(database, "other", [event("s", 11, "note")])
    assert conflict.conflicts == 1
    verified(database)
    # What came late goes with a second vacuum, and is still counted.
    assert let_go(database, "default/s") == [Went(4, sum(map(len, more)), late=True)]
    verified(database)
    assert one(
        rows(database, "select count from turnledger.findings where \"check\" = 'late_after_vacuum'")
    ) == (4,)
    assert apply(database, "third", more).unverified == 4
    verified(database)
    assert let_go(database, "default/s") == [Stays("it is vacuumed, and nothing came since")]


def test_holes_and_declarations_of_a_vacuumed_session_stay_what_they_are(database: str) -> None:
    sent = [
        event("s", 0, "session.started"),
        event("s", 3, "stream.lost", payload={"from_seq": 1, "to_seq": 1, "reason": "full"}),
        event("s", 6, "stream.closed", payload={"last_seq": 8}),
        event("s", 4, "session.ended", payload={"status": "stopped"}),
        event("s", 0, "stream.declared", stream="bus", payload={"density": "sparse"}),
        event("s", 7, "note", stream="bus"),
    ]
    apply(database, "first", sent)
    rolled_up(database)
    gaps = "select stream, from_seq, to_seq, state from turnledger.gaps order by stream, from_seq"
    before = [
        ("ledger", 1, 1, "declared_lost"),
        ("ledger", 2, 2, "open"),
        ("ledger", 5, 5, "open"),
        ("ledger", 7, 8, "open"),
    ]
    assert rows(database, gaps) == before
    let_go(database, "default/s")
    verified(database)
    assert rows(database, gaps) == before
    # 5 comes late; a hole in the sparse stream is none; 2 is declared away.
    late = [
        event("s", 5, "note"),
        event("s", 20, "note", stream="bus"),
        event("s", 9, "stream.elided", payload={"from_seq": 2, "to_seq": 2, "reason": "off"}),
    ]
    assert apply(database, "late", late).accepted == 3
    verified(database)
    assert rows(database, gaps) == [
        ("ledger", 1, 1, "declared_lost"),
        ("ledger", 2, 2, "declared_elided"),
        ("ledger", 5, 5, "filled_late"),
        ("ledger", 7, 8, "open"),
    ]
    assert one(rows(database, "select open_gaps, grade from turnledger.sessions")) == (3, "gaps")


def test_running_persistent_unsent_and_unproven_sessions_are_left_alone(database: str) -> None:
    running, persistent, wrong = worked("running")[:-1], worked("kept", persistent=True), worked("wrong")
    apply(database, "first", [*running, *persistent, *wrong, *worked("unsent")])
    rolled_up(database)
    wrong_no = "(select session_no from ledger.sessions where session_id = 'wrong')"
    execute(
        database,
        f"update projection_a.turns set event_count = event_count + 1 where session_no = {wrong_no}",
    )
    execute(
        database,
        "insert into ledger.outbox (session_no, turn_key) select session_no, 't' from ledger.sessions where session_id = 'unsent'",
    )
    became = let_go(database, "default/running", "default/kept", "default/wrong", "default/unsent")
    assert [one.why.partition(" (")[0] for one in became if isinstance(one, Stays)] == [
        "it is running",
        "it is persistent",
        "1 of its rows are not what its events give",
        "turn records of it are still to be sent: `turnledger outbox` sends them",
    ]
    assert one(rows(database, "select count(*) from turnledger.events")) == (39,)
    assert rows(database, "select 1 from turnledger.vacuums") == []


@pytest.mark.parametrize("seed", range(max(2, round(2 * times()))))
def test_vacuums_at_any_point_and_everything_delivered_again_move_no_number(database: str, seed: int) -> None:
    chance = random.Random(seed)
    envelopes = build(
        (0, _sown(seed * 7919 + 1, 36, frozenset()) + _sown(seed * 104729 + 5, 36, frozenset()))
    )
    raws = [plain(envelope) for envelope in envelopes]
    names = sorted({(e.get("tenant", "default"), e["session_id"]) for e in envelopes})
    raws += [
        event(name, None, "session.ended", tenant=tenant, receipt_key="the-end", producer="closer", payload={"status": "stopped"})
        for tenant, name in names
    ]  # fmt: skip
    cut = chance.randint(1, len(raws))
    apply(database, "first", raws, rounds=4)
    rolled_up(database)
    before = numbers(database)
    for tenant, name in chance.sample(names, len(names)):
        became = let_go(database, f"{tenant}/{name}")[0]
        assert isinstance(became, Went), became
        if chance.random() < 0.5:
            apply(database, f"part-{tenant}-{name}", shuffled(raws[:cut], seed))
        if chance.random() < 0.5:
            verified(database)
    again = apply(database, "again", shuffled(raws, seed), rounds=3)
    assert (again.accepted, again.conflicts) == (0, 0)
    assert again.duplicates == again.unverified == len(raws)
    report = verified(database)
    assert report.events == 0
    assert numbers(database) == before


def test_verify_names_a_kept_row_that_was_changed_after_the_vacuum(database: str) -> None:
    apply(database, "first", worked("s"))
    rolled_up(database)
    let_go(database, "default/s")
    verified(database)
    execute(database, "update projection_a.model_calls set output_tokens = output_tokens + 1")
    report = verify(database, PRICE, settle_seconds=0)
    assert {fault.what for fault in report.faults["I4"]} == {
        "rows of a vacuumed session are not those that were kept"
    }
    assert report.counts["I5"]


def test_verify_names_an_event_that_went_without_a_vacuum(database: str) -> None:
    apply(database, "first", [*worked("s"), *worked("other")])
    rolled_up(database)
    let_go(database, "default/s")
    verified(database)
    execute(database, "update ledger.vacuumed_batches set events = events - 1")
    execute(database, "update ledger.streams set vacuumed = vacuumed - 1 where vacuumed > 0")
    report = verify(database, PRICE, settle_seconds=0)
    assert {fault.what for fault in report.faults["I1"]} == {
        "a session's vacuums are not what its streams lack",
        "what was vacuumed is not what batches lack",
        "a batch's accepted events are not those in the ledger",
        "what a stream has seen is not the events that are there and those that were vacuumed",
    }
