"""Contract 8, 10, 12: cases in which two rules speak at once."""

from __future__ import annotations

from typing import Any

from tests.unit.contract_cases.envelopes import Case, Envelope, done, ev, found, report, running, table, turn

SOME = {"input": 10, "output": 5, "cache_read": 0}
OUTPUTS = "model_calls/*/output_tokens"
IDS = "model_calls/*/model_call_id"
TOTALS = "turns/*/usage/total_input"
OWNERS = "model_calls/*/owner_session_id"
PAIRING = "tool_calls/*/pairing"
START = "2026-05-04T10:%02d:00Z"


def started(**given: Any) -> Envelope:
    return ev("model_call.started", **{"provider": "anthropic", "model": "m", **given})


def on(thread: str, *given: Any, **more: Any) -> Envelope:
    return running(*given, provider_thread=thread, **more)


def threaded(name: str, *events: Envelope, end: str | None = "completed") -> list[Envelope]:
    start, *rest = turn(name, *events, end=end)
    return [{**start, "payload": {"provider_thread": "th"}}, *rest]


def said(n: int, message: str | None = None, call: str | None = None, **given: Any) -> Envelope:
    ids = {**({} if message is None else {"message_id": message}), **({} if call is None else {"call": call})}
    return done({"input": n, "output": given.pop("output", 1), "cache_read": 0}, **ids, **given)


def forked(s: str, parent: str, at_seq: int | None = None, **given: Any) -> Envelope:
    return ev(
        "session.forked",
        s=s,
        parent_session_id=parent,
        **({} if at_seq is None else {"at_seq": at_seq}),
        **given,
    )


def asked(tool: str | None = None, name: str = "bash", **given: Any) -> Envelope:
    return ev("tool_call.requested", tool_name=name, **({} if tool is None else {"tool": tool}), **given)


def ended(tool: str | None = None, status: str = "ok", **given: Any) -> Envelope:
    return ev("tool_call.completed", status=status, **({} if tool is None else {"tool": tool}), **given)


def mcp(method: str = "tools/call", direction: str = "request", **given: Any) -> Envelope:
    return ev("mcp.observed", method=method, direction=direction, **{"server_name": "srv", **given})


CALLS = table(
    Case(
        "ids chain: a message, its request, that request's model_call_id",
        turn(
            "t",
            done(SOME, message_id="a", request_id="r", producer="p"),
            report({"output": 1}, request_id="r", call="1"),
            started(call="1"),
        ),
        {OUTPUTS: [5], IDS: ["1"]},
    ),
    Case(
        "one message_id and model_call_id in two turns is one call, of the first turn",
        [*turn("a", done(SOME, call="1", message_id="x")), *turn("b", done(SOME, call="1", message_id="x"))],
        {OUTPUTS: [5], "model_calls/*/turn_key": ["a"], "checks/message_id_reused": None, TOTALS: [10, None]},
    ),
    Case(
        "a message_id that one stream reuses over turns is no identity",
        [*turn("a", done(SOME, call="1", message_id="x")), *turn("b", done(SOME, call="2", message_id="x"))],
        {OUTPUTS: [5, 5], "model_calls/*/turn_key": ["a", "b"], "checks/message_id_reused": 1},
    ),
    Case(
        "a message_id is reused by its text, whoever the providers are",
        turn(
            "t", done(SOME, call="1", message_id="x"), done(SOME, call="2", message_id="x", provider="openai")
        ),
        {OUTPUTS: [5, 5], "checks/message_id_reused": 1},
    ),
    Case(
        "a snapshot without ids and a completion without ids are of the start's call",
        turn(
            "t",
            started(),
            report({"output": 3, "cache_read": 7}, counter_kind="snapshot", provider="anthropic"),
            done({"input": 1, "output": 5}),
        ),
        {OUTPUTS: [5], "model_calls/*/cache_read_tokens": [7], "checks/usage_snapshot_without_call": None},
    ),
    Case(
        "a start outside turns is paired in its stream",
        [started(call="1"), done(SOME)],
        {OUTPUTS: [5], IDS: ["1"], "sessions/0/total_input_tokens": 10},
    ),
    Case(
        "a completion after the turn's end belongs to its start",
        [*turn("t", started(call="1")), done(SOME, turn="t")],
        {OUTPUTS: [5], IDS: ["1"]},
    ),
    Case(
        "an open call of an earlier turn takes the snapshot without ids",
        [
            *turn("a", started(call="1")),
            *turn("b", report({"output": 7}, counter_kind="snapshot", provider="anthropic")),
        ],
        {IDS: ["1"], OUTPUTS: [7], "model_calls/*/turn_key": ["a"]},
    ),
    Case(
        "a start of another provider takes no completion: the provider is no id",
        turn("t", started(call="1", provider="openai"), done(SOME)),
        {IDS: ["1"], "model_calls/*/provider": ["anthropic"]},
    ),
    Case(
        "a failure with figures and then a completion without: the figures stand",
        turn(
            "t",
            ev("model_call.failed", call="1", provider="anthropic", error_class="cut", usage=SOME),
            done({}, call="1"),
        ),
        {OUTPUTS: [5], "model_calls/*/status": ["completed"]},
    ),
    Case(
        "a retried call that fails for good counts its attempts",
        turn(
            "t",
            ev("model_call.retried", call="1", attempt=3),
            ev("model_call.failed", call="1", provider="anthropic", model="m", error_class="timeout"),
            done(SOME, call="2"),
        ),
        {"model_calls/*/retries": [3, 1]},
    ),
    Case(
        "failures of another provider break the row of failures",
        turn(
            "t",
            *(
                ev("model_call.failed", call=c, provider=p, model="m", error_class="timeout")
                for c, p in (("1", "anthropic"), ("2", "openai"))
            ),
            done(SOME, call="3"),
        ),
        {"model_calls/*/retries": [0, 0, 0]},
    ),
    Case(
        "an unknown convention's report fills none of a known one",
        turn(
            "t",
            report({"cache_read": 4}, call="1", provider="acme", counter_kind="snapshot"),
            done({"input": 1, "output": 1}, call="1"),
        ),
        {"model_calls/*/cache_read_tokens": [None]},
    ),
)


