"""The debug report: its sections in order, a root cause that quotes its evidence, advice only where a rule backs it (C.4, C.5)."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from tests.unit.contract_cases.envelopes import Envelope, done, ev, numbered, turn
from turnledger.contract.event import Event
from turnledger.contract.reader import read
from turnledger.doctor.diagnosis import Case, diagnose, recommendations
from turnledger.doctor.findings import Finding, Reason
from turnledger.doctor.outcomes import Calls, Tools, Turns
from turnledger.doctor.prometheus import METRICS, Series, Told
from turnledger.doctor.reconcile import Counted, Evidence, reconcile
from turnledger.doctor.report import folded, markdown, report
from turnledger.doctor.witness import HEAD, TAIL, Witness
from turnledger.fold.document import document
from turnledger.fold.order import ordered
from turnledger.pricing import packaged, price_call
from turnledger.store.read import SessionRef

FOUND = SessionRef(1, "default", "s")
PRICE = partial(price_call, packaged())


def case_of(*events: Envelope, **given: Any) -> Case:
    """What the ledger would know of a session of these events."""
    lines = [json.dumps(event).encode() for event in numbered(list(events))]
    folded = document(lines, PRICE)
    turns = [
        {
            "turn_key": record["turn_key"],
            "status": record["status"],
            "stop_why": record["stop"]["why"],
            "duration_ms": record.get("duration_ms"),
            "record": record,
        }
        for record in folded["turns"]
    ]
    witness = Witness()
    read_events = [read(line) for line in lines]
    for event in ordered(one for one in read_events if isinstance(one, Event)):
        witness.read(event, 0 if event.type in ("message.recorded", "model_call.completed") else None)
    witness.end()
    session: dict[str, Any] = next(iter(folded["sessions"]), {})
    of_turns = Turns.of(turns)
    return Case(
        session,
        of_turns,
        Tools.of(folded["tool_calls"], of_turns),
        Calls.of(folded["model_calls"]),
        folded["gaps"],
        witness,
        **given,
    )


def asked(tool: str, name: str = "bash") -> Envelope:
    return ev("tool_call.requested", tool=tool, tool_name=name)


def answered(tool: str, status: str = "ok", **given: Any) -> Envelope:
    return ev("tool_call.completed", tool=tool, status=status, **given)


ENDED = ev("session.ended", status="stopped", exit_code=0)
WRITES_NOTHING = turn(
    "t",
    ev("message.recorded", role="user", text="Write the report"),
    asked("1"),
    answered("1", "error", error_message="ENOENT: notes.txt"),
    asked("2", "read"),
    answered("2"),
    ev("fs.changed", action="created", path="/srv/other.md"),
    done({"input": 4, "output": 30, "cache_read": 0}, call="1", text="All done.", latency_ms=1500),
    ev("artifact.checked", path="out/report.md", expected=True, present=False),
)


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        (
            [*WRITES_NOTHING, ENDED],
            "The session stopped in turn t (completed): the assistant answered in text and asked for no tool (“All done.”); "
            "the last event is session.ended stopped 0. "
            "The last thing that went wrong before it: tool bash failed with “ENOENT: notes.txt” (turn t, 2026-05-04T10:00:03Z), "
            "and work went on after it. "
            "What never happened: out/report.md was not written: no change of it was seen. "
            "The session ended as stopped, exit code 0. The ledger is complete.",
        ),
        (
            [*turn("t", asked("1", "write_file"), end=None), ev("session.ended", status="crashed", exit_code=-9)],
            "The session stopped in turn t (abandoned): tool write_file was asked for and never answered; "
            "the last event is session.ended crashed -9. "
            "Nothing failed before it: no tool error, denial, guard block or failed model call is in the ledger. "
            "What never happened: no result of tool write_file, asked for at 2026-05-04T10:00:01Z; no end of turn t. "
            "The session ended as crashed, exit code -9. The ledger's grade is partial: see the findings.",
        ),
        (
            turn(
                "t",
                ev("model_call.failed", call="1", provider="openai", model="m", error_class="auth", status_code=401, message="bad key"),
                end="failed",
            ),
            "The session stopped in turn t (failed): its turn failed with “auth 401 bad key”; the last event is turn.completed failed. "
            "The last thing that went wrong before it: a model call to m failed with “auth 401 bad key” (turn t, 2026-05-04T10:00:01Z). "
            "What never happened: no end of the session: it is running, or its end was never told. The ledger is complete.",
        ),
        (
            turn("t", ev("limit.reached", limit="iterations", value=40, threshold=40)),
            "The session stopped in turn t (completed): limit iterations was reached (40 of 40); the last event is turn.completed completed. "
            "Nothing failed before it: no tool error, denial, guard block or failed model call is in the ledger. "
            "What never happened: no end of the session: it is running, or its end was never told. The ledger is complete.",
        ),
        (
            [ev("turn.started", turn="t"), ev("note", turn="t", seq=4)],
            "The session stands in turn t (open): the ledger does not tell why; the last event is note. "
            "Nothing failed before it: no tool error, denial, guard block or failed model call is in the ledger. "
            "Not all of it is here: harness/ledger lacks the numbers 1 to 3, and what happened there is not known.",
        ),
        ([], "The ledger holds no events of this session, so that nothing can be said of it."),
    ],
    ids=["wrote nothing", "died in a tool", "the model refused", "a limit", "events are missing", "no events"],
)  # fmt: skip
def test_the_root_cause_is_one_paragraph_of_evidence(events: list[Envelope], cause: str) -> None:
    assert diagnose(case_of(*events)).root_cause == cause


def test_t1_01_seven_lines_stopped_with_a_text() -> None:
    case = case_of(
        ev("message.recorded", role="user", text="Write it"),
        asked("1"),
        answered("1"),
        asked("2", "write_file"),
        answered("2"),
        ev("message.recorded", role="assistant", text="Written."),
        ev("message.recorded", role="assistant", text="Done."),
    )
    made = report(FOUND, case)
    assert [line["type"] for line in made["timeline"]["shown"]] == [
        "USER",
        "TOOL",
        "RES",
        "TOOL",
        "RES",
        "ASST",
        "ASST",
    ]
    assert made["timeline"]["shown"][-1]["detail"] == "tool_calls=0 “Done.”"
    assert {row["figure"]: row["ledger"] for row in made["reconciliation"]}["tool_calls_total"] == 2
    assert (case.tools.count, case.tools.waiting.count) == (2, 0)
    assert "asked for no tool (“Done.”)" in made["diagnosis"]["root_cause"]


def test_the_sections_stand_in_their_order_and_na_stands_where_nothing_is_known() -> None:
    text = markdown(report(FOUND, case_of(*turn("t"))))
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads == [
        "# Debug report: s",
        "## Event Timeline",
        "## Prometheus Summary",
        "## Reconciliation",
        "## Diagnosis",
        "### What worked",
        "### What failed or stopped",
        "### What never happened",
        "### Root cause",
        "## Validation",
        "## Recommendations",
        "## Skill Execution Verdict",
    ]
    assert "N/A: no Prometheus server was named: --prometheus URL asks one" in text
    assert "| output written | N/A |" in text
    assert "| TPS/duration available | in part (1.0 s in 1 of 1 turns) |" in text
    assert "| metric/log mismatch | N/A |" in text
    assert "| report written | N/A |" in text
    assert "| instruction-following issues | N/A |" in text
    assert "None: no rule applies to what is in the ledger." in text


def test_validation_and_verdict_quote_the_evidence() -> None:
    made = report(FOUND, case_of(*WRITES_NOTHING, ENDED))
    assert made["validation"] == [
        ("output written", "no (out/report.md)"),
        ("session completed", "yes (stopped, exit code 0)"),
        ("tool errors", "1"),
        ("guard blocks", "0"),
        ("TPS/duration available", "yes (20.0 output tokens/s over 1 of 1 calls; 9.0 s in 1 of 1 turns)"),
        ("metric/log mismatch", "N/A"),
    ]
    assert made["verdict"][1] == ("report written", "no (out/report.md)")
    assert made["verdict"][5] == ("instruction-following issues", "expected and not written: out/report.md")
    assert made["diagnosis"]["worked"] == [
        "1 of 1 turns ended as completed",
        "1 of 1 model calls were answered",
        "1 of 2 tool calls succeeded (read 1)",
    ]
    assert made["diagnosis"]["failed"] == [
        "tool bash failed: “ENOENT: notes.txt” (turn t, 2026-05-04T10:00:03Z)",
        "out/report.md was expected and not there",
    ]


def test_a_file_that_was_written_and_is_there_is_output() -> None:
    case = case_of(*turn("t", ev("artifact.checked", path="out/report.md", expected=True, present=True)))
    made = report(FOUND, case)
    assert made["validation"][0] == ("output written", "yes (out/report.md)")
    assert made["verdict"][5] == ("instruction-following issues", "none seen")


def test_advice_names_its_rule() -> None:
    finding = Finding("open_gap", "error", 1, [])
    quiet = Finding("unknown_event_type", "info", 1, [])
    case = case_of(
        *turn(
            "t",
            asked("1"),
            ev("tool_call.denied", tool="1", by="guard", reason="outside"),
            ev("limit.reached", limit="time", value=61, threshold=60),
            *(ev("model_call.failed", call=str(n), provider="p", error_class="rate_limit") for n in range(3)),
        ),
        reasons=[(finding, Reason("why", "look at the spool")), (quiet, Reason("why", "read on"))],
    )
    assert list(recommendations(case)) == [
        (
            "Tell the agent what it may not do, or allow it: 1 call denied by guard: outside.",
            "tool_call.denied",
        ),
        ("Raise the limit, or give the task in smaller parts: time was reached (61 of 60).", "limit.reached"),
        (
            "Slow down or ask for a higher rate: 3 model calls refused for the rate.",
            "model_call.failed rate_limit",
        ),
        ("Look at the spool.", "open_gap"),
    ]


def test_a_session_does_not_stop_at_what_tells_of_its_record() -> None:
    body = ev("body.recorded", for_event_id="e", source="net", direction="request", original_bytes=0)
    case = case_of(*turn("t"), body, ev("stream.closed", last_seq=3))
    assert "the last event is turn.completed completed." in diagnose(case).root_cause
    assert report(FOUND, case)["header"]["total_events"] == 4


def test_a_vacuumed_session_is_not_said_to_have_had_no_events() -> None:
    case = Case({"detail": "vacuumed"}, Turns(), Tools(None), Calls(), [], Witness())
    assert diagnose(case).root_cause == (
        "The events of this session were let go of by a vacuum: its sums stand, and what happened in it is not known any more."
    )


def test_a_file_that_was_not_to_be_is_no_output_and_its_absence_no_fault() -> None:
    def checked(present: bool) -> Case:
        return case_of(*turn("t", ev("artifact.checked", path="core.dump", expected=False, present=present)))

    absent = report(FOUND, checked(False))
    assert absent["diagnosis"]["failed"] == []
    assert not any("core.dump" in sentence for sentence in absent["diagnosis"]["never_happened"])
    assert absent["validation"][0] == ("output written", "N/A")
    assert absent["verdict"][5] == ("instruction-following issues", "none seen")
    assert absent["recommendations"] == []
    there = report(FOUND, checked(True))
    assert there["diagnosis"]["failed"] == ["core.dump was there and was not to be"]
    assert there["validation"][0] == ("output written", "N/A")
    assert there["verdict"][5] == ("instruction-following issues", "there and not to be: core.dump")


def test_many_of_a_kind_are_counted_exactly_and_listed_in_part() -> None:
    denied = [
        one
        for n in range(60)
        for one in (asked(f"d{n}"), ev("tool_call.denied", tool=f"d{n}", by="policy", reason="no network"))
    ]
    waiting = [asked(f"w{n}") for n in range(70)]
    case = case_of(*turn("t", *denied, *waiting, end=None))
    assert (
        "Tell the agent what it may not do, or allow it: 60 calls denied by policy: no network.",
        "tool_call.denied",
    ) in list(recommendations(case))
    said = diagnose(case)
    assert len(said.never_happened) == 51
    assert said.never_happened[-1] == "… and 20 more; `turnledger sessions check` has all"
    assert "; no result of tool bash, asked for at 2026-05-04T10:02:05Z, and 65 more." in said.root_cause


def test_of_many_turns_that_failed_the_first_are_told_and_the_rest_counted() -> None:
    failing = [one for n in range(25) for one in turn(f"t{n}", end="failed")]
    failed = diagnose(case_of(*failing)).failed
    assert failed[:2] == ["turn t0 failed", "turn t1 failed"]
    assert failed[20:] == ["… and 5 more turns"]


def test_without_a_server_the_log_is_laid_against_itself() -> None:
    values = dict.fromkeys((one.name for one in METRICS), 0)
    values |= {"tool_calls_total": 3, "llm_requests_total": 4, "llm_failures_total": 1}
    counts = Counted(values=values, results=1, tools={"bash": 3}, unanswered=1)
    rows = report(FOUND, case_of(*turn("t"), counts=counts))["reconciliation"]
    assert [(row["figure"], row["ledger"], row["match"], row["why"]) for row in rows] == [
        ("tool_calls_total", 3, None, []),
        ("tool results", 1, None, ["2 calls have no result: the session ended, or stands, during a tool"]),
        ("tool_errors_total", 0, None, []),
        ("guard_blocks_total", 0, None, []),
        ("guard_coercions_total", 0, None, []),
        ("llm_requests_total", 4, None, []),
        ("llm_failures_total", 1, None, []),
        (
            "model answers",
            2,
            None,
            ["1 requests have neither answer nor failure: a response that was lost, or is still awaited"],
        ),
    ]


def test_a_mismatch_is_told_with_its_reason_and_no_total() -> None:
    told = [Told(one, None) for one in METRICS]
    told[0] = Told(METRICS[0], 4.0, (Series({"job": "a"}, 2.0), Series({"job": "b"}, 2.0)))
    values = dict.fromkeys((one.name for one in METRICS), 0) | {"tool_calls_total": 2}
    ledger = Counted(values=values, results=2, tools={})
    found = reconcile(ledger, told, Evidence(lambda _: 0, lambda _: None, lambda _: 0, lambda _: 0))
    made = report(FOUND, case_of(*turn("t"), reconciled=found))
    assert dict(made["validation"])["metric/log mismatch"] == (
        "yes (tool_calls_total: 2 jobs export this session, and each says 2: a 2, b 2)"
    )
    assert dict(made["verdict"])["mismatch"] == "yes"
    text = markdown(made)
    assert "| tool_calls_total | 2 | 4 | no | 2 jobs export this session" in text
    assert "| llm_failures_total | no data |" in text
    assert "Scrape a session by one job: tool_calls_total is exported by several. (reconcile)" in text


def test_a_server_that_is_away_leaves_the_rest_of_the_report() -> None:
    text = markdown(report(FOUND, case_of(*turn("t")), "the server at http://p does not answer"))
    assert "N/A: the server at http://p does not answer" in text
    assert "| metric/log mismatch | N/A (the server at http://p does not answer) |" in text


def test_a_long_timeline_keeps_its_beginning_and_its_end() -> None:
    told = [ev("message.recorded", role="user", text=f"m{n}") for n in range(HEAD + TAIL + 50)]
    made = report(FOUND, case_of(*told))
    numbers = [line["n"] for line in made["timeline"]["shown"]]
    assert numbers == [*range(HEAD), *range(HEAD + 50, HEAD + TAIL + 50)]
    assert "| … |  | 50 lines between; \\`turnledger sessions timeline\\` has them |" in markdown(made)


HOSTILE = "\x1b[2J <script>alert(1)</script> | ![x](javascript:1) `rm` \u202e sk-ant-" + "a" * 40


def test_text_of_the_ledger_is_no_markup_no_control_and_no_secret() -> None:
    case = case_of(
        ev("session.started", name=HOSTILE, agent=HOSTILE),
        *turn(
            HOSTILE,
            ev("message.recorded", role="user", text=HOSTILE),
            asked("1", HOSTILE),
            answered("1", "error", error_message=HOSTILE),
            ev("artifact.checked", path=HOSTILE, expected=True, present=False),
        ),
    )
    text = markdown(report(FOUND, case))
    assert all(one.isprintable() or one == "\n" for one in text)
    assert "<script" not in text
    assert "sk-ant-a" not in text
    for line in text.splitlines():
        plain = line.replace("\\|", "").replace("\\[", "")
        assert "![x]" not in plain and "[x]" not in plain
        if line.startswith("|"):
            assert plain.count("|") in (3, 4, 6), line


def test_on_a_terminal_lines_are_folded_at_words() -> None:
    text = markdown(report(FOUND, case_of(*WRITES_NOTHING, ENDED)))
    shown = folded(text, 60)
    assert max(map(len, shown.splitlines())) <= 60
    assert shown.split() == text.split()
    assert "\n- tool bash failed: “ENOENT: notes.txt” (turn t,\n  2026-05-04T10:00:03Z)\n" in shown
