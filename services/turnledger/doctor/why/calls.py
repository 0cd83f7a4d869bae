"""Reasons of the checks about model calls: which are not told whole, and which nobody told."""

from __future__ import annotations

from typing import Final

from turnledger.doctor.findings import Evidence, Explain, Finding, Place, Reason, Row, plural, some

LLM_PATHS = (
    "/v1/messages", "/v1/complete", "/v1/chat/completions", "/v1/responses", "/v1/completions", "/v1/embeddings",
    ":generateContent", ":streamGenerateContent", ":embedContent", ":batchEmbedContents",
)  # fmt: skip
"""Paths under which providers take a request to a model; others (lists of models, telemetry) use no tokens."""


def call_without_record(finding: Finding, evidence: Evidence) -> Reason:
    names = some(row["model_call_id"] for row in finding.rows)
    calls = evidence.has("model_call.started", "model_call.completed", "model_call.failed")
    gaps = sum(stream["open_gaps"] or 0 for stream in evidence.streams)
    return Reason(
        f"{plural(finding.count, 'model call')} ({names}) was named by tools or messages and told by no model_call.* event; "
        f"{plural(calls, 'such event')} of other calls came"
        + (f"; {plural(gaps, 'gap')} of the session may hold it" if gaps else ""),
        "what it used is in no figure: have the producer send model_call.completed, or import the transcript that has it",
    )


def message_id_reused(finding: Finding, evidence: Evidence) -> Reason:
    return Reason(
        f"one stream gives {some(row['message_id'] for row in finding.rows)} to several calls, so that the id tells nothing and the "
        f"producer's own call ids decide",
        f"look at where the id comes from in {some(row.get('producer') for row in finding.rows)}: a proxy's cache, or an id that a harness made up",
    )


def traffic_without_model_call(finding: Finding, evidence: Evidence) -> Reason:
    hosts = {str(row["domain"]).lower().rstrip(".") for row in finding.rows}
    alike = [
        one
        for one in evidence.requests
        if str(one["domain"]).lower().rstrip(".") in hosts and one["decision"] != "denied"
    ]
    asked = [one for one in alike if any(path in str(one["path"] or "") for path in LLM_PATHS)]
    statuses = some(one["status_code"] for one in alike for _ in range(min(one["requests"], 1000)))
    what = (
        f"{plural(finding.count, 'request')} reached {some(row['domain'] for row in finding.rows)} (status {statuses}) and no model call "
        f"stands beside"
    )
    if alike and not asked:
        paths = some(one["path"] for one in alike)
        return Reason(
            f"{what}; none of the paths ({paths}) is one that uses a model",
            "nothing is lost if these were lists of models or telemetry; if the path is missing, the proxy saw the connection only",
        )
    encoded = _encodings(finding, evidence)
    if encoded:
        return Reason(
            f"{what}; the answers came with content-encoding {encoded}, which a parser of the stream must undo before it finds model and tokens",
            "see whether the proxy decodes by Content-Encoding; without that neither model nor tokens of these requests are known",
        )
    told = some(evidence.told_by("model_call."))
    return Reason(
        f"{what}: tokens may have been used that nobody counted (model calls of this session are told by: {told})",
        "look at the harness or the proxy at that time; import its transcript, and the calls stand beside their requests",
    )


def null_model(finding: Finding, evidence: Evidence) -> Reason:
    calls = _calls(finding, evidence)
    refused = [call for call in calls if (call["status_code"] or 0) >= 400]
    paths = some(call["path"] for call in calls if call["path"])
    what = (
        f"{plural(finding.count, 'model call')} named no model (provider {some(call['provider'] for call in calls)}; status "
        f"{some(call['status_code'] for call in calls)}; path {paths})"
    )
    if refused and len(refused) == len(calls):
        return Reason(
            f"{what}: every one was answered with an error, so the request may never have been one to a model",
            "have the producer send model_call.failed for a refused request; denied and mistaken requests belong to net.requested",
        )
    silent = [call for call in calls if call["total_input_tokens"] is None and call["output_tokens"] is None]
    unseen = all(call["status_code"] is None for call in calls) and not evidence.requests
    if silent and len(silent) == len(calls) and unseen:
        return Reason(
            f"{what}, nor tokens, nor a status: they are told by {some(evidence.told_by('model_call.'))}, which saw no response, so its "
            f"format may not say which model answered",
            "`turnledger harnesses` says what each format can tell; another record of the session (a proxy's, a newer transcript) may have both",
        )
    if silent and len(silent) == len(calls):
        return Reason(
            f"{what}, nor tokens: the body was not read at all, as when it came compressed or was cut",
            "look at content-encoding and size of the response in net_events; the same call's transcript has the model",
        )
    return Reason(
        f"{what}, although tokens are known: the name stood in a part that was not captured (the URL, or the end of a long request)",
        "until the producer names the model, these tokens have no price; they count as model `unknown`",
    )


