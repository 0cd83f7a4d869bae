"""Mistakes made on purpose, one a variant: what the simulator must find (design 9). None of them is in the product, nor a switch for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tests.simulation import statements
from tests.simulation.rollup import KEY, RollupWorker
from tests.simulation.tables import Row
from tests.simulation.world import Variant
from turnledger.contract.event import Event
from turnledger.fold.model import StreamKey
from turnledger.fold.rollup import hourly
from turnledger.ingest.cache import SessionEntry, StreamEntry
from turnledger.ingest.decide import Decider, Group
from turnledger.ingest.link import Connection
from turnledger.ingest.prepare import Prepared
from turnledger.ingest.round import Ingest
from turnledger.store import write
from turnledger.store.write_rows import Repeat, Round


def unfenced(context: statements.Context, given: statements.Parameters) -> statements.Result:
    """The fence's statement without its condition: whoever comes moves the row."""
    return statements.apply(context, given, fenced=False)


class AcknowledgesFirst(Ingest):
    """Moves the offsets in a transaction of its own, then writes: a crash between them loses a round."""

    def _write_in(self, connection: Connection, prepared: Prepared) -> None:
        backend = self.writer.backend
        assert backend is not None
        with connection.transaction():
            passed = write.pass_fence(connection, prepared.round, backend)
        with connection.transaction():
            write.write_in(connection, prepared.round, passed, careful=prepared.careful)


class _Dropping(Decider):
    """Takes some new events for repeats."""

    def drops(self, stream: StreamEntry, event: Event) -> bool:
        raise NotImplementedError

    def decide(
        self,
        entry: SessionEntry,
        group: Group,
        round_: Round,
        new_stream: Callable[[SessionEntry, StreamKey], StreamEntry],
        touched: list[StreamEntry],
    ) -> list[Event]:
        accepted: list[Event] = []
        events, raws = group.events, group.raws
        # One by one: what is dropped depends on what came before it.
        for event, raw in zip(events, raws, strict=True):
            key = (event.producer, event.epoch, event.stream)
            stream = entry.streams.get(key)
            if stream is not None and event.seq is not None and self.drops(stream, event):
                group.share.repeats.append(
                    Repeat(entry.session_no, stream.stream_no, event.seq, None, None, raw, event.position)
                )
                continue
            group.events, group.raws = [event], [raw]
            found = super().decide(entry, group, round_, new_stream, touched)
            self.accepted(entry.streams[key], found)
            accepted += found
        group.events, group.raws = events, raws
        return accepted

    def accepted(self, stream: StreamEntry, events: list[Event]) -> None:
        """Hears of what was accepted."""


class ByClock(_Dropping):
    """Takes for new what is newer by its producer's clock."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.newest: dict[int, int] = {}

    def drops(self, stream: StreamEntry, event: Event) -> bool:
        return event.at is not None and event.at <= self.newest.get(stream.stream_no, -1)

    def accepted(self, stream: StreamEntry, events: list[Event]) -> None:
        times = [event.at for event in events if event.at is not None]
        self.newest[stream.stream_no] = max([self.newest.get(stream.stream_no, -1), *times])


class WithoutLate(_Dropping):
    """Takes for seen what is below the greatest number that was seen."""

    def drops(self, stream: StreamEntry, event: Event) -> bool:
        return event.seq is not None and event.seq < stream.seen.hi and event.seq not in stream.seen


def _deciding(decider: type[Decider]) -> type[Ingest]:
    class Deciding(Ingest):
        def __init__(self, settings: Any, *arguments: Any, **named: Any) -> None:
            super().__init__(settings, *arguments, **named)
            self.decider = decider(settings.record_limit_bytes, settings.dead_letter_bytes)

    return Deciding


class Adding(RollupWorker):
    """Adds a session's share to its hours, each time, where each hour is to be set to the sum of its shares."""

    def moved(
        self,
        context: statements.Context,
        session_no: int,
        tenant: str,
        before: Iterable[Row],
        after: Iterable[Row],
    ) -> None:
        for part in after:
            bucket = (tenant, *(part[name] for name in KEY))
            known = context.transaction.get("usage_hourly", bucket)
            if known is None:
                context.transaction.put(
                    "usage_hourly", hourly([(str(session_no), part)])[0] | {"tenant": tenant}
                )
                continue
            added = {
                name: value + (known[name] or 0)
                for name, value in part.items()
                if isinstance(value, int) and name in known and name != "hour"
            }
            context.transaction.put("usage_hourly", known | added)

    def set_hours(self, context: statements.Context) -> None:
        """Nothing is left to set."""


MISTAKES: dict[str, Variant] = {
    "forgets the fence": Variant("forgets the fence", statements={"fence/apply": unfenced}),
    "acknowledges before the commit": Variant("acknowledges before the commit", ingest=AcknowledgesFirst),
    "adds instead of setting": Variant("adds instead of setting", rollup=Adding),
    "compares clocks": Variant("compares clocks", ingest=_deciding(ByClock)),
    "drops a late event": Variant("drops a late event", ingest=_deciding(WithoutLate)),
}
