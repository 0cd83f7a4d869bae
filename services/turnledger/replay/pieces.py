"""One piece of a rebuild at a time, each in one transaction with the note that it is done: whoever is killed leaves no half of one."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date

import psycopg

from turnledger.replay import compare
from turnledger.replay.compare import Unwritten
from turnledger.replay.follow import beyond
from turnledger.replay.generation import Connection, Rebuild, open_rebuild, yielding
from turnledger.replay.shadow import fold_sessions
from turnledger.rollup.hours import set_hours
from turnledger.rollup.prices import PriceSource
from turnledger.rollup.rows import Statements
from turnledger.rollup.settings import RollupSettings
from turnledger.rollup.worker import CANDIDATES, Rollup, Tick
from turnledger.store.connect import connect
from turnledger.store.instants import load_as_microseconds
from turnledger.store.named import query
from turnledger.store.read import of_slot
from turnledger.store.write import PROJECTED

MARKS = 20_000
"""Oldest marks looked at."""
RESTS_SECONDS = 1.0
"""A session that nothing marked for so long is rolled up, …"""
WAITS_SECONDS = 15.0
"""… and one that goes on moving, as most do beside a busy fleet, so often at most."""
SWITCHED_SECONDS = 5.0
"""The same where the generation is ready: whoever switches waits for all marks."""
COLLECTED = 100_000
"""Objects between two looks for cycles, some pieces' worth: as often as Python does it by itself, it takes a fifth of the fold's time."""


def collect_seldom() -> None:
    """For a process of its own: look for cycles seldom, and among what comes from now on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTED, 50, 1000)


class ShadowRollup(Rollup):
    """Rolls up what is marked in a generation that is being built, once it rests. Whoever it rolls up has to be compared (again)."""

    def __init__(self, database_url: str, price: PriceSource, rebuild: Rebuild) -> None:
        super().__init__(RollupSettings(), database_url, price)
        self.rebuild = rebuild

    def _of_generation(self, connection: Connection) -> Statements:
        return Statements(connection, self.rebuild.slot, shadow=True)

    def turn(self) -> Tick:
        """Some sessions; the hours where no session was left. ``met`` counts what another process is at."""
        tick = self.tick(now=True)
        if not tick.done and not tick.met:
            hours = set_hours(self._statements())
            tick.done = hours or 0
            tick.met = int(hours is None)
        return tick

    def _candidates(self, do: Statements, now: bool) -> list[int]:
        waits = SWITCHED_SECONDS if self.rebuild.phase == "ready" else WAITS_SECONDS
        rows = do.rows("shadow_marked", window=MARKS, count=CANDIDATES, rests=RESTS_SECONDS, waits=waits)
        return [row["session_no"] for row in rows]


@dataclass(slots=True)
class Pieces:
    """A process (or the only one) that works on the pieces of a rebuild."""

    database_url: str
    rebuild: Rebuild
    price: PriceSource
    on_piece: Callable[[str], None] = lambda kind: None
    """Hears the kind of each piece that is done."""
    events: int = 0
    """Of the pieces that it did."""
    _connection: Connection | None = None
    _rollup: ShadowRollup | None = field(default=None)

    def connection(self) -> Connection:
        if self._connection is None:
            self._connection = connect(
                self.database_url, "replay projector", autocommit=True, statement_seconds=0, idle_seconds=0
            )
            # A piece that a crash of the server takes back takes its note along: nothing waits for the disk here.
            self._connection.execute("set synchronous_commit = off")
            yielding(self._connection)
        return self._connection

    def close(self) -> None:
        if self._rollup is not None:
            self._rollup.close()
        if self._connection is not None:
            self._connection.close()
        self._rollup = self._connection = None

    def step(self) -> bool:
        """The next piece that nobody is at. False where there is none."""
        connection, rebuild = self.connection(), self.rebuild
        with connection.transaction():
            row = connection.execute(
                query("replay/take_chunk"), {"rebuild_no": rebuild.rebuild_no}
            ).fetchone()
            if row is None:
                return False
            number, kind, sessions, events = row
            if kind == "compare":
                self._compare(connection, sessions)
            elif kind == "carry":
                carry(connection, rebuild, sessions)
                connection.execute(query("replay/mark"), {"sessions": sessions})
            else:
                self._fold(connection, sessions, fresh=kind == "fold")
            connection.execute(
                query("replay/chunk_done"), {"rebuild_no": rebuild.rebuild_no, "chunk_no": number}
            )
        self.events += events
        self.on_piece(kind)
        return True

    def roll_up(self) -> Tick:
        """Some of the sessions that are marked; none while sessions are folded that will move again before they are all there."""
        there = open_rebuild(self.connection())
        if there is None or there.phase == "folding":
            return Tick()
        if self._rollup is None:
            self._rollup = ShadowRollup(self.database_url, self.price, self.rebuild)
        return self._rollup.turn()

    def _fold(self, connection: Connection, sessions: Sequence[int], *, fresh: bool) -> None:
        rebuild = self.rebuild
        done = fold_sessions(connection, rebuild.slot, rebuild.live, sessions, fresh=fresh)
        connection.execute(query("replay/mark"), {"sessions": list(sessions)})
        if not fresh:
            compare.doubt(connection, sessions)
        if done.refused:
            connection.execute(
                "update ledger.rebuilds set refused = refused + %s where rebuild_no = %s",
                (done.refused, rebuild.rebuild_no),
            )

    def _compare(self, connection: Connection, sessions: Sequence[int]) -> None:
        """In one statement, so in one snapshot. Whoever differs and is being written is looked at again."""
        rebuild = self.rebuild
        found = compare.differing(connection, rebuild.live, rebuild.slot, sessions)
        compare.doubt(connection, list(found))
        # Sums alone may be stale: of a generation that was kept, nobody marked what moves without an event.
        sums = [number for number, one in found.items() if compare.SUMS.issuperset(one.tables)]
        if sums:
            connection.execute(query("replay/mark"), {"sessions": sums})


