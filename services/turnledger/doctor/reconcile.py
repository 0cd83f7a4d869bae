"""`turnledger reconcile`: the ledger's counts laid beside a Prometheus server's, and the likely cause of what differs.

Two sources are told side by side and never added: neither a total over both nor one of several exporters is made here. No data is not 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import IO, Any

import psycopg

from turnledger.contract.times import parse_instant, utc_text
from turnledger.doctor.prometheus import METRICS, WINDOW_HOURS, Metric, Prometheus, Series, Told
from turnledger.doctor.rows import told as rows_of
from turnledger.doctor.tables import UNKNOWN, count, safe, show
from turnledger.errors import TurnledgerError
from turnledger.store.named import query
from turnledger.store.read import SessionRef, active_slot, of_slot

Row = dict[str, Any]

LATE_SECONDS = 60.0
"""A last sample that is older than the session's last event by more than this came from an exporter that was gone by then: the usual
interval of a scrape, twice."""


@dataclass(frozen=True)
class Counted:
    """What the ledger counts of one session, by the names of the metrics."""

    values: Mapping[str, int | None]
    results: int | None
    """Tool calls that were answered. None: a vacuum let go of them."""
    tools: Mapping[str, int]
    """Tool calls by name."""
    denied: int = 0
    """Tool calls that were denied: those have no result."""
    retries: int = 0
    unanswered: int | None = 0
    """Model calls with neither an answer nor a failure. None as of ``results``."""
    open_gaps: int = 0
    dead_letters: int = 0
    last_activity: float | None = None
    """In seconds since 1970."""


@dataclass(frozen=True)
class Comparison:
    """One figure of both."""

    figure: str
    ledger: int | None
    """None: the ledger has no such session, or does not know."""
    prometheus: float | None
    """None: no data."""
    match: bool | None
    """None: nothing to compare."""
    why: tuple[str, ...] = ()
    """The likely causes of a difference, the likeliest first."""


@dataclass(frozen=True)
class Reconciled:
    """The whole answer. ``rows``: a comparison each figure."""

    rows: list[Comparison]
    tools: list[Comparison]
    """By name of tool."""
    checks: list[tuple[str, bool | None]]
    """What must hold of either source by itself."""
    told: list[Told] = field(default_factory=list)
    extra: Mapping[str, list[Series]] = field(default_factory=dict)
    """Breakdowns by labels that a person asked for, by metric."""

    @cached_property
    def differs(self) -> bool:
        """Whether anything does not match."""
        compared = (*self.rows, *self.tools)
        return any(row.match is False for row in compared) or any(holds is False for _, holds in self.checks)


OF_THE_LOG = ("tool results", "model answers")
"""Figures that no metric has: the log is laid against itself."""
FIGURES = {
    "tool_calls_total": "total_tool_calls",
    "tool_errors_total": "tool_errors",
    "guard_blocks_total": "guard_blocks",
    "guard_coercions_total": "guard_coercions",
    "llm_requests_total": "model_call_count",
    "llm_failures_total": "failed_model_calls",
}
"""A metric's name, and the column of ``turnledger.sessions`` that counts the same."""


class NotSummed(TurnledgerError):
    """The rollup worker has not seen the session yet."""


def counted(connection: psycopg.Connection[Any], found: SessionRef) -> Counted:
    """The ledger's counts of a session. Raises :class:`NotSummed`."""
    key = {"tenant": found.tenant, "session_id": found.session_id}
    row = next(iter(rows_of(connection, query("read/session_rollup"), key)), None)
    if row is None:
        raise NotSummed(
            f"the sums of session {found.session_id!r} are not there yet: the rollup worker (`turnledger rollup`) sets them within seconds."
        )
    own = {"session_no": found.session_no, "eval": row["kind"] == "eval"}
    (answered,) = rows_of(connection, of_slot("story/tool_results", active_slot(connection)), own)
    usage = rows_of(connection, query("story/tool_usage"), key)
    last = None if row["last_activity_at"] is None else parse_instant(row["last_activity_at"])
    return Counted(
        values={metric: row[column] for metric, column in FIGURES.items()},
        results=None if row["detail"] == "vacuumed" else answered["results"],
        tools={one["tool_name"]: one["calls"] for one in usage},
        denied=sum(one["denied"] for one in usage),
        retries=answered["retries"],
        unanswered=None if row["detail"] == "vacuumed" else answered["unanswered"],
        open_gaps=row["open_gaps"] or 0,
        dead_letters=row["dead_letters"] or 0,
        last_activity=None if last is None else last / 1e6,
    )


