"""`turnledger worker --processes N`: the parent of N workers. It starts them, starts them again, ends them, and answers for their health.

It applies no event and opens neither Kafka nor Postgres: each process is a member of the consumer group of its own, and Kafka shares
the partitions out. Why processes, and what they cost: docs/decisions/0014.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from turnledger.health.server import ProbeServer
from turnledger.ingest.logs import configure_logging
from turnledger.ingest.metrics import ProcessMetrics
from turnledger.ingest.settings import Flags, WorkerSettings
from turnledger.ingest.tether import spelled

log = structlog.get_logger("turnledger.ingest")

FATAL = 2
"""Exit status of a process that ended with a sentence: starting it again would not mend that."""
LOOPBACK = "127.0.0.1"
BACKOFF_SECONDS = (1.0, 30.0)
"""First and longest pause before a process that died is started again; each is doubled."""
SETTLED_SECONDS = 60.0
"""Whoever lived that long dies for the first time again."""
ASK_SECONDS = 4.0
"""Longest wait for a process's own health: it answers between two rounds. (Whoever asks the parent waits 5 s.)"""
END_SECONDS = 27.5
"""How long the processes may take to end before they are killed: theirs is 26 s at most, ours is under the 30 s of invariant I9."""
KILLED_SECONDS = 1.5

Command = Callable[[int, int], Sequence[str]]
"""(number of the process, descriptor of its tether) → its command line."""


def command(settings: WorkerSettings, flags: Flags) -> Command:
    """The command line of each process: the same settings and flags. What is not said here reaches it through the environment."""

    def of(number: int, descriptor: int) -> list[str]:
        arguments = [
            "--processes=1",
            f"--tether={spelled(number, descriptor)}",
            f"--topic={settings.topic}",
            f"--group={settings.group_id}",
            f"--health-host={LOOPBACK}",
            "--health-port=0",
        ]
        if settings.instance_id is not None:
            arguments.append(f"--instance-id={settings.instance_id}-{number}")
        given = {
            "--take-over": flags.take_over,
            "--accept-loss": flags.accept_loss,
            "--resume-stopped": flags.resume_stopped,
            "--standby": flags.standby,
        }
        arguments += [flag for flag, said in given.items() if said]
        # -P: the folder it is started in is no place for modules.
        return [sys.executable, "-P", "-m", "turnledger", "worker", *arguments]

    return of


@dataclass(slots=True)
class Child:
    """One of the processes, through all its lives."""

    number: int
    process: asyncio.subprocess.Process | None = None
    port: int | None = None
    """Where its own health is; None until it reported it."""
    down: str = "it is starting"
    """Why it has no health of its own to tell."""
    reasons: list[str] = field(default_factory=list)
    """Why it is red, as it was last asked."""
    told: dict[str, Any] = field(default_factory=dict)
    """What its /healthz said beside."""
    page: str = ""
    """Its /metrics."""

    def signal(self, number: int) -> None:
        """Send it a signal, if it runs."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)

    async def look(self) -> None:
        """Ask it for its health and its metrics."""
        self.told, self.page = {}, ""
        if self.port is None:
            self.reasons = [self.down]
            return
        try:
            async with asyncio.timeout(ASK_SECONDS):
                health, page = await asyncio.gather(
                    fetch(self.port, "/healthz"), fetch(self.port, "/metrics")
                )
        except TimeoutError:
            self.reasons = [f"it has not answered for {ASK_SECONDS:.0f} s"]
        except (OSError, asyncio.IncompleteReadError) as error:
            self.reasons = [f"it does not answer on its health port ({error})"]
        else:
            self.told = json.loads(health)
            self.reasons = list(self.told.pop("reasons"))
            self.page = page.decode()


async def fetch(port: int, path: str) -> bytes:
    """The body of an answer of a :class:`ProbeServer` on loopback."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        return await reader.read()
    finally:
        writer.close()


def merged(pages: Mapping[int, str]) -> list[Metric]:
    """The metrics of several exposition pages as one: each family once, each sample with the label ``process`` of its page."""
    families: dict[str, Metric] = {}
    for number, page in pages.items():
        for family in text_string_to_metric_families(page):
            whole = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            whole.samples += [
                sample._replace(labels={"process": str(number), **sample.labels}) for sample in family.samples
            ]
    return list(families.values())


class Pages(Collector):
    """The metrics of the processes, as they were last asked."""

    def __init__(self, children: Sequence[Child]) -> None:
        self.children = children

    def collect(self) -> Iterator[Metric]:
        yield from merged({child.number: child.page for child in self.children if child.page})


class ParentServer(ProbeServer):
    """Green when all processes are; their metrics on one page."""

    def __init__(self, children: Sequence[Child], metrics: ProcessMetrics, host: str, port: int) -> None:
        super().__init__(self, metrics.registry, metrics.healthy, host, port)
        self.children = children
        self.metrics = metrics
        metrics.registry.register(Pages(children))

    async def look(self) -> None:
        await asyncio.gather(*(child.look() for child in self.children))
        for child in self.children:
            self.metrics.up.labels(str(child.number)).set(0 if child.port is None else 1)

    def reasons(self) -> list[str]:
        """Of all processes."""
        return [f"process {child.number}: {why}" for child in self.children for why in child.reasons]

    def details(self) -> dict[str, Any]:
        """What each says of itself."""
        return {"processes": {str(child.number): child.told for child in self.children}}


