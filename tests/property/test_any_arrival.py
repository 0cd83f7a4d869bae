"""Whatever way the events of a fleet arrive, they mean the same: one digest, one ledger, sums that agree (contract 3, 5, 12, 17)."""

from __future__ import annotations

import copy
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.property.budget import share
from tests.property.fleets import (
    ARRIVALS,
    FLEETS,
    Arrival,
    Envelope,
    Fleet,
    arrive,
    build,
    losers,
    plain,
    respelt,
)
from tests.property.fold_sessions import Projection, extend, fresh, taken
from tests.property.test_readers import same
from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.fold.columns import BUCKETS
from turnledger.fold.dedupe import dedupe, event_key
from turnledger.fold.document import Document, describe, document
from turnledger.fold.seen import StreamSeen
from turnledger.fold.session import fold_session
from turnledger.fold.state import SessionState
from turnledger.pricing import packaged, price_call

PRICE = partial(price_call, packaged())
SEEDS = st.integers(0, 1 << 20)


def told(records: Iterable[bytes]) -> Document:
    return document(records, PRICE)


def without_arrival(found: Document) -> Document:
    """All that the digest covers, so that a failure shows what differs."""
    shown = copy.deepcopy({name: found[name] for name in found if name not in ("records", "dead_letters")})
    for row in shown["conflicts"]:
        for name in ("count", "first_position", "last_position"):
            del row[name]
    for row in shown["sessions"]:
        del row["dead_letters"]
    shown["findings"] = [row for row in shown["findings"] if row["check"] != "dead_letter"]
    return shown


@share(160)
@given(FLEETS, ARRIVALS, SEEDS)
def test_any_order_that_keeps_the_winners_and_any_duplication_give_one_digest(
    fleet: Fleet, given_: Arrival, seed: int
) -> None:
    envelopes = build(fleet)
    expected = without_arrival(told(arrive(envelopes, given_, None)))
    assert len(expected["conflicts"]) == len({plain(lost) for _, lost in losers(envelopes, given_)})
    chance = random.Random(seed)
    for _ in range(2):
        assert without_arrival(told(arrive(envelopes, given_, chance))) == expected


@share(60)
@given(FLEETS, ARRIVALS, SEEDS)
def test_any_interleaving_of_two_partitions_gives_one_digest(
    fleet: Fleet, given_: Arrival, seed: int
) -> None:
    envelopes = build(fleet)
    chance = random.Random(seed)
    keeper: dict[Any, int] = {}  # every identity stays in one partition; a session may be in both
    partitions: tuple[list[bytes], list[bytes]] = ([], [])
    for raw in arrive(envelopes, given_, chance):
        event = FastReader(limit=1 << 20).read(raw)
        key = event_key(event) if isinstance(event, Event) else None
        partitions[keeper.setdefault(key, chance.randint(0, 1))].append(raw)
    one_after_the_other = told([*partitions[0], *partitions[1]])
    lanes = [list(partition) for partition in partitions]
    mixed: list[bytes] = []
    while lanes[0] or lanes[1]:
        lane = chance.choice([lane for lane in lanes if lane])
        mixed.append(lane.pop(0))
    assert told(mixed)["digest"] == one_after_the_other["digest"]


def events_of(envelopes: Sequence[Envelope]) -> dict[tuple[str, str], list[Event]]:
    return dedupe(enumerate(plain(envelope) for envelope in envelopes)).sessions