# --- the comparison: pure ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """What the server is asked where something differs, each only then."""

    resets: Callable[[Metric], int | None]
    last_sample: Callable[[Metric], float | None]
    without_session: Callable[[Metric], int]
    sessions: Callable[[Metric], int]

    @classmethod
    def of(cls, server: Prometheus, session_id: str) -> Evidence:
        """Of a real server."""
        return cls(
            lambda metric: server.resets(metric, session_id),
            lambda metric: server.last_sample(metric, session_id),
            server.without_session,
            server.sessions,
        )


def reconcile(ledger: Counted | None, told: Sequence[Told], evidence: Evidence) -> Reconciled:
    """Both sides, figure by figure. ``ledger`` is None where the ledger has no such session."""
    by_name = {one.metric.name: one for one in told}
    rows = [_compare(ledger, one, by_name, evidence) for one in told]
    if ledger is not None:
        rows = _with_the_log(rows, ledger)
    return Reconciled(rows, _tools(ledger, by_name), _checks(ledger, by_name), list(told))


def of_the_log(ledger: Counted) -> list[Comparison]:
    """The ledger's side alone, where no server was asked: nothing is compared but the log with itself."""
    rows = [Comparison(metric.name, ledger.values[metric.name], None, None) for metric in METRICS]
    return _with_the_log(rows, ledger)


def _with_the_log(rows: Iterable[Comparison], ledger: Counted) -> list[Comparison]:
    """The figures that the log is laid against itself by stand behind those that they belong to."""
    behind = {"tool_calls_total": _results, "llm_failures_total": _answers}
    told = []
    for row in rows:
        told.append(row)
        if row.figure in behind:
            told.append(behind[row.figure](ledger))
    return told


def _compare(
    ledger: Counted | None, told: Told, by_name: Mapping[str, Told], evidence: Evidence
) -> Comparison:
    name = told.metric.name
    known = None if ledger is None else ledger.values[name]
    if told.value is None:
        why = _no_data(told.metric, evidence)
        if known == 0:
            why = (f"{why[0]}; no data is no 0, so that nothing is compared",)
        return Comparison(name, known, None, False if known else None, why)
    if ledger is None or known is None:
        return Comparison(name, None, told.value, None, ("the ledger has no such session",))
    if told.value == known:
        return Comparison(name, known, told.value, True)
    why = _more(ledger, known, told, by_name) if told.value > known else _less(ledger, told, evidence)
    return Comparison(name, known, told.value, False, why)


def _no_data(metric: Metric, evidence: Evidence) -> tuple[str, ...]:
    unlabelled = evidence.without_session(metric)
    others = evidence.sessions(metric)
    causes = []
    if unlabelled:
        causes.append(
            f"{unlabelled} series of {metric.name} carry no session: the exporter does not set the label"
        )
    if others:
        causes.append(
            f"{others} other sessions have {metric.name}: this one's last sample is older than {WINDOW_HOURS} h, "
            "or it was exported under another id"
        )
    if not causes:
        causes.append(
            f"the server has no series {metric.name} of the last {WINDOW_HOURS} h: nothing exported it, as a counter that was never raised, "
            "or the session is older than its label"
        )
    return tuple(causes)


def _more(ledger: Counted, known: int, told: Told, by_name: Mapping[str, Told]) -> tuple[str, ...]:
    """The server says more than the ledger."""
    value, causes = told.value or 0.0, []
    jobs = _sums(told.series, "job")
    if len(jobs) > 1:
        said = ", ".join(f"{job} {figure(each)}" for job, each in sorted(jobs.items()))
        if all(each == known for each in jobs.values()):
            causes.append(f"{len(jobs)} jobs export this session, and each says {known}: {said}")
        else:
            causes.append(f"{len(jobs)} jobs export this session: {said}")
    blocks = by_name.get("guard_blocks_total")
    if told.metric.name == "tool_calls_total" and blocks is not None and blocks.value:
        more = value - known
        if more == blocks.value:
            causes.append(
                f"as many calls were blocked by guards ({figure(more)}): counted as calls, and not logged"
            )
        else:
            causes.append(
                f"guards blocked {figure(blocks.value)}: blocked calls may be counted as calls and not logged"
            )
    if told.metric.name == "llm_requests_total" and ledger.retries:
        causes.append(f"{ledger.retries} retries: the exporter may count each attempt")
    if ledger.open_gaps:
        causes.append(f"the ledger lacks events of this session: {ledger.open_gaps} open gaps")
    if ledger.dead_letters:
        causes.append(f"{ledger.dead_letters} records of this session are dead letters")
    return tuple(causes) or (
        "the ledger has no gap, and no cause shows in the labels: calls that were never logged",
    )


