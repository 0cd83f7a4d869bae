"""Reasons of the checks of what was made: rows that are not what their events say (found by folding again, as `turnledger verify` does)."""

from __future__ import annotations

from typing import Final

from turnledger.doctor.findings import Evidence, Explain, Finding, Reason, plural, some


def projection_differs_from_fold(finding: Finding, evidence: Evidence) -> Reason:
    return Reason(
        f"{plural(finding.count, 'row')} of {some(row.get('table', 'gaps') for row in finding.rows)} disagreed with a fresh fold of the "
        f"session's {plural(evidence.facts.get('event_count') or 0, 'event')}: {_first(finding)}",
        f"`turnledger verify --session {evidence.name}` proves it apart from this check; somebody wrote into the projection, or another "
        f"version folded it: `turnledger replay projections` builds it anew from the ledger",
    )


def rollup_differs_from_projection(finding: Finding, evidence: Evidence) -> Reason:
    row = finding.rows[0]
    stored, computed = row.get("stored"), row.get("computed")
    by = (
        f", by {stored - computed:+,}"
        if type(stored) is int and type(computed) is int and stored != computed
        else ""
    )
    return Reason(
        f"{plural(finding.count, 'sum')} of {some(one.get('table', 'rollup') for one in finding.rows)} disagreed with the session's "
        f"rows: {_first(finding)}{by}",
        f"no worker has anything left to write for {evidence.name}, so it stays so: a change by hand, or prices of another catalogue; a "
        f"mark (`insert into ledger.marks (session_no) …`) or a replay sets it again",
    )


def ledger_contradicts_itself(finding: Finding, evidence: Evidence) -> Reason:
    return Reason(
        f"{plural(finding.count, 'fact')} of the ledger itself contradicted each other: {_first(finding)}",
        f"`turnledger verify --session {evidence.name} --topics` compares with Kafka's records; what Kafka still holds can be replayed, the "
        f"rest needs a backup of schema ledger",
    )


def _first(finding: Finding) -> str:
    row = finding.rows[0]
    said = str(row.get("what", "a difference"))
    where = row.get("key")
    about = "" if where in (None, 0) else f" (key {where})"
    if "stored" in row and "computed" in row:
        about += f", stored {_value(row['stored'])}, computed {_value(row['computed'])}"
    return said + about


def _value(value: object) -> str:
    return "nothing" if value is None else repr(value)


REASONS: Final[dict[str, Explain]] = {
    "projection_differs_from_fold": projection_differs_from_fold,
    "rollup_differs_from_projection": rollup_differs_from_projection,
    "ledger_contradicts_itself": ledger_contradicts_itself,
}
