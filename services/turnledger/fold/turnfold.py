"""Owns the fold of one turn: its events in, its record, digest and rows out. The hot path.

Pure: the result is a function of the turn's events and the ``TurnContext``. ``fold_turns`` does a whole session, by the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from turnledger.contract.event import Event
from turnledger.contract.times import utc_text
from turnledger.contract.types import wrong_fields
from turnledger.fold.calls import (
    CALL_TYPES,
    Call,
    Sighting,
    TurnCalls,
    call_row,
    count_retries,
    resolve_calls,
    resolve_turn,
)
from turnledger.fold.columns import BUCKETS
from turnledger.fold.context import TurnContext
from turnledger.fold.fields import finding, text
from turnledger.fold.model import NO_THREADS, Row, Threads, Turn, TurnFold, UsagePart
from turnledger.fold.order import order_key
from turnledger.fold.providers import unexplained_traffic
from turnledger.fold.quick import quick_calls, quick_tools
from turnledger.fold.record import (
    SCHEMA_VERSION,
    Scan,
    add_notes,
    call_entry,
    canonical,
    context_of,
    duration_of,
    enclosed,
    grade_of,
    has_usage_gap,
    report_wrong,
    stop_why,
    tool_entry,
    user_input,
)
from turnledger.fold.tools import TOOL_TYPES, Placed, pair_tools, pairing_of, tool_row
from turnledger.fold.usage import (
    NO_BUCKETS,
    Buckets,
    Contribution,
    Measured,
    add,
    buckets,
    climb_turn,
    convention_of,
    merged,
    settle,
)


@dataclass(slots=True)
class LooseFold:
    """What the events outside every turn mean (contract 11: rows whose ``turn_key`` is None)."""

    calls: list[Row] = field(default_factory=list)
    tools: list[Row] = field(default_factory=list)
    parts: list[UsagePart] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)
    """{check, severity, row}."""


def fold_turn(turn: Turn, ctx: TurnContext) -> TurnFold:
    """Fold one turn (contract 8, 10, 11, 13). ``TurnFold.threads`` are the running usage values after it.

    Never changes ``turn``, its events or ``ctx``: a turn that is open is folded again each time it moves.
    """
    events = turn.events
    first = events[0]
    key = turn.key
    kind = first.kind
    completed = turn.completed
    scan = Scan(events)
    wrong = scan.wrong
    found: list[Row] = []

    quick = quick_calls(scan.call_events, key, kind) if ctx.calls is None else None
    if quick is not None:
        call_rows = quick.rows
        usage, parts = quick.usage, quick.parts
        unattributed, lower_bound = None, quick.lower_bound
        threads = ctx.threads
        if turn.started is not None and "provider_thread" in turn.started.payload:
            threads, _ = _climb(turn, TurnCalls(), ctx, found, wrong)
        if scan.mentioned:
            _mention_findings(scan.mentioned - quick.recorded, key, found)
        told: Sequence[Row] = ()
    else:
        for _, event in scan.call_events:
            report_wrong(event, wrong)
        own = ctx.calls.of(key) if ctx.calls is not None else resolve_turn(key, scan.call_events)
        threads, contributions = _climb(turn, own, ctx, found, wrong)
        settled = settle(own.calls, contributions, key, kind)
        usage, parts = settled.usage, settled.parts
        unattributed, lower_bound = settled.unattributed, settled.lower_bound
        found += settled.findings
        found += own.findings
        told = own.findings
        count_retries(own.calls)
        call_rows = [call_row(call, kind, wrong) for call in own.calls]
        _call_findings(own.calls, found)
        _mention_findings((scan.mentioned | own.mentioned) - own.recorded, key, found)
        if own.rollups:
            found += _rollup_findings(own.rollups, usage)

    tool_rows = quick_tools(scan.tool_events, key, kind, scan.end)
    if tool_rows is None:
        tool_rows = []
        for _, event in scan.tool_events:
            report_wrong(event, wrong)
        waiting = turn.status == "open"
        for tool in pair_tools(scan.tool_events, wrong):
            pairing = pairing_of(tool, scan.end, waiting)
            row = tool_row(tool, key, kind, pairing, wrong)
            tool_rows.append(row)
            if pairing == "missing_result" or pairing == "orphan_result":
                found.append(_tool_finding(row))

    if scan.requests and not call_rows and not parts:
        found += unexplained_traffic(scan.requests)

    started = turn.started
    gaps = enclosed(scan.spans, ctx.holes)
    whole = started is not None and (completed is not None or turn.status == "open")
    grade = grade_of(
        gaps, whole and not lower_bound, tool_rows, usage, bool(found) and has_usage_gap(found), ctx.counted
    )
    why = stop_why(turn.status, scan, tool_rows)
    started_at = started.at if started is not None else None
    completed_at = completed.at if completed is not None else None
    duration = duration_of(started_at, completed, wrong)
    seen = scan.seen

    record: Row = {
        "schema_version": SCHEMA_VERSION,
        "tenant": ctx.tenant,
        "session_id": ctx.session_id,
        "turn_key": key,
        "kind": kind,
        "status": turn.status,
        "assigned_by": turn.assigned_by,
        "stop": {"why": why, "last_event": scan.last_event} if scan.last_event else {"why": why},
        "model_calls": [call_entry(row, index) for index, row in enumerate(call_rows)],
        "round_trips": len(call_rows),
        "tool_calls": [tool_entry(row) for row in tool_rows],
        "usage": usage,
        "counts": {
            "events": len(events),
            "net": seen[5],
            "dns": seen[6],
            "fs": seen[7],
            "process": seen[8],
            "security": seen[9],
        },
        "seq_spans": scan.spans,
        "gaps": gaps,
        "grade": grade,
    }
    run_id = first.run_id
    if turn.turn_id is not None:
        record["turn_id"] = turn.turn_id
    if turn.turn_index is not None:
        record["turn_index"] = turn.turn_index
    if run_id is not None:
        record["run_id"] = run_id
    if started_at is not None:
        record["started_at"] = utc_text(started_at)
    if completed_at is not None:
        record["completed_at"] = utc_text(completed_at)
    duration_ms = None
    if duration is not None:
        duration_ms, record["duration_source"] = duration
        record["duration_ms"] = duration_ms
    said = user_input(started, scan)
    if said is not None:
        record["user_input"] = said
    if unattributed is not None:
        record["unattributed"] = unattributed
    context = context_of(call_rows, scan)
    if context is not None:
        record["context"] = context
    add_notes(record, completed, scan)

    body = canonical(record, scan)
    digest = sha256(body).hexdigest()
    if wrong:
        found += _once(wrong, told)
    for one in found:
        one["row"].setdefault("turn_key", key)
    flat: Row = {
        "turn_key": key,
        "turn_id": turn.turn_id,
        "turn_index": turn.turn_index,
        "kind": kind,
        "run_id": run_id,
        "status": turn.status,
        "assigned_by": turn.assigned_by,
        "started_at": started_at,
        "completed_at": completed_at,
        "duration_ms": duration_ms,
        "stop_why": why,
        "round_trips": len(call_rows),
        "tool_call_count": len(tool_rows),
        "event_count": len(events),
        "message_count": scan.message_count,
        "inherited": scan.inherited,
        "gap_count": len(gaps),
        "grade": grade,
        "input_uncached_tokens": usage["input_uncached"],
        "cache_read_tokens": usage["cache_read"],
        "cache_write_5m_tokens": usage["cache_write_5m"],
        "cache_write_1h_tokens": usage["cache_write_1h"],
        "cache_write_other_tokens": usage["cache_write_other"],
        "output_tokens": usage["output"],
        "reasoning_tokens": usage["reasoning"],
        "total_input_tokens": usage["total_input"],
        "usage_reported": usage["reported"],
        "usage_total": usage["total"],
        "order_key": turn.order_key,
    }
    return TurnFold(turn, record, body, digest, flat, call_rows, tool_rows, parts, found, threads)


def fold_loose(events: Sequence[Event], ctx: TurnContext) -> LooseFold:
    """Fold the events outside every turn, in the order of contract 5, where none of their claims is seen in a turn.

    ``ctx.threads`` is the value before the first of them. Right only where no loose event ``moves_threads`` or ``sums_session``; those need
    ``fold_turns``.
    """
    placed = [(index, event) for index, event in enumerate(events) if event.type in CALL_TYPES]
    own = ctx.calls.of(None) if ctx.calls is not None else resolve_turn(None, placed)
    _, contributions, findings = climb_turn(ctx.threads, own.cumulative, (), None)
    return _fold_loose(events, own, contributions, findings, ctx)


def fold_turns(
    turns: Sequence[Turn], loose: Sequence[Event], ctx: TurnContext
) -> tuple[list[TurnFold], LooseFold]:
    """Fold a whole session's turns (in the order of contract 7) and what stands outside them (in the order of contract 5).

    Resolves calls over the whole session, takes cumulative reports in the order of their turns' starts with those outside turns at their own
    place, and compares ``rollup`` reports. ``ctx.threads`` and ``ctx.calls`` are not looked at. Events need ``running`` set.
    """
    resolution = resolve_calls(turns, loose)
    outside = resolution.of(None)
    waiting = [(order_key(measured.event), measured) for measured in outside.cumulative]
    waiting.reverse()
    threads = NO_THREADS
    folds: list[TurnFold] = []
    contributions: list[Contribution] = []
    findings: list[Row] = []
    for turn in turns:
        if waiting:
            threads = _climb_outside(threads, waiting, turn.order_key, contributions, findings)
        fold = fold_turn(turn, replace(ctx, threads=threads, calls=resolution))
        threads = fold.threads
        folds.append(fold)
    if waiting:
        _climb_outside(threads, waiting, None, contributions, findings)
    result = _fold_loose(loose, outside, merged(contributions), findings, replace(ctx, calls=resolution))
    of_session = [sighting for sighting, call in outside.rollups if call is None]
    if of_session:
        total = _session_usage([*(part for fold in folds for part in fold.parts), *result.parts])
        for sighting in of_session:
            result.findings += _compared(sighting, total)
    return folds, result


def advance(threads: Threads, turn: Turn, ctx: TurnContext) -> Threads:
    """The running usage values after a turn: what ``fold_turn(turn, …).threads`` says, without the rest. Values compare with ``==``."""
    placed = [(index, event) for index, event in enumerate(turn.events) if event.type in CALL_TYPES]
    own = ctx.calls.of(turn.key) if ctx.calls is not None else resolve_turn(turn.key, placed)
    return _climb(turn, own, replace(ctx, threads=threads), [], [])[0]


def moves_threads(event: Event) -> bool:
    """A cumulative usage report: later turns start from what it says (contract 8, Counters)."""
    return event.payload.get("counter_kind") == "cumulative" and event.type in CALL_TYPES


def sums_session(event: Event) -> bool:
    """A sum of other reports: outside turns it is compared with the whole session."""
    return event.payload.get("counter_kind") == "rollup" and event.type in CALL_TYPES


# Usage


def _climb(
    turn: Turn, own: TurnCalls, ctx: TurnContext, found: list[Row], wrong: list[Row]
) -> tuple[Threads, list[Contribution]]:
    """Take the turn's running totals over the values before it."""
    started = turn.started
    named: Iterable[str] = own.threads
    if started is not None and "provider_thread" in started.payload:
        thread = text(started, "provider_thread", wrong)
        if thread is not None:
            named = {*own.threads, thread}
    if not own.cumulative and not named:
        return ctx.threads, []
    threads, contributions, findings = climb_turn(
        ctx.threads, own.cumulative, named, turn.completed is not None
    )
    found += findings
    return threads, contributions


