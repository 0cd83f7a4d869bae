"""The sink ``https://`` and certificates: what is not to be trusted gets no event, says so in a sentence, and loses nothing."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.harness.collector import SmallCollector, serving
from tests.stack.certificates import Authority
from turnledger.harness import Ledger, LedgerError, http

HOST = "127.0.0.1"


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """The one that publishers here trust."""
    made = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.ca))
    return made


def numbers(collector: SmallCollector) -> list[int]:
    return [event["payload"]["n"] for event in collector.taken]


def publish(url: str, spool: Path) -> Ledger:
    ledger = Ledger(session_id="s", sink=url, spool=spool)
    for n in range(3):
        ledger.emit("x.y", {"n": n})
    return ledger


def test_a_collector_with_a_certificate_of_a_known_authority_gets_the_events(
    authority: Authority, tmp_path: Path
) -> None:
    with serving(SmallCollector(), tls=authority.server(HOST)) as collector:
        assert collector.url.startswith("https://")
        with publish(collector.url, tmp_path / "spool") as ledger:
            ledger.flush()
        assert numbers(collector) == [0, 1, 2]


def of_somebody(tmp_path: Path, authority: Authority) -> ssl.SSLContext:
    return Authority(tmp_path, "somebody").server(HOST)


def of_another_host(tmp_path: Path, authority: Authority) -> ssl.SSLContext:
    return authority.server("collector.example")


def expired(tmp_path: Path, authority: Authority) -> ssl.SSLContext:
    return authority.server(HOST, expired=True)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (of_somebody, "unable to get local issuer certificate"),
        (of_another_host, "IP address mismatch, certificate is not valid for '127.0.0.1'"),
        (expired, "certificate has expired"),
    ],
)
def test_a_certificate_that_is_not_to_be_trusted_gets_nothing_and_the_events_stay_until_it_is(
    make: Callable[[Path, Authority], ssl.SSLContext], why: str, authority: Authority, tmp_path: Path
) -> None:
    refused = SmallCollector()
    with serving(refused, tls=make(tmp_path, authority)):
        url, port = refused.url, int(refused.url.rpartition(":")[2])
        ledger = publish(url, tmp_path / "spool")
        with pytest.raises(LedgerError) as raised:
            ledger.flush(seconds=1)
        ledger.close(seconds=0)
    said = str(raised.value)
    assert f"the certificate of {url}/v1/events is not accepted ({why}" in said
    assert "SSL_CERT_FILE" in said and "3 events have not arrived" in said
    assert refused.requests == []
    with serving(SmallCollector(), port, authority.server(HOST)) as collector:
        with Ledger(session_id="s", sink=url, spool=tmp_path / "spool") as ledger:
            ledger.flush()
        assert numbers(collector) == [0, 1, 2]


def test_a_server_that_speaks_no_tls_is_named(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "FIRST_PAUSE", 0.01)
    with serving(SmallCollector()) as clear:
        url = clear.url.replace("http:", "https:")
        ledger = publish(url, tmp_path / "spool")
        with pytest.raises(LedgerError, match=r"does not answer.*start it, or correct the address"):
            ledger.flush(seconds=1)
        ledger.close(seconds=0)
        assert clear.requests == []
