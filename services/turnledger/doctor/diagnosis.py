"""Why a session stopped where it did, what worked, what did not, and what a rule advises. Pure: every sentence quotes evidence, and there is none without.

The root cause is one paragraph put together from what is known: where it stopped, what failed before it and in which words, which steps never
happened, and how complete the ledger is. What is not known is said as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from turnledger.contract.times import parse_instant
from turnledger.doctor.conversation import ASST
from turnledger.doctor.findings import Finding, Reason
from turnledger.doctor.line import begin, one_line
from turnledger.doctor.outcomes import WAITING, Calls, Tools, Turns
from turnledger.doctor.reconcile import Counted, Reconciled
from turnledger.doctor.witness import Artifact, Mishap, Some, Witness

Row = dict[str, Any]

QUOTED = 400
"""Characters of somebody's own words that are quoted."""
MISSED = WAITING
"""Steps that never happened and are listed: of more the number."""
MANY_RATE_LIMITS = 3
"""Rate limits of one session from which on they are no accident."""

WHY: Final = {
    "failed": "its turn failed",
    "interrupted": "its turn was interrupted",
    "limit": "a limit was reached",
    "tool_pending": "a tool that was asked for never answered",
    "answered": "it gave its answer",
    "text_without_tool_call": "the assistant answered in text and asked for no tool",
    "unknown": "the ledger does not tell why",
}
"""``stop.why`` of contract 10 in words."""


@dataclass(frozen=True)
class Case:
    """Everything that is known of a session."""

    session: Row
    """Of ``turnledger.sessions``; empty before the rollup worker saw it."""
    turns: Turns
    tools: Tools
    calls: Calls
    gaps: Sequence[Row]
    witness: Witness
    reasons: Sequence[tuple[Finding, Reason]] = ()
    """The ledger's findings, the gravest first, and what the doctor says of each."""
    counts: Counted | None = None
    """None before the rollup worker saw it."""
    reconciled: Reconciled | None = None


@dataclass(frozen=True)
class Diagnosis:
    """The section of that name."""

    worked: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    root_cause: str = ""
    never_happened: list[str] = field(default_factory=list)


def diagnose(case: Case) -> Diagnosis:
    """What the evidence says."""
    missing = list(never_happened(case))
    number = len(missing) + case.tools.waiting.count - len(case.tools.waiting.first)
    told = missing[:MISSED]
    if number > MISSED:
        told.append(f"… and {number - MISSED:,} more; `turnledger sessions check` has all")
    return Diagnosis(list(_worked(case)), list(_failed(case)), _root_cause(case, missing, number), told)


# --- what worked, what did not ----------------------------------------------------------------------------------------------------


def _worked(case: Case) -> Iterator[str]:
    if case.turns.completed:
        yield f"{case.turns.completed} of {case.turns.count} turns ended as completed"
    if case.calls.completed:
        yield f"{case.calls.completed} of {case.calls.count} model calls were answered"
    names = case.tools.succeeded
    if names:
        told = ", ".join(f"{one_line(name)} {number}" for name, number in sorted(names.items()))
        yield f"{names.total()} of {case.tools.count} tool calls succeeded ({told})"
    for artifact in case.witness.artifacts.values():
        if artifact.present and not artifact.unwanted:
            yield f"{one_line(artifact.path)} was there when it was looked for"


def _failed(case: Case) -> Iterator[str]:
    witness = case.witness
    yield from _told(witness.tool_errors, "tool {what} failed: “{words}”")
    yield from _told(witness.denials, "tool {what} was {words}")
    yield from _told(witness.blocks, "guard {what} blocked: {words}")
    yield from _told(witness.call_failures, "a model call failed ({what}): {words}")
    for limit in witness.limits.first:
        yield f"limit {_limit(limit)}{_when(limit['turn'], limit['at'])}"
    if witness.limits.count > len(witness.limits.first):
        yield f"… and {witness.limits.count - len(witness.limits.first):,} more limits"
    unwell = case.turns.unwell
    for turn in unwell.first:
        said = _turn_error(turn)
        yield f"turn {one_line(turn['turn_key'])} {turn['status']}{f': “{said}”' if said else ''}"
    if unwell.count > len(unwell.first):
        yield f"… and {_n(unwell.count - len(unwell.first), 'more turn')}"
    for number, code in sorted((number, code) for code, number in witness.exits.items()):
        yield f"{_n(number, 'process', 'processes')} ended with exit code {code}"
    for artifact in witness.artifacts.values():
        if artifact.missing:
            yield f"{one_line(artifact.path)} was expected and not there"
        elif artifact.unwanted:
            yield f"{one_line(artifact.path)} was there and was not to be"


