"""Reads a session's events in the order of contract 5, a page at a time: memory does not grow with the session. Writes nothing.

The server sorts keys into a cursor that outlives its transaction, so that nobody's snapshot is held while a person reads; the bytes of
each page are fetched by key. What was accepted is never changed, so the pages are of one story.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date
from typing import Any

import psycopg

from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.contract.reader import Rejected
from turnledger.fold.turns import superseded_by
from turnledger.store.instants import load_as_microseconds
from turnledger.store.named import query
from turnledger.store.read import LedgerUnreadable, of_slot

PAGE = 1000
"""Events that are held at once."""

_CURSOR = "turnledger_story"


def story(
    connection: psycopg.Connection[Any], session_no: int, *, types: Collection[str] | None = None
) -> Iterator[list[Event]]:
    """Pages of the accepted events of a session in order, superseded streams left out, ``Event.running`` set.

    Of ``types`` alone where they are given. ``connection`` must be in no transaction, and is in none between pages. Raises
    :class:`LedgerUnreadable`.
    """
    load_as_microseconds(connection)
    read = FastReader(limit=sys.maxsize).read
    with connection.cursor(_CURSOR, binary=True, withhold=True) as places:
        with connection.transaction():
            parameters = {
                "session_no": session_no,
                "left_out": _left_out(connection, session_no),
                "types": None if types is None else list(types),
            }
            places.execute(query("story/order"), parameters)
        while True:
            with connection.transaction():
                page = places.fetchmany(PAGE)
                found = _bytes(connection, page)
            if not page:
                return
            events = []
            for (stream_no, seq, _, running), (raw, offset) in zip(page, found, strict=True):
                event = read(raw)
                if isinstance(event, Rejected):
                    raise LedgerUnreadable(
                        f"the event at stream_no {stream_no}, seq {seq} was accepted once and is refused now ({event.reason}: {event.detail}): "
                        "restore ledger.events from a backup, or run the version that wrote it."
                    )
                event.position = offset
                event.running = running
                events.append(event)
            yield events


def _bytes(
    connection: psycopg.Connection[Any], page: Sequence[tuple[int, int, date, int | None]]
) -> list[tuple[bytes, int]]:
    if not page:
        return []
    with connection.cursor(binary=True) as cursor:
        cursor.execute(
            query("story/events"),
            {
                "stream_no": [place[0] for place in page],
                "seq": [place[1] for place in page],
                "day": [place[2] for place in page],
            },
        )
        found = cursor.fetchall()
    if len(found) != len(page):
        raise LedgerUnreadable(
            f"{len(page) - len(found)} events of this session were taken away while it was read (a retention run does that): run the command again."
        )
    return found


def _left_out(connection: psycopg.Connection[Any], session_no: int) -> list[int]:
    """Numbers of the streams that another one supersedes (contract 6)."""
    number = {"session_no": session_no}
    read = FastReader(limit=sys.maxsize).read
    with connection.cursor(binary=True) as cursor:
        said = [read(raw) for (raw,) in cursor.execute(query("story/superseded"), number)]
        named = {superseded_by(one) for one in said if isinstance(one, Event)}
        if not named:
            return []
        return [
            stream_no
            for stream_no, *key in cursor.execute(query("story/streams"), number)
            if tuple(key) in named
        ]


def emitted(
    connection: psycopg.Connection[Any], slot: str, session_no: int, events: Iterable[Event]
) -> list[tuple[str | None, int | None, str | None, int]]:
    """(turn_id, turn_index, model_call_id, tools that it asked for) of the model calls that ``events`` name, as far as the projections know.

    Of the turns that they name alone, where each names one: ids of calls may begin from 1 in every turn, and a session of 25,000 turns has
    as many calls of one id. ``slot`` as ``active_slot`` gives it.
    """
    asking = [event for event in events if event.model_call_id is not None]
    if not asking:
        return []
    given: dict[str, Any] = {
        "session_no": session_no,
        "calls": list({event.model_call_id for event in asking}),
    }
    statement = "story/emitted"
    if all(event.turn_id is not None or event.turn_index is not None for event in asking):
        statement = "story/emitted_in_turns"
        given["turn_ids"] = list({event.turn_id for event in asking if event.turn_id is not None})
        given["turn_indexes"] = list({event.turn_index for event in asking if event.turn_id is None})
    with connection.cursor(binary=True) as cursor:
        cursor.execute(of_slot(statement, slot), given)
        return cursor.fetchall()
