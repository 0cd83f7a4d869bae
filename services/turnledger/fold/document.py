"""Owns the object of contract 17: records in, what the worker and the rollup worker would have written out. No broker, no database.

The same dedupe, fold, ownership and sums as theirs; only where the rows go differs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from turnledger.contract.canonical import dumps
from turnledger.contract.reader import DEFAULT_LIMIT
from turnledger.contract.redact import Redactor
from turnledger.contract.times import utc_text
from turnledger.fold import columns
from turnledger.fold.bodies import BODY, put_together
from turnledger.fold.dedupe import Deduped, dedupe, event_key
from turnledger.fold.findings import MOST_REDACTIONS, grouped, redacted_at_ingest
from turnledger.fold.items import ITEMS_TABLE, RESPONSES_TABLE
from turnledger.fold.model import Row, SessionFold, UsagePart
from turnledger.fold.ownership import decide, holder
from turnledger.fold.points import BODIES_TABLE
from turnledger.fold.rollup import PriceFunction, SessionRollup, SessionRows, hourly, overlay, roll_up
from turnledger.fold.session import fold_session

SessionKey = tuple[str, str]
"""(tenant, session_id)."""

POINT_KEY = ("producer", "epoch", "stream", "seq", "receipt_key")
OUTSIDE_DIGEST = frozenset(
    {
        "cost_micro_usd",
        "cost_fidelity",
        "price_id",
        "catalog_version",
        "unpriced",
        "unpriced_calls",
        "dead_letters",
    }
)
"""Cost, so that the same events have the same digest under every catalogue, and what no accepted event says."""
WITH_COST = ("turns", "model_calls", "sessions", "ai_usage", "usage_hourly")
FINDINGS_OUTSIDE_DIGEST = frozenset(
    {"dead_letter", "key_mismatch", "secret_redacted_at_ingest", "unpriced_model"}
)
NOT_DIGESTED = frozenset({"records", "dead_letters", "digest"})
"""Members of the object that are outside the digest whole."""
CONFLICT_ARRIVAL = frozenset({"count", "first_position", "last_position"})

Document = dict[str, Any]


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of one file: they end at 0x0A, one trailing CR is dropped, an unterminated last line is one (contract 17)."""
    rest: list[bytes] = []
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        rest.append(first)
        for line in others:
            yield b"".join(rest).removesuffix(b"\r")
            rest = [line]
    last = b"".join(rest)
    if last:
        yield last.removesuffix(b"\r")


def document(
    records: Iterable[bytes],
    price: PriceFunction,
    *,
    limit: int = DEFAULT_LIMIT,
    redactor: Redactor | None = None,
) -> Document:
    """What lines of one partition mean (contract 17). A line's position is its number, from 1; one of JSON white space has a position and is no record.

    ``limit``: greatest size of a record in bytes (contract 15). ``redactor``: the worker's settings of contract 14.
    Never raises for what a record holds: that is a dead letter.
    """
    numbered = ((number, line) for number, line in enumerate(records, 1) if line.strip(b" \t\r\n"))
    found = dedupe(numbered, limit=limit, redactor=redactor)
    folds = {key: fold_session(*key, events) for key, events in sorted(found.sessions.items(), key=_by_key)}
    return describe(found, folds, price)


def describe(found: Deduped, folds: Mapping[SessionKey, SessionFold], price: PriceFunction) -> Document:
    """The object of contract 17 from deduplicated records and the folds of their sessions."""
    conflicts = _by_session(found.conflicts)
    dead = _by_session(found.dead_letters)
    rollups: dict[SessionKey, SessionRollup] = {}
    other_findings: dict[SessionKey, list[Row]] = defaultdict(list)
    for tenant in sorted({tenant for tenant, _ in folds}, key=str.encode):
        own = {key: fold for key, fold in folds.items() if key[0] == tenant}
        ownership = decide(
            holder(session_id, fold.facts, _calls(fold)) for (_, session_id), fold in own.items()
        )
        for session_id, finding in ownership.findings:
            other_findings[(tenant, session_id)].append(finding)
        for key, fold in own.items():
            rows = session_rows(fold, conflicts[key], len(dead[key]))
            rollups[key] = roll_up(rows, _owner_in(ownership.owner, key[1]), price)

    result = tables(found, folds, rollups, other_findings)
    result["digest"] = digest(result)
    return result


