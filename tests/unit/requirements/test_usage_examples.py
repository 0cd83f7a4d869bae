"""Worked examples of usage (requirements A.14, A.15, A.17, A.18) on our own event types, each under its number.

The source reads two kinds of evidence. Its *native* counter is a running total of a provider thread: here a `cumulative` report that names
the thread. Its *recorder* keeps running totals of a stream of its own: here a `cumulative` report with its `usage_stream`, or, where it
sums up what the thread already says, a `rollup`. Where the contract decides otherwise than the source, the row says the difference.
"""

from __future__ import annotations

from typing import Any

from tests.unit.contract_cases.envelopes import Case, Envelope, done, ev, found, report, table, turn

TOTALS = "turns/*/usage/total_input"
USAGE = "turns/0/usage"
GAPS = (
    "unknown_start",
    "counter_reset",
    "counter_contradiction",
    "open_predecessor",
    "copies_differ",
    "call_total_differs",
    "rollup_differs",
)


def gaps(**counts: int) -> dict[str, int | None]:
    """Exactly these usage findings."""
    return {f"checks/usage_{name}": counts.get(name) for name in GAPS}


def figures(**known: int) -> dict[str, int | None]:
    """The first turn's usage: these figures, and nothing else known."""
    names = (
        "input_uncached",
        "cache_read",
        "cache_write_5m",
        "cache_write_1h",
        "cache_write_other",
        "output",
        "reasoning",
        "total_input",
        "reported",
        "total",
    )
    return {f"{USAGE}/{name}": known.get(name) for name in names}


def counters(input_: int, output: int | None = None, *more: int) -> dict[str, int]:
    """input/output (cached, reasoning) as the source writes them."""
    names = ("input", "output", "cache_read", "reasoning")
    return {
        name: value for name, value in zip(names, (input_, output, *more), strict=False) if value is not None
    }


def native(total: dict[str, int], last: dict[str, int] | None = None, **given: Any) -> Envelope:
    """The thread's total so far, and its latest request."""
    more = {} if last is None else {"last": last, "peak_input": last["input"]}
    given.setdefault("provider_thread", "th")
    return report(total, counter_kind="cumulative", provider="openai", model="m", **more, **given)


def recorder(usage: dict[str, int], stream: str = "recorder", **given: Any) -> Envelope:
    """A running total of the recorder's own stream, whose input leaves the cache out."""
    return report(
        usage,
        counter_kind="cumulative",
        usage_stream=stream,
        start_known=True,
        token_convention="exclusive",
        provider="openai",
        model="m",
        producer="recorder",
        **given,
    )


def summed(usage: dict[str, int], **given: Any) -> Envelope:
    """What the recorder says of a turn whose thread is already counted: a sum of other reports."""
    return report(
        usage,
        counter_kind="rollup",
        token_convention="exclusive",
        provider="openai",
        model="m",
        producer="recorder",
        **given,
    )


def threaded(
    name: str, *events: Envelope, end: str | None = "completed", thread: str = "th"
) -> list[Envelope]:
    start, *rest = turn(name, *events, end=end)
    return [{**start, "payload": {"provider_thread": thread}}, *rest]


W1 = (
    native(counters(12, 3, 2, 1), counters(12, 3, 2, 1)),
    native(counters(20, 5, 2, 1), counters(8, 2, 0, 0)),
)
W1_FIGURES = {"input_uncached": 18, "cache_read": 2, "output": 5, "reasoning": 1, "total_input": 20}
W6 = native(counters(100, 50, 2, 1), counters(10, 5, 2, 1))
DECREASE = tuple(native({"input": total}, {"input": last}) for total, last in ((20, 20), (40, 20), (30, 10)))


