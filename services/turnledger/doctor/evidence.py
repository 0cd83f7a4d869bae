"""Reads the evidence beside the findings of one session: what they name, what is alike, and what lies around it. Writes nothing."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg

from turnledger.contract.fast import FastReader
from turnledger.contract.reader import Rejected
from turnledger.contract.times import utc_text
from turnledger.doctor.findings import Evidence, Finding, Place, Row, Seen
from turnledger.doctor.rows import told
from turnledger.store.keys import receipt_hash
from turnledger.store.named import query
from turnledger.store.read import SessionRef, of_slot

LOOKED_AT = 500
"""Rows of one finding for which the rows and events that they name are read: enough to say what most of them have in common."""
DECLARED = [
    "stream.lost",
    "stream.closed",
    "stream.superseded",
    "stream.declared",
    "session.ended",
    "session.forked",
]
"""Types in which a producer says itself what became of its streams and of its session."""


def load_evidence(
    connection: psycopg.Connection[Any], slot: str, ref: SessionRef, findings: Sequence[Finding]
) -> Evidence:
    """The evidence of one session, in the caller's snapshot. What is read does not grow with the session but for its kinds of events."""
    key: Row = {"tenant": ref.tenant, "session_id": ref.session_id}
    number: Row = {"session_no": ref.session_no}
    rows = [row for one in findings for row in one.rows[:LOOKED_AT]]
    first = {name: next(iter(told(connection, statement, given)), {}) for name, statement, given in (
        ("facts", of_slot("check/facts", slot), number),
        ("sums", query("read/session_rollup"), key),
        ("counts", of_slot("check/counts", slot), number),
    )}  # fmt: skip
    calls = _names(rows, "call_key")
    turns = _names(rows, "turn_key")
    ids = _names(rows, "tool_call_id")
    same: dict[str, list[Row]] = defaultdict(list)
    for row in told(connection, query("check/same_ids"), {**key, "ids": ids}) if ids else ():
        same[row["call_id"]].append(row)
    return Evidence(
        tenant=ref.tenant,
        session_id=ref.session_id,
        facts=first["facts"],
        sums=first["sums"],
        counts=first["counts"],
        streams=told(connection, query("read/session_streams"), number),
        types=told(connection, query("check/types"), number),
        calls=told(connection, query("check/calls"), key),
        tools=told(connection, query("check/tools"), key),
        requests=told(connection, query("check/requests"), key),
        named_calls={
            row["call_key"]: row
            for row in (told(connection, query("check/named_calls"), {**key, "keys": calls}) if calls else ())
        },
        turns={
            row["turn_key"]: row
            for row in (told(connection, query("check/named_turns"), {**key, "keys": turns}) if turns else ())
        },
        same_ids=same,
        events=_events(connection, ref, {place for row in rows if (place := Place.of(row)) is not None}),
        around=_around(connection, ref, [row for one in findings if one.check in ("open_gap", "declared_loss") for row in one.rows[:LOOKED_AT]]),
        declared=[
            seen
            for (raw,) in connection.execute(query("check/declared"), {**number, "types": DECLARED})
            if (seen := _seen(raw)) is not None
        ],
        dead_letters=sum(one.count for one in findings if one.check == "dead_letter"),
    )  # fmt: skip


def _names(rows: Iterable[Row], name: str) -> list[str]:
    return sorted({row[name] for row in rows if isinstance(row.get(name), str)})


def _events(
    connection: psycopg.Connection[Any], ref: SessionRef, places: Iterable[Place]
) -> dict[Place, Seen]:
    listed = sorted(places, key=str)
    if not listed:
        return {}
    asked = {
        "session_no": ref.session_no,
        "places": list(range(len(listed))),
        "producers": [one.producer for one in listed],
        "epochs": [one.epoch for one in listed],
        "streams": [one.stream for one in listed],
        "seqs": [one.seq for one in listed],
        "keys": [None if one.receipt_key is None else receipt_hash(one.receipt_key) for one in listed],
    }
    return {
        listed[place]: seen
        for place, raw in connection.execute(query("check/events_at"), asked)
        if (seen := _seen(raw)) is not None
    }


def _around(
    connection: psycopg.Connection[Any], ref: SessionRef, holes: Sequence[Row]
) -> dict[tuple[str, int, str, int], tuple[Seen | None, Seen | None]]:
    if not holes:
        return {}
    keys = [(row["producer"], row["epoch"], row["stream"], row["from_seq"]) for row in holes]
    asked = {
        "session_no": ref.session_no,
        "places": list(range(len(holes))),
        "producers": [key[0] for key in keys],
        "epochs": [key[1] for key in keys],
        "streams": [key[2] for key in keys],
        "firsts": [key[3] for key in keys],
        "lasts": [row["to_seq"] for row in holes],
    }
    return {
        keys[place]: (_seen(before), _seen(after))
        for place, before, after in connection.execute(query("check/neighbours"), asked)
    }


def _seen(raw: Any) -> Seen | None:
    """An event that was accepted once; None where its bytes are damaged, which is a finding of its own."""
    if raw is None:
        return None
    event = FastReader(limit=sys.maxsize).read(bytes(raw))
    if isinstance(event, Rejected):
        return None
    return Seen(event.type, None if event.at is None else utc_text(event.at), event.payload)
