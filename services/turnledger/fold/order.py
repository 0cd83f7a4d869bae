"""Owns the order of a session's events (contract 5): running times, and one total order that Postgres can sort by too.

Never looks at arrival: not at ``Event.position``, not at ``observed_at``, not at the order in which the events were given.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from struct import Struct

from turnledger.contract.event import Event

_TIME = Struct(">QB")
_POSITION = Struct(">q")
_LAST = (1 << 64) - 1
_SIGN = 1 << 63
_PLAIN_TIME = [0]


def order_key(event: Event) -> bytes:
    """The place of an event in its session's order, as bytes that compare like the events do.

    Needs ``event.running`` (``set_running_times`` or ``ordered`` sets it). The layout: running time (8 bytes, no time is all
    ones), 0 for an event with ``seq`` or 1 without, then producer, stream, epoch, seq, or receipt_key, producer, stream, epoch. Text is UTF-8
    ended by a zero byte, which no text contains (contract 15: a NUL is a dead letter), so a prefix sorts first.
    """
    running = event.running
    time = _LAST if running is None else running + _SIGN
    seq = event.seq
    if seq is not None:
        return (
            _TIME.pack(time, 0)
            + _stream_bytes(event.producer, event.stream, event.epoch)
            + _POSITION.pack(seq)
        )
    return (
        _TIME.pack(time, 1)
        + (event.receipt_key or "").encode()
        + b"\0"
        + _stream_bytes(event.producer, event.stream, event.epoch)
    )


@lru_cache(maxsize=4096)
def _stream_bytes(producer: str, stream: str, epoch: int) -> bytes:
    return producer.encode() + b"\0" + stream.encode() + b"\0" + _POSITION.pack(epoch)


def set_running_times(events: Iterable[Event]) -> None:
    """Set ``running`` of each event of one session (contract 5), from the whole set.

    With ``seq``: the greatest ``at`` so far in its (producer, stream), carried over epochs; before the first known time, that first one; with none,
    None (sorts last). Without ``seq``: its own ``at``.
    """
    lanes: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        if event.seq is None:
            event.running = event.at
            continue
        lane = lanes.get((event.producer, event.stream))
        if lane is None:
            lanes[(event.producer, event.stream)] = [event]
        else:
            lane.append(event)
    for lane in lanes.values():
        lane.sort(key=_in_lane)
        latest: int | None = None
        for event in lane:
            at = event.at
            if at is not None and (latest is None or at > latest):
                if latest is None:
                    _backfill(lane, at)
                latest = at
            event.running = latest if latest is not None else None


def _backfill(lane: list[Event], first: int) -> None:
    for event in lane:
        if event.at is not None:
            return
        event.running = first


def _in_lane(event: Event) -> tuple[int, int]:
    return event.epoch, event.seq or 0


def ordered(events: Iterable[Event]) -> list[Event]:
    """All events of one session in the order of contract 5. Sets ``running`` of each."""
    known = list(events)
    set_running_times(known)
    known.sort(key=order_key)
    return known


def numbered_place(key: bytes) -> tuple[str, str, int, int] | None:
    """(producer, stream, epoch, seq) that an ``order_key`` was made of; None for an event without ``seq``."""
    if key[8]:
        return None
    producer, stream, numbers = key[_TIME.size :].split(b"\0", 2)
    return (
        producer.decode(),
        stream.decode(),
        _POSITION.unpack_from(numbers)[0],
        _POSITION.unpack_from(numbers, _POSITION.size)[0],
    )
