"""Owns usage (contract 8): reading a report, its buckets under each convention, ranks, counters and their running values.

Two kinds of figures leave this module: those of one call (``best_figures``) and contributions, what a cumulative counter adds to one turn
(``climb_turn``). ``settle`` says which of them stand, so that nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from turnledger.contract.event import Event
from turnledger.fold.columns import BUCKETS
from turnledger.fold.fields import (
    INT64_MAX,
    choice,
    count_of,
    finding,
    flag,
    place_key,
    text,
    wrong_type,
)
from turnledger.fold.model import Row, Running, Threads, UsagePart

if TYPE_CHECKING:
    from turnledger.fold.calls import Call

COUNTERS: Final = (
    "input",
    "output",
    "cache_read",
    "cache_write",
    "cache_write_5m",
    "cache_write_1h",
    "reasoning",
    "total",
)
"""A report's own counters, as the provider sent them: the places of a ``Raw``."""

Raw = tuple[int | None, ...]
"""One value per counter of ``COUNTERS``; None is unknown."""

Buckets = tuple[int | None, ...]
"""One value per bucket of ``columns.BUCKETS``: disjoint ones, then reasoning (inside output) and the total input."""

NO_FIGURES: Final[Raw] = (None,) * len(COUNTERS)
NO_BUCKETS: Final[Buckets] = (None,) * len(BUCKETS)

CONVENTIONS: Final = {
    "anthropic": "exclusive",
    "openai": "inclusive",
    "google": "inclusive_thoughts_separate",
}
"""The convention of a provider that a report without one is read by."""
KNOWN_CONVENTIONS: Final = frozenset(CONVENTIONS.values())

SOURCES: Final = {"response": 0, "event": 1, "transcript": 2, "estimate": 3}
"""Where a report comes from, best first."""
_KINDS: Final = frozenset(("per_call", "snapshot", "cumulative", "rollup"))

OUTPUT: Final = 5
TOTAL_INPUT: Final = 7


class Report:
    """One usage report as it was sent. Figures are raw; ``convention`` is what the report names, None when it names none."""

    __slots__ = (
        "convention",
        "final",
        "kind",
        "last",
        "raw",
        "source",
        "start_known",
        "stop_reason",
        "thread",
        "usage_stream",
    )

    def __init__(
        self, kind: str, raw: Raw, convention: str | None, source: str, final: bool, stop_reason: str | None
    ) -> None:
        self.kind = kind
        self.raw = raw
        self.convention = convention
        self.source = source
        self.final = final
        self.stop_reason = stop_reason
        self.last: Raw | None = None
        self.start_known: bool | None = None
        self.thread: str | None = None
        self.usage_stream: tuple[str, ...] = ()


class Measured:
    """An event with a report, and the provider and model that its call resolution gave it."""

    __slots__ = ("event", "model", "provider", "report")

    def __init__(self, event: Event, report: Report, provider: str | None, model: str | None) -> None:
        self.event = event
        self.report = report
        self.provider = provider
        self.model = model


def read_figures(event: Event, name: str, wrong: list[Row]) -> Raw | None:
    """The counters of a payload's ``usage`` or ``last``; None where it has no known one."""
    given = event.payload.get(name)
    if type(given) is not dict:
        if given is not None:
            wrong_type(event, name, wrong)
        return None
    get = given.get
    raw = (
        get("input"),
        get("output"),
        get("cache_read"),
        get("cache_write"),
        get("cache_write_5m"),
        get("cache_write_1h"),
        get("reasoning"),
        get("total"),
    )
    known = False
    for value in raw:
        if value is None:
            continue
        if type(value) is not int or not 0 <= value <= INT64_MAX:
            return _tolerant(event, name, raw, wrong)
        known = True
    return raw if known else None


def _tolerant(event: Event, name: str, raw: tuple[Any, ...], wrong: list[Row]) -> Raw | None:
    figures = tuple(count_of(value) for value in raw)
    for counter, value, figure in zip(COUNTERS, raw, figures, strict=True):
        if figure is None and value is not None:
            wrong_type(event, f"{name}.{counter}", wrong)
    return figures if any(figure is not None for figure in figures) else None


