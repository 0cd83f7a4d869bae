"""Every pattern of a log laid against metrics gets its cause; nothing is added up over both sides (M-3 to M-5, T1-02, T1-04)."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from turnledger.doctor.prometheus import METRICS, Prometheus, PrometheusAway, Series, Told, normalised
from turnledger.doctor.reconcile import Counted, Evidence, Reconciled, reconcile, write_page


def counted(calls: int, **given: Any) -> Counted:
    values = (
        dict.fromkeys((one.name for one in METRICS), 0)
        | {"tool_calls_total": calls}
        | given.pop("values", {})
    )
    return Counted(values=values, results=given.pop("results", calls), tools=given.pop("tools", {}), **given)


def told(**values: Any) -> list[Told]:
    """What the server says; a figure, or (figure, series). The others have no data."""
    found = []
    for metric in METRICS:
        value = values.get(metric.name)
        value, series = value if isinstance(value, tuple) else (value, ())
        found.append(Told(metric, value, tuple(Series(labels, each) for labels, each in series)))
    return found


def evidence(
    resets: int | None = 0, last: float | None = None, unlabelled: int = 0, sessions: int = 0
) -> Evidence:
    return Evidence(lambda _: resets, lambda _: last, lambda _: unlabelled, lambda _: sessions)


def why(found: Reconciled, figure: str = "tool_calls_total") -> tuple[bool | None, tuple[str, ...]]:
    row = next(row for row in found.rows if row.figure == figure)
    return row.match, row.why


@pytest.mark.parametrize(
    ("ledger", "server", "known", "expected"),
    [
        (
            counted(2),
            told(tool_calls_total=(5, [({"job": "a"}, 2), ({"job": "b"}, 3)])),
            evidence(),
            ("2 jobs export this session: a 2, b 3",),
        ),
        (
            counted(2),
            told(tool_calls_total=4, guard_blocks_total=3),
            evidence(),
            ("guards blocked 3: blocked calls may be counted as calls and not logged",),
        ),
        (
            counted(2, open_gaps=1, dead_letters=2),
            told(tool_calls_total=4),
            evidence(),
            ("the ledger lacks events of this session: 1 open gaps", "2 records of this session are dead letters"),
        ),
        (
            counted(2),
            told(tool_calls_total=4),
            evidence(),
            ("the ledger has no gap, and no cause shows in the labels: calls that were never logged",),
        ),
        (
            counted(5, last_activity=1000.0),
            told(tool_calls_total=4),
            evidence(resets=2, last=900.0),
            (
                "the counter fell 2 times: a restart of its process began it anew, and what it had counted is lost",
                "its last sample is of 1970-01-01T00:15:00Z, the session's last event of 1970-01-01T00:16:40Z: the exporter was gone before the end",
            ),
        ),
        (
            counted(5, last_activity=1000.0),
            told(tool_calls_total=4),
            evidence(last=990.0),
            ("a counter that began anew before it was ever scraped, or a last interval that was lost: neither shows in the samples",),
        ),
    ],
    ids=["jobs that differ", "some blocked", "the ledger lacks events", "no sign", "reset and gone", "last interval"],
)  # fmt: skip
def test_a_difference_is_named(
    ledger: Counted, server: list[Told], known: Evidence, expected: tuple[str, ...]
) -> None:
    assert why(reconcile(ledger, server, known)) == (False, expected)


def test_requests_beyond_calls_may_be_retries() -> None:
    ledger = counted(0, values={"llm_requests_total": 2}, retries=1)
    found = reconcile(ledger, told(llm_requests_total=3), evidence())
    assert why(found, "llm_requests_total") == (False, ("1 retries: the exporter may count each attempt",))


def test_requests_below_calls_may_lack_their_answers() -> None:
    ledger = counted(0, values={"llm_requests_total": 5, "llm_failures_total": 1}, unanswered=2)
    found = reconcile(ledger, told(llm_requests_total=3, llm_failures_total=1), evidence())
    assert why(found, "llm_requests_total") == (
        False,
        ("as many requests have no answer: the exporter may count a request when it is answered",),
    )


@pytest.mark.parametrize(
    ("unanswered", "answers", "expected"),
    [
        (0, 4, (True, ())),
        (
            2,
            2,
            (
                None,
                (
                    "2 requests have neither answer nor failure: a response that was lost, or is still awaited",
                ),
            ),
        ),
    ],
)
def test_requests_are_laid_against_answers_and_failures(unanswered: int, answers: int, expected: Any) -> None:
    ledger = counted(0, values={"llm_requests_total": 5, "llm_failures_total": 1}, unanswered=unanswered)
    found = reconcile(ledger, told(), evidence())
    assert why(found, "model answers") == expected
    assert next(row.ledger for row in found.rows if row.figure == "model answers") == answers


def test_of_a_vacuumed_session_nobody_knows_what_was_answered() -> None:
    found = reconcile(counted(4, results=None, unanswered=None), told(), evidence())
    assert why(found, "tool results") == (None, ())
    assert why(found, "model answers") == (None, ())


@pytest.mark.parametrize("sample", ["NaN", "+Inf"])
def test_a_sample_that_is_no_number_is_one_sentence_and_no_count(sample: str) -> None:
    body = {
        "status": "success",
        "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, sample]}]},
    }
    with pytest.raises(PrometheusAway, match="a sample that is no number"):
        Prometheus("http://p.example")._vector(json.dumps(body).encode())


@pytest.mark.parametrize(
    ("results", "denied", "expected"),
    [
        (4, 0, (True, ())),
        (3, 1, (True, ())),
        (3, 0, (None, ("1 calls have no result: the session ended, or stands, during a tool",))),
        (5, 0, (False, ("1 results more than calls: duplicates or orphans",))),
    ],
)
def test_results_are_laid_against_calls(results: int, denied: int, expected: Any) -> None:
    found = reconcile(counted(4, results=results, denied=denied), told(), evidence())
    assert why(found, "tool results") == expected


def test_tools_are_compared_by_name_where_the_exporter_names_them() -> None:
    ledger = counted(3, tools={"bash": 2, "read": 1})
    series = [({"tool_name": "bash", "job": "a"}, 2), ({"tool_name": "write", "job": "a"}, 1)]
    found = reconcile(ledger, told(tool_calls_total=(3, series)), evidence())
    assert [(row.figure, row.ledger, row.prometheus, row.match) for row in found.tools] == [
        ("bash", 2, 2, True),
        ("read", 1, None, False),
        ("write", 0, 1, False),
    ]
    assert found.differs
    assert reconcile(ledger, told(tool_calls_total=(3, [({"job": "a"}, 3)])), evidence()).tools == []


def test_what_must_hold_of_each_side_is_checked() -> None:
    server = told(tool_errors_total=2, tool_calls_total=1, llm_failures_total=1, llm_requests_total=1)
    found = reconcile(
        counted(1, values={"tool_errors_total": 1, "llm_failures_total": 2}), server, evidence()
    )
    assert [holds for _, holds in found.checks] == [False, True, True, False]


def test_t1_04_a_session_that_the_ledger_lacks_still_has_its_metrics() -> None:
    found = reconcile(None, told(tool_calls_total=4), evidence())
    assert [(row.figure, row.ledger, row.prometheus, row.match) for row in found.rows[:1]] == [
        (
            "tool_calls_total",
            None,
            4,
            None,
        )
    ]
    assert "tool results" not in [row.figure for row in found.rows]
    out = io.StringIO()
    write_page(out, found, "s", "http://p", "the ledger has no session 's'.")
    assert "ledger      the ledger has no session 's'. Its harness may not publish" in out.getvalue()


def test_no_data_is_shown_as_such_and_never_as_zero() -> None:
    out = io.StringIO()
    found = reconcile(counted(0), told(), evidence())
    write_page(out, found, "s", "http://p")
    (line,) = [line for line in out.getvalue().splitlines() if line.startswith("tool_calls_total ")]
    assert line.split() == ["tool_calls_total", "0", "no", "data", "–"]
    assert not found.differs


def test_labels_from_outside_move_no_cursor() -> None:
    out = io.StringIO()
    series = [({"job": "a\x1b[2J", "tool_name": "\u202ebash"}, 1)]
    write_page(
        out, reconcile(counted(1), told(tool_calls_total=(1, series)), evidence()), "s\x1b", "http://p"
    )
    assert all(one.isprintable() or one == "\n" for one in out.getvalue())


@pytest.mark.parametrize(
    ("label", "name"),
    [("guard.reason", "guard_reason"), ("guard_reason", "guard_reason"), ("1st-x", "_1st_x")],
)
def test_a_label_is_spelt_as_prometheus_does(label: str, name: str) -> None:
    assert normalised(label) == name