class Processes:
    """The parent. :meth:`run` returns the exit status: 0 when all ended well, 2 when one ended with a sentence, else 1."""

    def __init__(
        self,
        count: int,
        command: Command,
        *,
        environment: Mapping[str, str],
        health_host: str,
        health_port: int,
        backoff: tuple[float, float] = BACKOFF_SECONDS,
        end_seconds: float = END_SECONDS,
    ) -> None:
        """``environment`` is all that the processes get of one. ``backoff`` and ``end_seconds`` are in seconds."""
        self.command = command
        self.environment = environment
        self.backoff = backoff
        self.end_seconds = end_seconds
        self.children = [Child(number) for number in range(1, count + 1)]
        self.metrics = ProcessMetrics()
        for child in self.children:
            self.metrics.restarts.labels(str(child.number))
        self.server = ParentServer(self.children, self.metrics, health_host, health_port)
        self.status = 0
        self._end = asyncio.Event()

    async def run(self) -> int:
        """Raises a :class:`TurnledgerError` when the health port is taken: no process was started then."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end.set)
        await self.server.start()
        log.info(
            f"health at http://{self.server.host}:{self.server.port}/healthz",
            port=self.server.port,
            processes=len(self.children),
        )
        keepers = [asyncio.create_task(self._keep(child)) for child in self.children]
        end = asyncio.create_task(self._end.wait())
        await asyncio.wait({end, *keepers}, return_when=asyncio.FIRST_COMPLETED)
        self._end.set()
        for child in self.children:
            child.signal(signal.SIGTERM)
        _, late = await asyncio.wait(keepers, timeout=self.end_seconds)
        if late:
            for child in self.children:
                if child.process is not None:
                    log.warning(
                        f"process {child.number} did not end within {self.end_seconds:.0f} s and is killed; what it had not "
                        "committed is not acknowledged and comes again"
                    )
                child.signal(signal.SIGKILL)
            await asyncio.wait(keepers, timeout=KILLED_SECONDS)
        await self.server.stop()
        for keeper in keepers:
            if not keeper.done():
                keeper.cancel()
                self.status = max(self.status, 1)
            elif keeper.exception() is not None:
                log.error(f"the parent ends on an error of its own: {keeper.exception()!r}")
                self.status = max(self.status, 1)
        if self.status == 0:
            log.info(f"all {len(self.children)} processes ended")
        return self.status

    async def _keep(self, child: Child) -> None:
        """Have one process run until the end, whatever becomes of it."""
        loop = asyncio.get_running_loop()
        pause, longest = self.backoff
        while not self._end.is_set():
            began = loop.time()
            try:
                status, worked = await self._live(child)
            except OSError as error:
                status, worked = 1, False
                child.down = f"it could not be started ({error.strerror or error})"
            else:
                child.down = f"it {ended(status)}"
            if self._end.is_set():
                # SIGTERM before it had a port meets a process that has claimed nothing yet.
                well = status == 0 or (status == -signal.SIGTERM and not worked)
                self.status = max(self.status, 0 if well else FATAL if status == FATAL else 1)
                return
            if status == FATAL:
                log.error(
                    f"process {child.number} ended with status {FATAL}: its sentence stands above, and starting it again does not "
                    "mend it. All processes end."
                )
                self.status = FATAL
                self._end.set()
                return
            if loop.time() - began > SETTLED_SECONDS:
                pause = self.backoff[0]
            log.warning(
                f"process {child.number}: {child.down}; it is started again in {pause:g} s, and the others take its partitions "
                "meanwhile"
            )
            self.metrics.restarts.labels(str(child.number)).inc()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._end.wait(), pause)
            pause = min(longest, pause * 2)

    async def _live(self, child: Child) -> tuple[int, bool]:
        """One life of a process: its exit status, and whether it came so far as to report its port. Raises OSError when it cannot start."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                # A session of its own: Ctrl-C reaches the parent alone, which passes it on once.
                process = await asyncio.create_subprocess_exec(
                    *self.command(child.number, theirs.fileno()),
                    env=self.environment,
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
        child.process, child.down = process, "it is starting"
        # Whatever happens here, our side must stay open as long as it runs: its end is what ends the process.
        reader, writer = await asyncio.open_connection(sock=ours)
        report = asyncio.create_task(self._reported(child, reader))
        if self._end.is_set():
            child.signal(signal.SIGTERM)
        try:
            status = await process.wait()
            return status, child.port is not None
        finally:
            report.cancel()
            writer.close()
            child.process = child.port = None

    async def _reported(self, child: Child, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            line = await reader.readline()
            if line.endswith(b"\n"):
                child.port = int(line)


def ended(status: int) -> str:
    """How a process ended, in words: by which signal, or with which status."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def run_processes(settings: WorkerSettings, bootstrap: str, database_url: str, flags: Flags) -> int:
    """Run ``settings.processes`` workers until SIGTERM; returns the exit status. A :class:`TurnledgerError` is a sentence for the operator."""
    configure_logging()
    # All of them have the addresses that were found once: a folder's stack may be another one when a process starts again.
    environment = os.environ | {
        "TURNLEDGER_KAFKA_BOOTSTRAP": bootstrap,
        "TURNLEDGER_DATABASE_URL": database_url,
    }

    async def main() -> int:
        return await Processes(
            settings.process_count(),
            command(settings, flags),
            environment=environment,
            health_host=settings.health_host,
            health_port=settings.health_port,
        ).run()

    return asyncio.run(main())
