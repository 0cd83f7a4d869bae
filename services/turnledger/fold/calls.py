"""Owns model calls (contract 8, One call): which events are one call, what it reported, and the rows of ``model_calls``.

Identity is decided over the whole session (``resolve_calls``). A turn whose ids nobody else names gives the same answer by itself
(``resolve_turn``): both run ``_group``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from turnledger.contract.event import Event
from turnledger.fold.fields import decimal_text, finding, integer, label, place_key, status_code, text
from turnledger.fold.model import Row, Turn
from turnledger.fold.order import order_key
from turnledger.fold.usage import (
    NO_BUCKETS,
    Buckets,
    Measured,
    Raw,
    Report,
    buckets,
    convention_of,
    fidelity_of,
    filled,
    rank,
    read_report,
)

STARTED, COMPLETED, FAILED, RETRIED, DELTA, USAGE = range(6)

CALL_TYPES: Final = {
    "model_call.started": STARTED,
    "model_call.completed": COMPLETED,
    "model_call.failed": FAILED,
    "model_call.retried": RETRIED,
    "model_call.delta": DELTA,
    "usage.reported": USAGE,
}
"""Event types that ``read_sighting`` reads."""


class Sighting:
    """One event as evidence of a model call: what it names and what it reports."""

    __slots__ = (
        "event",
        "index",
        "message_id",
        "model",
        "model_call_id",
        "provider",
        "report",
        "request_id",
        "row",
        "turn_key",
        "what",
    )

    def __init__(self, event: Event, what: int, index: int, turn_key: str | None, wrong: list[Row]) -> None:
        payload = event.payload
        self.event = event
        self.what = what
        self.index = index
        """Its place in the order of what is resolved together."""
        self.turn_key = turn_key
        self.model_call_id = event.model_call_id
        # Fields are read in place where they are plain text: this runs for every call event of the hot path.
        value = payload.get("provider")
        self.provider = value if type(value) is str and value else _odd_text(event, "provider", value, wrong)
        value = payload.get("model")
        self.model = value if type(value) is str and value else _odd_text(event, "model", value, wrong)
        value = payload.get("message_id")
        self.message_id = (
            value if type(value) is str and value else _odd_text(event, "message_id", value, wrong)
        )
        value = payload.get("request_id")
        self.request_id = value if type(value) is str and value else label(event, "request_id", wrong)
        self.report: Report | None = None
        if what == USAGE or "usage" in payload:
            self.report = read_report(event, wrong)
        self.row = what != RETRIED and (
            what != USAGE or (self.report is not None and self.report.kind in ("per_call", "snapshot"))
        )
        """It makes a row of ``model_calls``; a mere mention makes none."""

    @property
    def nameless(self) -> bool:
        return self.model_call_id is None and self.message_id is None and self.request_id is None

    @property
    def figures(self) -> Report | None:
        """Its report if that is one of the call's own figures, neither a running total nor a sum of others."""
        report = self.report
        return report if report is not None and report.kind in ("per_call", "snapshot") else None


def _odd_text(event: Event, name: str, value: object, wrong: list[Row]) -> str | None:
    return None if value is None else text(event, name, wrong)


