"""Where a stream's numbers lie, by day of ingest (design 3.2)."""

from __future__ import annotations

from datetime import date

from turnledger.store.write import day_of, move_days
from turnledger.store.write_rows import Round, StreamDays, StreamTouch

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


def test_no_event_lands_in_a_day_before_one_that_its_stream_has_reached() -> None:
    """A clock that was set back, or a transaction that began before midnight and waited."""
    there = StreamTouch(1, 10, 12, StreamDays(TUESDAY, 5, 9))
    new = StreamTouch(2, 0, 3, StreamDays())
    assert day_of(Round("t", "projection_a", [], touched=[new, there]), MONDAY) == TUESDAY
    assert day_of(Round("t", "projection_a", [], touched=[new]), MONDAY) == MONDAY
    extended = [(1, StreamDays(TUESDAY, 5, 9), 10, 12)]
    assert day_of(Round("t", "projection_a", [], extended=extended, known_day=TUESDAY), MONDAY) == TUESDAY
    assert day_of(Round("t", "projection_a", [], touched=[there]), date(2026, 3, 4)) == date(2026, 3, 4)
