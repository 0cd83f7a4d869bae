"""Reasons of the checks about tools: requests without a result, results without a request, transports that no model asked for."""

from __future__ import annotations

from typing import Final

from turnledger.doctor.findings import Evidence, Explain, Finding, Reason, Row, plural, some


def tool_missing_result(finding: Finding, evidence: Evidence) -> Reason:
    names = some(row["tool_name"] for row in finding.rows)
    turns = [evidence.turns[row["turn_key"]] for row in finding.rows if row.get("turn_key") in evidence.turns]
    repeated = [row for row in finding.rows if len(evidence.same_ids.get(row["tool_call_id"] or "", ())) > 1]
    what = f"{plural(finding.count, 'tool call')} ({names}) never got an answer"
    if repeated:
        ids = some(row["tool_call_id"] for row in repeated)
        return Reason(
            f"{what}; {plural(len(repeated), 'id')} of them ({ids}) stand for several calls, and a result answers one of them: this "
            f"provider makes ids anew in every exchange",
            "the result may have been meant for this one: compare the order of results, or have the producer send model_call_id with them",
        )
    stopped = some(turn["status"] for turn in turns)
    answered = sum(tool["calls"] for tool in evidence.tools if tool["pairing"] in ("paired", "late_result"))
    gaps = sum(stream["open_gaps"] or 0 for stream in evidence.streams)
    return Reason(
        f"{what}; status of the turn: {stopped}; {evidence.life()}; {plural(answered, 'other call')} of the session got an answer"
        + (f"; {plural(gaps, 'open gap')} may hold the result" if gaps else ""),
        "fill the gaps first (check open_gap)"
        if gaps
        else "a tool that hangs, a crash, or a user who interrupted: the turn's stop says which (`turnledger sessions show`)",
    )


def tool_orphan_result(finding: Finding, evidence: Evidence) -> Reason:
    ids = some(row["tool_call_id"] for row in finding.rows)
    elsewhere = [
        other
        for row in finding.rows
        for other in evidence.same_ids.get(row["tool_call_id"] or "", ())
        if other["tool_key"] != row["tool_key"] and other["pairing"] != "orphan_result"
    ]
    what = f"{plural(finding.count, 'result')} ({ids}) answered a call that nobody asked for"
    if elsewhere:
        where = some(other["turn_key"] or "no turn" for other in elsewhere)
        here = some(row["turn_key"] or "no turn" for row in finding.rows)
        return Reason(
            f"{what} in {here}; a request of that id stands in {where}, so the result names another turn or trace than its request",
            "have the producer send the same turn_id (or trace_id) with both; results of a restart often lose it",
        )
    gaps = sum(stream["open_gaps"] or 0 for stream in evidence.streams)
    requested = evidence.has("tool_call.requested", "tool_call.started")
    return Reason(
        f"{what}; the session has {plural(requested, 'tool_call.requested or started', 'tool_call.requested and started')}"
        + (
            f" and {plural(gaps, 'open gap')}, in which the request may be" if gaps else ", none with that id"
        ),
        "fill the gaps first (check open_gap)"
        if gaps
        else "the request came before the producer's first event, or under another session: look for the id over the tenant (`select "
        "session_id from turnledger.tool_calls where call_id = …`)",
    )


def mcp_without_tool_call(finding: Finding, evidence: Evidence) -> Reason:
    row = finding.rows[0]
    tool, server = row.get("tool_name"), row.get("server_name") or "the server"
    asked = [one for one in evidence.tools if _same_tool(one, tool)]
    number = sum(one["calls"] for one in asked)
    listed = some(
        f"{one.get('server_name') or 'unknown'}/{one.get('tool_name') or 'unknown'}" for one in finding.rows
    )
    seen = max(number - finding.count, 0)
    if seen:
        return Reason(
            f"{plural(finding.count, 'MCP call')} ({listed}) matched no call of a model, although {plural(seen, 'call')} of {tool} "
            f"had a transport of its own: it was sent twice, or two proxies saw it",
            f"compare request_id and time of both observations; each unmatched one counts as a tool call, so that {tool} may be counted once too often",
        )
    return Reason(
        f"{plural(finding.count, 'MCP call')} ({listed}) went over the wire and no model asked for it: the guest called {server} "
        f"itself, or the model's side was not captured ({plural(evidence.has('tool_call.requested'), 'tool_call.requested event')} came)",
        "it counts as a tool call of origin mcp; if a model did ask, its events are missing or name another tool",
    )


def response_names_no_call(finding: Finding, evidence: Evidence) -> Reason:
    ids = some(row["tool_call_id"] for row in finding.rows)
    elsewhere = {
        other["turn_key"] or "no turn"
        for row in finding.rows
        for other in evidence.same_ids.get(row["tool_call_id"] or "", ())
    }
    return Reason(
        f"{plural(finding.count, 'result')} ({ids}) that went back to a model ({some(row.get('model_call_id') for row in finding.rows)}) "
        f"belonged to no tool call of its turn"
        + (
            f"; a call of that id stands in {some(elsewhere)}" if elsewhere else " and to none of the session"
        ),
        "history that is sent again names old ids: send tool_results.submitted for the new results alone"
        if elsewhere
        else "the call came before the producer's first event, or under another id",
    )


def _same_tool(row: Row, tool: object) -> bool:
    name = row["tool_name"]
    return isinstance(tool, str) and isinstance(name, str) and (name == tool or name.endswith(f"__{tool}"))


REASONS: Final[dict[str, Explain]] = {
    "tool_missing_result": tool_missing_result,
    "tool_orphan_result": tool_orphan_result,
    "mcp_without_tool_call": mcp_without_tool_call,
    "response_names_no_call": response_names_no_call,
}