class Call:
    """One model call: its sightings in order, and after ``describe`` what they say together."""

    __slots__ = (
        "best",
        "completion",
        "context_window",
        "convention",
        "counts",
        "counts_alone",
        "error_class",
        "fidelity",
        "first",
        "hour_at",
        "inherited",
        "key",
        "message_id",
        "model",
        "model_call_id",
        "peak_input",
        "provider",
        "reported",
        "request_id",
        "retried",
        "retries",
        "sightings",
        "started",
        "status",
        "status_code",
        "stop_reason",
        "turn_key",
        "values",
        "wrong",
    )

    def __init__(self, sightings: list[Sighting]) -> None:
        self.sightings = sightings
        self.first = sightings[0].event
        self.key = place_key(self.first)
        turn_key = sightings[0].turn_key
        if turn_key is None:
            turn_key = next((s.turn_key for s in sightings if s.turn_key is not None), None)
        self.turn_key = turn_key
        """Of its first event that has a turn."""
        self.wrong: list[Row] = []
        self.retries = 0
        self._describe()

    def _describe(self) -> None:
        started: Sighting | None = None
        peak: int | None = None
        window: int | None = None
        completed: list[Sighting] = []
        failed: list[Sighting] = []
        reporting: list[Sighting] = []
        retried = 0
        inherited = False
        wrong = self.wrong
        for sighting in self.sightings:
            event = sighting.event
            payload = event.payload
            what = sighting.what
            if what == STARTED:
                started = started or sighting
            elif what == COMPLETED:
                completed.append(sighting)
            elif what == FAILED:
                failed.append(sighting)
            elif what == RETRIED:
                retried = max(retried, integer(event, "attempt", wrong) or 0)
            if sighting.report is not None and sighting.report.kind in ("per_call", "snapshot"):
                reporting.append(sighting)
            if event.provenance == "inherited":
                inherited = True
            if "peak_input" in payload:
                peak = _greater(peak, integer(event, "peak_input", wrong))
            if "context_window" in payload:
                window = _greater(window, integer(event, "context_window", wrong))
        if len(completed) > 1:
            completed.sort(key=_rank)
        if len(reporting) > 1:
            reporting.sort(key=_rank)
        self.started = started
        self.retried = retried
        self.inherited = inherited
        self.peak_input = peak
        self.context_window = window
        self.status = "completed" if completed else "failed" if failed else "started"
        # What ended it: the best completion, else the last failure. Its own fields go before those of other events.
        self.completion = completion = completed[0] if completed else failed[-1] if failed else None
        best = reporting[0] if reporting else None
        self.best = best
        provider: str | None = None
        model: str | None = None
        message_id: str | None = None
        request_id: str | None = None
        model_call_id: str | None = None
        for evidence in (completed, reporting, self.sightings):
            for sighting in evidence:
                provider = provider or sighting.provider
                model = model or sighting.model
                message_id = message_id or sighting.message_id
                request_id = request_id or sighting.request_id
                model_call_id = model_call_id or sighting.model_call_id
        self.provider = provider
        self.model = model
        self.message_id = message_id
        self.request_id = request_id
        self.model_call_id = model_call_id
        self.error_class: str | None = None
        self.status_code: int | None = None
        self.stop_reason: str | None = None
        if completion is not None:
            event = completion.event
            payload = event.payload
            if "status_code" in payload:
                self.status_code = status_code(event, wrong)
            if "stop_reason" in payload:
                self.stop_reason = text(event, "stop_reason", wrong)
            if completion.what == FAILED and "error_class" in payload:
                self.error_class = text(event, "error_class", wrong)
        if self.stop_reason is None:
            for sighting in reporting:
                if sighting.report is not None and sighting.report.stop_reason is not None:
                    self.stop_reason = sighting.report.stop_reason
                    break
        self._measure(best, reporting)

    def _measure(self, best: Sighting | None, reporting: list[Sighting]) -> None:
        report = best.report if best is not None else None
        did_fail = self.status == "failed"
        if best is None or report is None:
            self.values: Buckets = NO_BUCKETS
            self.convention: str | None = None
            self.reported = False
        else:
            convention = convention_of(report, best.provider or self.provider)
            raw: Raw = report.raw
            if len(reporting) > 1:
                raw = filled(
                    [
                        (s.report, convention_of(s.report, s.provider or self.provider))
                        for s in reporting
                        if s.report is not None
                    ]
                )
            self.values, negative = buckets(raw, convention)
            self.convention = convention
            self.reported = self.values != NO_BUCKETS
            if negative:
                self.wrong.append(finding("usage_negative_bucket", "warning", best.event))
            if convention == "unknown":
                self.wrong.append(
                    finding("usage_unknown_convention", "warning", best.event, provider=self.provider)
                )
            did_fail = did_fail or best.what == FAILED
        self.fidelity = fidelity_of(report, did_fail)
        self.counts_alone = self.status != "failed" or self.reported
        """Its figures are in the sums unless a standing contribution covers them."""
        self.counts = self.counts_alone
        """They are in the sums: ``usage.settle`` has decided."""
        if best is not None and best.event.at is not None:
            self.hour_at: int | None = best.event.at
        else:
            self.hour_at = _last_time(self.sightings)