def _told(some: Some[Mishap], sentence: str) -> Iterator[str]:
    for one in some.first:
        yield _say(one, sentence) + _when(one.turn, one.at)
    if some.count > len(some.first):
        yield f"… and {some.count - len(some.first):,} more of that kind"


def _say(one: Mishap, sentence: str) -> str:
    return sentence.format(what=one_line(one.what), words=begin(one.words, QUOTED))


def never_happened(case: Case) -> Iterator[str]:
    """Steps that the evidence expects and that no event shows; of tool calls the first few that wait."""
    for tool in case.tools.waiting.first:
        asked = "" if tool["requested_at"] is None else f", asked for at {_clock(tool['requested_at'])}"
        yield f"no result of tool {one_line(tool['tool_name'])}{asked}"
    for artifact in case.witness.artifacts.values():
        if artifact.missing:
            seen = "a change of it was seen" if artifact.written else "no change of it was seen"
            if not case.witness.types["fs.changed"]:
                seen = "nothing here watches files"
            yield f"{one_line(artifact.path)} was not written: {seen}"
    last = case.turns.last
    if last is not None:
        for slot in _record(last).get("missing_required_slots") or ():
            yield f"the required slot {one_line(slot)} was never filled"
        if last["status"] == "abandoned":
            yield f"no end of turn {one_line(last['turn_key'])}"
    if case.calls.started:
        yield f"no answer of {_n(case.calls.started, 'model call')}"
    if case.session.get("status") == "running" and last is not None and last["status"] != "open":
        yield "no end of the session: it is running, or its end was never told"


# --- the root cause ---------------------------------------------------------------------------------------------------------------


def _root_cause(case: Case, missing: Sequence[str], number: int) -> str:
    """One paragraph. ``number`` steps never happened, of which the first few are ``missing``."""
    if not case.witness.events and case.session.get("detail") == "vacuumed":
        return "The events of this session were let go of by a vacuum: its sums stand, and what happened in it is not known any more."
    if not case.witness.events:
        return "The ledger holds no events of this session, so that nothing can be said of it."
    return " ".join(
        filter(None, (_where(case), _before(case), _undone(missing, number), _ended(case), _complete(case)))
    )


def _where(case: Case) -> str:
    witness = case.witness
    last = f"the last event is {begin(witness.last_as_line(), QUOTED)}"
    turn = case.turns.last
    if turn is None:
        return f"The session has no turn; {last}."
    why = turn["stop_why"] or "unknown"
    words = WHY.get(why, one_line(why))
    if why == "limit" and witness.limits.last is not None:
        words = f"limit {_limit(witness.limits.last)}"
    elif why == "tool_pending":
        waiting = case.tools.waiting_at_the_end
        if waiting is not None:
            words = f"tool {one_line(waiting['tool_name'])} was asked for and never answered"
    elif why == "failed":
        said = _turn_error(turn)
        words = f"its turn failed{f' with “{said}”' if said else ', and nobody said why'}"
    elif (
        why == "text_without_tool_call"
        and witness.last_line is not None
        and witness.last_line.code == ASST
        and witness.last_line.text
    ):
        words += f" (“{begin(witness.last_line.text, 160)}”)"
    verb = "stands" if turn["status"] == "open" else "stopped"
    return f"The session {verb} in turn {one_line(turn['turn_key'])} ({turn['status']}): {words}; {last}."


