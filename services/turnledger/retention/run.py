"""One retention run (contract 12): choose, let go of each session in a transaction of its own, drop days that nobody needs, write down what was done.

One run at a time. A run that is killed leaves every session whole or gone; the next one says so of it, and goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime

from psycopg.types.json import Jsonb

from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.errors import TurnledgerError
from turnledger.retention.days import Dropped, drop_days, would_drop
from turnledger.retention.rules import Candidate, Choice, Chosen, Rules, choose
from turnledger.retention.vacuum import Connection, Order, Stays, Went, is_persistent, vacuum
from turnledger.store.named import query
from turnledger.store.read import SessionRef, active_slot, of_slot

AT_ONCE = 500
"""Sessions whose starts are read with one question."""

Progress = Callable[[int, str], None]


class AnotherRun(TurnledgerError):
    """A retention run is under way."""


@dataclass(slots=True)
class Done:
    """What a run did; after a dry run, what it would."""

    run_no: int | None
    choice: Choice
    sessions: int = 0
    events: int = 0
    bytes: int = 0
    stays: list[tuple[Chosen, str]] = field(default_factory=list)
    """Chosen, and left alone this time."""
    days: Dropped = field(default_factory=Dropped)


def plan(connection: Connection, rules: Rules, now: datetime | None = None) -> Choice:
    """What a run by ``rules`` would choose now."""
    with connection.transaction():
        connection.execute("set transaction isolation level repeatable read, read only")
        slot = active_slot(connection)
        rows = connection.execute(of_slot("retention/sessions", slot), {"tenant": rules.tenant}).fetchall()
        sizes = (
            dict(connection.execute(query("retention/sizes")).fetchall())
            if rules.max_bytes is not None
            else {}
        )
        candidates = [replace(Candidate(*row), bytes=sizes.get(row[0], 0)) for row in rows]
        now = datetime.now(UTC) if now is None else now
        # Whether a session is persistent stands in its events: they are read of those alone that would go.
        known: dict[int, bool] = {}
        while True:
            kept = {number for number, persistent in known.items() if persistent}
            choice = choose(candidates, rules, now, kept)
            unknown = [one.candidate.session_no for one in choice.chosen]
            unknown = [number for number in unknown if number not in known]
            if not unknown:
                break
            known |= _persistent(connection, unknown)
        choice.chosen += _late(connection, rules, now)
    return choice


def _late(connection: Connection, rules: Rules, now: datetime) -> list[Chosen]:
    """What came after its session went, and is old by now."""
    if rules.age is None:
        return []
    found = []
    for number, tenant, session_id, at in connection.execute(
        query("retention/late"), {"tenant": rules.tenant}
    ):
        if now - at > rules.age:
            one = Candidate(number, tenant, session_id, "vacuumed", at, content=False, silent=True)
            found.append(Chosen(one, "late"))
    return found


def _persistent(connection: Connection, sessions: Sequence[int]) -> dict[int, bool]:
    read = FastReader(limit=sys.maxsize).read
    found: dict[int, bool] = dict.fromkeys(sessions, False)
    for start in range(0, len(sessions), AT_ONCE):
        starts: dict[int, list[Event]] = {}
        for number, raw in connection.execute(
            query("retention/starts"), {"sessions": list(sessions[start : start + AT_ONCE])}
        ):
            event = read(raw)
            if isinstance(event, Event):
                starts.setdefault(number, []).append(event)
        found |= {number: is_persistent(events) for number, events in starts.items()}
    return found


def run(
    connection: Connection,
    rules: Rules,
    *,
    by: str,
    why: str,
    now: datetime | None = None,
    progress: Progress = lambda count, what: None,
) -> Done:
    """Run a retention. ``connection`` is in autocommit mode. Raises :class:`AnotherRun`, and what psycopg raises: what was let go of until then is
    gone and written down, the next run goes on."""
    with _alone(connection):
        connection.execute(query("retention/interrupted"))
        choice = plan(connection, rules, now)
        row = connection.execute(
            query("retention/begin"),
            {"by": by, "why": why, "rules": Jsonb(rules.row()), "chosen": len(choice.chosen)},
        ).fetchone()
        assert row is not None
        done = Done(row[0], choice)
        order = Order(by, why, row[0], rules.archived)
        for one in choice.chosen:
            _one(connection, one, order, done)
            progress(done.sessions, "sessions")
        done.days = drop_days(connection)
        connection.execute(
            query("retention/end"),
            {
                "run_no": done.run_no,
                "vacuumed": done.sessions,
                "left_alone": len(done.stays),
                "events": done.events,
                "bytes": done.bytes,
                "days": done.days.days,
            },
        )
    return done


def _one(connection: Connection, chosen: Chosen, order: Order, done: Done) -> None:
    one = chosen.candidate
    became = vacuum(connection, SessionRef(one.session_no, one.tenant, one.session_id), order)
    if isinstance(became, Stays):
        done.stays.append((chosen, became.why))
    else:
        assert isinstance(became, Went)
        done.sessions += 1
        done.events += became.events
        done.bytes += became.bytes


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    """One run at a time, whoever starts it; the lock goes with the connection."""
    row = connection.execute(query("retention/lock")).fetchone()
    if row is None or not row[0]:
        raise AnotherRun(
            "another retention run is under way: wait for it (`turnledger retention runs` shows it), or end it; nothing is half done."
        )
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute(query("retention/unlock"))


def days_of(connection: Connection, choice: Choice) -> list[date]:
    """Days that a run would drop, after it has let go of what it chose."""
    return would_drop(connection, [one.candidate.session_no for one in choice.chosen])