@table(
    Case(
        "W-1: totals 12/3 (2,1) and 20/5 (2,1) of a thread that begins here (source: one gap, for a peak that fell; a gauge has none)",
        threaded("t", *W1),
        {
            **figures(**W1_FIGURES, reported=1, total=1),
            "turns/0/context/tokens": 12,
            "turns/0/cost_micro_usd": None,
            "turns/0/grade": "complete",
            **gaps(),
        },
    ),
    Case(
        "W-2: the recorder's final sum of that turn agrees (source: it replaces the thread's figures and loses total, cache and reasoning)",
        threaded("t", *W1, summed(counters(18, 5), final=True, reported_cost_usd=0.2)),
        {**figures(**W1_FIGURES, reported=1, total=1), "turns/0/grade": "complete", **gaps()},
    ),
    Case(
        "W-2: a final sum that is another is a finding, and adds nothing",
        threaded("t", *W1, summed(counters(19, 5), final=True)),
        {**figures(**W1_FIGURES, reported=1, total=1), **gaps(rollup_differs=1)},
    ),
    Case(
        "W-2: the recorder as a copy of the thread's counter: the greater counts whole, and that they differ is said",
        threaded("t", *W1, recorder(counters(18, 5), stream="th", final=True)),
        {**figures(**W1_FIGURES, reported=1, total=1), **gaps(copies_differ=1)},
    ),
    Case(
        "W-3: not final, nothing changes (source: three gaps, since the thread's figures go on after the recorder's)",
        threaded("t", *W1, summed(counters(18, 5))),
        {**figures(**W1_FIGURES, reported=1, total=1), **gaps()},
    ),
    Case(
        "W-4: a recorder that never saw the thread sums the turn up: compared (source: the thread's figures are dropped, an evidence gap)",
        threaded("t", *W1, ev("attempt.started", attempt_id="1", provider="openai"), summed(counters(18, 5))),
        {**figures(**W1_FIGURES, reported=1, total=1), **gaps()},
    ),
    Case(
        "W-5: a recorder of another thread is another counter: a turn's label makes no two counters one",
        threaded("t", *W1, recorder(counters(18, 5), provider_thread="other", final=True)),
        {
            **figures(
                input_uncached=36, cache_read=2, output=10, reasoning=1, total_input=20, reported=2, total=2
            ),
            **gaps(),
        },
    ),
    Case(
        "W-6: a thread first seen at 100/50 with a last of 10/5 counts its last request, a lower bound",
        threaded("partial", W6),
        {
            **figures(
                input_uncached=8, cache_read=2, output=5, reasoning=1, total_input=10, reported=1, total=1
            ),
            "turns/0/grade": "partial",
            **gaps(unknown_start=1),
        },
    ),
    Case(
        "W-7: totals 20, 40, 30 with last 20, 20, 10: 40 kept, 50 in all (source: four gaps, two of them for one fall)",
        [
            *threaded("partial", W6),
            *threaded(
                "decrease",
                *(e | {"payload": e["payload"] | {"provider_thread": "b"}} for e in DECREASE),
                thread="b",
            ),
        ],
        {
            TOTALS: [10, 40],
            "sessions/0/total_input_tokens": 50,
            **gaps(unknown_start=1, counter_contradiction=1),
        },
    ),
    Case(
        "W-7: on one thread whose turn was left open, a last equal to the total also says that the counter began again",
        [*threaded("partial", W6, end=None), *threaded("decrease", *DECREASE)],
        {
            TOTALS: [10, 40],
            "sessions/0/total_input_tokens": 50,
            **gaps(unknown_start=1, open_predecessor=1, counter_reset=1, counter_contradiction=1),
        },
    ),
    Case(
        "W-8: the next turn starts from 40, not from 30 nor from 60 − 10",
        [
            *threaded("partial", W6, end=None),
            *threaded("decrease", *DECREASE),
            *threaded("next", native({"input": 60}, {"input": 10})),
        ],
        {
            TOTALS: [10, 40, 20],
            "sessions/0/total_input_tokens": 70,
            **gaps(unknown_start=1, open_predecessor=1, counter_reset=1, counter_contradiction=1),
        },
    ),
    Case(
        "W-9: a turn that used the thread in silence gives no baseline, and an older turn may not stand in",
        [
            *threaded("a", native({"input": 20}, {"input": 20})),
            *threaded("b", recorder({"input": 30, "cache_read": 0}, final=True)),
            *threaded("c", native({"input": 60}, {"input": 10})),
        ],
        {
            TOTALS: [20, 30, 10],
            "sessions/0/total_input_tokens": 60,
            "sessions/0/usage_reported": 3,
            "sessions/0/usage_total": 3,
            **gaps(unknown_start=1),
        },
    ),
    Case(
        "W-9b: the same without a recorder",
        [
            *threaded("a", native({"input": 20}, {"input": 20})),
            *threaded("b"),
            *threaded("c", native({"input": 60}, {"input": 10})),
        ],
        {
            TOTALS: [20, None, 10],
            "sessions/0/total_input_tokens": 30,
            "sessions/0/usage_reported": 2,
            "sessions/0/usage_total": 2,
            **gaps(unknown_start=1),
        },
    ),
    Case(
        "W-10: no start, total and last 12/3 (source: one gap; a last equal to the total is a known start, the turn's own start is missing)",
        [
            native(counters(12, 3, 0, 0), counters(12, 3, 0, 0), turn="t"),
            ev("turn.completed", turn="t"),
        ],
        {
            **figures(
                input_uncached=12, cache_read=0, output=3, reasoning=0, total_input=12, reported=1, total=1
            ),
            "checks/turn_without_start": 1,
            "turns/0/grade": "partial",
            **gaps(),
        },
    ),
    Case(
        "W-11: a total of 40 without a last, first of the session, starts at zero (source: all null, one gap)",
        threaded("t", native({"input": 40})),
        {**figures(total_input=40, reported=1, total=1), "turns/0/grade": "complete", **gaps()},
    ),
    Case(
        "W-11: the same from a format whose counters outlive the session: nothing of it was observed here",
        threaded("t", native({"input": 40}, start_known=False)),
        {**figures(total_input=0, reported=1, total=1), "turns/0/grade": "partial", **gaps(unknown_start=1)},
    ),
    Case(
        "W-12: a's 30 arrives after b began: b counts from 30 (source: from what had arrived, 60 in all)",
        [
            *threaded("a", native({"input": 20}, {"input": 20})),
            *threaded("b", end=None),
            native({"input": 30}, {"input": 10}, turn="a"),
            native({"input": 50}, {"input": 20}, turn="b"),
            ev("turn.completed", turn="b"),
        ],
        {TOTALS: [30, 20], "sessions/0/total_input_tokens": 50, **gaps()},
    ),
    Case(
        "W-13: a is left open at 20: b's 50 adds 30, a lower bound, one gap",
        [
            *threaded("a", native({"input": 20}, {"input": 20}), end=None),
            *threaded("b", native({"input": 50}, {"input": 30})),
        ],
        {
            TOTALS: [20, 30],
            "sessions/0/total_input_tokens": 50,
            "turns/1/grade": "partial",
            **gaps(open_predecessor=1),
        },
    ),
    Case(
        "W-14: a missed request between 20 and 50 is in the rise, no gap",
        [
            *threaded("a", native({"input": 20}, {"input": 20})),
            *threaded("b", native({"input": 50}, {"input": 10})),
        ],
        {TOTALS: [20, 30], "sessions/0/total_input_tokens": 50, **gaps()},
    ),
    Case(
        "W-15: 16065/5 (9600,0) in a window of 272000",
        threaded(
            "t", native(counters(16065, 5, 9600, 0), counters(16065, 5, 9600, 0), context_window=272000)
        ),
        {
            **figures(
                input_uncached=6465,
                cache_read=9600,
                output=5,
                reasoning=0,
                total_input=16065,
                reported=1,
                total=1,
            ),
            "turns/0/context": {"tokens": 16065, "window": 272000, "used_ppm": 59062},
            **gaps(),
        },
    ),
    Case(
        "W-16: a recorder alone, two attempts: 15 and 12 in, 4 and 3 out; the cost alone is no report (source: one of two is final)",
        turn(
            "t",
            recorder({"input": 10, "cache_read": 0}, "attempt-1"),
            recorder({"input": 15, "output": 4, "cache_read": 0}, "attempt-1"),
            recorder({"input": 12, "output": 3, "cache_read": 0}, "attempt-2"),
            recorder({}, "attempt-2", final=True, reported_cost_usd=0.25),
        ),
        {
            **figures(input_uncached=27, cache_read=0, output=7, total_input=27, reported=2, total=2),
            "turns/0/grade": "complete",
            **gaps(),
        },
    ),
    Case(
        "W-17: no start, 40/10 with last 20/5, cache never told: the uncached input is unknown",
        [native(counters(40, 10), counters(20, 5), turn="t"), ev("turn.completed", turn="t")],
        {
            **figures(total_input=20, output=5, reported=1, total=1),
            "checks/turn_without_start": 1,
            **gaps(unknown_start=1),
        },
    ),
    Case(
        "W-18: one unknown start is one gap, however many reports follow (source: one a report)",
        threaded("t", native(counters(100, 50), counters(10, 5)), native(counters(120, 55), counters(20, 5))),
        {**figures(total_input=30, output=10, reported=1, total=1), **gaps(unknown_start=1)},
    ),
)
def test_a_worked_example_of_usage(case: Case) -> None:
    assert found(case) == case.expected


