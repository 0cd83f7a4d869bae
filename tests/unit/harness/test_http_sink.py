"""The sink ``https://``: what goes over the wire, what is sent again and how, what a collector may refuse."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.fixtures.harness.collector import Request, SmallCollector, results, serving
from turnledger.harness import Ledger, LedgerError


@pytest.fixture
def collector() -> Iterator[SmallCollector]:
    with serving(SmallCollector()) as running:
        yield running


@pytest.fixture
def ledger(collector: SmallCollector, tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(session_id="s", tenant="acme", sink=collector.url, spool=tmp_path / "spool")
    yield made
    made.close(seconds=0)


def told(collector: SmallCollector) -> list[Any]:
    return [
        (e["seq"], e["payload"]["from_seq"], e["payload"]["to_seq"], e["payload"]["reason"])
        if e["type"] == "stream.lost"
        else (e["seq"], e["payload"]["n"])
        for e in collector.taken
    ]


def answering(status: int, **headers: str) -> Any:
    return lambda request: web.Response(status=status, headers=headers)


def test_events_come_as_lines_in_their_order_with_what_a_collector_needs(
    collector: SmallCollector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNLEDGER_COLLECTOR_TOKEN", "token-of-vm-7")
    with Ledger(session_id="s", sink=collector.url, spool=tmp_path / "spool") as ledger:
        for n in range(1200):
            ledger.emit("x.y", {"n": n})
    assert told(collector) == [(n, n) for n in range(1200)]
    first = collector.requests[0]
    assert first.headers["Content-Type"] == "application/x-ndjson"
    assert first.headers["Authorization"] == "Bearer token-of-vm-7"
    assert first.headers["Turnledger-Events"] == str(len(first.events))
    assert len({request.headers["Idempotency-Key"] for request in collector.requests}) == len(
        collector.requests
    )
    assert any(request.headers.get("Content-Encoding") == "gzip" for request in collector.requests)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_was_not_taken_now_is_sent_again_with_the_same_key(
    collector: SmallCollector, ledger: Ledger, status: int
) -> None:
    collector.answers = [answering(status, **{"Retry-After": "0"})] * 2
    ledger.emit("x.y", {"n": 0})
    ledger.flush()
    keys = [request.headers["Idempotency-Key"] for request in collector.requests]
    assert len(keys) == 3 and len(set(keys)) == 1
    assert told(collector) == [(0, 0)]


def test_a_lost_answer_costs_nothing_where_keys_are_known(collector: SmallCollector, ledger: Ledger) -> None:
    def taken_and_gone(request: Request) -> None:
        collector.take(request)

    collector.answers = [taken_and_gone]
    for n in range(3):
        ledger.emit("x.y", {"n": n})
    ledger.flush()
    ledger.emit("x.y", {"n": 3})
    ledger.flush()
    assert told(collector) == [(n, n) for n in range(4)]


def test_a_collector_that_is_away_is_a_sentence_and_gets_everything_when_it_is_back(tmp_path: Path) -> None:
    with serving(SmallCollector()) as gone:
        port = int(gone.url.rpartition(":")[2])
    ledger = Ledger(session_id="s", sink=f"http://127.0.0.1:{port}", spool=tmp_path / "spool")
    for n in range(5):
        ledger.emit("x.y", {"n": n})
    with pytest.raises(LedgerError, match=r"v1/events does not answer .*: start it, or correct the address"):
        ledger.flush(seconds=4)
    with serving(SmallCollector(), port) as back:
        ledger.flush(seconds=60)
        assert told(back) == [(n, n) for n in range(5)]
    ledger.close(seconds=0)


def test_an_event_that_is_refused_for_good_is_declared_and_the_rest_goes_on(
    collector: SmallCollector, ledger: Ledger
) -> None:
    def refuse_the_second(request: Request) -> web.StreamResponse:
        collector.taken += [e for e in request.events if e["seq"] != 1]
        return results(["refused" if e["seq"] == 1 else "accepted" for e in request.events], "tenant")

    ledger._spooled._sender._spool._limit = 10**9  # type: ignore[union-attr]
    collector.answers = [refuse_the_second] * 3
    for n in range(3):
        ledger.emit("x.y", {"n": n})
    ledger.flush()
    ledger.flush()
    assert sorted(told(collector)) == [(0, 0), (2, 2), (3, 1, 1, "refused")]


def test_a_declaration_that_is_refused_is_not_declared_again(
    collector: SmallCollector, ledger: Ledger
) -> None:
    def refuse(request: Request) -> web.StreamResponse:
        return results(["refused"] * len(request.events))

    collector.answers = [refuse, refuse]
    ledger.emit("x.y", {"n": 0})
    ledger.flush()
    ledger.flush()
    ledger.emit("x.y", {"n": 2})
    ledger.flush()
    assert told(collector) == [(2, 2)]


def test_a_request_that_is_too_long_is_halved_down_to_the_event_that_is(
    collector: SmallCollector, ledger: Ledger
) -> None:
    class Narrow(SmallCollector):
        """Takes 3 KB at once."""

    def narrow(request: Request) -> web.StreamResponse:
        if len(request.body) > 3000:
            return web.Response(status=413)
        collector.taken += request.events
        return results(["accepted"] * len(request.events))

    collector.answers = [narrow] * 50
    for n in range(20):
        ledger.emit("x.y", {"n": n, "pad": "p" * (4000 if n == 7 else 400)})
    ledger.flush()
    ledger.flush()
    assert told(collector) == [*((n, n) for n in range(20) if n != 7), (20, 7, 7, "refused")]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (answering(401), "set TURNLEDGER_COLLECTOR_TOKEN"),
        (answering(404), r"is no collector that takes events \(404\)"),
        (answering(302, Location="https://elsewhere.example"), r"is no collector that takes events \(302\)"),
        (lambda request: web.json_response({"ok": True}), "did not say what became of each of 1 events"),
        (lambda request: results(["accepted"] * 2), "did not say what became of each of 1 events"),
        (lambda request: results(["perhaps"]), "did not say what became of each of 1 events"),
    ],
)
def test_an_answer_that_is_none_is_a_sentence_and_the_event_stays(
    collector: SmallCollector,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answer: Any,
    said: str,
) -> None:
    monkeypatch.setenv("TURNLEDGER_COLLECTOR_TOKEN", "token-of-vm-7")
    collector.answers = [answer] * 20
    ledger = Ledger(session_id="s", sink=collector.url, spool=tmp_path / "spool")
    ledger.emit("x.y", {"n": 0})
    with caplog.at_level(logging.DEBUG), pytest.raises(LedgerError, match=said):
        ledger.flush(seconds=0.6)
    assert "token-of-vm-7" not in caplog.text
    collector.answers = []
    ledger.flush(seconds=30)
    ledger.close(seconds=0)
    assert told(collector) == [(0, 0)]
