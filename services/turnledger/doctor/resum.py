"""Invariant I5: every rollup equals its recomputation, from a fresh fold, ownership decided anew, and today's price function."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import psycopg
from psycopg import sql

from turnledger.doctor.faults import Fault
from turnledger.doctor.held import CHUNK
from turnledger.doctor.rows import Row, compare, load
from turnledger.doctor.shares import share_faults
from turnledger.fold import columns
from turnledger.fold.document import session_rows
from turnledger.fold.findings import grouped, redacted_at_ingest
from turnledger.fold.model import SessionFold
from turnledger.fold.ownership import DECIDING, Ownership, decide, holder
from turnledger.fold.rollup import PriceFunction, SessionRollup, SessionRows, overlay, part_of, roll_up
from turnledger.fold.shares import Share
from turnledger.rollup.blocks import split
from turnledger.rollup.rows import kept_overlay
from turnledger.store.read import SessionRef, of_slot

_FINDING: tuple[columns.Column, ...] = (("severity", "text"), ("count", "int8"), ("rows", "jsonb"))
_TURN_OVERLAY: tuple[columns.Column, ...] = (("digest", "text"), *columns.TURN_OVERLAY)

_Compared = tuple[tuple[columns.Column, ...], Callable[[Row], Hashable]]

_SUMMED: dict[str, _Compared] = {
    "sessions": (columns.SESSIONS, lambda row: 0),
    "ai_usage": (columns.AI_USAGE, itemgetter("provider", "model")),
    "tool_usage": (columns.TOOL_USAGE, itemgetter("tool_name", "origin")),
    "mcp_usage": (columns.MCP_USAGE, itemgetter("server_name", "tool_name")),
    "hour_parts": (columns.HOUR_PARTS, itemgetter("hour", "provider", "model")),
    "findings": (_FINDING, itemgetter("check")),
}
"""What a session has as one: of each table the columns that are compared, and the key that is unique in a session."""
OVERLAID: dict[str, _Compared] = {
    "call_overlay": (columns.CALL_OVERLAY, itemgetter("call_key")),
    "part_overlay": (columns.PART_OVERLAY, itemgetter("part_key")),
    "repriced": (columns.REPRICED, itemgetter("call_key", "part_key", "run_no")),
    "turn_overlay": (_TURN_OVERLAY, itemgetter("turn_key")),
}
"""The same of what is laid over its turns and calls."""


@dataclass(slots=True)
class Families:
    """Sessions that may hold the same calls: who sums them must be decided together."""

    _up: dict[int, int] = field(default_factory=dict)

    def join(self, one: int, other: int) -> None:
        first, second = sorted((self.root(one), self.root(other)))
        self._up[second] = first
        self._up.setdefault(first, first)

    def root(self, number: int) -> int:
        while (up := self._up.get(number, number)) != number:
            self._up[number] = self._up.get(up, up)
            number = up
        return number

    def __contains__(self, number: int) -> bool:
        return number in self._up

    def groups(self) -> Iterator[list[int]]:
        """Each family's session numbers, ascending."""
        members: dict[int, list[int]] = defaultdict(list)
        for number in sorted(self._up):
            members[self.root(number)].append(number)
        yield from members.values()


def families(connection: psycopg.Connection[Any], slot: str) -> Families:
    """Who must be decided with whom. Holds one number a session that shares anything; the others are alone."""
    found = Families()
    for name in ("verify/shared_calls", "verify/kin"):
        with connection.cursor(binary=True) as cursor:
            for one, other in cursor.stream(of_slot(name, slot), size=CHUNK):
                found.join(one, other)
    return found


def decide_alone(ref: SessionRef, facts: Sequence[Row], calls: Sequence[Row]) -> Ownership:
    """The same of a session that shares nothing, from its rows: its findings, and what it says it inherits of nobody."""
    return decide([holder(ref.session_id, facts[0] if facts else {}, _with_key(calls))])


def decide_long_alone(connection: psycopg.Connection[Any], slot: str, ref: SessionRef) -> Ownership:
    """The same of a long session: only calls that it says it inherits matter where nobody else has any."""
    names = ["call_key", "order_key", *DECIDING]
    links = ("parent_session_id", "fork_parent_session_id", "fork_stream", "fork_at_seq")
    facts = load(connection, slot, "session_facts", links, [ref.session_no])
    return decide_alone(
        ref, facts, load(connection, slot, "model_calls", names, [ref.session_no], sql.SQL("inherited_event"))
    )


