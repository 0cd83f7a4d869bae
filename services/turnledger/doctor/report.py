"""The debug report of one session: every section in its fixed order, as data and as Markdown. ``N/A`` stands where nothing is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import Any

import psycopg

from turnledger.contract.shapes import hide
from turnledger.doctor.conversation import ASST, CODES, USER, Line
from turnledger.doctor.diagnosis import (
    Case,
    completed,
    diagnose,
    instruction_issues,
    mismatch,
    output_written,
    recommendations,
    reports,
    speed,
)
from turnledger.doctor.evidence import LOOKED_AT, load_evidence
from turnledger.doctor.findings import LEVELS, Finding
from turnledger.doctor.line import begin, one_line
from turnledger.doctor.outcomes import Calls, Tools, Turns
from turnledger.doctor.reconcile import (
    FIGURES,
    OF_THE_LOG,
    Comparison,
    Reconciled,
    counted,
    figure,
    of_the_log,
    verdict,
)
from turnledger.doctor.rows import streamed, told
from turnledger.doctor.sessions import one_snapshot
from turnledger.doctor.tables import UNKNOWN
from turnledger.doctor.timeline import SPEAKS, Asked
from turnledger.doctor.why import explain
from turnledger.doctor.witness import Witness
from turnledger.store.named import query
from turnledger.store.read import SessionRef, active_slot, of_slot
from turnledger.store.story import emitted, story

Row = dict[str, Any]

UNASKED = "no Prometheus server was named: --prometheus URL asks one"
DETAIL = 200
"""Characters of a line of the timeline."""


def load_case(connection: psycopg.Connection[Any], found: SessionRef) -> Case:
    """What the ledger knows of a session. ``connection`` is in no transaction, and in autocommit.

    Events and rows are read a page at a time: memory does not grow with the session.
    """
    key = {"tenant": found.tenant, "session_id": found.session_id}
    number = {"session_no": found.session_no}
    with one_snapshot(connection):
        slot = active_slot(connection)
        session = next(iter(told(connection, query("read/session_rollup"), key)), None)
        turns = Turns.of(streamed(connection, of_slot("story/outcomes_of_turns", slot), number))
        tools = Tools.of(streamed(connection, of_slot("story/outcomes_of_tools", slot), number), turns)
        calls = Calls.of(streamed(connection, of_slot("story/outcomes_of_calls", slot), number))
        quoted = {**key, "turn_keys": [turn["turn_key"] for turn in turns.kept()]}
        turns.put_records(
            {row["turn_key"]: row["record"] for row in told(connection, query("story/records"), quoted)}
        )
        gaps = told(connection, query("story/open_gaps"), key)
        stored = [
            Finding(row["check"], row["severity"], row["count"], row["rows"])
            for row in told(connection, query("story/findings"), {**key, "rows": LOOKED_AT})
        ]
        stored.sort(key=lambda one: LEVELS.index(one.severity))
        evidence = load_evidence(connection, slot, found, stored)
    reasons = [(one, explain(one, evidence)) for one in stored]
    witness = Witness()
    for page in story(connection, found.session_no):
        speaking = (one for one in page if one.type in SPEAKS)
        asked = Asked(emitted(connection, slot, found.session_no, speaking))
        for event in page:
            witness.read(event, asked.by(event) if event.type in SPEAKS else None)
    witness.end()
    # The rollup worker may not have seen the session yet.
    counts = None if session is None else counted(connection, found)
    return Case(session or {}, turns, tools, calls, gaps, witness, reasons, counts)


# --- the sections -----------------------------------------------------------------------------------------------------------------


def report(found: SessionRef, case: Case, why_no_metrics: str | None = None) -> Row:
    """All sections in order: {header, timeline, prometheus, reconciliation, diagnosis, validation, recommendations, verdict}."""
    witness, said = case.witness, diagnose(case)
    artifacts = list(witness.artifacts.values())
    errors, blocks = (
        _count(case, "tool_errors", witness.tool_errors.count),
        _count(case, "guard_blocks", witness.blocks.count),
    )
    differs = mismatch(case.reconciled)
    if case.reconciled is None and why_no_metrics is not None:
        differs = f"N/A ({why_no_metrics})"
    ended = completed(case)
    return {
        "header": {
            "session": found.session_id,
            "tenant": found.tenant,
            "name": case.session.get("name"),
            "agent": case.session.get("agent"),
            "skills": witness.skills,
            "date": case.session.get("created_at"),
            "last_activity": case.session.get("last_activity_at"),
            "log": [_stream(*key, *seen) for key, seen in sorted(witness.streams.items())],
            "total_events": witness.events,
            "grade": case.session.get("grade"),
        },
        "timeline": {
            "lines": witness.lines,
            "shown": [_timeline_row(number, line) for number, line in (*witness.head, *witness.tail)],
        },
        "prometheus": _metrics(case.reconciled, why_no_metrics),
        "reconciliation": _reconciliation(case),
        "diagnosis": {
            "worked": said.worked,
            "failed": said.failed,
            "never_happened": said.never_happened,
            "root_cause": said.root_cause,
            "outcomes": witness.outcomes,
            "claimed_events": witness.claimed,
        },
        "validation": [
            ("output written", output_written(artifacts)),
            ("session completed", ended),
            ("tool errors", errors),
            ("guard blocks", blocks),
            ("TPS/duration available", speed(case)),
            ("metric/log mismatch", differs),
        ],
        "recommendations": [{"advice": advice, "rule": rule} for advice, rule in recommendations(case)],
        "verdict": [
            ("session completed", ended),
            ("report written", output_written(reports(artifacts))),
            ("tool errors", errors),
            ("guard blocks", blocks),
            ("mismatch", differs.partition(" (")[0]),
            ("instruction-following issues", instruction_issues(case)),
        ],
    }


def _count(case: Case, column: str, seen: int) -> str:
    """A sum of the ledger; what the events tell while there is no sum yet."""
    known = case.session.get(column)
    return str(seen if known is None else known)


def _stream(producer: str, epoch: int, stream: str, least: int, greatest: int, unnumbered: int) -> str:
    numbers = [] if greatest < 0 else [f"{least}–{greatest}"]
    numbers += [f"{unnumbered} without a number"] if unnumbered else []
    return f"{producer}/{epoch}/{stream}: {', '.join(numbers)}"


def _timeline_row(number: int, line: Line) -> Row:
    words = line.text
    if line.code == ASST:
        words = f"tool_calls={UNKNOWN if line.tool_calls is None else line.tool_calls}" + (
            f" “{words}”" if words else ""
        )
    elif line.code == USER:
        words = f"“{words or ''}”"
    elif line.code in CODES:
        words = " ".join(filter(None, (line.name or UNKNOWN, words)))
    return {"n": number, "type": line.code, "detail": begin(hide(words[:100_000]), DETAIL) if words else ""}


def _metrics(found: Reconciled | None, why: str | None) -> Row:
    if found is None:
        return {"asked": False, "why": why or UNASKED, "metrics": []}
    return {
        "asked": True,
        "why": None,
        "metrics": [{"name": one.metric.name, "value": one.value} for one in found.told],
    }


def _reconciliation(case: Case) -> list[Row]:
    """The rows of the comparison; without a server the ledger's side alone."""
    if case.reconciled is not None:
        rows = case.reconciled.rows
    elif case.counts is not None:
        rows = of_the_log(case.counts)
    else:
        rows = [
            Comparison(metric, case.session.get(column), None, None) for metric, column in FIGURES.items()
        ]
    return [
        {
            "figure": row.figure,
            "ledger": row.ledger,
            "prometheus": row.prometheus,
            "match": row.match,
            "why": list(row.why),
        }
        for row in rows
    ]


