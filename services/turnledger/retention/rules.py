"""Which sessions a retention run lets go of: by age, count and size, with protection for those with content. Pure.

Running and persistent sessions are never chosen. What has content is protected while it is among the newest, whatever a limit says.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from turnledger.errors import TurnledgerError

KEEP_CONTENT = 25
"""Sessions with content that are kept, newest first, unless said otherwise."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a run is asked for. A limit that is None does not choose."""

    age: timedelta | None = None
    """A session goes when nothing of it came for longer."""
    max_sessions: int | None = None
    """Sessions whose events stay, at most."""
    max_bytes: int | None = None
    """Bytes of events that stay, at most."""
    keep_content: int = KEEP_CONTENT
    archived: bool = False
    """Only what stands in an archive goes."""
    tenant: str | None = None

    def __post_init__(self) -> None:
        if self.age is None and self.max_sessions is None and self.max_bytes is None:
            raise TurnledgerError(
                "say what may go: --age (for example 30d), --max-sessions or --max-bytes; nothing goes by itself."
            )

    def row(self) -> dict[str, Any]:
        """As it is written down."""
        told = asdict(self)
        told["age"] = None if self.age is None else f"{self.age.total_seconds():.0f}s"
        return told


@dataclass(frozen=True, slots=True)
class Candidate:
    """A session whose events are there."""

    session_no: int
    tenant: str
    session_id: str
    status: str
    last_arrival: datetime
    """When something of it came last, by the database's clock: a source's clock may be wrong, and an import brings what is old."""
    content: bool
    """Tokens went in, or are unknown, or a tool was called."""
    silent: bool
    """It made no request either."""
    bytes: int = 0

    @property
    def name(self) -> str:
        return f"{self.tenant}/{self.session_id}"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A session that goes, and by which rule: ``age`` ``count`` ``size``, or ``late`` for what came after it went."""

    candidate: Candidate
    rule: str


@dataclass(slots=True)
class Choice:
    """What a run would do."""

    chosen: list[Chosen]
    sessions: int
    """Whose events are there, before."""
    bytes: int
    running: int
    """Left alone because they run …"""
    persistent: int
    """… or say that they are to stay …"""
    protected: int
    """… or have content and are among the newest."""
    unmet: list[str] = field(default_factory=list)
    """Limits that cannot be kept without breaking the rest, as sentences."""


def choose(
    candidates: Sequence[Candidate], rules: Rules, now: datetime, persistent: Collection[int] = ()
) -> Choice:
    """Which of ``candidates`` go. ``persistent``: numbers of those that are to stay."""
    stopped = [one for one in candidates if one.status != "running"]
    free = sorted(
        (one for one in stopped if one.session_no not in persistent),
        key=lambda one: (one.last_arrival, one.session_no),
    )
    with_content = [one for one in free if one.content]
    newest = {one.session_no for one in with_content[max(0, len(with_content) - rules.keep_content) :]}
    open_ = [one for one in free if one.session_no not in newest]
    choice = Choice(
        chosen=[],
        sessions=len(candidates),
        bytes=sum(one.bytes for one in candidates),
        running=len(candidates) - len(stopped),
        persistent=len(stopped) - len(free),
        protected=len(newest),
    )
    if rules.age is not None:
        choice.chosen += [Chosen(one, "age") for one in open_ if now - one.last_arrival > rules.age]
    if rules.max_sessions is not None:
        _by_count(open_, rules.max_sessions, choice)
    if rules.max_bytes is not None:
        _by_size(open_, rules.max_bytes, choice)
    return choice


def _left(open_: Sequence[Candidate], choice: Choice) -> list[Candidate]:
    gone = {one.candidate.session_no for one in choice.chosen}
    return [one for one in open_ if one.session_no not in gone]


def _by_count(open_: Sequence[Candidate], limit: int, choice: Choice) -> None:
    """The empty go first, then those that only made requests, then content; each oldest first."""
    surplus = choice.sessions - len(choice.chosen) - limit
    order = sorted(_left(open_, choice), key=lambda one: (one.content, not one.silent))
    choice.chosen += [Chosen(one, "count") for one in order[: max(0, surplus)]]
    if surplus > len(order):
        choice.unmet.append(
            f"{surplus - len(order)} sessions more than {limit} stay: they run, are persistent or are protected"
        )


def _by_size(open_: Sequence[Candidate], limit: int, choice: Choice) -> None:
    """Oldest first, until the rest fits."""
    surplus = choice.bytes - sum(one.candidate.bytes for one in choice.chosen) - limit
    for one in _left(open_, choice):
        if surplus <= 0:
            return
        if one.bytes:
            choice.chosen.append(Chosen(one, "size"))
            surplus -= one.bytes
    if surplus > 0:
        choice.unmet.append(
            f"{surplus} bytes more than {limit} stay: they are of sessions that run, are persistent or are protected"
        )
