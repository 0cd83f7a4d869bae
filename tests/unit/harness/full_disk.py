"""A publisher whose disk is really full: `python -m tests.unit.harness.full_disk FOLDER drop|raise [limit]`, which prints one JSON object.

The disk is a file system of 16 MB at FOLDER/disk in a mount namespace of its own (``command`` says how), so that nothing is left of it; where nobody
may mount, `limit` bounds the files of this process instead. The sink is away until the disk is full, and stays beside it.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turnledger.harness import Ledger, SpoolFull

DISK = 16 * 1024 * 1024
LIMIT = 6 * 1024 * 1024
PAD = "p" * 12000


def command(folder: Path, policy: str) -> list[str]:
    """How to run this where a small disk can be mounted, by root or in a user namespace; else with a limit of the process."""
    me = [sys.executable, "-m", "tests.unit.harness.full_disk", str(folder), policy]
    for namespace in (["unshare", "-m"], ["unshare", "-Urm"]):
        if shutil.which("unshare") is None:
            break
        (folder / "disk").mkdir(exist_ok=True)
        mount = [*namespace, "mount", "-t", "tmpfs", "none", str(folder / "disk")]
        if subprocess.run(mount, capture_output=True, check=False).returncode == 0:
            return [*namespace, *me]
    return [*me, "limit"]


def small_disk(disk: Path, limited: bool) -> tuple[Callable[[], None], Callable[[], None]]:
    """Make it; (what somebody else does to fill the rest of it, what gives room again)."""
    disk.mkdir(exist_ok=True)
    if limited:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))
        return (lambda: None), (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard)))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(disk)], check=True)

    def fill() -> None:
        with (disk / "of somebody else").open("wb", buffering=0) as file:
            for size in (65536, 4096):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue

    return fill, lambda: None


def main(folder: Path, policy: Any, limited: bool) -> dict[str, Any]:
    disk, sink = folder / "disk", folder / "sink" / "events"
    fill, room = small_disk(disk, limited)
    spool = disk / "spool"
    told: dict[str, Any] = {"disk": "limit" if limited else "mounted", "error": None}
    ledger = Ledger(session_id="s", sink=f"file:{sink}", spool=spool, on_full=policy)
    emitted = 0
    try:
        while ledger.dropped < 50:
            emitted += ledger.emit("x.y", {"n": emitted, "pad": PAD}) >= 0
    except SpoolFull as error:
        told["error"] = str(error)
    told["dropped"] = ledger.dropped
    ledger.close(seconds=0)
    fill()
    told["emitted"] = emitted
    # Another life on the full disk, which cannot be emptied but by sending.
    ledger = Ledger(session_id="s", sink=f"file:{sink}", spool=spool, on_full=policy)
    room()
    sink.parent.mkdir()
    ledger.flush(seconds=60)
    told["after"] = ledger.emit("x.y", {"n": "after"})
    ledger.close(seconds=30)
    told["events"] = [
        (e["seq"], e["payload"].get("n"), e["payload"].get("from_seq"), e["payload"].get("to_seq"))
        for e in map(json.loads, sink.read_text().splitlines())
    ]
    return told


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:] == ["limit"])))
