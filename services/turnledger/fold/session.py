"""Owns the whole fold of one session: a pure function from the set of its accepted events to everything that they mean.

Nothing depends on arrival. The incremental path (``fold.state``) must give the same bytes, and whatever it cannot prove it leaves to this.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from turnledger.contract.event import Event
from turnledger.fold.context import TurnContext
from turnledger.fold.facts import Facts, session_findings
from turnledger.fold.gaps import GapFold, gaps_of
from turnledger.fold.items import Items, fold_items
from turnledger.fold.model import Row, SessionFold, StreamKey, Turn
from turnledger.fold.order import order_key, ordered
from turnledger.fold.points import Placed, Processes, fold_points
from turnledger.fold.turnfold import LooseFold, fold_turns
from turnledger.fold.turns import Membership, membership, superseded_streams, turn_findings


@dataclass(slots=True)
class Whole:
    """One session, folded, with what the incremental path goes on from."""

    fold: SessionFold
    events: list[Event]
    """In order; superseded streams left out."""
    superseded: set[StreamKey]
    membership: Membership
    gaps: GapFold
    facts: Facts
    loose: LooseFold
    processes: Processes
    items: Items
    session_findings: list[Placed]
    point_findings: list[Placed]


def fold_session(tenant: str, session_id: str, events: Iterable[Event]) -> SessionFold:
    """Fold one session's accepted events (contract 4 to 12), in any order, each identity once.

    Sets ``Event.running``. The result has its turns in the order of contract 7, calls, tools and points in that of contract 5.
    """
    return fold_whole(tenant, session_id, events).fold


def fold_whole(tenant: str, session_id: str, events: Iterable[Event]) -> Whole:
    """``fold_session``, with its intermediate answers."""
    given = list(events)
    superseded = superseded_streams(given)
    if superseded:
        kept = [event for event in given if (event.producer, event.epoch, event.stream) not in superseded]
        said = ordered(
            event
            for event in given
            if event.type == "stream.superseded" and (event.producer, event.epoch, event.stream) in superseded
        )
    else:
        kept, said = given, []
    kept = ordered(kept)
    gaps = gaps_of(sorted([*said, *kept], key=order_key) if said else kept, superseded)
    members = membership(kept)
    facts = Facts()
    facts.add(kept)
    context = TurnContext(
        tenant=tenant,
        session_id=session_id,
        running=facts.running,
        holes=gaps.holes,
        counted=gaps.counted,
        called=facts.called,
    )
    turns, loose = fold_turns(members.turns, members.loose, context)
    for turn in turns:
        turn.findings[:0] = turn_findings(turn.turn)
    processes = Processes()
    point_findings: list[Placed] = []
    items = Items()
    points = fold_points(kept, processes, point_findings) | fold_items(kept, items)
    of_session = [(order_key(event), found) for event in members.session for found in session_findings(event)]
    findings = all_findings(
        gaps=gaps,
        facts=facts,
        session=of_session,
        points=point_findings,
        loose=loose,
        ambiguous=members.ambiguous,
        still_open=still_open(members.turns, facts.running),
    )
    fold = SessionFold(
        tenant=tenant,
        session_id=session_id,
        turns=turns,
        calls=loose.calls,
        tools=loose.tools,
        parts=loose.parts,
        gaps=gaps.rows,
        facts=facts.row(gaps.counted),
        points=points,
        findings=findings,
    )
    return Whole(
        fold=fold,
        events=kept,
        superseded=superseded,
        membership=members,
        gaps=gaps,
        facts=facts,
        loose=loose,
        processes=processes,
        items=items,
        session_findings=of_session,
        point_findings=point_findings,
    )


def still_open(turns: Iterable[Turn], running: bool) -> list[Row]:
    """``turn_open_in_ended_session``: turns that stay open although their session ended. ``turns`` in the order of contract 7."""
    if running:
        return []
    return [
        {"check": "turn_open_in_ended_session", "severity": "warning", "row": {"turn_key": turn.key}}
        for turn in turns
        if turn.status == "open"
    ]


def all_findings(
    *,
    gaps: GapFold,
    facts: Facts,
    session: list[Placed],
    points: list[Placed],
    loose: LooseFold,
    ambiguous: list[Row],
    still_open: list[Row],
) -> list[Row]:
    """The findings that no turn holds, in one order. ``session`` and ``points`` may come unsorted."""
    return [
        *gaps.findings,
        *facts.findings(),
        *(finding for _, finding in sorted(session, key=_place)),
        *ambiguous,
        *still_open,
        *(finding for _, finding in sorted(points, key=_place)),
        *loose.findings,
    ]


def _place(placed: Placed) -> bytes:
    return placed[0]
