"""Arrival history of gaps: what a hole that was seen open turns into (contract 4)."""

from __future__ import annotations

from turnledger.fold.seen import StreamSeen
from turnledger.ingest.holes import LiveGap, compare, live_rows
from turnledger.store.write_rows import GapRow, GapWrites


def seen(*numbers: int) -> StreamSeen:
    found = StreamSeen()
    for number in numbers:
        found.add(number)
    return found


def open_gap(first: int, last: int, state: str = "open") -> LiveGap:
    return LiveGap(first, last, state, 1, last - first + 1)


def test_a_new_hole_gets_a_row() -> None:
    out = GapWrites()
    compare(7, [], [open_gap(2, 3)], seen(0, 1, 4), out)
    assert out == GapWrites(opened=[GapRow(7, None, 2, 3, "open", 1, 2)])


def test_a_hole_that_fills_whole_keeps_its_row_as_filled_late() -> None:
    out = GapWrites()
    compare(7, [open_gap(2, 3)], [], seen(0, 1, 4, 2, 3), out)
    assert out == GapWrites(changed=[GapRow(7, 2, 2, 3, "filled_late", 1, 2)])


def test_a_hole_that_fills_in_the_middle_is_split_and_its_middle_is_filled_late() -> None:
    out = GapWrites()
    compare(7, [open_gap(5, 9)], [open_gap(5, 6), open_gap(8, 9)], seen(*range(5), 10, 7), out)
    assert out.changed == [GapRow(7, 5, 5, 6, "open", 1, 2)]
    assert out.opened == [GapRow(7, 5, 8, 9, "open", 1, 2), GapRow(7, 5, 7, 7, "filled_late", 1, 1)]
    assert out.folded == []


def test_case_c23_a_declared_loss_keeps_its_row_and_the_rest_fills_late() -> None:
    first = GapWrites()
    declared = [open_gap(2, 2, "declared_lost"), open_gap(3, 3)]
    compare(7, [open_gap(2, 3)], declared, seen(0, 1, 4), first)
    assert first.changed == [GapRow(7, 2, 2, 2, "declared_lost", 1, 1)]
    assert first.opened == [GapRow(7, 2, 3, 3, "open", 1, 1)]
    second = GapWrites()
    compare(7, declared, declared[:1], seen(0, 1, 4, 3), second)
    assert second == GapWrites(changed=[GapRow(7, 3, 3, 3, "filled_late", 1, 1)])


def test_a_stream_that_proves_sparse_withdraws_its_holes() -> None:
    out = GapWrites()
    compare(7, [open_gap(2, 3)], [], seen(0, 1, 4), out)
    assert out == GapWrites(changed=[GapRow(7, 2, 2, 3, "withdrawn", 1, 2)])


def test_of_a_hole_that_fills_in_part_and_is_withdrawn_the_numbers_that_never_came_are_not_filled() -> None:
    # Seeds 10636, 13323 and 17016 of the simulator: its first and last number came, and then the stream proved sparse.
    out = GapWrites()
    compare(7, [open_gap(2, 6)], [], seen(0, 1, 7, 2, 6, 5), out)
    assert out.opened == [
        GapRow(7, 2, 2, 2, "filled_late", 1, 1),
        GapRow(7, 2, 3, 4, "withdrawn", 1, 2),
        GapRow(7, 2, 5, 6, "filled_late", 1, 2),
    ]
    assert out.folded == [(7, 2)]
    assert out.changed == []


def test_two_declared_neighbours_become_one_row() -> None:
    out = GapWrites()
    before = [open_gap(2, 2, "declared_lost"), open_gap(3, 3)]
    compare(7, before, [open_gap(2, 3, "declared_lost")], seen(0, 1, 4), out)
    assert out.changed == [GapRow(7, 2, 2, 3, "declared_lost", 1, 2)]
    assert out.folded == [(7, 3)]
    assert out.opened == []


def test_a_thousand_open_gaps_are_rows_and_one_more_makes_them_one() -> None:
    thousand = [(n, n, "open") for n in range(1, 2000, 2)]
    rows, opened = live_rows(thousand)
    assert (len(rows), opened) == (1000, 1000)
    rows, opened = live_rows([*thousand, (2001, 2004, "open"), (3000, 3000, "declared_lost")])
    assert opened == 1001
    assert rows == [LiveGap(1, 2004, "fragmented", 1001, 1004), LiveGap(3000, 3000, "declared_lost", 1, 1)]


def test_the_fragmented_row_stands_for_the_rows_before_it_and_keeps_the_earliest_start() -> None:
    before, _ = live_rows([(1, 1, "open"), (3, 3, "open")])
    now = [LiveGap(1, 9, "fragmented", 1001, 1001)]
    out = GapWrites()
    compare(7, before, now, seen(0, 2), out)
    assert out == GapWrites(changed=[GapRow(7, 1, 1, 9, "fragmented", 1001, 1001)], folded=[(7, 3)])


def test_a_fragmented_row_that_grows_is_not_folded_away_with_what_it_was() -> None:
    out = GapWrites()
    compare(
        7,
        [LiveGap(1, 9, "fragmented", 1001, 1001)],
        [LiveGap(1, 11, "fragmented", 1002, 1002)],
        seen(0, 10),
        out,
    )
    assert out == GapWrites(changed=[GapRow(7, 1, 1, 11, "fragmented", 1002, 1002)])


def test_a_fragmented_row_that_begins_later_comes_from_the_one_before() -> None:
    out = GapWrites()
    compare(
        7,
        [LiveGap(1, 11, "fragmented", 1002, 1002)],
        [LiveGap(3, 11, "fragmented", 1001, 1001)],
        seen(0, 1),
        out,
    )
    assert out == GapWrites(opened=[GapRow(7, 1, 3, 11, "fragmented", 1001, 1001)], folded=[(7, 1)])
