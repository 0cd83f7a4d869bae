"""`turnledger sessions check`: everything that is odd about a session, how grave it is, why it may be so and what to look at next.

Findings are those that the workers wrote (contract 13), what a fresh fold and a fresh sum say of the stored rows (as ``verify`` does), and the doctor's
own questions. Reads alone; one snapshot a session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from turnledger.doctor.evidence import load_evidence
from turnledger.doctor.faults import Fault, Report
from turnledger.doctor.findings import LEVELS, Evidence, Finding, Reason, Row
from turnledger.doctor.naming import NoSuchSession, find_session
from turnledger.doctor.rows import told
from turnledger.doctor.scope import Scope, of_session
from turnledger.doctor.verify import Progress, verify_on
from turnledger.doctor.why import REASONS, explain
from turnledger.doctor.why.session import MCP_METHODS, own_findings
from turnledger.rollup.prices import PriceSource
from turnledger.store.named import query
from turnledger.store.read import SessionRef, active_slot, of_slot

BROKEN: Final = {
    "I1": "ledger_contradicts_itself",
    "I4": "projection_differs_from_fold",
    "I5": "rollup_differs_from_projection",
    "I7": "projection_differs_from_fold",
}
"""The check that tells an invariant which does not hold of one session."""
KEPT = 1000
"""Faults of one invariant that are kept as rows; all are counted."""
AT_ONCE = 500
"""Sessions that are sorted out at once when all are looked at."""
LATEST: Final = ("model_calls", "tool_calls", "tool_responses", "net_events", "fs_events")
"""Tables whose latest rows are shown."""
_ORDER: Final = {check: place for place, check in enumerate(REASONS)}


@dataclass(frozen=True, slots=True)
class Told:
    """A finding with its reason."""

    finding: Finding
    reason: Reason

    def as_json(self, rows: int) -> Row:
        """{check, severity, count, rows, why, next}; the first ``rows`` rows."""
        one = self.finding
        return {
            "check": one.check,
            "severity": one.severity,
            "count": one.count,
            "rows": list(one.rows[:rows]),
            "why": self.reason.why,
            "next": self.reason.next,
        }


@dataclass(slots=True)
class Checked:
    """One session and what is odd about it, the gravest first."""

    tenant: str
    session_id: str
    session: Row
    """Of ``turnledger.sessions``; empty before the rollup worker saw it."""
    findings: list[Told] = field(default_factory=list)
    counts: Row = field(default_factory=dict)
    """Rows by table (contract 11)."""
    origins: list[Row] = field(default_factory=list)
    """{origin, calls} of its tool calls."""
    tools: list[Row] = field(default_factory=list)
    """{tool_name, origin, status, calls, average_ms}, the most used first."""
    latest: dict[str, list[Row]] = field(default_factory=dict)
    """The latest rows by table."""

    @property
    def worst(self) -> str | None:
        return self.findings[0].finding.severity if self.findings else None

    def as_json(self, rows: int) -> Row:
        return {
            "tenant": self.tenant,
            "session_id": self.session_id,
            "name": self.session.get("name"),
            "agent": self.session.get("agent"),
            "status": self.session.get("status"),
            "grade": self.session.get("grade"),
            "worst": self.worst,
            "findings": [one.as_json(rows) for one in self.findings],
            "counts": self.counts,
            "origins": self.origins,
            "tools": self.tools,
            "latest": self.latest,
        }


@dataclass(slots=True)
class Checkup:
    """The answer of one run."""

    sessions: list[Checked]
    looked_at: int
    """Sessions that were looked at; ``sessions`` holds one that was asked for, or those of all that have findings."""
    ledger: list[Row] = field(default_factory=list)
    """What is wrong with the ledger and belongs to no session: {what, invariant, …}."""
    unsettled: list[str] = field(default_factory=list)
    """Sessions whose rows could not be judged, because a worker has still to write them."""

    @property
    def red(self) -> bool:
        return bool(self.ledger) or any(one.worst == "error" for one in self.sessions)

    def as_json(self, rows: int) -> Row:
        """{red, looked_at, sessions: [{tenant, session_id, …, findings: [{check, severity, count, rows, why, next}]}], ledger, unsettled}."""
        return {
            "red": self.red,
            "looked_at": self.looked_at,
            "sessions": [one.as_json(rows) for one in self.sessions],
            "ledger": self.ledger,
            "unsettled": self.unsettled,
        }


def newest(connection: psycopg.Connection[Any], tenant: str | None = None) -> SessionRef:
    """The session with the latest activity: the first one of `sessions list`. Raises ``NoSuchSession`` on an empty ledger."""
    row = connection.execute(query("check/newest"), {"tenant": tenant}).fetchone()
    if row is None:
        whose = "" if tenant is None else f" of tenant {tenant!r}"
        raise NoSuchSession(
            f"the ledger has no session{whose} yet: publish some events and let a worker run."
        )
    return SessionRef(*row)


def check_one(
    connection: psycopg.Connection[Any],
    price: PriceSource,
    typed: str | None,
    *,
    tenant: str | None = None,
    rows: int = 5,
    settle_seconds: float = 10.0,
) -> Checkup:
    """One session: ``typed`` as a person types it, None for the newest. ``rows``: latest rows of each table. Begins transactions of its own."""
    with connection.transaction():
        ref = newest(connection, tenant) if typed is None else find_session(connection, typed, tenant)
    report = verify_on(connection, price, of_session(ref), settle_seconds=settle_seconds, shown=KEPT)
    broken = _as_findings([fault for name in BROKEN for fault in report.faults[name]], report)
    with connection.transaction():
        checked = _checked(connection, active_slot(connection), ref, broken, rows)
    return Checkup([checked], 1, unsettled=report.unsettled)


def check_all(
    connection: psycopg.Connection[Any],
    price: PriceSource,
    *,
    tenant: str | None = None,
    settle_seconds: float = 10.0,
    progress: Progress = lambda sessions: None,
) -> Checkup:
    """Every session, and what of the ledger belongs to none. Holds those with findings alone."""
    report = verify_on(
        connection, price, Scope(), settle_seconds=settle_seconds, progress=progress, shown=KEPT
    )
    by_session: dict[tuple[str, str], list[Fault]] = {}
    nobodys: list[Fault] = []
    for faults in report.faults.values():
        for fault in faults:
            owner = (fault.row.get("tenant"), fault.row.get("session_id"))
            if fault.invariant in BROKEN and owner[0] is not None and owner[1] is not None:
                by_session.setdefault((owner[0], owner[1]), []).append(fault)
            else:
                nobodys.append(fault)
    with connection.transaction():
        refs = [
            SessionRef(*row) for row in connection.execute(query("check/all_sessions"), {"tenant": tenant})
        ]
    found: list[Checked] = []
    for start in range(0, len(refs), AT_ONCE):
        page = refs[start : start + AT_ONCE]
        for ref in _odd(connection, page, by_session):
            with connection.transaction():
                broken = _as_findings(by_session.get((ref.tenant, ref.session_id), []))
                checked = _checked(connection, active_slot(connection), ref, broken, 0)
            if checked.findings:
                found.append(checked)
    return Checkup(
        found,
        len(refs),
        ledger=[{"what": one.what, "invariant": one.invariant, **one.row} for one in nobodys],
        unsettled=report.unsettled,
    )


def _odd(
    connection: psycopg.Connection[Any], refs: Sequence[SessionRef], broken: Mapping[tuple[str, str], Any]
) -> list[SessionRef]:
    """Those about which there may be something to say. Reading the evidence of a session takes some twenty queries: most need none."""
    with connection.transaction():
        statement = of_slot("check/odd", active_slot(connection))
        numbers = {
            row[0] for row in connection.execute(statement, {"sessions": [ref.session_no for ref in refs]})
        }
    return [ref for ref in refs if ref.session_no in numbers or (ref.tenant, ref.session_id) in broken]


def _as_findings(faults: Sequence[Fault], report: Report | None = None) -> list[Finding]:
    """One finding a check. With a report of one session alone, faults beyond those that it kept are counted as well."""
    groups: dict[str, list[Fault]] = {}
    for fault in faults:
        groups.setdefault(BROKEN[fault.invariant], []).append(fault)
    found = []
    for check, members in groups.items():
        count = sum(one.faults for one in members)
        if report is not None:
            count = sum(report.counts[name] for name, told_by in BROKEN.items() if told_by == check)
        rows = [
            {"what": one.what, **{k: v for k, v in one.row.items() if k not in ("tenant", "session_id")}}
            for one in members
        ]
        found.append(Finding(check, "error", count, rows))
    return found


def _checked(
    connection: psycopg.Connection[Any], slot: str, ref: SessionRef, broken: Sequence[Finding], rows: int
) -> Checked:
    key: Row = {"tenant": ref.tenant, "session_id": ref.session_id}
    number: Row = {"session_no": ref.session_no}
    findings = [
        Finding(row["check"], row["severity"], row["count"], row["rows"])
        for row in told(connection, query("check/findings"), key)
    ]
    evidence = load_evidence(connection, slot, ref, findings)
    overflow = next(iter(told(connection, of_slot("check/overflows", slot), number)), {})
    unruled = told(connection, of_slot("check/unruled", slot), number)
    methods = told(connection, query("check/mcp_methods"), {**number, "known": list(MCP_METHODS)})
    findings = [_graver(one, evidence) for one in findings]
    findings += broken
    findings += own_findings(evidence, overflow, unruled, methods)
    findings.sort(key=lambda one: (LEVELS.index(one.severity), _ORDER.get(one.check, len(_ORDER)), one.check))
    return Checked(
        ref.tenant,
        ref.session_id,
        evidence.sums,
        [Told(one, explain(one, evidence)) for one in findings],
        evidence.counts if isinstance(evidence.counts, dict) else dict(evidence.counts),
        _summed(evidence.tools, ("origin",)),
        _summed(evidence.tools, ("tool_name", "origin", "status")),
        {
            table: told(connection, query(f"check/latest_{table}"), {**key, "rows": rows})
            for table in LATEST
            if rows
        },
    )


def _graver(finding: Finding, evidence: Evidence) -> Finding:
    """Requests that reached a provider while not one model call is known are red: nobody can say what the session used (capsem's own checker too)."""
    if finding.check == "traffic_without_model_call" and not evidence.counts.get("model_calls"):
        return Finding(finding.check, "error", finding.count, finding.rows)
    return finding


def _summed(tools: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """Tool calls alike in ``names``, the most first; ``average_ms`` of those whose duration is known, weighed by their number."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in tools:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    found = []
    for key, members in groups.items():
        timed = [(float(row["average_ms"]), row["calls"]) for row in members if row["average_ms"] is not None]
        weight = sum(calls for _, calls in timed)
        average = round(sum(ms * calls for ms, calls in timed) / weight, 1) if weight else None
        found.append(
            {
                **dict(zip(names, key, strict=True)),
                "calls": sum(row["calls"] for row in members),
                "average_ms": average,
            }
        )
    return sorted(found, key=lambda row: (-row["calls"], *(str(row[name]) for name in names)))
