"""The fence on a real database: claims, the group rule, frozen holders, steps that go through and steps that do not."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from turnledger.store import fence
from turnledger.store.connect import connect

TOPIC = "events"
Connection = psycopg.Connection[Any]


def claim(connection: Connection, partition: int = 0, **changes: Any) -> fence.Claim:
    given = {"group_id": "g", "owner": "w", "start": 5} | changes
    return fence.claim(connection, TOPIC, partition, **given)


def step(claimed: fence.Claim, to_offset: int, **changes: Any) -> fence.Step:
    given = {
        "partition": claimed.partition,
        "from_offset": claimed.next_offset,
        "to_offset": to_offset,
        "epoch": claimed.epoch,
        "disturbed": claimed.disturbed,
        "anchor_offset": to_offset - 1,
        "anchor_crc": 77,
    }
    return fence.Step(**(given | changes))


def apply(connection: Connection, *steps: fence.Step) -> dict[int, fence.Passed]:
    with connection.transaction():
        return fence.apply(connection, TOPIC, steps, fence.backend(connection))


@pytest.fixture
def one(database: str) -> Connection:
    return connect(database, "test one", autocommit=True)


@pytest.fixture
def two(database: str) -> Connection:
    return connect(database, "test two", autocommit=True)


def test_a_partition_that_was_never_read_begins_at_the_earliest_record(one: Connection) -> None:
    claimed = claim(one)
    assert (claimed.next_offset, claimed.epoch, claimed.disturbed, claimed.anchor_offset) == (5, 1, 0, None)


def test_each_claim_raises_the_epoch_and_keeps_the_offset(one: Connection, two: Connection) -> None:
    first = claim(one)
    apply(one, step(first, 9))
    second = claim(two, start=0)
    assert (second.next_offset, second.epoch, second.anchor_offset, second.anchor_crc) == (9, 2, 8, 77)


def test_another_group_is_refused_in_a_sentence_and_takes_over_only_when_told(one: Connection) -> None:
    claim(one)
    with pytest.raises(fence.OtherGroup, match="belongs to the group g, not to other"):
        claim(one, group_id="other")
    taken = claim(one, group_id="other", take_over=True)
    assert taken.epoch == 2
    with pytest.raises(fence.OtherGroup, match="belongs to the group other, not to g"):
        claim(one)


def test_a_step_goes_through_once_and_its_batches_are_numbered_upwards(one: Connection) -> None:
    first, second = claim(one, 0), claim(one, 1)
    passed = apply(one, step(first, 8), step(second, 6))
    assert sorted(passed) == [0, 1]
    batches = [passed[0].batch_no, passed[1].batch_no]
    assert batches == sorted(batches, key=lambda n: n or 0) and None not in batches
    assert apply(one, step(first, 8), step(second, 6)) == {}
    standing = fence.read(one, TOPIC, [0, 1])
    assert (standing[0].next_offset, standing[1].next_offset) == (8, 6)


def test_a_step_under_an_older_epoch_does_not_come_back_and_the_others_do(
    one: Connection, two: Connection
) -> None:
    zombie, other = claim(one, 0), claim(one, 1)
    claim(two, 0)
    passed = apply(one, step(zombie, 8), step(other, 8))
    assert list(passed) == [1]
    assert fence.judge(step(zombie, 8), fence.read(one, TOPIC, [0])[0]) is fence.Verdict.OTHER_OWNER


def test_a_lost_commit_that_was_applied_is_recognised(one: Connection, two: Connection) -> None:
    claimed = claim(one)
    apply(one, step(claimed, 8))
    assert fence.judge(step(claimed, 8), fence.read(two, TOPIC, [0])[0]) is fence.Verdict.APPLIED


def test_a_step_without_records_takes_no_batch_number_and_moves_nothing(one: Connection) -> None:
    claimed = claim(one)
    flush = step(claimed, claimed.next_offset, anchor_offset=None, anchor_crc=None, flushed_batch=0)
    passed = apply(one, flush)
    assert passed[0].batch_no is None
    assert fence.read(one, TOPIC, [0])[0].next_offset == 5


def test_projections_are_whole_up_to_the_batch_or_as_the_step_says(one: Connection) -> None:
    claimed = claim(one)
    whole = apply(one, step(claimed, 8))[0].batch_no
    assert fence.read(one, TOPIC, [0])[0].flushed_batch == whole
    behind = step(claimed, 9, from_offset=8, flushed_batch=whole)
    apply(one, behind)
    assert fence.read(one, TOPIC, [0])[0].flushed_batch == whole


def test_a_frozen_worker_inside_its_transaction_is_ended_by_the_next_claim(
    one: Connection, two: Connection
) -> None:
    frozen = claim(one)
    # Its transaction holds the row and waits for a client that does not go on.
    one.execute("begin")
    assert fence.apply(one, TOPIC, [step(frozen, 8)], fence.backend(one))
    pid = one.info.backend_pid
    taken = claim(two, owner="next")
    assert taken.terminated == pid
    assert (taken.next_offset, taken.epoch) == (5, 2)
    with pytest.raises(psycopg.OperationalError):
        one.execute("commit")


def test_a_process_that_merely_has_the_recorded_number_is_not_ended(one: Connection, two: Connection) -> None:
    claim(one)
    two.execute(
        "update ledger.ingest_progress set backend_pid = %s, backend_start = '2000-01-01'",
        (one.info.backend_pid,),
    )
    one.execute("begin")
    one.execute("select from ledger.ingest_progress for update")
    with pytest.raises(fence.RowLocked, match="stays locked by another database process"):
        claim(two)
    one.execute("rollback")
    assert claim(two).epoch == 2


def test_a_claim_that_finds_the_row_disturbed_says_so(one: Connection) -> None:
    before = claim(one)
    one.execute("update ledger.ingest_progress set disturbed = disturbed + 1")
    after = claim(one)
    assert after.disturbed == 1
    assert not after.continues(before.epoch, before.next_offset, before.disturbed)
