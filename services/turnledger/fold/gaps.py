"""Owns gaps (contract 4): what is missing of which stream, and what the producers declared about it. A function of the set.

Arrival history (``filled_late``, ``withdrawn``) is not here: the store keeps it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from turnledger.contract.event import Event
from turnledger.contract.fields import count, text
from turnledger.fold.fields import wrong_type
from turnledger.fold.model import Row, StreamKey
from turnledger.fold.seen import StreamSeen
from turnledger.fold.turns import superseded_by

DECLARATIONS = frozenset(
    ("stream.declared", "stream.closed", "stream.lost", "stream.elided", "stream.superseded")
)

Hole = tuple[int, int, str]
"""(from_seq, to_seq, state): a maximal run of one state; ``open`` ``declared_lost`` ``declared_elided``."""


@dataclass(slots=True)
class GapFold:
    """What is missing of one session."""

    rows: list[Row]
    """{producer, epoch, stream, from_seq, to_seq, state}, by producer, epoch, stream (UTF-8 bytes), then number."""
    holes: dict[StreamKey, list[Hole]]
    """The same by stream, ascending."""
    counted: bool
    """Some stream is dense or sparse: without one nobody can tell whether anything is missing (grade ``unknown``)."""
    findings: list[Row]


@dataclass(slots=True)
class _Told:
    """What was declared about one stream."""

    lost: list[tuple[int, int]] = field(default_factory=list)
    elided: list[tuple[int, int]] = field(default_factory=list)
    last_seq: int | None = None
    to_seq: int | None = None


@dataclass(slots=True)
class Declarations:
    """What a session's ``stream.*`` events say about its streams, read in order."""

    told: dict[StreamKey, _Told] = field(default_factory=dict)
    densities: dict[tuple[str, str], dict[int, tuple[str | None, int]]] = field(default_factory=dict)
    """(producer, stream): epoch: (density as declared, first_seq)."""
    superseded: list[tuple[StreamKey, Row]] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)

    def density(self, stream: StreamKey, numbered: bool) -> tuple[str, int]:
        """(density, first_seq) of a stream: the last declaration of its epoch, else of the nearest earlier one that has any."""
        producer, epoch, name = stream
        epochs = self.densities.get((producer, name))
        declared: str | None = None
        first = 0
        if epochs:
            at = max((known for known in epochs if known <= epoch), default=None)
            if at is not None:
                declared, first = epochs[at]
        if declared is None:
            declared = "dense" if numbered or stream in self.told else "unknown"
        return declared, first


def declarations(events: Iterable[Event]) -> Declarations:
    """Read the ``stream.*`` events of a session, given in the order of contract 5. What is incomplete or reversed does nothing but a finding."""
    found = Declarations()
    for event in events:
        type_ = event.type
        if type_ == "stream.superseded":
            _superseded(event, found)
        elif type_ in DECLARATIONS:
            _declared(event, found)
    return found


def _superseded(event: Event, found: Declarations) -> None:
    stream = superseded_by(event)
    if stream is not None:
        row = {
            "producer": stream[0],
            "epoch": stream[1],
            "stream": stream[2],
            "reason": text(event.payload, "reason"),
        }
        found.superseded.append((stream, row))
        return
    for name, value in (
        ("producer", text(event.payload, "producer")),
        ("epoch", count(event.payload, "epoch")),
        ("stream", text(event.payload, "stream")),
    ):
        if value is None:
            wrong_type(event, name, found.findings)


def _named_stream(event: Event, found: Declarations) -> StreamKey:
    """The stream that a declaration concerns: its own, but for what the payload names."""
    payload = event.payload
    producer = text(payload, "producer")
    epoch = count(payload, "epoch")
    stream = text(payload, "stream")
    for name, value in (("producer", producer), ("epoch", epoch), ("stream", stream)):
        if value is None and payload.get(name) is not None:
            wrong_type(event, name, found.findings)
    return (
        event.producer if producer is None else producer,
        event.epoch if epoch is None else epoch,
        event.stream if stream is None else stream,
    )


