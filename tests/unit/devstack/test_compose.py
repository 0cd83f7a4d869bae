"""The stack of containers, over a stand-in for the `docker` command: no engine answers where this was written."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from turnledger.devstack import ComposeStack, current
from turnledger.errors import TurnledgerError


class Docker:
    """Remembers what it was asked."""

    def __init__(self, status: int = 0, out: str = "", err: str = "") -> None:
        self.calls: list[list[str]] = []
        self.environment: dict[str, str] = {}
        self.status, self.out, self.err = status, out, err

    def __call__(
        self, command: Sequence[str], environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        self.calls.append(list(command))
        self.environment = environment
        return subprocess.CompletedProcess(command, self.status, self.out, self.err)


def test_up_waits_for_the_two_servers_on_ports_of_this_folders_own(tmp_path: Path) -> None:
    docker = Docker()
    addresses = ComposeStack(tmp_path, run=docker).up()
    assert docker.calls[0][-5:] == ["up", "--detach", "--wait", "kafka", "postgres"]
    assert docker.calls[0][:3] == ["docker", "compose", "-f"]
    assert Path(docker.calls[0][3]).name == "docker-compose.yml"
    assert addresses.kafka_bootstrap == f"127.0.0.1:{docker.environment['TURNLEDGER_KAFKA_PORT']}"
    port = docker.environment["TURNLEDGER_POSTGRES_PORT"]
    assert addresses.database_url == f"postgresql://turnledger:turnledger@127.0.0.1:{port}/turnledger"


def test_the_ports_stay_over_a_restart(tmp_path: Path) -> None:
    first = ComposeStack(tmp_path, run=Docker()).up()
    assert ComposeStack(tmp_path, run=Docker()).up() == first


def test_two_folders_are_two_projects(tmp_path: Path) -> None:
    projects = set()
    for name in ("a", "b"):
        docker = Docker()
        ComposeStack(tmp_path / name, run=docker).up()
        projects.add(docker.calls[0][docker.calls[0].index("-p") + 1])
    assert len(projects) == 2


def test_down_keeps_the_data_and_remove_deletes_the_volumes(tmp_path: Path) -> None:
    docker = Docker()
    stack = ComposeStack(tmp_path, run=docker)
    stack.up()
    stack.down()
    assert docker.calls[-1][-1] == "stop"
    stack.down(remove=True)
    assert docker.calls[-1][-2:] == ["down", "--volumes"]
    assert current(tmp_path) is None


def test_it_runs_only_when_both_services_do(tmp_path: Path) -> None:
    stack = ComposeStack(tmp_path, run=Docker(out="kafka\n"))
    assert stack.addresses() is None
    up = stack.up()
    assert stack.addresses() is None
    assert ComposeStack(tmp_path, run=Docker(out="postgres\nkafka\n")).addresses() == up


def test_a_refusal_is_a_sentence_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(TurnledgerError) as raised:
        ComposeStack(tmp_path, run=Docker(1, err="no space left\non device")).up()
    assert "no space left on device" in str(raised.value)
    assert "TURNLEDGER_PROVIDER=embedded" in str(raised.value)
    assert json.loads((tmp_path / "compose.json").read_text())["ports"]