def tables(
    found: Deduped,
    folds: Mapping[SessionKey, SessionFold],
    rollups: Mapping[SessionKey, SessionRollup],
    other_findings: Mapping[SessionKey, Sequence[Row]],
) -> Document:
    """The lists of contract 17 of sessions whose sums are known, and ``records``; no ``digest``."""
    keys = sorted(folds, key=key_order)
    result: Document = {
        "records": dict(found.records),
        "conflicts": sorted(found.conflicts, key=_conflict_place),
        "dead_letters": sorted(found.dead_letters, key=_dead_place),
        "gaps": [_gap(key, gap) for key in keys for gap in folds[key].gaps],
        "turns": [turn for key in keys for turn in _turns(folds[key], rollups[key])],
        "model_calls": [row for key in keys for row in _model_calls(key, folds[key], rollups[key])],
        "tool_calls": [row for key in keys for row in _tool_calls(key, folds[key])],
    }
    for table in (*columns.POINTS, "exec_events"):
        if table != BODIES_TABLE:
            result[table] = [
                _point(key, table, row) for key in keys for row in folds[key].points.get(table, [])
            ]
    homes = {key: Homes(folds[key]) for key in keys}
    for table, row_of in ((ITEMS_TABLE, _item), (RESPONSES_TABLE, _response)):
        result[table] = [
            row_of(key, homes[key], row) for key in keys for row in folds[key].points.get(table, [])
        ]
    result[BODIES_TABLE] = [
        {"tenant": key[0], "session_id": key[1], **_cells(BODY, row)}
        for key in keys
        for row in put_together(folds[key].points.get(BODIES_TABLE, []))
    ]
    result["sessions"] = [row_shown(key, columns.SESSIONS, rollups[key].session) for key in keys]
    for table, listed in _ROLLUPS.items():
        result[table] = [row_shown(key, listed, row) for key in keys for row in getattr(rollups[key], table)]
    result["usage_hourly"] = _usage_hourly(keys, rollups)
    result["findings"] = findings_of(found, folds, rollups, other_findings)
    return result


def session_rows(fold: SessionFold, conflicts: Sequence[Row], dead_letters: int) -> SessionRows:
    """What the sums of a session are made from: the same rows that the rollup worker reads from the database."""
    parts = [part for turn in fold.turns for part in turn.parts] + fold.parts
    return SessionRows(
        tenant=fold.tenant,
        session_id=fold.session_id,
        facts=fold.facts,
        turns=[turn.flat for turn in fold.turns],
        calls=_calls(fold),
        tools=[tool for turn in fold.turns for tool in turn.tools] + fold.tools,
        contributions=[contribution_row(part) for part in parts if part.call_key is None],
        loose_checks=frozenset(finding["check"] for finding in fold.findings),
        open_gaps=sum(gap["state"] == "open" for gap in fold.gaps),
        conflicts=len(conflicts),
        dead_letters=dead_letters,
        disputed_turns=_disputed(fold, conflicts),
    )


def contribution_row(part: UsagePart) -> Row:
    """A contribution under the names of ``columns.USAGE_PARTS``."""
    return {
        "part_key": part.part_key,
        "turn_key": part.turn_key,
        "provider": part.provider,
        "model": part.model,
        "hour_at": part.hour_at,
        "kind": part.kind,
        "token_convention": part.convention,
        "fidelity": part.fidelity,
        **{f"{name}_tokens": part.usage[name] for name in columns.BUCKETS},
        "usage_reported": part.usage["reported"],
        "usage_total": part.usage["total"],
        "inherited_event": part.inherited_event,
    }


def digest(shown: Document) -> str:
    """SHA-256 over all that does not depend on arrival or prices (contract 17), hex."""
    covered = {name: digested(name, rows) for name, rows in shown.items() if name not in NOT_DIGESTED}
    return sha256(dumps(covered)).hexdigest()


def digested(table: str, rows: Sequence[Row]) -> list[Row]:
    """What of the rows of one list the digest covers."""
    if table == "conflicts":
        return [_without(row, CONFLICT_ARRIVAL) for row in rows]
    if table == "findings":
        return [row for row in rows if row["check"] not in FINDINGS_OUTSIDE_DIGEST]
    if table not in WITH_COST:
        return list(rows)
    covered = [_without(row, OUTSIDE_DIGEST) for row in rows]
    for row in covered:
        if "model_calls" in row:
            row["model_calls"] = [_without(call, OUTSIDE_DIGEST) for call in row["model_calls"]]
    return covered


# --- lists ------------------------------------------------------------------------------------------------------------------------

