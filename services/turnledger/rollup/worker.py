"""The rollup worker: takes sessions with due marks, any number of workers at once. A database that is away is waited for."""

from __future__ import annotations

import random
import signal
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
import structlog

from turnledger.errors import TurnledgerError
from turnledger.rollup.hours import set_hours
from turnledger.rollup.many import SESSIONS, roll_up_many
from turnledger.rollup.pace import Pace
from turnledger.rollup.prices import PriceBook, PriceSource, begin
from turnledger.rollup.probes import Health, Metrics, server
from turnledger.rollup.rows import Connection, Statements, Torn
from turnledger.rollup.session import TRANSIENT, Outcome, roll_up_session
from turnledger.rollup.settings import RollupSettings
from turnledger.store.connect import away, connect
from turnledger.store.instants import load_as_microseconds
from turnledger.store.maintain import Ranges, tell_planner
from turnledger.store.migrate import require
from turnledger.store.named import query
from turnledger.store.read import LedgerUnreadable, writable_slot
from turnledger.store.write_binary import Refused

log = structlog.get_logger("turnledger.rollup")

CANDIDATES = 250
"""Sessions looked up at once, among which each worker finds some that no other is at."""
WINDOW = 5_000
"""Oldest marks looked at first; all of them where none of these is due."""
FIRST_BACK_OFF_SECONDS = 0.2
GREATEST_BACK_OFF_SECONDS = 5.0
REFUSED_SECONDS = 60.0
"""A session whose rows cannot be set is tried again after this."""
RANGES_SECONDS = 10.0
"""How often indexes by range are told what was appended: a fleet at full rate fills 100 MiB meanwhile."""
UNMAINTAINED_SECONDS = 600.0
"""Where a table takes longer to be analyzed or summarized than a statement may, it is tried again after this."""
WATCH_SECONDS = 2.0
"""How often the marks are counted, for health and metrics."""

REFUSALS = (
    psycopg.DataError,
    psycopg.errors.ProgramLimitExceeded,
    struct.error,
    OverflowError,
    Refused,
    LedgerUnreadable,
)
"""What one session's content can cause; it must not hold up the others."""


@dataclass(slots=True)
class Tick:
    """What one look at the marks led to."""

    done: int = 0
    """Sessions set or removed."""
    met: int = 0
    """Sessions that another worker has, or that must be tried again at once."""
    more: bool = False
    """More are due than are taken at once."""


