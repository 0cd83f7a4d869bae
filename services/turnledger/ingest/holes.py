"""Arrival history of gaps (contract 4): from the live rows of a stream and what is missing now to the rows to write. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from turnledger.fold.seen import StreamSeen
from turnledger.store.write_rows import GapRow, GapWrites

MAX_OPEN_ROWS = 1000
"""More open gaps of one stream than this are one row ``fragmented`` with its exact count (contract 4)."""


@dataclass(frozen=True, slots=True)
class LiveGap:
    """A row of ``ledger.gaps`` that is not closed."""

    from_seq: int
    to_seq: int
    state: str
    """``open`` ``declared_lost`` ``declared_elided`` ``fragmented``."""
    ranges: int = 1
    missing: int = 0

    @property
    def numbers(self) -> int:
        return self.to_seq - self.from_seq + 1


def live_rows(runs: Sequence[tuple[int, int, str]]) -> tuple[list[LiveGap], int]:
    """The live rows for the gaps of one stream, ascending, and how many of those gaps are open."""
    opened = [run for run in runs if run[2] == "open"]
    rows = [LiveGap(first, last, state, 1, last - first + 1) for first, last, state in runs]
    if len(opened) > MAX_OPEN_ROWS:
        missing = sum(last - first + 1 for first, last, _ in opened)
        whole = LiveGap(opened[0][0], opened[-1][1], "fragmented", len(opened), missing)
        rows = sorted([whole, *(row for row in rows if row.state != "open")], key=lambda row: row.from_seq)
    return rows, len(opened)


def compare(
    stream_no: int, before: Sequence[LiveGap], now: Sequence[LiveGap], seen: StreamSeen, out: GapWrites
) -> None:
    """Add to ``out`` what turns the live rows ``before`` into ``now``, and the history of what is no longer missing.

    A hole that was seen open keeps its row: it shrinks, is declared, or ends as ``filled_late`` (its numbers came) or ``withdrawn``
    (the stream proved sparse, or begins later); where some of its numbers came, it ends as several rows. A hole that opens and fills
    between two writes was never seen.
    """
    if list(before) == list(now):
        return
    kept = set(before) & set(now)
    old = [row for row in before if row not in kept]
    new = [row for row in now if row not in kept]
    if any(row.state == "fragmented" for row in (*old, *new)):
        _replace(stream_no, old, new, out)
        return
    taken: set[LiveGap] = set()
    """Old rows that have become a new one."""
    for row in new:
        source = next((o for o in old if o.from_seq <= row.to_seq and o.to_seq >= row.from_seq), None)
        written = GapRow(
            stream_no,
            source.from_seq if source else None,
            row.from_seq,
            row.to_seq,
            row.state,
            1,
            row.missing,
        )
        if source is None or source in taken:
            out.opened.append(written)
        else:
            taken.add(source)
            out.changed.append(written)
    for row in old:
        closed = [
            GapRow(stream_no, row.from_seq, first, last, state, 1, last - first + 1)
            for piece in _rest(row, new)
            for first, last, state in _ended(piece, seen)
        ]
        if row not in taken and len(closed) == 1 and closed[0].missing == row.numbers:
            out.changed += closed
            continue
        out.opened += closed
        if row not in taken:
            out.folded.append((stream_no, row.from_seq))


def _rest(row: LiveGap, new: Sequence[LiveGap]) -> list[tuple[int, int]]:
    """The numbers of ``row`` that no new row covers, as runs."""
    rest = []
    at = row.from_seq
    for other in new:
        if other.to_seq < at or other.from_seq > row.to_seq:
            continue
        if other.from_seq > at:
            rest.append((at, other.from_seq - 1))
        at = max(at, other.to_seq + 1)
    if at <= row.to_seq:
        rest.append((at, row.to_seq))
    return rest


def _ended(piece: tuple[int, int], seen: StreamSeen) -> Iterator[tuple[int, int, str]]:
    """What became of numbers that are not missing any more, as runs."""
    for first, last, came in seen.within(*piece):
        yield first, last, "filled_late" if came else "withdrawn"


def _replace(stream_no: int, old: Sequence[LiveGap], new: Sequence[LiveGap], out: GapWrites) -> None:
    """A stream in fragments has one row for all its open gaps; the earliest start is kept. A row that begins where one stood is that one:
    rows are found by where they begin, so to fold the old one would take the new one with it."""
    source = min((row.from_seq for row in old), default=None)
    stood = {row.from_seq for row in old}
    for row in new:
        there = row.from_seq in stood
        written = GapRow(
            stream_no,
            row.from_seq if there else source,
            row.from_seq,
            row.to_seq,
            row.state,
            row.ranges,
            row.missing,
        )
        (out.changed if there else out.opened).append(written)
    stands = {row.from_seq for row in new}
    out.folded.extend((stream_no, row.from_seq) for row in old if row.from_seq not in stands)