@CALLS
def test_calls(case: Case) -> None:
    assert found(case) == case.expected


TOTAL_CASES = table(
    Case(
        "a report of its own that names the thread uses it: the next start is unknown",
        [
            *turn("a", on("th", 20, last=20)),
            *turn("b", done({"input": 30, "cache_read": 0}, provider="openai", provider_thread="th")),
            *turn("c", on("th", 60, last=10)),
        ],
        {TOTALS: [20, 30, 10], "checks/usage_unknown_start": 1},
    ),
    Case(
        "a thread that an earlier turn used unseen starts unknown",
        [*threaded("a"), *threaded("b", on("th", 50))],
        {TOTALS: [None, 0], "turns/1/grade": "partial", "checks/usage_unknown_start": 1},
    ),
    Case(
        "and at total less last where that is given, even equal",
        [*threaded("a"), *threaded("b", on("th", 50, last=50))],
        {TOTALS: [None, 50], "checks/usage_unknown_start": 1},
    ),
    Case(
        "a reset over a turn's border",
        [*threaded("a", on("th", 100)), *threaded("b", on("th", 30))],
        {TOTALS: [100, 30], "checks/usage_counter_reset": 1},
    ),
    Case(
        "an open predecessor is one finding, of the turn after it alone",
        [*threaded("a", on("th", 20), end=None), *threaded("b", on("th", 50)), *threaded("c", on("th", 60))],
        {
            TOTALS: [20, 30, 10],
            "checks/usage_open_predecessor": 1,
            "turns/*/grade": ["partial", "partial", "complete"],
        },
    ),
    Case(
        "copies: the one that missed samples agrees in the end",
        turn(
            "t",
            *(running(n, usage_stream="u", producer="p") for n in (20, 50)),
            running(50, usage_stream="u", producer="q"),
        ),
        {TOTALS: [50], "checks/usage_copies_differ": None, "turns/0/usage/total": 1},
    ),
    Case(
        "copies over two turns add nothing",
        [
            *turn("a", *(running(20, usage_stream="u", producer=p) for p in "pq")),
            *turn("b", *(running(50, usage_stream="u", producer=p) for p in "pq")),
        ],
        {TOTALS: [20, 30], "checks/usage_copies_differ": None},
    ),
    Case(
        "two streams of a provider cover its calls together",
        turn(
            "t",
            running(100, 1, usage_stream="u"),
            running(50, 1, usage_stream="v"),
            done({"input": 150, "output": 2, "cache_read": 0}, call="1", provider="openai"),
        ),
        {TOTALS: [150], "turns/0/usage/total": 2, "checks/usage_call_total_differs": None},
    ),
    Case(
        "a failed call's reported figures lie inside, too",
        turn(
            "t",
            running(100, 1),
            ev(
                "model_call.failed",
                call="1",
                provider="openai",
                error_class="cut",
                usage={"input": 100, "output": 1, "cache_read": 0},
            ),
        ),
        {TOTALS: [100], "turns/0/usage/total": 1, "checks/usage_call_total_differs": None},
    ),
    Case(
        "nothing known of the calls is least",
        turn("t", running(0, 0), done(None, call="1", provider="openai")),
        {TOTALS: [0], "turns/0/usage/reported": 1, "turns/0/usage/total": 1},
    ),
    Case(
        "a report outside turns takes its own place among the turns",
        [*turn("a", on("th", 20)), on("th", 50), *turn("b", on("th", 60))],
        {TOTALS: [20, 10], "sessions/0/total_input_tokens": 60, "checks/usage_unknown_start": None},
    ),
    Case(
        "an inherited report at the start of a fork's thread is the baseline",
        [
            *turn("a", on("th", 100, provenance="inherited"), provenance="inherited"),
            *turn("b", on("th", 130)),
        ],
        {
            TOTALS: [None, 30],
            "sessions/0/total_input_tokens": 30,
            "sessions/0/inherited_usage/total_input": 100,
            "sessions/0/turn_count": 1,
        },
    ),
    Case(
        "turns are taken in the order of their starts, not of their reports",
        [
            ev("turn.started", turn="a"),
            ev("turn.started", turn="b", producer="p"),
            running(50, usage_stream="u", turn="b", producer="p"),
            running(20, usage_stream="u", turn="a"),
            ev("turn.completed", turn="a"),
            ev("turn.completed", turn="b", producer="p"),
        ],
        {TOTALS: [20, 30]},
    ),
    Case(
        "unattributed figures stand beside calls of two models",
        turn(
            "t",
            running(500, 40),
            done({"input": 300, "output": 30, "cache_read": 0}, call="1", provider="openai", model="x"),
            done({"input": 100, "output": 10, "cache_read": 0}, call="2", provider="openai", model="y"),
        ),
        {TOTALS: [500], "turns/0/unattributed/total_input": 100, "turns/0/unattributed/output": 0},
    ),
)


