"""RFC 3339 times as µs since 1970 (contract 2 and 15)."""

from __future__ import annotations

import pytest

from turnledger.contract.times import instant, parse_instant, utc_text

SECOND = 1_000_000
DAY = 86_400 * SECOND


@pytest.mark.parametrize("read", [parse_instant, instant])
@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1970-01-01T00:00:00.1Z", 100_000),
        ("1970-01-01T00:00:00.12Z", 120_000),
        ("1970-01-01T00:00:00.123Z", 123_000),
        ("1970-01-01T00:00:00.123456Z", 123_456),
        ("1970-01-01T00:00:00.1234569999Z", 123_456),
        ("1970-01-01T00:00:00.0000009Z", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01T00:00:00-00:00", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:00:00.5-01:00", SECOND // 2),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("1970-01-02T23:59:00+23:59", DAY),
        ("2000-02-29T00:00:00Z", 11_016 * DAY),
        ("2026-11-29T22:41:05.250Z", 1_795_992_065_250_000),
        ("0000-01-01T00:00:00Z", -719_528 * DAY),
        ("0000-02-29T00:00:00Z", (-719_528 + 59) * DAY),
        ("0000-01-01T00:00:00+23:59", -719_528 * DAY - 86_340 * SECOND),
        ("9999-12-31T23:59:59.999999-23:59", 2_932_897 * DAY + 86_340 * SECOND - 1),
    ],
)
def test_a_time_is_an_instant(read: object, text: str, micros: int) -> None:
    assert read(text) == micros  # type: ignore[operator]
    assert read(text) == micros  # type: ignore[operator]  # from the remembered second


@pytest.mark.parametrize("read", [parse_instant, instant])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "Z",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-01-01T00:00Z",
        "2026-01-01 00:00:00Z",
        "2026-01-01T00:00:00.Z",
        "2026-01-01T00:00:00,5Z",
        "2026-01-01T00:00:00+0100",
        "2026-01-01T00:00:00+01",
        "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00:00+01:60",
        "2026-01-01T00:00:00 Z",
        "2026-01-01T00:00:00Z\n",
        " 2026-01-01T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:60:00Z",
        "2026-01-01T00:00:60Z",
        "2016-12-31T23:59:60Z",
        "2026-01-01T00:00:61Z",
        "2026-00-01T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "2026-01-32T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "26-01-01T00:00:00Z",
        "02026-01-01T00:00:00Z",
        "+2026-01-01T00:00:00Z",
        "2026-1-1T0:0:0Z",
        "20260101T000000Z",
        "2026-01-01T00:00:00.+12345Z",
        "2026-01-01T00:00:00.1_2345Z",
        "2026-01-01T00:00:00.12345 Z",
        "2026-01-01T00:00:00.١٢٣Z",
        "٢٠٢٦-01-01T00:00:00Z",
    ],
)
def test_what_is_outside_the_grammar_is_no_time(read: object, text: str) -> None:
    instant("2026-01-01T00:00:00Z")  # its second is remembered, its spelling must not be
    assert read(text) is None  # type: ignore[operator]


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (1_795_992_065_250_000, "2026-11-29T22:41:05.250000Z"),
        (11_016 * DAY, "2000-02-29T00:00:00.000000Z"),
        (-719_528 * DAY, "0000-01-01T00:00:00.000000Z"),
        (-719_529 * DAY, "-001-12-31T00:00:00.000000Z"),
        (2_932_897 * DAY, "10000-01-01T00:00:00.000000Z"),
    ],
)
def test_an_instant_is_written_in_utc_with_six_digits(micros: int, text: str) -> None:
    assert utc_text(micros) == text


def test_every_day_of_eight_centuries_comes_back() -> None:
    for day in range(-146_097, 146_097, 13):
        assert parse_instant(utc_text(day * DAY)) == day * DAY


def test_more_seconds_than_are_remembered_change_nothing() -> None:
    for second in range(5000):
        assert instant(utc_text(second * SECOND + 7)) == second * SECOND + 7
    assert instant("1970-01-01T00:00:01.5Z") == 1_500_000
