"""Owns the whole fold of one session: a pure function from the set of its accepted events to everything that they mean.

Nothing depends on arrival. The incremental path (``fold.state``) must give the same bytes, and whatever it cannot prove it leaves to this.
"""

from __future__ import annotations

from collections.abc import Iterable

from turnledger.contract.event import Event
from turnledger.fold.model import SessionFold


def fold_session(tenant: str, session_id: str, events: Iterable[Event]) -> SessionFold:
    """Fold one session's accepted events (contract 4 to 12), in any order, each identity once.

    Sets ``Event.running``. The result has its turns in the order of contract 7, calls, tools and points in that of contract 5.
    """
    raise NotImplementedError
