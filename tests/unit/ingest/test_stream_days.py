"""Where a stream's numbers lie, by day of ingest (design 3.2)."""

from __future__ import annotations

from datetime import date

from turnledger.store.write import move_days
from turnledger.store.write_rows import StreamDays, StreamTouch

MONDAY, TUESDAY = date(2026, 3, 2), date(2026, 3, 3)


def test_the_range_of_a_day_grows_and_a_new_day_begins_a_new_one() -> None:
    days = StreamDays()
    move_days([StreamTouch(1, 5, 9, days)], MONDAY)
    assert days == StreamDays(MONDAY, 5, 9)
    move_days([StreamTouch(1, 2, 12, days)], MONDAY)
    assert days == StreamDays(MONDAY, 2, 12)
    move_days([StreamTouch(1, 13, 20, days)], TUESDAY)
    assert days == StreamDays(TUESDAY, 13, 20)


def test_a_row_that_is_merely_due_moves_nothing() -> None:
    days = StreamDays(MONDAY, 5, 9)
    move_days([StreamTouch(1, None, None, days, (10, 9, 0, 0, 0))], TUESDAY)
    assert days == StreamDays(MONDAY, 5, 9)
