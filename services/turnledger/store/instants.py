"""Loads `timestamptz` as the rest of the code has it: µs since 1970 UTC, an int. Python's datetime ends at the years 1 and 9999; a source's clock need not."""

from __future__ import annotations

from struct import Struct
from typing import Any

import psycopg
from psycopg.adapt import Buffer, Loader
from psycopg.pq import Format

POSTGRES_EPOCH = 946_684_800_000_000
"""2000-01-01 UTC in µs since 1970."""

_INT8 = Struct(">q")


class Microseconds(Loader):
    """``timestamptz`` in binary form to µs since 1970 UTC."""

    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        (value,) = _INT8.unpack(data)
        return int(value) + POSTGRES_EPOCH


def load_as_microseconds(connection: psycopg.Connection[Any]) -> None:
    """From now on cursors of ``connection`` opened with ``binary=True`` give instants as µs since 1970 UTC."""
    connection.adapters.register_loader("timestamptz", Microseconds)
