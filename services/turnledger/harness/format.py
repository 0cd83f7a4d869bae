"""Owns what a reader of one harness's files says about itself: how its files are recognised, how they are read, what they can and cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from turnledger.harness.facts import Envelope, Notes
from turnledger.harness.sources import Container, Source

Read = Callable[[Source, Notes], Iterator[Envelope]]


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
    document: Read | None = None
    text: Read | None = None
    database: Read | None = None
    recognises: Callable[[Mapping[str, Any]], bool] = _never
    """Whether a record can only be a line of this harness."""
    is_document: Callable[[Any], bool] = _never
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
