"""Dead letters that come again (contract 15): decided and written by the same code as records, as a foreign writer does (design 3.2).

A letter keeps its Kafka position. What it becomes is written in one transaction with the events, so that it becomes it once, whoever is
killed; it stays counted as dead in the batch that read it, and an account of its own (``ledger.requeue_batches``) says what it became.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType

from turnledger.contract.redact import Redacted, requeued
from turnledger.errors import TurnledgerError
from turnledger.fold.model import Row
from turnledger.ingest import foreign
from turnledger.ingest.batch import Partition
from turnledger.ingest.cache import SessionKey
from turnledger.ingest.decide import Decider, Group
from turnledger.ingest.foreign import NEVER, HomesMoved, InTheWay
from turnledger.ingest.link import Connection
from turnledger.ingest.prepare import Prepared
from turnledger.store import dead, fence, write
from turnledger.store.dead import Letter
from turnledger.store.maintain import make_event_partitions
from turnledger.store.named import query
from turnledger.store.read import writable_slot
from turnledger.store.write_rows import DeadLetter, Round, Share

LETTERS = 500
"""Of one transaction: a worker of the same sessions waits for it."""


@dataclass(frozen=True, slots=True)
class Became:
    """What became of one letter, or would become of it now."""

    id: int
    topic: str
    partition: int
    position: int
    outcome: str
    """``accepted`` ``duplicate`` ``conflict``, ``projected`` where only its projection had been refused, ``dead``."""
    reason: str | None = None
    """Of a dead one, as it is now."""
    field: str | None = None
    detail: str | None = None
    tenant: str | None = None
    session_id: str | None = None
    unverified: bool = False
    """A duplicate whose first is no longer there to compare with."""
    before: bool = False
    """It became this in an earlier requeue; nothing was done now."""

    def row(self) -> Row:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class _Again:
    """A letter as a record of its partition."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 0


class Requeue:
    """Sends letters through again. ``by``: who says so. ``dry``: say what each would become, and leave everything as it is."""

    def __init__(
        self,
        connection: Connection,
        decider: Decider,
        *,
        by: str,
        dead_letter_bytes: int,
        dry: bool = False,
        whole: Mapping[int, bytes] = MappingProxyType({}),
    ) -> None:
        """``connection`` is in autocommit mode: each chunk of letters is a transaction. ``decider`` as the worker has it, which keeps
        ``dead_letter_bytes`` of a letter. ``whole``: records as Kafka still has them, by letter."""
        self.connection = connection
        self.decider = decider
        self.by = by
        self.dry = dry
        self.cap = dead_letter_bytes
        self.whole = whole

    def run(self, ids: Iterable[int], *, fix: bytes | None = None) -> Iterator[Became]:
        """What becomes of each letter, in the order of topics and positions. ``fix`` takes the place of the record of the only one.

        Letters of one session that they name themselves are judged together, up to ``LETTERS`` of them. Raises ``NoSuchLetter``,
        :class:`InTheWay`, and what psycopg raises: chunks that were told are committed, the others untouched.
        """
        places = dead.places(self.connection, list(ids))
        if fix is not None and len(places) != 1:
            raise TurnledgerError("a corrected record is for one letter: name exactly one id with --fix.")
        with self.connection.transaction():
            make_event_partitions(self.connection)
        for _, of_topic in groupby(places, key=lambda place: place.topic):
            for chunk in _chunks(list(of_topic)):
                yield from self._chunk(chunk, fix)

    def _chunk(self, numbers: Sequence[int], fix: bytes | None) -> list[Became]:
        return foreign.attempt(
            self.connection,
            lambda homes: self._in(numbers, fix, homes),
            dry=self.dry,
            in_the_way=lambda: InTheWay(
                f"the letters {numbers[0]} to {numbers[-1]} could not be requeued, because others write their sessions all the time: nothing of "
                "them was changed, try again (look for long transactions in pg_stat_activity)."
            ),
        )

    def _in(self, numbers: Sequence[int], fix: bytes | None, homes: set[Partition]) -> list[Became]:
        """Inside a transaction: lock, read anew, decide, write."""
        connection = self.connection
        first = dead.letters(connection, numbers)
        topic = first[0].topic
        wanted = {(topic, letter.partition) for letter in first} | homes
        connection.execute(
            query("fence/lock"), {"topics": [p[0] for p in wanted], "partitions": [p[1] for p in wanted]}
        )
        # Whoever settles a letter holds the row of its partition: from here on they stay as they are.
        letters = dead.letters(connection, numbers)
        work = _Work(self, topic, letters, fix)
        work.write(wanted)
        return work.told()


