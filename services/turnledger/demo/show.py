"""The demo from its first line to its last: real servers, real workers, a fleet with faults, a kill -9, and the proof.

It ends with an error when a single figure is not what was sent: the demo is a test that a person can watch.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from turnledger.demo.fleet import Fleet, Hole, fleet, work
from turnledger.demo.ledger_view import QUESTIONS, Account, LedgerView, Row
from turnledger.demo.publish import Publishing, publish_at_once
from turnledger.demo.screen import HEADS, Screen, session_cells
from turnledger.demo.services import Services
from turnledger.devstack import Addresses, choose, of_folder, stack_for, state_folder
from turnledger.doctor.tables import count, dollars, show
from turnledger.errors import TurnledgerError

SANDBOX = Path(__file__).with_name("sandbox.ndjson")
"""38 events of the sessions ``vm-7`` and ``vm-8`` of tenant ``sandbox``."""
SECONDS, SHORT_SECONDS = 60.0, 15.0
RETURN_VMS, SHORT_RETURN_VMS = 40, 10
"""VMs that come back from an outage at once: the backlog by which the speed is measured, 500 events a VM-minute."""
STUCK_SECONDS = 60.0
"""Without any progress for so long, the demo gives up."""
SESSION_TIMEOUT_SECONDS = 6.0
"""Of the consumer group: a killed worker that does not come back is replaced after this."""
BACK_AFTER_SECONDS = 3.0
"""How long the killed worker stays dead."""
LIBRARY_VM = 5
"""Index of the VM that publishes through the library. No fault stands in its streams."""


class DemoFailed(TurnledgerError):
    """What the ledger says is not what was sent."""


@dataclass(frozen=True)
class World:
    """Where the demo runs."""

    addresses: Addresses
    topic: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """For every command that the demo starts."""
        return self.addresses.environment() | {
            "TURNLEDGER_TOPIC": self.topic,
            "TURNLEDGER_SESSION_TIMEOUT_SECONDS": str(SESSION_TIMEOUT_SECONDS),
            "PYTHONUNBUFFERED": "1",
        }

    @property
    def sink(self) -> str:
        """For the publisher."""
        return f"kafka://{self.addresses.kafka_bootstrap}/{self.topic}"


def run_demo(state: Path | None, topic: str, *, short: bool = False, seed: int = 7) -> None:
    """The whole demo."""
    screen = Screen()
    world = set_up(screen, state, topic)
    run = f"demo-{datetime.now(UTC):%m%d-%H%M}-{secrets.token_hex(2)}"
    with working(screen, world) as services, LedgerView(world.addresses.database_url) as view:
        sandbox(screen, world, services, view)
        before, since = view.account(topic), view.now()
        sent = stream(
            screen, world, services, view, run, before, seed=seed, seconds=SHORT_SECONDS if short else SECONDS
        )
        found = settle(screen, services, view, topic, before, sent.records)
        speed = backlog(
            screen, world, services, view, run, seed=seed, vms=SHORT_RETURN_VMS if short else RETURN_VMS
        )
        wait_for_rollups(screen, services, view)
        totals(screen, sent, found)
        table(screen, "Sessions", HEADS, [session_cells(row) for row in view.sessions(f"{run}-vm-%")])
        faults(screen, view, sent, f"{run}-vm-%", topic, since)
        questions(screen, view, f"{run}-vm-%")
        screen.heading("The proof")
        verify(screen, world)
        screen.write(speed)
    look_on(screen, world, sent)


def sandbox(screen: Screen, world: World, services: Services, view: LedgerView) -> None:
    """The two recorded sessions that docs/sql.md asks its questions of, in a tenant of their own; once in a ledger."""
    if view.rows("select 1 as one from turnledger.sessions where tenant = 'sandbox' limit 1"):
        return
    screen.say(
        "two sessions of a VM sandbox, which docs/sql.md asks its questions of, go into tenant sandbox"
    )
    before = view.account(world.topic)
    command(world, "publish", str(SANDBOX), quiet=True)
    caught_up(screen, services, view, world, before)


def run_import(state: Path | None, topic: str, paths: Sequence[Path]) -> None:
    """Import a person's own files and show what they cost."""
    for path in paths:
        if not path.exists():
            raise TurnledgerError(
                f'{path} does not exist: say FILES="path …" with session files of a harness (`turnledger harnesses` lists them), or folders of them'
            )
    screen = Screen()
    world = set_up(screen, state, topic)
    with working(screen, world) as services, LedgerView(world.addresses.database_url) as view:
        before = view.account(topic)
        screen.say(f"importing {', '.join(map(str, paths))}")
        command(world, "import", *map(str, paths))
        caught_up(screen, services, view, world, before)
        wait_for_rollups(screen, services, view)
        rows = view.imported()
        table(screen, "What they cost", IMPORT_HEADS, [import_cells(row) for row in rows])
        costs = [row["cost_micro_usd"] for row in rows if row["cost_micro_usd"] is not None]
        unpriced = sum(row["unpriced_calls"] or 0 for row in rows)
        screen.write(
            f"sessions: {len(rows)}, together {dollars(sum(costs)) if costs else 'no known cost'}"
            + (
                f"; calls of models without a known price, which are not in it: {unpriced}"
                if unpriced
                else ""
            )
        )
        verify(screen, world)
    look_on(screen, world, None)


