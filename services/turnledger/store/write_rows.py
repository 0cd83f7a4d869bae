"""What a round writes, as plain data: filled by `ingest`, written by `store.write`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date

from turnledger.contract.redact import Redacted
from turnledger.store.fence import Step, Stop

TurnRef = tuple[int, int]
"""(session_no, turn_no)."""
SessionRow = tuple[int, str, str, str, int]
"""(session_no, tenant, session_id, topic and partition of its home)."""


@dataclass(slots=True)
class Repeat:
    """A record whose identity is known already: a duplicate or a conflict, which only the stored bytes can tell (contract 3)."""

    session_no: int
    stream_no: int
    seq: int
    """As in ``ledger.events``: below 0 for a receipt."""
    receipt_key: str | None
    key_hash: bytes | None
    """Of the receipt key, as in ``ledger.receipts``; None for a number."""
    raw: bytes
    offset: int
    received_sha256: bytes | None = None
    """Content hash of what came, where ``raw`` is redacted: identity is judged by it (contract 3, 14)."""


@dataclass(slots=True)
class DeadLetter:
    """A record that is no event, or a row that Postgres refused (contract 15)."""

    offset: int
    reason: str
    field: str | None
    detail: str
    tenant: str | None
    session_id: str | None
    raw: bytes | None
    """Capped."""
    raw_bytes: int | None
    key: bytes | None
    received_sha256: bytes | None = None
    """Content hash of what came, where ``raw`` is redacted and there is one."""


@dataclass(slots=True)
class Share:
    """One partition's part of a round."""

    step: Step
    records: int = 0
    holes: int = 0
    accepted: int = 0
    rows: list[bytes] = field(default_factory=list)
    """Accepted events, ``write.EVENT_PARTS`` parts each as ``write.event_parts`` makes them."""
    repeats: list[Repeat] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    redacted: dict[int, Redacted] = field(default_factory=dict)
    """By offset: what is stored of a record in place of what came (contract 14)."""
    # Set by the write, which alone can tell them apart.
    duplicates: int = 0
    unverified: int = 0
    conflicts: int = 0
    batch_no: int | None = None

    def received_sha256(self, offset: int) -> bytes | None:
        """Content hash of a record that is stored redacted."""
        found = self.redacted.get(offset)
        return None if found is None else found.received_sha256


@dataclass(slots=True)
class StreamTouch:
    """A stream that got events, or whose row is due (design 3.2)."""

    stream_no: int
    first: int | None
    """Least and greatest number accepted in this round; None when only the row is due."""
    last: int | None
    days: StreamDays
    """Where its numbers lie; moved on when the round has committed."""
    row: tuple[int, int, int, int, int] | None = None
    """(low, hi, holes, receipts, open_gaps) when the row of a known stream must be written."""
    chunks: list[tuple[int, bytes]] = field(default_factory=list)
    chunks_gone: list[int] = field(default_factory=list)


@dataclass(slots=True)
class StreamDays:
    """The last row of ``stream_days`` of a stream as it is known here. ``seq_to`` runs ahead of the stored one, which is open upwards."""

    day: date | None = None
    seq_from: int = 0
    seq_to: int = -1


@dataclass(slots=True)
class GapRow:
    """A row of ``ledger.gaps`` to be written. ``source`` is the first number of the live row that it comes from."""

    stream_no: int
    source: int | None
    from_seq: int
    to_seq: int
    state: str
    ranges: int
    missing: int


@dataclass(slots=True)
class GapWrites:
    opened: list[GapRow] = field(default_factory=list)
    changed: list[GapRow] = field(default_factory=list)
    folded: list[tuple[int, int]] = field(default_factory=list)
    """(stream_no, first number) of live rows that another row stands for now."""


@dataclass(slots=True)
class Unit:
    """Projection rows that stand or fall together: one turn with its calls and tools, or what stands outside of turns."""

    session_no: int
    tenant: str
    session_id: str
    partition: int
    offset: int | None
    """Of the last record that moved it, in ``partition``: where a dead letter for it points. None: it was read from the ledger, which knows."""
    turn: TurnRef | None = None
    delete_turn: bool = False
    """The turn was written before: its rows go first."""
    delete_loose: bool = False
    """Rows outside of turns (calls, tools, usage parts) were written before."""
    delete_facts: bool = False
    delete_findings: bool = False
    """Findings outside of turns."""
    delete_points: list[tuple[str, int, int]] = field(default_factory=list)
    """(table, stream_no, seq)."""
    delete_items: list[tuple[int, int, str]] = field(default_factory=list)
    """Of ``model_items``: (stream_no, seq, item_type)."""
    wipe: bool = False
    """Everything of the session goes first: what was written cannot be trusted to be whole."""
    rows: list[tuple[str, bytes]] = field(default_factory=list)
    """(table, encoded row)."""


@dataclass(slots=True)
class Round:
    """One transaction."""

    topic: str
    slot: str
    """Schema of the projections."""
    shares: list[Share]
    sessions: list[SessionRow] = field(default_factory=list)
    streams: list[bytes] = field(default_factory=list)
    touched: list[StreamTouch] = field(default_factory=list)
    extended: list[tuple[int, StreamDays, int, int]] = field(default_factory=list)
    """Streams that were only extended, on ``known_day`` as far as is known: (stream_no, days, first, last)."""
    known_day: date | None = None
    receipts: list[bytes] = field(default_factory=list)
    mismatches: list[bytes] = field(default_factory=list)
    redactions: list[bytes] = field(default_factory=list)
    """What was redacted here in accepted events, a row each."""
    gaps: GapWrites = field(default_factory=GapWrites)
    units: list[Unit] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    """Sessions whose rollups are stale now, apart from those that the write itself finds disputed."""
    stops: list[Stop] = field(default_factory=list)
    requeued_by: str | None = None
    """Its records are dead letters that come again (contract 15), and who says so: they are accounted for apart."""
    accounted: bool = False
    """Its records are of batches that are written down: they joined the ledger late, and no batch is added."""
    disturb: list[tuple[str, int]] = field(default_factory=list)
    """Home partitions of sessions that are written here and live elsewhere."""
    unmade: list[tuple[Unit, str]] = field(default_factory=list)
    """Units whose rows could not even be made, and why."""
    refused: list[tuple[Unit, str]] = field(default_factory=list)
    """Set by the write: those, and the units that Postgres would not take."""
    day: date | None = None
    """Set by the write: the day of ingest."""
