"""Plain data of the fold: a turn as a set of events, what it means, and what a session adds up to.

Nothing here computes. Names of row fields are those of the contract's sections 10 to 12, and of the SQL views.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from turnledger.contract.event import Event

Row = dict[str, Any]
"""One flat row under the contract's column names. Instants are µs since 1970 UTC (int), durations ms, money micro-USD."""

StreamKey = tuple[str, int, str]
"""(producer, epoch, stream), inside one session."""


@dataclass(slots=True)
class Turn:
    """A turn window: which events are its own (contract 7), not yet what they mean."""

    key: str
    """``turn_key`` of contract 7."""
    turn_id: str | None
    turn_index: int | None
    events: list[Event]
    """All events of the turn in the order of contract 5."""
    started: Event | None
    """Its ``turn.started`` (or the user message that counts as its start), the first in order."""
    completed: Event | None
    """Its last ``turn.completed`` in order."""
    status: str
    """``open`` ``completed`` ``failed`` ``interrupted`` ``aborted`` ``abandoned``."""
    assigned_by: str
    """The weakest rule that any of its events needed: ``id`` ``index`` ``link`` ``boundary`` ``window`` ``fallback``."""
    order_key: bytes
    """Memcomparable: turns sort by it inside their session."""


@dataclass(slots=True)
class UsagePart:
    """One summand of usage: a call that counts by itself, or a cumulative contribution that stands (contract 8, Parts)."""

    part_key: str
    """Unique inside the session; a call's part has the call's ``call_key``."""
    call_key: str | None
    """The call it is, or None for a contribution (or what of a contribution no call explains)."""
    turn_key: str | None
    provider: str | None
    model: str | None
    hour_at: int | None
    """The instant that decides its hour (contract 12), in µs; None has a row of its own."""
    kind: str
    """``live`` ``eval`` ``import``: the kind of its turn, else of its first event."""
    usage: Row
    """``input_uncached`` … ``reasoning``, ``total_input`` (int or None each), ``reported`` and ``total`` (contract 8, Parts)."""
    convention: str | None
    fidelity: str
    inherited_event: bool = False
    """Reported by an event of provenance ``inherited``: it stands in ``inherited_usage`` and in no sum, whoever else holds it."""


@dataclass(frozen=True, slots=True)
class Running:
    """What one usage stream has told up to some place."""

    values: tuple[int | None, ...]
    """The running value per counter; None where the counter was never seen."""
    known: bool
    """Its start was known: a counter seen for the first time starts at zero."""
    thread: str | None
    """The ``provider_thread`` that its reports name."""
    opened: bool = False
    """The last turn that used it has no ``turn.completed``."""
    silent: bool = False
    """The last turn that used its thread did not report on it."""


@dataclass(frozen=True, slots=True)
class Threads:
    """The running values of all usage streams of a session at some place. Never changed: moving on makes a new one."""

    streams: Mapping[tuple[str, ...], Running] = field(default_factory=dict)
    used: frozenset[str] = frozenset()
    """Provider threads that a turn before this place used."""


NO_THREADS: Final = Threads()
"""Before the first report of a session."""


@dataclass(slots=True)
class TurnFold:
    """What one turn means: the record before ownership and cost, and its rows."""

    turn: Turn
    record: Row
    """The document of contract 10 without ``revision``, ``digest``, cost, ``inherited``, ``inherited_usage`` (those of inherited
    *events* excepted) and without a ``disputed`` grade: what the digest covers."""
    body: bytes
    """Canonical JSON of ``record``: the bytes that are stored."""
    digest: str
    """SHA-256 of ``body``, hex."""
    flat: Row
    """The narrow row of table ``turns``."""
    calls: list[Row] = field(default_factory=list)
    """Rows of ``model_calls``; each has ``call_key``, unique inside the session, and ``order_key``."""
    tools: list[Row] = field(default_factory=list)
    """Rows of ``tool_calls``; each has ``tool_key``, unique inside the session, and ``order_key``."""
    parts: list[UsagePart] = field(default_factory=list)
    findings: list[Row] = field(default_factory=list)
    """{check, severity, row}: one a row; ``fold.findings`` groups them."""
    threads: Threads = NO_THREADS
    """The running usage values after this turn (contract 8, Counters); they compare with ``==``."""


@dataclass(slots=True)
class SessionFold:
    """What one session's accepted events mean, before ownership and cost."""

    tenant: str
    session_id: str
    turns: list[TurnFold]
    """In the order of contract 7."""
    calls: list[Row]
    """``model_calls`` outside every turn."""
    tools: list[Row]
    """``tool_calls`` outside every turn."""
    parts: list[UsagePart]
    """Parts outside every turn."""
    gaps: list[Row]
    """{producer, epoch, stream, from_seq, to_seq, state}; one maximal run of one state a row."""
    facts: Row
    """What ``sessions`` needs and no turn, call or tool row tells: see ``fold.facts``."""
    points: dict[str, list[Row]]
    """Point events by table (``net_events`` …)."""
    findings: list[Row]
    """Findings that no turn holds."""
