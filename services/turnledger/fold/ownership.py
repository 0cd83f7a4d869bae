"""Owns the rule of calls that several sessions of a tenant hold: which are the same, and which session sums them (contract 8).

Pure. It runs after the sessions' folds and never changes them: an inherited call is laid over the record, not written into it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import combinations

from turnledger.fold.columns import BUCKET_COLUMNS
from turnledger.fold.model import Row
from turnledger.fold.order import numbered_place

CallRef = tuple[str, str]
"""(session_id, call_key), inside one tenant."""
DEFAULT_STREAM = "ledger"
"""The stream that ``at_seq`` counts in where ``session.forked`` names none: the envelope's own default (contract 2)."""
_INPUT_FIGURES = (
    "input_uncached_tokens",
    "cache_read_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "cache_write_other_tokens",
    "total_input_tokens",
)


DECIDING = (
    *("provider", "model", "message_id", "model_call_id", "turn_key", "kind", "inherited_event", "least_at"),
    *(name for name, _ in BUCKET_COLUMNS),
)
"""Columns of a call that sameness or the choice of the owner looks at, beside ``call_key`` and ``order_key``, which place it."""


@dataclass(slots=True)
class Holder:
    """One session as ownership sees it: its links to other sessions and its rows of ``model_calls``."""

    session_id: str
    parent_session_id: str | None = None
    fork_parent_session_id: str | None = None
    fork_stream: str | None = None
    fork_at_seq: int | None = None
    calls: list[Row] = field(default_factory=list)
    """Rows under ``columns.MODEL_CALLS``; for an incremental decision those that share an identity are enough."""


def holder(session_id: str, facts: Mapping[str, object], calls: list[Row]) -> Holder:
    """A session from its row of ``columns.FACTS`` and its calls."""
    links = {
        name: facts.get(name)
        for name in ("parent_session_id", "fork_parent_session_id", "fork_stream", "fork_at_seq")
    }
    return Holder(session_id=session_id, calls=calls, **links)  # type: ignore[arg-type]  # the columns say their types


@dataclass(slots=True)
class Ownership:
    """Who sums each call."""

    owners: dict[CallRef, str]
    """Only of calls that more than one session holds."""
    findings: list[tuple[str, Row]]
    """(session_id, finding): ``fork_cycle`` and ``inherited_without_source``."""

    def owner(self, session_id: str, call_key: str) -> str:
        """The session that sums a call of ``session_id``: itself unless the call is inherited."""
        return self.owners.get((session_id, call_key), session_id)


class Family:
    """Who descends from whom, by ``session.forked`` and by ``parent_session_id``. An edge in a cycle is void."""

    def __init__(self, holders: Iterable[Holder]) -> None:
        self._holders = {one.session_id: one for one in holders}
        edges = {(child.session_id, parent) for child in self._holders.values() for parent in _parents(child)}
        self.void = _edges_in_cycles(edges)
        """(child, parent), sorted."""
        self._up: dict[str, list[str]] = defaultdict(list)
        for child, parent in sorted(edges.difference(self.void)):
            self._up[child].append(parent)
        self._ancestors: dict[str, frozenset[str]] = {}

    def ancestors(self, session_id: str) -> frozenset[str]:
        """All sessions that it descends from, nearest or not, whether they hold anything or not."""
        known = self._ancestors.get(session_id)
        if known is None:
            found: set[str] = set()
            waiting = [session_id]
            while waiting:
                for parent in self._up.get(waiting.pop(), ()):
                    if parent not in found:
                        found.add(parent)
                        waiting.append(parent)
            known = self._ancestors[session_id] = frozenset(found)
        return known

    def related(self, one: str, other: str) -> bool:
        """Does one of the two descend from the other?"""
        return one in self.ancestors(other) or other in self.ancestors(one)

    def forks(self, session_id: str) -> Iterator[tuple[str, str, int]]:
        """(ancestor, its stream, the last position inherited from it) along the chain of forks that say where they were cut."""
        child = self._holders.get(session_id)
        while (
            child is not None and child.fork_parent_session_id is not None and child.fork_at_seq is not None
        ):
            parent = child.fork_parent_session_id
            if (child.session_id, parent) in self.void:
                return
            yield parent, child.fork_stream or DEFAULT_STREAM, child.fork_at_seq
            child = self._holders.get(parent)


