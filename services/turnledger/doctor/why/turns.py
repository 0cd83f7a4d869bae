"""Reasons of the checks about turns: which have no start, no end, or no clear place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnledger.doctor.findings import Evidence, Explain, Finding, Reason, Row, plural, some


def turn_open_in_ended_session(finding: Finding, evidence: Evidence) -> Reason:
    turns = _turns(finding, evidence)
    startless = sum(turn["started_at"] is None for turn in turns)
    return Reason(
        f"{plural(finding.count, 'turn')} ({_keys(finding)}) never ended although {evidence.life()}; last heard: {_last(turns)}"
        + (
            f"; {startless} without a start, so that the session's end could not close {'it' if startless == 1 else 'them'}"
            if startless
            else ""
        ),
        _holes(evidence) or "look at the last event of the turn: the harness stopped there without saying so",
    )


def turn_without_start(finding: Finding, evidence: Evidence) -> Reason:
    starts = evidence.has("turn.started")
    told = (
        f"turn.started came {plural(starts, 'time')} for other turns"
        if starts
        else "no turn.started ever came: this harness may not tell starts"
    )
    rules = some(turn["assigned_by"] for turn in _turns(finding, evidence))
    return Reason(
        f"{plural(finding.count, 'turn')} ({_keys(finding)}) had work and no start; {told}; the events were put there by {rules}",
        _holes(evidence)
        or "if the producer joined late, its first events were never sent: send the stream again from its beginning",
    )


def turn_without_end(finding: Finding, evidence: Evidence) -> Reason:
    turns = _turns(finding, evidence)
    abandoned = sum(turn["status"] == "abandoned" for turn in turns)
    # A turn is given up where its session ended, or where another one began in its stream: without an end of the session it is the second.
    why = (
        f"{evidence.life()}, or another turn began in the same stream"
        if evidence.ends()
        else "another turn began in the same stream before its end"
    )
    ends = evidence.has("turn.completed")
    return Reason(
        f"{plural(finding.count, 'turn')} ({_keys(finding)}) got no end, {abandoned} of them abandoned: {why}; "
        f"last heard: {_last(turns)}; "
        + (
            f"turn.completed came {plural(ends, 'time')} for other turns"
            if ends
            else "no turn.completed ever came"
        ),
        _holes(evidence)
        or "the tool or call that the turn waited for is its last event; after a crash this is what is left",
    )


def turn_index_ambiguous(finding: Finding, evidence: Evidence) -> Reason:
    row = finding.rows[0]
    return Reason(
        f"index {row['turn_index']} is carried by {plural(len(row['turn_ids']), 'turn')} ({some(row['turn_ids'])}), so events with the "
        f"index alone stand in a turn of their own ({row['turn_key']})"
        + (f", {plural(finding.count, 'such index', 'such indexes')}" if finding.count > 1 else ""),
        "have the producer send turn_id with every event; the index counts again after a restart or a fork",
    )


def turn_two_indexes(finding: Finding, evidence: Evidence) -> Reason:
    row = finding.rows[0]
    return Reason(
        f"turn {row['turn_key']} carries the indexes {some(row['turn_indexes'])}: the first in order is shown, both belong to it ({evidence.life()})",
        "the producer counted the turn anew within it, as some do after a compaction or a retry",
    )


def fork_cycle(finding: Finding, evidence: Evidence) -> Reason:
    parents = some(row["parent_session_id"] for row in finding.rows)
    return Reason(
        f"{evidence.session_id} descends from {parents}, which descends from it: that edge counts as none, so who owns the calls they share "
        f"is decided by time and id",
        f"`turnledger sessions show` of {parents}: one of the two `session.forked` (or parent_session_id) names the wrong session",
    )


def _turns(finding: Finding, evidence: Evidence) -> list[Row]:
    return [
        evidence.turns[key]
        for row in finding.rows
        if (key := row.get("turn_key")) is not None and key in evidence.turns
    ]


def _keys(finding: Finding) -> str:
    return some(row["turn_key"] for row in finding.rows)


def _last(turns: Sequence[Row]) -> str:
    """After which event the turns stopped, and why as far as their records know."""
    stops = [turn["stop"] or {} for turn in turns]
    return some(f"{stop.get('why', 'unknown')} after {_event(stop.get('last_event'))}" for stop in stops)


def _event(value: object) -> object:
    return value.get("type") if isinstance(value, dict) else value


def _holes(evidence: Evidence) -> str | None:
    gaps = sum(stream["open_gaps"] or 0 for stream in evidence.streams)
    if gaps:
        return f"look into {plural(gaps, 'open gap')} first (check open_gap): what is missing here may be what never came"
    if evidence.dead_letters:
        return f"`turnledger dead list --session {evidence.name}` first: {plural(evidence.dead_letters, 'record')} could not be read"
    return None


REASONS: Final[dict[str, Explain]] = {
    "turn_open_in_ended_session": turn_open_in_ended_session,
    "turn_without_start": turn_without_start,
    "turn_without_end": turn_without_end,
    "turn_index_ambiguous": turn_index_ambiguous,
    "turn_two_indexes": turn_two_indexes,
    "fork_cycle": fork_cycle,
}