def tear_down(state: Path | None) -> None:
    """Stop the demo's processes and servers and delete their data."""
    screen, folder = Screen(), state_folder(state)
    left = Services.stop_leftovers(folder / "demo" / "services.json")
    if left:
        screen.say(f"stopped {left} processes that a demo left behind")
    made = of_folder(folder)
    if made is None:
        screen.say(f"no stack in {folder}: nothing to stop")
        return
    made.down(remove=True)
    screen.say(f"stopped the broker and the database of {folder} and deleted their data")


def set_up(screen: Screen, state: Path | None, topic: str) -> World:
    """Servers, schema, topic."""
    choice = choose()
    screen.say(str(choice))
    if choice.addresses is not None:
        addresses = choice.addresses
    else:
        addresses = stack_for(choice, state, say=screen.say).up()
        screen.say(
            f"the broker answers at {addresses.kafka_bootstrap}, the database at {place(addresses.database_url)}"
        )
    world = World(addresses, topic, state_folder(state) / "demo")
    screen.say("bringing the schema up to date and creating the topic")
    command(world, "db", "migrate", quiet=True)
    command(world, "topics", "create", quiet=True)
    return world


@contextlib.contextmanager
def working(screen: Screen, world: World) -> Iterator[Services]:
    """Two ingest workers and a rollup worker, stopped at the end however it comes."""
    services = Services(world.folder, world.environment)
    screen.say("starting two ingest workers and a rollup worker")
    try:
        services.start()
        services.wait_ready()
        yield services
    finally:
        services.stop()


