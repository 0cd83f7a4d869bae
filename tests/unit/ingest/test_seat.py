"""Which fetched records continue a partition, and how a batch is cut into rounds."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from turnledger.ingest import prepare
from turnledger.ingest.batch import Fetched, anchor_crc
from turnledger.ingest.decide import DeadWindow
from turnledger.ingest.seat import Ahead, Piece, Seat, continue_from, split
from turnledger.store.fence import Claim, LogBroken


@dataclass
class Kept:
    offset: int
    value: bytes | None = b"v"
    key: bytes | None = b"k"
    timestamp: int = 5


def seat(next_offset: int, anchor: Kept | None = None) -> Seat:
    claim = Claim(
        topic="events",
        partition=0,
        next_offset=next_offset,
        epoch=1,
        disturbed=0,
        anchor_offset=anchor.offset if anchor else None,
        anchor_crc=anchor_crc(anchor) if anchor else None,
        flushed_batch=0,
    )
    found = Seat(("events", 0), claim, DeadWindow(0.5, 1000))
    found.expected = found.applied = next_offset
    found.anchor_due = anchor is not None
    return found


def batch(*offsets: int) -> Fetched:
    return Fetched(("events", 0), 1, [Kept(offset) for offset in offsets], 10 * len(offsets))


def offsets(records: object) -> list[int]:
    return [record.offset for record in records]  # type: ignore[attr-defined]


def test_records_that_were_applied_are_left_out() -> None:
    assert offsets(continue_from(seat(5), batch(3, 4, 5, 6), holes_accepted=False)) == [5, 6]
    assert offsets(continue_from(seat(5), batch(3, 4), holes_accepted=False)) == []


def test_records_that_begin_later_make_somebody_look() -> None:
    with pytest.raises(Ahead):
        continue_from(seat(5), batch(7, 8), holes_accepted=False)
    assert offsets(continue_from(seat(5), batch(7, 8), holes_accepted=True)) == [7, 8]


def test_the_first_record_after_a_claim_must_be_the_one_that_was_applied() -> None:
    anchor = Kept(4, b"other")
    with pytest.raises(LogBroken, match="another record at 4"):
        continue_from(seat(5, anchor), batch(4, 5), holes_accepted=False)
    same = seat(5, Kept(4))
    assert offsets(continue_from(same, batch(4, 5), holes_accepted=False)) == [5]
    assert not same.anchor_due


def test_a_missing_key_or_value_is_not_an_empty_one() -> None:
    crcs = {
        anchor_crc(Kept(1, value, key, timestamp))
        for value in (None, b"")
        for key in (None, b"")
        for timestamp in (5, 6)
    }
    assert len(crcs) == 8


def test_a_piece_is_cut_at_a_record_and_its_batch_is_finished_with_the_rest() -> None:
    fetched = batch(5, 6, 9, 10)
    head, tail = split(Piece(seat(5), 5, 11, fetched.records, 40, (fetched,)), 2)
    assert (head.from_offset, head.to_offset, offsets(head.records), head.batches) == (5, 9, [5, 6], ())
    assert (tail.from_offset, tail.to_offset, offsets(tail.records), tail.batches) == (
        9,
        11,
        [9, 10],
        (fetched,),
    )
    assert head.size + tail.size == 40


def test_a_share_without_records_stands_where_the_records_that_wait_begin() -> None:
    """They are admitted, and not applied when the round commits that only writes projections."""
    ours = seat(10)
    ours.expected = 17
    waiting = [Piece(ours, 10, 14, [Kept(10)], 1, ()), Piece(ours, 14, 17, [Kept(14)], 1, ())]
    flush = prepare.begin(2, "events", "projection_a", [], waiting)
    assert prepare.share_of(flush, ours).step.from_offset == 10
    taken = prepare.begin(3, "events", "projection_a", waiting[:1], waiting[1:])
    assert (taken.round.shares[0].step.from_offset, taken.round.shares[0].step.to_offset) == (10, 14)
    assert prepare.share_of(prepare.begin(4, "events", "projection_a", []), ours).step.from_offset == 17
