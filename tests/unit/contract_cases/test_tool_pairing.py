"""Contract 10: what one tool call is, how its result is found, every pairing; MCP observations."""

from __future__ import annotations

from typing import Any

from tests.unit.contract_cases.envelopes import Case, Envelope, done, ev, found, table, turn

PAIRING = "tool_calls/*/pairing"
STATUS = "tool_calls/*/status"


def asked(tool: str | None = None, name: str = "bash", **given: Any) -> Envelope:
    return ev("tool_call.requested", tool_name=name, **({} if tool is None else {"tool": tool}), **given)


def began(tool: str | None = None, **given: Any) -> Envelope:
    return ev("tool_call.started", **({} if tool is None else {"tool": tool}), **given)


def ended(tool: str | None = None, status: str = "ok", **given: Any) -> Envelope:
    return ev("tool_call.completed", status=status, **({} if tool is None else {"tool": tool}), **given)


def denied(tool: str, by: str = "policy") -> Envelope:
    return ev("tool_call.denied", tool=tool, by=by, reason="no")


def mcp(method: str = "tools/call", direction: str = "request", **given: Any) -> Envelope:
    return ev("mcp.observed", method=method, direction=direction, **{"server_name": "srv", **given})


def finding(**counts: int) -> dict[str, int | None]:
    return {f"checks/tool_{name}": counts.get(name) for name in ("missing_result", "orphan_result")}