def stream(
    screen: Screen,
    world: World,
    services: Services,
    view: LedgerView,
    run: str,
    before: Account,
    *,
    seed: int,
    seconds: float,
) -> Fleet:
    """The fleet at work, with a worker killed in the middle."""
    sent = fleet(seed=seed, seconds=seconds, start=datetime.now(UTC), run=run)
    screen.say(
        f"{len(sent.sessions)} VMs work for {seconds:.0f} s: {sent.records:,} records, {sent.counts['duplicate']} of them duplicates, "
        "a gap that fills late and one that does not, a number told in two ways, a record that is garbage"
    )
    publishing = Publishing(world.sink, sent.deliveries, pace=True, through_library=sent.sessions[LIBRARY_VM])
    publishing.start()
    victim, killed_at, back = services.workers[0], 0.0, False
    with screen.live():
        while publishing.is_alive():
            publishing.join(timeout=0.5)
            elapsed = publishing.elapsed
            if not killed_at and elapsed >= seconds / 2:
                pid = victim.process.pid if victim.process else 0
                victim.kill9()
                killed_at = elapsed
                screen.say(f"kill -9 {pid}: {victim.name} is dead, in the middle of its work")
            elif killed_at and not back and elapsed >= killed_at + BACK_AFTER_SECONDS:
                victim.start()
                services.note()
                back = True
                screen.say(f"{victim.name} is started again and takes its partitions back")
            alive = [service for service in services.all if back or not killed_at or service is not victim]
            for service in alive:
                service.must_run()
            state = f"{sum(s.running() for s in services.workers)} of {len(services.workers)} workers run"
            screen.show(
                publishing.sent, view.account(world.topic) - before, view.sessions(f"{run}-vm-%"), state
            )
    publishing.finish()
    if not back:
        victim.start()
        services.note()
    screen.say(f"the fleet has ended: {publishing.sent:,} records in {publishing.seconds:.0f} s")
    return sent


def settle(
    screen: Screen, services: Services, view: LedgerView, topic: str, before: Account, records: int
) -> Account:
    """Wait until every record was read; how they ended."""
    wait(
        services,
        lambda: (view.account(topic) - before).records >= records,
        lambda: view.account(topic).records,
        f"the workers read all {records:,} records",
    )
    screen.say("every record was read")
    return view.account(topic) - before


def backlog(
    screen: Screen, world: World, services: Services, view: LedgerView, run: str, *, seed: int, vms: int
) -> str:
    """Many VMs come back at once: the line with the events per second, from the first emit to the last commit."""
    events = work(seed=seed + 1, vms=vms, start=datetime.now(UTC), run=f"{run}-return")
    screen.say(f"{vms} VMs come back from an outage at once: {len(events):,} events as fast as they go")
    before, began = view.account(world.topic), view.now()
    publish_at_once(world.sink, events, on_progress=lambda: None)
    accepted = settle(screen, services, view, world.topic, before, len(events)).accepted
    seconds = (view.last_commit(world.topic) - began).total_seconds()
    if accepted != len(events):
        raise DemoFailed(
            f"of {len(events):,} events that came back {accepted:,} were accepted: look into {world.folder}"
        )
    return (
        f"{accepted / seconds:,.0f} events per second ({accepted:,} events in {seconds:.1f} s from the first emit to the last commit; "
        "broker, database, publisher and both workers on this machine)"
    )


def wait_for_rollups(screen: Screen, services: Services, view: LedgerView) -> None:
    """Wait until the aggregates are those of the last event."""
    wait(services, lambda: view.marks() == 0, view.marks, "the rollup worker is done")
    screen.say("the aggregates are up to date")
    screen.write("")


def caught_up(screen: Screen, services: Services, view: LedgerView, world: World, before: Account) -> None:
    """Wait until what was published is read, when only the topic knows how much that is."""
    ends = topic_ends(world)
    wait(
        services,
        lambda: bool(
            view.rows(
                """
                select 1 as one from (select coalesce(sum(next_offset), 0) as read from ledger.ingest_progress where topic = %(topic)s) p
                where p.read >= %(ends)s""",
                topic=world.topic,
                ends=ends,
            )
        ),
        lambda: view.account(world.topic).records,
        "the workers read all that was imported",
    )
    now = view.account(world.topic) - before
    screen.say(
        f"read {now.records:,} records: {now.accepted:,} new, {now.duplicates:,} that the ledger had already"
    )


def topic_ends(world: World) -> int:
    """The sum of the end offsets of the topic's partitions."""
    import asyncio

    from aiokafka import TopicPartition

    from turnledger.kafka import connect

    async def ask() -> int:
        consumer = connect.reader(world.addresses.kafka_bootstrap, "turnledger demo")
        await consumer.start()
        try:
            numbers = await connect.partitions_of(world.addresses.kafka_bootstrap, [world.topic])
            ends = await consumer.end_offsets(
                [TopicPartition(world.topic, each) for each in numbers[world.topic]]
            )
            return sum(ends.values())
        finally:
            await consumer.stop()

    return asyncio.run(ask())


