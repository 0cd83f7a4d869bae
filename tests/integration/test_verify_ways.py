"""`turnledger verify` of sessions that are held whole and of the same sessions piece by piece: what the workers wrote of sown fleets, whole and damaged."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from tests.integration.test_verify import PROVEN, in_pieces
from tests.property import fleets
from tests.stack import databases, servers
from tests.stack.commands import Running, eventually
from tests.stack.topics import Record, create_topic, produce
from turnledger.doctor.faults import Report
from turnledger.doctor.verify import verify_on
from turnledger.pricing import packaged, price_call
from turnledger.store.instants import load_as_microseconds

PRICE = partial(price_call, packaged())
FLEETS = 20
STEPS = 100


def records() -> list[Record]:
    """Every type of event, several streams and epochs, forks, copies, processes, what comes without number or time; each fleet has sessions of its own."""
    found: list[Record] = []
    for seed in range(FLEETS):
        steps = fleets._sown(seed, STEPS, frozenset())
        for envelope in fleets.build((fleets.MANNERS[seed % len(fleets.MANNERS)], steps)):
            value = fleets.plain(envelope)
            for _, session in fleets.SESSIONS:
                value = value.replace(f'"{session}"'.encode(), f'"{seed}-{session}"'.encode())
            key = f"{envelope['tenant']}/{seed}-{envelope['session_id']}"
            found.append(Record(value, key.encode(), 0))
    return found


@pytest.fixture(scope="module")
def written(
    stack: servers.Servers, database_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    url = databases.create(stack.database_url, template=database_template)
    topic = create_topic(stack.kafka_bootstrap, 1)
    settings = topic.environment() | {"TURNLEDGER_DATABASE_URL": url}
    folder = tmp_path_factory.mktemp("ways")
    sent = len(produce(topic, records()))
    running = [
        Running(("worker", "--health-port", "0"), settings, folder / "worker.log"),
        Running(("rollup", "--health-port", "0"), settings, folder / "rollup.log"),
    ]

    def settled() -> bool:
        assert all(one.running() for one in running), [one.output() for one in running]
        with psycopg.connect(url) as link:
            return link.execute(
                "select coalesce(bool_and(next_offset = %s and flushed_batch >= (select max(batch_no) from ledger.ingest_batches)), false)"
                " and not exists (select from ledger.marks) and not exists (select from projection_a.hour_marks) from ledger.ingest_progress",
                [sent],
            ).fetchone() == (True,)

    try:
        eventually(settled, what="the workers have written everything", seconds=120)
    finally:
        for one in running:
            one.stop()
    yield url
    databases.drop(stack.database_url, url)


@pytest.fixture
def link(written: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(written) as opened:
        load_as_microseconds(opened)
        yield opened
        opened.rollback()


def told(report: Report) -> list[tuple[str, str, str]]:
    return sorted(
        (one.invariant, one.what, repr(one.row)) for faults in report.faults.values() for one in faults
    )


def proven(link: psycopg.Connection[Any]) -> Report:
    return verify_on(link, PRICE, settle_seconds=0.0, shown=1_000_000)


@pytest.mark.parametrize("piece", [1, 2, 7, 50])
def test_what_the_workers_wrote_holds_in_pieces_of_any_size(
    link: psycopg.Connection[Any], piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = proven(link)
    in_pieces(monkeypatch)
    monkeypatch.setattr("turnledger.store.read.PIECE_EVENTS", piece)
    report = proven(link)
    assert told(report) == told(whole) == []
    assert (report.sessions, report.events, report.turns) == (whole.sessions, whole.events, whole.turns)
    # Fleets come as no harness sends them: many events come behind what was let go of, not in every session.
    assert sum(int(note.partition(" ")[0]) for note in report.notes) < report.sessions


@pytest.mark.parametrize("table", PROVEN)
def test_every_third_row_that_is_gone_is_named_in_both_ways(
    link: psycopg.Connection[Any], table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = link.execute(
        f"delete from projection_a.{table} where mod((ctid::text::point)[1]::int, 3) = 0"  # type: ignore[arg-type]
    ).rowcount
    whole = told(proven(link))
    in_pieces(monkeypatch)
    assert told(proven(link)) == whole
    assert bool(whole) == bool(gone)