@table(
    Case(
        "request and result are paired",
        turn("t", asked("x"), ended("x")),
        {PAIRING: ["paired"], STATUS: ["ok"], "turns/0/grade": "unknown", **finding()}
        | {"turns/0/grade": "complete"},
    ),
    Case(
        "no result in an open turn is pending",
        turn("t", asked("x"), end=None),
        {PAIRING: ["pending"], **finding()},
    ),
    Case(
        "no result in an ended turn is missing, the turn partial",
        turn("t", asked("x")),
        {PAIRING: ["missing_result"], "turns/0/grade": "partial", **finding(missing_result=1)},
    ),
    Case(
        "no result in an abandoned turn is missing",
        [*turn("t", asked("x"), end=None), ev("session.ended", status="stopped")],
        {PAIRING: ["missing_result"], "turns/0/status": "abandoned"},
    ),
    Case("outside turns it is pending while the session runs", [asked("x")], {PAIRING: ["pending"]}),
    Case(
        "and missing once the session ended",
        [asked("x"), ev("session.ended", status="stopped")],
        {PAIRING: ["missing_result"]},
    ),
    Case(
        "a result without request is an orphan, and a tool call",
        turn("t", ended("x", tool_name="bash")),
        {
            PAIRING: ["orphan_result"],
            "tool_calls/*/tool_name": ["bash"],
            "sessions/0/total_tool_calls": 1,
            "turns/0/grade": "partial",
            **finding(orphan_result=1),
        },
    ),
    Case(
        "a result after the turn's end is late, not missing",
        [*turn("t", asked("x")), ended("x", turn="t")],
        {PAIRING: ["late_result"], STATUS: ["ok"], **finding()},
    ),
    Case(
        "of several results the last gives the status, the first decides whether it was late",
        [*turn("t", asked("x"), ended("x")), ended("x", "error", turn="t", error_message="boom")],
        {
            PAIRING: ["paired"],
            STATUS: ["error"],
            "turns/0/tool_calls/*/error": ["boom"],
            "sessions/0/tool_errors": 1,
        },
    ),
    Case(
        "C9: missing, orphan",
        turn("t", asked("t1"), ended("t2")),
        {PAIRING: ["missing_result", "orphan_result"], **finding(missing_result=1, orphan_result=1)},
    ),
    Case(
        "a denial is no error and no missing result",
        turn("t", asked("x"), denied("x")),
        {
            PAIRING: ["denied"],
            "sessions/0/tool_errors": 0,
            "tool_usage/0/denied_count": 1,
            "tool_usage/0/error_count": 0,
            **finding(),
        },
    ),
    Case(
        "a denial beats a result, before or after it, even one that failed",
        turn("t", asked("x"), denied("x"), ended("x", "error"), asked("y"), ended("y"), denied("y")),
        {PAIRING: ["denied", "denied"], "sessions/0/tool_errors": 0, "tool_usage/0/error_count": 0},
    ),
    Case("a denial without a request is denied", turn("t", denied("x")), {PAIRING: ["denied"], **finding()}),
    Case(
        "a start counts as a request",
        turn("t", began("x", tool_name="bash"), ended("x")),
        {PAIRING: ["paired"]},
    ),
    Case("request and start are one", turn("t", asked("x"), began("x"), ended("x")), {PAIRING: ["paired"]}),
    Case(
        "equal ids of two turns are two tool calls",
        [*turn("a", asked("x"), ended("x")), *turn("b", asked("x"), ended("x"))],
        {PAIRING: ["paired", "paired"]},
    ),
    Case(
        "outside turns the trace is the scope",
        [asked("x", trace="1"), asked("x", trace="2"), ended("x", trace="2")],
        {PAIRING: ["pending", "paired"]},
    ),
    Case(
        "without turn and trace the session",
        [asked("x"), ended("x", producer="p")],
        {PAIRING: ["paired"]},
    ),
    Case(
        "C18: two exchanges emit one id, one is answered: the latest unanswered",
        turn("t", asked("x", call="1"), asked("x", call="2"), ended("x")),
        {PAIRING: ["missing_result", "paired"], "tool_calls/*/requested_by": ["1", "2"]},
    ),
    Case(
        "two answers of one id: the latest unanswered each",
        turn("t", asked("x", call="1"), asked("x", call="2"), ended("x", "error"), ended("x")),
        {PAIRING: ["paired", "paired"], STATUS: ["ok", "error"]},
    ),
    Case(
        "an answer in between takes the one before it",
        turn("t", asked("x", call="1"), ended("x", "error"), asked("x", call="2"), ended("x")),
        {STATUS: ["error", "ok"]},
    ),
    Case(
        "a result that names the call answers that one",
        turn("t", asked("x", call="1"), asked("x", call="2"), ended("x", call="1")),
        {PAIRING: ["paired", "missing_result"]},
    ),
    Case(
        "one model_call_id and one request without is one tool call",
        turn("t", asked("x", call="1"), began("x"), ended("x")),
        {PAIRING: ["paired"], "tool_calls/*/requested_by": ["1"]},
    ),
    Case(
        "without an id each request is its own",
        turn("t", asked(), asked()),
        {PAIRING: ["missing_result", "missing_result"]},
    ),
    Case(
        "without an id a start joins the latest unanswered request before it",
        turn("t", asked(name="a"), asked(name="b"), began()),
        {"tool_calls/*/tool_name": ["a", "b"]},
    ),
    Case(
        "without an id a start without a request is its own",
        turn("t", began(tool_name="z")),
        {"tool_calls/*/tool_name": ["z"], PAIRING: ["missing_result"]},
    ),
    Case(
        "without an id a result answers the latest unanswered request",
        turn("t", asked(name="a"), asked(name="b"), ended()),
        {PAIRING: ["missing_result", "paired"]},
    ),
    Case(
        "without an id a result without a request is an orphan",
        turn("t", ended()),
        {PAIRING: ["orphan_result"]},
    ),
    Case(
        "the consumer is the call that got the results",
        turn(
            "t",
            done({"output": 1}, call="1"),
            asked("x", call="1"),
            ended("x"),
            ev("tool_results.submitted", tool_call_ids=["x"], call="2"),
            done({"output": 1}, call="2"),
        ),
        {"tool_calls/*/requested_by": ["1"], "tool_calls/*/consumed_by": ["2"]},
    ),
    Case(
        "results submitted for a tool call nobody knows are a finding",
        turn(
            "t",
            ev("tool_results.submitted", tool_call_ids=["x", "y"], call="2"),
            done({"output": 1}, call="2"),
        ),
        {"tool_calls": [], "checks/response_names_no_call": 2},
    ),
    Case(
        "origin and server of the request, absent unknown",
        turn("t", asked("x", call_tool_origin="mcp", server_name="srv"), asked("y")),
        {"tool_calls/*/origin": ["mcp", "unknown"], "tool_calls/*/server_name": ["srv", None]},
    ),
    Case(
        "duration reported stands, bytes add to the sum",
        turn("t", asked("x"), ended("x", duration_ms=7, bytes_sent=3, bytes_received=4)),
        {
            "turns/0/tool_calls/0/duration_ms": 7,
            "tool_usage/0/total_duration_ms": 7,
            "tool_usage/0/total_bytes": 7,
        },
    ),
    Case(
        "C16: native, proxy entry and its transport, a listing: two tool calls",
        turn(
            "t",
            asked("1", "bash", call_tool_origin="native"),
            ended("1"),
            asked("2", "srv__x", call_tool_origin="mcp", server_name="srv"),
            mcp(tool_name="x", request_id="7"),
            mcp(direction="response", request_id="7"),
            ended("2"),
            mcp("tools/list", request_id="8"),
            mcp("tools/list", "response", request_id="8"),
        ),
        {
            "tool_calls/*/tool_name": ["bash", "srv__x"],
            PAIRING: ["paired", "paired"],
            "sessions/0/total_tool_calls": 2,
            "mcp_usage/*/tool_name": ["x"],
            "mcp_usage/*/server_name": ["srv"],
            "mcp_usage/*/call_count": [1],
            "checks/mcp_without_tool_call": None,
        },
    ),
    Case(
        "an observation with the tool call's id enriches it",
        turn(
            "t",
            asked("2", "x", call_tool_origin="mcp"),
            mcp(tool="2", tool_name="x", request_id="7"),
            ended("2"),
        ),
        {
            "tool_calls/*/server_name": ["srv"],
            "tool_calls/*/request_id": ["7"],
            "checks/mcp_without_tool_call": None,
        },
    ),
    Case(
        "a tools/call that matches none makes a tool call, a finding",
        turn("t", mcp(tool_name="x", request_id="7"), mcp(direction="response", request_id="7")),
        {
            "tool_calls/*/tool_name": ["x"],
            "tool_calls/*/origin": ["mcp"],
            PAIRING: ["paired"],
            "checks/mcp_without_tool_call": 1,
        },
    ),
    Case(
        "one without a response is missing its result",
        turn("t", mcp(tool_name="x", request_id="7")),
        {PAIRING: ["missing_result"], "checks/mcp_without_tool_call": 1},
    ),
    Case(
        "another tool's name does not match",
        turn(
            "t",
            asked("2", "srv__y", call_tool_origin="mcp", server_name="srv"),
            mcp(tool_name="x", request_id="7"),
            ended("2"),
        ),
        {"tool_calls/*/tool_name": ["srv__y", "x"], "checks/mcp_without_tool_call": 1},
    ),
    Case(
        "another server's does not, either",
        turn(
            "t",
            asked("2", "x", call_tool_origin="mcp", server_name="other"),
            mcp(tool_name="x", request_id="7"),
            ended("2"),
        ),
        {"tool_calls/*/server_name": ["other", "srv"], "checks/mcp_without_tool_call": 1},
    ),
    Case(
        "two calls of one tool: each observation joins the nearest earlier unmatched one",
        turn(
            "t",
            asked("1", "srv__x", call_tool_origin="mcp", server_name="srv"),
            mcp(tool_name="x", request_id="7"),
            ended("1"),
            asked("2", "srv__x", call_tool_origin="mcp", server_name="srv"),
            mcp(tool_name="x", request_id="8"),
            ended("2"),
        ),
        {
            "tool_calls/*/request_id": ["7", "8"],
            PAIRING: ["paired", "paired"],
            "checks/mcp_without_tool_call": None,
        },
    ),
    Case(
        "equal request ids of two servers are two",
        turn(
            "t",
            asked("1", "a__x", call_tool_origin="mcp", server_name="a"),
            asked("2", "b__x", call_tool_origin="mcp", server_name="b"),
            mcp(tool_name="x", request_id="1", server_name="a"),
            mcp(tool_name="x", request_id="1", server_name="b"),
            ended("1"),
            ended("2"),
        ),
        {
            "sessions/0/total_tool_calls": 2,
            "checks/mcp_without_tool_call": None,
            "mcp_usage/*/server_name": ["a", "b"],
        },
    ),
    Case(
        "an observation before the request it belongs to matches none",
        turn(
            "t",
            mcp(tool_name="x", request_id="7"),
            asked("2", "srv__x", call_tool_origin="mcp", server_name="srv"),
            ended("2"),
        ),
        {"sessions/0/total_tool_calls": 2, "checks/mcp_without_tool_call": 1},
    ),
    Case(
        "initialize and resources are no tool calls",
        turn(
            "t",
            mcp("initialize", request_id="1"),
            mcp("resources/read", request_id="2"),
            mcp("resources/list", request_id="3"),
        ),
        {"tool_calls": [], "checks/mcp_without_tool_call": None},
    ),
    Case(
        "tool usage by name and origin, unnamed tools as unknown",
        turn(
            "t",
            asked("1"),
            ended("1", "error"),
            asked("2", call_tool_origin="native"),
            ended("2"),
            ended("3"),
        ),
        {
            "tool_usage/*/tool_name": ["bash", "bash", "unknown"],
            "tool_usage/*/origin": ["native", "unknown", "unknown"],
            "tool_usage/*/call_count": [1, 1, 1],
            "tool_usage/*/error_count": [0, 1, 0],
            "sessions/0/tool_errors": 1,
        },
    ),
    Case(
        "a server's tool keeps a prefix that is another's",
        turn("t", asked("1", "other__x", server_name="srv", call_tool_origin="mcp"), ended("1")),
        {"mcp_usage/*/tool_name": ["other__x"]},
    ),
    Case(
        "a tool without a server is no MCP usage",
        turn("t", asked("1", "srv__x", call_tool_origin="mcp"), ended("1")),
        {"mcp_usage": []},
    ),
)
def test_tool_pairing(case: Case) -> None:
    assert found(case) == case.expected
