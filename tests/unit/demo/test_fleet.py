"""The demo's fleet: the same every time, and its faults are the ones it names."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import pytest

from turnledger.contract.event import Event
from turnledger.contract.reader import Rejected, read
from turnledger.demo.fleet import Fleet, fleet


@pytest.fixture(scope="module")
def sent() -> Fleet:
    return fleet(seed=11, seconds=30, start=datetime(2026, 3, 1, 12, tzinfo=UTC), run="t")


def events(sent: Fleet, *kinds: str) -> list[dict[str, Any]]:
    return [delivery.envelope for delivery in sent.deliveries if delivery.kind in kinds]


def test_the_same_arguments_give_the_same_bytes(sent: Fleet) -> None:
    again = fleet(seed=11, seconds=30, start=datetime(2026, 3, 1, 12, tzinfo=UTC), run="t")
    assert again == sent
    assert fleet(seed=12, seconds=30, start=datetime(2026, 3, 1, 12, tzinfo=UTC), run="t") != sent


def test_one_more_vm_changes_nothing_about_the_others() -> None:
    def of_the_first(vms: int) -> list[bytes]:
        made = fleet(vms=vms, seconds=20)
        return sorted(
            d.value for d in made.deliveries if d.key == b"default/demo-vm-01" and d.kind in ("event", "late")
        )

    assert of_the_first(8) == of_the_first(9)


def test_eight_sessions_of_five_harness_styles_by_default(sent: Fleet) -> None:
    assert sent.sessions == [f"t-vm-0{number}" for number in range(1, 9)]
    agents = {e["payload"]["agent"] for e in events(sent, "event") if e["type"] == "session.started"}
    assert agents == {"coder", "codex", "claude-code", "concierge", "researcher"}


def test_records_go_out_in_the_order_of_time_and_within_the_length(sent: Fleet) -> None:
    times = [delivery.after for delivery in sent.deliveries]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] <= 30


def test_every_record_but_the_garbage_is_an_event_of_the_contract(sent: Fleet) -> None:
    for delivery in sent.deliveries:
        answer = read(delivery.value)
        assert isinstance(answer, Rejected if delivery.kind == "garbage" else Event), (delivery, answer)


def test_a_duplicate_has_the_bytes_of_an_event_that_was_sent_before_it(sent: Fleet) -> None:
    seen: set[bytes] = set()
    duplicates = 0
    for delivery in sent.deliveries:
        if delivery.kind == "duplicate":
            assert delivery.value in seen
            duplicates += 1
        seen.add(delivery.value)
    assert duplicates >= 40
    assert duplicates == sent.counts["duplicate"]


def test_the_conflict_tells_one_number_in_two_ways_the_true_one_first(sent: Fleet) -> None:
    session, stream, seq = sent.conflict
    told = [
        d
        for d in sent.deliveries
        if d.kind in ("event", "conflict")
        and (d.envelope["session_id"], d.envelope["stream"], d.envelope.get("seq")) == (session, stream, seq)
    ]
    assert [d.kind for d in told] == ["event", "conflict"]
    assert told[0].envelope["payload"] != told[1].envelope["payload"]


def test_the_only_holes_are_the_ones_named(sent: Fleet) -> None:
    """Of what was sent on time, two holes; when the late ones are there, the one that stays open."""

    def holes(*kinds: str) -> set[tuple[str, str, int]]:
        numbers: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        for event in events(sent, *kinds):
            if "seq" in event:
                numbers[event["session_id"], event["stream"]].add(event["seq"])
        return {(*key, n) for key, seen in numbers.items() for n in range(max(seen)) if n not in seen}

    opened = {
        (sent.open_gap.session_id, "recorder", n)
        for n in range(sent.open_gap.from_seq, sent.open_gap.to_seq + 1)
    }
    late = {
        (sent.late_gap.session_id, "recorder", n)
        for n in range(sent.late_gap.from_seq, sent.late_gap.to_seq + 1)
    }
    assert len(opened) == 3
    assert len(late) == 6
    assert holes("event") == opened | late
    assert holes("event", "late") == opened


def test_the_counts_account_for_every_record(sent: Fleet) -> None:
    assert sum(sent.counts.values()) == sent.records == len(sent.deliveries)
    assert sent.counts["conflict"] == 1
    assert sent.counts["garbage"] == 1
    identities = {
        (e["session_id"], e["stream"], e.get("seq", e.get("receipt_key")))
        for e in events(sent, "event", "late")
    }
    assert sent.accepted == len(identities)


def test_the_fleet_works_with_parallel_tools_failures_and_retries(sent: Fleet) -> None:
    everything = events(fleet(), "event")
    types = {event["type"] for event in everything}
    assert {
        "model_call.retried",
        "model_call.failed",
        "tool_call.denied",
        "mcp.observed",
        "net.requested",
        "fs.changed",
    } <= types
    assert any(
        e["type"] == "tool_results.submitted" and len(e["payload"]["tool_call_ids"]) > 1 for e in everything
    )
    assert any(e["type"] == "tool_call.completed" and e["payload"]["status"] == "error" for e in everything)


@pytest.mark.parametrize(("vms", "seconds"), [(4, 60.0), (8, 5.0)])
def test_a_fleet_too_small_for_its_faults_is_refused(vms: int, seconds: float) -> None:
    with pytest.raises(ValueError, match="at least 5 VMs and 10 s"):
        fleet(vms=vms, seconds=seconds)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("seconds", [10.0, 15.0])
def test_the_shortest_fleets_have_room_for_every_fault(seed: int, seconds: float) -> None:
    made = fleet(seed=seed, seconds=seconds)
    assert made.counts["late"] == 6
    assert made.counts["conflict"] == made.counts["garbage"] == 1
    assert made.open_gap.to_seq - made.open_gap.from_seq == 2