def read_report(event: Event, wrong: list[Row]) -> Report | None:
    """The report that an event carries; None where it has no known counter (contract 8: then it is no report)."""
    payload = event.payload
    raw = read_figures(event, "usage", wrong) if "usage" in payload else None
    if raw is None:
        return None
    kind = (
        choice(event, "counter_kind", _KINDS, wrong) or "per_call"
        if "counter_kind" in payload
        else "per_call"
    )
    source = choice(event, "source", SOURCES, wrong) if "source" in payload else None
    if source is None:
        source = "response" if type(payload.get("message_id")) is str and payload["message_id"] else "event"
    convention = text(event, "token_convention", wrong) if "token_convention" in payload else None
    final = event.type != "usage.reported" or bool(flag(event, "final", wrong))
    stop_reason = payload.get("stop_reason")
    report = Report(
        kind,
        raw,
        convention,
        source,
        final,
        stop_reason if type(stop_reason) is str and stop_reason else None,
    )
    if kind == "cumulative":
        report.last = read_figures(event, "last", wrong)
        report.start_known = flag(event, "start_known", wrong)
        report.usage_stream = usage_stream_of(event, wrong)
    if "provider_thread" in payload:
        report.thread = text(event, "provider_thread", wrong)
    return report


def usage_stream_of(event: Event, wrong: list[Row]) -> tuple[str, ...]:
    """The counter that a cumulative report is a value of: its name, or the stream of its producer (an epoch starts no new one)."""
    name = text(event, "usage_stream", wrong) or text(event, "provider_thread", wrong)
    return (name,) if name is not None else (event.producer, event.stream)


def convention_of(report: Report, provider: str | None) -> str:
    """``exclusive`` ``inclusive`` ``inclusive_thoughts_separate`` or ``unknown``; absent, the provider decides."""
    given = report.convention
    if given is None:
        return CONVENTIONS.get(provider, "unknown") if provider is not None else "unknown"
    return given if given in KNOWN_CONVENTIONS else "unknown"


def buckets(raw: Raw, convention: str) -> tuple[Buckets, bool]:
    """Raw counters as disjoint buckets, and whether one would have been negative (``usage_negative_bucket``).

    A sum beyond int64 is unknown: it has no column, and no provider sent it.
    Thoughts that nobody reported add nothing to an output that stands without them, as writes that nobody reported count as none.
    """
    input_, output, cache_read, cache_write, write_5m, write_1h, reasoning, _ = raw
    negative = False
    other = cache_write
    writes: int | None
    if write_5m is None and write_1h is None:
        writes = cache_write or 0
    else:
        lived = (write_5m or 0) + (write_1h or 0)
        writes = lived
        if cache_write is not None:
            other = cache_write - lived
            writes = cache_write
            if other < 0:
                other = writes = None
                negative = True
    uncached: int | None = None
    total: int | None = None
    if convention == "exclusive":
        uncached = input_
        if input_ is not None and cache_read is not None and writes is not None:
            total = input_ + cache_read + writes
            if total > INT64_MAX:
                total = None
    elif convention != "unknown":
        total = input_
        if input_ is not None and cache_read is not None and writes is not None:
            uncached = input_ - cache_read - writes
            if uncached < 0:
                uncached = None
                negative = True
        if convention == "inclusive_thoughts_separate" and output is not None:
            output += reasoning or 0
            if output > INT64_MAX:
                output = None
    return (uncached, cache_read, write_5m, write_1h, other, output, reasoning, total), negative


def rank(report: Report | None, has_message_id: bool, order: int) -> tuple[int, bool, int, int]:
    """Sort key of the reports of one call, best first: source, final, greatest output (null least), last in source order.

    A completion without figures ranks as the final report that it would be.
    """
    if report is None:
        return (0 if has_message_id else 1, False, 1, -order)
    output = report.raw[1]
    return (SOURCES[report.source], not report.final, 1 if output is None else -output, -order)


def filled(reports: Sequence[tuple[Report, str]]) -> Raw:
    """The best report's figures, each counter that it lacks from the next best of the same convention. Best first."""
    best, convention = reports[0]
    raw = best.raw
    for other, other_convention in reports[1:]:
        if None not in raw:
            break
        if other_convention == convention:
            raw = tuple(
                mine if mine is not None else theirs for mine, theirs in zip(raw, other.raw, strict=True)
            )
    return raw


def fidelity_of(report: Report | None, failed: bool) -> str:
    """``exact`` ``lower_bound`` ``estimated``, ``unknown`` without a report."""
    if report is None:
        return "unknown"
    if failed:
        return "lower_bound"
    if report.source == "estimate":
        return "estimated"
    if report.source == "transcript" and report.stop_reason is None:
        return "lower_bound"
    return "exact"


def usage_object(values: Buckets) -> Row:
    """Buckets as a ``usage`` object: names without ``_tokens`` (contract 17)."""
    return dict(zip(BUCKETS, values, strict=True))


def add(total: Buckets, values: Buckets) -> Buckets:
    """Sum per bucket; nulls are skipped, and a bucket that nobody reported stays null."""
    return tuple([b if a is None else a if b is None else a + b for a, b in zip(total, values, strict=True)])


