"""From what the fold says has changed to rows: numbers of turns, revisions, which rows go first (design 3, points 6 and 8)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from turnledger.fold.columns import BUCKETS
from turnledger.fold.findings import grouped
from turnledger.fold.items import ITEMS_TABLE, Item
from turnledger.fold.model import Row, StreamKey, TurnFold, UsagePart
from turnledger.fold.state import SessionChanges
from turnledger.ingest.cache import SessionEntry, StreamEntry, WrittenTurn
from turnledger.store.keys import receipt_hash
from turnledger.store.write import (
    FACTS,
    FINDINGS,
    MODEL_CALLS,
    POINTS,
    TOOL_CALLS,
    TURN_RECORDS,
    TURNS,
    USAGE_PARTS,
)
from turnledger.store.write_binary import Refused
from turnledger.store.write_rows import Unit

UNENCODABLE = (struct.error, Refused, OverflowError)
"""What a value beyond its column's range raises while its row is made."""

_BUCKET_COLUMNS = tuple((f"{name}_tokens", name) for name in BUCKETS)


def receipts_named(entry: SessionEntry, changes: SessionChanges) -> set[tuple[int, bytes]]:
    """Receipts (stream_no, key hash) whose ordinals a write of these changes needs and memory does not hold."""
    missing = set()
    keys = [
        (row["producer"], row["epoch"], row["stream"], row["receipt_key"])
        for rows in changes.points.values()
        for row in rows
        if row["seq"] is None
    ]
    keys += [
        (item.event.producer, item.event.epoch, item.event.stream, item.event.receipt_key)
        for item in changes.items
        if item.event.seq is None
    ]
    for points in changes.replaced_points.values():
        keys += [(key[0], key[1], key[2], key[4]) for key in points if key[3] is None]
    keys += [(key[0], key[1], key[2], key[4]) for key in changes.replaced_items if key[3] is None]
    for producer, epoch, stream, receipt_key in keys:
        found = entry.streams[producer, epoch, stream]
        key_hash = receipt_hash(receipt_key)
        if key_hash not in found.receipts:
            missing.add((found.stream_no, key_hash))
    return missing


def project(
    entry: SessionEntry, changes: SessionChanges, ordinals: Mapping[tuple[int, bytes], int]
) -> tuple[list[Unit], list[tuple[Unit, str]]]:
    """The units that turn what is written of a session into what it is now, and those whose rows cannot even be made, each with why.

    Gives new turns their numbers and raises revisions: a turn's ``revision`` rises when its digest moves (contract 7). ``ordinals``:
    of the receipts that :func:`receipts_named` told.
    """
    made = _Units(entry, ordinals)
    if entry.wipe:
        made.unit().wipe = True
        entry.wipe = False
        entry.facts_written = entry.loose_written = entry.findings_written = False
        made.wiped = True
    for key in changes.removed_turns:
        made.removed(key)
    for turn in changes.turns:
        made.turn(turn)
    made.outside(changes)
    return made.units, made.refused