def look_again(connection: Connection, rebuild: Rebuild, sessions: Sequence[int]) -> set[int]:
    """Compare sessions in one snapshot, and write down what it says of those that nobody has still to write. Returns the others.

    ``connection`` is in autocommit mode, outside of a transaction.
    """
    previous = connection.isolation_level
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    try:
        with connection.transaction():
            row = connection.execute("select now()::text").fetchone()
            moved, marked = compare.unsettled(connection, sessions, unwritten(connection, rebuild))
            waiting = moved | marked
            settled = [number for number in sessions if number not in waiting]
            found = compare.differing(connection, rebuild.live, rebuild.slot, settled)
    finally:
        connection.isolation_level = previous
    at = compare.NOW if row is None else row[0]
    compare.keep(connection, list(found.values()), at)
    compare.clear(connection, [number for number in settled if number not in found], at)
    return waiting


def unwritten(connection: Connection, rebuild: Rebuild) -> Unwritten:
    """What live work has still to project, and what the generation that is built does not hold yet."""
    row = connection.execute(query("verify/unflushed")).fetchone()
    live, day = (row[0] or [], row[1] or date.max) if row is not None else ([], date.max)
    ours = beyond(connection, rebuild.generation)
    return Unwritten([*live, *ours.batches], min(day, ours.day))


def carry(connection: Connection, rebuild: Rebuild, sessions: Sequence[int]) -> None:
    """Copy what the fold wrote of some sessions from the generation that readers see."""
    for table, encoder in PROJECTED.items():
        listed = ", ".join(f'"{name}"' for name in encoder.names)
        statement = (
            of_slot("replay/carry", rebuild.slot)
            .replace(b"{live}", rebuild.live.encode())
            .replace(b"{table}", table.encode())
            .replace(b"{columns}", listed.encode())
        )
        if table == "findings":
            statement += b" and source = 'fold'"
        connection.execute(statement, {"sessions": list(sessions)})


def run_pieces(
    database_url: str,
    rebuild: Rebuild,
    price: PriceSource,
    ended: Callable[[float], bool],
    *,
    rate: float = 0.0,
    rests: bool = False,
) -> None:
    """Work until ``ended(seconds)``, which waits so long, says so. For a process of its own. ``rate``: events a second at most; 0 is no limit.
    ``rests``: after a comparison for as long as that took. Nearly all of it is the database's, which gives way to nobody."""
    collect_seldom()
    kinds: list[str] = []
    work = Pieces(database_url, rebuild, price, on_piece=kinds.append)
    load_as_microseconds(work.connection())
    try:
        free_at = time.monotonic()
        while not ended(max(0.0, free_at - time.monotonic())):
            before, began = work.events, time.monotonic()
            if work.step():
                if kinds.pop() == "compare" and rests:
                    free_at = 2 * time.monotonic() - began
                if rate:
                    free_at = max(free_at, time.monotonic() - 1) + (work.events - before) / rate
                continue
            tick = work.roll_up()
            if not tick.done and ended(0.05 if tick.met else 0.2):
                return
    finally:
        work.close()
