"""Gaps of a session whose events are gone: those that the fold gave, moved on by what comes late."""

from __future__ import annotations

from hypothesis import given

from tests.property.budget import share
from tests.property.fleets import FLEETS, Fleet, build, plain
from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.fold.dedupe import event_key
from turnledger.fold.model import StreamKey
from turnledger.fold.seen import StreamSeen
from turnledger.fold.session import fold_session
from turnledger.fold.vacuumed import gaps_after_vacuum, kept_declarations, late_after_vacuum


def events(fleet: Fleet) -> dict[tuple[str, str], list[Event]]:
    """The accepted events of each session, those of a generated fleet that are any."""
    read = FastReader(limit=1 << 20).read
    found: dict[tuple[str, str], dict[object, Event]] = {}
    for envelope in build(fleet):
        event = read(plain(envelope))
        if isinstance(event, Event):
            found.setdefault((event.tenant, event.session_id), {}).setdefault(event_key(event), event)
    return {key: list(known.values()) for key, known in found.items()}


def seen(known: list[Event]) -> tuple[dict[StreamKey, StreamSeen], list[StreamKey]]:
    numbers: dict[StreamKey, list[int]] = {}
    streams: dict[StreamKey, None] = {}
    for event in known:
        key = (event.producer, event.epoch, event.stream)
        streams[key] = None
        if event.seq is not None:
            numbers.setdefault(key, []).append(event.seq)
    found = {}
    for key, values in numbers.items():
        found[key] = StreamSeen()
        for seq in sorted(values):
            found[key].add(seq)
    return found, list(streams)


@share(40)
@given(FLEETS)
def test_declarations_and_numbers_alone_give_the_gaps_of_the_whole_set(fleet: Fleet) -> None:
    for (tenant, session_id), known in events(fleet).items():
        whole = fold_session(tenant, session_id, known)
        numbers, streams = seen(known)
        assert gaps_after_vacuum(kept_declarations(known), [], numbers, streams).rows == whole.gaps


def test_of_late_events_the_first_are_listed_and_all_are_counted() -> None:
    rows = [{"seq": seq} for seq in range(3)]
    found = late_after_vacuum(rows, 7)
    assert [one["row"] for one in found] == rows
    assert sum(one.get("count", 1) for one in found) == 7
    assert late_after_vacuum([], 0) == []
    assert [(one["row"], one["count"]) for one in late_after_vacuum([], 5)] == [({"gone": 5}, 5)]