@pytest.fixture(autouse=True)
def _small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let go of closed turns at once, so that history is needed often."""
    monkeypatch.setattr("turnledger.fold.state.CLOSED_BUDGET", 1500)


@share(150)
@given(FLEETS, st.lists(st.integers(0, 39), max_size=4), SEEDS, st.integers(1, 7))
def test_any_batches_and_any_restart_give_what_the_fold_of_the_set_gives(
    fleet: Fleet, late: list[int], seed: int, batch: int
) -> None:
    chance = random.Random(seed)
    for (tenant, session_id), events in events_of(build(fleet)).items():
        arrival = list(events)
        for place in late:
            event = arrival.pop(place % len(arrival))
            arrival.insert(chance.randint(0, len(arrival)), event)
        state = SessionState(tenant, session_id)
        projection = Projection()
        for start in range(0, len(arrival), batch):
            so_far = arrival[: start + batch]
            extend(state, fresh(arrival[start : start + batch]), arrival[:start])
            match chance.randrange(6):
                case 0:
                    projection.apply(taken(state, True, so_far))
                    assert projection.tidy() == Projection.of(fold_session(tenant, session_id, fresh(so_far)))
                    state.drop_closed()
                case 1:
                    projection.apply(taken(state, False, so_far))
                case 2:
                    state.drop_closed()
                case 3:
                    projection.apply(taken(state, True, so_far))
                    state = SessionState.from_history(tenant, session_id, fresh(so_far), written=True)
        projection.apply(taken(state, True, arrival))
        assert projection.tidy() == Projection.of(fold_session(tenant, session_id, fresh(events)))


@share(60)
@given(FLEETS, ARRIVALS, SEEDS)
def test_folding_session_by_session_gives_what_folding_all_at_once_gives(
    fleet: Fleet, given_: Arrival, seed: int
) -> None:
    records = arrive(build(fleet), given_, random.Random(seed))
    found = dedupe(enumerate(records, 1))
    folds = {key: fold_session(*key, reversed(fresh(found.sessions[key]))) for key in found.sessions}
    assert describe(found, folds, PRICE)["digest"] == told(records)["digest"]


class Ranges:
    """Identity from ranges of numbers, written and read again at every border of a batch, as a worker keeps it."""

    def __init__(self) -> None:
        self._seen: dict[Any, StreamSeen] = {}
        self._stored: dict[Any, tuple[int, dict[int, bytes]]] = {}
        self._receipts: set[Any] = set()

    def is_new(self, event: Event) -> bool:
        stream = (event.tenant, event.session_id, event.producer, event.epoch, event.stream)
        if event.seq is None:
            key = (*stream, event.receipt_key)
            known = key in self._receipts
            self._receipts.add(key)
            return not known
        if stream not in self._seen:
            hi, chunks = self._stored.get(stream, (-1, {}))
            self._seen[stream] = StreamSeen(hi, chunks)
        return self._seen[stream].add(event.seq)

    def restart(self) -> None:
        for stream, seen in self._seen.items():
            self._stored[stream] = (seen.hi, seen.chunks())
        self._seen = {}


@share(120)
@given(FLEETS, ARRIVALS, SEEDS, st.integers(1, 9))
def test_dedupe_by_ranges_gives_what_a_set_of_keys_gives(
    fleet: Fleet, given_: Arrival, seed: int, batch: int
) -> None:
    records = arrive(build(fleet), given_, random.Random(seed))
    reader = FastReader(limit=1 << 20)
    ranges = Ranges()
    keys: set[Any] = set()
    accepted = 0
    for position, raw in enumerate(records):
        if position % batch == 0:
            ranges.restart()
        event = reader.read(raw)
        if not isinstance(event, Event):
            continue
        key = event_key(event)
        assert ranges.is_new(event) == (key not in keys)
        accepted += key not in keys
        keys.add(key)
    counts = dedupe(enumerate(records)).records
    assert counts["accepted"] == accepted
    assert counts["read"] == len(records)
    assert counts["read"] == sum(counts[name] for name in ("accepted", "duplicates", "conflicts", "dead"))


@share(100)
@given(FLEETS, ARRIVALS, SEEDS)
def test_the_rollup_of_hours_adds_up_to_days_and_sessions(fleet: Fleet, given_: Arrival, seed: int) -> None:
    """Eval sessions have sums of their own and no hours (contract 12). A sum beyond eight bytes is unknown (decision 7), and adds up to nothing."""
    envelopes = build(fleet)
    assume(str(2**63 - 1) not in json.dumps(envelopes))
    found = told(arrive(envelopes, given_, random.Random(seed)))
    sessions = [row for row in found["sessions"] if row["kind"] != "eval"]
    lived = {(row["tenant"], row["session_id"]) for row in sessions}
    by_model = [row for row in found["ai_usage"] if (row["tenant"], row["session_id"]) in lived]
    days: dict[Any, list[Any]] = defaultdict(list)
    for row in found["usage_hourly"]:
        days[(row["tenant"], row["hour"] and row["hour"][:10])].append(row)
    names = (
        *(f"{name}_tokens" for name in BUCKETS),
        "usage_reported",
        "usage_total",
        "cost_micro_usd",
        "unpriced_calls",
    )
    for tenant in {row["tenant"] for row in sessions}:
        mine = [row for row in sessions if row["tenant"] == tenant]
        of_days = [
            {name: sum_of(rows, name) for name in names}
            for (owner, _), rows in days.items()
            if owner == tenant
        ]
        for name in names:
            of_sessions = sum_of(mine, name) or 0
            assert of_sessions == (sum_of(of_days, name) or 0), name
            assert of_sessions == (sum_of([r for r in by_model if r["tenant"] == tenant], name) or 0), name
        calls = sum(row["model_call_count"] for row in mine)
        assert calls == sum(row["calls"] for row in found["usage_hourly"] if row["tenant"] == tenant)
        assert calls == sum(row["call_count"] for row in by_model if row["tenant"] == tenant)


@share(100)
@given(FLEETS)
def test_every_total_is_the_sum_of_its_parts(fleet: Fleet) -> None:
    """Null only when nobody reported; a total input beside its own buckets is theirs (contract 8)."""
    found = told(plain(envelope) for envelope in build(fleet))
    for call in found["model_calls"]:
        parts = [call[f"{name}_tokens"] for name in BUCKETS[:5]]
        if call["total_input_tokens"] is not None and parts[0] is not None:
            assert call["total_input_tokens"] == sum(part or 0 for part in parts)
        if (
            call["reasoning_tokens"] is not None
            and call["output_tokens"] is not None
            and call["token_convention"] == "inclusive_thoughts_separate"
        ):
            assert call["reasoning_tokens"] <= call["output_tokens"]
    for row in (*found["sessions"], *found["ai_usage"], *found["usage_hourly"]):
        known = [row[f"{name}_tokens"] for name in BUCKETS if row[f"{name}_tokens"] is not None]
        assert 0 <= row["usage_reported"] <= row["usage_total"]
        if not row["usage_reported"]:
            assert known == []


def sum_of(rows: Iterable[Any], name: str) -> int | None:
    known = [row[name] for row in rows if row[name] is not None]
    return sum(known) if known else None


@share(100)
@given(FLEETS, ARRIVALS, SEEDS)
def test_both_readers_agree_on_every_record_of_a_fleet(fleet: Fleet, given_: Arrival, seed: int) -> None:
    for raw in arrive(build(fleet), given_, random.Random(seed)):
        same(raw, limit=1 << 20)


@share(60)
@given(FLEETS, SEEDS)
def test_another_spelling_of_a_record_is_a_duplicate_of_it(fleet: Fleet, seed: int) -> None:
    chance = random.Random(seed)
    envelopes = build(fleet)
    records = [raw for envelope in envelopes for raw in (plain(envelope), respelt(envelope, chance))]
    counts = dedupe(enumerate(records)).records
    assert (counts["accepted"], counts["duplicates"]) == (len(envelopes), len(envelopes))
