"""Owns what a turn needs from outside itself to be folded: the ``TurnContext``, and the claims that say when a turn needs more than that.

A turn none of whose claims is seen elsewhere in its session folds by itself (``TurnContext.calls`` is None); any other needs the session's
``CallResolution``. Both paths are the same code and give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from turnledger.contract.event import Event
from turnledger.fold.fields import label
from turnledger.fold.model import NO_THREADS, StreamKey, Threads

if TYPE_CHECKING:
    from turnledger.fold.calls import CallResolution

Hole = tuple[int, int, str]
"""(from_seq, to_seq, state): one maximal run of missing numbers; ``open`` ``declared_lost`` ``declared_elided``."""

Claim = tuple[str, ...]
"""An identity that means the same thing in the whole session, whatever turn it stands in."""

SESSION_WIDE: Final[Claim] = ("session",)
"""The claim of an event whose meaning may lie in another turn whatever its ids are: a session with one is folded whole."""


@dataclass(frozen=True, slots=True)
class TurnContext:
    """What ``fold_turn`` may look at beside the turn's own events."""

    tenant: str
    session_id: str
    running: bool = True
    """The session has not ended (contract 12, ``status``)."""
    holes: Mapping[StreamKey, Sequence[Hole]] = field(default_factory=dict)
    """The session's gaps by stream, ascending. Only those of streams that the turn has events in are looked at."""
    counted: bool = True
    """Some stream of the session is dense or sparse, so that its completeness can be told (contract 13, ``unknown``)."""
    threads: Threads = NO_THREADS
    """The running values of the session's usage streams before this turn (contract 8, Counters)."""
    calls: CallResolution | None = None
    """Who is one call with whom in the whole session; None for a turn that needs nobody else."""
    called: bool = False
    """Some event of the session is one of a model call or its usage (contract 13, ``traffic_without_model_call``)."""


def claims(event: Event) -> tuple[Claim, ...]:
    """The identities of an event that must be seen in one turn only (or only outside turns) for that turn to be folded by itself.

    Message ids and request ids of model calls mean one call in the whole session (contract 8, One call). ``SESSION_WIDE`` among them: the whole
    session must be folded with one ``CallResolution``. Everything else that a turn's events name is scoped by their turn. Usually empty.
    """
    kind = event.type
    if kind not in _NAMING:
        return ()
    payload = event.payload
    message = payload.get("message_id")
    request = payload.get("request_id")
    found: tuple[Claim, ...] = ()
    if type(message) is str and message:
        found = (("message", message),)
    if request is not None and request != "":
        name = label(event, "request_id", [])
        if name is not None:
            found = (*found, ("request", name))
    if not found and event.model_call_id is None and _attaches(kind, payload):
        return (SESSION_WIDE,)
    return found


_NAMING: Final = frozenset(
    (
        "model_call.started",
        "model_call.completed",
        "model_call.failed",
        "model_call.retried",
        "model_call.delta",
        "usage.reported",
    )
)


def _attaches(kind: str, payload: Mapping[str, object]) -> bool:
    """Without ids it belongs to its stream's latest open call, which may stand in another turn (contract 8, One call)."""
    if kind == "usage.reported":
        return payload.get("counter_kind") == "snapshot"
    return kind in ("model_call.retried", "model_call.delta")