def _before(case: Case) -> str:
    """The nearest thing that went wrong, which is not the cause by being the nearest: it is said as what it is."""
    witness = case.witness
    kinds = (
        (witness.tool_errors, "tool {what} failed with “{words}”"),
        (witness.denials, "tool {what} was {words}"),
        (witness.blocks, "guard {what} blocked with “{words}”"),
        (witness.call_failures, "a model call to {what} failed with “{words}”"),
    )
    found = [(some.last, sentence, some.count) for some, sentence in kinds if some.last is not None]
    if not found:
        return "Nothing failed before it: no tool error, denial, guard block or failed model call is in the ledger."
    one, sentence, number = max(found, key=lambda each: each[0].place)
    others = f" (one of {number} of that kind)" if number > 1 else ""
    after = witness.last_tool_asked
    went_on = ", and work went on after it" if after is not None and after.place > one.place else ""
    return f"The last thing that went wrong before it: {_say(one, sentence)}{_when(one.turn, one.at)}{others}{went_on}."


def _undone(missing: Sequence[str], number: int) -> str:
    if not missing:
        return ""
    more = f", and {number - 5} more" if number > 5 else ""
    return f"What never happened: {'; '.join(missing[:5])}{more}."


def _ended(case: Case) -> str:
    ended = case.witness.outcomes.get("session.ended")
    if ended is None:
        return ""
    code = f", exit code {one_line(ended['exit_code'])}" if ended["exit_code"] is not None else ""
    return f"The session ended as {one_line(ended['status'] or 'unknown')}{code}."


def _complete(case: Case) -> str:
    opened = [gap for gap in case.gaps if gap["state"] in ("open", "fragmented")]
    if opened:
        first = opened[0]
        more = f" and {len(opened) - 1} more ranges" if len(opened) > 1 else ""
        return (
            f"Not all of it is here: {first['producer']}/{first['stream']} lacks the numbers {first['from_seq']} to {first['to_seq']}{more}, "
            "and what happened there is not known."
        )
    grade = case.session.get("grade")
    if grade is None:
        return ""
    return (
        "The ledger is complete."
        if grade == "complete"
        else f"The ledger's grade is {grade}: see the findings."
    )


# --- validation, advice, verdict --------------------------------------------------------------------------------------------------


def output_written(artifacts: Sequence[Artifact]) -> str:
    """yes, no with the paths, or N/A where nobody looked."""
    looked = [one for one in artifacts if one.present is not None and one.expected is not False]
    if not looked:
        return "N/A"
    absent = [one_line(one.path) for one in looked if one.missing]
    if not absent:
        return f"yes ({', '.join(one_line(one.path) for one in looked[:5])})"
    return f"no ({', '.join(absent[:5])})"


def reports(artifacts: Sequence[Artifact]) -> list[Artifact]:
    """Files that call themselves reports."""
    return [one for one in artifacts if "report" in one.path.lower()]


def completed(case: Case) -> str:
    """Whether the session came to its end, by what was told of it."""
    status = case.session.get("status")
    if status is None:
        return "N/A"
    ended = case.witness.outcomes.get("session.ended")
    if ended is None:
        return f"no ({one_line(status)}: no end was told)"
    code = ended["exit_code"]
    told = one_line(ended["status"] or "unknown") + (
        f", exit code {one_line(code)}" if code is not None else ""
    )
    good = ended["status"] in ("stopped", "completed", "ended") and code in (None, 0)
    return f"{'yes' if good else 'no'} ({told})"


def speed(case: Case) -> str:
    """Output tokens a second over the calls that tell both, and how long the turns took."""
    turns, calls = case.turns, case.calls
    parts = []
    if calls.timed:
        rate = calls.output_tokens * 1000 / calls.latency_ms
        parts.append(f"{rate:.1f} output tokens/s over {calls.timed} of {calls.count} calls")
    if turns.timed:
        parts.append(f"{turns.spent_ms / 1000:.1f} s in {turns.timed} of {turns.count} turns")
    if not parts:
        return "N/A"
    return f"{'yes' if calls.timed and turns.timed else 'in part'} ({'; '.join(parts)})"


def mismatch(found: Reconciled | None) -> str:
    """Whether log and metrics differ, and the first reason of each that does."""
    if found is None:
        return "N/A"
    differ = [row for row in found.rows if row.match is False]
    if not differ and not found.differs:
        compared = any(row.match for row in found.rows if row.prometheus is not None)
        return "no" if compared else "N/A (no data)"
    told = [f"{row.figure}: {row.why[0]}" if row.why else row.figure for row in differ]
    told += [f"tool {one_line(row.figure)} differs" for row in found.tools if row.match is False]
    told += [f"does not hold: {what}" for what, holds in found.checks if holds is False]
    return f"yes ({'; '.join(told)})"


