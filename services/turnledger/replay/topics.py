"""`turnledger replay topics`: a topic read again between fixed ends, beside live workers or without them (design 6).

What the ledger has read before is held against it (:mod:`again`); what nobody has read is applied as a worker would (:mod:`unread`). The live
group's offsets are neither asked nor moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from time import time
from typing import Any

import psycopg

from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.contract.redact import Redactor
from turnledger.errors import TurnledgerError
from turnledger.ingest.decide import Decider
from turnledger.ingest.settings import WorkerSettings
from turnledger.replay import unread
from turnledger.replay.again import AT_ONCE, Again, Found
from turnledger.replay.broker import Broker, Pace, broker
from turnledger.replay.ranges import Log, Missing, Plan, Standing, chosen_partitions, parse_bound, plan
from turnledger.store import replays
from turnledger.store.connect import away, connect
from turnledger.store.maintain import make_event_partitions
from turnledger.store.replays import Asked, Begun


class ReplayHeld(TurnledgerError):
    """Another process works on the same replay."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How a replay is to go about what was asked."""

    asked: Asked
    by: str
    dry: bool = False
    anew: bool = False
    """Do not go on with an unfinished replay of the same command."""
    rate: float = 0.0
    """Records a second; 0 is without limit."""


@dataclass(slots=True)
class Unread:
    """Records that nobody had read."""

    records: int = 0
    """Offsets that were applied (dry: records that would be)."""
    dead: int = 0
    """Dry: they are no events."""
    stopped: dict[int, str] = field(default_factory=dict)
    taken: bool = False


@dataclass(slots=True)
class Outcome:
    """What a replay did, or would do."""

    plans: list[Plan]
    begun: Begun | None = None
    resumed: bool = False
    again: Found = field(default_factory=Found)
    unread: Unread = field(default_factory=Unread)
    compacted: bool | None = None
    """Kafka keeps of each key the last record alone; None where the broker does not say."""
    missing: dict[int, Missing] = field(default_factory=dict)
    """By partition, of what this run read."""

    @property
    def whole(self) -> bool:
        """Everything that was asked for, and is still in Kafka, is accounted for."""
        again = self.again
        return not (
            again.contradictions
            or again.unaccounted
            or self.unread.stopped
            or any(one.refused is not None for one in self.plans)
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "replay_no": None if self.begun is None else self.begun.replay_no,
            "resumed": self.resumed,
            "partitions": [asdict(one) for one in self.plans],
            "again": asdict(self.again),
            "unread": asdict(self.unread),
            "compacted": self.compacted,
            "missing": [
                {"partition": number, "offsets": one.offsets, "ranges": one.ranges, "named": one.named}
                for number, one in sorted(self.missing.items())
                if one.offsets
            ],
            "whole": self.whole,
        }


Progress = Callable[[int, int], None]
"""Hears (records so far, of so many offsets)."""
Planned = Callable[[Outcome], None]
"""Hears what will be done before it is."""


def replay(
    database_url: str,
    bootstrap: str,
    settings: WorkerSettings,
    wish: Wish,
    *,
    planned: Planned,
    progress: Progress,
) -> Outcome:
    """Replay what was asked. Raises sentences; run again after them, it goes on."""
    settings = settings.model_copy(update={"topic": wish.asked.topic})
    with connect(database_url, "replay topics", autocommit=True, lock_seconds=10) as connection:
        try:
            return asyncio.run(
                _Replay(connection, database_url, bootstrap, settings, wish, planned, progress).run()
            )
        except psycopg.OperationalError as error:
            raise away(database_url, error) from None


