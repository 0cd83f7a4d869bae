"""Worked cases of contract 16 that identity, order, gaps and membership decide. Every expected value is the contract's."""

from __future__ import annotations

import json
import random
from itertools import permutations
from typing import Any

from tests.unit.fold.events import Story, checks
from turnledger.contract.canonical import content_hash
from turnledger.fold.dedupe import dedupe
from turnledger.fold.model import SessionFold
from turnledger.fold.session import fold_session


def record(seq: int, type_: str, payload: dict[str, Any] | None = None, **given: Any) -> bytes:
    envelope = {
        "session_id": "s",
        "seq": seq,
        "type": type_,
        "occurred_at": f"2026-05-04T10:00:{seq:02}Z",
        "payload": payload or {},
        **given,
    }
    return json.dumps(envelope).encode()


def folded(records: list[bytes]) -> dict[tuple[str, str], SessionFold]:
    found = dedupe(enumerate(records))
    return {key: fold_session(*key, events) for key, events in found.sessions.items()}


def turn(session_id: str = "s", **given: Any) -> list[bytes]:
    always = {"turn_id": "t", "session_id": session_id, **given}
    usage = {"input": 10, "output": 5, "cache_read": 0}
    return [
        record(0, "turn.started", **always),
        record(1, "tool_call.requested", {"tool_name": "bash"}, tool_call_id="x", **always),
        record(2, "tool_call.completed", {"status": "ok"}, tool_call_id="x", **always),
        record(
            3,
            "model_call.completed",
            {"provider": "anthropic", "model": "m", "usage": usage},
            model_call_id="1",
            **always,
        ),
        record(4, "turn.completed", **always),
    ]


def test_c1_five_events_three_times_each_in_any_order_count_once() -> None:
    once = folded(turn())[("default", "s")].turns[0]
    for seed in range(20):
        records = turn() * 3
        random.Random(seed).shuffle(records)
        found = dedupe(enumerate(records))
        assert found.records == {"read": 15, "accepted": 5, "duplicates": 10, "conflicts": 0, "dead": 0}
        (fold,) = folded(records)[("default", "s")].turns
        assert fold.body == once.body
        assert (fold.record["usage"]["input_uncached"], fold.record["usage"]["output"]) == (10, 5)


def test_c2_a_sample_that_comes_again_after_the_final_report_is_ignored() -> None:
    def sample(seq: int, output: int) -> bytes:
        said = {"provider": "anthropic", "counter_kind": "snapshot", "usage": {"output": output}}
        return record(seq, "usage.reported", said, turn_id="t", model_call_id="1")

    final = {"provider": "anthropic", "model": "m", "usage": {"output": 358}}
    records = [
        sample(0, 3),
        sample(1, 120),
        record(2, "model_call.completed", final, turn_id="t", model_call_id="1"),
        sample(3, 120),
    ]
    for order in permutations(records):
        (fold,) = folded(list(order))[("default", "s")].turns
        assert fold.record["usage"]["output"] == 358


def test_c6_tenants_and_sessions_share_nothing() -> None:
    records = [*turn(), *turn(tenant="other"), *turn("r")]
    folds = folded(records)
    assert sorted(folds) == [("default", "r"), ("default", "s"), ("other", "s")]
    assert dedupe(enumerate(records)).records["accepted"] == 15
    for (tenant, session_id), fold in folds.items():
        (only,) = fold.turns
        assert (only.record["tenant"], only.record["session_id"]) == (tenant, session_id)
        assert only.record["usage"]["output"] == 5


def test_c7_every_order_of_a_turns_events_has_one_digest_also_with_equal_times() -> None:
    records = turn()
    equal = json.loads(records[2])
    equal["occurred_at"] = "2026-05-04T10:00:01Z"
    records[2] = json.dumps(equal).encode()
    digests = {folded(list(order))[("default", "s")].turns[0].digest for order in permutations(records)}
    assert len(digests) == 1


def test_c8_the_first_stays_and_the_other_is_one_receipt_with_its_count() -> None:
    x, y = record(7, "odd", {"v": "X"}), record(7, "odd", {"v": "Y"})
    found = dedupe(enumerate([x, y, y]))
    assert found.records == {"read": 3, "accepted": 1, "duplicates": 0, "conflicts": 2, "dead": 0}
    (kept,) = found.sessions[("default", "s")]
    assert kept.payload == {"v": "X"}
    assert found.conflicts == [
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
            "first_position": 1,
            "last_position": 2,
        }
    ]


def test_c9_a_result_after_the_end_turns_a_missing_result_into_a_late_one() -> None:
    story = Story(turn="t")
    story("turn.started")
    story("tool_call.requested", tool="t1", tool_name="bash")
    story("tool_call.completed", tool="t2", status="ok")
    story("turn.completed")
    before = story.turn()
    pairings = {tool["tool_call_id"]: tool["pairing"] for tool in before.record["tool_calls"]}
    assert pairings == {"t1": "missing_result", "t2": "orphan_result"}
    story("tool_call.completed", tool="t1", status="ok")
    after = story.turn()
    pairings = {tool["tool_call_id"]: tool["pairing"] for tool in after.record["tool_calls"]}
    assert pairings == {"t1": "late_result", "t2": "orphan_result"}
    assert before.digest != after.digest


def test_c20_an_exit_of_a_new_epoch_leaves_the_old_row_untouched() -> None:
    story = Story()
    story("process.started", exec_id="1", command="make", epoch=0)
    story("process.exited", exec_id="1", exit_code=0, epoch=0)
    (before,) = story.fold().points["exec_events"]
    story("process.exited", exec_id="1", exit_code=9, epoch=1)
    fold = story.fold()
    assert fold.points["exec_events"][0] == before
    assert [(row["epoch"], row["exit_code"]) for row in fold.points["exec_events"]] == [(0, 0), (1, 9)]
    assert fold.facts["exec_count"] == 1


def test_c23_a_declared_loss_is_shown_and_a_late_number_is_no_gap() -> None:
    story = Story(stream="trace")
    for seq in (0, 1, 4):
        story("recorder.settled", seq=seq)
    story(
        "stream.lost",
        stream="ledger",
        payload={"stream": "trace", "from_seq": 2, "to_seq": 2, "reason": "full"},
    )
    story("recorder.settled", seq=3)
    fold = story.fold()
    assert [(row["stream"], row["from_seq"], row["to_seq"], row["state"]) for row in fold.gaps] == [
        ("trace", 2, 2, "declared_lost")
    ]
    assert checks(fold) == ["declared_loss"]
    assert fold.facts["stream_grade"] == "complete"
