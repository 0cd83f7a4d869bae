"""What ties a worker process to the parent that started it: one socket. It reports the health port up, and its end means that the parent is gone.

A parent that is killed with -9 can tell nobody; the system closes its side. That works wherever there are sockets, and also when the
parent died before this process had begun to look.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time

from turnledger.errors import TurnledgerError

GONE_SECONDS = 28.0
"""How long this process may take to end once its parent is gone. Its own end is bounded already (`worker.END_SECONDS`); this is for one that hangs."""


class Tether:
    """The child's side. ``number`` is which of the processes it is, from 1 on."""

    def __init__(self, number: int, descriptor: int) -> None:
        self.number = number
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)

    @classmethod
    def parse(cls, given: str) -> Tether:
        """From ``number:descriptor``, as :func:`spelled` writes it."""
        try:
            number, descriptor = given.split(":")
            return cls(int(number), int(descriptor))
        except (ValueError, OSError):
            raise TurnledgerError(
                f"--tether {given} is not the tether of a running parent: that option is for the processes that "
                "`turnledger worker --processes` starts by itself, leave it away."
            ) from None

    def hold(self) -> None:
        """From now on this process ends, as on SIGTERM, when its parent is gone."""
        threading.Thread(target=self._watch, name="tether", daemon=True).start()

    def report(self, port: int) -> None:
        """Tell the parent where /healthz and /metrics are. A parent that is gone is :meth:`hold`'s to notice."""
        with contextlib.suppress(OSError):
            self._socket.sendall(b"%d\n" % port)

    def _watch(self) -> None:
        with contextlib.suppress(OSError):
            while self._socket.recv(64):
                pass
        with contextlib.suppress(OSError):
            # Whoever read our log may be gone too.
            print(
                f"turnledger: the parent of process {self.number} is gone; it ends",
                file=sys.stderr,
                flush=True,
            )
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GONE_SECONDS)
        os._exit(1)


def spelled(number: int, descriptor: int) -> str:
    """The value of ``--tether``."""
    return f"{number}:{descriptor}"
