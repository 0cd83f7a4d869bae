"""The switch of readers to another generation: all partitions stand still for a moment, the tail is folded, what moved is compared, and one row
is updated (design 6). Whoever reads sees the one generation or the other, never both."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from turnledger.replay import compare
from turnledger.replay.follow import beyond
from turnledger.replay.generation import Connection, NotNow, Rebuild, same_fold, slots
from turnledger.replay.pieces import unwritten
from turnledger.replay.rebuild import Rebuilder, set_state
from turnledger.store.named import query
from turnledger.store.read import of_slot

TAIL_EVENTS = 2000
"""More than this is not folded while partitions stand still: follow once more first."""
QUIET_SECONDS = 3.0
"""So long a moment is waited for in which live work has projected everything, so that all that moved can be compared. A worker lets open turns wait 1 s."""
QUIET_ATTEMPTS = 5
"""So often."""
ATTEMPTS = 20
LOCK_SECONDS = 3.0
"""How long the locks may take: a worker that is frozen inside its transaction is its successor's to end."""
PAUSE_SECONDS = 0.1
FOLLOWED_SECONDS = 0.3
LOOKED_SECONDS = 0.005
"""Between two looks for such a moment: one lasts until a worker's next round, some 50 ms."""


class Differs(NotNow):
    """The generations are not the same: nothing was switched."""


@dataclass(frozen=True, slots=True)
class Switched:
    """What a switch did."""

    switch_no: int
    left: str
    shown: str
    differences: int
    digest: bytes | None
    uncompared: int
    """Sessions that moved in that very moment: they were folded, and could not be compared."""
    tail_events: int
    held_ms: int
    """How long partitions stood still, or waited for those that a round was at."""


def whole(rebuild: Rebuild) -> None:
    """Raises :class:`NotNow` where there is still something to do before a rebuild can be switched to."""
    same_fold(rebuild.generation, rebuild.fold_version)
    if rebuild.phase != "ready":
        raise NotNow(
            f"generation {rebuild.generation} is not whole yet (it is {rebuild.phase}): go on with `turnledger replay projections`, then switch."
        )