def _declared(event: Event, found: Declarations) -> None:
    payload = event.payload
    stream = _named_stream(event, found)
    if event.type == "stream.declared":
        density = text(payload, "density")
        if density not in ("dense", "sparse", "unknown"):
            density = None
            wrong_type(event, "density", found.findings)
        first = count(payload, "first_seq")
        if first is None and payload.get("first_seq") is not None:
            wrong_type(event, "first_seq", found.findings)
        found.densities.setdefault((stream[0], stream[2]), {})[stream[1]] = (density, first or 0)
        return
    if event.type == "stream.closed":
        last = count(payload, "last_seq")
        if last is None:
            wrong_type(event, "last_seq", found.findings)
            return
        told = found.told.setdefault(stream, _Told())
        told.last_seq = last if told.last_seq is None else max(told.last_seq, last)
        return
    from_seq, to_seq = count(payload, "from_seq"), count(payload, "to_seq")
    if from_seq is None or to_seq is None or to_seq < from_seq:
        for name, value in (("from_seq", from_seq), ("to_seq", to_seq)):
            if value is None:
                wrong_type(event, name, found.findings)
        if from_seq is not None and to_seq is not None:
            wrong_type(event, "to_seq", found.findings)
        return
    told = found.told.setdefault(stream, _Told())
    (told.lost if event.type == "stream.lost" else told.elided).append((from_seq, to_seq))
    told.to_seq = to_seq if told.to_seq is None else max(told.to_seq, to_seq)


def find_gaps(
    seen: Mapping[StreamKey, StreamSeen],
    found: Declarations,
    streams: Iterable[StreamKey],
    superseded: set[StreamKey],
) -> GapFold:
    """The gaps of one session (contract 4).

    ``seen``: the numbers of each stream that has events with ``seq``; ``streams``: all streams that have events. Superseded ones are in neither, and
    what is declared about them is left out here.
    """
    rows: list[Row] = []
    holes: dict[StreamKey, list[Hole]] = {}
    findings = list(found.findings)
    counted = False
    known = dict.fromkeys(streams)
    known.update(dict.fromkeys(found.told))
    known.update(
        dict.fromkeys(
            (lane[0], epoch, lane[1]) for lane, epochs in found.densities.items() for epoch in epochs
        )
    )
    for stream in sorted(known, key=stream_order):
        if stream in superseded:
            continue
        numbers = seen.get(stream)
        density, first = found.density(stream, numbers is not None)
        counted = counted or density != "unknown"
        told = found.told.get(stream)
        if (
            told is not None
            and told.last_seq is not None
            and numbers is not None
            and numbers.hi > told.last_seq
        ):
            findings += _after_close(stream, told.last_seq, numbers)
        if density != "dense":
            continue
        missing = list(_missing(numbers, told, first))
        if not missing:
            continue
        holes[stream] = missing
        producer, epoch, name = stream
        for from_seq, to_seq, state in missing:
            row = {
                "producer": producer,
                "epoch": epoch,
                "stream": name,
                "from_seq": from_seq,
                "to_seq": to_seq,
                "state": state,
            }
            rows.append(row)
            if state == "open":
                findings.append({"check": "open_gap", "severity": "error", "row": row})
            elif state == "declared_lost":
                findings.append({"check": "declared_loss", "severity": "warning", "row": row})
    for row in {stream: row for stream, row in reversed(found.superseded)}.values():
        findings.append({"check": "superseded_stream", "severity": "info", "row": row})
    return GapFold(rows, holes, counted, findings)


def stream_order(stream: StreamKey) -> tuple[bytes, int, bytes]:
    """Streams are listed by producer, epoch and name; text by its UTF-8 bytes."""
    return stream[0].encode(), stream[1], stream[2].encode()


