"""Order inside a session (contract 5)."""

from __future__ import annotations

from typing import Any

import pytest

from turnledger.contract.event import Event
from turnledger.fold.order import numbered_place, order_key, ordered


def event(at: int | None = None, seq: int | None = 0, **given: Any) -> Event:
    return Event(session_id="s", type="x", at=at, seq=seq, **given)


def places(*events: Event) -> list[tuple[str, str, int, int | None, str | None]]:
    return [(e.producer, e.stream, e.epoch, e.seq, e.receipt_key) for e in ordered(reversed(events))]


def test_within_a_stream_the_number_decides_and_never_the_clock() -> None:
    events = [event(30, 0), event(10, 1), event(20, 2)]
    assert [e.seq for e in ordered(reversed(events))] == [0, 1, 2]
    assert [e.running for e in events] == [30, 30, 30]


def test_running_times_carry_over_epochs() -> None:
    old, new = event(50, 7, epoch=0), event(20, 0, epoch=1)
    assert ordered([new, old]) == [old, new]
    assert new.running == 50


def test_before_its_first_known_time_a_stream_takes_that_first_one() -> None:
    events = [event(None, 0), event(None, 1), event(40, 2), event(None, 3)]
    ordered(events)
    assert [e.running for e in events] == [40, 40, 40, 40]


def test_a_stream_without_times_comes_last() -> None:
    untimed, timed = event(None, 0, stream="a"), event(10**15, 0, stream="z")
    assert ordered([untimed, timed]) == [timed, untimed]
    assert untimed.running is None


def test_at_one_time_producer_stream_epoch_and_number_decide_by_utf8_bytes() -> None:
    events = [
        event(5, 9, producer="Z", stream="b"),
        event(5, 1, producer="a", stream="B"),
        event(5, 0, producer="a", stream="b", epoch=0),
        event(5, 0, producer="a", stream="b", epoch=1),
        event(5, 0, producer="ab", stream="a"),
        event(5, 0, producer="\uffff", stream="a"),
        event(5, 0, producer="\U0001f600", stream="a"),  # after U+FFFF by UTF-8, before it by UTF-16
    ]
    assert [e.producer for e in ordered(reversed(events))] == [
        "Z",
        "a",
        "a",
        "a",
        "ab",
        "\uffff",
        "\U0001f600",
    ]
    assert [e.stream for e in ordered(reversed(events))][1:4] == ["B", "b", "b"]


def test_events_without_a_number_come_after_all_numbered_ones_of_their_time() -> None:
    assert places(
        event(5, 0, producer="z"),
        event(5, None, receipt_key="a", producer="z"),
        event(5, None, receipt_key="b", producer="a"),
        event(6, 0, producer="a", stream="other"),
        event(None, None, receipt_key="a"),
    ) == [
        ("z", "ledger", 0, 0, None),
        ("z", "ledger", 0, None, "a"),
        ("a", "ledger", 0, None, "b"),
        ("a", "other", 0, 0, None),
        ("harness", "ledger", 0, None, "a"),
    ]


def test_a_receipts_time_is_its_own() -> None:
    early = event(3, None, receipt_key="r")
    ordered([event(9, 0), early])
    assert early.running == 3


def test_times_before_1970_sort_first() -> None:
    before, after = event(-5, 0, stream="b"), event(5, 0, stream="a")
    assert ordered([after, before]) == [before, after]


@pytest.mark.parametrize(
    ("producer", "stream", "epoch", "seq"), [("p", "s", 0, 0), ("ö/%", "file:ä", 3, 2**63 - 1)]
)
def test_a_numbered_place_is_told_from_its_key(producer: str, stream: str, epoch: int, seq: int) -> None:
    one = event(7, seq, producer=producer, stream=stream, epoch=epoch)
    ordered([one])
    assert numbered_place(order_key(one)) == (producer, stream, epoch, seq)


def test_an_event_without_number_has_no_numbered_place() -> None:
    one = event(7, None, receipt_key="r")
    ordered([one])
    assert numbered_place(order_key(one)) is None
