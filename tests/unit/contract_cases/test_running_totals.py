"""Contract 8, cumulative counters: baselines, resets, contradictions, threads, copies, calls beside them; rollups compared."""

from __future__ import annotations

from typing import Any

from tests.unit.contract_cases.envelopes import Case, Envelope, done, ev, found, report, running, table, turn

TOTALS = "turns/*/usage/total_input"


def threaded(
    name: str, *events: Envelope, end: str | None = "completed", thread: str = "th"
) -> list[Envelope]:
    """A turn whose start names its thread."""
    start, *rest = turn(name, *events, end=end)
    return [{**start, "payload": {"provider_thread": thread}}, *rest]


def on(thread: str, *given: Any, **more: Any) -> Envelope:
    return running(*given, provider_thread=thread, **more)


def gaps(**counts: int) -> dict[str, int | None]:
    """Exactly these usage gaps."""
    names = (
        "unknown_start",
        "counter_reset",
        "counter_contradiction",
        "open_predecessor",
        "copies_differ",
        "call_total_differs",
    )
    return {f"checks/usage_{name}": counts.get(name) for name in names}


def full(input_: int, output: int, cached: int, reasoning: int) -> dict[str, int]:
    return {"input": input_, "output": output, "cache_read": cached, "reasoning": reasoning}


def thread_total(total: dict[str, int], last: dict[str, int] | None = None, **given: Any) -> Envelope:
    more = {} if last is None else {"last": last}
    return report(
        total, counter_kind="cumulative", provider="openai", model="m", provider_thread="th", **more, **given
    )


