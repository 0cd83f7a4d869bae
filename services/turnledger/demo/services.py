"""The demo's workers, as processes of their own: started, killed with -9, started again, and never left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from turnledger.devstack.files import free_port, tail, write_whole
from turnledger.devstack.process import Process
from turnledger.errors import TurnledgerError

READY_SECONDS = 60.0


class Service:
    """One ``turnledger …`` in the background, its log in the demo's folder."""

    def __init__(self, name: str, arguments: list[str], environment: Mapping[str, str], log: Path) -> None:
        self.name, self.arguments, self.log = name, arguments, log
        self._environment = dict(os.environ) | dict(environment)
        self._child: subprocess.Popen[bytes] | None = None
        self.process: Process | None = None

    def start(self) -> None:
        """Start it. A second start follows an end."""
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "turnledger", *self.arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.process = Process.of(self._child.pid)

    def running(self) -> bool:
        """Whether it runs. One that ended by itself is the caller's concern: :meth:`must_run`."""
        return self._child is not None and self._child.poll() is None

    def must_run(self) -> None:
        """Raise the sentence of a service that ended by itself."""
        if not self.running():
            raise TurnledgerError(f"{self.name} ended by itself: {tail(self.log, 2)}. Its log: {self.log}")

    def kill9(self) -> None:
        """SIGKILL."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after 30 s."""
        if self._child is not None and self.running():
            self._child.terminate()
            try:
                self._child.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.kill9()


class Services:
    """Two ingest workers and a rollup worker. Their process ids are noted, so that a demo that was killed leaves none behind."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._note = folder / "services.json"
        self._ports = {name: free_port() for name in ("worker-1", "worker-2", "rollup")}
        self.workers = [
            Service(
                name,
                # A static member: restarted under its name it has its partitions back at once.
                ["worker", "--instance-id", f"demo-{name}", "--health-port", str(port)],
                environment,
                folder / f"{name}.log",
            )
            for name, port in self._ports.items()
            if name != "rollup"
        ]
        self.rollup = Service(
            "rollup",
            ["rollup", "--health-port", str(self._ports["rollup"])],
            environment,
            folder / "rollup.log",
        )

    @property
    def all(self) -> list[Service]:
        """Each of them."""
        return [*self.workers, self.rollup]

    def start(self) -> None:
        """Start all, after those that an earlier demo left."""
        self.stop_leftovers(self._note)
        for service in self.all:
            service.start()
        self.note()

    def note(self) -> None:
        """Write down which processes are ours."""
        write_whole(self._note, json.dumps([s.process.to_json() for s in self.all if s.process]) + "\n")

    def wait_ready(self) -> None:
        """Return when every service says that it is well."""
        end = time.monotonic() + READY_SECONDS
        waiting = self.all
        while waiting:
            for service in self.all:
                service.must_run()
            waiting = [service for service in waiting if not _well(self._ports[service.name])]
            if waiting and time.monotonic() > end:
                raise TurnledgerError(
                    f"{waiting[0].name} is not well after {READY_SECONDS:.0f} s: {tail(waiting[0].log, 2)}. Its log: {waiting[0].log}"
                )
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop all."""
        for service in self.all:
            service.stop()
        self._note.unlink(missing_ok=True)

    @staticmethod
    def stop_leftovers(note: Path) -> int:
        """Stop the services of a demo that could not do it itself; how many."""
        if not note.exists():
            return 0
        noted = [Process.from_json(one) for one in json.loads(note.read_text(encoding="utf-8"))]
        alive = [process for process in noted if process is not None and process.alive()]
        for process in alive:
            process.stop()
        note.unlink()
        return len(alive)


def _well(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
