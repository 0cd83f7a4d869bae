"""The broker and the database as containers, for people with an engine: two services of the repository's docker-compose.yml.

Tests use testcontainers instead. A state folder is one compose project, so that several stand side by side.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from turnledger.devstack.files import free_port, locked, write_whole
from turnledger.devstack.stack import Addresses, Answering
from turnledger.errors import TurnledgerError

SERVICES = ("kafka", "postgres")
Run = Callable[[Sequence[str], dict[str, str]], "subprocess.CompletedProcess[str]"]


def run_docker(command: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the container engine's command line; its output is kept."""
    try:
        return subprocess.run(
            command,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise TurnledgerError(
            "a container engine answers and the command `docker` was not found: install it, or set TURNLEDGER_PROVIDER=embedded"
        ) from None


class ComposeStack:
    """What :class:`~turnledger.devstack.stack.Stack` is for the embedded servers, over ``docker compose``."""

    def __init__(self, folder: Path, *, run: Run = run_docker) -> None:
        self.folder, self._run = folder, run
        self._file = folder / "compose.json"

    def up(self) -> Addresses:
        """Start both and wait until they are healthy."""
        with locked(self.folder / "lock"):
            ports = self._ports()
            if ports is None:
                ports = {"TURNLEDGER_KAFKA_PORT": free_port(), "TURNLEDGER_POSTGRES_PORT": free_port()}
                write_whole(self._file, json.dumps({"file": str(compose_file()), "ports": ports}) + "\n")
            self._compose("up", "--detach", "--wait", *SERVICES)
        return self._addresses(ports)

    def down(self, *, remove: bool = False) -> None:
        """Stop this project's containers; ``remove`` deletes them and their volumes."""
        if self._ports() is not None:
            with locked(self.folder / "lock"):
                self._compose(*(("down", "--volumes") if remove else ("stop",)))
                if remove:
                    self._file.unlink()

    def addresses(self) -> Addresses | None:
        """The addresses, when both containers run."""
        return self.answering().both()

    def answering(self) -> Answering:
        """Each container by itself."""
        ports = self._ports()
        if ports is None:
            return Answering(None, None)
        running = self._compose("ps", "--status", "running", "--services").split()
        there = self._addresses(ports)
        return Answering(
            there.kafka_bootstrap if "kafka" in running else None,
            there.database_url if "postgres" in running else None,
        )

    def made(self) -> bool:
        """Whether this folder's stack is one of containers."""
        return self._file.exists()

    def _ports(self) -> dict[str, int] | None:
        return (
            None if not self._file.exists() else json.loads(self._file.read_text(encoding="utf-8"))["ports"]
        )

    def _addresses(self, ports: dict[str, int]) -> Addresses:
        database = (
            f"postgresql://turnledger:turnledger@127.0.0.1:{ports['TURNLEDGER_POSTGRES_PORT']}/turnledger"
        )
        return Addresses(f"127.0.0.1:{ports['TURNLEDGER_KAFKA_PORT']}", database)

    def _compose(self, *arguments: str) -> str:
        state: dict[str, Any] = json.loads(self._file.read_text(encoding="utf-8"))
        project = f"turnledger-{hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]}"
        command = ["docker", "compose", "-f", state["file"], "-p", project, *arguments]
        done = self._run(command, {name: str(port) for name, port in state["ports"].items()})
        if done.returncode != 0:
            said = " ".join(done.stderr.split())[-400:]
            raise TurnledgerError(
                f"`{' '.join(command)}` failed ({said}): mend it, or set TURNLEDGER_PROVIDER=embedded"
            )
        return done.stdout


def compose_file() -> Path:
    """The repository's docker-compose.yml: beside an editable install, else in the working directory or above it."""
    places = [Path(__file__).resolve().parents[3], Path.cwd(), *Path.cwd().parents]
    for place in places:
        if (place / "docker-compose.yml").is_file():
            return place / "docker-compose.yml"
    raise TurnledgerError(
        "a container engine answers and no docker-compose.yml was found here or above: "
        "run this in a checkout of turnledger, or set TURNLEDGER_PROVIDER=embedded"
    )
