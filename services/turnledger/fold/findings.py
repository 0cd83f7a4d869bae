"""Owns the shape of findings (contract 13): single ones as the fold makes them, and groups as people read them."""

from __future__ import annotations

from collections.abc import Iterable

from turnledger.fold.model import Row


def grouped(tenant: str, session_id: str, found: Iterable[Row]) -> list[Row]:
    """{tenant, session_id, check, severity, count, rows} of one session, by check (UTF-8 bytes).

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
