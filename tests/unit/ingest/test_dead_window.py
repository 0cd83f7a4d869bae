"""The stop rule: more than half of the last 1,000 records dead (contract 15)."""

from __future__ import annotations

from turnledger.ingest.decide import DeadWindow


def test_half_is_allowed_and_one_more_is_not() -> None:
    window = DeadWindow(0.5, 1000)
    assert not any(window.died() for _ in range(500))
    assert window.died()


def test_good_records_between_push_the_dead_ones_out() -> None:
    window = DeadWindow(0.5, 1000)
    for _ in range(400):
        window.died()
    window.passed(1000)
    assert not any(window.died() for _ in range(500))


def test_every_second_record_dead_is_allowed() -> None:
    window = DeadWindow(0.5, 1000)
    exceeded = False
    for _ in range(5000):
        exceeded = exceeded or window.died()
        window.passed(1)
    assert not exceeded


def test_what_was_dead_before_a_restart_counts() -> None:
    assert DeadWindow(0.5, 1000, 1000, range(499, 1000)).exceeded
    assert not DeadWindow(0.5, 1000, 1000, range(500, 1000)).exceeded


def test_after_a_restart_the_dead_leave_the_window_where_they_stood() -> None:
    window = DeadWindow(0.5, 1000, 1000, [*range(10), *range(510, 1000)])
    # Ten at the very beginning: each further record pushes one of them out.
    assert not any(window.died() for _ in range(10))
    assert window.died()


def test_dead_ones_before_the_window_do_not_count() -> None:
    window = DeadWindow(0.5, 10, 1000, [*range(900), 995])
    assert (window.dead, window.exceeded) == (1, False)


def test_a_copy_does_not_move_with_the_original() -> None:
    window = DeadWindow(0.5, 2)
    copy = window.copy()
    window.died()
    window.died()
    assert window.exceeded and not copy.exceeded