class Rollup:
    """One worker on one connection of its own. :meth:`run` goes on until :meth:`stop`; :meth:`drain` until no mark is left."""

    def __init__(self, settings: RollupSettings, database_url: str, price: PriceSource) -> None:
        self.settings = settings
        self.database_url = database_url
        self.price = price
        self.metrics = Metrics()
        self.health = Health(settings.rollup_red_after)
        self._connection: Connection | None = None
        self._stop = threading.Event()
        self._pace = Pace(time.monotonic())
        self._hours_at = 0.0
        self._watched_at = 0.0
        self._maintained_at = 0.0
        self._ranges = Ranges()
        self._ranges_at = 0.0
        self._refused: dict[int, float] = {}
        """session_no: until when it is left alone."""

    def stop(self) -> None:
        """End after the session at hand."""
        self._stop.set()

    def run(self) -> None:
        """Roll up what is due, wait, and so on. Never raises for a database that is away: it backs off and says so."""
        pause = FIRST_BACK_OFF_SECONDS
        while not self._stop.is_set():
            try:
                began = time.monotonic()
                tick = self.tick()
                self._pace.worked(time.monotonic() - began, time.monotonic())
                if self.health.failing is not None:
                    log.info("the database answers again")
                    self.health.failing = None
                pause = FIRST_BACK_OFF_SECONDS
                if not (tick.done and tick.more):
                    # Until then some more are due: together they cost a fraction of what each costs by itself.
                    self._stop.wait(self.settings.rollup_interval)
            except (psycopg.Error, TurnledgerError) as error:
                self._failed(error)
                self._stop.wait(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 2, GREATEST_BACK_OFF_SECONDS)
        self.close()

    def drain(self) -> int:
        """Roll up every marked session, due or not, until no mark is left (those of other workers too); how many it did itself.

        Raises a :class:`TurnledgerError`, once the database does not answer or is not migrated.
        """
        done = 0
        try:
            while not self._stop.is_set():
                tick = self.tick(now=True)
                done += tick.done
                if tick.done:
                    continue
                hours = set_hours(self._statements())
                if hours == 0 and not tick.met:
                    break
                if not hours:
                    self._stop.wait(0.02)
        except psycopg.Error as error:
            raise away(self.database_url, error) from None
        finally:
            self.close()
        return done

    def tick(self, *, now: bool = False) -> Tick:
        """Take up the sessions that are due (``now``: all that have marks), oldest mark first, and the hours when they are."""
        do = self._statements()
        candidates = self._candidates(do, now)
        tick = Tick(more=len(candidates) > SESSIONS)
        free = [number for number in candidates if self._refused.get(number, 0.0) <= time.monotonic()]
        for session_no in self._together(do, free, tick, now):
            if self._stop.is_set():
                return tick
            outcome = self._one(do, session_no, now)
            self.metrics.sessions.labels(outcome).inc()
            if outcome in (Outcome.SET.value, Outcome.REMOVED.value):
                tick.done += 1
            elif outcome != "refused":
                tick.met += 1
            self._hours(do)
        self._hours(do)
        if tick.done or not candidates:
            self.health.progress()
        self._watch(do)
        return tick

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _together(self, do: Statements, candidates: Sequence[int], tick: Tick, now: bool) -> Sequence[int]:
        """Roll up in one transaction those that can be, and count them; the others, each of which is to be rolled up by itself."""
        if len(candidates) < 2:
            return candidates
        began = time.monotonic()
        try:
            found = roll_up_many(do, candidates, self.price, now=now)
        except (*TRANSIENT, *REFUSALS):
            # Each by itself tells which of them cannot be set.
            return candidates
        for number in found.done:
            self._set(number, (time.monotonic() - began) / len(found.done))
        self.metrics.sessions.labels(Outcome.SET.value).inc(len(found.done))
        self.metrics.sessions.labels("torn").inc(len(found.torn))
        tick.done += len(found.done)
        tick.met += len(candidates) - len(found.done) - len(found.apart)
        return found.apart

    def _set(self, session_no: int, seconds: float) -> None:
        self.metrics.seconds.observe(seconds)
        self._refused.pop(session_no, None)
        self.health.refused.pop(session_no, None)

    def _one(self, do: Statements, session_no: int, now: bool) -> str:
        began = time.monotonic()
        try:
            outcome = roll_up_session(do, session_no, self.price, now=now)
        except TRANSIENT:
            time.sleep(random.uniform(0.001, 0.02))
            return "met"
        except Torn:
            return "torn"
        except REFUSALS as error:
            why = _without_values(error)
            self._refused[session_no] = time.monotonic() + REFUSED_SECONDS
            self.health.refused[session_no] = why
            log.error(
                f"the rollups of session_no {session_no} cannot be set ({why}); the others go on, it is tried again in "
                f"{REFUSED_SECONDS:.0f} s: `turnledger sessions show` tells what is there."
            )
            return "refused"
        if outcome in (Outcome.SET, Outcome.REMOVED):
            self._set(session_no, time.monotonic() - began)
        return outcome.value

    def _candidates(self, do: Statements, now: bool) -> list[int]:
        name = "marked" if now else "candidates"
        found = do.rows(name, window=WINDOW, count=CANDIDATES)
        if not found and not now:
            found = do.rows(name, window=None, count=CANDIDATES)
        return [row["session_no"] for row in found]

    def _hours(self, do: Statements) -> None:
        if time.monotonic() - self._hours_at < self.settings.rollup_hours_interval:
            return
        while count := set_hours(do):
            self.metrics.hours.inc(count)
        self._hours_at = time.monotonic()

    def _watch(self, do: Statements) -> None:
        if time.monotonic() - self._watched_at < WATCH_SECONDS:
            return
        self._watched_at = time.monotonic()
        self._maintain(do.connection)
        ((marks, oldest),) = do.connection.execute(do.text("pending")).fetchall()
        self.health.marks, self.health.oldest = marks, oldest
        self.metrics.marks.set(marks)
        self.metrics.oldest.set(oldest)
        audited = do.connection.execute(query("replay/last_audit")).fetchone() or (0, 0, -1.0)
        self.metrics.audited.set(audited[0])
        self.metrics.differing.set(audited[1])
        self.metrics.audit_age.set(audited[2])

    def _maintain(self, connection: Connection) -> None:
        """What autovacuum does too, and comes to late."""
        now = time.monotonic()
        if now < self._maintained_at:
            return
        try:
            tell_planner(connection)
            if now >= self._ranges_at:
                self._ranges_at = now + RANGES_SECONDS
                self._ranges.summarize(connection)
        except psycopg.errors.QueryCanceled:
            self._maintained_at = time.monotonic() + UNMAINTAINED_SECONDS
            log.info(
                f"a table was not analyzed or summarized within the statement timeout: all are left to autovacuum for {UNMAINTAINED_SECONDS:.0f} s"
            )

    def _statements(self) -> Statements:
        connection = self._connection
        if connection is None or connection.closed:
            require(self.database_url)
            connection = connect(self.database_url, "rollup", autocommit=True)
            load_as_microseconds(connection)
            if isinstance(self.price, PriceBook):
                begin(connection, "turnledger rollup")
            self._connection = connection
        return self._of_generation(connection)

    def _of_generation(self, connection: Connection) -> Statements:
        """The generation that readers see now. Raises ``OtherFold`` where another version of the fold fills it."""
        return Statements(connection, writable_slot(connection), pause=self._pace.pause)

    def _failed(self, error: Exception) -> None:
        self.close()
        self.metrics.failures.inc()
        said = error if isinstance(error, TurnledgerError) else away(self.database_url, error)
        if self.health.failing is None:
            log.warning(f"{said} Trying again until it answers.")
        self.health.failed(str(said))


def _without_values(error: Exception) -> str:
    """Why, without what a row holds: Postgres' messages quote values."""
    if isinstance(error, psycopg.Error):
        where = f" in {error.diag.table_name}" if error.diag.table_name else ""
        return f"SQLSTATE {error.sqlstate}{where}"
    return str(error)


def run_worker(settings: RollupSettings, database_url: str, price: PriceSource, *, once: bool) -> int:
    """Run until SIGTERM or SIGINT, or ``once``: until no mark is left. Returns the exit status; raises :class:`TurnledgerError` sentences."""
    from turnledger.ingest.logs import configure_logging

    configure_logging()
    worker = Rollup(settings, database_url, price)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: worker.stop())
    if once:
        done = worker.drain()
        left = len(worker.health.refused)
        log.info(f"{done} sessions rolled up; {f'{left} cannot be' if left else 'no mark is left'}")
        return 1 if left else 0
    beside = server(worker.health, worker.metrics, settings.rollup_health_host, settings.rollup_health_port)
    beside.run()
    log.info(f"health at http://{beside.server.host}:{beside.server.port}/healthz", port=beside.server.port)
    worker.run()
    beside.end()
    log.info("ended; what was rolled up is committed, what is marked waits")
    return 0