def fitting(values: Buckets) -> Buckets:
    """A finished sum: a bucket beyond int64 is unknown. Only finished ones, or the answer would depend on the order of adding."""
    for value in values:
        if value is not None and value > INT64_MAX:
            return tuple([None if v is None or v > INT64_MAX else v for v in values])
    return values


def size(values: Buckets) -> int:
    """The known ones of total_input and output together; −1 when neither is (nothing known is least)."""
    total, output = values[TOTAL_INPUT], values[OUTPUT]
    if total is None:
        return -1 if output is None else output
    return total if output is None else total + output


# Cumulative counters


@dataclass(slots=True)
class Contribution:
    """What one usage stream adds to one turn for one provider and model: raw rises until ``values`` converts them once."""

    usage_stream: tuple[str, ...]
    provider: str | None
    model: str | None
    inherited: bool
    raw: Raw
    last: Measured
    """Its last report: decides convention, hour and kind."""
    lower_bound: bool = False
    estimated: bool = False

    def convention(self) -> str:
        return convention_of(self.last.report, self.provider)

    def values(self) -> Buckets:
        return fitting(buckets(self.raw, self.convention())[0])

    def fidelity(self) -> str:
        return "lower_bound" if self.lower_bound else "estimated" if self.estimated else "exact"


@dataclass(slots=True)
class _Climb:
    """One copy of a usage stream taken through one turn."""

    running: Running
    contributions: dict[tuple[str | None, str | None, bool], Contribution]
    findings: list[Row]

    def total(self) -> Buckets:
        return total_of(c.values() for c in self.contributions.values())


def climb_turn(
    threads: Threads, reports: Sequence[Measured], named: Iterable[str], completed: bool | None
) -> tuple[Threads, list[Contribution], list[Row]]:
    """Take one turn's cumulative reports, in the order of contract 5, over the running values (contract 8, Counters).

    ``named``: the provider threads that the turn's start or any report in it names. ``completed``: the turn has a ``turn.completed``; None for
    reports outside turns, which are no turn that could be open or use a thread.
    """
    uses = frozenset(named)
    if not reports and not uses:
        return threads, [], []
    streams = dict(threads.streams)
    by_stream: dict[tuple[str, ...], dict[tuple[str, str], list[Measured]]] = {}
    for measured in reports:
        copies = by_stream.setdefault(measured.report.usage_stream, {})
        copies.setdefault((measured.event.producer, measured.event.stream), []).append(measured)
    contributions: list[Contribution] = []
    findings: list[Row] = []
    reported: set[str] = set()
    for key in sorted(by_stream):
        before = streams.get(key)
        climbs = [
            _climb(key, before, copy, _used_before(key, copy, threads))
            for _, copy in sorted(by_stream[key].items())
        ]
        best = climbs[0]
        if len(climbs) > 1:  # the first of the greatest: of the least (producer, stream)
            best = max(climbs, key=lambda climb: size(climb.total()))
        if any(climb is not best and climb.total() != best.total() for climb in climbs):
            findings.append(
                finding(
                    "usage_copies_differ",
                    "warning",
                    next(iter(by_stream[key].values()))[-1].event,
                    usage_stream="/".join(key),
                    copies=len(climbs),
                )
            )
        findings += best.findings
        contributions += best.contributions.values()
        opened = completed is False  # reports outside turns leave no turn open behind them
        streams[key] = replace(best.running, opened=opened)
        reported.update(_names(key, best.running))
    if completed is None:
        return Threads(streams, threads.used), contributions, findings
    for key, running in streams.items():
        if key not in by_stream and not reported.isdisjoint(_names(key, running)):
            continue  # another counter of the same thread was reported on
        if key not in by_stream and not uses.isdisjoint(_names(key, running)):
            streams[key] = replace(running, opened=not completed, silent=True)
    return Threads(streams, threads.used | uses), contributions, findings


def _names(key: tuple[str, ...], running: Running) -> frozenset[str]:
    names = set(key) if len(key) == 1 else set()
    if running.thread is not None:
        names.add(running.thread)
    return frozenset(names)


def _used_before(key: tuple[str, ...], copy: Sequence[Measured], threads: Threads) -> bool:
    thread = copy[0].report.thread
    return (thread is not None and thread in threads.used) or (len(key) == 1 and key[0] in threads.used)


def _equal(last: Raw, total: Raw) -> bool:
    """Equal in every counter that both give."""
    return all(a == b for a, b in zip(last, total, strict=True) if a is not None and b is not None)