@dataclass(slots=True)
class Switch:
    """Switches to the generation of an open rebuild that is ready."""

    rebuilder: Rebuilder
    by: str
    accept: str | None = None
    """Why differences are accepted."""
    group: str | None = None
    """The consumer group that owns all partitions from then on."""
    back: bool = False

    @property
    def connection(self) -> Connection:
        return self.rebuilder.connection

    @property
    def rebuild(self) -> Rebuild:
        return self.rebuilder.rebuild

    def run(self, settle_seconds: float) -> Switched:
        """Raises :class:`Differs` where the generations differ and nobody accepts it, :class:`NotNow` where it never came to be."""
        whole(self.rebuild)
        self.rebuilder.settle(settle_seconds)
        self._refuse_differences()
        for attempt in range(ATTEMPTS):
            while self.rebuilder.catch_up():
                pass
            # Who has come to rest since is compared while partitions go on: what is left for the moment are those that move in it.
            self.rebuilder.look_again()
            try:
                with self._without_roll_ups():
                    must = attempt >= QUIET_ATTEMPTS
                    done = self._try(must=must) if self._quiet() or must else None
                if done is not None:
                    return done
            except _DiffersInTheMoment:
                self.rebuilder.settle(settle_seconds)
                self._refuse_differences()
            except psycopg.errors.LockNotAvailable:
                pass
            time.sleep(PAUSE_SECONDS)
        raise NotNow(
            f"{ATTEMPTS} times more came in than can be folded while partitions stand still, or a partition's row stayed locked: nothing was "
            "switched. Try again when less comes in, and look for long transactions in pg_stat_activity."
        )

    @contextmanager
    def _without_roll_ups(self) -> Iterator[None]:
        """They stand still before partitions do: one that is long holds nobody else up."""
        connection = self.connection
        connection.execute(f"set lock_timeout = {round(LOCK_SECONDS * 1000)}")
        try:
            connection.execute("select pg_advisory_lock(hashtextextended('turnledger.switch', 0))")
            try:
                yield
            finally:
                connection.execute("select pg_advisory_unlock(hashtextextended('turnledger.switch', 0))")
        finally:
            connection.execute("reset lock_timeout")

    def _quiet(self) -> bool:
        """Follow until workers have projected everything, or for some seconds. It does not last: a round later they have not."""
        until = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < until:
            self.rebuilder.follower.run()
            again = time.monotonic() + FOLLOWED_SECONDS
            while time.monotonic() < again:
                if not self._unprojected():
                    return True
                time.sleep(LOOKED_SECONDS)
        return False

    def _unprojected(self) -> bool:
        row = self.connection.execute(query("verify/unflushed")).fetchone()
        return row is not None and bool(row[0])

    def _try(self, *, must: bool) -> Switched | None:
        """One attempt, one transaction. None: not in this moment; what was followed meanwhile stands. ``must``: though not all can be compared."""
        follower = self.rebuilder.follower
        done: Switched | None = None
        try:
            with self.connection.transaction():
                began = time.monotonic()
                self.connection.execute(query("replay/lock_all"))
                tail = beyond(self.connection, self.rebuild.generation)
                if tail.events > TAIL_EVENTS:
                    return None
                passed = follower.pass_in(tail)
                follower.mark()
                if must or not self._unprojected():
                    done = self._point(passed.events, began)
        except BaseException:
            follower.forget()
            raise
        follower.committed(marked=True)
        return done

    def _point(self, tail_events: int, began: float) -> Switched:
        """Compare what is in doubt still, point readers to the new generation, and tell everybody."""
        connection, rebuild = self.connection, self.rebuild
        doubts = [row[0] for row in connection.execute(query("replay/open_doubts"))]
        found = compare.differing(connection, rebuild.live, rebuild.slot, doubts, sums=False)
        moved, _ = compare.unsettled(connection, doubts, unwritten(connection, rebuild))
        compare.keep(connection, [one for number, one in found.items() if number not in moved])
        compare.clear(
            connection, [number for number in doubts if number not in found and number not in moved]
        )
        diff = compare.diff(connection)
        if diff.sessions and self.accept is None:
            raise _DiffersInTheMoment
        there = slots(connection)
        left = there.active.generation
        connection.execute(query("replay/keep_positions"), {"generation": left})
        set_state(connection, left, "kept", left=True)
        set_state(connection, rebuild.generation, "active")
        connection.execute(query("replay/point"), {"generation": rebuild.generation})
        connection.execute(query("replay/move_marks"))
        connection.execute(of_slot("replay/outbox", rebuild.slot).replace(b"{live}", rebuild.live.encode()))
        connection.execute(query("replay/hand_over"), {"group": self.group})
        connection.execute(query("replay/end"), {"rebuild_no": rebuild.rebuild_no, "outcome": "switched"})
        connection.execute(query("replay/tidy"))
        held_ms = round((time.monotonic() - began) * 1000)
        row = connection.execute(
            query("replay/switched"),
            {
                "left": left,
                "shown": rebuild.generation,
                "fold_version": rebuild.fold_version,
                "back": self.back,
                "differences": len(diff.sessions),
                "digest": diff.digest,
                "uncompared": len(moved),
                "tail_events": tail_events,
                "group": self.group,
                "held_ms": held_ms,
                "by": self.by,
                "why": self.accept,
            },
        ).fetchone()
        assert row is not None
        return Switched(
            row[0],
            left,
            rebuild.generation,
            len(diff.sessions),
            diff.digest,
            len(moved),
            tail_events,
            held_ms,
        )

    def _refuse_differences(self) -> None:
        diff = compare.diff(self.connection)
        if diff.sessions and self.accept is None:
            raise Differs(_says(self.rebuild.generation, len(diff.sessions)))


class _DiffersInTheMoment(Exception):
    """Found while partitions stood still: they go on at once, and it is looked at again."""


def _says(generation: str, count: int) -> str:
    some = "1 session differs" if count == 1 else f"{count} sessions differ"
    return (
        f"{some} between generation {generation} and the one that readers see, so nothing was switched: `turnledger replay diff` shows what and "
        'why; `turnledger replay switch --accept "reason"` switches all the same and keeps the reason.'
    )