def _climb_outside(
    threads: Threads,
    waiting: list[tuple[bytes, Measured]],
    before: bytes | None,
    contributions: list[Contribution],
    findings: list[Row],
) -> Threads:
    """Take the running totals outside turns whose place is before the next turn's start. ``waiting``: the next one last."""
    here: list[Measured] = []
    while waiting and (before is None or waiting[-1][0] < before):
        here.append(waiting.pop()[1])
    if not here:
        return threads
    threads, more, gaps = climb_turn(threads, here, (), None)
    contributions += more
    findings += gaps
    return threads


def _rollup_findings(rollups: Iterable[tuple[Sighting, Call | None]], usage: Row) -> list[Row]:
    """Compare sums of other reports with the call that they name, else with their turn."""
    turn = tuple(usage[name] for name in BUCKETS)
    found: list[Row] = []
    for sighting, call in rollups:
        found += _compared(sighting, turn if call is None else call.values)
    return found


def _compared(sighting: Sighting, ours: Buckets) -> list[Row]:
    report = sighting.report
    assert report is not None
    theirs, _ = buckets(report.raw, convention_of(report, sighting.provider))
    differs = {
        name: {"rollup": their, "sum": our}
        for name, their, our in zip(BUCKETS, theirs, ours, strict=True)
        if their is not None and our is not None and their != our
    }
    if not differs:
        return []
    return [finding("usage_rollup_differs", "warning", sighting.event, differs=differs)]


