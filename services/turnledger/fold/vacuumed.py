"""Owns what is still folded of a session whose events are gone (contract 12): its gaps. Sums and turns stay as they were set.

The declarations of its streams are kept, and which numbers were seen: that is all that gaps follow from. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from turnledger.contract.event import Event
from turnledger.fold.gaps import DECLARATIONS, GapFold, declarations, find_gaps
from turnledger.fold.model import Row, StreamKey
from turnledger.fold.order import order_key
from turnledger.fold.seen import StreamSeen
from turnledger.fold.turns import superseded_streams

MOST_LATE = 100
"""Rows of ``late_after_vacuum`` that are listed of a session; the count is exact. A session may go on for days after its events were let go of."""


def kept_declarations(events: Iterable[Event]) -> list[Event]:
    """Those of a session's events, with their running times, that its gaps follow from."""
    return [event for event in events if event.type in DECLARATIONS]


def gaps_after_vacuum(
    kept: Sequence[Event],
    late: Iterable[Event],
    seen: Mapping[StreamKey, StreamSeen],
    streams: Iterable[StreamKey],
) -> GapFold:
    """The gaps of a vacuumed session (contract 4).

    ``kept``: its declarations, ``running`` as it was when the events went. ``late``: what came since. ``seen``: the numbers of each stream that
    has any, those of events that are gone among them; ``streams``: all that ever had events.
    """
    told = in_order(kept, kept_declarations(late))
    superseded = superseded_streams(told)
    told = [
        event
        for event in told
        if event.type == "stream.superseded" or (event.producer, event.epoch, event.stream) not in superseded
    ]
    return find_gaps(
        {key: one for key, one in seen.items() if key not in superseded},
        declarations(told),
        [key for key in streams if key not in superseded],
        superseded,
    )


def in_order(kept: Sequence[Event], late: Sequence[Event]) -> list[Event]:
    """All declarations in the order of contract 5. Sets ``running`` of the late ones: what stood before them in their lane counts."""
    lanes: dict[tuple[str, str], list[tuple[int, int, bool, Event]]] = {}
    for events, known in ((kept, True), (late, False)):
        for event in events:
            if event.seq is not None:
                place = (event.epoch, event.seq, known, event)
                lanes.setdefault((event.producer, event.stream), []).append(place)
            elif not known:
                event.running = event.at
    for lane in lanes.values():
        lane.sort(key=lambda place: place[:2])
        times = [event.running if known else event.at for _, _, known, event in lane]
        # Before its first known time a stream takes that first one.
        latest = next((at for at in times if at is not None), None)
        for (_, _, known, event), at in zip(lane, times, strict=True):
            if at is not None and (latest is None or at > latest):
                latest = at
            if not known:
                event.running = latest
    return sorted([*kept, *late], key=order_key)


def late_after_vacuum(first: Sequence[Row], total: int) -> list[Row]:
    """The finding ``late_after_vacuum`` of one session, as ``findings.grouped`` takes it: counts events.

    ``first``: {producer, epoch, stream, seq, receipt_key} of the first ``MOST_LATE`` of ``total`` events that came after the vacuum; those that
    went with a later one are counted, and not listed.
    """
    if not total:
        return []
    found: list[Row] = [{"check": "late_after_vacuum", "severity": "warning", "row": row} for row in first]
    if not found:
        return [{"check": "late_after_vacuum", "severity": "warning", "row": {"gone": total}, "count": total}]
    found[-1]["count"] = 1 + total - len(found)
    return found
