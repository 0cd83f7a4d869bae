"""Owns the usual turn without general machinery: calls that were started and completed, tools that were asked for and answered.

Same rows as ``fold.calls``, ``fold.usage`` and ``fold.tools`` give, or None wherever a rule of theirs could speak that is not here: a second
event of one kind, an id that is shared, a failure, a report beside the completion, a field to be read tolerantly, a finding to be made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnledger.contract.event import Event
from turnledger.contract.types import typed
from turnledger.fold.fields import decimal_of, place_key
from turnledger.fold.model import Row, UsagePart
from turnledger.fold.order import order_key
from turnledger.fold.tools import Placed
from turnledger.fold.usage import (
    CONVENTIONS,
    KNOWN_CONVENTIONS,
    NO_BUCKETS,
    Buckets,
    add,
    buckets,
    fitting,
    usage_row,
)


class QuickCalls:
    """What the calls of a usual turn add up to. None failed, all reported, all count."""

    __slots__ = ("lower_bound", "parts", "recorded", "rows", "usage")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.parts: list[UsagePart] = []
        self.usage: Row = {}
        self.lower_bound = False
        self.recorded: set[str] = set()
        """``model_call_id`` of the calls."""


def quick_calls(events: Sequence[Placed], turn_key: str, kind: str) -> QuickCalls | None:
    """The calls of one turn, each with ids of its own, at most one start, and one completion after it that tells figures."""
    starts: dict[str, Event] = {}
    ends: dict[str, tuple[Event, Any]] = {}
    messages: set[str] = set()
    requests: set[str] = set()
    order: list[str] = []
    for _, event in events:
        name = event.model_call_id
        if name is None or name in ends:
            return None
        if event.type == "model_call.started":
            if name in starts:
                return None
            starts[name] = event
            order.append(name)
        elif event.type == "model_call.completed":
            told = typed(event)
            if told is None or told.usage is None or told.provider_thread is not None or event.at is None:
                return None
            message, request = told.message_id, told.request_id
            if message:
                if message in messages:
                    return None
                messages.add(message)
            if request is not None:
                if type(request) is not str or request in requests:
                    return None
                requests.add(request)
            if name not in starts:
                order.append(name)
            ends[name] = (event, told)
        else:
            return None
    if len(ends) != len(order):
        return None
    found = QuickCalls()
    total: Buckets = NO_BUCKETS
    for name in order:
        end, told = ends[name]
        values = _call(found, name, starts.get(name), end, told, turn_key, kind)
        if values is None:
            return None
        total = values if total is NO_BUCKETS else add(total, values)
    found.usage = usage_row(fitting(total), len(order), len(order))
    found.recorded.update(order)
    return found


def _call(
    found: QuickCalls, name: str, start: Event | None, end: Event, told: Any, turn_key: str, kind: str
) -> Buckets | None:
    """Add one call; its figures, or None where it is none of the usual."""
    provider, model = told.provider, told.model
    method = path = context_tokens = messages_count = tools_count = started_at = None
    window = told.context_window
    first = end
    least_at = end.at
    trace_id = end.trace_id
    inherited = end.provenance == "inherited"
    if start is not None:
        first = start
        payload = start.payload
        if (
            "usage" in payload
            or "message_id" in payload
            or "request_id" in payload
            or "peak_input" in payload
        ):
            return None
        asked = typed(start)
        if asked is None or (provider and asked.provider and asked.provider != provider):
            return None
        provider = provider or asked.provider
        model = model or asked.model
        method, path = asked.method or None, asked.path or None
        context_tokens = asked.context_tokens
        messages_count = asked.messages_count
        tools_count = asked.tools_count
        if asked.context_window is not None and (window is None or asked.context_window > window):
            window = asked.context_window
        started_at = start.at
        if started_at is not None and least_at is not None and started_at < least_at:
            least_at = started_at
        trace_id = start.trace_id or trace_id
        inherited = inherited or start.provenance == "inherited"
    message_id = told.message_id or None
    stop_reason = told.stop_reason or None
    status_code = told.status_code
    if not model or (status_code is not None and not 0 <= status_code < 1000):
        return None
    if told.counter_kind is not None and told.counter_kind != "per_call":
        return None
    convention = told.token_convention or CONVENTIONS.get(provider)
    if convention not in KNOWN_CONVENTIONS:
        return None
    figures = told.usage
    values, negative = buckets(
        (
            figures.input,
            figures.output,
            figures.cache_read,
            figures.cache_write,
            figures.cache_write_5m,
            figures.cache_write_1h,
            figures.reasoning,
            None,
        ),
        convention,
    )
    if negative or values == NO_BUCKETS:
        return None
    source = told.source or ("event" if message_id is None else "response")
    fidelity = "exact"
    if source == "estimate":
        fidelity = "estimated"
    elif source == "transcript" and stop_reason is None:
        fidelity = "lower_bound"
        found.lower_bound = True
    uncached, cache_read, write_5m, write_1h, write_other, output, reasoning, total_input = values
    key = place_key(first)
    provider = provider or None
    found.parts.append(
        UsagePart(
            key,
            key,
            turn_key,
            provider,
            model,
            end.at,
            kind,
            usage_row(values, 1, 1),
            convention,
            fidelity,
        )
    )
    found.rows.append(
        {
            "call_key": key,
            "turn_key": turn_key,
            "model_call_id": name,
            "message_id": message_id,
            "request_id": told.request_id or None,
            "trace_id": trace_id,
            "provider": provider,
            "protocol": told.protocol or None,
            "model": model,
            "kind": kind,
            "status": "completed",
            "error_class": None,
            "status_code": status_code,
            "stop_reason": stop_reason,
            "method": method,
            "path": path,
            "started_at": started_at,
            "completed_at": end.at,
            "hour_at": end.at,
            "latency_ms": told.latency_ms,
            "ttft_ms": told.ttft_ms,
            "retries": 0,
            "token_convention": convention,
            "usage_source": source,
            "fidelity": fidelity,
            "input_uncached_tokens": uncached,
            "cache_read_tokens": cache_read,
            "cache_write_5m_tokens": write_5m,
            "cache_write_1h_tokens": write_1h,
            "cache_write_other_tokens": write_other,
            "output_tokens": output,
            "reasoning_tokens": reasoning,
            "total_input_tokens": total_input,
            "counts": True,
            "inherited_event": inherited,
            "peak_input_tokens": told.peak_input,
            "context_tokens": context_tokens,
            "context_window": window,
            "messages_count": messages_count,
            "tools_count": tools_count,
            "request_bytes": told.request_bytes,
            "response_bytes": told.response_bytes,
            "reported_cost_usd": None
            if told.reported_cost_usd is None
            else decimal_of(end.payload["reported_cost_usd"]),
            "least_at": least_at,
            "order_key": order_key(first),
        }
    )
    return values


def quick_tools(events: Sequence[Placed], turn_key: str, kind: str, end: int | None) -> list[Row] | None:
    """The tool calls of one turn, each asked for once and answered once after that. ``end``: the place of the turn's end."""
    asked: dict[str, tuple[Event, Any]] = {}
    answered: dict[str, tuple[int, Event, Any]] = {}
    consumed: dict[str, str | None] = {}
    for index, event in events:
        told = typed(event)
        if told is None:
            return None
        kind_of = event.type
        if kind_of == "tool_results.submitted":
            for name in told.tool_call_ids or ():
                if type(name) is not str:
                    return None
                if consumed.get(name) is None:
                    consumed[name] = event.model_call_id
            continue
        name = event.tool_call_id
        if name is None or name in answered:
            return None
        if kind_of == "tool_call.requested":
            if name in asked:
                return None
            asked[name] = (event, told)
        elif kind_of == "tool_call.completed" and name in asked:
            answered[name] = (index, event, told)
        else:
            return None
    if len(answered) != len(asked) or not consumed.keys() <= asked.keys():
        return None
    rows: list[Row] = []
    for name, (request, ask) in asked.items():
        index, result, told = answered[name]
        error = told.error_message or None
        rows.append(
            {
                "tool_key": place_key(request),
                "turn_key": turn_key,
                "call_id": name,
                "tool_name": ask.tool_name or told.tool_name or None,
                "origin": ask.call_tool_origin or "unknown",
                "server_name": ask.server_name or told.server_name or None,
                "status": told.status or ("ok" if error is None else "error"),
                "pairing": "late_result" if end is not None and index > end else "paired",
                "requested_by": request.model_call_id or result.model_call_id,
                "consumed_by": consumed.get(name),
                "call_index": ask.call_index,
                "denied_by": None,
                "error_message": error,
                "method": told.method or None,
                "transport": told.transport or None,
                "request_id": None if told.request_id is None else str(told.request_id) or None,
                "duration_ms": told.duration_ms,
                "bytes_sent": told.bytes_sent,
                "bytes_received": told.bytes_received,
                "requested_at": request.at,
                "completed_at": result.at,
                "trace_id": request.trace_id or result.trace_id,
                "kind": kind,
                "inherited_event": request.provenance == "inherited" or result.provenance == "inherited",
                "order_key": order_key(request),
            }
        )
    return rows