def wait(services: Services, done: Callable[[], bool], moving: Callable[[], int], what: str) -> None:
    """Until ``done``; an error with ``what`` when nothing is ``moving`` any more, or a service ended."""
    end, seen = time.monotonic() + STUCK_SECONDS, moving()
    while not done():
        for service in services.all:
            service.must_run()
        if (now := moving()) != seen:
            end, seen = time.monotonic() + STUCK_SECONDS, now
        if time.monotonic() > end:
            raise DemoFailed(
                f"waited until {what}, and nothing moved for {STUCK_SECONDS:.0f} s: the logs are in {services.rollup.log.parent}"
            )
        time.sleep(0.1)


def totals(screen: Screen, sent: Fleet, found: Account) -> None:
    """Sent against found, to the last record."""
    expected = Account(
        sent.records, sent.accepted, sent.counts["duplicate"], sent.counts["conflict"], sent.counts["garbage"]
    )
    names = ("records", "accepted", "duplicates", "conflicts", "dead")
    rows = [[name, count(getattr(expected, name)), count(getattr(found, name))] for name in names]
    table(screen, "Totals: what the fleet sent, what the ledger found", ("", "sent>", "found>"), rows)
    if found != expected:
        raise DemoFailed(f"the ledger found {found}, the fleet sent {expected}")


def faults(screen: Screen, view: LedgerView, sent: Fleet, run: str, topic: str, since: datetime) -> None:
    """Each injected fault, as the ledger names it."""
    gaps, conflicts, dead = view.gaps(run), view.conflicts(run), view.dead_letters(topic, since)
    table(
        screen,
        "Gaps",
        ("session", "stream", "from>", "to>", "missing>", "state", "open for>"),
        [
            [
                gap["session_id"],
                gap["stream"],
                gap["from_seq"],
                gap["to_seq"],
                gap["missing"],
                gap["state"],
                f"{(gap['closed_at'] - gap['opened_at']).total_seconds():.1f} s"
                if gap["closed_at"]
                else "still",
            ]
            for gap in gaps
        ],
    )
    table(
        screen,
        "Conflicts: one number told in two ways, the first stays",
        ("session", "stream", "seq>", "kept", "lost", "times>", "at"),
        [
            [
                row["session_id"],
                row["stream"],
                row["seq"],
                row["kept_sha256"][:12],
                row["lost_sha256"][:12],
                row["count"],
                f"partition {row['partition']}, offset {row['position']}",
            ]
            for row in conflicts
        ],
    )
    table(
        screen,
        "Dead letters",
        ("partition>", "offset>", "session", "reason", "detail", "bytes>"),
        [
            [row[name] for name in ("partition", "position", "session_id", "reason", "detail", "raw_bytes")]
            for row in dead
        ],
    )
    opened = [hole_of(gap) for gap in gaps if gap["state"] == "open"]
    filled = [hole_of(gap) for gap in gaps if gap["state"] == "filled_late"]
    if opened != [sent.open_gap]:
        raise DemoFailed(f"the gap that stays open is {sent.open_gap}, the ledger has {opened}")
    if not covers(filled, sent.late_gap):
        raise DemoFailed(f"the gap that filled late is {sent.late_gap}, the ledger has {filled}")
    if [(row["session_id"], row["stream"], row["seq"]) for row in conflicts] != [sent.conflict]:
        raise DemoFailed(f"the conflict is at {sent.conflict}, the ledger has {conflicts}")
    if len(dead) != sent.counts["garbage"]:
        raise DemoFailed(
            f"{sent.counts['garbage']} record was garbage, the ledger has {len(dead)} dead letters"
        )


