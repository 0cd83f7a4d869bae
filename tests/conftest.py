"""Fixtures of every suite: a stack for each process of the run, a database, a topic and commands for each test (tests/README.md)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.stack import databases, prometheus, servers, topics
from tests.stack.commands import Running
from turnledger.devstack import choose

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of the brokers that tests start: they live too short for the second compiler to pay (a start takes 4.8 s of CPU instead of 8.6)."""
PROCESSES = 2
"""Of a run over folders: they keep two cores busy. Each has a broker and a database of its own, together about 0.7 GB."""


def pytest_configure() -> None:
    """Property tests say nothing about time, on a machine of any speed, and have an end; a test's own settings stand above it. Brokers start lightly."""
    settings.register_profile(
        "turnledger", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("turnledger")
    os.environ.setdefault("JAVA_TOOL_OPTIONS", JAVA_OPTIONS)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Folders are shared out by their files. Where a file or a test is named, or what it prints is wanted, all runs here."""
    named = any(Path(one.split("::")[0]).suffix for one in config.option.file_or_dir)
    return 0 if named or config.option.capture == "no" else PROCESSES


def pytest_report_header() -> list[str]:
    """Say which broker, database and Prometheus server the run uses."""
    return [f"stack: {choose()}", f"prometheus: {prometheus.where()}"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the stack, so that `-m "not stack"` leaves it out."""
    for item in items:
        if "stack" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.stack)


@pytest.fixture(scope="session")
def stack() -> Iterator[servers.Servers]:
    """The broker and the database of this process of the run: ``addresses``, and ``kafka`` / ``postgres`` to stop, kill and start them.

    A test that stops one starts it again before it ends.
    """
    running = servers.provide(choose())
    yield running
    running.close()


@pytest.fixture(scope="session")
def database_template(stack: servers.Servers) -> Iterator[str]:
    """The name of a database with all migrations applied."""
    name = databases.migrated_template(stack.database_url)
    yield name
    databases.drop(stack.database_url, databases.named(stack.database_url, name))


@pytest.fixture
def database(stack: servers.Servers, database_template: str) -> Iterator[str]:
    """The URL of a fresh, migrated database of this test's own."""
    url = databases.create(stack.database_url, template=database_template)
    yield url
    databases.drop(stack.database_url, url)


@pytest.fixture
def empty_database(stack: servers.Servers) -> Iterator[str]:
    """The URL of a fresh database without a single table of ours."""
    url = databases.create(stack.database_url)
    yield url
    databases.drop(stack.database_url, url)


@pytest.fixture
def topic(stack: servers.Servers, request: pytest.FixtureRequest) -> topics.Topic:
    """A fresh topic and a consumer group of its own; ``@pytest.mark.partitions(n)`` says how many partitions."""
    mark = request.node.get_closest_marker("partitions")
    return topics.create_topic(stack.kafka_bootstrap, mark.args[0] if mark else 4)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """``start("worker", …, environment={…}) -> Running``: a command in the background. What still runs at the end is killed."""
    started: list[Running] = []

    def start_one(*arguments: str, environment: dict[str, str]) -> Running:
        log = tmp_path / f"{len(started)}-{arguments[0]}.log"
        started.append(Running(arguments, environment, log))
        return started[-1]

    yield start_one
    for running in started:
        if running.running():
            running.kill9()
