"""One simulated run: workers with the real handler, their group, the log, the database, and the schedule that strikes them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import structlog

from tests.simulation import statements
from tests.simulation.clock import Spinning, Stuck, VirtualLoop
from tests.simulation.connection import SimulatedLink
from tests.simulation.faults import Plan, Struckoff, Timed, plan
from tests.simulation.log import TOPIC, Broker, Consumer
from tests.simulation.oracle import Oracle
from tests.simulation.rollup import RollupWorker
from tests.simulation.tables import Server, Transaction
from tests.simulation.traffic import Traffic, generate
from turnledger.ingest.batch import Fetched, Partition
from turnledger.ingest.health import Health
from turnledger.ingest.metrics import Metrics
from turnledger.ingest.round import Ingest
from turnledger.ingest.settings import WorkerSettings

GROUP = "simulation"
SETTLE_SECONDS = 240.0
"""When the faults are over, everything must be whole after so many (virtual) seconds."""
NUDGE_EVERY = 3.0


@dataclass(frozen=True)
class Variant:
    """What runs: the product as it is, or with a mistake made on purpose (``tests/simulation/mistakes.py``)."""

    name: str = "the product"
    ingest: type[Ingest] = Ingest
    statements: dict[str, statements.Statement] = field(default_factory=dict)
    """Statements that are not what the product's SQL says."""
    rollup: type[RollupWorker] = RollupWorker


