"""Owns sessions that are folded one at a time, so that no more than the greatest is held: what `document` says of all of them, or the sums alone.

Only who sums a call that several sessions hold needs all of them; of each session no more is kept for that than its calls. The sessions that it changes are
folded once more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from turnledger.contract.reader import DEFAULT_LIMIT
from turnledger.fold import columns
from turnledger.fold.dedupe import Deduped, dedupe
from turnledger.fold.document import (
    Document,
    SessionKey,
    findings_of,
    hourly_rows,
    key_order,
    row_shown,
    session_rows,
    tables,
)
from turnledger.fold.model import Row, SessionFold
from turnledger.fold.ownership import DECIDING, Holder, Ownership, decide, holder
from turnledger.fold.rollup import PriceFunction, SessionRollup, roll_up
from turnledger.fold.session import fold_session

Place = tuple[str | None, str | None]
"""(tenant, session_id) of a part; null where no record says it."""
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
    result = Sums()
    found: dict[SessionKey, tuple[Row, list[Row]]] = {}
    numbered = partial(_numbered, records_of)
    for key, judged, fold, ownership, again in _folds(keys, numbered, limit):
        if not again:
            result.records.update(judged.records)
        if key in judged.sessions:  # else nothing of it can be read
            found[key] = _sums(key, judged, fold, ownership, price)
    for row, findings in found.values():
        result.sessions.append(row)
        result.findings += findings
    return result


def described(
    keys: Iterable[SessionKey],
    records_of: Callable[[SessionKey], Iterable[tuple[int, bytes]]],
    price: PriceFunction,
    *,
    limit: int = DEFAULT_LIMIT,
) -> Iterator[tuple[Place, Document]]:
    """The lists that `document` gives, in parts: those of one session at a time. A place that comes again replaces what came before; parts in the order
    of their places are the whole.

    ``records_of`` gives (position, record) of a session, in their order and each time anew. At last, under (None, None), come ``records`` and
    ``usage_hourly``, which are of all, and what is said of records of which nobody knows whose they are.
    """
    records = Counter(dict.fromkeys(("read", "accepted", "duplicates", "conflicts", "dead"), 0))
    strays: list[Row] = []
    hours: dict[SessionKey, list[Row]] = {}
    for key, judged, fold, ownership, again in _folds(keys, records_of, limit):
        own = [letter for letter in judged.dead_letters if (letter["tenant"], letter["session_id"]) == key]
        if not again:
            records.update(judged.records)
            strays += [letter for letter in judged.dead_letters if letter not in own]
        judged.dead_letters[:] = own
        if key not in judged.sessions:
            yield key, _of_session(tables(judged, {}, {}, {}))
            continue
        rollup = _rollup(key, judged, fold, ownership, price)
        hours[key] = rollup.hour_parts
        others = {key: _findings(key, ownership)}
        yield key, _of_session(tables(judged, {key: fold}, {key: rollup}, others))
    all_ = tables(Deduped({}, dict(records), dead_letters=strays), {}, {}, {})
    yield (None, None), {**all_, "usage_hourly": hourly_rows(hours)}


def _of_session(found: Document) -> Document:
    return {name: rows for name, rows in found.items() if name not in ("records", "usage_hourly")}


def _numbered(
    records_of: Callable[[SessionKey], Iterable[bytes]], key: SessionKey
) -> Iterable[tuple[int, bytes]]:
    return enumerate(records_of(key), 1)


def _folds(
    keys: Iterable[SessionKey], records_of: Callable[[SessionKey], Iterable[tuple[int, bytes]]], limit: int
) -> Iterator[tuple[SessionKey, Deduped, SessionFold, Ownership, bool]]:
    """(key, its records judged, its fold, who sums its calls, whether it comes again): each session as if it were alone, then those that others change."""
    holders: dict[str, list[Holder]] = defaultdict(list)

    def folded(key: SessionKey) -> tuple[Deduped, SessionFold]:
        judged = dedupe(records_of(key), limit=limit)
        return judged, fold_session(*key, judged.sessions.get(key, []))

    for key in sorted(keys, key=key_order):
        judged, fold = folded(key)
        if key in judged.sessions:
            calls = [call for turn in fold.turns for call in turn.calls] + fold.calls
            holders[key[0]].append(
                holder(key[1], fold.facts, [{name: call[name] for name in KEPT} for call in calls])
            )
        yield key, judged, fold, Ownership({}, []), False
    for tenant, own in holders.items():
        ownership = decide(own)
        changed = {session for (session, _), owner in ownership.owners.items() if owner != session}
        for session in changed | {session for session, _ in ownership.findings}:
            key = (tenant, session)
            yield key, *folded(key), ownership, True


def _rollup(
    key: SessionKey, judged: Deduped, fold: SessionFold, ownership: Ownership, price: PriceFunction
) -> SessionRollup:
    rows = session_rows(fold, judged.conflicts, len(judged.dead_letters))
    return roll_up(rows, lambda call_key: ownership.owner(key[1], call_key), price)


def _findings(key: SessionKey, ownership: Ownership) -> Sequence[Row]:
    return [finding for session, finding in ownership.findings if session == key[1]]


def _sums(
    key: SessionKey, judged: Deduped, fold: SessionFold, ownership: Ownership, price: PriceFunction
) -> tuple[Row, list[Row]]:
    rollup = _rollup(key, judged, fold, ownership, price)
    return (
        row_shown(key, columns.SESSIONS, rollup.session),
        findings_of(judged, {key: fold}, {key: rollup}, {key: _findings(key, ownership)}),
    )
