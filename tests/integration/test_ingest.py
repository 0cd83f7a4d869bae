"""Worked cases of contract 16 through a real broker, the worker and a real database."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.ingesting import (
    applied,
    at,
    environment,
    event,
    one,
    outcomes,
    rows,
    until_applied,
    until_projected,
)
from tests.stack import databases
from tests.stack.commands import Running, eventually
from tests.stack.servers import Servers
from tests.stack.topics import Record, Topic, create_topic, produce


@dataclass
class Ingesting:
    """One worker for all cases of this module; a case has sessions of its own."""

    topic: Topic
    database: str
    worker: Running
    sent: int = 0

    def send(self, *records: Record) -> list[tuple[int, int]]:
        """Produce, and wait until it is applied and projected. Returns the positions."""
        places = produce(self.topic, records)
        self.sent += len(records)
        until_applied(self.database, self.topic, self.sent, self.worker)
        until_projected(self.database, self.topic)
        return places

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return rows(self.database, statement, *values)

    def events_of(self, session: str) -> list[int]:
        found = self.rows(
            "select e.seq from ledger.events e join ledger.streams using (stream_no) join ledger.sessions s using (session_no) "
            "where s.session_id = %s order by e.seq",
            session,
        )
        return [row[0] for row in found]

    def calls(self, session: str, column: str) -> list[Any]:
        found = self.rows(f"select {column} from turnledger.model_calls where session_id = %s", session)
        return [row[0] for row in found]


@pytest.fixture(scope="module")
def ingest(
    stack: Servers, database_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ingesting]:
    database = databases.create(stack.database_url, template=database_template)
    topic = create_topic(stack.kafka_bootstrap, 4)
    log: Path = tmp_path_factory.mktemp("worker") / "log"
    worker = Running(("worker",), environment(topic, database), log)
    yield Ingesting(topic, database, worker)
    assert worker.stop() == 0, worker.output()
    databases.drop(stack.database_url, database)


def usage(session: str, seq: int, output: int, *, source: str = "transcript", final: bool = False) -> Record:
    return event(
        session,
        seq,
        "usage.reported",
        turn_id="t",
        payload={
            "message_id": "m",
            "provider": "anthropic",
            "model": "claude",
            "token_convention": "exclusive",
            "counter_kind": "snapshot",
            "source": source,
            "final": final,
            "usage": {"input": 7, "cache_read": 0, "output": output},
        },
    )


def test_c1_events_delivered_three_times_in_any_order_count_once(ingest: Ingesting) -> None:
    before = outcomes(ingest.database, ingest.topic)
    once = [usage("c1", seq, 10 * (seq + 1), final=seq == 4) for seq in range(5)]
    ingest.send(*once, *reversed(once), *(once[n] for n in (2, 0, 4, 1, 3)))
    after = outcomes(ingest.database, ingest.topic)
    assert {name: after[name] - before[name] for name in after} == {
        "records": 15,
        "accepted": 5,
        "duplicates": 10,
        "conflicts": 0,
        "dead": 0,
    }
    assert ingest.events_of("c1") == [0, 1, 2, 3, 4]
    assert ingest.calls("c1", "output_tokens") == [50]


def test_c2_of_several_reports_of_one_call_the_final_and_greatest_counts(ingest: Ingesting) -> None:
    ingest.send(
        usage("c2", 0, 3),
        usage("c2", 1, 120),
        usage("c2", 2, 358, source="response", final=True),
        usage("c2", 3, 120),
    )
    assert ingest.calls("c2", "output_tokens") == [358]


def test_c6_tenants_and_sessions_share_nothing(ingest: Ingesting) -> None:
    def turn(session: str, tenant: str, text: str) -> list[Record]:
        return [
            event(session, 0, "turn.started", tenant=tenant, turn_id="t", payload={"input_preview": text}),
            event(session, 1, "turn.completed", tenant=tenant, turn_id="t", payload={"status": "completed"}),
        ]

    ingest.send(*turn("c6", "left", "l"), *turn("c6", "right", "r"), *turn("c6-b", "left", "b"))
    found = ingest.rows(
        "select tenant, session_id, turn_key, record->>'user_input' from turnledger.turns where session_id like 'c6%%' order by 1, 2"
    )
    assert found == [("left", "c6", "t", "l"), ("left", "c6-b", "t", "b"), ("right", "c6", "t", "r")]


def test_c7_every_order_of_arrival_gives_one_record(ingest: Ingesting) -> None:
    def parts(tenant: str) -> list[Record]:
        shared: dict[str, Any] = {"tenant": tenant, "turn_id": "t"}
        return [
            event("c7", 0, "turn.started", occurred_at=at(1), **shared),
            event("c7", 1, "tool_call.requested", occurred_at=at(2), tool_call_id="x", payload={"tool_name": "ls"}, **shared),
            event("c7", 2, "tool_call.completed", occurred_at=at(2), tool_call_id="x", payload={"status": "ok"}, **shared),
            event(
                "c7", 3, "usage.reported", occurred_at=at(3), model_call_id="c",
                payload={"token_convention": "exclusive", "usage": {"input": 5, "cache_read": 1, "output": 2}}, **shared,
            ),
            event("c7", 4, "turn.completed", occurred_at=at(4), payload={"status": "completed"}, **shared),
        ]  # fmt: skip

    orders = list(itertools.permutations(range(5)))
    ingest.send(*(parts(f"c7-{n}")[index] for n, order in enumerate(orders) for index in order))
    found = ingest.rows(
        "select convert_from(r.record, 'UTF8') from projection_a.turn_records r join ledger.sessions s using (session_no) "
        "where s.session_id = 'c7'"
    )
    assert len(found) == 120
    same = {json.dumps(json.loads(row[0]) | {"tenant": "any"}, sort_keys=True) for row in found}
    assert len(same) == 1
    record = json.loads(same.pop())
    assert (record["status"], record["tool_calls"][0]["pairing"], record["usage"]["total_input"]) == (
        "completed",
        "paired",
        6,
    )


def test_c8_a_contradiction_keeps_the_first_and_leaves_one_receipt_with_its_count(ingest: Ingesting) -> None:
    first = event("c8", 7, "note", payload={"text": "X"})
    other = event("c8", 7, "note", payload={"text": "Y"})
    places = ingest.send(first, other, other)
    kept = one(
        ingest.rows(
            "select raw from ledger.events e join ledger.streams using (stream_no) join ledger.sessions s using (session_no) "
            "where s.session_id = 'c8'"
        )
    )
    assert kept == (first.value,)
    receipt = one(
        ingest.rows(
            "select count, c.seq, kept_partition, kept_offset, first_partition, first_offset, last_partition, last_offset, "
            "kept_sha256 <> lost_sha256 from ledger.conflicts c join ledger.sessions s using (session_no) where s.session_id = 'c8'"
        )
    )
    assert receipt == (2, 7, *places[0], *places[1], *places[2], True)
    assert ingest.rows(
        "select count(*) from ledger.marks m join ledger.sessions s using (session_no) where s.session_id = 'c8'"
    ) != [(0,)]


def test_c8_a_second_contradiction_in_a_later_round_adds_to_its_receipt(ingest: Ingesting) -> None:
    first = event("c8-later", 7, "note", payload={"text": "X"})
    other = event("c8-later", 7, "note", payload={"text": "Y"})
    ingest.send(first)
    ingest.send(other)
    places = ingest.send(other, event("c8-later", 7, "note", payload={"text": "Z"}))
    found = ingest.rows(
        "select count, last_offset from ledger.conflicts c join ledger.sessions s using (session_no) "
        "where s.session_id = 'c8-later' order by count desc"
    )
    assert found == [(2, places[0][1]), (1, places[1][1])]


def test_c9_a_late_result_raises_the_revision_and_moves_the_rollup_once_and_a_duplicate_of_it_does_not(
    ingest: Ingesting,
) -> None:
    shared: dict[str, Any] = {"turn_id": "t"}
    ingest.send(
        event("c9", 0, "turn.started", **shared),
        event("c9", 1, "tool_call.requested", tool_call_id="t1", payload={"tool_name": "a"}, **shared),
        event("c9", 2, "tool_call.completed", tool_call_id="t2", payload={"status": "ok"}, **shared),
        event("c9", 3, "turn.completed", payload={"status": "completed"}, **shared),
    )

    def pairings() -> dict[str, str]:
        return dict(ingest.rows("select call_id, pairing from turnledger.tool_calls where session_id = 'c9'"))  # type: ignore[arg-type]

    def revision() -> tuple[Any, ...]:
        return one(
            ingest.rows(
                "select revision, digest, turn_no from projection_a.turn_records join ledger.sessions s using (session_no) where s.session_id = 'c9'"
            )
        )

    def due() -> list[tuple[Any, ...]]:
        """Whether the session's sums must be set again; asking takes the mark away, as setting them does."""
        return ingest.rows(
            "delete from ledger.marks d using ledger.sessions s "
            "where s.session_no = d.session_no and s.session_id = 'c9' returning true"
        )

    assert pairings() == {"t1": "missing_result", "t2": "orphan_result"}
    before = revision()
    assert before[0] == 1
    assert due()
    late = event("c9", 4, "tool_call.completed", tool_call_id="t1", payload={"status": "ok"}, **shared)
    ingest.send(late)
    assert pairings() == {"t1": "late_result", "t2": "orphan_result"}
    after = revision()
    assert (after[0], after[2]) == (2, before[2]) and after[1] != before[1]
    assert due(), "the rollup moves with the late result"
    ingest.send(late)
    assert revision() == after
    assert not due(), "and not again with its duplicate"