class Worker:
    """One worker process."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.name = f"worker {number}"
        self.dead = False
        self.leaving = False
        self.frozen: asyncio.Future[Any] | None = None
        self.excluded = False
        """The group thinks it is gone."""
        self.links: list[SimulatedLink] = []
        dice = random.Random(world.dice.getrandbits(64))
        self.health = Health(20.0, world.loop.time)
        self.consumer = Consumer(world.broker, self, dice, self._put, self._acknowledged)
        self.ingest = world.variant.ingest(
            world.settings,
            self._open,
            self.consumer,
            owner=f"worker@simulation:{number}/{round(world.loop.time() * 1000)}",
            metrics=Metrics(),
            health=self.health,
            give_back=self.consumer.give_back,
            clock=world.loop.time,
            dice=dice,
        )
        self.run = world.loop.create_task(self.ingest.run(), name=self.name)
        self.others = [
            world.loop.create_task(self.consumer.run()),
            world.loop.create_task(self._watch()),
        ]

    def _open(self, application: str) -> SimulatedLink:
        link = SimulatedLink(self.world.server, self.world, self, application)
        self.links.append(link)
        return link

    def _put(self, batch: Fetched) -> None:
        if not self.dead:
            self.ingest.put(batch)

    def _acknowledged(self, batch: Fetched) -> None:
        tables = self.world.server.tables
        row = tables["ingest_progress"].rows.get(batch.partition)
        if row is not None and (*batch.partition, row["next_offset"]) in tables["partition_stops"].rows:
            # What is left of a batch that ran into the stop rule is finished with it, and fetched again when somebody lets it go on.
            return
        if row is None or row["next_offset"] <= batch.last:
            self.world.server.fault(
                "acknowledged after the commit",
                f"records up to {batch.last} of partition {batch.partition[1]} were acknowledged, and "
                f"{row['next_offset'] if row else None} is next",
            )

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(NUDGE_EVERY)
            if self.frozen is None and not self.world.broker.away:
                for partition in list(self.ingest.seats):
                    self.health.end(partition, self.world.broker.ends[partition[1]])
                await self.ingest.nudge()

    def thaw(self) -> None:
        frozen, self.frozen = self.frozen, None
        if frozen is not None and not frozen.done():
            frozen.set_result(None)

    def bury(self, seconds: float) -> None:
        """After a kill: nothing of it goes on."""
        self.thaw()
        for task in (self.run, *self.others):
            task.cancel()
        for link in self.links:
            link.vanish(seconds)

    @property
    def member(self) -> bool:
        return not (self.dead or self.leaving or self.excluded)

    @property
    def whole(self) -> bool:
        """Nothing waits to be written."""
        ingest = self.ingest
        return (
            ingest._flying is None
            and not ingest._inbox
            and not ingest._pieces
            and not ingest.waiting
            and not any(seat.dirty or seat.late or seat.stale for seat in ingest.seats.values())
        )


class World:
    """Everything of one seed."""

    def __init__(self, seed: int, variant: Variant, loop: VirtualLoop) -> None:
        self.seed = seed
        self.variant = variant
        self.loop = loop
        self.dice = random.Random(seed)
        self.plan: Plan = plan(self.dice)
        self.partitions = self.dice.choice((1, 2, 3, 4))
        self.traffic: Traffic = generate(
            random.Random(self.dice.getrandbits(64)), self.partitions, self.dice.choice((12, 30, 60))
        )
        self.server = Server(loop, statements.tables())
        self.server.on_commit = self._check_commit
        self.broker = Broker(loop, random.Random(self.dice.getrandbits(64)), self.partitions)
        self.settings = _settings(self.dice)
        self.latencies = self.dice.choice(((0.001,), (0.001, 0.02), (0.001, 0.02, 0.4)))
        self.limits = _limits(self.dice)
        self.struckoff = Struckoff(self.plan)
        self.workers: list[Worker] = []
        self.rollup: RollupWorker = variant.rollup(self)
        self.notes: list[str] = []
        self.logged: list[str] = []
        self.happened: Counter[str] = Counter()
        self.oracle: Oracle | None = None
        self._rebalancing = asyncio.Lock()
        self._tasks: list[asyncio.Task[Any]] = []

    # --- what links ask (connection.Schedule) ---

    def at_statement(self, process: Any, name: str) -> tuple[Any, ...] | None:
        return self._struck("statement", process, name)

    def at_commit(self, process: Any, kind: str) -> tuple[Any, ...] | None:
        return self._struck(kind, process, "commit") if kind else None

    def _struck(self, place: str, process: Any, name: str) -> tuple[Any, ...] | None:
        found = self.struckoff.next(place)
        if found is None:
            return None
        self.note(f"{found.kind} strikes {process.name} at {name}")
        return found.action

    def kill(self, process: Any, seconds: float = 0.0) -> None:
        """Called in the thread of one of its links as well: the burial comes after."""
        if process.dead:
            return
        process.dead = True
        self.loop.call_soon(process.bury, seconds)
        if isinstance(process, RollupWorker):
            self._later(self._rolls_up_again(self.dice.choice((0.0, 3.0))))
            return
        self._later(self._missed(process, self.dice.choice((0.5, 8.0))))
        self._later(self._replaced(self.dice.choice((0.0, 1.0, 6.0))))

    def freeze(self, process: Any, seconds: float) -> None:
        if process.frozen is None:
            process.frozen = self.loop.create_future()
            self._later(self._thawed(process, seconds))
            if isinstance(process, Worker):
                self._later(self._missed(process, 8.0))

    def note(self, what: str) -> None:
        self.notes.append(f"{self.loop.time():8.3f}  {what}")

    def latency(self) -> float:
        return self.dice.choice(self.latencies)

    # --- the group ---

    def _later(self, work: Any) -> None:
        self._tasks.append(self.loop.create_task(work))

    async def _replaced(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.join()

    async def _rolls_up_again(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.rollup = self.variant.rollup(self)

    async def _missed(self, process: Worker, seconds: float) -> None:
        """The group's session timeout."""
        await asyncio.sleep(seconds)
        if (
            isinstance(process, Worker)
            and (process.dead or process.frozen is not None)
            and not process.excluded
        ):
            process.excluded = True
            await self.rebalance()

    async def _thawed(self, process: Any, seconds: float) -> None:
        frozen = process.frozen
        await asyncio.sleep(seconds)
        if process.frozen is not frozen or process.dead:
            return
        process.thaw()
        self.note(f"{process.name} runs again")
        if isinstance(process, Worker) and process.excluded:
            # It does not know yet that its partitions are somebody else's.
            await asyncio.sleep(self.dice.choice((0.0, 0.3, 3.0)))
            await self._revoke(process)
            process.excluded = False
            await self.rebalance()

    async def join(self) -> Worker:
        worker = Worker(self, len(self.workers))
        self.workers.append(worker)
        self.note(f"{worker.name} starts")
        await self.rebalance()
        return worker

    async def _revoke(self, worker: Worker) -> None:
        gone = set(worker.consumer.assigned)
        if worker.dead:
            return
        ending = self.loop.create_task(worker.ingest.revoke(sorted(gone)))
        await asyncio.wait([ending], timeout=7.0)
        worker.consumer.revoked(gone)

    async def rebalance(self) -> None:
        """Eager: everything is taken from everybody, then given anew."""
        async with self._rebalancing:
            members = [worker for worker in self.workers if worker.member and worker.frozen is None]
            await asyncio.gather(*(self._revoke(worker) for worker in members))
            for worker in self.workers:
                # Who does not answer now is out.
                worker.excluded |= worker.frozen is not None
            members = [worker for worker in self.workers if worker.member]
            shares: dict[Worker, list[Partition]] = {worker: [] for worker in members}
            if members:
                turn = self.dice.randrange(len(members))
                for number in range(self.partitions):
                    shares[members[(number + turn) % len(members)]].append((TOPIC, number))
            for worker, share in shares.items():
                worker.consumer.assigned = set(share)
                worker.ingest.assign(share)

    # --- the run ---

    async def main(self) -> None:
        for _ in range(self.dice.choice((1, 2, 2, 3))):
            await self.join()
        feeding = self.loop.create_task(self._feed())
        for timed in self.plan.timed:
            await asyncio.sleep(max(0.0, timed.at - self.loop.time()))
            await self._happen(timed)
        await feeding
        await self._settle()
        await self._roll_up()

    async def _roll_up(self) -> None:
        """Until no mark is left."""
        until = self.loop.time() + SETTLE_SECONDS
        while self.loop.time() < until:
            await asyncio.sleep(1.0)
            tables = self.server.tables
            if not (tables["marks"].rows or tables["hour_marks"].rows):
                return
        self.server.fault("I9 lag returns to 0", "sessions stay marked")

    async def _feed(self) -> None:
        backlog = self.dice.choice((0.0, 0.3, 1.0))
        waiting = [list(reversed(lane)) for lane in self.traffic.lanes]
        for number, lane in enumerate(waiting):
            for _ in range(int(len(lane) * backlog)):
                self.broker.append(number, lane.pop())
        while any(waiting):
            left = self.plan.seconds - self.loop.time()
            await asyncio.sleep(max(0.01, left / 20) * self.dice.random())
            for number, lane in enumerate(waiting):
                share = len(lane) if left <= 0 else self.dice.randrange(1 + len(lane) // 4 + 1)
                for _ in range(min(share, len(lane))):
                    self.broker.append(number, lane.pop())

    def _running(self, which: int) -> Worker | None:
        running = [worker for worker in self.workers if worker.member and worker.frozen is None]
        return running[which % len(running)] if running else None

    async def _happen(self, timed: Timed) -> None:
        self.note(str(timed))
        self.happened[timed.kind] += 1
        worker = self._running(timed.which)
        match timed.kind:
            case "crash":
                if worker is not None:
                    self.kill(worker, timed.amount)
            case "freeze":
                if worker is not None:
                    self.freeze(worker, timed.amount)
            case "rebalance":
                self._later(self.rebalance())
            case "database away":
                self.server.away_until = self.loop.time() + timed.amount
            case "broker away":
                self.broker.away_until = self.loop.time() + timed.amount
            case "clock jump":
                self.server.jumped += timed.amount
            case "retention":
                for number in range(self.partitions):
                    row = self.server.tables["ingest_progress"].rows.get((TOPIC, number))
                    if row is not None:
                        self.broker.forget_until(number, row["next_offset"])
            case "leave":
                if worker is not None and sum(one.member for one in self.workers) > 1:
                    self._later(self._leave(worker))
            case "join":
                self._later(self.join())

    async def _leave(self, worker: Worker) -> None:
        worker.ingest.stop()
        await asyncio.wait([worker.run])
        worker.leaving = True
        worker.consumer.revoked(set(worker.consumer.assigned))
        await self.rebalance()

    async def _settle(self) -> None:
        """The faults are over: everything that came must be applied and projected."""
        self.struckoff.over = True
        self.server.away_until = self.broker.away_until = 0.0
        self.note("the faults are over")
        until = self.loop.time() + SETTLE_SECONDS
        while True:
            await asyncio.sleep(0.5)
            self._let_go_on()
            self._look_for_crashes()
            if not any(worker.member or worker.frozen is not None for worker in self.workers):
                await self.join()
            if self._whole():
                break
            if self.loop.time() > until:
                self.server.fault("I9 lag returns to 0", f"after {SETTLE_SECONDS:g} s: {self._standing()}")
                return
        for worker in self.workers:
            if worker.member and worker.frozen is None and worker.consumer.outstanding:
                self.server.fault(
                    "I8 bytes are given back",
                    f"{worker.name} holds {worker.consumer.outstanding} bytes at rest",
                )
        members = [worker for worker in self.workers if worker.member]
        for worker in members:
            worker.ingest.stop()
        await asyncio.wait([worker.run for worker in members], timeout=30.0)
        self._look_for_crashes()
        for worker in members:
            if not worker.run.done():
                self.server.fault("I9 a worker ends", f"{worker.name} does not end within 30 s")

    def _let_go_on(self) -> None:
        """What a person does about partitions that dead letters stopped."""
        table = self.server.tables["partition_stops"]
        for key, row in list(table.rows.items()):
            if row["resumed_at"] is None:
                table.set(key, row | {"resumed_at": self.server.now()})

    def _look_for_crashes(self) -> None:
        for worker in self.workers:
            if not worker.dead and worker.run.done() and not worker.run.cancelled():
                error = worker.run.exception()
                if error is not None:
                    raise error

    def _whole(self) -> bool:
        rows = self.server.tables["ingest_progress"].rows
        for number in range(self.partitions):
            row = rows.get((TOPIC, number))
            log = self.broker.logs[number]
            if row is None or (log and row["next_offset"] <= log[-1].offset):
                return False
            if not any(
                seat.applied == row["next_offset"]
                for worker in self.workers
                if worker.member and (seat := worker.ingest.seats.get((TOPIC, number))) is not None
            ):
                return False
        return all(
            worker.whole and worker.frozen is None
            for worker in self.workers
            if not worker.dead and not worker.leaving
        )

    def _standing(self) -> str:
        rows = self.server.tables["ingest_progress"].rows
        parts = [
            f"partition {number}: next {row['next_offset'] if (row := rows.get((TOPIC, number))) else None} of {self.broker.ends[number]}"
            for number in range(self.partitions)
        ]
        for worker in self.workers:
            if not worker.dead:
                seats = {
                    seat.number: (seat.stopped, len(seat.dirty), len(seat.late), len(seat.stale))
                    for seat in worker.ingest.seats.values()
                }
                parts.append(
                    f"{worker.name}: seats {seats}, {len(worker.ingest._inbox)} fetched, {len(worker.ingest._pieces)} admitted, "
                    f"in flight {worker.ingest._flying is not None}, member {worker.member}, waits for {worker.ingest.waiting}, "
                    f"frozen {worker.frozen is not None}"
                )
        return "; ".join(parts)

    # --- rules at every commit ---

    def _check_commit(self, transaction: Transaction) -> None:
        """I3, as it happens."""
        rows = transaction.written.get("ingest_progress")
        if not rows:
            return
        committed = self.server.tables["ingest_progress"].rows
        for key, row in rows.items():
            before = committed.get(key)
            if before is None or row is None:
                continue
            if row["next_offset"] < before["next_offset"]:
                self.server.fault(
                    "I3",
                    f"next_offset of partition {key[1]} goes back from {before['next_offset']} to {row['next_offset']}",
                )
            if row["owner_epoch"] < before["owner_epoch"] or row["flushed_batch"] < before["flushed_batch"]:
                self.server.fault("I3", f"the epoch or the flushed batch of partition {key[1]} falls")
        for row in transaction.written.get("ingest_batches", {}).values():
            assert row is not None
            holder = rows.get((row["topic"], row["partition"])) or committed[row["topic"], row["partition"]]
            if row["epoch"] != holder["owner_epoch"]:
                self.server.fault(
                    "I3",
                    f"a batch of partition {row['partition']} is committed under epoch {row['epoch']} where {holder['owner_epoch']} holds it",
                )


def _settings(dice: random.Random) -> WorkerSettings:
    return WorkerSettings.model_construct(
        **{
            **{name: one.default for name, one in WorkerSettings.model_fields.items()},
            "topic": TOPIC,
            "group_id": GROUP,
            "round_events": dice.choice((3, 10, 40, 5000)),
            "linger_ms": dice.choice((0, 50, 400)),
            "cache_bytes": dice.choice((1, 20_000, 1_000_000)),
            **dice.choice(({}, {}, {"dead_window": 4, "dead_share": 0.3})),
            "open_turn_seconds": dice.choice((0.2, 1.0, 5.0)),
        }
    )


def _limits(dice: random.Random) -> list[tuple[str, Any]]:
    """Limits of the product that a short run would never reach, made small."""
    receipts, rows = dice.choice((2, 10_000)), dice.choice((2, 1000, 1000))
    return [
        ("turnledger.fold.state.CLOSED_BUDGET", dice.choice((1500, 64 * 1024))),
        ("turnledger.ingest.prepare.UNDROPPED_EVENTS", dice.choice((1, 10, 64))),
        ("turnledger.ingest.folding.STALE_SESSIONS_A_ROUND", dice.choice((1, 200))),
        ("turnledger.ingest.load.RECEIPTS_IN_MEMORY", receipts),
        ("turnledger.ingest.decide.RECEIPTS_IN_MEMORY", receipts),
        ("turnledger.ingest.numbers.BLOCK", 20),
        ("turnledger.ingest.holes.MAX_OPEN_ROWS", rows),
        ("turnledger.doctor.refold.MAX_OPEN_ROWS", rows),
    ]


@contextmanager
def _replaced(world: World) -> Iterator[None]:
    patches = [mock.patch(name, value) for name, value in world.limits]
    # A long open turn is folded seldom: by this clock.
    patches.append(mock.patch("turnledger.fold.state.monotonic", world.loop.time))
    patches.append(mock.patch.dict(statements.STATEMENTS, world.variant.statements))
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


def play(seed: int, variant: Variant | None = None) -> World:
    """Run one seed to its end. What went wrong stands in ``server.faults``."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    world = World(seed, variant or Variant(), loop)

    def keep(logger: Any, method: str, event: dict[str, Any]) -> Any:
        words = " ".join(f"{name}={value}" for name, value in event.items() if name != "event")
        world.note(f"said: {event['event']} {words}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[keep])
    loop.set_exception_handler(lambda loop, context: world.note(f"loop: {context}"))
    try:
        with _replaced(world):
            loop.run_until_complete(world.main())
    except (Stuck, Spinning) as error:
        world.server.fault("I9 lag returns to 0", f"{error}: {world._standing()}")
    except Exception as error:
        world.server.fault("a worker never ends on an error of its own", _where(error))
    finally:
        structlog.configure(**before)
        _bury(world, loop)
    if not world.server.faults:
        world.oracle = Oracle(world.server, world.broker)
        try:
            with _replaced(world):
                found = world.oracle.judge()
        except (KeyError, AssertionError) as error:
            found = [*world.oracle.faults, ("I1", f"rows name others that are not there: {_where(error)}")]
        for rule, what in found:
            world.server.fault(rule, what)
    return world


def _where(error: BaseException) -> str:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = " < ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in reversed(frames))
    return f"{error!r} ({places})"


def _bury(world: World, loop: VirtualLoop) -> None:
    for process in (*world.workers, world.rollup):
        process.dead = True
        process.bury(0.0)
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()
    asyncio.set_event_loop(None)


Play = Callable[[int, Variant | None], World]