@TOTAL_CASES
def test_running_totals_in_turns(case: Case) -> None:
    assert found(case) == case.expected


OWNER_CASES = table(
    Case(
        "a call that began before the fork and ended after it is the parent's",
        [
            *turn("t", started(call="1"), ev("x"), said(10, call="1"), s="p"),
            forked("f", "p", 1),
            *turn("t", said(10, call="1"), s="f"),
        ],
        {OWNERS: ["p", "p"]},
    ),
    Case(
        "a grandchild's copy may differ in output",
        [
            *turn("t", said(10, "a"), s="p"),
            forked("f", "p"),
            forked("g", "f"),
            *turn("t", said(10, "a", output=7), s="g"),
        ],
        {OWNERS: ["p", "p"]},
    ),
    Case(
        "siblings' copies may not",
        [
            forked("f", "p"),
            forked("g", "p"),
            *turn("t", said(10, "a"), s="f"),
            *turn("t", said(10, "a", output=7), s="g"),
        ],
        {OWNERS: ["f", "g"]},
    ),
    Case(
        "a fork of a fork: the chain of copies is one call, the eldest owns",
        [
            *turn("t", said(10, call="1"), s="p"),
            forked("f", "p", 9),
            *turn("t", said(10, call="1"), s="f"),
            forked("g", "f", 9),
            *turn("t", said(10, call="1"), s="g"),
        ],
        {OWNERS: ["p", "p", "p"]},
    ),
    Case(
        "a session that is its own parent is a cycle",
        [*turn("t", said(10, "a", parent="s"))],
        {OWNERS: ["s"], "checks/fork_cycle": 1},
    ),
    Case(
        "a cycle of three is void, an edge into it from outside holds",
        [
            *turn("t", said(10, "a", parent="b"), s="a"),
            *turn("t", said(10, "a", parent="c"), s="b"),
            *turn("t", said(10, "a", parent="a"), s="c"),
            *turn("t", said(10, "a", output=2, parent="a"), s="d"),
        ],
        {OWNERS: ["a", "a", "a", "a"]},
    ),
    Case(
        "a copied eval session stays its own where live owns",
        [
            *turn("t", said(10, "a"), s="e", kind="eval", run="r"),
            *turn("t", said(10, "a", parent="e"), s="l"),
        ],
        {OWNERS: ["l", "l"], "sessions/session_id=l/total_input_tokens": [10]},
    ),
    Case(
        "two resumed copies and no source: one owns, a finding for nobody",
        [
            *turn("t", said(10, "a", provenance="inherited"), s="a"),
            *turn("t", said(10, "a", provenance="inherited"), s="b"),
        ],
        {OWNERS: ["a", "a"], "sessions/*/total_input_tokens": [10, None]},
    ),
    Case(
        "inherited calls leave the hour, the provider's and the session's sums",
        [*turn("t", said(10, "a"), s="a"), *turn("t", said(10, "a"), s="b")],
        {
            "usage_hourly/*/calls": [1],
            "usage_hourly/*/sessions": [1],
            "ai_usage/*/call_count": [1],
            "ai_usage/*/session_id": ["a"],
            "sessions/*/usage_total": [1, 0],
        },
    ),
    Case(
        "a model's name of a later report joins copies: the best completion's is compared",
        [
            *turn("t", started(call="1", model="asked"), said(10, "a", call="1"), s="a"),
            *turn("t", said(10, "a"), s="b"),
        ],
        {OWNERS: ["a", "a"]},
    ),
)


