"""Contract 5: the one order of a session's events, whatever order they came in."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.unit.contract_cases.cases import Event, fold, mark, order


def r(key: str, name: str, **envelope: Any) -> Event:
    return mark(None, name, receipt_key=key, **envelope)


CASES: dict[str, tuple[list[Event], str]] = {
    "in a stream the number decides, never the clock": (
        [mark(0, "a", at="09"), mark(1, "b", at="05"), mark(2, "c", at="07")],
        "abc",
    ),
    "numbers are numbers": ([mark(10, "c"), mark(9, "b"), mark(1, "a")], "abc"),
    "between streams the running time": (
        [mark(0, "b", at="10"), mark(1, "c", at="05"), mark(0, "a", at="07", stream="z")],
        "abc",
    ),
    "the running time is the greatest so far": (
        [
            mark(0, "a", at="05"),
            mark(1, "c", at="10"),
            mark(2, "d", at="06"),
            mark(0, "b", at="08", stream="z"),
        ],
        "abcd",
    ),
    "an event without a time has the running one": (
        [mark(0, "a", at="05"), mark(1, "b"), mark(0, "c", at="06", stream="a")],
        "abc",
    ),
    "before its first time a stream takes that first one": (
        [mark(0, "b"), mark(1, "c", at="10"), mark(0, "a", at="09", stream="z")],
        "abc",
    ),
    "a stream without a time comes last": (
        [mark(0, "b", stream="a"), mark(0, "a", at="10", stream="z")],
        "ab",
    ),
    "the running time is carried over epochs": (
        [mark(0, "b", at="10"), mark(0, "c", at="05", epoch=1), mark(0, "a", at="07", stream="z")],
        "abc",
    ),
    "the first time is taken back over epochs": (
        [mark(0, "b"), mark(0, "c", at="10", epoch=1), mark(0, "a", at="09", stream="z")],
        "abc",
    ),
    "the epoch decides before the number": ([mark(5, "a"), mark(0, "b", epoch=1)], "ab"),
    "epochs are numbers": ([mark(0, "a", epoch=9), mark(0, "b", epoch=10)], "ab"),
    "at one time the producer decides first": (
        [mark(0, "b", at="05", producer="b", stream="a"), mark(0, "a", at="05", producer="a", stream="z")],
        "ab",
    ),
    "then the stream": ([mark(7, "a", at="05", stream="a"), mark(0, "b", at="05", stream="b")], "ab"),
    "then the stream before the epoch": (
        [mark(0, "a", at="05", stream="a", epoch=9), mark(0, "b", at="05", stream="b")],
        "ab",
    ),
    "texts by their UTF-8 bytes": (
        [mark(0, "b", at="05", stream="\U0001f600"), mark(0, "a", at="05", stream="\uff5a")],
        "ab",
    ),
    "capitals before small letters": (
        [mark(0, "b", at="05", stream="a"), mark(0, "a", at="05", stream="B")],
        "ab",
    ),
    "two streams without times": ([mark(0, "b", stream="b"), mark(9, "a", stream="a")], "ab"),
    "a receipt takes its own time": (
        [mark(0, "a", at="05"), r("z", "b", at="06"), mark(1, "c", at="07")],
        "abc",
    ),
    "a receipt has no running time": ([r("a", "b", at="09"), r("b", "a", at="05")], "ab"),
    "a receipt comes after the numbered ones of its time": (
        [r("a", "b", at="05", producer="a"), mark(0, "a", at="05", producer="z")],
        "ab",
    ),
    "receipts of one time by their key, then the producer": (
        [
            r("b", "c", at="05", producer="a"),
            r("a", "b", at="05", producer="z"),
            r("a", "a", at="05", producer="y"),
        ],
        "abc",
    ),
    "receipts of one key by stream, then epoch": (
        [
            r("k", "c", at="05", stream="b"),
            r("k", "b", at="05", stream="a", epoch=1),
            r("k", "a", at="05", stream="a"),
        ],
        "abc",
    ),
    "a receipt without a time comes last": (
        [r("a", "c"), mark(0, "a", at="05"), r("z", "b", at="59")],
        "abc",
    ),
    "a receipt without a time comes after numbers without": ([r("a", "b"), mark(0, "a")], "ab"),
    "a receipt moves no stream's running time": (
        [mark(0, "a", at="05"), r("k", "c", at="30"), mark(1, "b", at="06")],
        "abc",
    ),
    "a receipt gives no first time to its stream": ([r("k", "a", at="05"), mark(0, "b")], "ab"),
    "receipt keys by their UTF-8 bytes": ([r("\U0001f600", "b"), r("\uff5a", "a")], "ab"),
    "instants, not texts": (
        [
            mark(0, "b", occurred_at="2026-05-01T00:30:00Z", stream="a"),
            mark(0, "a", occurred_at="2026-05-01T01:00:00+01:00", stream="z"),
        ],
        "ab",
    ),
    "instants, not texts, within a running time": (
        [
            mark(0, "b", occurred_at="2026-05-01T12:00:00+00:00"),
            mark(1, "c", occurred_at="2026-05-01T13:30:00+02:00"),
            mark(0, "a", occurred_at="2026-05-01T11:45:00Z", stream="a"),
        ],
        "abc",
    ),
    "digits beyond six are cut off before comparing": (
        [
            mark(0, "b", occurred_at="2026-05-01T12:00:00.0000001Z", stream="b"),
            mark(0, "a", occurred_at="2026-05-01T12:00:00.0000009Z", stream="a"),
        ],
        "ab",
    ),
    "times before 1970": (
        [mark(0, "b", at="05", stream="a"), mark(0, "a", occurred_at="1969-12-31T23:59:59Z", stream="z")],
        "ab",
    ),
    "observed_at orders nothing": (
        [
            mark(0, "a", stream="a", observed_at="2026-05-02T00:00:00Z"),
            mark(0, "b", stream="b", observed_at="2026-05-01T00:00:00Z"),
        ],
        "ab",
    ),
}


@pytest.mark.parametrize(("events", "expected"), CASES.values(), ids=CASES.keys())
def test_order(events: list[Event], expected: str) -> None:
    for arrival in itertools.permutations(events):
        assert order(fold(*arrival)) == expected


def test_identifiers_never_order() -> None:
    found = fold(mark(0, "b", turn_id="z", at="01"), mark(1, "a", turn_id="a", at="02"))
    assert order(found) == "ba"
    assert [turn["turn_key"] for turn in found["turns"]] == ["z", "a"]


def test_a_superseded_stream_lends_no_time() -> None:
    left_out = mark(0, "x", at="01", stream="old")
    told = {
        "session_id": "s",
        "seq": 0,
        "type": "stream.superseded",
        "payload": {"producer": "harness", "epoch": 0, "stream": "old", "reason": "r"},
    }
    assert order(fold(left_out, told, mark(1, "a", at="05"))) == "a"