def hole_of(gap: Row) -> Hole:
    """A row of the view as the plan's hole."""
    return Hole(gap["session_id"], gap["stream"], gap["from_seq"], gap["to_seq"])


def covers(filled: Sequence[Hole], hole: Hole) -> bool:
    """Whether the rows that filled late are just that hole: it may have been seen, or filled, in parts."""
    numbers = {n for part in filled for n in range(part.from_seq, part.to_seq + 1)}
    places = {(part.session_id, part.stream) for part in filled}
    return places == {(hole.session_id, hole.stream)} and numbers == set(
        range(hole.from_seq, hole.to_seq + 1)
    )


def questions(screen: Screen, view: LedgerView, run: str) -> None:
    """Three questions of a platform team, each with the SQL that answers it."""
    for number, (asks, sql) in enumerate(QUESTIONS, 1):
        screen.heading(f"SQL {number}: {asks}")
        screen.write(
            "\n".join(f"  {line}" for line in (sql.replace("%(run)s", f"'{run}'") + ";").splitlines())
        )
        rows = view.rows(sql, run=run)
        if not rows:
            raise DemoFailed(f"the query has no answer: {sql}")
        show(
            screen.out,
            "",
            [f"{name}>" if number_like(rows, name) else name for name in rows[0]],
            [list(row.values()) for row in rows],
        )


def number_like(rows: Sequence[Row], name: str) -> bool:
    """Whether a column is set to the right."""
    return not any(isinstance(row[name], str) for row in rows)


def verify(screen: Screen, world: World) -> None:
    """``turnledger verify``, as a person would run it."""
    screen.say("turnledger verify")
    command(world, "verify")


def look_on(screen: Screen, world: World, sent: Fleet | None) -> None:
    """The last lines: how to go on looking."""
    session = f"turnledger sessions show {sent.sessions[0]}" if sent else "turnledger sessions list"
    screen.heading("Look on (the broker and the database still run)")
    turnledger = shlex.quote(str(Path(sys.executable).with_name("turnledger")))
    for line in (
        f"{turnledger} {session.removeprefix('turnledger ')}",
        f"{turnledger} dev psql -c 'select * from turnledger.sessions limit 5'",
        f"psql {shlex.quote(world.addresses.database_url)}",
        "make demo-down        stop both and delete their data",
    ):
        screen.write(f"  {line}")


def command(world: World, *arguments: str, quiet: bool = False) -> None:
    """Run a command of ours; ``quiet`` shows its output only when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "turnledger", *arguments],
        env=os.environ | world.environment,
        stdin=subprocess.DEVNULL,
        capture_output=quiet,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = f" ({' '.join((done.stdout + done.stderr).split())[-600:]})" if quiet else ""
        raise DemoFailed(f"`turnledger {' '.join(arguments)}` ended with {done.returncode}{said}")


def table(screen: Screen, title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """One table."""
    if screen.out.isatty():  # elsewhere each table ends with an empty line
        screen.write("")
    show(screen.out, title, heads, rows)


def place(url: str) -> str:
    """Host and port of a database URL, without its password."""
    return url.rpartition("@")[2].partition("/")[0]


IMPORT_HEADS = (
    "session",
    "agent",
    "models",
    "turns>",
    "calls>",
    "failed>",
    "tools>",
    "in>",
    "out>",
    "cost>",
    "known>",
    "grade",
)


def import_cells(row: Row) -> list[Any]:
    """One imported session in the order of :data:`IMPORT_HEADS`."""
    return [
        row["session_id"],
        row["agent"],
        ", ".join(row["models"] or []),
        count(row["turn_count"]),
        count(row["model_call_count"]),
        count(row["failed_model_calls"]),
        count(row["total_tool_calls"]),
        count(row["total_input_tokens"]),
        count(row["output_tokens"]),
        dollars(row["cost_micro_usd"]),
        f"{row['usage_reported']}/{row['usage_total']}",
        row["grade"],
    ]