def _less(ledger: Counted, told: Told, evidence: Evidence) -> tuple[str, ...]:
    """The server says less than the ledger."""
    causes = []
    known = ledger.values[told.metric.name] or 0
    if told.metric.name == "llm_requests_total" and ledger.unanswered:
        how = "as many" if known - (told.value or 0) == ledger.unanswered else f"{ledger.unanswered}"
        causes.append(f"{how} requests have no answer: the exporter may count a request when it is answered")
    resets = evidence.resets(told.metric)
    if resets:
        times = "once" if resets == 1 else f"{resets} times"
        causes.append(
            f"the counter fell {times}: a restart of its process began it anew, and what it had counted is lost"
        )
    seen = evidence.last_sample(told.metric)
    if seen is not None and ledger.last_activity is not None and ledger.last_activity - seen > LATE_SECONDS:
        causes.append(
            f"its last sample is of {_instant(seen)}, the session's last event of {_instant(ledger.last_activity)}: "
            "the exporter was gone before the end"
        )
    return tuple(causes) or (
        "a counter that began anew before it was ever scraped, or a last interval that was lost: neither shows in the samples",
    )


def _results(ledger: Counted) -> Comparison:
    """Calls and results of the log, against each other."""
    calls = ledger.values["tool_calls_total"]
    if calls is None or ledger.results is None:
        return Comparison("tool results", ledger.results, None, None)
    waiting = calls - ledger.denied - ledger.results
    if waiting > 0:
        why = f"{waiting} calls have no result: the session ended, or stands, during a tool"
    elif waiting < 0:
        why = f"{-waiting} results more than calls: duplicates or orphans"
    else:
        return Comparison("tool results", ledger.results, None, True)
    return Comparison("tool results", ledger.results, None, False if waiting < 0 else None, (why,))


def _answers(ledger: Counted) -> Comparison:
    """Requests and what came of them: an answer or a failure."""
    requests, failures = ledger.values["llm_requests_total"], ledger.values["llm_failures_total"]
    if requests is None or failures is None or ledger.unanswered is None:
        return Comparison("model answers", None, None, None)
    answers = requests - failures - ledger.unanswered
    if not ledger.unanswered:
        return Comparison("model answers", answers, None, True)
    why = f"{ledger.unanswered} requests have neither answer nor failure: a response that was lost, or is still awaited"
    return Comparison("model answers", answers, None, None, (why,))


def _tools(ledger: Counted | None, by_name: Mapping[str, Told]) -> list[Comparison]:
    """Equality by name of tool, where both sides tell of tools."""
    told = by_name.get("tool_calls_total")
    if ledger is None or told is None or told.value is None:
        return []
    theirs = _sums(told.series, "tool_name")
    if set(theirs) <= {""}:
        return []  # the exporter does not name its tools
    rows = []
    for name in sorted({*ledger.tools, *theirs}):
        ours, other = ledger.tools.get(name, 0), theirs.get(name)
        rows.append(
            Comparison(
                name or "without a name", ours, other, None if other is None and not ours else other == ours
            )
        )
    return rows


def _checks(ledger: Counted | None, by_name: Mapping[str, Told]) -> list[tuple[str, bool | None]]:
    def value(name: str) -> float | None:
        told = by_name.get(name)
        return None if told is None else told.value

    checks = [
        (
            "Prometheus: errors are at most calls",
            _at_most(value("tool_errors_total"), value("tool_calls_total")),
        ),
        (
            "Prometheus: failures are at most requests",
            _at_most(value("llm_failures_total"), value("llm_requests_total")),
        ),
    ]
    if ledger is not None:
        ours = ledger.values
        checks += [
            ("ledger: errors are at most results", _at_most(ours["tool_errors_total"], ledger.results)),
            (
                "ledger: failures are at most requests",
                _at_most(ours["llm_failures_total"], ours["llm_requests_total"]),
            ),
        ]
    return checks