def decide(holders: Iterable[Holder]) -> Ownership:
    """Owners of the calls of one tenant's sessions, whatever the order in which they are given."""
    known = sorted(holders, key=lambda one: one.session_id)
    family = Family(known)
    rows = [(one, row) for one in known for row in sorted(one.calls, key=_in_order)]
    groups = _Groups(len(rows))
    _join_by_message(rows, family, groups)
    _join_by_fork(rows, family, groups)
    _join_inherited(rows, groups)

    owners: dict[CallRef, str] = {}
    for members in groups.shared():
        held: dict[str, list[Row]] = defaultdict(list)
        for index in members:
            one, row = rows[index]
            held[one.session_id].append(row)
        if len(held) > 1:
            owner = _choose(held, family)
            owners.update(
                ((session_id, row["call_key"]), owner) for session_id, calls in held.items() for row in calls
            )

    findings = [
        (child, {"check": "fork_cycle", "severity": "error", "row": {"parent_session_id": parent}})
        for child, parent in family.void
    ]
    for one, row in rows:
        if (
            row.get("inherited_event")
            and owners.get((one.session_id, row["call_key"]), one.session_id) == one.session_id
        ):
            named = {name: row.get(name) for name in ("turn_key", "model_call_id", "message_id")}
            findings.append(
                (one.session_id, {"check": "inherited_without_source", "severity": "warning", "row": named})
            )
    return Ownership(owners, findings)


def _in_order(row: Row) -> tuple[bytes, bytes]:
    return row.get("order_key") or b"", row["call_key"].encode()


def identities(tenant: str, row: Row, kin: Iterable[str]) -> list[bytes]:
    """What other sessions' calls must share with this one to be the same call, each as 32 bytes: sorted, fit to be locked in this order.

    ``kin``: the sessions that the call's own session was forked from (the whole chain), its ``parent_session_id``, and itself where other
    sessions name it as theirs. Two calls that ``decide`` joins directly share at least one identity.
    """
    texts = set()
    if row.get("message_id") is not None:
        texts.add(f"message\0{tenant}\0{row['message_id']}")
    if row.get("model_call_id") is not None:
        texts.update(f"call\0{tenant}\0{session_id}\0{row['model_call_id']}" for session_id in kin)
    return sorted(sha256(text.encode()).digest() for text in texts)


# --- sameness ---------------------------------------------------------------------------------------------------------------------

_Held = list[tuple[Holder, Row]]


class _Groups:
    """Union by least index: the closure of sameness."""

    def __init__(self, size: int) -> None:
        self._root = list(range(size))

    def find(self, index: int) -> int:
        root = index
        while self._root[root] != root:
            root = self._root[root]
        while self._root[index] != root:
            self._root[index], index = root, self._root[index]
        return root

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self.find(one), self.find(other)))
        self._root[high] = low

    def shared(self) -> list[list[int]]:
        """Groups of more than one."""
        members: dict[int, list[int]] = defaultdict(list)
        for index in range(len(self._root)):
            members[self.find(index)].append(index)
        return [group for group in members.values() if len(group) > 1]


