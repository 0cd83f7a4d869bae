"""A rebuild from its beginning to where it can be switched to, resumed wherever it was left (design 6).

Everything that is known stands in rows: who is killed, this process or one of those that it starts, is followed by one that goes on there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from turnledger.fold.version import FOLD_VERSION
from turnledger.replay.follow import Beyond, Follower, beyond, noted, touched
from turnledger.replay.generation import (
    Connection,
    NotNow,
    Rebuild,
    alone,
    open_rebuild,
    same_fold,
    slots,
    yielding,
)
from turnledger.replay.pieces import Pieces, look_again
from turnledger.replay.shadow import lengths
from turnledger.store.connect import connect
from turnledger.store.maintain import analyze
from turnledger.store.named import query
from turnledger.store.write import PROJECTED

PIECE_EVENTS = 4000
"""Of one transaction: memory, and what a kill costs."""
SESSION_WEIGHT = 4
"""A session costs about as much as so many events more."""
FOLLOWED_SESSIONS = 3000
"""Where more sessions than this moved, all that moved are shared out in pieces, and each is folded from its beginning."""
FOLLOWED_EVENTS = 100_000
"""More events than this are shared out too, where the sessions that moved have not much more than these: with so many hands, so many times as many. What
one process would follow all of them share."""
LOOKED_AT = 500
"""Sessions compared in one snapshot."""
SETTLE_SECONDS = 30.0
"""How long sessions that somebody has still to write are looked at again before the rebuild is called ready without them."""
STALLED_SECONDS = 25.0
"""Marks that nobody takes for so long are of sessions that cannot be rolled up, here as in the generation that readers see."""
PAUSE_SECONDS = 0.2
FOLLOW_SECONDS = 2.0
"""Between two passes over what comes in while others work: a turn that goes on is folded anew in each pass that finds some of it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the pieces are."""

    phase: str
    events: int
    """Of the pieces that are folded or carried over; those of a session that is folded again count again."""
    events_done: int
    compared: int
    """The same events, once more: of the pieces that are compared."""
    compared_done: int
    pieces: int
    pieces_done: int
    marks: int
    """Sessions still to be rolled up."""


class Hands(Protocol):
    """Who works on the pieces."""

    @property
    def count(self) -> int:
        """How many do."""

    def wait(self, seconds: float) -> None:
        """Let them work for about so long. Raises a ``TurnledgerError`` when they cannot."""


@dataclass(slots=True)
class OwnHands:
    """This process alone."""

    pieces: Pieces
    count: int = 1

    def wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            if not self.pieces.step() and not self.pieces.roll_up().done:
                time.sleep(min(0.02, seconds))
                return
            if time.monotonic() >= until:
                return


def begin(
    connection: Connection,
    *,
    by: str,
    tenant: str | None = None,
    since: int | None = None,
    since_sessions: Sequence[int] | None = None,
) -> Rebuild:
    """Begin a rebuild into the other slot, or find the one to go on with. ``since_sessions``: of which something came in since ``since`` (µs).

    Raises :class:`NotNow` where the slot holds something, or another rebuild is open.
    """
    with connection.transaction():
        there = open_rebuild(connection)
        if there is not None:
            return _resumed(there, tenant, since)
        other = slots(connection).other
        if other.state == "kept":
            raise NotNow(
                f"generation {other.generation} is kept since the switch of {other.changed_at:%Y-%m-%d %H:%M} UTC, so that it can be returned to: "
                "give it up with `turnledger replay drop`, then rebuild."
            )
        if other.state != "empty":
            raise NotNow(
                f"generation {other.generation} is being emptied: end that with `turnledger replay drop`, then rebuild."
            )
        set_state(connection, other.generation, "building", fold_version=FOLD_VERSION)
        connection.execute(
            query("replay/refilled"), {"ids": [row[0] for row in connection.execute(query("replay/filled"))]}
        )
        # First the positions, then the sessions: who comes between is found as one that moved.
        connection.execute(query("replay/start_positions"), {"generation": other.generation})
        row = connection.execute(
            query("replay/begin"),
            {
                "generation": other.generation,
                "fold_version": FOLD_VERSION,
                "tenant": tenant,
                "since": since,
                "phase": "folding",
                "by": by,
            },
        ).fetchone()
        assert row is not None
        plan(
            connection,
            row[0],
            kind="fold",
            tenant=tenant,
            folded=None if since_sessions is None else list(since_sessions),
        )
    found = open_rebuild(connection)
    assert found is not None
    return found


def go_back(connection: Connection, *, by: str) -> Rebuild:
    """Make the generation that was left at the last switch one that follows again, or find it doing so. Raises :class:`NotNow`."""
    with connection.transaction():
        there = open_rebuild(connection)
        other = slots(connection).other
        if there is None and other.state == "kept":
            same_fold(other.generation, other.fold_version)
            set_state(connection, other.generation, "building")
            connection.execute(
                query("replay/begin"),
                {
                    "generation": other.generation,
                    "fold_version": other.fold_version,
                    "tenant": None,
                    "since": None,
                    "phase": "following",
                    "by": by,
                },
            )
            there = open_rebuild(connection)
    if there is None:
        raise NotNow(
            f"there is no generation to return to: generation {other.generation} is {other.state}. One is kept from a switch until "
            "`turnledger replay drop`."
        )
    same_fold(there.generation, there.fold_version)
    return there


def _resumed(there: Rebuild, tenant: str | None, since: int | None) -> Rebuild:
    same_fold(there.generation, there.fold_version)
    meant = None if there.since is None else round(there.since.timestamp() * 1_000_000)
    if (tenant, since) not in ((None, None), (there.tenant, meant)):
        raise NotNow(
            f"a rebuild of generation {there.generation} with another --tenant or --since is open since {there.started_at:%Y-%m-%d %H:%M} UTC: go "
            "on with it (`turnledger replay projections` without either), or give it up with `turnledger replay drop`."
        )
    return there


def set_state(
    connection: Connection,
    generation: str,
    state: str,
    *,
    fold_version: int | None = None,
    left: bool = False,
) -> None:
    """``left``: readers are switched away from it in this transaction."""
    connection.execute(
        query("replay/state"),
        {"generation": generation, "state": state, "fold_version": fold_version, "left": left},
    )


def plan(
    connection: Connection,
    rebuild_no: int,
    *,
    kind: str,
    after: int = 0,
    tenant: str | None = None,
    folded: Sequence[int] | None = None,
    among: Sequence[int] | None = None,
) -> None:
    """Cut sessions into pieces. ``among``: only these."""
    connection.execute(
        query("replay/plan"),
        {
            "rebuild_no": rebuild_no,
            "after": after,
            "kind": kind,
            "tenant": tenant,
            "folded": folded,
            "among": None if among is None else list(among),
            "session_weight": SESSION_WEIGHT,
            "piece_events": PIECE_EVENTS,
        },
    )


@dataclass(slots=True)
class Rebuilder:
    """Goes on with the open rebuild on a connection that holds the lock of those who rebuild."""

    connection: Connection
    rebuild: Rebuild
    hands: Hands
    told: Callable[[Progress], None] = lambda progress: None
    settle_seconds: float = SETTLE_SECONDS
    follower: Follower = field(init=False)
    _followed: bool = False
    """There is much, and it is followed all the same."""
    _follow_at: float = 0.0

    def __post_init__(self) -> None:
        self.follower = Follower(self.connection, self.rebuild)

    def run(self) -> None:
        """Until nothing is left to do but to switch. What differs stands in ``ledger.rebuild_doubts``."""
        # What is carried over is whole up to where it began, and no further: then everything that came since waits for the end.
        anew = self.rebuild.tenant is None and self.rebuild.since is None
        self._work(follow=anew and self.rebuild.phase == "folding")
        if self.rebuild.phase == "folding":
            self._analyze()
        while self.catch_up():
            pass
        if self.rebuild.phase == "folding":
            # From here on sessions are rolled up: before, most that moved would move again.
            self._phase("following")
        self._roll_up()
        if self.rebuild.phase == "following":
            self._phase("comparing", then=self._plan_comparison)
        self._work(follow=True)
        self.settle(self.settle_seconds)
        self._phase("ready")

    def _analyze(self) -> None:
        """Tables that were empty a moment ago: the planner must not believe it."""
        for table in (*PROJECTED, "call_claims"):
            analyze(self.connection, self.rebuild.slot, table)

    def _plan_comparison(self) -> None:
        """Of all sessions; who was in doubt is among them."""
        self.connection.execute(query("replay/forget_doubts"))
        plan(self.connection, self.rebuild.rebuild_no, kind="compare", after=self._last_piece())

    def catch_up(self) -> bool:
        """Fold what moved since. True where so much of it did that more will have moved meanwhile."""
        shared = self._to_share()
        if shared is None:
            return self.follower.run().more
        what, moved = shared
        self.follower.forget()
        with self.connection.transaction():
            self.connection.execute(
                query("replay/set_targets"), {"generation": self.rebuild.generation, **what.places()}
            )
            noted(self.connection, what)
            plan(
                self.connection, self.rebuild.rebuild_no, kind="again", after=self._last_piece(), among=moved
            )
        self._work()
        return True

    def _to_share(self) -> tuple[Beyond, list[int]] | None:
        """What moved, and the sessions, where it is quicker to fold these from their beginning with all hands than to follow them."""
        first = beyond(self.connection, self.rebuild.generation, FOLLOWED_EVENTS)
        if not first.cut:
            self._followed = False
            if max(first.events, len(first.filled)) <= FOLLOWED_SESSIONS:
                return None
            moved = touched(self.connection, first)
            return (first, moved) if len(moved) > FOLLOWED_SESSIONS else None
        if self._followed:
            return None
        what = beyond(self.connection, self.rebuild.generation)
        moved = touched(self.connection, what)
        whole = sum(events for _, events in lengths(self.connection, moved))
        if len(moved) > FOLLOWED_SESSIONS or whole <= self.hands.count * what.events:
            return what, moved
        # Until it has caught up: to look at all of it again and again would cost more than to follow it.
        self._followed = True
        return None

    def settle(self, seconds: float) -> set[int]:
        """Follow, roll up and compare until nothing is in doubt; what goes on moving is waited for so long. Returns who still is."""
        while self.catch_up():
            pass
        self._roll_up()
        until = time.monotonic() + seconds
        while True:
            while self.catch_up():
                pass
            self.progress()
            waiting = self.look_again()
            if not waiting or time.monotonic() >= until:
                return waiting
            self.hands.wait(PAUSE_SECONDS)

    def look_again(self) -> set[int]:
        """Compare whoever is in doubt. Returns those that somebody has still to write."""
        waiting: set[int] = set()
        doubts = [row[0] for row in self.connection.execute(query("replay/open_doubts"))]
        for start in range(0, len(doubts), LOOKED_AT):
            waiting |= look_again(self.connection, self.rebuild, doubts[start : start + LOOKED_AT])
        return waiting

    def progress(self) -> Progress:
        """How far the pieces are."""
        found = progress(self.connection, self.rebuild)
        self.told(found)
        return found

    def _work(self, *, follow: bool = False) -> None:
        """Until all pieces are done; then the position is where they led to. ``follow``: meanwhile what comes in is followed, so that little is left then."""
        while True:
            there = self.progress()
            if there.pieces_done == there.pieces:
                break
            self._wait(follow)
        self.connection.execute(query("replay/reach_targets"), {"generation": self.rebuild.generation})

    def _wait(self, follow: bool) -> None:
        """Let the others work; ``follow`` what comes in meanwhile, from time to time."""
        much = False
        if follow and time.monotonic() >= self._follow_at:
            much = self.follower.run(mark=False).more
            self._follow_at = time.monotonic() + (0.0 if much else FOLLOW_SECONDS)
        self.hands.wait(0.0 if much else PAUSE_SECONDS)

    def _roll_up(self) -> None:
        """Until every mark that there is now is taken, and the hours are set; a session whose rows cannot be set keeps its mark, and is not waited for.

        Who moves meanwhile is marked after it.
        """
        for table in ("ledger.shadow_marks", f"{self.rebuild.slot}.hour_marks"):
            last = self._marks(table, "max(id)")
            least, since = self._marks(table, "count(*)", last), time.monotonic()
            while least and time.monotonic() - since <= STALLED_SECONDS:
                self._wait(follow=True)
                self.progress()
                now = self._marks(table, "count(*)", last)
                if now < least:
                    least, since = now, time.monotonic()

    def _marks(self, table: str, what: str, last: int = sys.maxsize) -> int:
        statement = f"select coalesce({what}, 0)::int8 from {table} where id <= %s".encode()
        row = self.connection.execute(statement, (last,)).fetchone()
        return 0 if row is None else int(row[0])

    def _last_piece(self) -> int:
        rows = self.connection.execute(query("replay/chunks"), {"rebuild_no": self.rebuild.rebuild_no})
        return max((row[-1] for row in rows), default=0)

    def _phase(self, phase: str, then: Callable[[], object] = lambda: None) -> None:
        with self.connection.transaction():
            self.connection.execute(
                query("replay/phase"), {"rebuild_no": self.rebuild.rebuild_no, "phase": phase}
            )
            then()
        self.rebuild = self.follower.rebuild = replace(self.rebuild, phase=phase)


def progress(connection: Connection, rebuild: Rebuild) -> Progress:
    """How far the pieces of a rebuild are."""
    events = events_done = compared = compared_done = pieces = done = 0
    for row in connection.execute(query("replay/chunks"), {"rebuild_no": rebuild.rebuild_no}):
        pieces += row[1]
        done += row[2]
        if row[0] == "compare":
            compared += row[3]
            compared_done += row[4]
        else:
            events += row[3]
            events_done += row[4]
    marks = connection.execute(
        "select count(*) from (select distinct session_no from ledger.shadow_marks) m"
    ).fetchone()
    hours = connection.execute(f"select exists (select from {rebuild.slot}.hour_marks)".encode()).fetchone()
    waiting = (marks[0] if marks is not None else 0) + int(hours is not None and hours[0])
    return Progress(rebuild.phase, events, events_done, compared, compared_done, pieces, done, waiting)


def open_connection(database_url: str) -> Connection:
    """A connection of its own for whoever rebuilds, switches or drops; the only one who does. Raises :class:`NotNow`, ``DatabaseAway``."""
    connection = connect(database_url, "replay", autocommit=True, statement_seconds=0, idle_seconds=0)
    try:
        yielding(connection)
        alone(connection)
    except BaseException:
        connection.close()
        raise
    return connection
