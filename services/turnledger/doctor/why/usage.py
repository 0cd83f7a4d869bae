"""Reasons of the checks about usage and price: figures that are a bound, that contradict each other, or that have no price."""

from __future__ import annotations

from typing import Final

from turnledger.doctor.findings import Evidence, Explain, Finding, Place, Reason, Seen, plural, some


def usage_unknown_convention(finding: Finding, evidence: Evidence) -> Reason:
    providers = some(row.get("provider") for row in finding.rows)
    said = some(seen.payload.get("token_convention") for seen in _seen(finding, evidence))
    return Reason(
        f"{plural(finding.count, 'report')} of provider {providers} said token_convention {said}: whether input includes what a cache gave "
        f"is not known, so neither bucket is",
        "have the producer say exclusive, inclusive or inclusive_thoughts_separate (docs/tokens.md); the provider's own figures are kept in the event",
    )


def usage_negative_bucket(finding: Finding, evidence: Evidence) -> Reason:
    first = next(iter(_seen(finding, evidence)), None)
    usage = first.payload.get("usage") if first is not None else None
    said = (
        f" ({', '.join(f'{name} {value}' for name, value in usage.items())})"
        if isinstance(usage, dict)
        else ""
    )
    return Reason(
        f"{plural(finding.count, 'report')} gave more tokens from a cache, or written to it with a lifetime, than in all{said}: what would "
        f"be below zero is unknown",
        "see whether the figures come from two requests, or whether the convention is exclusive where inclusive was said",
    )


def usage_unknown_start(finding: Finding, evidence: Evidence) -> Reason:
    return Reason(
        f"{plural(finding.count, 'running total')} ({_streams(finding)}) was first seen when it had counted already "
        f"({_totals(finding, evidence)}): what it counted before is not known, the figures are a lower bound",
        "import the beginning of that thread (an earlier session or file); where the counter did start at zero, have the producer say start_known: true",
    )


def usage_counter_reset(finding: Finding, evidence: Evidence) -> Reason:
    return Reason(
        f"the running total {_streams(finding)} fell ({_totals(finding, evidence)}) and nothing says how much the last request used: it is "
        f"taken as begun again, what was seen is kept",
        "a restarted counter should get a usage_stream of its own; compare with the provider's figures of that hour",
    )


def usage_counter_contradiction(finding: Finding, evidence: Evidence) -> Reason:
    return Reason(
        f"{plural(finding.count, 'report')} of {_streams(finding)} ({_totals(finding, evidence)}) fell below what was counted before, and its "
        f"own last request does not explain it: it adds nothing",
        "two counters may share one name: give each its usage_stream",
    )


def usage_open_predecessor(finding: Finding, evidence: Evidence) -> Reason:
    return Reason(
        f"a turn that used {_streams(finding)} has no end, so part of what the next one counts may be its own: a lower bound "
        f"({plural(finding.count, 'turn')} so)",
        "see turn_without_end of the turn before; the sum over both is right",
    )


def usage_copies_differ(finding: Finding, evidence: Evidence) -> Reason:
    row = finding.rows[0]
    return Reason(
        f"{plural(row.get('copies', 2), 'stream')} tell the running total {_streams(finding)} and do not agree; the greatest counts whole "
        f"({some(evidence.told_by(''))})",
        "one of the readers stopped early or missed reports: look for gaps in its stream",
    )


def usage_call_total_differs(finding: Finding, evidence: Evidence) -> Reason:
    row = finding.rows[0]
    return Reason(
        f"in {plural(finding.count, 'turn')} ({some(one.get('turn_key') for one in finding.rows)}) the running total of "
        f"{row.get('provider')} says {_figures(row.get('contribution'))} "
        f"and its calls sum to {_figures(row.get('calls'))}: the greater counts, what no call explains is `unattributed`",
        "a call is missing, or the total counts what is no call (titles, compactions): see unattributed in the turn's record",
    )


def usage_rollup_differs(finding: Finding, evidence: Evidence) -> Reason:
    row = finding.rows[0]
    differs = ", ".join(
        f"{name} {one['rollup']} against {one['sum']}" for name, one in (row.get("differs") or {}).items()
    )
    return Reason(
        f"{plural(finding.count, 'sum')} that a source gave itself came out otherwise than its calls ({differs}); ours is of the calls",
        "if the source is right, a call is missing here: see null_tokens, open_gap and call_without_record of this session",
    )


def usage_snapshot_without_call(finding: Finding, evidence: Evidence) -> Reason:
    return Reason(
        f"{plural(finding.count, 'streamed sample')} of usage named no call, and none was open in "
        f"{some(row.get('stream') for row in finding.rows)}: kept, not counted",
        "send model_call_id with snapshots, or model_call.started before them",
    )


def unpriced_model(finding: Finding, evidence: Evidence) -> Reason:
    names = some(
        f"{row['provider'] or 'unknown'}/{row['model'] or 'unknown'}"
        for row in finding.rows
        for _ in range(min(row.get("calls", 1), 1000))
    )
    left_out = sum(row.get("calls", 1) for row in finding.rows)
    total, cost = evidence.sums.get("model_call_count"), evidence.sums.get("cost_micro_usd")
    of = f" of {total}" if total is not None else ""
    return Reason(
        f"the catalogue has no price for {names}: {plural(left_out, 'call')}{of} with known tokens cost something that nobody knows, "
        + (f"beside the {cost} µ$ of the others" if cost is not None else "and no other call has a cost"),
        "see whether the name is spelt as the provider does; else add its price to the catalogue and reprice (docs/pricing.md): nothing is "
        "priced by a guess",
    )


def _seen(finding: Finding, evidence: Evidence) -> list[Seen]:
    places = (Place.of(row) for row in finding.rows)
    return [evidence.events[place] for place in places if place is not None and place in evidence.events]


def _streams(finding: Finding) -> str:
    return some(row.get("usage_stream") for row in finding.rows)


def _totals(finding: Finding, evidence: Evidence) -> str:
    """The figures of the first report that the finding names."""
    first = next(iter(_seen(finding, evidence)), None)
    if first is None:
        return "its report is not readable any more"
    return f"total {_figures(first.payload.get('usage'))}, last {_figures(first.payload.get('last'))}"


def _figures(value: object) -> str:
    if not isinstance(value, dict):
        return "not given"
    return ", ".join(f"{name} {figure}" for name, figure in value.items() if figure is not None) or "nothing"


REASONS: Final[dict[str, Explain]] = {
    "usage_unknown_convention": usage_unknown_convention,
    "usage_negative_bucket": usage_negative_bucket,
    "usage_unknown_start": usage_unknown_start,
    "usage_counter_reset": usage_counter_reset,
    "usage_counter_contradiction": usage_counter_contradiction,
    "usage_open_predecessor": usage_open_predecessor,
    "usage_copies_differ": usage_copies_differ,
    "usage_call_total_differs": usage_call_total_differs,
    "usage_rollup_differs": usage_rollup_differs,
    "usage_snapshot_without_call": usage_snapshot_without_call,
    "unpriced_model": unpriced_model,
}
