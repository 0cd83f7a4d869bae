"""One partition that this worker has claimed: where it stands, and which fetched records may go into a round (design 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from turnledger.ingest.batch import Fetched, Partition, Record, anchor_crc
from turnledger.ingest.cache import SessionEntry, SessionKey, StreamEntry
from turnledger.ingest.decide import DeadWindow
from turnledger.store import fence


@dataclass(slots=True)
class Seat:
    """A claimed partition."""

    partition: Partition
    claim: fence.Claim
    window: DeadWindow
    lease: int = 0
    """Records fetched under another lease are from before a claim or a seek."""
    placed_at: float = 0.0
    """When it was last sought to (the handler's clock)."""
    expected: int = 0
    """The next offset to go into a round."""
    applied: int = 0
    """The next offset as it is committed."""
    disturbed: int = 0
    last_batch: int = 0
    flushed: int = 0
    """Up to which batch the projections are whole, as committed."""
    batches: dict[int, int] = field(default_factory=dict)
    """Round: its batch here, for rounds that sessions with unwritten changes date from."""
    anchor_due: bool = False
    """The first record fetched must be the one that was applied last."""
    stopped: str | None = None
    """Why nothing of it is applied any more."""
    resumable: bool = False
    """Stopped by dead letters: a person may let it go on (contract 15), and what was applied is still projected."""
    stale: dict[int, None] = field(default_factory=dict)
    """Sessions whose projections are not known to be whole."""
    dirty: dict[SessionKey, SessionEntry] = field(default_factory=dict)
    """Sessions with changes that are not projected yet, those longest so first."""
    late: dict[int, StreamEntry] = field(default_factory=dict)
    """Streams whose row runs behind: only pure extension is written late (design 3.2)."""

    @property
    def projects(self) -> bool:
        """Whether what was applied of it may still be projected."""
        return self.stopped is None or self.resumable

    @property
    def epoch(self) -> int:
        return self.claim.epoch

    @property
    def topic(self) -> str:
        return self.partition[0]

    @property
    def number(self) -> int:
        return self.partition[1]


@dataclass(slots=True)
class Piece:
    """Records that go into a round next: they continue what was applied."""

    seat: Seat
    from_offset: int
    to_offset: int
    """Exclusive."""
    records: Sequence[Record]
    size: int
    batches: tuple[Fetched, ...]
    """Finished when this piece is committed."""


class Ahead(Exception):
    """Records begin behind the expected offset: somebody must look where the log begins."""


def continue_from(seat: Seat, batch: Fetched, *, holes_accepted: bool) -> Sequence[Record]:
    """The records of ``batch`` that continue ``seat``; none where all of them are applied already.

    Raises :class:`Ahead` where they begin later, unless ``holes_accepted``, and ``fence.LogBroken`` where the anchor is another
    record than the applied one.
    """
    records = batch.records
    if seat.anchor_due:
        seat.anchor_due = False
        first = records[0]
        fence.check_anchor(seat.claim, first.offset, anchor_crc(first))
    if records[0].offset < seat.expected:
        records = [record for record in records if record.offset >= seat.expected]
    if records and records[0].offset > seat.expected and not holes_accepted:
        raise Ahead
    return records


def split(piece: Piece, count: int) -> tuple[Piece, Piece]:
    """The first ``count`` records and the rest. The batches are finished with the rest."""
    head, tail = piece.records[:count], piece.records[count:]
    size = piece.size * count // len(piece.records)
    middle = tail[0].offset
    return (
        Piece(piece.seat, piece.from_offset, middle, head, size, ()),
        Piece(piece.seat, middle, piece.to_offset, tail, piece.size - size, piece.batches),
    )
