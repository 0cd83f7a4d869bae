"""Owns what one run of `import` keeps while it waits: in a temporary file, found again in its order or by session. Memory holds 16 bytes an event."""

from __future__ import annotations

import tempfile
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import orjson

from turnledger.errors import TurnledgerError
from turnledger.harness.facts import Envelope

SessionKey = tuple[str, str]
"""(tenant, session_id)."""
Place = tuple[str | None, str | None]
"""The same, where it may be unknown."""
BUFFER = 1024 * 1024


class Spilled:
    """Written first, then read any number of times. Nothing is left behind when it is closed, nor when its process is killed."""

    def __init__(self) -> None:
        with _disk():
            self._file = tempfile.TemporaryFile(buffering=BUFFER)  # noqa: SIM115 - closed by close()
        self._places: dict[SessionKey, array[int]] = defaultdict(lambda: array("q"))
        """Of each session's events by turns the number, from 1, and where it stands."""
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
        self.events += 1
        self._places[event.get("tenant", "default"), event["session_id"]].extend((self.events, self._end))
        self._end += len(record) + 1

    @property
    def sessions(self) -> list[SessionKey]:
        """All that have events."""
        return list(self._places)

    def of_session(self, key: SessionKey) -> Iterator[bytes]:
        """The records of one session, in the order in which they were added."""
        return (record for _, record in self.numbered(key))

    def numbered(self, key: SessionKey) -> Iterator[tuple[int, bytes]]:
        """The same with their numbers among all."""
        with _disk():
            self._file.flush()
        places = self._places[key]
        for at in range(0, len(places), 2):
            self._file.seek(places[at + 1])
            yield places[at], self._file.readline()[:-1]

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


class Parts:
    """Pieces of bytes under a name and a place, in a temporary file: what is put again under both replaces what was there."""

    def __init__(self) -> None:
        with _disk():
            self._file = tempfile.TemporaryFile(buffering=BUFFER)  # noqa: SIM115 - closed by close()
        self._places: dict[str, dict[Place, tuple[int, int]]] = defaultdict(dict)
        self._end = 0

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._file.close()

    def put(self, name: str, place: Place, piece: bytes) -> None:
        """Keep a piece; an empty one is none."""
        if not piece:
            self._places[name].pop(place, None)
            return
        with _disk():
            self._file.write(piece)
        self._places[name][place] = self._end, len(piece)
        self._end += len(piece)

    def of(self, name: str, order: Callable[[Place], Any]) -> Iterator[bytes]:
        """All pieces of a name, sorted by their places."""
        with _disk():
            self._file.flush()
        for place in sorted(self._places[name], key=order):
            at, size = self._places[name][place]
            self._file.seek(at)
            yield self._file.read(size)


@contextmanager
def _disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TurnledgerError(
            f"the events of this run do not fit into {tempfile.gettempdir()} ({error.strerror}): make room there, "
            "name another folder with TMPDIR, or import fewer files at once"
        ) from None
