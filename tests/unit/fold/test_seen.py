"""Which numbers of a stream have been seen (design 3.2)."""

from __future__ import annotations

import pytest

from turnledger.fold.seen import CHUNK, StreamSeen


def test_in_order_nothing_is_mixed() -> None:
    seen = StreamSeen()
    assert all(seen.add(number) for number in range(20_000))
    assert (seen.low, seen.hi, seen.missing) == (20_000, 19_999, 0)
    assert seen.chunks() == {}
    assert not seen.dirty


def test_a_number_counts_once() -> None:
    seen = StreamSeen()
    assert seen.add(3)
    assert not seen.add(3)
    assert seen.add(1)
    assert not seen.add(1)
    assert 1 in seen
    assert 2 not in seen
    assert 4 not in seen


def test_holes_are_maximal_runs_also_over_the_edge_of_a_chunk() -> None:
    seen = StreamSeen()
    for number in (0, 2, 8190, 8193, 30_000):
        seen.add(number)
    assert list(seen.holes()) == [(1, 1), (3, 8189), (8191, 8192), (8194, 29_999)]
    assert seen.low == 1
    assert seen.missing == 1 + 8187 + 2 + 21_806


def test_behind_a_hole_that_never_fills_nothing_is_written() -> None:
    seen = StreamSeen()
    seen.add(0)
    seen.add(5)
    seen.saved()
    for number in range(6, 50_000):
        seen.add(number)
    assert not seen.dirty
    assert list(seen.holes()) == [(1, 4)]


def test_a_filled_chunk_is_deleted() -> None:
    seen = StreamSeen()
    seen.add(0)
    seen.add(2)
    assert seen.dirty == {0}
    seen.saved()
    seen.add(1)
    assert (seen.dirty, seen.gone) == (set(), {0})
    assert seen.low == 3


@pytest.mark.parametrize("far", [2**40, 2**63 - 1])
def test_a_far_jump_costs_a_few_rows_and_is_told_again(far: int) -> None:
    seen = StreamSeen()
    seen.add(10)
    seen.add(far)
    seen.add(far // 2)
    assert len(seen.chunks()) <= 6
    again = StreamSeen(seen.hi, seen.chunks())
    assert list(again.holes()) == [(0, 9), (11, far // 2 - 1), (far // 2 + 1, far - 1)]
    assert (again.low, again.hi, again.missing) == (seen.low, seen.hi, seen.missing)


def test_a_chunk_has_a_bit_for_each_missing_number() -> None:
    seen = StreamSeen()
    for number in (0, 1, 3, 9):
        seen.add(number)
    bits = seen.chunk_bytes(0)
    assert len(bits) == CHUNK // 8
    assert bits[:2] == bytes([0b11110100, 0b00000001])
    assert not any(bits[2:])


def test_what_was_stored_late_is_pure_extension() -> None:
    seen = StreamSeen()
    for number in (0, 2, 3):
        seen.add(number)
    stored = seen.chunks()
    seen.add(4)
    again = StreamSeen(4, stored)
    assert list(again.holes()) == [(1, 1)]
    assert not again.add(4)
