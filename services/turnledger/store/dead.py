"""Dead letters as the ledger keeps them: reading them for a requeue, and writing what became of them (contract 15)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Protocol

import psycopg

from turnledger.errors import TurnledgerError
from turnledger.store.named import query

Connection = psycopg.Connection[Any]


class NoSuchLetter(TurnledgerError):
    """No dead letter has that id."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which letters are meant. What is None does not choose."""

    tenant: str | None = None
    session: str | None = None
    reason: str | None = None
    topic: str | None = None
    partition: int | None = None
    since: datetime | None = None
    """Recorded then or later."""
    only_open: bool = True
    """Leave out those that a requeue settled."""

    def values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a letter stands, and of which session it says to be."""

    id: int
    topic: str
    session: tuple[str | None, str] | None


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter as it is kept."""

    id: int
    topic: str
    partition: int
    position: int
    reason: str
    field: str | None
    tenant: str | None
    session_id: str | None
    raw: bytes | None
    """Capped; None for a tombstone, and where only a projection was refused."""
    raw_bytes: int | None
    """Of the record as it came."""
    key: bytes | None
    batch_no: int | None
    """That read it; None where only a projection was refused."""
    outcome: str | None
    """None while it is dead."""
    received_sha256: bytes | None
    """Content hash of what came, where ``raw`` is redacted and there is one."""

    def is_cut(self, cap: int) -> bool:
        """Whether ``raw`` is not the whole record. ``cap``: bytes that are kept of one."""
        if self.raw is None or self.raw_bytes is None or len(self.raw) >= self.raw_bytes:
            return False
        # A secret that was hidden makes a record shorter, too.
        return len(self.raw) >= cap or b"credential:" not in self.raw


class Outcome(Protocol):
    """What became of a letter."""

    @property
    def id(self) -> int: ...
    @property
    def outcome(self) -> str: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def field(self) -> str | None: ...
    @property
    def detail(self) -> str | None: ...
    @property
    def tenant(self) -> str | None: ...
    @property
    def session_id(self) -> str | None: ...


def choosing(name: str) -> bytes:
    """The query ``name`` over the letters that a :class:`Chosen` means."""
    return query(name).replace(b"{chosen}", query("dead/chosen"))


def choose(connection: Connection, chosen: Chosen) -> list[int]:
    """The ids of those letters, ascending."""
    return [row[0] for row in connection.execute(choosing("dead/choose"), chosen.values())]


def places(connection: Connection, ids: Sequence[int]) -> list[Place]:
    """Where those letters stand, by topic, session, partition and position. Raises :class:`NoSuchLetter`."""
    rows = connection.execute(query("dead/places"), {"ids": list(ids)}).fetchall()
    known = {row[0] for row in rows}
    unknown = next((one for one in ids if one not in known), None)
    if unknown is not None:
        raise NoSuchLetter(
            f"there is no dead letter {unknown}: `turnledger dead list --all` shows those that there are."
        )
    return [Place(row[0], row[1], None if row[3] is None else (row[2], row[3])) for row in rows]


def letters(connection: Connection, ids: Sequence[int]) -> list[Letter]:
    """Those letters, by partition and position."""
    return [Letter(*row) for row in connection.execute(query("dead/letters"), {"ids": list(ids)})]


def batch_numbers(connection: Connection, count: int) -> tuple[date, list[int]]:
    """The day of ingest, and numbers for so many batches: after the locks, so that their order is that of the commits."""
    rows = connection.execute(query("dead/batch_numbers"), {"count": count}).fetchall()
    return rows[0][0], [row[1] for row in rows if row[1] is not None]


def settle(
    connection: Connection, settled: Sequence[tuple[Outcome, int | None]], *, by: str, fixed: bool
) -> None:
    """Letters that are dead no more, each with the batch that took it."""
    if settled:
        connection.execute(
            query("dead/settle"),
            {
                "ids": [one.id for one, _ in settled],
                "outcomes": [one.outcome for one, _ in settled],
                "batches": [batch for _, batch in settled],
                "tenants": [one.tenant for one, _ in settled],
                "sessions": [one.session_id for one, _ in settled],
                "by": by,
                "fixed": fixed,
            },
        )


def keep(connection: Connection, still: Sequence[tuple[int, Outcome | None]]) -> None:
    """Letters that stay dead, with the reason that they have now; None leaves it as it is."""
    if still:
        told = [one for _, one in still]
        connection.execute(
            query("dead/keep"),
            {
                "ids": [number for number, _ in still],
                "reasons": [None if one is None else one.reason for one in told],
                "fields": [None if one is None else one.field for one in told],
                "details": [None if one is None else one.detail for one in told],
                "tenants": [None if one is None else one.tenant for one in told],
                "sessions": [None if one is None else one.session_id for one in told],
            },
        )


def mark(connection: Connection, names: Iterable[tuple[str | None, str | None]]) -> None:
    """The rollups of these sessions are stale, where there are such sessions."""
    known = sorted(
        {(tenant, session) for tenant, session in names if tenant is not None and session is not None}
    )
    if known:
        tenants, sessions = map(list, zip(*known, strict=True))
        connection.execute(query("write/mark_named"), {"tenants": tenants, "sessions": sessions})
