"""Owns which numbers of one stream have been seen (design 3.2): a greatest number, and bits only where some below it are missing.

A number that continues the stream costs one comparison, also behind a hole that never fills. Pure: the store loads and saves it, a chunk a row.
"""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from collections.abc import Iterator, Mapping
from struct import Struct

CHUNK = 8192
"""Numbers a chunk: 1 KiB of bits, one narrow row. A multirange with 10,000 holes took 48 ms a write, a chunk 0.45 ms at any size."""

_BYTES = CHUNK // 8
_FULL = (1 << CHUNK) - 1
_COUNT = Struct(">q")
_LARGE = 1 << 62
_RUN = re.compile("1+")


class StreamSeen:
    """The set of numbers seen of one stream: all from 0 to ``hi`` but those that a chunk says are missing.

    ``dirty`` and ``gone`` are the chunk numbers that the store must write (``chunk_bytes``) or delete; ``saved`` empties both.
    """

    __slots__ = ("_bits", "_blank", "_next", "dirty", "gone", "missing")

    def __init__(self, hi: int = -1, chunks: Mapping[int, bytes] | None = None) -> None:
        """As it was saved: ``hi`` is −1 when nothing was seen; chunk ``c`` in the form of ``chunk_bytes``."""
        self._next = hi + 1
        self._bits: dict[int, int] = {}
        self._blank: list[tuple[int, int]] = []
        self.missing = 0
        """How many numbers below ``hi`` are missing."""
        self.dirty: set[int] = set()
        self.gone: set[int] = set()
        for chunk, data in (chunks or {}).items():
            if len(data) == _COUNT.size:
                insort(self._blank, (chunk, _COUNT.unpack(data)[0]))
                self.missing += _COUNT.unpack(data)[0] * CHUNK
            else:
                bits = int.from_bytes(data, "little")
                self._bits[chunk] = bits
                self.missing += bits.bit_count()

    @property
    def hi(self) -> int:
        """The greatest number seen, −1 when none was."""
        return self._next - 1

    @property
    def low(self) -> int:
        """The least number not seen: all below it are."""
        if not self.missing:
            return self._next
        first = min(self._bits, default=None)
        if self._blank and (first is None or self._blank[0][0] < first):
            return self._blank[0][0] * CHUNK
        assert first is not None
        bits = self._bits[first]
        return first * CHUNK + (bits & -bits).bit_length() - 1

    def add(self, seq: int) -> bool:
        """Count a number as seen; False when it was before. One comparison where it continues the stream."""
        following = self._next
        if seq == following:
            self._next = seq + 1
            return True
        if seq > following:
            self._skip(following, seq)
            self._next = seq + 1
            return True
        if not self.missing:
            return False
        return self._fill(seq)

    def reach(self, hi: int) -> None:
        """Count all numbers after the greatest one up to ``hi`` as seen: what ``add`` does for each of them in order."""
        if hi >= self._next:
            self._next = hi + 1

    def __contains__(self, seq: int) -> bool:
        if seq >= self._next:
            return False
        if not self.missing:
            return True
        chunk, bit = divmod(seq, CHUNK)
        bits = self._bits.get(chunk)
        if bits is not None:
            return not bits >> bit & 1
        return self._blank_at(chunk) is None

    def holes(self) -> Iterator[tuple[int, int]]:
        """The missing numbers as maximal runs (first, last), ascending."""
        pending: tuple[int, int] | None = None
        for first, last in self._runs():
            if pending is not None and pending[1] + 1 == first:
                pending = (pending[0], last)
                continue
            if pending is not None:
                yield pending
            pending = (first, last)
        if pending is not None:
            yield pending

    def within(self, first: int, last: int) -> Iterator[tuple[int, int, bool]]:
        """The numbers from ``first`` to ``last`` as runs (first, last, whether they were seen), ascending."""
        for start, end in self._runs(first // CHUNK, last // CHUNK):
            start, end = max(start, first), min(end, last)
            if start > end:
                continue
            if start > first:
                yield first, start - 1, True
            yield start, end, False
            first = end + 1
        seen_to = min(last, self.hi)
        if first <= seen_to:
            yield first, seen_to, True
            first = seen_to + 1
        if first <= last:
            yield first, last, False

    def chunk_bytes(self, chunk: int) -> bytes:
        """What the store keeps of a chunk: 1,024 bytes where bit ``n % 8`` of byte ``n // 8`` says that number ``chunk × 8,192 + n`` is missing;
        or 8 bytes, big-endian, the count of chunks from this one on of which every number is missing. KeyError for a chunk without holes.
        """
        bits = self._bits.get(chunk)
        if bits is not None:
            return bits.to_bytes(_BYTES, "little")
        index = bisect_right(self._blank, (chunk, _LARGE)) - 1
        if index >= 0 and self._blank[index][0] == chunk:
            return _COUNT.pack(self._blank[index][1])
        raise KeyError(chunk)

    def chunks(self) -> dict[int, bytes]:
        """All chunks that have holes, as ``chunk_bytes`` gives them."""
        keys = [*self._bits, *(first for first, _ in self._blank)]
        return {chunk: self.chunk_bytes(chunk) for chunk in sorted(keys)}

    def saved(self) -> None:
        """The store has written ``dirty`` and deleted ``gone``."""
        self.dirty.clear()
        self.gone.clear()

    @property
    def size_bytes(self) -> int:
        """Estimate of what it holds."""
        return 320 + 1180 * len(self._bits) + 120 * len(self._blank)

    def _skip(self, first: int, after: int) -> None:
        """Numbers from ``first`` up to, not including, ``after`` are missing; all of them are above ``hi``."""
        self.missing += after - first
        chunk, bit = divmod(first, CHUNK)
        last, end = divmod(after, CHUNK)
        if chunk == last:
            self._mark(chunk, ((1 << (end - bit)) - 1) << bit)
            return
        if bit:
            self._mark(chunk, (_FULL >> bit) << bit)
            chunk += 1
        if chunk < last:
            self._put_blank(chunk, last - chunk)
        if end:
            self._mark(last, (1 << end) - 1)

    def _mark(self, chunk: int, bits: int) -> None:
        self._bits[chunk] = self._bits.get(chunk, 0) | bits
        self.dirty.add(chunk)
        self.gone.discard(chunk)

    def _put_blank(self, chunk: int, count: int) -> None:
        insort(self._blank, (chunk, count))
        self.dirty.add(chunk)
        self.gone.discard(chunk)

    def _blank_at(self, chunk: int) -> int | None:
        index = bisect_right(self._blank, (chunk, _LARGE)) - 1
        if index < 0:
            return None
        first, count = self._blank[index]
        return index if chunk < first + count else None

    def _fill(self, seq: int) -> bool:
        chunk, bit = divmod(seq, CHUNK)
        bits = self._bits.get(chunk)
        if bits is None:
            index = self._blank_at(chunk)
            if index is None:
                return False
            first, count = self._blank.pop(index)
            self.dirty.discard(first)
            self.gone.add(first)
            if chunk > first:
                self._put_blank(first, chunk - first)
            if chunk + 1 < first + count:
                self._put_blank(chunk + 1, first + count - chunk - 1)
            bits = _FULL
        mask = 1 << bit
        if not bits & mask:
            return False
        bits ^= mask
        self.missing -= 1
        if bits:
            self._bits[chunk] = bits
            self.dirty.add(chunk)
            self.gone.discard(chunk)
        else:
            self._bits.pop(chunk, None)
            self.dirty.discard(chunk)
            self.gone.add(chunk)
        return True

    def _runs(self, least: int = 0, most: int = _LARGE) -> Iterator[tuple[int, int]]:
        """Missing numbers of the chunks from ``least`` to ``most``, and of blanks that reach into them."""
        spans = [(first, count) for first, count in self._blank if first + count > least and first <= most]
        spans += [(chunk, 0) for chunk in self._bits if least <= chunk <= most]
        spans.sort()
        for chunk, count in spans:
            base = chunk * CHUNK
            if count:
                yield base, base + count * CHUNK - 1
                continue
            for run in _RUN.finditer(bin(self._bits[chunk])[:1:-1]):
                yield base + run.start(), base + run.end() - 1
