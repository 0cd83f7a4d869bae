"""Instants: RFC 3339 text to µs since 1970 UTC, and back (contract 2, ``occurred_at``).

The grammar is RFC 3339 section 5.6 and its calendar: four-digit years, real days, an offset, ``T`` and ``Z`` in either case.
A second ``60`` is refused: a leap second has no place of its own on a line of µs, and giving it its neighbour's would make two
instants one.
"""

from __future__ import annotations

import re
from functools import lru_cache

_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)
_AGO = re.compile(r"([0-9]{1,6})(s|m|h|d)")
_AGO_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DAYS = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

_seconds: dict[str, int] = {}
"""µs of seconds seen lately, by their text: as ``…:SS`` and as ``…:SS.``, so that a fraction behind a ``.`` needs no look at it."""
_SECONDS_KEPT = 8192  # a batch of one partition spans few distinct seconds; at most 1.4 MB
_MILLISECONDS = {f"{number:03d}Z": number * 1_000 for number in range(1_000)}


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar, for any year (``datetime`` begins at year 1)."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """(year, month, day) of a number of days since 1970-01-01."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + (3 if shifted < 10 else -9)
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def parse_instant(text: str) -> int | None:
    """µs since 1970 UTC of an RFC 3339 time, digits beyond six cut off; None where the text is none."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    if not (1 <= month <= 12 and 1 <= day <= _DAYS[month] and hour < 24 and minute < 60 and second < 60):
        return None
    if month == 2 and day == 29 and (year % 4 or (year % 100 == 0 and year % 400)):
        return None
    fraction, sign, offset_hour, offset_minute = match.group(7, 8, 9, 10)
    offset = 0
    if sign is not None:
        if int(offset_hour) > 23 or int(offset_minute) > 59:
            return None
        offset = int(offset_hour) * 60 + int(offset_minute)
        if sign == "-":
            offset = -offset
    seconds = days_from_civil(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset * 60
    return seconds * 1_000_000 + (int(fraction[:6].ljust(6, "0")) if fraction else 0)


def parse_ago(text: str) -> int | None:
    """Seconds of so long ago, as people type it: ``90s`` ``30m`` ``24h`` ``7d``; None where the text is none."""
    match = _AGO.fullmatch(text)
    return None if match is None else int(match[1]) * _AGO_SECONDS[match[2]]


def instant(text: str) -> int | None:
    """``parse_instant`` for the hot path: two look-ups for ``…:SS.fffZ`` in a second that was seen lately."""
    second = _seconds.get(text[:20])
    if second is not None:
        fraction = _MILLISECONDS.get(text[20:])
        if fraction is not None:
            return second + fraction
    second = _seconds.get(text[:19])
    if second is None:
        return _remember(text)
    if text[-1] == "Z":
        length = len(text)
        if length == 20:
            return second
        if length == 27 and text[19] == ".":
            digits = text[20:26]
            if digits.isdigit() and digits.isascii():
                return second + int(digits)
    return parse_instant(text)


def _remember(text: str) -> int | None:
    at = parse_instant(text)
    if at is not None:
        second = parse_instant(text[:19] + "Z")
        if second is not None:
            if len(_seconds) >= _SECONDS_KEPT:
                _seconds.clear()
            _seconds[text[:19]] = _seconds[text[:19] + "."] = second
    return at


def utc_text(at: int) -> str:
    """An instant in UTC with six digits and ``Z``; years outside 0 to 9999 keep their sign or fifth digit."""
    minutes, rest = divmod(at, 60_000_000)
    return f"{_minute_text(minutes)}{rest // 1_000_000:02d}.{rest % 1_000_000:06d}Z"


@lru_cache(maxsize=4096)
def _minute_text(minutes: int) -> str:
    days, minute = divmod(minutes, 1_440)
    year, month, day = civil_from_days(days)
    return f"{year:04d}-{month:02d}-{day:02d}T{minute // 60:02d}:{minute % 60:02d}:"