def _join_by_message(rows: _Held, family: Family, groups: _Groups) -> None:
    """Provider, model and ``message_id`` are equal, a known input figure is equal and none differs, nor does the output, save by descent."""
    alike: dict[tuple[object, ...], dict[tuple[int | None, ...], list[int]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for index, (_, row) in enumerate(rows):
        if row.get("message_id") is not None:
            figures = (*(row.get(name) for name in _INPUT_FIGURES), row.get("output_tokens"))
            alike[(row.get("provider"), row.get("model"), row["message_id"])][figures].append(index)
    for by_figures in alike.values():
        for figures, members in by_figures.items():
            if (
                any(known is not None for known in figures[:-1])
                and len({rows[index][0].session_id for index in members}) > 1
            ):
                for index in members[1:]:
                    groups.join(members[0], index)
        for (figures, members), (others, strangers) in combinations(by_figures.items(), 2):
            if not _inputs_agree(figures[:-1], others[:-1]):
                continue
            outputs_differ = _differ(figures[-1], others[-1])
            for one in members:
                for other in strangers:
                    left, right = rows[one][0].session_id, rows[other][0].session_id
                    if left != right and (not outputs_differ or family.related(left, right)):
                        groups.join(one, other)


def _join_by_fork(rows: _Held, family: Family, groups: _Groups) -> None:
    """A fork holds what its parent began up to the position where it was cut, under the same turn and ``model_call_id``."""
    exact, alone = _by_call_id(rows)
    for index, (one, row) in enumerate(rows):
        call_id = row.get("model_call_id")
        if call_id is None:
            continue
        for parent, stream, at_seq in family.forks(one.session_id):
            candidates = exact.get((parent, row.get("turn_key"), call_id))
            if candidates is None:
                candidates = alone.get((parent, call_id), [])
                if len(candidates) != 1 or len(alone[(one.session_id, call_id)]) != 1:
                    continue
            for candidate in candidates:
                source = rows[candidate][1]
                if not _differ(row.get("message_id"), source.get("message_id")) and _began_by(
                    source, stream, at_seq
                ):
                    groups.join(index, candidate)


def _join_inherited(rows: _Held, groups: _Groups) -> None:
    """An ``inherited`` event names its source by ``message_id``, else by ``model_call_id`` in the parent or forked-from session."""
    exact, alone = _by_call_id(rows)
    by_message: dict[str, list[int]] = defaultdict(list)
    for index, (_, row) in enumerate(rows):
        if row.get("message_id") is not None:
            by_message[row["message_id"]].append(index)
    for index, (one, row) in enumerate(rows):
        if not row.get("inherited_event"):
            continue
        message_id, call_id = row.get("message_id"), row.get("model_call_id")
        sources = [
            other
            for other in (by_message[message_id] if message_id is not None else ())
            if rows[other][0] is not one and not _differ(row.get("provider"), rows[other][1].get("provider"))
        ]
        if not sources and call_id is not None:
            for parent in _parents(one):
                found = exact.get((parent, row.get("turn_key"), call_id)) or alone.get((parent, call_id), [])
                found = [
                    other for other in found if not _differ(message_id, rows[other][1].get("message_id"))
                ]
                if parent != one.session_id and len(found) == 1:
                    sources.extend(found)
        for other in sources:
            groups.join(index, other)


def _by_call_id(
    rows: _Held,
) -> tuple[dict[tuple[str, str | None, str], list[int]], dict[tuple[str, str], list[int]]]:
    """Calls by (session, turn, ``model_call_id``) and by (session, ``model_call_id``)."""
    exact: dict[tuple[str, str | None, str], list[int]] = defaultdict(list)
    alone: dict[tuple[str, str], list[int]] = defaultdict(list)
    for index, (one, row) in enumerate(rows):
        if row.get("model_call_id") is not None:
            exact[(one.session_id, row.get("turn_key"), row["model_call_id"])].append(index)
            alone[(one.session_id, row["model_call_id"])].append(index)
    return dict(exact), dict(alone)


def _differ(one: object, other: object) -> bool:
    """Both are known and are not the same."""
    return one is not None and other is not None and one != other


def _inputs_agree(one: tuple[int | None, ...], other: tuple[int | None, ...]) -> bool:
    """At least one known input figure is equal and none differs."""
    pairs = [
        (left, right)
        for left, right in zip(one, other, strict=True)
        if left is not None and right is not None
    ]
    return bool(pairs) and all(left == right for left, right in pairs)


def _began_by(row: Row, stream: str, at_seq: int) -> bool:
    """Did the call begin in the stream of that name, at or before the position?"""
    key = row.get("order_key")
    place = numbered_place(key) if key else None
    return place is not None and place[1] == stream and place[3] <= at_seq


# --- the owner --------------------------------------------------------------------------------------------------------------------


def _choose(held: Mapping[str, list[Row]], family: Family) -> str:
    """Not eval, not inherited, ancestors first, least ``occurred_at`` of the call's events (null last), session id."""
    left = set(held)
    for worse in ("eval", "inherited"):
        better = {one for one in left if not all(_is(worse, row) for row in held[one])}
        left = better or left
    left = {one for one in left if not family.ancestors(one) & left} or left

    def first(session_id: str) -> tuple[bool, int, bytes]:
        times = [row["least_at"] for row in held[session_id] if row.get("least_at") is not None]
        return not times, min(times, default=0), session_id.encode()

    return min(left, key=first)


def _is(word: str, row: Row) -> bool:
    return row.get("kind") == "eval" if word == "eval" else bool(row.get("inherited_event"))


# --- descent ----------------------------------------------------------------------------------------------------------------------


def _parents(one: Holder) -> list[str]:
    """Forked from first, then the parent; each once."""
    named = (one.fork_parent_session_id, one.parent_session_id)
    return list(dict.fromkeys(parent for parent in named if parent is not None))


def _edges_in_cycles(edges: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Edges that lie on a cycle, sorted. What no cycle can pass through is cut off first, so that a usual family costs one pass."""
    left = set(edges)
    while True:
        children = {child for child, _ in left}
        parents = {parent for _, parent in left}
        kept = {(child, parent) for child, parent in left if child in parents and parent in children}
        if len(kept) == len(left):
            break
        left = kept
    up: dict[str, list[str]] = defaultdict(list)
    for child, parent in left:
        up[child].append(parent)
    return sorted(edge for edge in left if _reaches(edge[1], edge[0], up))


def _reaches(start: str, goal: str, up: Mapping[str, list[str]]) -> bool:
    seen, waiting = {start}, [start]
    while waiting:
        one = waiting.pop()
        if one == goal:
            return True
        for parent in up.get(one, ()):
            if parent not in seen:
                seen.add(parent)
                waiting.append(parent)
    return False