def test_c15_requests_are_counted_by_their_decisions(ingest: Ingesting) -> None:
    ingest.send(
        *(
            event("c15", n, "net.requested", payload={"domain": "d", "port": 443, "decision": decision})
            for n, decision in enumerate(("allowed", "denied", "error"))
        )
    )
    facts = one(
        ingest.rows(
            "select total_requests, allowed_requests, denied_requests, error_requests from projection_a.session_facts "
            "join ledger.sessions s using (session_no) where s.session_id = 'c15'"
        )
    )
    assert facts == (3, 1, 1, 1)
    found = ingest.rows(
        "select decision from turnledger.net_events where session_id = 'c15' order by decision"
    )
    assert found == [("allowed",), ("denied",), ("error",)]


def test_c23_a_declared_loss_stays_a_gap_and_a_late_arrival_is_remembered(ingest: Ingesting) -> None:
    def gaps() -> list[tuple[Any, ...]]:
        return ingest.rows(
            "select from_seq, to_seq, g.state, closed_at is null from ledger.gaps g join ledger.streams using (stream_no) "
            "join ledger.sessions s using (session_no) where s.session_id = 'c23' order by 1"
        )

    ingest.send(*(event("c23", seq) for seq in (0, 1, 4)))
    assert gaps() == [(2, 3, "open", True)]
    ingest.send(event("c23", 5, "stream.lost", payload={"from_seq": 2, "to_seq": 2, "reason": "spool full"}))
    assert gaps() == [(2, 2, "declared_lost", True), (3, 3, "open", True)]
    ingest.send(event("c23", 3))
    assert gaps() == [(2, 2, "declared_lost", True), (3, 3, "filled_late", False)]
    state = one(
        ingest.rows(
            "select low, hi, holes, open_gaps from ledger.streams join ledger.sessions s using (session_no) where s.session_id = 'c23'"
        )
    )
    assert state == (2, 5, 1, 0)


