"""Owns the sums of sessions that are folded one at a time, so that no more than the greatest is held: what `document` says of sessions and findings.

Only who sums a call that several sessions hold needs all of them; of each session no more is kept for that than its calls. The sessions that it changes are
folded once more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from turnledger.contract.reader import DEFAULT_LIMIT
from turnledger.fold import columns
from turnledger.fold.dedupe import Deduped, dedupe
from turnledger.fold.document import SessionKey, findings_of, key_order, row_shown, session_rows
from turnledger.fold.model import Row, SessionFold
from turnledger.fold.ownership import DECIDING, Holder, Ownership, decide, holder
from turnledger.fold.rollup import PriceFunction, roll_up
from turnledger.fold.session import fold_session

KEPT = ("call_key", "order_key", *DECIDING)
"""Of a call, what decides about its owner."""


@dataclass(slots=True)
class Sums:
    """``records``: {read, accepted, duplicates, conflicts, dead}. ``sessions`` and ``findings``: as contract 17 lists them."""

    records: Counter[str] = field(default_factory=Counter)
    sessions: list[Row] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)


def apiece(
    keys: Iterable[SessionKey],
    records_of: Callable[[SessionKey], Iterable[bytes]],
    price: PriceFunction,
    *,
    limit: int = DEFAULT_LIMIT,
) -> Sums:
    """The sums of sessions. ``records_of`` gives the records of one, in their order and each time anew; none of another session."""
    result, ordered = Sums(), sorted(keys, key=key_order)
    holders: dict[str, list[Holder]] = defaultdict(list)
    found: dict[SessionKey, tuple[Row, list[Row]]] = {}

    def folded(key: SessionKey) -> tuple[Deduped, SessionFold]:
        judged = dedupe(enumerate(records_of(key), 1), limit=limit)
        return judged, fold_session(*key, judged.sessions.get(key, []))

    for key in ordered:
        judged, fold = folded(key)
        result.records.update(judged.records)
        if key not in judged.sessions:  # nothing of it can be read
            continue
        calls = [call for turn in fold.turns for call in turn.calls] + fold.calls
        holders[key[0]].append(
            holder(key[1], fold.facts, [{name: call[name] for name in KEPT} for call in calls])
        )
        found[key] = _sums(key, judged, fold, Ownership({}, []), price)
    for tenant, own in holders.items():
        ownership = decide(own)
        changed = {session for (session, _), owner in ownership.owners.items() if owner != session}
        for session in changed | {session for session, _ in ownership.findings}:
            key = (tenant, session)
            found[key] = _sums(key, *folded(key), ownership, price)
    for row, findings in found.values():
        result.sessions.append(row)
        result.findings += findings
    return result


def _sums(
    key: SessionKey, judged: Deduped, fold: SessionFold, ownership: Ownership, price: PriceFunction
) -> tuple[Row, list[Row]]:
    rows = session_rows(fold, judged.conflicts, len(judged.dead_letters))
    rollup = roll_up(rows, lambda call_key: ownership.owner(key[1], call_key), price)
    others: Sequence[Row] = [finding for session, finding in ownership.findings if session == key[1]]
    return (
        row_shown(key, columns.SESSIONS, rollup.session),
        findings_of(judged, {key: fold}, {key: rollup}, {key: others}),
    )