def instruction_issues(case: Case) -> str:
    """Instructions that the evidence shows as not followed; N/A where nothing that could show it was watched."""
    witness = case.witness
    found = []
    if witness.denials:
        found.append(f"{_n(witness.denials.count, 'tool call')} asked for what was denied")
    if witness.blocks:
        found.append(_n(witness.blocks.count, "guard block"))
    absent = [one_line(one.path) for one in witness.artifacts.values() if one.missing]
    if absent:
        found.append(f"expected and not written: {', '.join(absent[:5])}")
    unwanted = [one_line(one.path) for one in witness.artifacts.values() if one.unwanted]
    if unwanted:
        found.append(f"there and not to be: {', '.join(unwanted[:5])}")
    slots = None if case.turns.last is None else _record(case.turns.last).get("missing_required_slots")
    if slots:
        found.append(f"required slots not filled: {', '.join(one_line(slot) for slot in slots[:5])}")
    if found:
        return "; ".join(found)
    watched = witness.types["guard.evaluated"] or witness.artifacts or witness.types["state.observed"]
    return "none seen" if watched else "N/A"


def recommendations(case: Case) -> Iterator[tuple[str, str]]:
    """(advice, the rule that backs it). None without a rule."""
    witness = case.witness
    for rule, number in sorted(witness.denied_by.items()):
        yield (
            f"Tell the agent what it may not do, or allow it: {_n(number, 'call')} {rule}.",
            "tool_call.denied",
        )
    for limit in witness.limits.first[-1:]:
        yield f"Raise the limit, or give the task in smaller parts: {_limit(limit)}.", "limit.reached"
    if witness.error_classes["rate_limit"] >= MANY_RATE_LIMITS:
        yield (
            f"Slow down or ask for a higher rate: {_n(witness.error_classes['rate_limit'], 'model call')} refused for the rate.",
            "model_call.failed rate_limit",
        )
    if witness.error_classes["auth"]:
        yield (
            f"Check the credentials: {_n(witness.error_classes['auth'], 'model call')} refused for them.",
            "model_call.failed auth",
        )
    for artifact in witness.artifacts.values():
        if artifact.missing:
            yield (
                f"Look into why {one_line(artifact.path)} was never written before the work is taken as done.",
                "artifact.checked",
            )
    if case.reconciled is not None:
        for row in case.reconciled.rows:
            if row.match is False and row.why and "jobs export this session" in row.why[0]:
                yield f"Scrape a session by one job: {row.figure} is exported by several.", "reconcile"
            elif row.match is False and row.why and "does not set the label" in row.why[0]:
                yield f"Let the exporter set the session's label on {row.figure}.", "reconcile"
    for finding, reason in case.reasons:
        if finding.severity in ("error", "warning"):
            yield f"{reason.next.rstrip('.')[:1].upper()}{reason.next.rstrip('.')[1:]}.", finding.check


# --- words ------------------------------------------------------------------------------------------------------------------------


def _n(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def _limit(limit: Row) -> str:
    name = one_line(limit["limit"] or "of an unknown kind")
    if limit["value"] is None and limit["threshold"] is None:
        return f"{name} was reached"
    return f"{name} was reached ({one_line(limit['value'])} of {one_line(limit['threshold'])})"


def _record(turn: Row) -> Row:
    """The record of a turn; empty where a vacuum took it."""
    return turn.get("record") or {}


def _turn_error(turn: Row) -> str | None:
    errors = _record(turn).get("errors") or []
    for error in reversed(errors):
        words = " ".join(
            one_line(error[name])
            for name in ("error_class", "status_code", "message", "error")
            if error.get(name) is not None
        )
        if words:
            return begin(words, QUOTED)
    return None


def _when(turn: str | None, at: str | None) -> str:
    named = ", ".join(
        filter(None, (None if turn is None else f"turn {one_line(turn)}", None if at is None else _clock(at)))
    )
    return f" ({named})" if named else ""


def _clock(instant: str) -> str:
    known = parse_instant(instant)
    return one_line(instant) if known is None else instant.partition(".")[0].rstrip("Z") + "Z"