def _at_most(less: float | None, more: float | None) -> bool | None:
    return None if less is None or more is None else less <= more


def _sums(series: Iterable[Series], label: str) -> dict[str, float]:
    sums: dict[str, float] = {}
    for one in series:
        name = one.labels.get(label, "")
        sums[name] = sums.get(name, 0.0) + one.value
    return sums


# --- how it is told ---------------------------------------------------------------------------------------------------------------


def figure(value: float | None) -> str:
    """A figure of Prometheus: an integer as one."""
    if value is None:
        return "no data"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3f}"


def verdict(match: bool | None) -> str:
    """``yes``, ``no``, or that there is nothing to compare."""
    return UNKNOWN if match is None else "yes" if match else "no"


def _instant(seconds: float) -> str:
    return utc_text(int(seconds) * 1_000_000).partition(".")[0] + "Z"


def write_page(out: IO[str], found: Reconciled, session: str, place: str, missing: str | None = None) -> None:
    """The tables and, below each that does not match, why."""
    out.write(f"session     {safe(session)}\nprometheus  {safe(place)}, last samples of {WINDOW_HOURS} h\n")
    if missing is not None:
        out.write(
            f"ledger      {safe(missing)} Its harness may not publish, publish under another id, or be older than its session ids.\n"
        )
    out.write("\n")
    show(out, "counts", ["figure", "ledger>", "prometheus>", "Match?"], list(table(found.rows)))
    for row in found.rows:
        for why in row.why:
            out.write(f"{safe(row.figure)}: {safe(why)}\n")
    if any(row.why for row in found.rows):
        out.write("\n")
    show(out, "by tool", ["tool", "ledger>", "prometheus>", "Match?"], list(table(found.tools)))
    for told in found.told:
        _breakdown(out, told.metric.name, told.series)
    for name, series in found.extra.items():
        _breakdown(out, f"{name}, as asked", series)
    show(
        out,
        "checks",
        ["holds", "what"],
        [["–" if holds is None else "yes" if holds else "NO", what] for what, holds in found.checks],
    )


def table(rows: Iterable[Comparison]) -> Iterable[list[str]]:
    """Cells of a table of comparisons."""
    for row in rows:
        other = UNKNOWN if row.figure in OF_THE_LOG else figure(row.prometheus)
        yield [row.figure, count(row.ledger), other, verdict(row.match)]


def _breakdown(out: IO[str], name: str, series: Sequence[Series]) -> None:
    labels = sorted({label for one in series for label in one.labels})
    show(
        out,
        f"{name} by {', '.join(labels)}" if labels else name,
        [*labels, "value>"],
        [[*(one.labels.get(label) for label in labels), figure(one.value)] for one in series],
    )


def as_json(found: Reconciled, session: SessionRef | None, session_id: str, place: str) -> Row:
    """{tenant, session_id, in_ledger, prometheus, window_hours, rows, tools, checks, metrics}: instants and figures as they are, null is no data."""
    return {
        "tenant": None if session is None else session.tenant,
        "session_id": session_id,
        "in_ledger": session is not None,
        "prometheus": place,
        "window_hours": WINDOW_HOURS,
        "differs": found.differs,
        "rows": [asdict(row) for row in found.rows],
        "tools": [asdict(row) for row in found.tools],
        "checks": [{"check": what, "holds": holds} for what, holds in found.checks],
        "metrics": [
            {
                "name": told.metric.name,
                "original": told.metric.original,
                "value": told.value,
                "series": [{"labels": dict(one.labels), "value": one.value} for one in told.series],
            }
            for told in found.told
        ],
        "asked": {
            name: [{"labels": dict(one.labels), "value": one.value} for one in series]
            for name, series in found.extra.items()
        },
    }


def metric_named(name: str) -> Metric | None:
    """A metric by its Prometheus name or its original one."""
    return next((one for one in METRICS if name in (one.name, one.original)), None)