def decide_stored(connection: psycopg.Connection[Any], slot: str, refs: Sequence[SessionRef]) -> Ownership:
    """Ownership among sessions of one tenant, from their stored calls (which I4 proves): of those that may be one call with another session's, or say that
    they are inherited. A long session with sub-agents has many others."""
    numbers = [ref.session_no for ref in refs]
    calls: dict[int, list[Row]] = defaultdict(list)
    with connection.cursor(binary=True) as cursor:
        cursor.execute(of_slot("verify/deciding", slot), {"sessions": numbers})
        names = [column.name for column in cursor.description or ()]
        for values in cursor:
            row = dict(zip(names, values, strict=True))
            calls[row["session_no"]].append(row)
    links = ("parent_session_id", "fork_parent_session_id", "fork_stream", "fork_at_seq")
    facts = {
        row["session_no"]: row
        for row in load(connection, slot, "session_facts", ["session_no", *links], numbers)
    }
    return decide(
        holder(ref.session_id, facts.get(ref.session_no, {}), _with_key(calls[ref.session_no]))
        for ref in refs
    )


def _with_key(calls: Iterable[Row]) -> list[Row]:
    """Rows of calls that no fold makes have no key, or may have none: I4 tells, and nobody owns them."""
    return [call for call in calls if call["call_key"] is not None]


@dataclass(slots=True)
class StoredRollup:
    """What the rollup worker set for some sessions: rows by table and session."""

    rows: dict[tuple[str, int], list[Row]]
    ask: Callable[[str, int], list[Row]] | None = None
    """As in ``refold.StoredProjection``."""

    def of(self, table: str, session_no: int) -> list[Row]:
        if self.ask is not None:
            return self.ask(table, session_no)
        return self.rows.get((table, session_no), [])


SET = {
    **{table: listed for table, (listed, _) in (_SUMMED | OVERLAID).items()},
    "turn_overlay": (("turn_no", "int4"), *_TURN_OVERLAY),
    "findings": (("turn_no", "int4"), ("check", "text"), *_FINDING),
    "rollup_shares": (("level", "int4"), ("block", "int4"), ("share", "text")),
}


def load_rollup(connection: psycopg.Connection[Any], slot: str, sessions: Sequence[int]) -> StoredRollup:
    """Everything that the rollup worker set for some sessions."""
    rows: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for table in SET:
        for row in _load(connection, slot, table, sessions):
            rows[table, row["session_no"]].append(row)
    return StoredRollup(rows)


def ask_rollup(connection: psycopg.Connection[Any], slot: str) -> StoredRollup:
    """The same, read as it is asked for, in the caller's snapshot."""
    return StoredRollup({}, lambda table, number: _load(connection, slot, table, [number]))


def _load(connection: psycopg.Connection[Any], slot: str, table: str, sessions: Sequence[int]) -> list[Row]:
    names = ["session_no", *(name for name, _ in SET[table])]
    where = sql.SQL("source = 'rollup'") if table == "findings" else None
    return load(connection, slot, table, names, sessions, where)


def rollup_faults(
    ref: SessionRef,
    fold: SessionFold,
    *,
    conflicts: Sequence[Row],
    dead_letters: Sequence[Row],
    redactions: Sequence[Row],
    ownership: Ownership,
    price: PriceFunction,
    turn_numbers: Mapping[str, int],
    stored: StoredRollup,
) -> list[Fault]:
    """I5 of one session."""
    rows = session_rows(fold, conflicts, len(dead_letters))

    def owner(call_key: str) -> str:
        return ownership.owner(ref.session_id, call_key)

    computed = roll_up(rows, owner, price)
    laid = []
    for turn in fold.turns:
        sums = computed.turns[turn.turn.key]
        laid.append(
            {
                **sums.row,
                "turn_key": turn.turn.key,
                "digest": turn.digest,
                "overlay": overlay(turn.record, sums),
            }
        )
    delivery = delivery_findings(conflicts, dead_letters, redactions)
    faults = _faults(ref, computed, laid, delivery, ownership, turn_numbers, stored)
    return [*faults, *_share_faults(ref, rows, turn_numbers, owner, price, stored)]


