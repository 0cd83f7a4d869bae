"""A rollup worker over the simulated tables: the pure sums of ``fold.rollup`` inside transactions of the form that design 5 gives them.

Which sessions are due, who owns a call that several sessions hold, and the SQL of it all are not simulated (``tests/integration``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import psycopg

from tests.simulation.connection import Connection, SimulatedLink
from tests.simulation.statements import Context, decoded
from tests.simulation.tables import Row
from turnledger.fold.rollup import SessionRollup, SessionRows, hourly, roll_up
from turnledger.pricing.cost import Price
from turnledger.store.connect import DatabaseAway

if TYPE_CHECKING:
    from tests.simulation.world import World

TICK_SECONDS = 0.7
KEY = ("hour", "provider", "model")


def price(
    provider: str | None,
    model: str | None,
    usage: Mapping[str, int | None],
    at: int | None,
    convention: str | None,
    *,
    one_request: bool,
) -> Price:
    """3 micro-USD a token; one model has no price."""
    if model == "m-large":
        return Price(None, None, None, None, unpriced=True)
    return Price(3 * sum(value or 0 for value in usage.values()), "computed", f"{provider}/{model}", 1)


def sums(rows: SessionRows) -> SessionRollup:
    """Everything follows from the session's own rows: no call of the traffic is in two sessions of a family."""
    return roll_up(rows, lambda call_key: rows.session_id, price)


class RollupWorker:
    """One process. A kill is followed by a new one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.name = "rollup"
        self.dead = False
        self.frozen: asyncio.Future[Any] | None = None
        self.link = SimulatedLink(world.server, world, self, "rollup")
        self.task = world.loop.create_task(self._run(), name=self.name)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            await self.tick()

    async def tick(self) -> bool:
        """Everything that is marked, once. False where the database failed."""
        try:
            await self.link.submit(self.work)
        except (psycopg.Error, DatabaseAway):
            return False
        return True

    def thaw(self) -> None:
        frozen, self.frozen = self.frozen, None
        if frozen is not None and not frozen.done():
            frozen.set_result(None)

    def bury(self, seconds: float) -> None:
        self.thaw()
        self.task.cancel()
        self.link.vanish(seconds)

    def work(self, connection: Connection) -> None:
        """In the link's thread."""
        for session_no in connection.ask("rollup/marked", _marked):
            self.session(connection, session_no)
        with connection.transaction():
            if connection.ask("rollup/lock_hours", lambda context: context.try_lock("hours", 0)):
                connection.ask("rollup/set_hours", self.set_hours)

    def session(self, connection: Connection, session_no: int) -> None:
        """One session, one transaction: take its marks, read, set, mark its hours."""
        with connection.transaction():
            lock = connection.ask(
                "rollup/lock_session", lambda context: context.try_lock("session", session_no)
            )
            if not lock:
                return
            connection.ask("rollup/take_marks", lambda context: _take_marks(context, session_no))
            rows = connection.ask("rollup/projected", lambda context: projected(context, session_no))
            rollup = sums(rows) if rows is not None else None
            parts = rollup.hour_parts if rollup is not None else []
            connection.ask("rollup/put", lambda context: self.put(context, session_no, rows, parts))
            usage = rollup.ai_usage if rollup is not None else []
            connection.ask(
                "rollup/ai_usage", lambda context: _replace(context, "rollup_ai_usage", session_no, usage)
            )

    def put(self, context: Context, session_no: int, rows: SessionRows | None, parts: list[Row]) -> None:
        before = _replace(context, "hour_parts", session_no, parts)
        if rows is not None:
            self.moved(context, session_no, rows.tenant, before, parts)

    def moved(
        self, context: Context, session_no: int, tenant: str, before: Iterable[Row], after: Iterable[Row]
    ) -> None:
        """Mark the buckets that the session's share moved."""
        for key in dict.fromkeys(tuple(part[name] for name in KEY) for part in (*before, *after)):
            row = {"id": context.server.following("hour_marks")[0], "tenant": tenant}
            context.transaction.insert("hour_marks", row | dict(zip(KEY, key, strict=True)))

    def set_hours(self, context: Context) -> None:
        """Each marked bucket becomes the sum of its parts."""
        transaction = context.transaction
        transaction.kind = "rollup"
        marks = transaction.all("hour_marks")
        for mark in marks:
            transaction.delete("hour_marks", mark)
        sessions = {row["session_no"]: row for row in transaction.all("sessions")}
        by_bucket: dict[tuple[Any, ...], list[tuple[str, Row]]] = {
            (mark["tenant"], *(mark[name] for name in KEY)): [] for mark in marks
        }
        for part in transaction.all("hour_parts"):
            session = sessions[part["session_no"]]
            bucket = (session["tenant"], *(part[name] for name in KEY))
            if bucket in by_bucket:
                by_bucket[bucket].append((session["session_id"], part))
        for bucket, parts in by_bucket.items():
            known = transaction.get("usage_hourly", bucket)
            if known is not None:
                transaction.delete("usage_hourly", known)
            for row in hourly(parts):
                transaction.put("usage_hourly", row | {"tenant": bucket[0]})


def _marked(context: Context) -> list[int]:
    marks = sorted(context.transaction.all("marks"), key=lambda row: row["id"])
    return list(dict.fromkeys(row["session_no"] for row in marks))


def _take_marks(context: Context, session_no: int) -> None:
    context.transaction.kind = "rollup"
    for row in context.transaction.of("marks", session_no):
        context.transaction.delete("marks", row)


def _replace(context: Context, table: str, session_no: int, rows: Iterable[Row]) -> list[Row]:
    before = context.transaction.of(table, session_no)
    for row in before:
        context.transaction.delete(table, row)
    for row in rows:
        numbered = row | {"serial": context.server.following("serial")[0], "session_no": session_no}
        context.transaction.insert(table, numbered)
    return before


def projected(context: Context, session_no: int) -> SessionRows | None:
    """What the fold wrote of a session; None where it wrote nothing."""
    transaction = context.transaction
    facts = transaction.of("session_facts", session_no)
    if not facts:
        return None
    session = transaction.of("sessions", session_no)[0]
    return SessionRows(
        tenant=session["tenant"],
        session_id=session["session_id"],
        facts=decoded("session_facts", facts[0]),
        turns=[decoded("turns", row) for row in transaction.of("turns", session_no)],
        calls=[decoded("model_calls", row) for row in transaction.of("model_calls", session_no)],
        tools=[decoded("tool_calls", row) for row in transaction.of("tool_calls", session_no)],
        contributions=[decoded("usage_parts", row) for row in transaction.of("usage_parts", session_no)],
    )
