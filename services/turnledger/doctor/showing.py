"""`turnledger sessions show`: reads what the graph of a session is made of, and writes the page. Writes nothing else."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import psycopg

from turnledger.contract.event import Event
from turnledger.doctor.graph import Chosen, all_events, choose, graph, nodes
from turnledger.doctor.rows import told
from turnledger.errors import TurnledgerError
from turnledger.fold.order import ordered
from turnledger.fold.turns import membership, superseded_streams
from turnledger.store.named import query
from turnledger.store.read import SessionRef, active_slot, of_slot, session_events

Row = dict[str, Any]


class NoSuchPart(TurnledgerError):
    """A session has no turn, trace, call or event of that name."""


def session_graph(
    connection: psycopg.Connection[Any],
    found: SessionRef,
    turns: Sequence[Row],
    chosen: Chosen,
    *,
    bodies: bool = False,
) -> list[Row]:
    """The traces of a session (``doctor.graph.graph``), or the part that is chosen, with its events.

    ``turns`` are those of ``show_session``. Which events are a turn's is decided by the fold, over the whole session: such a question
    takes the time and the memory of folding it once. Raises :class:`NoSuchPart`.
    """
    slot = active_slot(connection)
    number = {"session_no": found.session_no}
    calls = told(connection, of_slot("story/calls", slot), number)
    tools = told(connection, of_slot("story/tools", slot), number)
    placed = placed_events(connection, found) if chosen or bodies else None
    traces = graph(turns, calls, tools, placed)
    if chosen:
        traces = choose(traces, chosen)
        if not traces:
            raise NoSuchPart(
                f"session {found.session_id!r} has no {chosen}: `turnledger sessions show` lists its turns and calls, "
                "`turnledger sessions timeline --all --json` its events."
            )
    if bodies:
        put_bodies(connection, found, traces, everything=not chosen)
        if not chosen:
            traces = with_bodies_alone(traces)
    return traces


def placed_events(connection: psycopg.Connection[Any], found: SessionRef) -> list[tuple[Event, str | None]]:
    """All events of a session in order, each with the key of its turn (contract 7)."""
    given = session_events(connection, found.session_no)
    left_out = superseded_streams(given)
    kept = ordered(one for one in given if (one.producer, one.epoch, one.stream) not in left_out)
    return list(zip(kept, membership(kept).owners, strict=True))


def put_bodies(
    connection: psycopg.Connection[Any], found: SessionRef, traces: Sequence[Row], *, everything: bool
) -> None:
    """Give each event of the graph the ``bodies`` that name it, or that it began."""
    events = {event["event_id"]: event for event in all_events(traces) if event["event_id"] is not None}
    places = {
        (e["producer"], e["epoch"], e["stream"], e["seq"], e["receipt_key"]): e for e in all_events(traces)
    }
    key: Row = {"tenant": found.tenant, "session_id": found.session_id, "for_events": None}
    if not everything and all(event["type"] != "body.recorded" for event in all_events(traces)):
        key["for_events"] = list(events)
    for body in told(connection, query("story/bodies"), key):
        at = (body["producer"], body["epoch"], body["stream"], body["seq"], body["receipt_key"])
        event = events.get(body["for_event_id"]) or places.get(at)
        if event is not None:
            event.setdefault("bodies", []).append(body)


def with_bodies_alone(traces: Sequence[Row]) -> list[Row]:
    """Of a whole session only the events that have bodies are told; a part that held nothing but other events goes with them, where its
    turn is shown elsewhere."""
    for node in nodes(traces):
        node["events"] = [event for event in node["events"] or () if "bodies" in event]
    kept = []
    for trace in traces:
        turns = [turn for turn in trace["turns"] if not _is_empty(turn)]
        if turns:
            kept.append({**trace, "turns": turns})
    return kept


def _is_empty(turn: Row) -> bool:
    elsewhere = turn["turn_key"] is None or turn["continued"]
    return elsewhere and not (turn["model_calls"] or turn["tool_calls"] or turn["events"])


def as_json(traces: Sequence[Row]) -> Sequence[Row]:
    """The graph as ``--json`` has it: the bytes of bodies in base64."""
    for event in all_events(traces):
        for body in event.get("bodies", ()):
            if body["data"] is not None:
                body["data"] = base64.b64encode(bytes(body["data"])).decode("ascii")
    return traces