def test_c25_the_same_content_in_another_spelling_is_a_duplicate(ingest: Ingesting) -> None:
    before = outcomes(ingest.database, ingest.topic)
    key = b"default/c25"
    ingest.send(
        Record(
            b'{"session_id":"c25","seq":1,"type":"x","occurred_at":"2026-01-01T00:00:00Z","payload":{}}',
            key=key,
        ),
        Record(
            b'{"payload":{},"epoch":0,"turn_id":null,"type":"x","seq":1.0,"session_id":"c25","occurred_at":"2026-01-01T00:00:00.000+00:00"}',
            key=key,
        ),
    )
    after = outcomes(ingest.database, ingest.topic)
    assert (after["duplicates"] - before["duplicates"], after["conflicts"] - before["conflicts"]) == (1, 0)


def test_events_without_numbers_are_known_by_their_receipt_key(ingest: Ingesting) -> None:
    before = outcomes(ingest.database, ingest.topic)

    def span(key: str, text: str) -> Record:
        return event("spans", None, "note", receipt_key=key, payload={"text": text})

    ingest.send(span("a", "1"), span("b", "1"), span("a", "1"))
    ingest.send(span("a", "1"), span("b", "2"), span("c", "1"))
    after = outcomes(ingest.database, ingest.topic)
    assert {name: after[name] - before[name] for name in ("accepted", "duplicates", "conflicts")} == {
        "accepted": 3,
        "duplicates": 2,
        "conflicts": 1,
    }
    conflict = one(
        ingest.rows(
            "select receipt_key, c.seq from ledger.conflicts c join ledger.sessions s using (session_no) where s.session_id = 'spans'"
        )
    )
    assert conflict == ("b", -2)


def test_a_deltas_text_is_not_stored_and_its_copy_is_still_recognised(ingest: Ingesting) -> None:
    before = outcomes(ingest.database, ingest.topic)
    delta = event("delta", 0, "model_call.delta", payload={"ordinal": 1, "text": "secret words"})
    ingest.send(
        delta, delta, event("delta", 0, "model_call.delta", payload={"ordinal": 1, "text": "other words"})
    )
    raw, received = one(
        ingest.rows(
            "select raw, received_sha256 from ledger.events e join ledger.streams using (stream_no) "
            "join ledger.sessions s using (session_no) where s.session_id = 'delta'"
        )
    )
    assert json.loads(raw)["payload"] == {"ordinal": 1} and b"words" not in raw
    assert len(received) == 32
    after = outcomes(ingest.database, ingest.topic)
    assert (after["duplicates"] - before["duplicates"], after["conflicts"] - before["conflicts"]) == (1, 1)


def test_an_open_turn_is_written_while_it_is_open(ingest: Ingesting) -> None:
    ingest.send(event("open", 0, "turn.started", turn_id="t", payload={"input_preview": "hello"}))
    assert ingest.rows(
        "select status, revision from projection_a.turns join ledger.sessions s using (session_no) where s.session_id = 'open'"
    ) == [("open", 1)]


def test_kafka_is_told_what_postgres_has(ingest: Ingesting) -> None:
    ingest.send(*(event("advisory", n) for n in range(3)))
    from tests.integration.committed import committed

    def told() -> bool:
        return sum(committed(ingest.topic).values()) == applied(ingest.database, ingest.topic)

    eventually(told, seconds=15, what="the group's offsets follow the rows")
