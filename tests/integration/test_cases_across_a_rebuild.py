"""Worked cases of contract 16 across a rebuild: before it, when readers were switched to it, when late evidence came after the switch, and when all of
it was rebuilt once more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.ingesting import rows
from tests.integration.letting_go import apply, let_go
from tests.integration.projected import Event, c5, lines, plain
from tests.integration.test_prices import c10, list_of, prices
from tests.integration.test_vacuum import worked
from tests.stack import databases, servers
from turnledger.doctor.verify import verify
from turnledger.replay.drop import drop
from turnledger.replay.pieces import Pieces
from turnledger.replay.rebuild import OwnHands, Rebuilder, begin, open_connection
from turnledger.replay.switch import Switch
from turnledger.rollup.prices import PriceBook
from turnledger.rollup.settings import RollupSettings
from turnledger.rollup.worker import Rollup

SHOWN = {
    "c5": "select session_id, total_input_tokens, inherited_usage ->> 'total_input' from turnledger.sessions where session_id in ('p', 'f', 'r1', 'r2') "
    "order by 1",
    "c9": "select call_id, pairing from turnledger.tool_calls where session_id = 'c9' order by 1",
    "c9 turn": "select revision, grade from turnledger.turns where session_id = 'c9'",
    "c9 sums": "select sum(call_count), sum(total_duration_ms) from turnledger.tool_usage where session_id = 'c9'",
    "c10": "select cost_micro_usd, unpriced_calls from turnledger.sessions where session_id = 'a'",
    "c10 hours": "select model, cost_micro_usd from turnledger.usage_hourly where provider = 'house' order by 1",
    "c10 kept": "select p.cost_micro_usd, p.current from turnledger.call_prices p join turnledger.model_calls c using (tenant, session_id, call_key) "
    "where c.session_id = 'a' and c.model = 'm' order by p.run",
    "c13": "select turn_key, total_input_tokens from turnledger.turns where session_id = 'c13' order by 1",
    "c13 thread": "select total_input_tokens from turnledger.sessions where session_id = 'c13'",
    "c24": "select detail, total_input_tokens, output_tokens, total_tool_calls from turnledger.sessions where session_id = 'gone'",
    "c24 events": "select count(*) from turnledger.events where session_id = 'gone'",
}
MOMENTS = ("before", "switched", "late", "again")
Moments = dict[str, dict[str, list[tuple[Any, ...]]]]


def c9() -> list[Event]:
    """A request without a result, a result without a request."""
    return [
        plain("c9", 0, "turn.started"),
        plain("c9", 1, "tool_call.requested", {"tool_name": "bash"}, tool_call_id="t1"),
        plain("c9", 2, "tool_call.completed", {"status": "ok"}, tool_call_id="t2"),
        plain("c9", 3, "turn.completed", {"status": "completed"}),
    ]


def reported(seq: int, turn: str, total: int, last: int | None = None) -> Event:
    """A running total of a thread: input tokens alone."""
    payload: Event = {
        "provider": "openai", "model": "gpt-5.1", "counter_kind": "cumulative", "usage_stream": "thread", "provider_thread": "thread",
        "usage": {"input": total, "output": 0, "cache_read": 0},
    }  # fmt: skip
    if last is not None:
        payload["last"] = {"input": last, "output": 0, "cache_read": 0}
    return plain("c13", seq, "usage.reported", payload, turn_id=turn)


def c13() -> list[Event]:
    """Turn a says 20, turn b of the same thread 50, of which 20 last."""
    return [
        plain("c13", 0, "turn.started", turn_id="a"),
        reported(1, "a", 20),
        plain("c13", 2, "turn.completed", {"status": "completed"}, turn_id="a"),
        plain("c13", 4, "turn.started", turn_id="b"),
        reported(5, "b", 50, 20),
        plain("c13", 6, "turn.completed", {"status": "completed"}, turn_id="b"),
    ]


def late() -> list[bytes]:
    """A fork that is resumed twice, the result of t1, what turn a had to say still, and number 3 of a session that was vacuumed."""
    events = {
        "resumed": [event for name in ("r1", "r2") for event in c5()[name]],
        "c9": [plain("c9", 4, "tool_call.completed", {"status": "ok", "duration_ms": 7}, tool_call_id="t1")],
        "c13": [reported(3, "a", 30)],
    }
    return [*lines(events), worked("gone")[3]]


def rolled_up(url: str) -> None:
    Rollup(RollupSettings(), url, PriceBook()).drain()


def rebuilt(url: str) -> None:
    """All projections folded anew, compared, and switched to."""
    with open_connection(url) as connection:
        drop(connection, 10)
        rebuild = begin(connection, by="test")
        pieces = Pieces(url, rebuild, PriceBook())
        rebuilder = Rebuilder(connection, rebuild, OwnHands(pieces))
        rebuilder.run()
        assert Switch(rebuilder, "test").run(10).differences == 0
        pieces.close()


@pytest.fixture(scope="module")
def moments(
    stack: servers.Servers, database_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Moments]:
    """What readers see at each moment."""
    url = databases.create(stack.database_url, template=database_template)
    folder: Path = tmp_path_factory.mktemp("prices")
    seen: Moments = {}

    def see(moment: str) -> None:
        rolled_up(url)
        report = verify(url, PriceBook(), settle_seconds=5)
        assert report.holds, (moment, report.as_json())
        seen[moment] = {name: rows(url, statement) for name, statement in SHOWN.items()}

    prices(url, "update", list_of(folder, m="2"), "--why", "the house's own model")
    first = {
        "c5": [*c5()["p"], *c5()["f"]],
        "c9": c9(),
        "c10": c10("2026-05-01T10:00:00Z")["a"],
        "c13": c13(),
    }
    apply(url, "first", [*lines(first), *worked("gone")])
    rolled_up(url)
    prices(url, "reprice", "--name", "the house's prices")
    prices(url, "update", list_of(folder, m="4"))
    rolled_up(url)
    let_go(url, "default/gone")
    see("before")
    rebuilt(url)
    see("switched")
    counts = apply(url, "late", late())
    seen["counts"] = {"late": [(counts.conflicts, counts.duplicates, counts.unverified)]}
    prices(url, "reprice", "--name", "doubled")
    see("late")
    rebuilt(url)
    see("again")
    yield seen
    databases.drop(stack.database_url, url)


def at(moments: Moments, name: str) -> list[list[tuple[Any, ...]]]:
    return [moments[moment][name] for moment in MOMENTS]


def test_c5_a_fork_counts_its_own_5_and_inherits_60_however_often_it_is_resumed(moments: Moments) -> None:
    two = [("f", 5, "60"), ("p", 60, None)]
    four = [*two, ("r1", None, "65"), ("r2", None, "65")]
    assert at(moments, "c5") == [two, two, four, four]


def test_c9_a_result_after_the_end_is_late_raises_the_revision_and_moves_the_sums_once(
    moments: Moments,
) -> None:
    missing = [("t1", "missing_result"), ("t2", "orphan_result")]
    came = [("t1", "late_result"), ("t2", "orphan_result")]
    assert at(moments, "c9") == [missing, missing, came, came]
    assert at(moments, "c9 turn") == [[(1, "partial")], [(1, "partial")], [(2, "partial")], [(2, "partial")]]
    assert at(moments, "c9 sums") == [[(2, None)], [(2, None)], [(2, 7)], [(2, 7)]]


def test_c10_a_call_costs_what_it_cost_until_a_named_reprice_which_keeps_the_old_price(
    moments: Moments,
) -> None:
    assert at(moments, "c10") == [[(2000, 1)], [(2000, 1)], [(4000, 1)], [(4000, 1)]]
    hours = [("m", 2000), ("unheard-of", None)], [("m", 4000), ("unheard-of", None)]
    assert at(moments, "c10 hours") == [hours[0], hours[0], hours[1], hours[1]]
    kept = [(None, False), (2000, True)], [(None, False), (2000, False), (4000, True)]
    assert at(moments, "c10 kept") == [kept[0], kept[0], kept[1], kept[1]]


def test_c13_what_a_turn_says_late_moves_the_baseline_of_the_next(moments: Moments) -> None:
    assert moments["before"]["c13"] == moments["switched"]["c13"]
    assert moments["late"]["c13"] == moments["again"]["c13"] == [("a", 30), ("b", 20)]
    assert at(moments, "c13 thread") == [[(50,)]] * 4


def test_c24_a_vacuumed_sessions_event_that_comes_again_is_an_unverified_duplicate_and_moves_nothing(
    moments: Moments,
) -> None:
    assert moments["counts"]["late"] == [(0, 1, 1)]
    assert at(moments, "c24") == [[("vacuumed", 100, 20, 1)]] * 4
    assert at(moments, "c24 events") == [[(0,)]] * 4