@OWNER_CASES
def test_owners(case: Case) -> None:
    assert found(case) == case.expected


TOOL_CASES = table(
    Case(
        "a late result is not pending: the turn was answered",
        [*turn("t", asked("x"), ev("answer.finalized", text="a", exact=True)), ended("x", turn="t")],
        {PAIRING: ["late_result"], "turns/0/stop/why": "answered", "turns/0/grade": "complete"},
    ),
    Case(
        "a denied tool call is not pending",
        turn(
            "t",
            asked("x"),
            ev("tool_call.denied", tool="x", by="user"),
            ev("answer.finalized", text="a", exact=True),
        ),
        {"turns/0/stop/why": "answered", "turns/0/grade": "complete"},
    ),
    Case(
        "lateness is of section 5's order between streams: after the end by time",
        [
            *turn("t", asked("x", at=START % 1), at=START % 2),
            ended("x", turn="t", producer="p", at=START % 3),
        ],
        {PAIRING: ["late_result"]},
    ),
    Case(
        "before the end by time, whatever came first",
        [
            ended("x", turn="t", producer="p", at=START % 1),
            *turn("t", asked("x", at=START % 0, seq=1), at=START % 2),
        ],
        {PAIRING: ["paired"]},
    ),
    Case(
        "a result before a second end is not late",
        [*turn("t", asked("x")), ended("x", turn="t"), ev("turn.completed", turn="t")],
        {PAIRING: ["paired"]},
    ),
    Case(
        "one id asked twice without model_call_ids is one tool call",
        turn("t", asked("x"), asked("x"), ended("x")),
        {PAIRING: ["paired"]},
    ),
    Case(
        "one id asked twice by one call is one tool call",
        turn("t", asked("x", call="1"), asked("x", call="1"), ended("x")),
        {PAIRING: ["paired"]},
    ),
    Case(
        "without ids two starts that nobody requested are two tool calls",
        turn(
            "t",
            *(ev("tool_call.started", tool_name="bash") for _ in "12"),
            *(ended(status=status) for status in ("error", "ok")),
        ),
        {PAIRING: ["paired", "paired"], "tool_calls/*/status": ["ok", "error"]},
    ),
    Case(
        "without ids a request and its start are one, a start of another name is another",
        turn(
            "t", asked(), ev("tool_call.started", tool_name="bash"), ev("tool_call.started", tool_name="grep")
        ),
        {"tool_calls/*/tool_name": ["bash", "grep"]},
    ),
    Case(
        "an MCP server's ids that begin again find the nearest call",
        turn(
            "t",
            asked("1", "srv__x", call_tool_origin="mcp"),
            mcp(tool_name="x", request_id="1"),
            mcp(direction="response", request_id="1"),
            ended("1"),
            asked("2", "srv__x", call_tool_origin="mcp"),
            mcp(tool_name="x", request_id="1"),
            mcp(direction="response", request_id="1"),
            ended("2"),
        ),
        {
            "sessions/0/total_tool_calls": 2,
            "mcp_usage/*/call_count": [2],
            "mcp_usage/*/tool_name": ["x"],
            "checks/mcp_without_tool_call": None,
        },
    ),
    Case(
        "a proxy entry without server takes its observation's",
        turn(
            "t", asked("2", "srv__x", call_tool_origin="mcp"), mcp(tool_name="x", request_id="7"), ended("2")
        ),
        {"tool_calls/*/server_name": ["srv"], "mcp_usage/*/tool_name": ["x"]},
    ),
    Case(
        "an observation with an id that nobody asked for makes the tool call",
        turn("t", mcp(tool="9", tool_name="x"), mcp(tool="9", direction="response")),
        {"tool_calls/*/call_id": ["9"], "tool_calls/*/tool_name": ["x"], "checks/mcp_without_tool_call": 1},
    ),
    Case(
        "request ids of two streams are two observations",
        turn("t", mcp(tool_name="x", request_id="1"), mcp(tool_name="x", request_id="1", producer="p")),
        {"sessions/0/total_tool_calls": 2, "checks/mcp_without_tool_call": 2},
    ),
    Case(
        "two unanswered requests of the same MCP tool: the nearest earlier",
        turn(
            "t",
            asked("1", "srv__x", call_tool_origin="mcp"),
            asked("2", "srv__x", call_tool_origin="mcp"),
            mcp(tool_name="x", request_id="7"),
            ended("1"),
            ended("2"),
        ),
        {"tool_calls/*/request_id": [None, "7"]},
    ),
)