class _Units:
    def __init__(self, entry: SessionEntry, ordinals: Mapping[tuple[int, bytes], int]) -> None:
        self.entry = entry
        self.ordinals = ordinals
        self.units: list[Unit] = []
        self.refused: list[tuple[Unit, str]] = []
        self.wiped = False

    def unit(self) -> Unit:
        entry = self.entry
        partition, offset = entry.last_place or (entry.home[1], None)
        unit = Unit(
            session_no=entry.session_no,
            tenant=entry.key[0],
            session_id=entry.key[1],
            partition=partition,
            offset=offset,
        )
        self.units.append(unit)
        return unit

    def removed(self, key: str) -> None:
        written = self.entry.turns.get(key)
        if written is None or written.digest is None:
            return
        unit = self.unit()
        unit.turn = (self.entry.session_no, written.turn_no)
        unit.delete_turn = not self.wiped
        written.digest = None

    def turn(self, fold: TurnFold) -> None:
        entry = self.entry
        key = fold.turn.key
        written = entry.turns.get(key)
        unit = self.unit()
        if written is None:
            written = entry.turns[key] = WrittenTurn(entry.next_turn_no, 1, fold.digest)
            entry.next_turn_no += 1
        else:
            unit.delete_turn = written.digest is not None and not self.wiped
            if written.digest != fold.digest:
                written.revision += 1
                written.digest = fold.digest
        session_no, turn_no, revision = entry.session_no, written.turn_no, written.revision
        unit.turn = (session_no, turn_no)
        rows = unit.rows
        try:
            rows.append(("turns", TURNS.encode(session_no, turn_no, revision, fold.digest, fold.flat)))
            rows.append(
                (
                    "turn_records",
                    TURN_RECORDS.encode(session_no, turn_no, revision, fold.digest, fold.body, None),
                )
            )
            self._detail(unit, turn_no, fold.calls, fold.tools, fold.parts, fold.findings)
        except UNENCODABLE as error:
            self._refuse(unit, f"the projection of turn_no {turn_no} was refused", error)

    def outside(self, changes: SessionChanges) -> None:
        """What stands outside of turns."""
        entry = self.entry
        loose, facts, findings = changes.loose, changes.facts, changes.findings
        if loose is not None:
            present = bool(loose.calls or loose.tools or loose.parts)
            if present or entry.loose_written:
                unit = self.unit()
                unit.delete_loose = entry.loose_written
                entry.loose_written = present
                self._try(unit, lambda: self._detail(unit, None, loose.calls, loose.tools, loose.parts, ()))
        if facts is not None or findings is not None:
            unit = self.unit()
            if facts is not None:
                unit.delete_facts = entry.facts_written
                entry.facts_written = True
                self._try(
                    unit, lambda: unit.rows.append(("session_facts", FACTS.encode(entry.session_no, facts)))
                )
            if findings is not None and (findings or entry.findings_written):
                unit.delete_findings = entry.findings_written
                entry.findings_written = bool(findings)
                self._try(unit, lambda: self._findings(unit, None, findings))
        if changes.points or changes.items or changes.replaced_points or changes.replaced_items:
            unit = self.unit()
            self._try(unit, lambda: self._points(unit, changes))

    def _detail(
        self,
        unit: Unit,
        turn_no: int | None,
        calls: Iterable[Row],
        tools: Iterable[Row],
        parts: Iterable[UsagePart],
        findings: Iterable[Row],
    ) -> None:
        session_no = self.entry.session_no
        rows = unit.rows
        for row in calls:
            rows.append(("model_calls", MODEL_CALLS.encode(session_no, turn_no, row)))
        for row in tools:
            rows.append(("tool_calls", TOOL_CALLS.encode(session_no, turn_no, row)))
        for part in parts:
            if part.call_key is None:
                rows.append(("usage_parts", USAGE_PARTS.encode(session_no, turn_no, _part_row(part))))
        self._findings(unit, turn_no, findings)

    def _findings(self, unit: Unit, turn_no: int | None, findings: Iterable[Row]) -> None:
        found = list(findings)
        if not found:
            return
        for row in grouped(*self.entry.key, found):
            unit.rows.append(("findings", FINDINGS.encode(self.entry.session_no, turn_no, "fold", row)))

    def _points(self, unit: Unit, changes: SessionChanges) -> None:
        streams = self.entry.streams
        if not self.wiped:
            for table, keys in changes.replaced_points.items():
                for producer, epoch, stream, seq, receipt_key in keys:
                    found = streams[producer, epoch, stream]
                    unit.delete_points.append((table, found.stream_no, self._seq(found, seq, receipt_key)))
            for producer, epoch, stream, seq, receipt_key, item_type in changes.replaced_items:
                found = streams[producer, epoch, stream]
                unit.delete_items.append((found.stream_no, self._seq(found, seq, receipt_key), item_type))
        for table, rows in changes.points.items():
            encode = POINTS[table].encode
            for row in rows:
                found = streams[row["producer"], row["epoch"], row["stream"]]
                seq = self._seq(found, row["seq"], row["receipt_key"])
                unit.rows.append((table, encode(self.entry.session_no, found.stream_no, seq, row)))
        if changes.items:
            self._items(unit, changes.items)

    def _items(self, unit: Unit, items: Iterable[Item]) -> None:
        session_no = self.entry.session_no
        add, encode = unit.rows.append, POINTS[ITEMS_TABLE].encode_values
        key: StreamKey | None = None
        for item in items:
            event = item.event
            named = (event.producer, event.epoch, event.stream)
            if named != key:
                key = named
                stream = self.entry.streams[named]
            seq = event.seq
            if seq is None:
                seq = self._seq(stream, None, event.receipt_key)
            add((ITEMS_TABLE, encode(session_no, stream.stream_no, seq, item.values)))

    def _seq(self, stream: StreamEntry, seq: int | None, receipt_key: str | None) -> int:
        if seq is not None:
            return seq
        assert receipt_key is not None
        key_hash = receipt_hash(receipt_key)
        ordinal = stream.receipts.get(key_hash)
        return -1 - (self.ordinals[stream.stream_no, key_hash] if ordinal is None else ordinal)

    def _try(self, unit: Unit, make: Any) -> None:
        try:
            make()
        except UNENCODABLE as error:
            self._refuse(unit, "the projection of session-level rows was refused", error)

    def _refuse(self, unit: Unit, what: str, error: Exception) -> None:
        """What was written before still goes: better no row than a stale one."""
        unit.rows.clear()
        self.refused.append((unit, f"{what} ({type(error).__name__}); its events are in the ledger"))


def _part_row(part: UsagePart) -> Row:
    usage = part.usage
    row: Row = {
        "part_key": part.part_key,
        "turn_key": part.turn_key,
        "provider": part.provider,
        "model": part.model,
        "hour_at": part.hour_at,
        "kind": part.kind,
        "token_convention": part.convention,
        "fidelity": part.fidelity,
        "inherited_event": part.inherited_event,
        "usage_reported": usage["reported"],
        "usage_total": usage["total"],
    }
    for column, name in _BUCKET_COLUMNS:
        row[column] = usage[name]
    return row