def null_tokens(finding: Finding, evidence: Evidence) -> Reason:
    calls = _calls(finding, evidence)
    cut = [call for call in calls if call["stop_reason"] is None]
    errors = [call for call in calls if (call["status_code"] or 0) >= 400]
    running = [call for call in calls if call["status"] == "started"]
    known = sum(one["calls"] for one in evidence.calls if one["reported"])
    what = (
        f"{plural(finding.count, 'model call')} of {some(call['provider'] for call in calls)} ({some(call['model'] for call in calls)}) "
        f"reported no tokens, "
        f"{plural(known, 'other call')} of the session did"
    )
    if running and len(running) == len(calls):
        return Reason(
            f"{what}; they were started and neither completed nor failed ({evidence.life()})",
            "wait if the session runs; if it ended, look at what ended the process between request and answer",
        )
    if errors and len(errors) == len(calls):
        return Reason(
            f"{what}; all were answered with status {some(call['status_code'] for call in errors)}, which costs nothing",
            "have the producer send model_call.failed for them: failed calls are not expected to report",
        )
    if not known and all(call["status_code"] is None for call in calls):
        return Reason(
            f"{what}; {some(evidence.told_by('model_call.'))} told usage of no call of this session, so its format, or this version of the "
            f"harness, may not write it down",
            "`turnledger harnesses` says what each format can tell; a newer version of the harness, or a proxy beside it, does",
        )
    if cut and len(cut) == len(calls):
        return Reason(
            f"{what}; none has a stop reason, so the stream was cut before its usage came, or it was never a stream and the body was not parsed",
            "look at the response (response_bytes, ttft_ms of these calls): nothing known is lost, the provider's bill has them",
        )
    return Reason(
        f"{what}; they ended well ({some(call['stop_reason'] for call in calls)}), so the provider or the proxy does not tell usage here",
        "ask for usage (stream_options.include_usage with OpenAI's protocol), or import the harness's own transcript, which often has it",
    )


def inherited_without_source(finding: Finding, evidence: Evidence) -> Reason:
    parent = evidence.facts.get("parent_session_id")
    return Reason(
        f"{plural(finding.count, 'call')} ({some(row.get('message_id') or row.get('model_call_id') for row in finding.rows)}) came marked as copied from "
        + (f"{parent}, which holds no such call" if parent else "another session that nobody names")
        + ", so this session sums them",
        "import the session that they were made in: it then owns them, and this one shows them as inherited",
    )


def _calls(finding: Finding, evidence: Evidence) -> list[Row]:
    return [
        evidence.named_calls[key]
        for row in finding.rows
        if (key := row.get("call_key")) is not None and key in evidence.named_calls
    ]


def _encodings(finding: Finding, evidence: Evidence) -> str | None:
    found = []
    for row in finding.rows:
        place = Place.of(row)
        seen = evidence.events.get(place) if place is not None else None
        headers = seen.payload.get("response_headers") if seen is not None else None
        if isinstance(headers, dict):
            found += [
                str(value)
                for name, value in headers.items()
                if name.lower() == "content-encoding" and value != "identity"
            ]
    return some(found) if found else None


REASONS: Final[dict[str, Explain]] = {
    "call_without_record": call_without_record,
    "message_id_reused": message_id_reused,
    "traffic_without_model_call": traffic_without_model_call,
    "null_model": null_model,
    "null_tokens": null_tokens,
    "inherited_without_source": inherited_without_source,
}