def _session_usage(parts: Iterable[UsagePart]) -> Buckets:
    total: Buckets = NO_BUCKETS
    for part in parts:
        if not part.inherited_event:
            total = add(total, tuple(part.usage[name] for name in BUCKETS))
    return total


# Findings


def _call_findings(calls: Sequence[Call], found: list[Row]) -> None:
    for call in calls:
        if call.status == "failed":
            continue
        if call.model is None:
            found.append(finding("null_model", "warning", call.first, call_key=call.key))
        if not call.reported and call.counts:
            found.append(
                finding(
                    "null_tokens",
                    "warning",
                    call.first,
                    call_key=call.key,
                    model_call_id=call.model_call_id,
                )
            )


def _mention_findings(names: set[str], turn_key: str | None, found: list[Row]) -> None:
    """A ``model_call_id`` that no event of a call in the same turn has."""
    for name in sorted(names, key=str.encode):
        found.append(finding("call_without_record", "info", None, turn_key=turn_key, model_call_id=name))


def _tool_finding(row: Row) -> Row:
    missing = row["pairing"] == "missing_result"
    return finding(
        "tool_missing_result" if missing else "tool_orphan_result",
        "warning",
        None,
        turn_key=row["turn_key"],
        tool_key=row["tool_key"],
        tool_call_id=row["call_id"],
        tool_name=row["tool_name"],
    )


