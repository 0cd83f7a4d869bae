"""Publishers that are killed: `python -m tests.unit.harness.killed FOLDER FIRST COUNT` forks two processes, one after the other, for each seed.

Each kills itself with SIGKILL at a point that its seed decides; the second continues the spool of the first. A seed has a folder ``FOLDER/seed`` with
the spool, the file of the sink, and ``returned``: a line ``epoch seq n`` for each ``emit`` that returned, written before the next is called.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turnledger.harness import Ledger
from turnledger.harness import outlets as outlets_module
from turnledger.harness import spool as spool_module

EVENTS = 120
LATER = ("statement", "half a line", "written", "synced", "numbered")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(kind: str, count: int) -> Callable[[], None]:
    """Die at the ``count``-th time that something of this kind is about to happen. Returns what to call when an event has its number."""
    left = [count]

    def step() -> bool:
        left[0] -= 1
        return left[0] == 0

    if kind == "statement":
        connect = sqlite3.connect

        def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            db: sqlite3.Connection = connect(*args, **kwargs)
            db.set_trace_callback(lambda statement: die() if step() else None)
            return db

        spool_module.sqlite3 = Proxy(sqlite3, connect=traced)  # type: ignore[assignment]
    if kind in ("half a line", "written", "synced"):

        def write(file: int, data: Any) -> int:
            if kind == "half a line" and step():
                os.write(file, data[: random.Random(count).randrange(len(data))])
                die()
            return os.write(file, data)

        def fsync(file: int) -> None:
            if kind == "written" and step():
                die()
            os.fsync(file)
            if kind == "synced" and step():
                die()

        outlets_module.os = Proxy(os, write=write, fsync=fsync)  # type: ignore[assignment]
    return lambda: die() if kind == "numbered" and step() else None


class Proxy:
    """A module with some of its functions replaced, for one importer of it."""

    def __init__(self, module: Any, **replaced: Any) -> None:
        self._module = module
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def publish(folder: Path, seed: int, life: int) -> None:
    chosen = random.Random(seed * 10 + life)
    kind = LATER[(seed + life) % len(LATER)]
    most = {"statement": EVENTS, "numbered": EVENTS}.get(kind, 4)
    numbered = arm(kind, chosen.randint(1, most))
    returned = os.open(folder / "returned", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    ledger = Ledger(session_id="s", sink=f"file:{folder / 'events'}", spool=folder / "spool")
    record = ledger._spooled._numbering.record  # type: ignore[union-attr]

    def with_a_number(*args: Any) -> bytes:
        numbered()
        return record(*args)

    ledger._spooled._numbering.record = with_a_number  # type: ignore[union-attr, method-assign]
    for n in range(EVENTS):
        what = f"{life}.{n}"
        seq = ledger.emit("message.recorded", {"role": "user", "text": what})
        os.write(returned, f"{ledger.epoch} {seq} {what}\n".encode())
        if n % 30 == 29:
            ledger.flush()
    ledger.close()


def main(folder: Path, first: int, count: int) -> None:
    for seed in range(first, first + count):
        mine = folder / str(seed)
        mine.mkdir()
        for life in (0, 1):
            child = os.fork()
            if child == 0:
                try:
                    publish(mine, seed, life)
                finally:
                    os._exit(7)
            _, status = os.waitpid(child, 0)
            print(
                seed,
                life,
                "killed" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}",
                flush=True,
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