@table(
    Case(
        "C4: a decrease without a last begins again at zero and keeps what was seen",
        turn("t", *(running(n) for n in (100, 100, 250, 250, 40, 70))),
        {TOTALS: [320], **gaps(counter_reset=1)},
    ),
    Case(
        "a reset concerns all counters of the report, those that grew, too",
        turn("t", running(100, 10), running(40, 12)),
        {TOTALS: [140], "turns/*/usage/output": [22], **gaps(counter_reset=1)},
    ),
    Case(
        "a decrease with a last equal to the total is a reset",
        turn("t", running(100, start_known=True), running(40, last=40)),
        {TOTALS: [140], **gaps(counter_reset=1)},
    ),
    Case(
        "a last equal in what both give is equal",
        turn("t", running(100, 5), running(40, 6, last={"input": 40})),
        {TOTALS: [140], "turns/*/usage/output": [11], **gaps(counter_reset=1)},
    ),
    Case(
        "a decrease with another last is contradictory: nothing is added, the value stays",
        turn("t", running(100), running(40, last=10), running(110, last=10)),
        {TOTALS: [110], **gaps(counter_contradiction=1)},
    ),
    Case(
        "a contradictory report adds nothing of any counter",
        turn("t", running(100, 10), running(40, 99, last=10), running(110, 20, last=10)),
        {TOTALS: [110], "turns/*/usage/output": [20], **gaps(counter_contradiction=1)},
    ),
    Case(
        "two resets are two",
        turn("t", *(running(n) for n in (10, 5, 8, 2))),
        {TOTALS: [20], **gaps(counter_reset=2)},
    ),
    Case(
        "C11: totals and last of a thread that begins here",
        threaded(
            "t",
            thread_total(full(12, 3, 2, 1), full(12, 3, 2, 1)),
            thread_total(full(20, 5, 2, 1), full(8, 2, 2, 1)),
        ),
        {
            "turns/0/usage/input_uncached": 18,
            "turns/0/usage/cache_read": 2,
            "turns/0/usage/total_input": 20,
            "turns/0/usage/output": 5,
            "turns/0/usage/reasoning": 1,
            "turns/0/usage/reported": 1,
            "turns/0/usage/total": 1,
            "turns/0/grade": "complete",
            **gaps(),
        },
    ),
    Case(
        "C12: a thread first seen late counts its observed suffix",
        threaded("t", thread_total(full(100, 50, 2, 1), full(10, 5, 2, 1))),
        {
            "turns/0/usage/total_input": 10,
            "turns/0/usage/input_uncached": 8,
            "turns/0/usage/output": 5,
            "turns/0/usage/cache_read": 2,
            "turns/0/grade": "partial",
            **gaps(unknown_start=1),
        },
    ),
    Case(
        "one unknown start is one finding, however many reports follow",
        threaded(
            "t",
            thread_total(full(100, 50, 0, 0), full(10, 5, 0, 0)),
            thread_total(full(120, 55, 0, 0), full(20, 5, 0, 0)),
        ),
        {TOTALS: [30], "turns/0/usage/output": 10, **gaps(unknown_start=1)},
    ),
    Case(
        "C13: a later report of an earlier turn moves the baseline of the next",
        [
            *threaded("a", on("th", 20, last=20)),
            *threaded("b", end=None),
            on("th", 30, last=10, turn="a"),
            on("th", 50, last=20, turn="b"),
            ev("turn.completed", turn="b"),
        ],
        {TOTALS: [30, 20], "sessions/0/total_input_tokens": 50, **gaps()},
    ),
    Case(
        "C13b: a contradiction inside a turn, the next turn starts from the value kept",
        [
            *threaded("a", on("th", 20, last=20), on("th", 40, last=20), on("th", 30, last=10)),
            *threaded("b", on("th", 60, last=10)),
        ],
        {TOTALS: [40, 20], **gaps(counter_contradiction=1)},
    ),
    Case(
        "C14: a turn that used the thread without a total leaves the next an unknown start",
        [
            *threaded("a", on("th", 20, last=20)),
            *threaded("b", done({"input": 30, "cache_read": 0}, provider="openai")),
            *threaded("c", on("th", 60, last=10)),
        ],
        {TOTALS: [20, 30, 10], "sessions/0/total_input_tokens": 60, **gaps(unknown_start=1)},
    ),
    Case(
        "where nobody names threads a turn without a report did not use the stream",
        [*turn("a", running(20, last=20)), *turn("b"), *turn("c", running(60, last=10))],
        {TOTALS: [20, None, 40], **gaps()},
    ),
    Case(
        "a turn of another thread leaves this one's value alone",
        [
            *threaded("a", on("th", 20, last=20)),
            *threaded("b", on("other", 5, last=5), thread="other"),
            *threaded("c", on("th", 60, last=10)),
        ],
        {TOTALS: [20, 5, 40], **gaps()},
    ),
    Case(
        "after a turn without its end the value holds, a lower bound",
        [*threaded("a", on("th", 20, last=20), end=None), *threaded("b", on("th", 50, last=30))],
        {TOTALS: [20, 30], "turns/1/grade": "partial", **gaps(open_predecessor=1)},
    ),
    Case(
        "a missed request between two totals is in the rise",
        [*threaded("a", on("th", 20, last=20)), *threaded("b", on("th", 50, last=10))],
        {TOTALS: [20, 30], **gaps()},
    ),
    Case(
        "a turn without start whose total is its last begins here",
        [
            on("th", 12, 3, turn="t", last={"input": 12, "cache_read": 0, "output": 3}),
            ev("turn.completed", turn="t"),
        ],
        {TOTALS: [12], **gaps()},
    ),
    Case(
        "a cached figure never seen leaves the uncached input unknown",
        threaded("t", thread_total({"input": 40, "output": 10}, {"input": 20, "output": 5})),
        {
            TOTALS: [20],
            "turns/0/usage/output": 5,
            "turns/0/usage/input_uncached": None,
            **gaps(unknown_start=1),
        },
    ),
    Case(
        "a first report without a last begins at zero",
        turn("t", running(100)),
        {TOTALS: [100], "turns/0/grade": "complete", **gaps()},
    ),
    Case(
        "an unknown start without a last begins at the report itself",
        turn("t", running(100, start_known=False), running(130)),
        {TOTALS: [30], "turns/0/grade": "partial", **gaps(unknown_start=1)},
    ),
    Case(
        "an unknown start with a last begins at total less last",
        turn("t", running(100, last=10, start_known=False)),
        {TOTALS: [10], **gaps(unknown_start=1)},
    ),
    Case(
        "an unknown start with a last equal to the total is unknown still",
        turn("t", running(10, last=10, start_known=False)),
        {TOTALS: [10], **gaps(unknown_start=1)},
    ),
    Case(
        "total less last is never below zero",
        turn("t", running(5, last=10, start_known=False)),
        {TOTALS: [5], **gaps(unknown_start=1)},
    ),
    Case(
        "a start known by word counts the whole total",
        turn("t", running(100, last=10, start_known=True)),
        {TOTALS: [100], **gaps()},
    ),
    Case(
        "only the first report's word decides",
        turn("t", running(100), running(150, last=10, start_known=False)),
        {TOTALS: [150], **gaps()},
    ),
    Case(
        "a counter first seen later begins at zero when the start is known",
        turn("t", running(10), running(20, 7)),
        {TOTALS: [20], "turns/0/usage/output": 7, **gaps()},
    ),
    Case(
        "a counter first seen later after an unknown start begins at total less last, without a finding of its own",
        turn("t", running(100, start_known=False), running(110, 50, last={"input": 10, "output": 4})),
        {TOTALS: [10], "turns/0/usage/output": 4, **gaps(unknown_start=1)},
    ),
    Case(
        "a report that lacks a counter leaves its value",
        turn("t", running(10, 5), running(20), running(30, 6)),
        {TOTALS: [30], "turns/0/usage/output": 6, **gaps()},
    ),
    Case(
        "an inherited report moves the value; its rise is inherited",
        turn("t", running(100, provenance="inherited"), running(130)),
        {
            TOTALS: [30],
            "turns/0/inherited_usage/total_input": 100,
            "sessions/0/inherited_usage/total_input": 100,
            **gaps(),
        },
    ),
    Case(
        "a new epoch does not restart a counter",
        turn("t", running(20), running(50, epoch=1)),
        {TOTALS: [50], **gaps()},
    ),
    Case(
        "one usage stream from two producers is copies, counted once",
        turn("t", *(running(n, usage_stream="u", producer=p) for n in (20, 50) for p in ("p", "q"))),
        {TOTALS: [50], "turns/0/usage/total": 1, **gaps()},
    ),
    Case(
        "copies that differ: the greatest counts whole, a finding",
        turn("t", running(50, usage_stream="u", producer="p"), running(40, usage_stream="u", producer="q")),
        {TOTALS: [50], **gaps(copies_differ=1)},
    ),
    Case(
        "two usage streams add up",
        turn("t", running(20, usage_stream="u"), running(5, usage_stream="v"), running(30, usage_stream="u")),
        {TOTALS: [35], "turns/0/usage/total": 2, "turns/0/usage/reported": 2, **gaps()},
    ),
    Case(
        "without a name the thread names the usage stream",
        turn("t", on("x", 20), on("y", 5), on("x", 30, producer="p")),
        {TOTALS: [35], "turns/0/usage/total": 2},
    ),
    Case(
        "a contribution is of one provider and model",
        turn("t", running(20, model="one"), running(50, model="two")),
        {
            TOTALS: [50],
            "ai_usage/*/model": ["one", "two"],
            "ai_usage/*/total_input_tokens": [20, 30],
            "turns/0/usage/total": 2,
        },
    ),
    Case(
        "a contribution is converted by its last report's convention",
        turn("t", running(20), running(50, token_convention="exclusive")),
        {"turns/0/usage/input_uncached": 50, "turns/0/usage/total_input": 50},
    ),
    Case(
        "raw counters rise, then are converted",
        turn(
            "t",
            report({"input": 10, "cache_read": 8}, counter_kind="cumulative", provider="openai", model="m"),
            report({"input": 30, "cache_read": 9}, counter_kind="cumulative", provider="openai", model="m"),
        ),
        {"turns/0/usage/input_uncached": 21, "turns/0/usage/cache_read": 9, TOTALS: [30]},
    ),
    Case(
        "a contribution falls whole into its last report's hour",
        turn(
            "t",
            running(20, at="2026-05-04T10:59:00Z"),
            running(50, at="2026-05-04T11:01:00Z"),
            running(50, at="2026-05-04T12:01:00Z", last=0),
        ),
        {"usage_hourly/*/hour": ["2026-05-04T12:00:00.000000Z"], "usage_hourly/*/total_input_tokens": [50]},
    ),
    Case(
        "a contradictory report makes no contribution: it moves no hour",
        turn("t", running(20, at="2026-05-04T10:59:00Z"), running(10, last=3, at="2026-05-04T11:01:00Z")),
        {"usage_hourly/*/hour": ["2026-05-04T10:00:00.000000Z"]},
    ),
    Case(
        "C26: calls inside a contribution explain a part of it",
        turn(
            "t",
            running(500, 40),
            done({"input": 300, "output": 25, "cache_read": 0}, call="1", provider="openai"),
            done({"input": 180, "output": 15, "cache_read": 0}, call="2", provider="openai"),
        ),
        {
            TOTALS: [500],
            "turns/0/usage/output": 40,
            "turns/0/unattributed/total_input": 20,
            "turns/0/usage/total": 1,
            "turns/0/usage/reported": 1,
            "turns/0/round_trips": 2,
            **gaps(call_total_differs=1),
        },
    ),
    Case(
        "calls greater than the contribution stand whole",
        turn(
            "t",
            running(500, 40),
            done({"input": 520, "output": 40, "cache_read": 0}, call="1", provider="openai"),
        ),
        {TOTALS: [520], "turns/0/unattributed": None, "turns/0/usage/total": 1, **gaps(call_total_differs=1)},
    ),
    Case(
        "the greater by the sum of total input and output, not by each",
        turn(
            "t",
            running(500, 40),
            done({"input": 530, "output": 5, "cache_read": 0}, call="1", provider="openai"),
        ),
        {TOTALS: [500], "turns/0/usage/output": 40, **gaps(call_total_differs=1)},
    ),
    Case(
        "equal figures: no finding, nothing unattributed, one part",
        turn(
            "t",
            running(500, 40),
            done({"input": 500, "output": 40, "cache_read": 0}, call="1", provider="openai"),
        ),
        {TOTALS: [500], "turns/0/usage/total": 1, **gaps()},
    ),
    Case(
        "calls of another provider lie beside the contribution",
        turn("t", running(500, 40), done({"input": 100, "output": 5, "cache_read": 0}, call="1")),
        {TOTALS: [600], "turns/0/usage/output": 45, "turns/0/usage/total": 2, **gaps()},
    ),
    Case(
        "calls without figures are covered by the contribution",
        turn("t", running(500, 40), done(None, call="1", provider="openai")),
        {TOTALS: [500], "turns/0/usage/total": 1, "turns/0/usage/reported": 1, "checks/null_tokens": None},
    ),
    Case(
        "reports outside turns are as one turn",
        [
            running(500, 40),
            done({"input": 300, "output": 25, "cache_read": 0}, call="1", provider="openai"),
            running(600, 50),
        ],
        {
            "sessions/0/total_input_tokens": 600,
            "sessions/0/output_tokens": 50,
            "sessions/0/usage_total": 1,
            **gaps(call_total_differs=1),
        },
    ),
    Case(
        "gauges of a running total: the greatest, a smaller one is no gap",
        turn(
            "t", running(20, peak_input=12, context_window=100), running(30, peak_input=8, context_window=90)
        ),
        {"turns/0/context/tokens": 12, "turns/0/context/window": 100, **gaps()},
    ),
    Case(
        "a rollup is never added, a difference is a finding",
        turn(
            "t",
            done({"input": 10, "output": 5, "cache_read": 0}),
            report({"input": 99}, counter_kind="rollup", provider="anthropic"),
        ),
        {
            TOTALS: [10],
            "turns/0/usage/total": 1,
            "checks/usage_rollup_differs": 1,
            "turns/0/grade": "complete",
        },
    ),
    Case(
        "a rollup that agrees in what it says is no finding",
        turn(
            "t",
            done({"input": 10, "output": 5, "cache_read": 0}),
            report({"input": 10}, counter_kind="rollup", provider="anthropic"),
        ),
        {"checks/usage_rollup_differs": None},
    ),
    Case(
        "a rollup is compared after conversion",
        turn(
            "t",
            done({"input": 10, "output": 5, "cache_read": 2}),
            report({"input": 12, "cache_read": 2, "output": 5}, counter_kind="rollup", provider="openai"),
        ),
        {"checks/usage_rollup_differs": None},
    ),
    Case(
        "a rollup that names a call is compared with it alone",
        turn(
            "t",
            done({"input": 10, "output": 5, "cache_read": 0}, call="1"),
            done({"input": 7, "output": 5, "cache_read": 0}, call="2"),
            report({"output": 10}, call="1", counter_kind="rollup", provider="anthropic"),
        ),
        {"checks/usage_rollup_differs": 1},
    ),
    Case(
        "a rollup of a turn is compared with the turn",
        [
            *turn(
                "a",
                done({"output": 5}, call="1"),
                done({"output": 6}, call="2"),
                report({"output": 11}, counter_kind="rollup", provider="anthropic"),
            ),
            *turn("b", done({"output": 5}, call="1")),
        ],
        {"checks/usage_rollup_differs": None},
    ),
    Case(
        "a rollup outside turns is the session's",
        [
            *turn("a", done({"output": 5}, call="1")),
            *turn("b", done({"output": 6}, call="1")),
            report({"output": 11}, counter_kind="rollup", provider="anthropic", producer="p"),
        ],
        {"checks/usage_rollup_differs": None, "sessions/0/output_tokens": 11},
    ),
)
def test_running_totals(case: Case) -> None:
    assert found(case) == case.expected
