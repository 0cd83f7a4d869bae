"""`turnledger worker --processes 2` against the real broker and database: shared partitions, kills, the end."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import psutil

from tests.integration.ingesting import (
    applied,
    environment,
    event,
    outcomes,
    rows,
    until_applied,
    until_projected,
)
from tests.stack.commands import Running, eventually, run
from tests.stack.topics import Record, Topic, produce

Start = Callable[..., Running]


def load(first: int, each: int) -> list[Record]:
    """So many events of each of 50 sessions, a turn every ten."""
    kinds = {0: "turn.started", 9: "turn.completed"}
    return [
        event(f"s{n}", seq, kinds.get(seq % 10, "note"), turn_id=f"t{seq // 10}")
        for seq in range(first, first + each)
        for n in range(50)
    ]


def ask(parent: Running, path: str) -> str:
    """What the parent's server answers; empty while it is not up."""
    found = re.search(r"health at (http://\S+)/healthz'", parent.output())
    if found is None:
        return ""
    try:
        with urllib.request.urlopen(found.group(1) + path, timeout=6) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as refused:
        return str(refused.read().decode())
    except OSError:
        return ""


def health(parent: Running) -> dict[str, Any]:
    return dict(json.loads(ask(parent, "/healthz") or "{}"))


def shares(parent: Running) -> list[int]:
    """How many partitions each process says that it applies, in the order of the processes."""
    told = health(parent).get("processes", {})
    return [len(told[number].get("partitions", {})) for number in sorted(told)]


def children(parent: Running) -> dict[int, psutil.Process]:
    """Number: process, of those that run."""
    found = {}
    for process in psutil.Process(parent.pid).children():
        try:
            number = re.search(r"--tether=(\d+):", " ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        if number is not None:
            found[int(number.group(1))] = process
    return found


def gone(processes: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


def test_two_processes_share_the_partitions_and_a_kill_of_one_loses_and_doubles_nothing(
    topic: Topic, database: str, start: Start
) -> None:
    settings = environment(topic, database) | {"TURNLEDGER_ROUND_EVENTS": "200"}
    parent = start("worker", "--processes", "2", environment=settings)
    eventually(lambda: shares(parent) == [2, 2], what="each process has two partitions")
    assert health(parent)["status"] == "green"
    produce(topic, load(0, 20))
    until_applied(database, topic, 1000, parent)
    page = ask(parent, "/metrics")
    counted = re.findall(r'turnledger_ingest_records_total\{.*process="(\d)".*\} (\d+)', page)
    assert {number for number, count in counted if int(count)} == {"1", "2"}
    assert sum(int(count) for _, count in counted) == 1000

    produce(topic, load(20, 40))
    eventually(lambda: applied(database, topic) > 1000, what="the second part has begun")
    os.kill(children(parent)[2].pid, signal.SIGKILL)
    eventually(
        lambda: any("process 2: " in reason for reason in health(parent).get("reasons", [])),
        what="health names the process that died",
    )
    produce(topic, load(60, 10))
    until_applied(database, topic, 3500, parent)
    eventually(lambda: shares(parent) == [2, 2], what="the process came back and has its share")
    eventually(lambda: health(parent)["status"] == "green", what="green again")
    assert "process 2: it was ended by SIGKILL; it is started again in 1 s" in parent.output()
    produce(topic, load(70, 10))
    until_applied(database, topic, 4000, parent)
    until_projected(database, topic)
    assert outcomes(database, topic) == {
        "records": 4000,
        "accepted": 4000,
        "duplicates": 0,
        "conflicts": 0,
        "dead": 0,
    }
    assert rows(
        database, "select count(*), count(distinct (stream_no, seq)), sum(seq) from ledger.events"
    ) == [(4000, 4000, 158_000)]
    assert rows(
        database, "select count(*), count(*) filter (where status = 'completed') from projection_a.turns"
    ) == [(400, 400)]
    assert run("rollup", "--once", environment=settings).returncode == 0
    verified = run("verify", environment=settings)
    assert verified.returncode == 0, verified.stdout

    running = list(children(parent).values())
    assert len(running) == 2
    assert parent.stop() == 0, parent.output()
    assert gone(running)
    assert "Traceback" not in parent.output()


def test_a_parent_that_is_killed_leaves_no_process_behind_and_flags_reach_the_next_ones(
    topic: Topic, database: str, start: Start
) -> None:
    settings = environment(topic, database)
    parent = start("worker", "--processes", "2", environment=settings)
    eventually(lambda: shares(parent) == [2, 2], what="each process has two partitions")
    produce(topic, load(0, 4))
    until_applied(database, topic, 200, parent)
    running = list(children(parent).values())
    assert len(running) == 2
    parent.kill9()
    eventually(lambda: gone(running), seconds=15, what="the processes ended with their parent")

    # Another group may have the partitions only because both processes were told to take them over.
    heirs = start(
        *("worker", "--processes", "2", "--group", f"{topic.group_id}-heirs", "--instance-id", "heir"),
        *("--take-over", "--accept-loss", "--resume-stopped"),
        environment=settings,
    )
    eventually(lambda: shares(heirs) == [2, 2], what="each heir has two partitions")
    produce(topic, load(4, 4))
    until_applied(database, topic, 400, heirs)
    owners = rows(
        database, "select distinct split_part(owner, '@', 1) from ledger.ingest_progress order by 1"
    )
    assert owners == [("heir-1",), ("heir-2",)]
    assert outcomes(database, topic)["accepted"] == 400

    # The younger of two members with one id ends with a sentence, and its parent with it.
    rivals = start(
        *("worker", "--processes", "2", "--group", f"{topic.group_id}-heirs", "--instance-id", "heir"),
        environment=settings,
    )
    assert rivals.wait(seconds=60) == 2
    assert "two workers cannot have one --instance-id" in rivals.output()
    assert heirs.stop() == 0, heirs.output()
