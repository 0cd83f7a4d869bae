"""The doctor's own questions about a session as a whole, beside the checks of contract 13: what an operator expects to see and does not.

Each is asked only where the evidence says that there should be something: a transcript without a proxy has no requests, and that is no finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from turnledger.doctor.findings import Evidence, Explain, Finding, Reason, Row, plural, some

WATCHED: Final = {
    "net_events": "requests",
    "fs_events": "files",
    "dns_events": "names",
    "audit_events": "processes in the kernel",
}
"""What only a sandbox sees, by table. A session that tells some of it is expected to tell requests and files too. Commands are not among it:
transcripts tell those that they ran themselves."""
MCP_METHODS: Final = (
    "initialize", "ping", "tools/call", "tools/list", "resources/list", "resources/read", "resources/templates/list", "resources/subscribe",
    "resources/unsubscribe", "prompts/list", "prompts/get", "completion/complete", "logging/setLevel", "sampling/createMessage",
    "elicitation/create", "roots/list", "notifications/initialized", "notifications/cancelled", "notifications/progress",
    "notifications/message", "notifications/tools/list_changed", "notifications/resources/list_changed", "notifications/resources/updated",
    "notifications/prompts/list_changed", "notifications/roots/list_changed",
)  # fmt: skip
WRITING: Final = ("write", "edit", "create", "patch", "replace", "save")
"""Parts of the names of tools that change files."""


def own_findings(
    evidence: Evidence, overflow: Row, unruled: list[Row], methods: list[Row]
) -> Iterator[Finding]:
    """The findings of this module. ``overflow``: {windows, deferred …}; ``unruled``: requests without a rule; ``methods``: those of no protocol."""
    calls = evidence.counts.get("model_calls", 0)
    watching = [table for table in WATCHED if evidence.counts.get(table)]
    if calls and watching and not evidence.counts.get("net_events"):
        yield Finding("no_net_events", "warning", 1, [{"watched": watching, "model_calls": calls}])
    writers = [row for row in evidence.tools if _writes(row) and row["status"] == "ok"]
    if watching and writers and not evidence.counts.get("fs_events"):
        yield Finding(
            "no_file_events",
            "warning",
            1,
            [{"watched": watching, "tools": sorted({str(row["tool_name"]) for row in writers})}],
        )
    asked = sum(
        row["calls"]
        for row in evidence.calls
        if "tool" in str(row["stop_reason"] or "") and not row["inherited"]
    )
    if asked and not evidence.counts.get("tool_calls"):
        yield Finding("no_tool_calls", "warning", 1, [{"calls_that_stopped_for_a_tool": asked}])
    sums = evidence.sums
    if sums and calls and not sums.get("cost_micro_usd") and (sums.get("usage_total") or 0) > 0:
        figures = (
            "cost_micro_usd",
            "unpriced_calls",
            "usage_reported",
            "usage_total",
            "total_input_tokens",
            "output_tokens",
        )
        yield Finding("no_cost", "warning", 1, [{name: sums.get(name) for name in figures}])
    if overflow.get("windows"):
        yield Finding("fs_overflow", "warning", overflow["windows"], [overflow])
    if unruled:
        yield Finding("request_without_security_rule", "info", len(unruled), unruled)
    if methods:
        yield Finding("mcp_unknown_method", "info", sum(row["observed"] for row in methods), methods)


def _writes(row: Row) -> bool:
    name = str(row["tool_name"] or "").lower()
    return any(part in name for part in WRITING)


def no_net_events(finding: Finding, evidence: Evidence) -> Reason:
    producers = some(evidence.told_by("model_call."))
    gaps = sum(stream["open_gaps"] or 0 for stream in evidence.streams)
    watched = some(finding.rows[0]["watched"])
    return Reason(
        f"{plural(evidence.counts.get('model_calls', 0), 'model call')} and not one request: the sandbox does watch ({watched}), so its "
        f"proxy was off, was passed by, or its stream did not arrive (calls are told by {producers})"
        + (f"; {plural(gaps, 'gap')} may be it" if gaps else ""),
        "look at the proxy's own log, and whether the guest has a route around it; `select distinct stream from turnledger.events` says "
        "which streams arrived",
    )


def no_file_events(finding: Finding, evidence: Evidence) -> Reason:
    tools = some(finding.rows[0]["tools"])
    return Reason(
        f"{tools} ended well and no file changed, while the sandbox tells {some(finding.rows[0]['watched'])}: the watcher did not run, or "
        f"the tool wrote outside of the workspace",
        "look at the path in the tool's arguments against the workspace that is watched, and at process.exited of the watcher",
    )


def no_tool_calls(finding: Finding, evidence: Evidence) -> Reason:
    asked = finding.rows[0]["calls_that_stopped_for_a_tool"]
    return Reason(
        f"{plural(asked, 'model call')} stopped for a tool ({some(row['stop_reason'] for row in evidence.calls)}) and no tool call is told: "
        f"the producer ({some(evidence.told_by('model_call.'))}) reads usage, not the response's tool blocks",
        "have it send tool_call.requested for each block, or import the harness's transcript beside it",
    )


def no_cost(finding: Finding, evidence: Evidence) -> Reason:
    row = finding.rows[0]
    inherited = sum(one["calls"] for one in evidence.calls if one["inherited"])
    if not row["usage_reported"]:
        why = f"none of {plural(row['usage_total'], 'part')} reported a token, so there is nothing to price"
        after = "see null_tokens: without usage no price helps"
    elif row["unpriced_calls"]:
        why = (
            f"{plural(row['unpriced_calls'], 'call')} with tokens are of models that the catalogue does not know "
            f"({some(one['model'] for one in evidence.calls)})"
        )
        after = "see unpriced_model: add the model's price and reprice (docs/pricing.md)"
    elif inherited:
        why = f"{plural(inherited, 'call')} of the session are inherited, and summed where they were made"
        after = "look at the session that owns them (owner_session_id of turnledger.model_calls)"
    else:
        why = (
            f"{row['usage_reported']} of {row['usage_total']} parts reported {row['total_input_tokens']} tokens in and "
            f"{row['output_tokens']} out, at a price of zero or too few for one micro-dollar"
        )
        after = "see price_id of its calls in turnledger.model_calls: a model that runs at home costs nothing here"
    return Reason(
        f"the session has calls and costs {'nothing' if row['cost_micro_usd'] == 0 else 'nothing that is known'}: {why}",
        after,
    )


def fs_overflow(finding: Finding, evidence: Evidence) -> Reason:
    row = finding.rows[0]
    told = evidence.sums.get("total_file_events")
    return Reason(
        f"the file watcher could not keep up in {plural(row['windows'], 'window')} and left out "
        f"{row['deferred'] if row['deferred'] is not None else 'an unknown number of'} changes; {told if told is not None else 'the others'} are told",
        "what happened in these windows is told by no file event: look at exec_events of that time (a package manager, a checkout, a build)",
    )


def request_without_security_rule(finding: Finding, evidence: Evidence) -> Reason:
    total = evidence.counts.get("net_events", 0)
    return Reason(
        f"{plural(finding.count, 'request')} of {total} ({some(row['domain'] for row in finding.rows)}) has no rule event beside it, "
        f"although the session evaluates rules ({plural(evidence.counts.get('security_rule_events', 0), 'match', 'matches')})",
        "no rule matched, or rule events are told with another event_id: compare for_event_id in turnledger.security_rule_events",
    )


def mcp_unknown_method(finding: Finding, evidence: Evidence) -> Reason:
    return Reason(
        f"{plural(finding.count, 'MCP exchange')} used methods that the protocol does not have "
        f"({some(row['method'] for row in finding.rows)}), seen by {some(evidence.told_by('mcp.'))}: kept as evidence, no tool call",
        "a newer protocol or a server's own method; only tools/call counts as a tool call",
    )


REASONS: Final[dict[str, Explain]] = {
    "no_net_events": no_net_events,
    "no_file_events": no_file_events,
    "no_tool_calls": no_tool_calls,
    "no_cost": no_cost,
    "fs_overflow": fs_overflow,
    "request_without_security_rule": request_without_security_rule,
    "mcp_unknown_method": mcp_unknown_method,
}
