"""The embedded stack for real: several side by side, data over restarts and kills, nothing stopped that it did not start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.stack.commands import run
from tests.stack.topics import Record, Topic, create_topic, produce
from turnledger.devstack import Addresses, Stack, current
from turnledger.devstack.process import Process

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state folder; what it started is stopped at the end."""
    folder = tmp_path_factory.mktemp("stack") / "state"
    yield folder
    Stack(folder).down(remove=True)


def remember(addresses: Addresses) -> Topic:
    """Write one row and one record."""
    with psycopg.connect(addresses.database_url) as link:
        link.execute("create table kept (word text)")
        link.execute("insert into kept values ('here')")
    topic = create_topic(addresses.kafka_bootstrap, 1)
    assert produce(topic, [Record(b"one", partition=0)]) == [(0, 0)]
    return topic


def recall(addresses: Addresses, topic: Topic, offset: int) -> None:
    """The row is there, and the topic goes on behind what it had."""
    with psycopg.connect(addresses.database_url) as link:
        assert link.execute("select word from kept").fetchall() == [("here",)]
    assert produce(topic, [Record(b"more", partition=0)]) == [(0, offset)]


def test_data_survive_a_restart_and_kill_9_of_both_servers(folder: Path) -> None:
    addresses = Stack(folder).up()
    topic = remember(addresses)

    Stack(folder).down()
    assert current(folder) is None
    assert Stack(folder).up() == addresses
    recall(addresses, topic, 1)

    stack = Stack(folder)
    stack.kafka.kill9()
    stack.postgres.kill9()
    assert current(folder) is None
    # By somebody who knows only the folder, as after a crash of the machine.
    assert Stack(folder).up() == addresses
    recall(addresses, topic, 2)


def test_a_stale_state_is_recognised_although_its_process_ids_live(folder: Path) -> None:
    """The ids of a killed stack belong to a stranger now: it counts as stopped, starts again, and the stranger is left alone."""
    addresses = Stack(folder).up()
    topic = remember(addresses)
    stack = Stack(folder)
    stack.kafka.kill9()
    stack.postgres.kill9()
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    state = json.loads((folder / "state.json").read_text())
    for part in ("kafka", "postgres"):
        state[part]["process"] = {"pid": stranger.pid, "started": "another life"}
    (folder / "state.json").write_text(json.dumps(state))
    lock = stack.postgres.data / "postmaster.pid"
    lines = lock.read_text().splitlines()
    lock.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")

    assert current(folder) is None
    assert Stack(folder).up() == addresses
    recall(addresses, topic, 1)
    Stack(folder).down()
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_two_stacks_stand_side_by_side_and_down_stops_only_its_own(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other") / "state"
    one, two = Stack(folder).up(), Stack(other).up()
    assert one.kafka_bootstrap != two.kafka_bootstrap
    assert one.database_url != two.database_url
    Stack(other).down(remove=True)
    assert not other.exists()
    assert current(folder) == one
    topic = remember(one)
    recall(one, topic, 1)


def test_two_processes_that_start_one_folder_at_once_get_one_stack(folder: Path) -> None:
    answers: list[Addresses] = []
    threads = [threading.Thread(target=lambda: answers.append(Stack(folder).up())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 2
    assert answers[0] == answers[1] == current(folder)


def test_the_commands_of_a_person(folder: Path) -> None:
    """up, status, env, down, in a shell of its own; the password stays with its owner; the database is not root's."""
    here = {"TURNLEDGER_STATE": str(folder), "TURNLEDGER_PROVIDER": "embedded"}
    assert run("dev", "status", environment=here).returncode == 1
    assert "turnledger dev up" in run("dev", "env", environment=here).stderr

    up = run("dev", "up", environment=here)
    assert up.returncode == 0, up.stderr
    assert "using the embedded Apache Kafka and Postgres" in up.stderr
    addresses = current(folder)
    assert addresses is not None
    assert up.stdout == f"broker    {addresses.kafka_bootstrap}\ndatabase  {addresses.database_url}\n"

    status = run("dev", "status", "--json", environment=here)
    assert status.returncode == 0
    servers = json.loads(status.stdout)["servers"]
    assert servers["kafka"]["running"] is servers["postgres"]["running"] is True

    env = run("dev", "env", environment=here).stdout
    shell = subprocess.run(
        ["sh", "-c", f'{env} echo "$TURNLEDGER_DATABASE_URL"'], capture_output=True, text=True, check=True
    )
    assert shell.stdout.strip() == addresses.database_url
    answer = run("dev", "psql", "-Atc", "select 41 + 1", environment=here)
    assert answer.stdout == "42\n", answer.stderr

    assert (folder / "state.json").stat().st_mode & 0o077 == 0
    if os.geteuid() == 0:
        assert Path(f"/proc/{servers['postgres']['pid']}").stat().st_uid != 0

    down = run("dev", "down", environment=here)
    assert down.returncode == 0
    assert "its data stay" in down.stderr
    assert Process.of(servers["kafka"]["pid"]) is None
    assert Process.of(servers["postgres"]["pid"]) is None
    assert run("dev", "down", "--remove", environment=here).returncode == 0
    assert not folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands the database to another user")
def test_folders_that_are_not_ours_keep_their_permissions(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    said: list[str] = []
    stack = Stack(closed / "state", say=said.append)
    with stack as addresses, psycopg.connect(addresses.database_url) as link:
        assert link.execute("select 1").fetchone() == (1,)
        outside = stack.postgres.data.parent
        assert closed not in outside.parents
        assert any(str(outside) in sentence for sentence in said)
    assert closed.stat().st_mode & 0o777 == 0o700
    stack.down(remove=True)
    assert not outside.exists()
