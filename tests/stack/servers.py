"""The broker and the database of one process of a test run, whoever provides them, with the same handles for fault tests."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from tests.stack.guard import MARK
from turnledger.devstack import Addresses, Choice, Stack
from turnledger.devstack.files import free_port
from turnledger.devstack.kafka import answers
from turnledger.devstack.process import wait_until
from turnledger.errors import TurnledgerError

ROOT = Path(__file__).parents[2]


class Server(Protocol):
    """One server. Every way back leads to the same address and the same data."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill9(self) -> None: ...
    def restart(self) -> None: ...


class Servers:
    """``addresses`` of both, and a handle on each. ``close`` ends what the run started."""

    def __init__(
        self, addresses: Addresses, kafka: Server, postgres: Server, close: Callable[[], None]
    ) -> None:
        self.addresses, self.kafka, self.postgres, self.close = addresses, kafka, postgres, close

    @property
    def kafka_bootstrap(self) -> str:
        return self.addresses.kafka_bootstrap

    @property
    def database_url(self) -> str:
        """The server's own database; tests take the fixture ``database``."""
        return self.addresses.database_url


def provide(choice: Choice) -> Servers:
    """Start (or find) the servers of this process of the run."""
    if choice.kind == "environment":
        assert choice.addresses is not None
        return Servers(choice.addresses, NotOurs("broker"), NotOurs("database"), lambda: None)
    return in_containers() if choice.kind == "containers" else embedded()


def embedded() -> Servers:
    """A stack in a temporary folder, deleted at the end, also when the run is killed."""
    stack, close = guarded()
    return Servers(stack.up(), stack.kafka, stack.postgres, close)


def guarded() -> tuple[Stack, Callable[[], None]]:
    """A stack that is not up yet, and what stops and deletes it; the guard does that where the run is killed."""
    parent = Path(tempfile.mkdtemp(prefix="turnledger-tests-"))
    parent.chmod(0o711)  # ours, and the database's user must pass through it
    stack = Stack(parent / "state")
    # When we are killed, nobody runs our `close`: the guard sees its standard input end and does it.
    guard = subprocess.Popen(
        [sys.executable, "-m", "tests.stack.guard", str(parent)],
        stdin=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
    )
    os.environ[MARK] = str(parent)

    def close() -> None:
        atexit.unregister(close)
        stack.down(remove=True)
        os.environ.pop(MARK, None)
        shutil.rmtree(parent)
        assert guard.stdin is not None
        guard.stdin.close()
        guard.wait(timeout=60)

    atexit.register(close)
    return stack, close


class NotOurs:
    """A server that the environment named: it is never stopped by us."""

    def __init__(self, what: str) -> None:
        self.what = what

    def _refuse(self) -> None:
        raise TurnledgerError(
            f"this test stops the {self.what}, and the {self.what} named in the environment is not ours to stop: "
            "unset TURNLEDGER_KAFKA_BOOTSTRAP and TURNLEDGER_DATABASE_URL"
        )

    start = stop = kill9 = restart = _refuse


class Contained:
    """A server in a container whose port on the host is fixed, so that it survives a restart."""

    def __init__(self, container: Any, ready: Callable[[], bool]) -> None:
        self.container, self.ready = container, ready

    def start(self) -> None:
        self.container.get_wrapped_container().start()
        if not wait_until(self.ready, seconds=90):
            raise TurnledgerError(f"the container {self.container.image} did not answer within 90 s")

    def stop(self) -> None:
        self.container.get_wrapped_container().stop(timeout=30)

    def kill9(self) -> None:
        self.container.get_wrapped_container().kill("SIGKILL")

    def restart(self) -> None:
        self.stop()
        self.start()


def in_containers() -> Servers:
    """Containers of both servers, by testcontainers."""
    import yaml
    from testcontainers.core.container import DockerContainer

    # The same images as everybody's compose file.
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    kafka_port, database_port = free_port(), free_port()
    kafka = DockerContainer(services["kafka"]["image"]).with_bind_ports(kafka_port, kafka_port)
    for name, value in {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENERS": f"PLAINTEXT://:{kafka_port},CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{kafka_port}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
        "KAFKA_MESSAGE_MAX_BYTES": str(8 * 1024 * 1024),
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "KAFKA_GROUP_MIN_SESSION_TIMEOUT_MS": "1000",
        "KAFKA_BROKER_SESSION_TIMEOUT_MS": "3000",
        "KAFKA_BROKER_HEARTBEAT_INTERVAL_MS": "500",
    }.items():
        kafka.with_env(name, value)
    postgres = DockerContainer(services["postgres"]["image"]).with_bind_ports(5432, database_port)
    for name, value in {"USER": "turnledger", "PASSWORD": "turnledger", "DB": "turnledger"}.items():
        postgres.with_env(f"POSTGRES_{name}", value)
    url = f"postgresql://turnledger:turnledger@127.0.0.1:{database_port}/turnledger"

    def close() -> None:
        kafka.stop()
        postgres.stop()

    atexit.register(close)
    kafka.start()
    postgres.start()
    servers = (
        Contained(kafka, lambda: answers(kafka_port)),
        Contained(postgres, lambda: database_answers(url)),
    )
    for server in servers:
        if not wait_until(server.ready, seconds=90):
            raise TurnledgerError(f"the container {server.container.image} did not answer within 90 s")
    return Servers(Addresses(f"127.0.0.1:{kafka_port}", url), *servers, close)


def database_answers(url: str) -> bool:
    """Whether the database takes a connection."""
    import psycopg

    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def environment_without_addresses() -> dict[str, str]:
    """Our environment less every setting of turnledger: a command of a test gets its own."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TURNLEDGER_")}