def _greater(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _rank(sighting: Sighting) -> tuple[int, bool, int, int]:
    return rank(sighting.figures, sighting.message_id is not None, sighting.index)


def _last_time(sightings: Sequence[Sighting]) -> int | None:
    """The last known time of a call: of its last event that has one, else its stream's running time (contract 12)."""
    for sighting in reversed(sightings):
        if sighting.event.at is not None:
            return sighting.event.at
    for sighting in reversed(sightings):
        if sighting.event.running is not None:
            return sighting.event.running
    return None


# Resolution


class TurnCalls:
    """What call resolution says about one turn, or about everything outside turns."""

    __slots__ = ("calls", "cumulative", "findings", "mentioned", "recorded", "rollups", "threads")

    def __init__(self) -> None:
        self.calls: list[Call] = []
        """The calls whose rows stand here, in the order of their first events."""
        self.cumulative: list[Measured] = []
        """Running totals that its events report, in order."""
        self.rollups: list[tuple[Sighting, Call | None]] = []
        """Sums of other reports, each with the call that it names."""
        self.threads: set[str] = set()
        """Provider threads that a report in it names."""
        self.recorded: set[str] = set()
        """``model_call_id`` of events in it that make a row, here or in another turn."""
        self.mentioned: set[str] = set()
        """``model_call_id`` of its call events that make none."""
        self.findings: list[Row] = []


class CallResolution:
    """Who is one call with whom, over a whole session."""

    def __init__(self) -> None:
        self._turns: dict[str | None, TurnCalls] = {}

    def of(self, turn_key: str | None) -> TurnCalls:
        """What it says about a turn; None for what stands outside every turn."""
        known = self._turns.get(turn_key)
        if known is None:
            known = self._turns[turn_key] = TurnCalls()
        return known

    def __iter__(self) -> Iterator[TurnCalls]:
        return iter(self._turns.values())


def resolve_calls(turns: Iterable[Turn], loose: Iterable[Event]) -> CallResolution:
    """Resolve the calls of a whole session. Events need ``running`` set (``fold.order``)."""
    resolution = CallResolution()
    placed: list[tuple[str | None, Event]] = [(None, e) for e in loose if e.type in CALL_TYPES]
    placed += [(turn.key, e) for turn in turns for e in turn.events if e.type in CALL_TYPES]
    placed.sort(key=lambda one: order_key(one[1]))
    sightings = [
        Sighting(event, CALL_TYPES[event.type], index, turn_key, resolution.of(turn_key).findings)
        for index, (turn_key, event) in enumerate(placed)
    ]
    _resolve(sightings, resolution.of)
    return resolution


def resolve_turn(turn_key: str | None, events: Sequence[tuple[int, Event]]) -> TurnCalls:
    """Resolve the calls of one turn by itself: (place in the turn, event) of its call events, in order."""
    own = TurnCalls()
    if events:
        wrong = own.findings
        sightings = [
            Sighting(event, CALL_TYPES[event.type], index, turn_key, wrong) for index, event in events
        ]
        _resolve(sightings, lambda _: own)
    return own


def _resolve(sightings: list[Sighting], of: Callable[[str | None], TurnCalls]) -> None:
    clusters = _plain(sightings)
    if clusters is None:
        clusters = _Grouping(sightings, of).clusters()
    calls: list[Call] = []
    for cluster in clusters:
        call = Call(cluster)
        calls.append(call)
        home = of(call.turn_key)
        home.calls.append(call)
        if call.wrong:
            home.findings += call.wrong
    # No sighting points back at its call: cycles would outlive a turn where the collector is off (design 3, point 9).
    turn_key = sightings[0].turn_key if sightings else None
    here = of(turn_key)
    for sighting in sightings:
        if sighting.turn_key != turn_key:
            turn_key = sighting.turn_key
            here = of(turn_key)
        name = sighting.model_call_id
        if name is not None:
            (here.recorded if sighting.row else here.mentioned).add(name)
        report = sighting.report
        if report is None:
            continue
        if report.thread is not None:
            here.threads.add(report.thread)
        kind = report.kind
        if kind == "per_call":
            continue
        if kind == "cumulative":
            if len(report.usage_stream) == 1:
                here.threads.add(report.usage_stream[0])
            here.cumulative.append(Measured(sighting.event, report, sighting.provider, sighting.model))
        elif kind == "rollup":
            here.rollups.append((sighting, _pointed_at(sighting, calls)))


def _pointed_at(rollup: Sighting, calls: Sequence[Call]) -> Call | None:
    """The call that a sum of others names: its own, else by message, request or model call id."""
    for match in (_is, _same_message, _same_request, _same_model_call):
        for call in calls:
            if any(match(sighting, rollup) for sighting in call.sightings):
                return call
    return None


def _is(one: Sighting, other: Sighting) -> bool:
    return one is other


def _plain(sightings: list[Sighting]) -> list[list[Sighting]] | None:
    """The usual case without general machinery: every event names its ``model_call_id`` in one turn, and no other id says otherwise.

    Same answer as ``_Grouping`` where it answers; None where a rule beyond (turn, model_call_id) could speak.
    """
    clusters: dict[str, list[Sighting]] = {}
    owner: dict[tuple[str, str], str] = {}
    messages: dict[str, str] = {}
    providers: dict[str, str] = {}
    turn_key = sightings[0].turn_key if sightings else None
    rowless = False
    for sighting in sightings:
        name = sighting.model_call_id
        if not sighting.row:
            if sighting.what == USAGE and sighting.nameless:
                continue
            if sighting.what != RETRIED:
                return None
            rowless = True
        if name is None or sighting.turn_key != turn_key:
            return None
        message = sighting.message_id
        if message is not None and (
            owner.setdefault(("m", message), name) != name or messages.setdefault(name, message) != message
        ):
            return None
        request = sighting.request_id
        if request is not None and owner.setdefault(("r", request), name) != name:
            return None
        provider = sighting.provider
        if provider is not None and providers.setdefault(name, provider) != provider:
            return None
        cluster = clusters.get(name)
        if cluster is None:
            clusters[name] = [sighting]
        else:
            cluster.append(sighting)
    for name, provider in providers.items():
        for sighting in clusters[name]:
            sighting.provider = provider
    if rowless:
        return [cluster for cluster in clusters.values() if any(s.row for s in cluster)]
    return list(clusters.values())


Stream = tuple[str, int, str]


class _Grouping:
    """The whole rule of contract 8, One call, over sightings in the order of contract 5: one method a rule."""

    def __init__(self, sightings: list[Sighting], of: Callable[[str | None], TurnCalls]) -> None:
        self._all = sightings
        self._of = of
        self._parent = list(range(len(sightings)))
        self._message: list[tuple[str | None, str] | None] = [None] * len(sightings)
        """By root: the (provider, message_id) of its cluster; a cluster never has two."""
        self._started = [s.what == STARTED for s in sightings]
        """By root: some event starts it."""
        self._ended: list[int | None] = [
            n if s.what in (COMPLETED, FAILED) else None for n, s in enumerate(sightings)
        ]
        """By root: the place of the first event that ends it."""
        self._void: set[str] = set()
        """Message ids that are no identity."""
        self._starts: dict[Stream, list[int]] = {}
        for n, sighting in enumerate(sightings):
            if sighting.what == STARTED:
                self._starts.setdefault(_stream(sighting), []).append(n)

    def clusters(self) -> list[list[Sighting]]:
        """The members of every call, each call by its first event; events that make no row and join none are in none."""
        self._find_reused()
        self._inherit_providers()
        named = [n for n, s in enumerate(self._all) if not s.nameless]
        joining = [n for n in named if self._all[n].row or self._all[n].what == RETRIED]
        self._by_message(joining)
        self._by_request(joining)
        self._by_model_call(joining)
        self._pair_ends()
        members = joining + [n for n, s in enumerate(self._all) if s.nameless and s.row and not _clings(s)]
        members += self._attach_nameless()
        groups: dict[int, list[Sighting]] = {}
        for n in sorted(members):
            groups.setdefault(self._root(n), []).append(self._all[n])
        return [group for group in groups.values() if any(s.row for s in group)]

    def _root(self, n: int) -> int:
        parent = self._parent
        while parent[n] != n:
            parent[n] = parent[parent[n]]
            n = parent[n]
        return n

    def _join(self, one: int, other: int) -> None:
        """Make two clusters one, unless they are two messages."""
        a, b = self._root(one), self._root(other)
        if a == b:
            return
        mine, theirs = self._message[a], self._message[b]
        if mine is not None and theirs is not None and mine != theirs:
            return
        if b < a:
            a, b = b, a
        self._parent[b] = a
        self._message[a] = mine if mine is not None else theirs
        self._started[a] |= self._started[b]
        ends = [end for end in (self._ended[a], self._ended[b]) if end is not None]
        self._ended[a] = min(ends) if ends else None

    def _identity(self, sighting: Sighting) -> str | None:
        message = sighting.message_id
        return None if message is None or message in self._void else message

    def _find_reused(self) -> None:
        """A message id that one stream gives to two ``model_call_id`` is no identity."""
        seen: dict[tuple[Stream, str], str] = {}
        for sighting in self._all:
            message, name = sighting.message_id, sighting.model_call_id
            if message is None or name is None or message in self._void:
                continue
            if seen.setdefault((_stream(sighting), message), name) != name:
                self._void.add(message)
        for message in sorted(self._void):
            first = next(s for s in self._all if s.message_id == message)
            self._of(first.turn_key).findings.append(
                finding("message_id_reused", "warning", first.event, message_id=message)
            )

    def _inherit_providers(self) -> None:
        """An event without a provider takes the only one of its (turn, model_call_id), else the only one of its message id."""
        by_name: dict[tuple[str | None, str], set[str]] = {}
        by_message: dict[str, set[str]] = {}
        for sighting in self._all:
            if sighting.provider is None:
                continue
            if sighting.model_call_id is not None:
                by_name.setdefault((sighting.turn_key, sighting.model_call_id), set()).add(sighting.provider)
            if sighting.message_id is not None:
                by_message.setdefault(sighting.message_id, set()).add(sighting.provider)
        for sighting in self._all:
            if sighting.provider is not None:
                continue
            known: set[str] = set()
            if sighting.model_call_id is not None:
                known = by_name.get((sighting.turn_key, sighting.model_call_id), known)
            if len(known) != 1 and sighting.message_id is not None:
                known = by_message.get(sighting.message_id, known)
            if len(known) == 1:
                (sighting.provider,) = known

    def _by_message(self, joining: list[int]) -> None:
        first: dict[tuple[str | None, str], int] = {}
        for n in joining:
            sighting = self._all[n]
            message = self._identity(sighting)
            if message is None:
                continue
            key = (sighting.provider, message)
            self._message[self._root(n)] = key
            self._join(first.setdefault(key, n), n)

    def _by_request(self, joining: list[int]) -> None:
        """Equal request ids join where one lacks a message id, unless the request id proves to be shared by several calls."""
        groups: dict[str, list[int]] = {}
        for n in joining:
            request = self._all[n].request_id
            if request is not None:
                groups.setdefault(request, []).append(n)
        for group in groups.values():
            lacking = [n for n in group if self._identity(self._all[n]) is None]
            messages = {self._identity(self._all[n]) for n in group} - {None}
            if not lacking or len(messages) > 1:
                continue
            names: dict[Stream, set[str]] = {}
            for n in group:
                name = self._all[n].model_call_id
                if name is not None:
                    names.setdefault(_stream(self._all[n]), set()).add(name)
            if any(len(several) > 1 for several in names.values()):
                continue
            anchor = next((n for n in group if self._identity(self._all[n]) is not None), lacking[0])
            for n in lacking:
                self._join(anchor, n)

    def _by_model_call(self, joining: list[int]) -> None:
        """Equal (turn, model_call_id): one call; of two messages of one id, events without a message id join the earlier."""
        groups: dict[tuple[str | None, str], list[int]] = {}
        for n in joining:
            name = self._all[n].model_call_id
            if name is not None:
                groups.setdefault((self._all[n].turn_key, name), []).append(n)
        for group in groups.values():
            anchor = next((n for n in group if self._message[self._root(n)] is not None), group[0])
            for n in group:
                self._join(anchor, n)

    def _pair_ends(self) -> None:
        """An end that no id joins to a start belongs to the latest unpaired start before it in its stream and turn."""
        for n, end in enumerate(self._all):
            if (
                end.what not in (COMPLETED, FAILED)
                or end.model_call_id is not None
                or self._started[self._root(n)]
            ):
                continue
            for m in reversed(self._starts.get(_stream(end), ())):
                start = self._all[m]
                if (
                    m < n
                    and start.turn_key == end.turn_key
                    and self._ended[self._root(m)] is None
                    and self._agree(m, n)
                ):
                    self._join(m, n)
                    break

    def _agree(self, one: int, other: int) -> bool:
        """No id of two events differs."""
        a, b = self._all[one], self._all[other]
        if a.request_id is not None and b.request_id is not None and a.request_id != b.request_id:
            return False
        mine, theirs = self._message[self._root(one)], self._message[self._root(other)]
        return mine is None or theirs is None or mine == theirs

    def _attach_nameless(self) -> list[int]:
        """A snapshot, delta or retry without ids belongs to its stream's latest call that is open there; else it counts nowhere."""
        attached = []
        for n, sighting in enumerate(self._all):
            if not sighting.nameless or not _clings(sighting):
                continue
            for m in reversed(self._starts.get(_stream(sighting), ())):
                ended = self._ended[self._root(m)]
                if m < n and (ended is None or ended > n):
                    self._join(m, n)
                    attached.append(n)
                    break
            else:
                if sighting.what == USAGE:
                    self._of(sighting.turn_key).findings.append(
                        finding("usage_snapshot_without_call", "warning", sighting.event)
                    )
        return attached


def _same_message(one: Sighting, other: Sighting) -> bool:
    return (
        one.message_id is not None
        and one.message_id == other.message_id
        and (one.provider == other.provider or other.provider is None)
    )


def _same_request(one: Sighting, other: Sighting) -> bool:
    return one.request_id is not None and one.request_id == other.request_id


def _same_model_call(one: Sighting, other: Sighting) -> bool:
    return (
        one.model_call_id is not None
        and one.model_call_id == other.model_call_id
        and one.turn_key == other.turn_key
    )


def _clings(sighting: Sighting) -> bool:
    """Without ids it is no call of its own."""
    if sighting.what == USAGE:
        return sighting.report is not None and sighting.report.kind == "snapshot"
    return sighting.what in (RETRIED, DELTA)


def _stream(sighting: Sighting) -> Stream:
    event = sighting.event
    return event.producer, event.epoch, event.stream


# Rows


def count_retries(calls: Sequence[Call]) -> None:
    """Set ``retries`` of a turn's calls, in order: the greatest attempt reported, or the failed calls directly before, if more.

    A failure that tells no provider or no model is a try of whatever follows it.
    """
    before: list[Call] = []
    for call in calls:
        alike = 0
        for failed in reversed(before):
            if not (_compatible(failed.provider, call.provider) and _compatible(failed.model, call.model)):
                break
            alike += 1
        call.retries = max(call.retried, alike)
        if call.status == "failed":
            before.append(call)
        else:
            before.clear()


def _compatible(one: str | None, other: str | None) -> bool:
    return one is None or other is None or one == other


def call_row(call: Call, kind: str, wrong: list[Row]) -> Row:
    """The call's row of ``model_calls`` (``columns.MODEL_CALLS``)."""
    started = call.started
    end = call.completion
    method = path = context_tokens = messages_count = tools_count = None
    started_at = None
    if started is not None:
        event = started.event
        started_at = event.at
        payload = event.payload
        if "method" in payload:
            method = text(event, "method", wrong)
        if "path" in payload:
            path = text(event, "path", wrong)
        if "context_tokens" in payload:
            context_tokens = integer(event, "context_tokens", wrong)
        if "messages_count" in payload:
            messages_count = integer(event, "messages_count", wrong)
        if "tools_count" in payload:
            tools_count = integer(event, "tools_count", wrong)
    protocol = latency = ttft = request_bytes = response_bytes = cost = None
    completed_at = None
    if end is not None:
        event = end.event
        completed_at = event.at
        payload = event.payload
        if "latency_ms" in payload:
            latency = integer(event, "latency_ms", wrong)
        if "ttft_ms" in payload:
            ttft = integer(event, "ttft_ms", wrong)
        if "protocol" in payload:
            protocol = text(event, "protocol", wrong)
        if "request_bytes" in payload:
            request_bytes = integer(event, "request_bytes", wrong)
        if "response_bytes" in payload:
            response_bytes = integer(event, "response_bytes", wrong)
        if "reported_cost_usd" in payload:
            cost = decimal_text(event, "reported_cost_usd", wrong)
    best = call.best
    if cost is None and best is not None and best is not end and "reported_cost_usd" in best.event.payload:
        cost = decimal_text(best.event, "reported_cost_usd", wrong)
    uncached, cache_read, write_5m, write_1h, write_other, output, reasoning, total_input = call.values
    first = call.first
    least_at = trace_id = None
    for sighting in call.sightings:
        event = sighting.event
        if event.at is not None and (least_at is None or event.at < least_at):
            least_at = event.at
        if trace_id is None:
            trace_id = event.trace_id
    return {
        "call_key": call.key,
        "turn_key": call.turn_key,
        "model_call_id": call.model_call_id,
        "message_id": call.message_id,
        "request_id": call.request_id,
        "trace_id": trace_id,
        "provider": call.provider,
        "protocol": protocol,
        "model": call.model,
        "kind": kind,
        "status": call.status,
        "error_class": call.error_class,
        "status_code": call.status_code,
        "stop_reason": call.stop_reason,
        "method": method,
        "path": path,
        "started_at": started_at,
        "completed_at": completed_at,
        "hour_at": call.hour_at,
        "latency_ms": latency,
        "ttft_ms": ttft,
        "retries": call.retries,
        "token_convention": call.convention,
        "usage_source": best.report.source if best is not None and best.report is not None else None,
        "fidelity": call.fidelity,
        "input_uncached_tokens": uncached,
        "cache_read_tokens": cache_read,
        "cache_write_5m_tokens": write_5m,
        "cache_write_1h_tokens": write_1h,
        "cache_write_other_tokens": write_other,
        "output_tokens": output,
        "reasoning_tokens": reasoning,
        "total_input_tokens": total_input,
        "counts": call.counts,
        "inherited_event": call.inherited,
        "peak_input_tokens": call.peak_input,
        "context_tokens": context_tokens,
        "context_window": call.context_window,
        "messages_count": messages_count,
        "tools_count": tools_count,
        "request_bytes": request_bytes,
        "response_bytes": response_bytes,
        "reported_cost_usd": cost,
        "least_at": least_at,
        "order_key": order_key(first),
    }