@table(
    Case(
        "A.15 Codex: the input holds what the cache served and kept",
        turn(
            "t",
            done(
                {"input": 100, "cache_read": 25, "cache_write": 2, "output": 7},
                provider="openai",
                token_convention="inclusive",
            ),
        ),
        figures(
            input_uncached=73,
            cache_read=25,
            cache_write_other=2,
            output=7,
            total_input=100,
            reported=1,
            total=1,
        ),
    ),
    Case(
        "A.15 a Claude result: input, cache read and cache creation are summed",
        turn("t", done({"input": 100, "cache_read": 25, "cache_write": 2, "output": 7})),
        figures(
            input_uncached=100,
            cache_read=25,
            cache_write_other=2,
            output=7,
            total_input=127,
            reported=1,
            total=1,
        ),
    ),
    Case(
        "A.15 an OpenCode message: input, read and write are summed",
        turn(
            "t",
            done(
                {"input": 100, "cache_read": 25, "cache_write": 2, "output": 7},
                provider="opencode",
                token_convention="exclusive",
            ),
        ),
        figures(
            input_uncached=100,
            cache_read=25,
            cache_write_other=2,
            output=7,
            total_input=127,
            reported=1,
            total=1,
        ),
    ),
    Case(
        "A.15 a recorder's 100, 25 read and 2 written are 127 (source: 125, the write is left out)",
        turn("t", recorder({"input": 100, "cache_read": 25, "cache_write": 2, "total": 125})),
        figures(input_uncached=100, cache_read=25, cache_write_other=2, total_input=127, reported=1, total=1),
    ),
    Case(
        "A.15 null if a needed part is unknown",
        turn("t", done({"input": 100, "cache_write": 2, "output": 7})),
        figures(input_uncached=100, cache_write_other=2, output=7, reported=1, total=1),
    ),
)
def test_a_convention_of_cache_tokens(case: Case) -> None:
    assert found(case) == case.expected


