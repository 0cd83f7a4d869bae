"""Owns the events of one run of `import` while they wait: in a temporary file, found again in their order or by session. Memory holds 8 bytes an event."""

from __future__ import annotations

import tempfile
from array import array
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import orjson

from turnledger.errors import TurnledgerError
from turnledger.harness.facts import Envelope

SessionKey = tuple[str, str]
"""(tenant, session_id)."""
BUFFER = 1024 * 1024


class Spilled:
    """Written first, then read any number of times. Nothing is left behind when it is closed, nor when its process is killed."""

    def __init__(self) -> None:
        with _disk():
            self._file = tempfile.TemporaryFile(buffering=BUFFER)  # noqa: SIM115 - closed by close()
        self._places: dict[SessionKey, array[int]] = defaultdict(lambda: array("q"))
        self._end = 0
        self.events = 0

    def __enter__(self) -> Spilled:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._file.close()

    def add(self, event: Envelope) -> None:
        """Keep one event."""
        record = orjson.dumps(event)
        with _disk():
            self._file.write(record + b"\n")
        self._places[event.get("tenant", "default"), event["session_id"]].append(self._end)
        self._end += len(record) + 1
        self.events += 1

    @property
    def sessions(self) -> list[SessionKey]:
        """All that have events."""
        return list(self._places)

    def of_session(self, key: SessionKey) -> Iterator[bytes]:
        """The records of one session, in the order in which they were added."""
        with _disk():
            self._file.flush()
        for place in self._places[key]:
            self._file.seek(place)
            yield self._file.readline()[:-1]

    def all(self) -> Iterator[bytes]:
        """All records, in that order."""
        with _disk():
            self._file.flush()
        place = 0
        while place < self._end:
            self._file.seek(place)
            record = self._file.readline()
            place += len(record)
            yield record[:-1]


@contextmanager
def _disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TurnledgerError(
            f"the events of this run do not fit into {tempfile.gettempdir()} ({error.strerror}): make room there, "
            "name another folder with TMPDIR, or import fewer files at once"
        ) from None