def kept_faults(
    ref: SessionRef,
    rows: SessionRows,
    *,
    digests: Mapping[str, str],
    conflicts: Sequence[Row],
    dead_letters: Sequence[Row],
    redactions: Sequence[Row],
    late: Sequence[Row],
    ownership: Ownership,
    price: PriceFunction,
    turn_numbers: Mapping[str, int],
    stored: StoredRollup,
) -> list[Fault]:
    """I5 of a vacuumed session: its rollups are what the rows that were kept of it give. ``digests`` by ``turn_key``; ``late`` as
    ``fold.vacuumed.late_after_vacuum`` makes it."""

    def owner(call_key: str) -> str:
        return ownership.owner(ref.session_id, call_key)

    computed = roll_up(rows, owner, price)
    laid = [
        {**sums.row, "turn_key": key, "digest": digests[key], "overlay": kept_overlay(sums)}
        for key, sums in computed.turns.items()
    ]
    delivery = [*delivery_findings(conflicts, dead_letters, redactions), *late]
    faults = _faults(ref, computed, laid, delivery, ownership, turn_numbers, stored)
    return [*faults, *_share_faults(ref, rows, turn_numbers, owner, price, stored)]


def _share_faults(
    ref: SessionRef,
    rows: SessionRows,
    turn_numbers: Mapping[str, int],
    owner: Callable[[str], str],
    price: PriceFunction,
    stored: StoredRollup,
) -> list[Fault]:
    shares = stored.of("rollup_shares", ref.session_no)

    def computed() -> dict[int, Share] | None:
        if any(row["turn_key"] not in turn_numbers for row in rows.turns):
            return None
        _, by_block = split(rows, turn_numbers, lambda row: turn_numbers.get(row["turn_key"]))
        # A part holds rows of its own, so only its share is kept.
        return {block: part_of(part, owner, price).share for block, part in sorted(by_block.items())}

    return share_faults(ref, rows.facts, computed, shares)


def delivery_findings(
    conflicts: Sequence[Row], dead_letters: Sequence[Row], redactions: Sequence[Row]
) -> list[Row]:
    found: list[Row] = [{"check": "conflict", "severity": "error", "row": row} for row in conflicts]
    found += [{"check": "dead_letter", "severity": "error", "row": row} for row in dead_letters]
    # The first are enough: a harness that redacts nothing has one in every event.
    first = [{name: value for name, value in row.items() if name != "total"} for row in redactions]
    return [*found, *redacted_at_ingest(first, redactions[0]["total"] if redactions else 0)]


def _faults(
    ref: SessionRef,
    computed: SessionRollup,
    laid: Sequence[Row],
    delivery: Sequence[Row],
    ownership: Ownership,
    turn_numbers: Mapping[str, int],
    stored: StoredRollup,
) -> list[Fault]:
    """What is stored of a session against what was computed; ``laid``: the overlays of its turns."""
    named = {"tenant": ref.tenant, "session_id": ref.session_id}
    number = ref.session_no
    rows: dict[str, Iterable[Row]] = {
        "call_overlay": computed.calls,
        "part_overlay": computed.parts,
        "repriced": computed.repriced,
        "turn_overlay": laid,
    }
    faults = own_faults(ref, computed, delivery, ownership, stored)
    for table, of_table in rows.items():
        faults += compare("I5", table, named, *OVERLAID[table], of_table, stored.of(table, number))
    faults += misnumbered(named, stored.of("turn_overlay", number), turn_numbers)
    return faults


def own_faults(
    ref: SessionRef,
    computed: SessionRollup,
    delivery: Sequence[Row],
    ownership: Ownership,
    stored: StoredRollup,
) -> list[Fault]:
    """The same of what a session has as one: its sums and findings."""
    named = {"tenant": ref.tenant, "session_id": ref.session_id}
    rows: dict[str, Iterable[Row]] = {
        "sessions": [computed.session],
        "ai_usage": computed.ai_usage,
        "tool_usage": computed.tool_usage,
        "mcp_usage": computed.mcp_usage,
        "hour_parts": computed.hour_parts,
    }
    found = [finding for session_id, finding in ownership.findings if session_id == ref.session_id]
    found += [*computed.findings, *delivery]
    rows["findings"] = grouped(ref.tenant, ref.session_id, found)
    faults: list[Fault] = []
    for table, of_table in rows.items():
        faults += compare("I5", table, named, *_SUMMED[table], of_table, stored.of(table, ref.session_no))
    return faults


def misnumbered(named: Row, laid: Iterable[Row], turn_numbers: Mapping[str, int]) -> list[Fault]:
    """Rows of ``turn_overlay`` that stand under the number of another turn."""
    what = "what is laid over a turn is of another turn number"
    return [
        Fault("I5", what, {**named, "turn_key": row["turn_key"]})
        for row in laid
        if turn_numbers.get(row["turn_key"]) != row["turn_no"]
    ]