def _once(wrong: Sequence[Row], known: Sequence[Row]) -> list[Row]:
    """Fields of a wrong type may be read twice and are reported once."""
    kept: list[Row] = []
    for one in wrong:
        if one not in kept and one not in known:
            kept.append(one)
    return kept


# Outside turns


def _fold_loose(
    events: Sequence[Event],
    own: TurnCalls,
    contributions: Sequence[Contribution],
    usage_findings: Sequence[Row],
    ctx: TurnContext,
) -> LooseFold:
    wrong: list[Row] = []
    found: list[Row] = [*usage_findings]
    mentioned: set[str] = set()
    requests: list[Event] = []
    by_trace: dict[str | None, list[Placed]] = {}
    for index, event in enumerate(events):
        kind = event.type
        if kind in TOOL_TYPES:
            by_trace.setdefault(event.trace_id, []).append((index, event))
        if kind not in CALL_TYPES and event.model_call_id is not None:
            mentioned.add(event.model_call_id)
        if wrong_fields(event):
            report_wrong(event, wrong)
        if kind == "net.requested" and not ctx.called:
            requests.append(event)
    calls = own.calls
    settled = settle(calls, contributions, None, None)
    found += settled.findings
    found += own.findings
    for call in calls:
        call.retries = call.retried  # "directly before in the turn": outside turns there is no such order
    call_rows = [call_row(call, call.first.kind, wrong) for call in calls]
    _call_findings(calls, found)
    _mention_findings((mentioned | own.mentioned) - own.recorded, None, found)
    found += _rollup_findings([one for one in own.rollups if one[1] is not None], settled.usage)
    tools: list[tuple[Placed, Row]] = []
    for trace in by_trace.values():
        for tool in pair_tools(trace, wrong):
            pairing = pairing_of(tool, None, ctx.running)
            tools.append((tool.first, tool_row(tool, None, None, pairing, wrong)))
    tools.sort(key=lambda one: one[0][0])
    tool_rows = [row for _, row in tools]
    found += [
        _tool_finding(row) for row in tool_rows if row["pairing"] in ("missing_result", "orphan_result")
    ]
    found += unexplained_traffic(requests)
    found += _once(wrong, own.findings)
    return LooseFold(call_rows, tool_rows, settled.parts, found)
