"""How much of a database `turnledger verify` looks at: all of it, one session, or what came in since an instant."""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import date
from typing import Any

import psycopg

from turnledger.contract.times import parse_ago, parse_instant, utc_text
from turnledger.doctor.held import CHUNK
from turnledger.doctor.naming import find_session
from turnledger.errors import TurnledgerError
from turnledger.store.named import query
from turnledger.store.read import SessionRef


class NotAScope(TurnledgerError):
    """What was asked for cannot be looked at, or not together."""


class SortedNumbers:
    """Session numbers, ascending, eight bytes each."""

    def __init__(self, numbers: array[int]) -> None:
        self._numbers = numbers

    def __contains__(self, number: int) -> bool:
        at = bisect_left(self._numbers, number)
        return at < len(self._numbers) and self._numbers[at] == number

    def after(self, number: int, count: int) -> list[int]:
        """The next ``count`` above ``number``."""
        at = bisect_right(self._numbers, number)
        return self._numbers[at : at + count].tolist()


@dataclass(frozen=True, slots=True)
class Scope:
    """What is looked at. As it stands: everything."""

    session: SessionRef | None = None
    since: int | None = None
    """µs since 1970: when batches were committed, by the database's clock."""
    floor: int = 0
    """The first batch that is looked at."""
    day: date = date.min
    """No event of these batches stands in a partition before this day."""
    sessions: SortedNumbers | None = None
    """The sessions that are looked at; None: all."""

    @property
    def whole(self) -> bool:
        return self.sessions is None

    def says(self) -> list[str]:
        """What is left out, as sentences without a stop."""
        if self.session is not None:
            named = f"{self.session.tenant}/{self.session.session_id}"
            return [
                f"anything but {named}: I2, I3, the batches' side of I1, and usage_hourly belong to partitions and tenants, not to a session"
            ]
        if self.since is not None:
            at = utc_text(self.since)
            return [
                f"batches committed before {at}, and sessions of which no event, conflict or dead letter came in since"
            ]
        return []


def parse_since(text: str, now: float | None = None) -> int:
    """µs since 1970 of an RFC 3339 time, or of so long ago: ``90s`` ``30m`` ``24h`` ``7d``. Raises :class:`NotAScope`."""
    ago = parse_ago(text)
    if ago is not None:
        return int(((time.time() if now is None else now) - ago) * 1_000_000)
    at = parse_instant(text)
    if at is None:
        raise NotAScope(
            f"--since {text!r} is no time: give one with its offset (2026-03-01T10:00:00Z), or how long ago (90s, 30m, 24h, 7d)."
        )
    return at


def one_session(connection: psycopg.Connection[Any], named: str, tenant: str | None = None) -> Scope:
    """The session that ``named`` means: an id, ``tenant/session_id``, or a name. Raises ``NoSuchSession``, with the question to answer where it may
    mean several."""
    return of_session(find_session(connection, named, tenant))


def of_session(ref: SessionRef) -> Scope:
    """One session that is known."""
    return Scope(session=ref, sessions=SortedNumbers(array("q", [ref.session_no])))


def what_came_since(connection: psycopg.Connection[Any], since: int) -> Scope:
    """The batches committed since an instant, and the sessions of which something came in."""
    row = connection.execute(query("verify/floor"), {"since": since}).fetchone()
    # Nothing came in: beyond every batch that there is.
    floor, day = (2**63 - 1, date.max) if row is None or row[0] is None else row
    numbers = array("q")
    with connection.cursor(binary=True) as cursor:
        for (number,) in cursor.stream(
            query("verify/sessions_since"), {"since": since, "floor": floor, "day": day}, size=CHUNK
        ):
            numbers.append(number)
    return Scope(since=since, floor=floor, day=day, sessions=SortedNumbers(numbers))
