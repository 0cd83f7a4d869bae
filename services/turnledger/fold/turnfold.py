"""Owns the fold of one turn: its events in, its record, digest and rows out. The hot path.

Pure: the result is a function of the turn's events and the ``TurnContext``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from turnledger.contract.event import Event
from turnledger.fold.context import TurnContext
from turnledger.fold.model import Row, Threads, Turn, TurnFold, UsagePart


@dataclass(slots=True)
class LooseFold:
    """What the events outside every turn mean (contract 11: rows whose ``turn_key`` is None)."""

    calls: list[Row] = field(default_factory=list)
    tools: list[Row] = field(default_factory=list)
    parts: list[UsagePart] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)
    """{check, severity, row}."""


def fold_turn(turn: Turn, ctx: TurnContext) -> TurnFold:
    """Fold one turn (contract 8, 10, 11, 13). ``TurnFold.threads`` are the running usage values after it.

    Never changes ``turn``, its events or ``ctx``: a turn that is open is folded again each time it moves.
    """
    raise NotImplementedError


def fold_loose(events: Sequence[Event], ctx: TurnContext) -> LooseFold:
    """Fold the events outside every turn, in the order of contract 5, where none of their claims is seen in a turn.

    ``ctx.threads`` is the value before the first of them; right only where no loose event ``moves_threads`` (else ``fold_turns``).
    """
    raise NotImplementedError


def fold_turns(
    turns: Sequence[Turn], loose: Sequence[Event], ctx: TurnContext
) -> tuple[list[TurnFold], LooseFold]:
    """Fold a whole session's turns (in the order of contract 7) and what stands outside them (in the order of contract 5).

    Resolves calls over the whole session, takes cumulative reports in the order of their turns' starts with those outside turns at their own
    place, and compares ``rollup`` reports. ``ctx.threads`` and ``ctx.calls`` are not looked at. Events need ``running`` set.
    """
    raise NotImplementedError


def advance(threads: Threads, turn: Turn, ctx: TurnContext) -> Threads:
    """The running usage values after a turn: what ``fold_turn(turn, …).threads`` says, without the rest. Values compare with ``==``."""
    raise NotImplementedError


def moves_threads(event: Event) -> bool:
    """A cumulative usage report: later turns start from what it says (contract 8, Counters)."""
    raise NotImplementedError