@table(
    Case(
        "L-4: two equal totals at two places are two events and add once (source: one row)",
        threaded("t", W1[0], W1[0]),
        {
            "records": {"read": 4, "accepted": 4, "duplicates": 0, "conflicts": 0, "dead": 0},
            TOTALS: [12],
            **gaps(),
        },
    ),
    Case(
        "Q-7: two equal samples of what one request cost are two calls: their places tell them apart",
        turn("t", done({"input": 4, "cache_read": 0}), done({"input": 4, "cache_read": 0})),
        {TOTALS: [8], "sessions/0/model_call_count": 2},
    ),
    Case(
        "Q-1: a peak and a window that fall are no gap; the greatest counts",
        threaded(
            "t",
            native(counters(12, 3), counters(12, 3), context_window=1000),
            native(counters(20, 5), counters(8, 2), context_window=900),
        ),
        {"turns/0/context": {"tokens": 12, "window": 1000, "used_ppm": 12000}, **gaps()},
    ),
    Case(
        "Q-3: two reports of one call: each counter from the best that has it",
        turn(
            "t",
            report(
                {"input": 20, "cache_read": 2, "reasoning": 1},
                provider="openai",
                message_id="m1",
                source="event",
            ),
            report(
                {"input": 20, "output": 5}, provider="openai", message_id="m1", source="response", final=True
            ),
        ),
        figures(input_uncached=18, cache_read=2, output=5, reasoning=1, total_input=20, reported=1, total=1),
    ),
    Case(
        "Q-4: a sum says how many of its parts reported",
        turn("t", done({"input": 5, "cache_read": 0}, call="1"), done(call="2")),
        {
            f"{USAGE}/input_uncached": 5,
            f"{USAGE}/reported": 1,
            f"{USAGE}/total": 2,
            "turns/0/grade": "partial",
        },
    ),
    Case(
        "Q-8: instants keep their six digits, the record its text",
        [{**ev("turn.started", turn="t"), "occurred_at": "2026-10-01T00:20:00.5+02:00"}],
        {"turns/0/started_at": "2026-09-30T22:20:00.500000Z"},
    ),
    Case(
        "Q-10: the turn before counts also where a new input was captured in between",
        [
            *threaded("a", native({"input": 20}, {"input": 20})),
            ev("capture.recorded", capture_id="two", content_sha256="00", bytes=1),
            *threaded("b", native({"input": 50}, {"input": 30})),
        ],
        {TOTALS: [20, 30], **gaps()},
    ),
)
def test_a_quirk_of_the_source_is_not_ours(case: Case) -> None:
    assert found(case) == case.expected


