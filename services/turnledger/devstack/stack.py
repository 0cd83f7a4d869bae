"""A stack: one broker and one database in a state folder of their own. Several stand side by side, each stops only itself."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from turnledger.devstack.files import locked, write_whole
from turnledger.devstack.kafka import Kafka
from turnledger.devstack.postgres import Postgres
from turnledger.errors import TurnledgerError

STATE_VERSION = 1


@dataclass(frozen=True)
class Addresses:
    """Where a broker and a database answer: ``host:port`` and ``postgresql://…``."""

    kafka_bootstrap: str
    database_url: str

    def environment(self) -> dict[str, str]:
        """The variables that every turnledger command reads (contract 17)."""
        return {
            "TURNLEDGER_KAFKA_BOOTSTRAP": self.kafka_bootstrap,
            "TURNLEDGER_DATABASE_URL": self.database_url,
        }


@dataclass(frozen=True)
class Answering:
    """Which of the two servers run, and where. None: that one does not."""

    kafka_bootstrap: str | None
    database_url: str | None

    def both(self) -> Addresses | None:
        """The addresses, when both run."""
        if self.kafka_bootstrap is None or self.database_url is None:
            return None
        return Addresses(self.kafka_bootstrap, self.database_url)


def state_folder(given: Path | None = None) -> Path:
    """The state folder: ``given``, else ``TURNLEDGER_STATE``, else ``.turnledger`` here. Absolute."""
    return (given or Path(os.environ.get("TURNLEDGER_STATE") or ".turnledger")).expanduser().absolute()


def say_to_stderr(sentence: str) -> None:
    """Print for the person, apart from what a command answers."""
    print(f"turnledger dev: {sentence}", file=sys.stderr, flush=True)


class Stack:
    """The embedded broker and database of one state folder.

    Used as a context manager it is up inside and down after it (data kept). ``kafka`` and ``postgres`` can be started, stopped, killed
    (``kill9``) and frozen (``process.suspend()``) one by one.
    """

    def __init__(self, state_dir: Path | None = None, *, say: Callable[[str], None] = say_to_stderr) -> None:
        self.folder = state_folder(state_dir)
        self._state = self._read()
        self.kafka = Kafka(self.folder / "kafka", self._state["kafka"], self._save, say)
        self.postgres = Postgres(self.folder / "postgres", self._state["postgres"], self._save, say)

    def up(self) -> Addresses:
        """Start what does not run and wait until both answer. Safe when two processes do it at once."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._alone():
            self.postgres.start()
            self.kafka.start()
        return Addresses(self.kafka.bootstrap, self.postgres.url)

    def down(self, *, remove: bool = False) -> None:
        """Stop what this folder started, and nothing else; ``remove`` deletes its data too."""
        if not self.folder.exists():
            return
        with self._alone():
            self.kafka.stop()
            self.postgres.stop()
            if remove:
                self.postgres.remove()
        if remove:
            shutil.rmtree(self.folder)

    def addresses(self) -> Addresses | None:
        """The addresses, when both servers run."""
        return self.answering().both()

    def answering(self) -> Answering:
        """Each server by itself."""
        return Answering(
            None if self.kafka.process is None else self.kafka.bootstrap,
            None if self.postgres.process is None else self.postgres.url,
        )

    def status(self) -> dict[str, dict[str, Any]]:
        """Per server ``{"running", "pid", "address", "log"}``; address and log are ``None`` before the first start."""
        kafka, postgres = self.kafka.process, self.postgres.process
        made = "port" in self._state["postgres"]
        return {
            "kafka": {
                "running": kafka is not None,
                "pid": kafka.pid if kafka else None,
                "address": self.kafka.bootstrap if "port" in self._state["kafka"] else None,
                "log": str(self.kafka.log) if "port" in self._state["kafka"] else None,
            },
            "postgres": {
                "running": postgres is not None,
                "pid": postgres.pid if postgres else None,
                "address": self.postgres.url if made else None,
                "log": str(self.postgres.log) if made else None,
            },
        }

    def __enter__(self) -> Addresses:
        return self.up()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with locked(self.folder / "lock"):
            fresh = self._read()  # another process may have changed it since we read it
            for part in ("kafka", "postgres"):
                self._state[part].clear()
                self._state[part].update(fresh[part])
            yield

    def _read(self) -> dict[str, Any]:
        path = self.folder / "state.json"
        if not path.exists():
            return {"version": STATE_VERSION, "kafka": {}, "postgres": {}}
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise TurnledgerError(
                f"{path} is no state of a stack ({error}): delete the folder {self.folder} to begin anew"
            ) from None
        if not isinstance(state, dict) or state.get("version") != STATE_VERSION:
            raise TurnledgerError(
                f"{path} was written by another version of turnledger: stop that stack with it, or delete the folder {self.folder}"
            )
        return state

    def _save(self) -> None:
        # The state holds the password of the database.
        write_whole(self.folder / "state.json", json.dumps(self._state, indent=1) + "\n", mode=0o600)