_ROLLUPS = {"ai_usage": columns.AI_USAGE, "tool_usage": columns.TOOL_USAGE, "mcp_usage": columns.MCP_USAGE}


def _calls(fold: SessionFold) -> list[Row]:
    return [call for turn in fold.turns for call in turn.calls] + fold.calls


def _turns(fold: SessionFold, rollup: SessionRollup) -> Iterator[Row]:
    for turn in fold.turns:
        sums = rollup.turns[turn.turn.key]
        record = {**turn.record, "revision": 1, "digest": turn.digest, **overlay(turn.record, sums)}
        if sums.row["grade"] is not None:
            record["grade"] = sums.row["grade"]
        yield record


def _model_calls(key: SessionKey, fold: SessionFold, rollup: SessionRollup) -> Iterator[Row]:
    laid = {row["call_key"]: row for row in rollup.calls}
    listed = (*columns.MODEL_CALLS, *columns.CALL_OVERLAY[1:])
    for call in sorted(_calls(fold), key=_place("call_key")):
        yield row_shown(key, listed, {**call, **laid[call["call_key"]]})


def _tool_calls(key: SessionKey, fold: SessionFold) -> Iterator[Row]:
    tools = [tool for turn in fold.turns for tool in turn.tools] + fold.tools
    for tool in sorted(tools, key=_place("tool_key")):
        yield row_shown(key, columns.TOOL_CALLS, tool)


def _point(key: SessionKey, table: str, row: Row) -> Row:
    shown = row_shown(key, (*columns.POINT_COMMON, *columns.POINT_TABLES[table]), row)
    place = {name: row[name] for name in POINT_KEY}
    return {"tenant": shown.pop("tenant"), "session_id": shown.pop("session_id"), **place, **shown}


def _item(key: SessionKey, homes: Homes, row: Row) -> Row:
    content = row["content"]
    called = row["item_type"] == "tool_call"
    return {
        **_point(key, ITEMS_TABLE, row),
        "call_id": row["tool_call_id"],
        "turn_key": homes.of(row),
        "content": None if called else content,
        "arguments": content if called else None,
    }


def _response(key: SessionKey, homes: Homes, row: Row) -> Row:
    return {
        **_point(key, RESPONSES_TABLE, row),
        "call_id": row["tool_call_id"],
        "turn_key": homes.of(row),
    }


class Homes:
    """Which turn a row names: by its ``turn_id``, else its ``turn_index``, else its model call, each where it means one turn alone."""

    def __init__(self, fold: SessionFold) -> None:
        self._by_id: dict[str, set[str]] = defaultdict(set)
        self._by_index: dict[int, set[str]] = defaultdict(set)
        self._by_call: dict[str, set[str]] = defaultdict(set)
        for one in fold.turns:
            turn = one.turn
            if turn.turn_id is not None:
                self._by_id[turn.turn_id].add(turn.key)
            if turn.turn_index is not None:
                self._by_index[turn.turn_index].add(turn.key)
            for call in one.calls:
                if call["model_call_id"] is not None:
                    self._by_call[call["model_call_id"]].add(turn.key)

    def of(self, row: Row) -> str | None:
        """The ``turn_key``; None where only its place among the events tells its turn."""
        if row["turn_id"] is not None:
            return _only(self._by_id.get(row["turn_id"]))
        if row["turn_index"] is not None:
            return _only(self._by_index.get(row["turn_index"]))
        return None if row["model_call_id"] is None else _only(self._by_call.get(row["model_call_id"]))


def _only(keys: set[str] | None) -> str | None:
    return next(iter(keys)) if keys is not None and len(keys) == 1 else None


def _gap(key: SessionKey, gap: Row) -> Row:
    return {"tenant": key[0], "session_id": key[1], **gap}


def _usage_hourly(keys: Iterable[SessionKey], rollups: Mapping[SessionKey, SessionRollup]) -> list[Row]:
    return hourly_rows({key: rollups[key].hour_parts for key in keys})


def hourly_rows(hour_parts: Mapping[SessionKey, Sequence[Row]]) -> list[Row]:
    """``usage_hourly`` from the rows of ``columns.HOUR_PARTS`` of all sessions."""
    parts: dict[str, list[tuple[str, Row]]] = defaultdict(list)
    for (tenant, session_id), own in hour_parts.items():
        parts[tenant].extend((session_id, part) for part in own)
    return [
        {"tenant": tenant, **_cells(columns.USAGE_HOURLY, row)}
        for tenant in sorted(parts, key=str.encode)
        for row in hourly(parts[tenant])
    ]