def _before_last(total: Raw, last: Raw | None) -> list[int | None]:
    """Where the counters stood before the latest request: ``total − last``, zero where negative, the total without a ``last``."""
    if last is None:
        return list(total)
    return [
        None if t is None else t if lst is None else max(t - lst, 0)
        for t, lst in zip(total, last, strict=True)
    ]


def _climb(key: tuple[str, ...], before: Running | None, reports: Sequence[Measured], used: bool) -> _Climb:
    values: list[int | None] = list(before.values) if before is not None else list(NO_FIGURES)
    known = before.known if before is not None else False
    thread = before.thread if before is not None else None
    contributions: dict[tuple[str | None, str | None, bool], Contribution] = {}
    findings: list[Row] = []
    first = before is None or before.silent
    lower = False
    if before is not None and before.opened and not before.silent:
        lower = True
        findings.append(_gap("usage_open_predecessor", reports[0], key))
    for measured in reports:
        report = measured.report
        total, last = report.raw, report.last
        thread = report.thread or thread
        if first:
            first = False
            if before is not None:
                known = False
            elif report.start_known is not None:
                known = report.start_known
            else:
                known = not used and (last is None or _equal(last, total))
            if known:
                values = list(NO_FIGURES)
            else:
                values = _before_last(total, last)
                lower = True
                findings.append(_gap("usage_unknown_start", measured, key))
        elif any(t is not None and v is not None and t < v for t, v in zip(total, values, strict=True)):
            if last is not None and not _equal(last, total):
                findings.append(_gap("usage_counter_contradiction", measured, key))
                continue
            values = list(NO_FIGURES)
            known = True
            findings.append(_gap("usage_counter_reset", measured, key))
        rises: list[int | None] = []
        starts = None if known else _before_last(total, last)
        for place, value in enumerate(total):
            if value is None:
                rises.append(None)
                continue
            start = values[place]
            if start is None:
                if starts is None:
                    start = 0
                else:
                    start = starts[place]
                    lower = True
            rises.append(value - (start or 0))
            values[place] = value
        inherited = measured.event.provenance == "inherited"
        group = (measured.provider, measured.model, inherited)
        contribution = contributions.get(group)
        if contribution is None:
            contribution = contributions[group] = Contribution(
                key, measured.provider, measured.model, inherited, tuple(rises), measured
            )
        else:
            contribution.raw = add(contribution.raw, tuple(rises))
            contribution.last = measured
        contribution.lower_bound |= lower
        contribution.estimated |= report.source == "estimate"
        lower = False
    running = Running(tuple(values), known, thread)
    return _Climb(running, contributions, findings)


def _gap(check: str, measured: Measured, key: tuple[str, ...]) -> Row:
    return finding(check, "warning", measured.event, usage_stream="/".join(key))


def merged(contributions: Iterable[Contribution]) -> list[Contribution]:
    """Contributions of several places outside turns as those of one turn: one per stream, provider and model."""
    groups: dict[tuple[Any, ...], Contribution] = {}
    for one in contributions:
        group = (one.usage_stream, one.provider, one.model, one.inherited)
        known = groups.get(group)
        if known is None:
            groups[group] = one
        else:
            known.raw = add(known.raw, one.raw)
            known.last = one.last
            known.lower_bound |= one.lower_bound
            known.estimated |= one.estimated
    return list(groups.values())


# What stands


USAGE_GAPS: Final = frozenset(
    (
        "usage_unknown_start",
        "usage_counter_reset",
        "usage_counter_contradiction",
        "usage_open_predecessor",
        "usage_copies_differ",
        "usage_call_total_differs",
    )
)
"""Findings that make a grade ``partial`` (contract 8)."""


class Settled:
    """Which figures stand in a turn (or outside all turns), and their sum."""

    __slots__ = ("findings", "lower_bound", "parts", "unattributed", "usage")

    def __init__(
        self,
        parts: list[UsagePart],
        usage: Row,
        unattributed: Row | None,
        lower_bound: bool,
        findings: list[Row],
    ) -> None:
        self.parts = parts
        self.usage = usage
        """Buckets, ``reported`` and ``total``."""
        self.unattributed = unattributed
        """What of the contributions no call explains, as buckets."""
        self.lower_bound = lower_bound
        """Some figure that stands is a lower bound."""
        self.findings = findings


