"""A broker of its own with a second listener that speaks TLS and wants certificates of its clients."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.stack.certificates import Authority
from tests.stack.servers import ROOT
from turnledger.devstack import Stack
from turnledger.devstack.files import free_port, write_whole
from turnledger.devstack.kafka import Kafka

HOST = "127.0.0.1"
LISTENER = """\
listener.name.secured.ssl.keystore.type=PEM
listener.name.secured.ssl.keystore.location={keystore}
listener.name.secured.ssl.truststore.type=PEM
listener.name.secured.ssl.truststore.location={truststore}
listener.name.secured.ssl.client.auth=required
"""


class SecuredKafka(Kafka):
    """``secured`` is the address of the listener with TLS; ``bootstrap`` stays the one in the clear."""

    authority: Authority

    @property
    def secured(self) -> str:
        return f"{HOST}:{self._state['secured_port']}"

    def _choose_ports(self) -> None:
        super()._choose_ports()
        self._state["secured_port"] = free_port()

    def _write_properties(self) -> Path:
        path = super()._write_properties()
        here = f"SECURED://{self.secured}"
        lines = path.read_text().splitlines()
        for at, line in enumerate(lines):
            name = line.partition("=")[0]
            if name in ("listeners", "advertised.listeners"):
                lines[at] = f"{line},{here}"
            elif name == "listener.security.protocol.map":
                lines[at] = f"{line},SECURED:SSL"
        stores = LISTENER.format(keystore=self.authority.issue(HOST).both, truststore=self.authority.ca)
        write_whole(path, "\n".join(lines) + "\n" + stores)
        return path


@contextmanager
def secured_broker() -> Iterator[SecuredKafka]:
    """It runs inside, with an authority of its own."""
    parent = Path(tempfile.mkdtemp(prefix="turnledger-tests-"))
    stack = Stack(parent / "state")
    stack.folder.mkdir()
    guard = subprocess.Popen(
        [sys.executable, "-m", "tests.stack.guard", str(parent)],
        stdin=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
    )
    kafka = SecuredKafka(stack.folder / "kafka", stack._state["kafka"], stack._save, lambda sentence: None)
    kafka.authority = Authority(parent)
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.stop()
        shutil.rmtree(parent)
        assert guard.stdin is not None
        guard.stdin.close()
        guard.wait(timeout=60)