def findings_of(
    found: Deduped,
    folds: Mapping[SessionKey, SessionFold],
    rollups: Mapping[SessionKey, SessionRollup],
    others: Mapping[SessionKey, Sequence[Row]],
) -> list[Row]:
    """Grouped by session and check. A dead letter whose session could not be read stands under null."""
    single: dict[tuple[str | None, str | None], list[Row]] = defaultdict(list)
    for key, fold in folds.items():
        for turn in fold.turns:
            single[key].extend(turn.findings)
        single[key].extend([*fold.findings, *others.get(key, ()), *rollups[key].findings])
    for conflict in sorted(found.conflicts, key=_conflict_place):
        row = {name: conflict[name] for name in (*POINT_KEY, "kept_sha256", "lost_sha256")}
        single[(conflict["tenant"], conflict["session_id"])].append(
            {"check": "conflict", "severity": "error", "row": row}
        )
    for letter in sorted(found.dead_letters, key=_dead_place):
        row = {name: letter[name] for name in ("position", "reason", "field", "detail")}
        single[(letter["tenant"], letter["session_id"])].append(
            {"check": "dead_letter", "severity": "error", "row": row}
        )
    for place, redactions in _by_session(found.redactions).items():
        rows = [
            {name: row[name] for name in (*POINT_KEY, "redactions")}
            for row in sorted(redactions, key=_redacted_place)
        ]
        single[place].extend(redacted_at_ingest(rows[:MOST_REDACTIONS], len(rows)))
    return [group for key in sorted(single, key=key_order) for group in grouped(key[0], key[1], single[key])]


# --- helpers of the above ---------------------------------------------------------------------------------------------------------


def row_shown(key: SessionKey, listed: Sequence[columns.Column], row: Row) -> Row:
    """A row as readers see it, under its session."""
    return {"tenant": key[0], "session_id": key[1], **_cells(listed, row)}


def _cells(listed: Sequence[columns.Column], row: Row) -> Row:
    """What readers see of a row, instants as text."""
    return {
        name: utc_text(row[name]) if kind == "ts" and row[name] is not None else row[name]
        for name, kind in listed
        if name not in columns.HIDDEN
    }


def _owner_in(owner: Callable[[str, str], str], session_id: str) -> Callable[[str], str]:
    return lambda call_key: owner(session_id, call_key)


def _disputed(fold: SessionFold, conflicts: Sequence[Row]) -> frozenset[str]:
    """A conflict belongs to the kept event's turn (contract 13)."""
    places = {tuple(conflict[name] for name in POINT_KEY) for conflict in conflicts}
    if not places:
        return frozenset()
    return frozenset(
        turn.turn.key
        for turn in fold.turns
        if any(event_key(event)[2:] in places for event in turn.turn.events)
    )


def _by_session(rows: Iterable[Row]) -> Mapping[tuple[str | None, str | None], list[Row]]:
    groups: dict[tuple[str | None, str | None], list[Row]] = defaultdict(list)
    for row in rows:
        groups[(row["tenant"], row["session_id"])].append(row)
    return groups


def _by_key(item: tuple[SessionKey, object]) -> tuple[tuple[bool, bytes], ...]:
    return key_order(item[0])


def key_order(key: Iterable[str | None]) -> tuple[tuple[bool, bytes], ...]:
    """Text by its UTF-8 bytes, null first."""
    return tuple((text is not None, (text or "").encode()) for text in key)


def _conflict_place(row: Row) -> tuple[Any, ...]:
    seq = row["seq"]
    return (
        key_order((row["tenant"], row["session_id"], row["producer"])),
        row["epoch"],
        key_order((row["stream"],)),
        (seq is not None, seq or 0),
        key_order((row["receipt_key"], row["lost_sha256"])),
    )


def _redacted_place(row: Row) -> tuple[Any, ...]:
    seq = row["seq"]
    return (
        row["producer"].encode(),
        row["epoch"],
        row["stream"].encode(),
        (seq is not None, seq or 0),
        key_order((row["receipt_key"],)),
    )


def _dead_place(row: Row) -> tuple[Any, ...]:
    return key_order((row["tenant"], row["session_id"])), row["position"]


def _place(key: str) -> Callable[[Row], tuple[bytes, bytes]]:
    return lambda row: (row["order_key"] or b"", row[key].encode())


def _without(row: Row, names: frozenset[str]) -> Row:
    return {name: value for name, value in row.items() if name not in names}
