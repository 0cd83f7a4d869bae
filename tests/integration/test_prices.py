"""Prices in a ledger: published versions, named reprices that keep what was before, and rollups that follow exactly (contract 9, C10)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from tests.integration.projected import (
    SLOT,
    TABLES,
    Event,
    assert_equal_to_fold,
    c5,
    call,
    lines,
    project,
    shown,
    started,
    turn,
    unordered,
    varied,
)
from tests.stack.commands import run
from turnledger.cli import build
from turnledger.errors import TurnledgerError
from turnledger.pricing.catalogue import PackagedCatalogue
from turnledger.rollup.prices import PriceBook
from turnledger.rollup.settings import RollupSettings
from turnledger.rollup.worker import Rollup
from turnledger.store.connect import connect
from turnledger.store.instants import load_as_microseconds


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    opened = connect(database, "test", autocommit=True)
    load_as_microseconds(opened)
    yield opened
    opened.close()


def drain(database: str) -> int:
    return Rollup(RollupSettings(), database, PriceBook()).drain()


def prices(database: str, *words: str) -> Any:
    """What a command of ``turnledger prices`` says with ``--json``; raises its sentence."""
    environment = {"TURNLEDGER_DATABASE_URL": database}
    done = CliRunner().invoke(build(), ["prices", *words, "--json"], env=environment, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def list_of(folder: Path, **input_prices: str) -> str:
    """A file of models of ``house``: input at a price, everything else free."""
    models = [
        {"provider": "house", "model": model, "prices": [{"input": price, "output": "0", "cache_read": "0"}]}
        for model, price in input_prices.items()
    ]
    file = folder / "prices.json"
    file.write_text(json.dumps({"models": models}))
    return str(file)


def house(session: str, seq: int, model: str, tokens: int, **more: Any) -> Event:
    usage = {"input": tokens, "output": 0, "cache_read": 0}
    payload = {"provider": "house", "model": model, "token_convention": "exclusive"}
    return call(session, seq, None, tokens, usage=usage, payload=payload, model_call_id=f"c{seq}", **more)


def c10(now: str = "2099-01-01T10:00:00Z") -> dict[str, list[Event]]:
    """1,000 tokens of a known model and 500 of an unknown one, in an hour after every publication of this test."""
    inside = [house("a", 2, "m", 1000, occurred_at=now), house("a", 3, "unheard-of", 500, occurred_at=now)]
    return {"a": [started("a"), *turn("a", *inside)]}


def sums(connection: psycopg.Connection[Any], session: str = "a") -> tuple[int | None, int]:
    (row,) = [row for row in shown(connection, "sessions") if row["session_id"] == session]
    return row["cost_micro_usd"], row["unpriced_calls"]


def hours(connection: psycopg.Connection[Any]) -> dict[str, int | None]:
    return {row["model"]: row["cost_micro_usd"] for row in shown(connection, "usage_hourly")}


def test_c10_a_later_catalogue_changes_nothing_until_a_named_reprice_which_keeps_the_old_price(
    database: str, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    past = c10("2026-05-01T10:00:00Z")
    # Catalogue 2 is there before the call's hour (the call is of the far future), 3 doubles its price, 4 knows the unknown model too.
    published = prices(database, "update", list_of(tmp_path, m="2"), "--why", "the house's own model")
    assert (published["version"], published["published"]) == (2, True)
    project(connection, lines(past))
    drain(database)
    assert sums(connection) == (None, 2)  # its hour was before: the packaged list knows neither
    prices(database, "reprice", "--name", "the house's prices")
    drain(database)
    assert sums(connection) == (2000, 1)
    reviewed = prices(database, "update", list_of(tmp_path, m="4"))
    assert [(one["model"], one["change"], one["calls"]) for one in reviewed["changes"]] == [
        ("m", "changed", 1)
    ]
    drain(database)
    assert sums(connection) == (2000, 1)
    assert hours(connection) == {"m": 2000, "unheard-of": None}

    dry = prices(database, "reprice", "--name", "doubled", "--dry-run")
    assert dry["total"] == {
        "calls": 2,
        "calls_moved": 1,
        "cost_micro_usd_before": 2000,
        "cost_micro_usd_after": 4000,
        "unpriced_calls_before": 1,
        "unpriced_calls_after": 1,
    }
    assert sums(connection) == (2000, 1)
    ran = prices(
        database, "reprice", "--name", "doubled", "--why", "the price was announced late", "--by", "ada"
    )
    assert (ran["run"], ran["sessions"]) == (2, 1)
    drain(database)
    assert sums(connection) == (4000, 1)
    assert hours(connection) == {"m": 4000, "unheard-of": None}
    (known,) = [row for row in shown(connection, "model_calls") if row["model"] == "m"]
    assert (known["cost_micro_usd"], known["catalog_version"]) == (4000, 3)
    kept = sorted(
        (row["run"], row["reprice"], row["cost_micro_usd"], row["catalog_version"], row["current"])
        for row in shown(connection, "call_prices")
        if row["call_key"] == known["call_key"]
    )
    assert kept == [
        (0, None, None, None, False),
        (1, "the house's prices", 2000, 2, False),
        (2, "doubled", 4000, 3, True),
    ]
    (audit,) = [row for row in shown(connection, "reprices") if row["name"] == "doubled"]
    assert (audit["by"], audit["why"], audit["version"], audit["since"]) == (
        "ada",
        "the price was announced late",
        3,
        None,
    )
    assert audit["until"] is not None
    assert_equal_to_fold(connection, lines(past), PriceBook().now(connection))


def test_a_call_of_a_later_hour_costs_what_the_new_version_says(
    database: str, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    project(connection, lines(c10()))
    drain(database)
    assert sums(connection) == (None, 2)
    # Its hour is after the publication (its clock runs ahead): the session is priced anew by itself.
    prices(database, "update", list_of(tmp_path, m="2"))
    drain(database)
    assert sums(connection) == (2000, 1)
    prices(database, "update", list_of(tmp_path, m="4"))
    drain(database)
    assert sums(connection) == (4000, 1)
    assert_equal_to_fold(connection, lines(c10()), PriceBook().now(connection))


def test_late_events_forks_and_reprices_in_any_order_end_as_a_ledger_rolled_up_anew(
    database: str, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    family = {**c5(), **varied(), **c10("2026-05-01T11:00:00Z")}
    family["untimed"] = [started("untimed"), *turn("untimed", house("untimed", 2, "m", 7, occurred_at=None))]
    for event in family["untimed"]:
        event["occurred_at"] = None
    prices(database, "update", list_of(tmp_path, m="2"))
    # First without the events that come late.
    project(connection, lines({name: events[:-2] for name, events in family.items()}))
    drain(database)
    opus = [{"provider": "anthropic", "model": "claude-opus-4-5", "prices": [{"input": "50", "output": "1"}]}]
    file = tmp_path / "opus.json"
    file.write_text(json.dumps({"models": opus}))
    prices(database, "update", str(file))
    prices(database, "reprice", "--name", "opus from noon", "--since", "2026-05-01T12:00:00Z")
    drain(database)
    project(connection, lines(family))
    prices(database, "reprice", "--name", "all of it, at the packaged list", "--version", "1")
    prices(database, "reprice", "--name", "house again", "--version", "2")
    drain(database)
    expected = assert_equal_to_fold(connection, lines(family), PriceBook().now(connection))
    assert [row["cost_micro_usd"] for row in expected["usage_hourly"] if row["hour"] is None] == [14]
    tables = (*TABLES, "call_prices")
    before = {table: unordered(shown(connection, table)) for table in tables}
    assert len(before["call_prices"]) > 50
    for table in ("sessions", "ai_usage", "tool_usage", "mcp_usage", "hour_parts", "usage_hourly", "repriced", "call_overlay", "part_overlay",
                  "turn_overlay", "call_claims"):  # fmt: skip
        connection.execute(f"delete from {SLOT}.{table}")  # type: ignore[call-overload]  # names of this test
    connection.execute("insert into ledger.marks (session_no) select session_no from ledger.sessions")
    drain(database)
    assert {table: unordered(shown(connection, table)) for table in tables} == before


def test_no_session_is_rolled_up_while_prices_change(
    database: str, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    project(connection, lines(c10()))
    with connect(database, "other", autocommit=True) as other, other.transaction():
        other.execute("select pg_advisory_xact_lock(hashtextextended('turnledger.prices', 0))")
        worker = Rollup(RollupSettings(), database, PriceBook())
        tick = worker.tick()
        assert (tick.done, tick.met) == (0, 1)
    assert worker.tick().done == 1
    worker.close()


def test_the_list_beneath_version_1_outlives_the_package_that_brought_it(
    database: str, connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    past = {"p": c5()["p"]}
    project(connection, lines(past))
    drain(database)
    cost = sums(connection, "p")
    # Another version of the package is installed, and it lists nothing.
    monkeypatch.setattr("turnledger.rollup.prices.source", lambda: "genai-prices 999")
    monkeypatch.setattr("turnledger.rollup.prices.packaged", lambda: PackagedCatalogue([]))
    connection.execute(f"delete from {SLOT}.call_overlay")  # type: ignore[call-overload]
    project(connection, lines(past))
    drain(database)
    assert sums(connection, "p") == cost
    assert cost[0] is not None


def test_an_update_that_says_the_same_publishes_nothing(database: str, tmp_path: Path) -> None:
    file = list_of(tmp_path, m="2")
    assert prices(database, "update", file)["published"] is True
    assert prices(database, "update", file)["published"] is False
    assert [row["version"] for row in prices(database, "show")["catalogues"]] == [1, 2]
    assert prices(database, "show", "--own")["models"] == [
        {
            "provider": "house",
            "model": "m",
            "prices": [{"input": "2", "output": "0", "cache_read": "0"}],
        }
    ]


def test_what_cannot_be_done_is_a_sentence_and_changes_nothing(database: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text('{"models":[{"provider":"p","model":"m","prices":[{"imput":1}]}]}')
    done = run("prices", "update", str(bad), environment={"TURNLEDGER_DATABASE_URL": database})
    assert (done.returncode, done.stdout) == (2, "")
    assert "models[0].prices[0]: 'imput' is no word of a price list" in done.stderr
    assert "Traceback" not in done.stderr
    prices(database, "reprice", "--name", "once")
    for words, said in (
        (("--name", "once"), "'once' was run before"),
        (("--name", " "), "--name is empty"),
        (("--name", "nine", "--version", "9"), "version 9"),
        (("--name", "soon", "--since", "soon"), "--since 'soon' is no time"),
    ):
        with pytest.raises(TurnledgerError, match=said):
            prices(database, "reprice", *words)
    assert [row["name"] for row in prices(database, "show")["reprices"]] == ["once"]
