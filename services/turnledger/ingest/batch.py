"""What was fetched: the records of one partition that came in one piece, and under which lease. Knows no Faust type."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Partition = tuple[str, int]
"""(topic, partition number)."""

_MILLISECONDS = struct.Struct(">q")


class Record(Protocol):
    """What the rest of the code reads of a Kafka record."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class Fetched:
    """Records of one partition in offset order, never empty."""

    partition: Partition
    lease: int
    """Number of the seek under which they were fetched. A lease belongs to one claim of one partition (design 3.1), so records
    that were on their way while a claim or a seek happened are told from those that came after it."""
    records: Sequence[Record]
    size: int
    """Bytes of keys and values."""
    done: Callable[[], None] | None = None
    """Called once when the records are committed, never when they are dropped, and let go of then: Faust's acknowledgement holds the
    message that holds this, and the collector of cycles is off (``ingest.interpreter``)."""

    @property
    def first(self) -> int:
        return self.records[0].offset

    @property
    def last(self) -> int:
        return self.records[-1].offset


def anchor_crc(record: Record) -> int:
    """CRC-32 of key, value and timestamp: tells an applied record from another one at the same offset (design 3.1).

    A missing key or value differs from an empty one.
    """
    crc = zlib.crc32(b"\x00" if record.key is None else b"\x01" + record.key)
    crc = zlib.crc32(b"\x00" if record.value is None else b"\x01" + record.value, crc)
    return zlib.crc32(_MILLISECONDS.pack(record.timestamp or 0), crc)
