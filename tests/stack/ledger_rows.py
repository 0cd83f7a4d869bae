"""Accepted events put straight into the ledger, for tests of what reads it. No worker, no projections."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import psycopg

from turnledger.contract.event import Event
from turnledger.contract.reader import read
from turnledger.store.read import SessionRef


def put_events(
    link: psycopg.Connection[Any],
    session_id: str,
    envelopes: Iterable[dict[str, Any]],
    *,
    tenant: str = "default",
) -> tuple[SessionRef, list[Event]]:
    """A new session with these events, in an arbitrary order and on two days of ingest; the events as they were read."""
    link.execute("select ledger.make_event_partitions(ledger.today() - 1, 2)")
    row = link.execute(
        "insert into ledger.sessions (tenant, session_id, home_topic, home_partition) values (%s, %s, 't', 0) returning session_no",
        (tenant, session_id),
    ).fetchone()
    assert row is not None
    streams: dict[tuple[str, int, str], list[int]] = {}
    events = []
    for place, envelope in enumerate(envelopes):
        raw = json.dumps({"tenant": tenant, "session_id": session_id, **envelope}).encode()
        event = read(raw)
        assert isinstance(event, Event), event
        events.append(event)
        key = (event.producer, event.epoch, event.stream)
        if key not in streams:
            made = link.execute(
                "insert into ledger.streams (session_no, producer, epoch, stream) values (%s, %s, %s, %s) returning stream_no",
                (row[0], *key),
            ).fetchone()
            assert made is not None
            streams[key] = [int(made[0]), 0]
        if event.seq is None:
            streams[key][1] -= 1
        link.execute(
            "insert into ledger.events (batch_no, stream_no, seq, kafka_offset, occurred_at, day, type, raw) "
            "values (1, %s, %s, %s, timestamptz 'epoch' + %s * interval '1 microsecond', ledger.today() - %s, %s, %s)",
            (
                streams[key][0],
                streams[key][1] if event.seq is None else event.seq,
                place,
                event.at,
                place % 2,
                event.type,
                raw,
            ),
        )
    return SessionRef(int(row[0]), tenant, session_id), events