# --- Markdown ---------------------------------------------------------------------------------------------------------------------


def markdown(made: Row) -> str:
    """The report as Markdown: no text of the ledger becomes markup, control or secret."""
    return hide("\n".join(_pages(made)) + "\n")


def folded(text: str, columns: int) -> str:
    """A report for a terminal of that width: lines are folded at words. Markdown reads it as the same, but for rows of tables."""
    lines: list[str] = []
    for line in text.splitlines():
        hang = "  " if line.startswith(("- ", "|")) else ""
        lines += wrap(
            line, columns, subsequent_indent=hang, break_on_hyphens=False, break_long_words=False
        ) or [""]
    return "\n".join(lines) + "\n"


def _pages(made: Row) -> Iterator[str]:
    header = made["header"]
    yield f"# Debug report: {_text(header['session'])}"
    yield ""
    yield f"- Session: {_text(header['tenant'])}/{_text(header['session'])}" + (
        f" ({_text(header['name'])})" if header["name"] else ""
    )
    yield f"- Agent: {_or_na(header['agent'])}" + (
        f"; skill: {', '.join(map(_text, header['skills']))}" if header["skills"] else ""
    )
    yield f"- Date: {_or_na(_second(header['date']))}, last activity {_or_na(_second(header['last_activity']))}"
    yield f"- Log: {'; '.join(map(_text, header['log'])) or 'N/A'}"
    yield f"- Total events: {header['total_events']:,}; grade: {_or_na(header['grade'])}"
    yield ""
    yield "## Event Timeline"
    yield ""
    yield from _timeline(made["timeline"])
    yield "## Prometheus Summary"
    yield ""
    metrics = made["prometheus"]
    if not metrics["asked"]:
        yield f"N/A: {_text(metrics['why'])}"
    else:
        yield from _table(
            ("metric", "value"), ((one["name"], figure(one["value"])) for one in metrics["metrics"])
        )
    yield ""
    yield "## Reconciliation"
    yield ""
    asked = metrics["asked"]
    yield from _table(
        ("figure", "ledger", "Prometheus", "Match?", "why"),
        (
            (
                row["figure"],
                "N/A" if row["ledger"] is None else f"{row['ledger']:,}",
                "–" if row["figure"] in OF_THE_LOG else figure(row["prometheus"]) if asked else "N/A",
                verdict(row["match"]) if asked or row["match"] is not None else "N/A",
                "; ".join(row["why"]),
            )
            for row in made["reconciliation"]
        ),
    )
    yield ""
    yield from _diagnosis(made["diagnosis"])
    yield "## Validation"
    yield ""
    yield from _table(("check", "result"), made["validation"])
    yield ""
    yield "## Recommendations"
    yield ""
    if not made["recommendations"]:
        yield "None: no rule applies to what is in the ledger."
    for one in made["recommendations"]:
        yield f"- {_text(one['advice'])} ({_text(one['rule'])})"
    yield ""
    yield "## Skill Execution Verdict"
    yield ""
    yield from _table(("question", "answer"), made["verdict"])