def _after_close(stream: StreamKey, last_seq: int, numbers: StreamSeen) -> Iterator[Row]:
    """One finding for each run of numbers that stand above ``last_seq``; its ``count`` says how many they are."""
    start = last_seq + 1
    edges = [(from_seq, to_seq) for from_seq, to_seq in numbers.holes() if to_seq >= start]
    edges.append((numbers.hi + 1, numbers.hi + 1))
    for from_seq, to_seq in edges:
        if from_seq > start:
            row = {
                "producer": stream[0],
                "epoch": stream[1],
                "stream": stream[2],
                "last_seq": last_seq,
                "from_seq": start,
                "to_seq": from_seq - 1,
            }
            yield {"check": "event_after_close", "severity": "warning", "row": row, "count": from_seq - start}
        start = max(start, to_seq + 1)


def _missing(numbers: StreamSeen | None, told: _Told | None, first: int) -> Iterator[Hole]:
    hi = -1 if numbers is None else numbers.hi
    if told is None:
        if numbers is None or not numbers.missing:
            return
        for from_seq, to_seq in numbers.holes():
            if to_seq >= first:
                yield max(from_seq, first), to_seq, "open"
        return
    top = max(hi, -1 if told.last_seq is None else told.last_seq, -1 if told.to_seq is None else told.to_seq)
    lost, elided = _union(told.lost), _union(told.elided)
    runs: list[tuple[int, int]] = list(numbers.holes()) if numbers is not None and numbers.missing else []
    if top > hi:
        runs.append((hi + 1, top))
    for from_seq, to_seq in runs:
        if to_seq >= first:
            yield from _by_state(max(from_seq, first), to_seq, lost, elided)


def _union(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for from_seq, to_seq in sorted(ranges):
        if merged and from_seq <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], to_seq))
        else:
            merged.append((from_seq, to_seq))
    return merged


def _by_state(
    from_seq: int, to_seq: int, lost: list[tuple[int, int]], elided: list[tuple[int, int]]
) -> Iterator[Hole]:
    """Cut one hole into maximal runs of one state; lost beats elided."""
    at = from_seq
    while at <= to_seq:
        until = to_seq
        state = "open"
        inside, edge = _cover(lost, at)
        if inside:
            state, until = "declared_lost", min(until, edge)
        else:
            until = min(until, edge - 1)
            inside, edge = _cover(elided, at)
            if inside:
                state, until = "declared_elided", min(until, edge)
            else:
                until = min(until, edge - 1)
        yield at, until, state
        at = until + 1


def _cover(ranges: list[tuple[int, int]], at: int) -> tuple[bool, int]:
    """(True, last number) of the range that covers ``at``, else (False, first number of the next range)."""
    index = bisect_right(ranges, (at, _BEYOND)) - 1
    if index >= 0 and at <= ranges[index][1]:
        return True, ranges[index][1]
    return False, ranges[index + 1][0] if index + 1 < len(ranges) else _BEYOND


_BEYOND = 1 << 64


def gaps_of(events: Iterable[Event], superseded: set[StreamKey]) -> GapFold:
    """The gaps of one session from its events in order, superseded streams left out but for their own ``stream.superseded``."""
    numbers: dict[StreamKey, list[int]] = {}
    streams: dict[StreamKey, None] = {}
    told: list[Event] = []
    for event in events:
        if event.type in DECLARATIONS:
            told.append(event)
        stream = (event.producer, event.epoch, event.stream)
        if stream in superseded:
            continue
        streams[stream] = None
        if event.seq is not None:
            numbers.setdefault(stream, []).append(event.seq)
    seen: dict[StreamKey, StreamSeen] = {}
    for stream, values in numbers.items():
        stream_seen = seen[stream] = StreamSeen()
        for seq in sorted(values):
            stream_seen.add(seq)
    return find_gaps(seen, declarations(told), streams, superseded)
