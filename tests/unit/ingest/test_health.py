"""When health is red, with a clock of the test's own."""

from __future__ import annotations

import json

from turnledger.health.server import ProbeServer
from turnledger.ingest.health import Health
from turnledger.ingest.metrics import Metrics

PARTITION = ("events", 3)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def healthy() -> tuple[Health, Clock]:
    clock = Clock()
    health = Health(20.0, clock)
    health.joined = True
    health.broker_seen = clock.now
    health.progress(PARTITION, 100)
    health.end(PARTITION, 100)
    return health, clock


def seen(health: Health, clock: Clock, seconds: float) -> None:
    clock.now += seconds
    health.broker_seen = clock.now


def test_lag_without_progress_is_red_within_thirty_seconds_and_green_again_with_progress() -> None:
    health, clock = healthy()
    health.end(PARTITION, 150)
    seen(health, clock, 19)
    assert health.reasons() == []
    seen(health, clock, 2)
    assert health.reasons() == ["partition 3 of events stands at 100 for 21 s with 50 records waiting"]
    health.progress(PARTITION, 120)
    assert health.reasons() == []


def test_a_quiet_partition_is_green_for_ever_and_its_first_new_record_starts_the_clock() -> None:
    health, clock = healthy()
    seen(health, clock, 10_000)
    assert health.reasons() == []
    health.end(PARTITION, 101)
    seen(health, clock, 19)
    assert health.reasons() == []


def test_a_broker_that_is_silent_is_red() -> None:
    health, clock = healthy()
    clock.now += 21
    assert health.reasons() == ["the broker has not answered for 21 s"]


def test_a_database_that_fails_is_red_until_it_works() -> None:
    health, clock = healthy()
    health.database_failed("connection refused")
    assert health.reasons() == []
    seen(health, clock, 6)
    assert health.reasons() == ["the database fails for 6 s: connection refused"]
    health.database_works()
    assert health.reasons() == []


def test_three_losses_in_a_minute_are_an_alarm() -> None:
    health, clock = healthy()
    assert [health.lost(), health.lost()] == [1, 2]
    assert health.reasons() == []
    assert health.lost() == 3
    assert "3 partitions were lost to other workers" in health.reasons()[0]
    seen(health, clock, 61)
    assert health.reasons() == []


def test_a_stopped_partition_says_why() -> None:
    health, _ = healthy()
    health.partitions[PARTITION].stopped = "partition 3 of events is stopped"
    assert health.reasons() == ["partition 3 of events is stopped"]


def serving(health: Health) -> ProbeServer:
    metrics = Metrics()
    return ProbeServer(health, metrics.registry, metrics.healthy, "127.0.0.1", 0)


def test_the_server_answers_200_when_green_and_503_when_red() -> None:
    health, clock = healthy()
    server = serving(health)
    status, kind, body = server.answer("GET /healthz HTTP/1.1")
    assert (status, kind) == ("200 OK", "application/json")
    assert json.loads(body) == {
        "status": "green",
        "reasons": [],
        "partitions": {"events/3": {"next_offset": 100, "lag": 0}},
    }
    clock.now += 21
    status, _, body = server.answer("GET /healthz HTTP/1.1")
    assert status == "503 Service Unavailable" and json.loads(body)["status"] == "red"


def test_metrics_are_prometheus_text_and_other_paths_are_not_found() -> None:
    health, _ = healthy()
    server = serving(health)
    status, kind, body = server.answer("GET /metrics HTTP/1.1")
    assert status == "200 OK" and kind.startswith("text/plain")
    assert b"turnledger_ingest_healthy 1.0" in body
    assert server.answer("GET / HTTP/1.1")[0] == "404 Not Found"
    assert server.answer("POST /healthz HTTP/1.1")[0] == "405 Method Not Allowed"
