"""`turnledger reconcile` against a real Prometheus server: two jobs, a reset, an exporter that is gone, a missing label, no data."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.integration.test_rollup import drain, project
from tests.stack.commands import eventually
from tests.stack.ledger_rows import put_events
from tests.stack.prometheus import Exporter, NotHere, binary, scraping
from turnledger.cli import build
from turnledger.contract.times import utc_text
from turnledger.doctor.prometheus import METRICS, Prometheus, PrometheusAway, Series
from turnledger.doctor.reconcile import Comparison, Counted, Evidence, Reconciled, metric_named, reconcile
from turnledger.store.connect import connect

EVEN = {
    'tool_calls_total{session_id="even",tool_name="bash",profile="p"}': 3,
    'tool_calls_total{session_id="even",tool_name="read",profile="p"}': 1,
    'tool_errors_total{session_id="even",tool_name="bash"}': 1,
    'guard_blocks_total{session_id="even",guard_reason="outside"}': 2,
    'llm_requests_total{session_id="even",model_id="m"}': 5,
}
SAID_TWICE = {'tool_calls_total{session_id="twice",tool_name="bash"}': 2}
BEGINNING = {
    **EVEN,
    **SAID_TWICE,
    'tool_calls_total{session_id="restarted",tool_name="bash"}': 5,
    'tool_calls_total{session_id="gone",tool_name="bash"}': 2,
    'tool_calls_total{session_id="blocked",tool_name="bash"}': 3,
    'guard_blocks_total{session_id="blocked"}': 1,
    'tool_calls_total{session_id="od\\\\d\\"x"}': 1,
    "guard_coercions_total": 9,
}
LATER = {name: value for name, value in BEGINNING.items() if "gone" not in name} | {
    'tool_calls_total{session_id="restarted",tool_name="bash"}': 2
}


@dataclass
class Scraped:
    url: str
    began: float

    def server(self, hours: float | None = None) -> Prometheus:
        return Prometheus(self.url, at=None if hours is None else self.began + hours * 3600)

    def laid(self, session: str, ledger: Counted | None, hours: float | None = None) -> Reconciled:
        server = self.server(hours)
        return reconcile(ledger, server.session(session), Evidence.of(server, session))


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    try:
        binary()
    except NotHere as why:
        pytest.skip(str(why))
    exporter = Exporter()
    exporter.jobs = {"a": BEGINNING, "b": SAID_TWICE}
    with scraping(exporter, ["a", "b"], tmp_path_factory.mktemp("prometheus")) as url:
        there = Scraped(url, time.time())
        calls = metric_named("tool.calls")
        assert calls is not None
        server = Prometheus(url)
        eventually(lambda: len(server.session("twice")[0].series) == 2, what="both jobs are scraped")
        exporter.jobs = {"a": LATER, "b": SAID_TWICE}
        eventually(lambda: server.resets(calls, "restarted") == 1, what="the counter that fell is scraped")
        eventually(lambda: not server.query('tool_calls_total{session_id="gone"}'), what="the series is gone")
        yield there
    exporter.close()


def counts(calls: int, **given: Any) -> Counted:
    values = (
        dict.fromkeys((one.name for one in METRICS), 0)
        | {"tool_calls_total": calls}
        | given.pop("values", {})
    )
    return Counted(
        values=values, results=given.pop("results", calls), tools=given.pop("tools", {"bash": calls}), **given
    )


def of(found: Reconciled, name: str) -> Comparison:
    return next(row for row in found.rows if row.figure == name)


def test_what_is_equal_matches_figure_by_figure(scraped: Scraped) -> None:
    ledger = counts(
        4,
        tools={"bash": 3, "read": 1},
        values={"tool_errors_total": 1, "guard_blocks_total": 2, "llm_requests_total": 5},
    )
    found = scraped.laid("even", ledger)
    assert {row.figure: (row.ledger, row.prometheus, row.match) for row in found.rows} == {
        "tool_calls_total": (4, 4.0, True),
        "tool results": (4, None, True),
        "tool_errors_total": (1, 1.0, True),
        "guard_blocks_total": (2, 2.0, True),
        "guard_coercions_total": (0, None, None),
        "llm_requests_total": (5, 5.0, True),
        "llm_failures_total": (0, None, None),
        "model answers": (5, None, True),
    }
    assert [(row.figure, row.match) for row in found.tools] == [("bash", True), ("read", True)]
    assert [holds for _, holds in found.checks] == [True, None, True, True]
    assert not found.differs


def test_t1_02_a_session_that_two_jobs_export_is_told_twice_and_added_nowhere(scraped: Scraped) -> None:
    row = of(scraped.laid("twice", counts(2)), "tool_calls_total")
    assert (row.ledger, row.prometheus, row.match) == (2, 4.0, False)
    assert row.why == ("2 jobs export this session, and each says 2: a 2, b 2",)


def test_a_counter_that_fell_is_named(scraped: Scraped) -> None:
    row = of(scraped.laid("restarted", counts(7)), "tool_calls_total")
    assert (row.ledger, row.prometheus, row.match) == (7, 2.0, False)
    assert row.why == (
        "the counter fell once: a restart of its process began it anew, and what it had counted is lost",
    )


def test_an_exporter_that_was_gone_before_the_end_is_named(scraped: Scraped) -> None:
    end = scraped.began + 600
    row = of(scraped.laid("gone", counts(3, last_activity=end)), "tool_calls_total")
    assert (row.prometheus, row.match) == (2.0, False)
    (why,) = row.why
    assert why.startswith("its last sample is of ")
    assert why.endswith(
        f"the session's last event of {utc_text(int(end) * 10**6)[:19]}Z: the exporter was gone before the end"
    )


def test_blocked_calls_that_were_not_logged_are_named(scraped: Scraped) -> None:
    row = of(scraped.laid("blocked", counts(2, values={"guard_blocks_total": 1})), "tool_calls_total")
    assert row.match is False
    assert row.why == ("as many calls were blocked by guards (1): counted as calls, and not logged",)


def test_no_data_is_no_zero_and_says_why(scraped: Scraped) -> None:
    ledger = counts(2, values={"guard_coercions_total": 1, "llm_failures_total": 1})
    found = scraped.laid("nobody", ledger)
    calls, coercions, failures = (
        of(found, name) for name in ("tool_calls_total", "guard_coercions_total", "llm_failures_total")
    )
    assert [(row.prometheus, row.match) for row in (calls, coercions, failures)] == [(None, False)] * 3
    assert calls.why == (
        "6 other sessions have tool_calls_total: this one's last sample is older than 72 h, or it was exported under another id",
    )
    assert coercions.why == (
        "1 series of guard_coercions_total carry no session: the exporter does not set the label",
    )
    assert failures.why[0].startswith("the server has no series llm_failures_total of the last 72 h")
    blocks = of(found, "guard_blocks_total")
    assert (blocks.ledger, blocks.prometheus, blocks.match) == (0, None, None)
    assert found.tools == []


@pytest.mark.parametrize(("hours", "value"), [(71, 4.0), (73, None)])
def test_t1_03_a_sample_counts_for_72_hours(scraped: Scraped, hours: int, value: float | None) -> None:
    assert of(scraped.laid("even", counts(4), hours), "tool_calls_total").prometheus == value


def test_t1_05_a_label_is_asked_for_in_either_spelling(scraped: Scraped) -> None:
    blocks = metric_named("guard.blocks")
    assert blocks is not None
    expected = [Series({"guard_reason": "outside"}, 2.0)]
    assert scraped.server().breakdown(blocks, "even", ["guard.reason"]) == expected
    assert scraped.server().breakdown(blocks, "even", ["guard_reason"]) == expected


def test_an_id_of_any_characters_is_asked_for_as_it_is(scraped: Scraped) -> None:
    assert of(scraped.laid('od\\d"x', counts(1, tools={})), "tool_calls_total").match is True


def test_a_server_that_refuses_a_query_is_one_sentence(scraped: Scraped) -> None:
    with pytest.raises(PrometheusAway, match=r"refuses a query with 400 \(.*parse error"):
        scraped.server().query("sum(")


def command(url: str, scraped: Scraped, *arguments: str) -> Result:
    environment = {"TURNLEDGER_DATABASE_URL": url, "TURNLEDGER_PROMETHEUS_URL": scraped.url}
    return CliRunner().invoke(build(), ["reconcile", *arguments], env=environment)


def test_the_command_lays_a_session_of_the_ledger_beside_the_server(scraped: Scraped, database: str) -> None:
    events = [
        {"type": "turn.started", "turn_id": "t"},
        {
            "type": "tool_call.requested",
            "turn_id": "t",
            "tool_call_id": "1",
            "payload": {"tool_name": "bash"},
        },
        {"type": "tool_call.completed", "turn_id": "t", "tool_call_id": "1", "payload": {"status": "ok"}},
        {
            "type": "tool_call.requested",
            "turn_id": "t",
            "tool_call_id": "2",
            "payload": {"tool_name": "bash"},
        },
        {"type": "tool_call.denied", "turn_id": "t", "tool_call_id": "2", "payload": {"by": "guard"}},
        {"type": "model_call.started", "turn_id": "t", "model_call_id": "c", "payload": {"provider": "p"}},
    ]
    numbered = [
        {**event, "seq": seq, "occurred_at": f"2026-03-01T12:00:0{seq}Z"} for seq, event in enumerate(events)
    ]
    with connect(database, "test", autocommit=True) as link:
        for session in ("twice", "blocked"):
            put_events(link, session, numbered)
            project(link, [json.dumps({"session_id": session, **event}).encode() for event in numbered])
    drain(database)

    done = command(database, scraped, "default/twice", "--by", "tool.name")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0] == "session     twice"
    assert lines[3:7] == [
        "counts",
        "figure                 ledger  prometheus  Match?",
        "tool_calls_total            2           4  no",
        "tool results                1           –  yes",
    ]
    assert "tool_calls_total: 2 jobs export this session, and each says 2: a 2, b 2" in lines
    assert "tool_calls_total by job, tool_name" in lines

    found = json.loads(command(database, scraped, "blocked", "--json").stdout)
    assert (found["session_id"], found["in_ledger"], found["differs"]) == ("blocked", True, True)
    assert found["rows"][0] == {
        "figure": "tool_calls_total",
        "ledger": 2,
        "prometheus": 3.0,
        "match": False,
        "why": ["as many calls were blocked by guards (1): counted as calls, and not logged"],
    }

    assert found["rows"][-1] == {
        "figure": "model answers",
        "ledger": 0,
        "prometheus": None,
        "match": None,
        "why": ["1 requests have neither answer nor failure: a response that was lost, or is still awaited"],
    }

    report = CliRunner().invoke(
        build(),
        ["sessions", "report", "blocked"],
        env={"TURNLEDGER_DATABASE_URL": database, "TURNLEDGER_PROMETHEUS_URL": scraped.url},
    )
    assert (
        "| metric/log mismatch | yes (tool_calls_total: as many calls were blocked by guards (1): counted as calls, and not logged; "
        in report.stdout
    )

    unknown = command(database, scraped, "even")
    assert unknown.exit_code == 1
    assert "ledger      the ledger has no session 'even'" in unknown.stdout
    assert "tool_calls_total            –           4  –" in unknown.stdout


def test_a_server_that_is_away_or_no_server_is_one_sentence() -> None:
    with pytest.raises(PrometheusAway, match=r"at http://127.0.0.1:1 does not answer \("):
        Prometheus("http://user:secret@127.0.0.1:1/").session("s")
    for address in ("ftp://x", "nonsense", "http://[", "http://x:port"):
        with pytest.raises(PrometheusAway, match="is not one"):
            Prometheus(address)
