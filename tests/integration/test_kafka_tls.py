"""The broker over TLS: publisher, worker and readers alike, by the same settings; and what is said when the two do not trust each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.ingesting import rows
from tests.stack.certificates import Authority
from tests.stack.commands import Running, eventually, run
from tests.stack.secured import SecuredKafka, secured_broker
from turnledger.doctor import topics
from turnledger.doctor.topics import TopicError
from turnledger.harness import Ledger, LedgerError

TOPIC = "secured.events"


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredKafka]:
    with secured_broker() as running:
        yield running


@pytest.fixture
def settings(broker: SecuredKafka) -> dict[str, str]:
    """What a command needs to reach the broker."""
    client = broker.authority.issue("client")
    return {
        "TURNLEDGER_KAFKA_BOOTSTRAP": broker.secured,
        "TURNLEDGER_KAFKA_TLS": "true",
        "TURNLEDGER_KAFKA_CA_FILE": str(broker.authority.ca),
        "TURNLEDGER_KAFKA_CERTIFICATE_FILE": str(client.certificate),
        "TURNLEDGER_KAFKA_KEY_FILE": str(client.key),
        "TURNLEDGER_TOPIC": TOPIC,
    }


def put(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


def test_events_go_over_tls_from_the_publisher_to_the_ledger_and_back_to_verify(
    broker: SecuredKafka,
    settings: dict[str, str],
    database: str,
    start: Callable[..., Running],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(monkeypatch, settings)
    asyncio.run(topics.create(broker.secured, TOPIC))
    sink = f"kafka://{broker.secured}/{TOPIC}"
    with Ledger(session_id="s", sink=sink, spool=tmp_path / "spool") as ledger:
        ledger.emit("x.y", {"n": 0})
        ledger.flush()
    with Ledger(session_id="direct", sink=sink) as ledger:
        ledger.emit("x.y", {"n": 1})
    environment = settings | {"TURNLEDGER_DATABASE_URL": database}
    worker = start("worker", "--health-port", "0", environment=environment)
    eventually(
        lambda: len(rows(database, "select 1 from ledger.events")) == 2,
        what=lambda: f"two events are in the ledger: {worker.output()}",
        seconds=60,
    )
    worker.stop()
    verified = run("verify", "--topics", "--settle", "0", environment=environment)
    assert "2 records of Kafka" in verified.stdout and "I1  holds" in verified.stdout, verified.stderr


def test_an_authority_that_is_not_known_is_named_and_the_events_stay_in_the_spool_until_it_is(
    broker: SecuredKafka, settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(monkeypatch, settings)
    asyncio.run(topics.create(broker.secured, TOPIC))
    monkeypatch.setenv("TURNLEDGER_KAFKA_CA_FILE", str(Authority(tmp_path, "somebody").ca))
    sink, spool = f"kafka://{broker.secured}/{TOPIC}", tmp_path / "spool"
    ledger = Ledger(session_id="waits", sink=sink, spool=spool)
    ledger.emit("x.y", {"n": 0})
    with pytest.raises(LedgerError) as raised:
        ledger.flush(seconds=2)
    assert (
        f"the certificate of {broker.secured} is not accepted: unable to get local issuer certificate"
        in str(raised.value)
    )
    ledger.close(seconds=0)
    monkeypatch.setenv("TURNLEDGER_KAFKA_CA_FILE", settings["TURNLEDGER_KAFKA_CA_FILE"])
    with Ledger(session_id="waits", sink=sink, spool=spool) as ledger:
        ledger.flush()
        assert ledger.emit("x.y", {"n": 1}) == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"TURNLEDGER_KAFKA_CA_FILE": None}, "unable to get local issuer certificate"),
        ({}, "certificate is not valid for 'localhost'"),
        ({"TURNLEDGER_KAFKA_CERTIFICATE_FILE": None, "TURNLEDGER_KAFKA_KEY_FILE": None}, "no TLS with"),
    ],
)
def test_why_no_handshake_comes_about_is_said_in_one_sentence(
    change: dict[str, str | None],
    why: str,
    broker: SecuredKafka,
    settings: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(monkeypatch, settings)
    for name, value in change.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    address = broker.secured.replace("127.0.0.1", "localhost") if "localhost" in why else broker.secured
    with pytest.raises(TopicError, match=r"the broker at .* does not answer") as raised:
        asyncio.run(topics.create(address, TOPIC))
    assert why in str(raised.value)