class _Replay:
    def __init__(
        self,
        connection: psycopg.Connection[Any],
        database_url: str,
        bootstrap: str,
        settings: WorkerSettings,
        wish: Wish,
        planned: Planned,
        progress: Progress,
    ) -> None:
        self.connection = connection
        self.database_url = database_url
        self.bootstrap = bootstrap
        self.settings = settings
        self.wish = wish
        self.planned = planned
        self.progress = progress
        self.pace = Pace(wish.rate)
        self.done = 0
        self.total = 0

    async def run(self) -> Outcome:
        now = time()
        asked = self.wish.asked
        start, end = parse_bound("--from", asked.start, now), parse_bound("--to", asked.end, now)
        async with broker(self.bootstrap) as there:
            logs = await there.logs(asked.topic, start, end)
            meant = chosen_partitions(logs, list(asked.partitions), asked.topic)
            known = {row[0]: Standing(*row[1:]) for row in replays.standings(self.connection, asked.topic)}
            chosen = asked.tenant is not None or asked.session_id is not None
            plans = [
                plan(number, logs[number], known.get(number), start, end, chosen=chosen) for number in meant
            ]
            outcome = Outcome(plans, compacted=await there.compacted(asked.topic))
            outcome.missing = {number: Missing() for number in meant}
            if not self.wish.dry:
                self._begin(outcome)
            ranges = self._ranges(outcome)
            self.planned(outcome)
            free = {
                one.partition: one.unread
                for one in plans
                if one.unread[0] < one.unread[1] and one.owner is None and one.refused is None
            }
            if not self.wish.dry:
                free |= self._behind(logs, known, [number for number in meant if number not in free])
            self.total = sum(to - at for at, to in (*ranges.values(), *free.values()))
            await self._again(there, ranges, outcome)
            if free:
                await (self._would_apply if self.wish.dry else self._apply)(there, free, outcome)
        if outcome.begun is not None:
            names = [one.name for one in fields(Found)]
            outcome.again = Found(**replays.sums(self.connection, outcome.begun.replay_no, names))
            if not outcome.unread.stopped:
                replays.finish(self.connection, outcome.begun.replay_no)
        return outcome

    def _behind(
        self, logs: Mapping[int, Log], known: Mapping[int, Standing], numbers: Sequence[int]
    ) -> dict[int, tuple[int, int]]:
        """Partitions whose last reader died between the ledger and the projections: claiming them is enough to write those."""
        return {
            number: (there.next_offset, there.next_offset)
            for number in numbers
            if (there := known.get(number)) is not None
            and there.behind
            and not there.alive
            and there.group_id == self.settings.group_id
            and logs[number].start <= there.next_offset
        }

    def _begin(self, outcome: Outcome) -> None:
        """A row for it, or the one of the same command that was cut short."""
        begun = None if self.wish.anew else replays.unfinished(self.connection, self.wish.asked)
        outcome.resumed = begun is not None
        if begun is None:
            ranges = {one.partition: one.again for one in outcome.plans if one.again[0] < one.again[1]}
            begun = replays.begin(self.connection, self.wish.asked, ranges, by=self.wish.by)
        if not replays.hold(self.connection, begun.replay_no):
            raise ReplayHeld(
                f"another process works on replay {begun.replay_no} of {self.wish.asked.topic}: let it end, or begin one beside it with --anew."
            )
        outcome.begun = begun

    def _ranges(self, outcome: Outcome) -> dict[int, tuple[int, int]]:
        """What is left of the second reading."""
        if outcome.begun is None:
            return {one.partition: one.again for one in outcome.plans}
        return {number: (at, to) for number, (_, to, at) in outcome.begun.ranges.items()}

    async def _again(self, there: Broker, ranges: Mapping[int, tuple[int, int]], outcome: Outcome) -> None:
        settings, asked = self.settings, self.wish.asked
        work = Again(
            self.connection,
            Decider(
                settings.record_limit_bytes,
                settings.dead_letter_bytes,
                Redactor(slot_key=settings.slot_key()),
            ),
            asked.topic,
            by=self.wish.by,
            record_limit=settings.record_limit_bytes,
            dead_letter_bytes=settings.dead_letter_bytes,
            tenant=asked.tenant,
            session_id=asked.session_id,
            dry=self.wish.dry,
        )
        with self.connection.transaction():
            make_event_partitions(self.connection)
        for number, (start, end) in ranges.items():
            async for records, reached in there.records(
                asked.topic, number, start, end, at_once=AT_ONCE, pace=self.pace
            ):
                outcome.missing[number].read(start, [one.offset for one in records], reached)
                found = work.take(number, records)
                if outcome.begun is not None:
                    replays.reached(self.connection, outcome.begun.replay_no, number, reached, asdict(found))
                else:
                    outcome.again.add(found)
                self.done += reached - start
                start = reached
                self.progress(self.done, self.total)

    async def _apply(self, there: Broker, ranges: Mapping[int, tuple[int, int]], outcome: Outcome) -> None:
        told, before = outcome.unread, self.done

        def reached(next_offsets: Mapping[int, int]) -> None:
            told.records = sum(max(0, at - ranges[number][0]) for number, at in next_offsets.items())
            self.done = before + told.records
            self.progress(self.done, self.total)

        applied = await unread.apply(
            there,
            self.database_url,
            self.settings,
            ranges,
            pace=self.pace,
            missing=outcome.missing,
            progress=reached,
        )
        told.stopped, told.taken = applied.stopped, applied.taken

    async def _would_apply(
        self, there: Broker, ranges: Mapping[int, tuple[int, int]], outcome: Outcome
    ) -> None:
        """Read what nobody has read, and say how many of it are events. Which of those repeat others is not looked at."""
        told = outcome.unread
        reader = FastReader(limit=self.settings.record_limit_bytes)
        for number, (start, end) in ranges.items():
            async for records, reached in there.records(
                self.wish.asked.topic, number, start, end, at_once=AT_ONCE, pace=self.pace
            ):
                outcome.missing[number].read(start, [one.offset for one in records], reached)
                told.records += len(records)
                told.dead += sum(not isinstance(reader.read(one.value), Event) for one in records)
                self.done += reached - start
                start = reached
                self.progress(self.done, self.total)
