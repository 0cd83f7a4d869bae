"""docker-compose.yml and Dockerfile, held against the compose format and against our own command line: no engine runs them here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from turnledger.cli import build

ROOT = Path(__file__).parents[2]
TOP = {"name", "services", "volumes"}
SERVICE = {
    "build", "image", "command", "depends_on", "environment", "healthcheck", "ports", "restart", "shm_size", "stop_grace_period",
    "volumes",
}  # fmt: skip
HEALTHCHECK = {"test", "interval", "timeout", "retries", "start_period"}
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}
DURATION = re.compile(r"^(\d+(us|ms|s|m|h))+$")
OURS = ("migrate", "topics", "worker-1", "worker-2", "rollup")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return document


def test_only_keys_of_the_compose_format_are_used(compose: dict[str, Any]) -> None:
    assert {key for key in compose if not key.startswith("x-")} == TOP
    for name, service in compose["services"].items():
        assert set(service) <= SERVICE, name
        assert set(service.get("healthcheck", {})) <= HEALTHCHECK, name


def test_values_have_the_types_that_compose_wants(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert ("image" in service) or ("build" in service), name
        assert all(isinstance(value, str) for value in service.get("environment", {}).values()), name
        assert all(isinstance(part, str) for part in service.get("command", [])), name
        assert service.get("restart", "no") in ("no", "always", "on-failure", "unless-stopped"), name
        check = service.get("healthcheck", {})
        times = [check[key] for key in ("interval", "timeout", "start_period") if key in check]
        assert all(DURATION.match(time) for time in [*times, service.get("stop_grace_period", "1s")]), name
        if check:
            assert check["test"][0] in ("CMD", "CMD-SHELL"), name
            assert isinstance(check["retries"], int), name


def test_what_a_service_waits_for_exists_and_can_come_true(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        for other, wait in service.get("depends_on", {}).items():
            assert other in services, name
            assert wait["condition"] in CONDITIONS, name
            if wait["condition"] == "service_healthy":
                assert "healthcheck" in services[other], other
            if wait["condition"] == "service_completed_successfully":
                assert services[other]["restart"] == "no", other


def test_volumes_are_declared(compose: dict[str, Any]) -> None:
    used = {
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", [])
    }
    assert used == set(compose["volumes"])


def test_ports_are_published_on_loopback_alone(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


def test_the_broker_is_the_version_of_the_embedded_stack(compose: dict[str, Any]) -> None:
    pom = (ROOT / "services/turnledger/devstack/kafka.pom.xml").read_text()
    version = re.search(r"kafka_2\.13</artifactId>\s*<version>([^<]+)", pom)
    assert version is not None
    assert compose["services"]["kafka"]["image"] == f"apache/kafka:{version[1]}"


@pytest.mark.parametrize("service", OURS)
def test_our_services_run_commands_and_options_that_exist(compose: dict[str, Any], service: str) -> None:
    words = list(compose["services"][service]["command"])
    command: Any = typer.main.get_command(build())
    while hasattr(command, "commands"):
        word = words.pop(0)
        assert word in command.commands, f"{word} of {service}"
        command = command.commands[word]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


@pytest.mark.parametrize("service", OURS)
def test_our_services_find_the_others_by_their_names(compose: dict[str, Any], service: str) -> None:
    environment = compose["services"][service]["environment"]
    assert environment["TURNLEDGER_KAFKA_BOOTSTRAP"] == "kafka:9092"
    assert "@postgres:5432/" in environment["TURNLEDGER_DATABASE_URL"]
    assert "INSIDE://kafka:9092" in compose["services"]["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]


def test_the_dockerfile_copies_only_what_exists_and_the_ignore_file_lets_through() -> None:
    let_through = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    }
    copied = set()
    instructions = set()
    for line in (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines():
        if line and not line.startswith("#"):
            instruction, _, rest = line.partition(" ")
            instructions.add(instruction)
            if instruction == "COPY":
                copied |= set(shlex.split(rest)[:-1])
    assert instructions <= {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "ENTRYPOINT", "CMD"}
    assert copied == let_through
    assert all((ROOT / path).exists() for path in copied)
