"""`turnledger ship` as it runs on a VM: fourteen harnesses write while it is killed with -9, through a real broker into a real database."""

from __future__ import annotations

import hashlib
import json
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.fixtures.harness import goldens
from tests.fixtures.harness.consumed import consumed
from tests.fixtures.harness.shipping import fold, imported
from tests.integration.ingesting import environment, outcomes, rows, until_applied, until_projected
from tests.property.test_harness_copies import GROWING, of_lines, of_rows, size
from tests.stack.commands import Running, eventually, run
from tests.stack.servers import Servers
from tests.stack.topics import Record, Topic, produce
from turnledger.harness.publishing import record_key
from turnledger.ship import state
from turnledger.ship.state import State, StateHeld

FILES = (
    "claude_code/conversation.jsonl", "codex/rollout.jsonl", "gemini_cli/journal.jsonl", "qwen_code/chat.jsonl", "opencode/database.sql",
    "copilot_cli/events.jsonl", "openhands/conv-4/events.jsonl", "swe_agent/run.traj", "pi/session.jsonl", "cline/1772000000000/ui_messages.json",
    "aider/history.md", "deepseek_harness/session.v3.jsonl", "sidecar/run-17.jsonl", "capsem/vm-7/session.sql",
)  # fmt: skip
"""One of each harness."""
SEED = 20_261_130


def path_of(root: Path, name: str) -> Path:
    """Where a harness would write it."""
    path = root / name
    path = path.with_suffix(".db") if name.endswith(".sql") else path
    path = path.with_name(".aider.chat.history.md") if path.name == "history.md" else path
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def writing(root: Path, name: str, dice: random.Random) -> Iterator[None]:
    """One harness at work: a step at a time."""
    path, (piece, least), content = path_of(root, name), GROWING[name], goldens.content(name)
    if piece is of_lines:
        at = 0
        while at < len(content):
            more = dice.randrange(1, len(content) // 2)
            with path.open("ab") as file:
                file.write(content[at : at + more])
            at += more
            yield
    elif piece is of_rows:
        script = (goldens.FOLDER / name).read_text().splitlines()
        with sqlite3.connect(path, isolation_level=None) as writer:
            writer.execute("PRAGMA journal_mode = WAL")
            writer.executescript("\n".join(line for line in script if line.startswith("CREATE")))
            for line in script:
                if line.startswith("INSERT"):
                    writer.execute(line)
                    yield
        writer.close()
    else:
        for end in range(least, size(name, piece)):
            path.write_bytes(piece(name, 0, end))
            yield
        path.write_bytes(content)
        yield


@pytest.mark.timeout(200, func_only=True)
def test_what_fourteen_harnesses_write_is_in_the_ledger_once_whatever_is_killed(
    stack: Servers, topic: Topic, database: str, start: Callable[..., Running], tmp_path: Path
) -> None:
    settings = environment(topic, database) | {"TURNLEDGER_SHIP_SETTLE_SECONDS": "4"}
    root, home, dice = tmp_path / "home", tmp_path / "state", random.Random(SEED)
    root.mkdir()
    arguments = ("ship", str(root), "--state", str(home), "--health-port", "0")

    def standing() -> dict[str, Any]:
        address = state.look(home).address
        try:
            with urlopen(f"{address}/status", timeout=10) as answer:
                return dict(json.load(answer))
        except OSError:
            return {}

    worker = start("worker", environment=settings)
    ship = start(*arguments, environment=settings)
    at_work = [writing(root, name, dice) for name in FILES]
    steps = 0
    while at_work:
        harness = dice.choice(at_work)
        if next(harness, True) is True:
            at_work.remove(harness)
        steps += 1
        time.sleep(0.02)
        if steps in (30, 70):
            ship.kill9()
            ship = start(*arguments, environment=settings)
    eventually(lambda: "follows" in ship.output(), seconds=30, what="ship is up")
    with pytest.raises(StateHeld, match=f"process {ship.pid} ships with the state folder"):
        State(home)

    eventually(
        lambda: standing().get("files", {}).get("told") == len(FILES), seconds=60, what="everything told"
    )
    stands = standing()
    assert (stands["running"], stands["reasons"], stands["lag"]["bytes"]) == (True, [], 0)
    assert ship.stop() == 0
    assert "Traceback" not in ship.output()
    assert state.look(home).pid is None

    told = [record for name in FILES for record in imported(path_of(root, name))]
    dry, found = fold(told), consumed(topic)
    assert {record.value for record in found} == set(told)
    assert fold(record.value for record in found)["digest"] == dry["digest"]

    # What `import` sends of the same files, as test_import.py shows, once more.
    produce(topic, [Record(row, key=record_key(row)) for row in told])
    until_applied(database, topic, len(found) + len(told), worker)
    until_projected(database, topic)
    counted = outcomes(database, topic)
    assert (counted["accepted"], counted["conflicts"], counted["dead"]) == (len(set(told)), 0, 0)
    stored = rows(
        database,
        "select s.session_id, t.turn_key, r.digest, r.record from projection_a.turn_records r "
        "join projection_a.turns t using (session_no, turn_no) join ledger.sessions s using (session_no)",
    )
    wanted = {(turn["session_id"], turn["turn_key"]): turn["digest"] for turn in dry["turns"]}
    assert {(row[0], row[1]): row[2] for row in stored} == wanted
    assert all(hashlib.sha256(row[3]).hexdigest() == row[2] for row in stored)
    assert run("rollup", "--once", environment=settings).returncode == 0
    verified = run("verify", environment=settings)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert worker.stop() == 0