def _timeline(timeline: Row) -> Iterator[str]:
    shown = timeline["shown"]
    if not shown:
        yield "N/A: nothing was said, or the harness does not tell it."
        yield ""
        return
    rows: list[tuple[str, str, str]] = []
    before = -1
    for one in shown:
        if one["n"] != before + 1:
            rows.append(
                ("…", "", f"{one['n'] - before - 1:,} lines between; `turnledger sessions timeline` has them")
            )
        rows.append((str(one["n"]), one["type"], one["detail"]))
        before = one["n"]
    yield from _table(("#", "type", "detail"), rows)
    yield ""


def _diagnosis(diagnosis: Row) -> Iterator[str]:
    yield "## Diagnosis"
    yield ""
    for title, name in (
        ("What worked", "worked"),
        ("What failed or stopped", "failed"),
        ("What never happened", "never_happened"),
    ):
        yield f"### {title}"
        yield ""
        if not diagnosis[name]:
            yield "Nothing that the ledger shows."
        for sentence in diagnosis[name]:
            yield f"- {_text(sentence)}"
        yield ""
    if diagnosis["outcomes"]:
        yield "### Outcomes, each by itself"
        yield ""
        for kind, fields in diagnosis["outcomes"].items():
            said = ", ".join(
                f"{name} {one_line(value)}" for name, value in fields.items() if value is not None
            )
            yield f"- {_text(kind)}: {_text(said) or 'N/A'}"
        yield ""
    if diagnosis["claimed_events"]:
        yield f"{diagnosis['claimed_events']} events are claims of the agent that nobody watched."
        yield ""
    yield "### Root cause"
    yield ""
    yield _text(diagnosis["root_cause"])
    yield ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(_text(cell) for cell in row)} |"


def _text(value: object) -> str:
    """Text on one line that is no markup of Markdown or HTML."""
    line = one_line(value)
    for mark, instead in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        ("\\", "\\\\"),
        ("|", "\\|"),
        ("`", "\\`"),
        ("[", "\\["),
        ("*", "\\*"),
    ):
        line = line.replace(mark, instead)
    return line


def _or_na(value: str | None) -> str:
    return "N/A" if value is None else _text(value)


def _second(instant: str | None) -> str | None:
    return None if instant is None else instant.partition(".")[0].replace("T", " ") + "Z"
