"""Owns the shape of findings (contract 13): single ones as the fold makes them, and groups as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnledger.fold.model import Row

MOST_REDACTIONS = 100
"""Rows of ``secret_redacted_at_ingest`` that are listed of a session; the count is exact. A harness that redacts nothing has one in every event."""


def redacted_at_ingest(first: Sequence[Row], total: int) -> list[Row]:
    """The finding ``secret_redacted_at_ingest`` of one session, as ``grouped`` takes it: counts events.

    ``first``: {producer, epoch, stream, seq, receipt_key, redactions} of the first ``MOST_REDACTIONS`` events in the order of these columns (null
    first), of ``total``.
    """
    found: list[Row] = [
        {"check": "secret_redacted_at_ingest", "severity": "warning", "row": row} for row in first
    ]
    if found:
        found[-1]["count"] = 1 + total - len(found)
    return found


def grouped(tenant: str | None, session_id: str | None, found: Iterable[Row]) -> list[Row]:
    """{tenant, session_id, check, severity, count, rows} of one session, by check (UTF-8 bytes). Null names stay null.

    ``found``: {check, severity, row, count?}; a row that stands for several events says how many in ``count``. Rows keep the order given.
    """
    groups: dict[str, Row] = {}
    for finding in found:
        check = finding["check"]
        group = groups.get(check)
        if group is None:
            group = groups[check] = {
                "tenant": tenant,
                "session_id": session_id,
                "check": check,
                "severity": finding["severity"],
                "count": 0,
                "rows": [],
            }
        group["count"] += finding.get("count", 1)
        group["rows"].append(finding["row"])
    return [groups[check] for check in sorted(groups, key=str.encode)]