@table(
    Case(
        "T3-02: without a usage report no figure is known and nothing is missing",
        [
            ev("capture.recorded", capture_id="c", content_sha256="00", bytes=1),
            ev("attempt.started", attempt_id="1", provider="openai"),
            ev("attempt.started", attempt_id="2", provider="openai"),
        ],
        {
            "sessions/0/total_input_tokens": None,
            "sessions/0/usage_reported": 0,
            "sessions/0/usage_total": 0,
            **gaps(),
        },
    ),
    Case(
        "T3-03: a usage report between a long text and what nobody can read counts; all three stay in the ledger",
        [
            ev("message.recorded", turn="t", role="assistant", text="x" * 81920),
            recorder({"input": 12, "cache_read": 0}, turn="t"),
            ev("unparsed", turn="t", unparsed=1),
        ],
        {TOTALS: [12], "records/accepted": 3, "checks/unknown_event_type": 1},
    ),
    Case(
        "T3-06a: two turns without start, each 12/3 and completed: each keeps its own figures",
        [
            event
            for name in ("old", "recent")
            for event in (
                native(counters(12, 3, 0, 0), counters(12, 3, 0, 0), turn=name, provider_thread=name),
                ev("turn.completed", turn=name),
            )
        ],
        {
            TOTALS: [12, 12],
            "turns/*/turn_key": ["old", "recent"],
            "turns/*/started_at": [None, None],
            "turns/*/status": ["completed", "completed"],
            "checks/turn_without_start": 2,
            **gaps(),
        },
    ),
    Case(
        "T3-09a: input and driver are replaced between the two totals of one turn: W-1's figures",
        [
            *threaded("t", W1[0], end=None),
            ev("capture.recorded", capture_id="two", content_sha256="00", bytes=1),
            ev("driver.claimed", generation=2, exec=2),
            {**W1[1], "turn_id": "t"},
            ev("turn.completed", turn="t"),
        ],
        {**figures(**W1_FIGURES, reported=1, total=1), **gaps()},
    ),
    Case(
        "T3-09c: a report of a turn whose start was never seen stands in that turn",
        [*threaded("t", *W1), native({"input": 5}, {"input": 5}, turn="unknown", provider_thread="u")],
        {
            "turns/*/turn_key": ["t", "unknown"],
            TOTALS: [20, 5],
            "turns/1/status": "open",
            "turns/1/started_at": None,
            "checks/turn_without_start": 1,
        },
    ),
    Case(
        "T3-10: W-9 with the silent turn's figures from its one call",
        [
            *threaded("a", native({"input": 20}, {"input": 20})),
            *threaded("b", report({"input": 30}, provider="openai", model="m", final=True)),
            *threaded("c", native({"input": 60}, {"input": 10})),
        ],
        {TOTALS: [20, 30, 10], "sessions/0/total_input_tokens": 60, **gaps(unknown_start=1)},
    ),
    Case(
        "T3-11e: a report after another driver took over counts in the turn it names",
        [
            *threaded("later", end=None),
            ev("driver.exited", generation=1, outcome="replaced"),
            ev("driver.claimed", generation=2, exec=2),
            native({"input": 7}, {"input": 7}, turn="later"),
            native({"input": 9}, {"input": 9}, turn="unobserved", provider_thread="u"),
        ],
        {"turns/*/turn_key": ["later", "unobserved"], TOTALS: [7, 9]},
    ),
    Case(
        "T3-43: a recorder that settles makes no report final: its figures stay what they were",
        turn(
            "t",
            report({"input": 10}, provider="openai", model="m"),
            ev("recorder.settled", outcome="completed"),
        ),
        {TOTALS: [10], "model_calls/*/status": ["started"], "turns/0/status": "completed"},
    ),
    Case(
        "T3-44: a retry is a counter of its own: 10/4 and 12/5 both count",
        turn(
            "t",
            recorder({"input": 10, "output": 4, "cache_read": 0}, "attempt-1"),
            recorder({"input": 12, "output": 5, "cache_read": 0}, "attempt-2"),
        ),
        figures(input_uncached=22, cache_read=0, output=9, total_input=22, reported=2, total=2),
    ),
    Case(
        "T3-45: a report of the output alone leaves the input that was told; a new turn's stream knows no output",
        [
            *turn("a", recorder({"input": 10, "cache_read": 0}, "1"), recorder({"output": 4}, "1")),
            *turn("b", recorder({"input": 3, "cache_read": 0}, "2")),
        ],
        {TOTALS: [10, 3], "turns/*/usage/output": [4, None], "turns/*/usage/reported": [1, 1], **gaps()},
    ),
    Case(
        "T3-46: W-16 over two turns: what one attempt told counts in its turn",
        [
            *turn("a", recorder({"input": 15, "output": 4, "cache_read": 0}, "attempt-1")),
            *turn("b", recorder({"input": 12, "output": 3, "cache_read": 0}, "attempt-2")),
        ],
        {TOTALS: [15, 12], "sessions/0/total_input_tokens": 27, "sessions/0/output_tokens": 7, **gaps()},
    ),
)
def test_a_behaviour_of_the_source_about_usage(case: Case) -> None:
    assert found(case) == case.expected