class _Work:
    """One transaction's letters."""

    def __init__(self, requeue: Requeue, topic: str, letters: Sequence[Letter], fix: bytes | None) -> None:
        self.connection = requeue.connection
        self.by = requeue.by
        self.cap = requeue.cap
        self.whole = requeue.whole
        self.decider = requeue.decider
        self.letters = letters
        self.fix = fix
        self.shares: dict[int, Share] = {}
        """By letter: those that are events now."""
        self.groups: dict[int, Group] = {}
        self.refused: dict[int, DeadLetter] = {}
        """Those that are still none, and why; the letter's own reason where it was not read again."""
        self.projections: dict[int, SessionKey] = {}
        """Letters of a projection that Postgres refused."""
        self.unprojected: dict[SessionKey, str] = {}
        round_ = Round(topic, writable_slot(self.connection), [], requeued_by=self.by)
        self.fresh = Prepared(0, round_, [], {}, {})
        for letter in letters:
            if letter.outcome is None:
                self._read(letter)

    def _read(self, letter: Letter) -> None:
        if letter.batch_no is None:
            assert letter.tenant is not None and letter.session_id is not None
            self.projections[letter.id] = (letter.tenant, letter.session_id)
            return
        came = self.whole.get(letter.id)
        if self.fix is None and came is None and letter.is_cut(self.cap):
            assert letter.raw is not None
            self.refused[letter.id] = _as_it_was(
                letter,
                f"only the first {len(letter.raw)} of its {letter.raw_bytes} bytes are kept: give the whole record with --fix",
            )
            return
        value = self.fix if self.fix is not None else came if came is not None else letter.raw
        hidden: Redacted | None = None
        if letter.received_sha256 is not None and value is not None and value == letter.raw:
            hidden = requeued(value, letter.received_sha256)
        record = _Again(letter.position, letter.key, value if hidden is None else hidden.raw)
        share = Share(fence.Step(letter.partition, letter.position, letter.position, 0, 0))
        found: dict[SessionKey, Group] = {}
        self.decider.read([record], share, found, NEVER.copy())
        if share.dead:
            self.refused[letter.id] = share.dead.pop()
            return
        (group,) = found.values()
        if hidden is not None:
            # It is known by what came, of which a copy may come again, and not by what is left of it (contract 3).
            more = share.redacted.get(letter.position)
            notes = hidden.notes if more is None else (*hidden.notes, *more.notes)
            share.redacted[letter.position] = Redacted(group.raws[0], hidden.received_sha256, notes)
        self.groups[letter.id] = group
        self.shares[letter.id] = share
        self.fresh.round.shares.append(share)
        self.fresh.records += 1

    def write(self, locked: set[Partition]) -> None:
        """Everything of it. Raises :class:`HomesMoved`."""
        connection, round_ = self.connection, self.fresh.round
        again = {key: letter for letter, key in self.projections.items()}
        if self.groups or again:
            groups = list(self.groups.values())
            entries = foreign.load_entries(connection, self.fresh, groups, again)
            unlocked = {entry.home for entry in entries.values()} - locked
            if unlocked:
                raise HomesMoved(unlocked)
            by_id = {letter.id: letter for letter in self.letters}
            for key, number in again.items():
                if key in entries:
                    # Where it is refused once more, it is the same letter.
                    letter = by_id[number]
                    entries[key].last_place = (letter.partition, letter.position)
            moved = foreign.fold_entries(connection, self.fresh, self.decider, groups, entries, again)
            round_.disturb = sorted({entries[key].home for key in moved})
            write.write_in(connection, round_, self._passed(), careful=True)
            self.unprojected = {(unit.tenant, unit.session_id): why for unit, why in round_.refused}
        self._settle()

    def _passed(self) -> dict[int, fence.Passed]:
        """What a fence would have said: numbers for the batches, and the day. The rows are locked, nobody's offset moves."""
        partitions = sorted({letter.partition for letter in self.letters})
        numbered = {share.step.partition for share in self.shares.values()}
        today, numbers = dead.batch_numbers(self.connection, len(numbered))
        given = iter(numbers)
        return {
            partition: fence.Passed(partition, next(given) if partition in numbered else None, 0, today)
            for partition in partitions
        }

    def _settle(self) -> None:
        settled, still = [], []
        for letter in self.letters:
            if letter.outcome is not None:
                continue
            became = self._became(letter)
            share = self.shares.get(letter.id)
            if became.outcome == "dead":
                # A correction that is refused says nothing about the letter.
                still.append((letter.id, None if self.fix is not None else became))
            else:
                settled.append((became, share.batch_no if share is not None else None))
        dead.settle(self.connection, settled, by=self.by, fixed=self.fix is not None)
        dead.keep(self.connection, still)
        names = {(letter.tenant, letter.session_id) for letter in self.letters}
        names |= {(one.tenant, one.session_id) for one in self.told()}
        dead.mark(self.connection, names)

    def _became(self, letter: Letter) -> Became:
        one = Became(
            letter.id, letter.topic, letter.partition, letter.position, "dead",
            tenant=letter.tenant, session_id=letter.session_id,
        )  # fmt: skip
        if letter.outcome is not None:
            return replace(one, outcome=letter.outcome, before=True)
        if letter.id in self.projections:
            why = self.unprojected.get(self.projections[letter.id])
            if why is None:
                return replace(one, outcome="projected")
            return replace(one, reason=letter.reason, detail=why)
        refused = self.refused.get(letter.id)
        if refused is not None:
            return replace(
                one,
                reason=refused.reason,
                field=refused.field,
                detail=refused.detail,
                tenant=refused.tenant or letter.tenant,
                session_id=refused.session_id or letter.session_id,
            )
        share, group = self.shares[letter.id], self.groups[letter.id]
        outcome = "accepted" if share.accepted else "conflict" if share.conflicts else "duplicate"
        return replace(
            one,
            outcome=outcome,
            tenant=group.tenant,
            session_id=group.session_id,
            unverified=bool(share.unverified),
        )

    def told(self) -> list[Became]:
        return [self._became(letter) for letter in self.letters]


def _as_it_was(letter: Letter, detail: str) -> DeadLetter:
    return DeadLetter(
        letter.position,
        letter.reason,
        letter.field,
        detail,
        letter.tenant,
        letter.session_id,
        None,
        None,
        None,
    )


def _chunks(places: Sequence[dead.Place]) -> Iterator[list[int]]:
    """Letters of one topic in transactions' worth: those that name one session stay together while there is room for them."""
    sessions = Counter(place.session for place in places if place.session is not None)
    chunk: list[int] = []
    of = None
    for place in places:
        new = place.session is None or place.session != of
        coming = sessions[place.session] if new and place.session is not None else 1
        of = place.session
        if chunk and (len(chunk) >= LETTERS or (new and len(chunk) + min(coming, LETTERS) > LETTERS)):
            yield chunk
            chunk = []
        chunk.append(place.id)
    if chunk:
        yield chunk


def summary(became: Iterable[Became]) -> dict[str, int]:
    """How many of each outcome; those of earlier requeues stand under ``before``."""
    counts = Counter("before" if one.before else one.outcome for one in became)
    return {
        name: counts[name] for name in ("accepted", "duplicate", "conflict", "projected", "dead", "before")
    }
