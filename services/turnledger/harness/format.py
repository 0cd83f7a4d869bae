"""Owns what a reader of one harness's files says about itself: how its files are recognised, how they are read, what they can and cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from turnledger.harness.documents import Document
from turnledger.harness.facts import Envelope, Notes
from turnledger.harness.reading import Record
from turnledger.harness.sources import Container, Source

Read = Callable[[Source, Notes], Iterator[Envelope]]
Records = Callable[[tuple[bytes, ...]], Iterator[Record]]
"""The records that are told, each time anew, or only those of lines that hold one of some words."""


class Anew(Exception):
    """What came means that what was told before is told otherwise: the file has to be read from its beginning."""


class Telling(Protocol):
    """One file of lines being told while it grows: what its lines so far have said. It holds no line itself."""

    def more(self, records: Records) -> Iterator[Envelope]:
        """The events of the records behind those told so far; of the first ones, with the first call.

        Together they are what a reader of the whole tells, or :class:`Anew` is raised before any of them, or a later record only makes an earlier one say more:
        then a reader of the whole tells that as well.
        """


def _never(_: Any) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One harness. A reader is pure: the bytes of one file in, its events out, nothing looked up and nothing kept."""

    name: str
    """What ``--harness`` calls it, and the producer of its events."""
    title: str
    files: str
    """Where the harness writes them."""
    versions: str
    """Of the harness, and whether seen in real files or only described."""
    usage: str
    """``exact``, ``lower bound``, ``estimated`` or ``none``, and when."""
    cost: str
    latency: str
    tools: str
    turns: str
    cannot: str
    """What the format does not hold, whatever a reader does."""
    lines: Read | None = None
    follow: Callable[[Source, Notes], Telling] | None = None
    """How its lines are told while they come, where reading all of them each time would be too much."""
    document: Read | None = None
    text: Read | None = None
    database: Read | None = None
    recognises: Callable[[Mapping[str, Any]], bool] = _never
    """Whether a record can only be a line of this harness."""
    is_document: Callable[[Document], bool] = _never
    is_text: Callable[[str], bool] = _never
    is_database: Callable[[Mapping[str, tuple[str, ...]]], bool] = _never
    hints: tuple[tuple[bytes, ...], ...] = ()
    """Words that stand together at the head of a document of this harness: whose a broken one is."""

    def reader(self, container: Container) -> Read | None:
        """How files of this kind are read."""
        readers: dict[Container, Read | None] = {
            "lines": self.lines,
            "document": self.document,
            "text": self.text,
            "database": self.database,
        }
        return readers[container]
