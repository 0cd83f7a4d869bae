"""Owns the servers of a benchmark: in a folder of their own, gone when it ends, however it ends (``tests.stack.guard``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.stack import servers


@contextmanager
def stack() -> Iterator[servers.Servers]:
    """A broker and a database."""
    started = servers.embedded()
    try:
        yield started
    finally:
        started.close()


@contextmanager
def database() -> Iterator[str]:
    """The address of a database alone."""
    alone, close = servers.guarded()
    try:
        alone.folder.mkdir()
        alone.postgres.start()
        yield alone.postgres.url
    finally:
        close()