def settle(
    calls: Sequence[Call], contributions: Sequence[Contribution], turn_key: str | None, kind: str | None
) -> Settled:
    """Decide what counts (contract 8, Counters and Parts). Sets ``counts`` of every call.

    ``kind``: that of the turn; None takes each part's own event's.
    """
    findings: list[Row] = []
    standing: list[Contribution] = []
    left: Buckets | None = None
    if contributions:
        standing, left, findings = _stand(calls, contributions, turn_key)
    parts: list[UsagePart] = []
    total: Buckets = NO_BUCKETS
    reported = lower = 0
    for call in calls:
        if not call.counts:
            continue
        values = call.values
        has_figures = call.reported
        parts.append(
            UsagePart(
                call.key,
                call.key,
                turn_key,
                call.provider,
                call.model,
                call.hour_at,
                kind or call.first.kind,
                usage_row(values, int(has_figures), 1),
                call.convention,
                call.fidelity,
            )
        )
        if has_figures:
            reported += 1
            total = values if total is NO_BUCKETS else add(total, values)
            lower += call.fidelity == "lower_bound"
    counted = len(parts)
    if contributions:
        for contribution in standing:
            values = contribution.values()
            reported += values != NO_BUCKETS
            total = add(total, values)
            lower += contribution.lower_bound
        counted += len(standing)
        shown = (*standing, *(c for c in contributions if c.inherited))
        parts += [_contribution_part(contribution, turn_key, kind) for contribution in shown]
    return Settled(
        parts,
        usage_row(fitting(total), reported, counted),
        None if left is None else usage_object(fitting(left)),
        bool(lower),
        findings,
    )


def _stand(
    calls: Sequence[Call], contributions: Sequence[Contribution], turn_key: str | None
) -> tuple[list[Contribution], Buckets | None, list[Row]]:
    """Which contributions stand, what of them no call explains, and what is odd. Calls that they cover lose ``counts``."""
    findings: list[Row] = []
    standing: list[Contribution] = []
    left: Buckets | None = None
    own = [c for c in contributions if not c.inherited]
    for call in calls:
        call.counts = call.counts_alone
    for provider in dict.fromkeys(c.provider for c in own):
        group = [c for c in own if c.provider == provider]
        inside = [call for call in calls if call.provider == provider and call.counts]
        told = total_of(c.values() for c in group)
        called = total_of(call.values for call in inside)
        if any(value is not None for value in called) and _differ(told, called):
            findings.append(
                finding(
                    "usage_call_total_differs",
                    "warning",
                    group[-1].last.event,
                    turn_key=turn_key,
                    provider=provider,
                    contribution=_figures(told),
                    calls=_figures(called),
                )
            )
        if size(told) < size(called):
            continue
        standing += group
        for call in inside:
            call.counts = False
        rest = tuple(None if t is None else max(t - (c or 0), 0) for t, c in zip(told, called, strict=True))
        if any(rest):
            left = rest if left is None else add(left, rest)
    for contribution in contributions:
        convention = contribution.convention()
        if convention == "unknown":
            findings.append(_gap("usage_unknown_convention", contribution.last, contribution.usage_stream))
        if buckets(contribution.raw, convention)[1]:
            findings.append(_gap("usage_negative_bucket", contribution.last, contribution.usage_stream))
    return standing, left, findings


def total_of(values: Iterable[Buckets]) -> Buckets:
    """The sum of several."""
    total = NO_BUCKETS
    for one in values:
        total = add(total, one)
    return total


def _differ(one: Buckets, other: Buckets) -> bool:
    return any(a != b for a, b in zip(one, other, strict=True) if a is not None and b is not None)


def _figures(values: Buckets) -> Row:
    return {name: value for name, value in zip(BUCKETS, values, strict=True) if value is not None}


def usage_row(values: Buckets, reported: int, total: int) -> Row:
    """A sum as the ``usage`` object of records and parts."""
    uncached, cache_read, write_5m, write_1h, write_other, output, reasoning, total_input = values
    return {
        "input_uncached": uncached,
        "cache_read": cache_read,
        "cache_write_5m": write_5m,
        "cache_write_1h": write_1h,
        "cache_write_other": write_other,
        "output": output,
        "reasoning": reasoning,
        "total_input": total_input,
        "reported": reported,
        "total": total,
    }


def _contribution_part(contribution: Contribution, turn_key: str | None, kind: str | None) -> UsagePart:
    event = contribution.last.event
    values = contribution.values()
    return UsagePart(
        part_key=f"{place_key(event)}+{'/'.join(contribution.usage_stream)}",
        call_key=None,
        turn_key=turn_key,
        provider=contribution.provider,
        model=contribution.model,
        hour_at=event.at if event.at is not None else event.running,
        kind=kind or event.kind,
        usage=usage_row(values, int(values != NO_BUCKETS), 1),
        convention=contribution.convention(),
        fidelity=contribution.fidelity(),
        inherited_event=contribution.inherited,
    )