@TOOL_CASES
def test_tools(case: Case) -> None:
    assert found(case) == case.expected


SUM_CASES = table(
    Case(
        "a mixed session's requests and files of eval turns are left out",
        [
            *turn(
                "a",
                ev("net.requested", domain="d", port=1, decision="allowed"),
                ev("fs.changed", action="created", path="/a"),
                ev("message.recorded", role="user", text="x"),
                kind="eval",
                run="r",
            ),
            *turn("b", ev("net.requested", domain="d", port=1, decision="denied")),
        ],
        {
            "sessions/0/kind": "live",
            "sessions/0/total_requests": 1,
            "sessions/0/denied_requests": 1,
            "sessions/0/total_file_events": 0,
            "sessions/0/message_count": 0,
        },
    ),
    Case(
        "a gap between two turns is the session's alone",
        [*turn("a"), ev("turn.started", turn="b", seq=4), ev("turn.completed", turn="b", seq=5)],
        {"turns/*/grade": ["complete", "complete"], "sessions/0/grade": "gaps"},
    ),
    Case(
        "a gap inside two overlapping turns is of both",
        [
            ev("turn.started", turn="a", producer="p", seq=0),
            ev("message.recorded", role="assistant", text="x", turn="b", producer="p", seq=1),
            ev("message.recorded", role="assistant", text="x", turn="b", producer="p", seq=3),
            ev("turn.completed", turn="a", producer="p", seq=4),
        ],
        {"turns/*/grade": ["gaps", "gaps"]},
    ),
    Case(
        "the first start without a time: the least time",
        [ev("session.started", at=None), ev("x", at=START % 3), ev("x", at=START % 2)],
        {"sessions/0/created_at": "2026-05-04T10:02:00.000000Z"},
    ),
    Case(
        "a conflict disputes the kept event's turn",
        [
            *turn("t", ev("guard.evaluated", guard="g", outcome="passed", seq=1)),
            ev("guard.evaluated", guard="h", outcome="passed", turn="t", seq=1),
        ],
        {
            "turns/*/grade": ["disputed"],
            "sessions/0/grade": "disputed",
            "sessions/0/conflicts": 1,
            "checks/conflict": 1,
        },
        any_order=False,
    ),
    Case(
        "contributions stand in the hours with no calls",
        turn("t", running(20)),
        {
            "usage_hourly/*/calls": [0],
            "usage_hourly/*/total_input_tokens": [20],
            "usage_hourly/*/sessions": [1],
            "sessions/0/model_call_count": 0,
        },
    ),
    Case(
        "T4-03: a number of another stream is another event",
        [ev("x", seq=0), ev("y", seq=0, ev_stream="state_trace")],
        {"records/accepted": 2},
    ),
)


@SUM_CASES
def test_sums(case: Case) -> None:
    assert found(case) == case.expected
