"""One Apache Kafka node in KRaft mode: broker and controller in one process, loopback only."""

from __future__ import annotations

import base64
import socket
import struct
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnledger.devstack.files import keep_or_change, port_taken, tail, write_whole
from turnledger.devstack.java import Say, java, kafka_jars
from turnledger.devstack.process import Process, wait_until, working_in
from turnledger.errors import TurnledgerError

if TYPE_CHECKING:
    from collections.abc import MutableMapping

START_SECONDS = 180
"""Ready after 3–4 s on two idle cores; 40 s were seen where eight test runs shared them."""
HEAP = "-Xmx512m"
LARGEST_RECORD = 8 * 1024 * 1024
"""Above the ledger's own limit of 1 MiB, so that an oversized record reaches the worker and is counted there (contract 15)."""

# A killed broker may register again only when its session has run out: 9 s by default, which every fault test would wait for.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={logs}
auto.create.topics.enable=false
num.partitions=4
message.max.bytes={largest}
replica.fetch.max.bytes={largest}
log.retention.ms=-1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
"""


class Kafka:
    """The broker of one stack. ``state`` is its part of the stack's state; ``save`` writes the state down."""

    def __init__(
        self, folder: Path, state: MutableMapping[str, Any], save: Callable[[], None], say: Say
    ) -> None:
        self.folder, self._state, self._save, self._say = folder, state, save, say

    @property
    def process(self) -> Process | None:
        """The process that we started and that still runs."""
        process = Process.from_json(self._state.get("process"))
        return process if process is not None and process.alive() else None

    @property
    def bootstrap(self) -> str:
        """``host:port`` of the broker; the same over restarts while its port is free."""
        return f"127.0.0.1:{self._state['port']}"

    @property
    def log(self) -> Path:
        """What the broker said."""
        return self.folder / "server.log"

    def start(self) -> None:
        """Start it and wait until it answers. Nothing happens when it runs."""
        if self.process is not None:
            self._wait_ready(self.process)
            return
        java_path, jars = java(self._say), kafka_jars(self._say)
        self.folder.mkdir(parents=True, exist_ok=True)
        for orphan in working_in(self.folder):  # we were killed between its start and our note of it
            orphan.stop()
        for _ in range(3):
            self._choose_ports()
            properties = self._write_properties()
            classpath = f"{jars}/*"
            self._format(java_path, classpath, properties)
            process = self._launch(java_path, classpath, properties)
            if self._wait_ready(process):
                return
            if not (port_taken(self._state["port"]) or port_taken(self._state["controller_port"])):
                break
            # Another process took a port between our look and the broker's bind: again, on others.
        raise TurnledgerError(f"Apache Kafka ended while starting: {tail(self.log)}. Its log: {self.log}")

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after 30 s."""
        if (process := self.process) is not None:
            process.stop()
        self._forget()

    def kill9(self) -> None:
        """SIGKILL. :meth:`start` brings it back on the same port with its data."""
        if (process := self.process) is not None:
            process.kill9()
        self._forget()

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def _forget(self) -> None:
        self._state["process"] = None
        self._save()

    def _choose_ports(self) -> None:
        for name in ("port", "controller_port"):
            self._state[name] = keep_or_change(self._state.get(name), "the broker", self._say)

    def _write_properties(self) -> Path:
        path = self.folder / "server.properties"
        ports = {name: self._state[name] for name in ("port", "controller_port")}
        write_whole(path, PROPERTIES.format(logs=self.folder / "logs", largest=LARGEST_RECORD, **ports))
        return path

    def _format(self, java_path: str, classpath: str, properties: Path) -> None:
        if (self.folder / "logs" / "meta.properties").exists():
            return
        cluster = self._state.setdefault(
            "cluster_id", base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        )
        if cluster.startswith("-"):  # the tool would read it as an option
            cluster = self._state["cluster_id"] = "A" + cluster[1:]
        self._save()
        command = [java_path, "-Xmx256m", "-cp", classpath, "kafka.tools.StorageTool", "format"]
        command += ["-t", cluster, "-c", str(properties), "--ignore-formatted"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = " | ".join((done.stdout + done.stderr).split("\n")[-5:])
            raise TurnledgerError(f"Apache Kafka could not format {self.folder / 'logs'}: {said}")

    def _launch(self, java_path: str, classpath: str, properties: Path) -> Process:
        command = [java_path, HEAP, "-Dorg.apache.logging.log4j.level=WARN", "-cp", classpath]
        command += ["kafka.Kafka", str(properties)]
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C at our terminal is not for the broker
            )
        process = Process.of(child.pid)
        if process is None:
            raise TurnledgerError(f"Apache Kafka ended at once: {tail(self.log)}. Its log: {self.log}")
        child.returncode = 0  # `Process` reaps it; a Popen that is collected would warn
        self._state["process"] = process.to_json()
        self._save()
        return process

    def _wait_ready(self, process: Process) -> bool:
        """Whether the broker answers; ``False`` when it ended first."""
        if not wait_until(lambda: not process.alive() or answers(self._state["port"]), seconds=START_SECONDS):
            raise TurnledgerError(
                f"Apache Kafka did not answer on {self.bootstrap} within {START_SECONDS} s: {tail(self.log)}. Its log: {self.log}"
            )
        return process.alive()


def answers(port: int) -> bool:
    """Whether a broker on the loopback ``port`` lists at least one live broker: a Metadata request, version 7, spoken by hand.

    A client library would need an event loop, and callers may already run in one.
    """
    header = struct.pack(">hhih", 3, 7, 1, -1)
    body = struct.pack(">i?", 0, False)
    request = header + body
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as link:
            link.sendall(struct.pack(">i", len(request)) + request)
            size = struct.unpack(">i", _read(link, 4))[0]
            answer = _read(link, size)
    except OSError:
        return False
    _correlation, _throttle, brokers = struct.unpack(">iii", answer[:12])
    return bool(brokers > 0)


def _read(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise ConnectionError(f"the broker closed the link after {len(data)} of {size} bytes")
        data += part
    return data
