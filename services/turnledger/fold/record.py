"""Owns the turn record, version 2 (contract 10): one pass over a turn's events, and the document that they make.

A field is there only when its input was. Bounded lists keep their first 24 entries and say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from turnledger.contract.canonical import dumps, dumps_whole
from turnledger.contract.event import Event
from turnledger.contract.types import wrong_fields
from turnledger.fold.calls import CALL_TYPES
from turnledger.fold.context import Hole
from turnledger.fold.fields import choice, flag, integer, listed, mapping, status_code, text, wrong_type
from turnledger.fold.model import Row, StreamKey
from turnledger.fold.points import TYPES as POINT_TYPES
from turnledger.fold.tools import TOOL_TYPES
from turnledger.fold.usage import USAGE_GAPS

SCHEMA_VERSION: Final = 2
CAP: Final = 24
"""Guards and candidates that a record keeps; the ledger has all."""
PREVIEW: Final = 2_000
"""Characters of the user's input that a record keeps where the harness gave no preview of its own; about a screen."""

_CALL, _TOOL, _MESSAGE, _END, _NOTE, _NET, _DNS, _FS, _PROCESS, _SECURITY, _POINT, _OTHER = range(12)
_NOTES: Final = (
    "turn.started",
    "guard.evaluated",
    "slot.written",
    "transition.decided",
    "state.observed",
    "limit.reached",
    "context.compacted",
    "answer.finalized",
)
_SORTS: Final[dict[str, int]] = {
    **dict.fromkeys(POINT_TYPES, _POINT),
    **dict.fromkeys(CALL_TYPES, _CALL),
    **dict.fromkeys(TOOL_TYPES, _TOOL),
    **dict.fromkeys(_NOTES, _NOTE),
    "message.recorded": _MESSAGE,
    "turn.completed": _END,
    "net.requested": _NET,
    "dns.queried": _DNS,
    "fs.changed": _FS,
    "process.started": _PROCESS,
    "process.exited": _PROCESS,
    "process.audited": _PROCESS,
    "security.rule_matched": _SECURITY,
    "security.decided": _SECURITY,
    "security.asked": _SECURITY,
}
"""What the one pass does with an event of a type."""

FINAL_STOPS: Final = frozenset(("end_turn", "stop", "stop_sequence", "STOP"))
"""Stop reasons by which providers say that the model ended its message by itself, with text."""

Span = dict[str, Any]


class Scan:
    """A turn's events sorted by what reads them, after one pass in order."""

    __slots__ = (
        "call_events",
        "end",
        "failures",
        "first_user",
        "inherited",
        "last_call",
        "last_event",
        "last_request",
        "mentioned",
        "message_count",
        "notes",
        "requests",
        "seen",
        "spans",
        "text_at",
        "text_call",
        "tool_events",
        "wrong",
    )

    def __init__(self, events: Sequence[Event]) -> None:
        self.call_events: list[tuple[int, Event]] = []
        self.tool_events: list[tuple[int, Event]] = []
        self.notes: dict[str, list[tuple[int, Event]]] = {}
        """Events of ``_NOTES`` by type."""
        self.failures: list[Event] = []
        self.seen: list[int] = [0] * (_OTHER + 1)
        """Point events by sort."""
        self.requests: list[Event] = []
        """``net.requested``."""
        self.mentioned: set[str] = set()
        """``model_call_id`` that events name which are no evidence of a call."""
        self.message_count = 0
        """Messages that are not inherited."""
        self.inherited = True
        """All events are."""
        self.end: int | None = None
        """The place of the last ``turn.completed``."""
        self.first_user: Event | None = None
        self.last_call = self.last_request = self.text_at = -1
        """Places of the last event of a model call, of the last tool request, and of the last that shows text of the model."""
        self.text_call: str | None = None
        """The model call that the text came from, where it is named."""
        self.last_event = ""
        """Type of the last event before the turn's end."""
        self.wrong: list[Row] = []
        self.spans: list[Span] = []
        self._read(events)

    def _read(self, events: Sequence[Event]) -> None:
        seen = self.seen
        sort_of = _SORTS.get
        wrong = self.wrong
        call_events, tool_events, mentioned = self.call_events, self.tool_events, self.mentioned
        first = events[0]
        producer, stream, epoch = first.producer, first.stream, first.epoch
        one_stream = first.seq is not None
        inherited = True
        last_event = ""
        for index, event in enumerate(events):
            kind = event.type
            sort = sort_of(kind, _OTHER)
            if one_stream and (
                event.stream != stream
                or event.producer != producer
                or event.epoch != epoch
                or event.seq is None
            ):
                one_stream = False
            if inherited and event.provenance != "inherited":
                inherited = False
            if sort == _CALL:
                call_events.append((index, event))
                if kind == "model_call.completed":
                    self.last_call = index
                    payload = event.payload
                    stop = payload.get("stop_reason")
                    if payload.get("text") or (type(stop) is str and stop in FINAL_STOPS):
                        self.text_at = index
                        self.text_call = event.model_call_id
                elif kind != "usage.reported":
                    self.last_call = index
                    if kind == "model_call.failed":
                        self.failures.append(event)
                last_event = kind
                continue
            name = event.model_call_id
            if name is not None:
                mentioned.add(name)
            if sort == _END:
                self.end = index
                if wrong_fields(event):
                    report_wrong(event, wrong)
                continue
            last_event = kind
            if sort == _TOOL:
                tool_events.append((index, event))
                if kind == "tool_call.requested":
                    self.last_request = index
                continue
            elif sort == _MESSAGE:
                self._message(index, event)
            elif sort == _NOTE:
                self.notes.setdefault(kind, []).append((index, event))
            elif sort != _OTHER:
                seen[sort] += 1
                if sort == _NET:
                    self.requests.append(event)
                continue  # a point event: its row's reader reports what is wrong with it
            if wrong_fields(event):
                report_wrong(event, wrong)
        self.inherited = inherited
        self.last_event = last_event
        if one_stream and first.seq is not None:
            last = events[-1].seq
            self.spans.append(
                _span((producer, epoch, stream), first.seq, first.seq if last is None else last)
            )
        else:
            self.spans.extend(_spans(events))

    def _message(self, index: int, event: Event) -> None:
        if event.provenance != "inherited":
            self.message_count += 1
        payload = event.payload
        role = payload.get("role")
        if role == "assistant":
            if payload.get("text") or _content_text(payload.get("content")):
                self.text_at = index
                self.text_call = event.model_call_id
        elif role == "user" and self.first_user is None and event.tool_call_id is None:
            self.first_user = event


def report_wrong(event: Event, wrong: list[Row]) -> None:
    """``wrong_type_in_payload`` of one event, a finding a field. Point events have readers of their own (``fold.points``)."""
    if event.type in POINT_TYPES:
        return
    for field in wrong_fields(event):
        wrong_type(event, field, wrong)


def _span(stream: StreamKey, least: int, greatest: int) -> Span:
    return {"producer": stream[0], "epoch": stream[1], "stream": stream[2], "from": least, "to": greatest}


def _spans(events: Iterable[Event]) -> list[Span]:
    """From which to which number the turn reaches in each stream, by stream."""
    ends: dict[StreamKey, tuple[int, int]] = {}
    for event in events:
        seq = event.seq
        if seq is None:
            continue
        key = (event.producer, event.epoch, event.stream)
        known = ends.get(key)
        ends[key] = (seq, seq) if known is None else (min(known[0], seq), max(known[1], seq))
    return [
        _span(key, *ends[key])
        for key in sorted(ends, key=lambda key: (key[0].encode(), key[2].encode(), key[1]))
    ]


def enclosed(spans: Sequence[Span], holes: Mapping[StreamKey, Sequence[Hole]]) -> list[Row]:
    """The gaps that a turn's spans enclose (contract 13), by stream and number."""
    found: list[Row] = []
    if not holes:
        return found
    for span in spans:
        least, greatest = span["from"], span["to"]
        for start, stop, state in holes.get((span["producer"], span["epoch"], span["stream"]), ()):
            if least <= start and stop <= greatest:
                found.append(
                    {
                        "producer": span["producer"],
                        "epoch": span["epoch"],
                        "stream": span["stream"],
                        "from_seq": start,
                        "to_seq": stop,
                        "state": state,
                    }
                )
    return found


def grade_of(
    gaps: Sequence[Row], sound: bool, tools: Sequence[Row], usage: Row, usage_gap: bool, counted: bool
) -> str:
    """The worst that holds before conflicts (contract 13).

    ``sound``: the turn has a start and, unless open, an end, and none of its figures is a lower bound.
    """
    for gap in gaps:
        if gap["state"] == "open":
            return "gaps"
    if not sound or usage_gap or usage["reported"] < usage["total"]:
        return "partial"
    for tool in tools:
        if tool["pairing"] == "missing_result" or tool["pairing"] == "orphan_result":
            return "partial"
    return "complete" if counted else "unknown"


def has_usage_gap(findings: Iterable[Row]) -> bool:
    """A finding says that usage was missed or contradicted (contract 8, usage gaps)."""
    return any(one["check"] in USAGE_GAPS for one in findings)


def stop_why(status: str, scan: Scan, tools: Sequence[Row]) -> str:
    """Why a turn stopped: the first that holds (contract 10)."""
    if status == "failed":
        return "failed"
    if status in ("interrupted", "aborted"):
        return "interrupted"
    limits = scan.notes.get("limit.reached")
    if limits is not None and limits[-1][0] > scan.last_call:
        return "limit"
    asked = set()
    for tool in tools:
        if tool["pairing"] in ("pending", "missing_result"):
            return "tool_pending"
        asked.add(tool["requested_by"])
    if "answer.finalized" in scan.notes:
        return "answered"
    if scan.text_at > scan.last_request and scan.text_at >= 0:
        named = scan.text_call
        if named is None or named not in asked:
            return "text_without_tool_call"
    return "unknown"


def call_entry(row: Row, index: int) -> Row:
    """A model call as the record shows it; ownership and cost are laid over it later."""
    entry: Row = {
        "index": index,
        "provider": row["provider"],
        "model": row["model"],
        "status": row["status"],
        "retries": row["retries"],
        "fidelity": row["fidelity"],
        "usage": {
            "input_uncached": row["input_uncached_tokens"],
            "cache_read": row["cache_read_tokens"],
            "cache_write_5m": row["cache_write_5m_tokens"],
            "cache_write_1h": row["cache_write_1h_tokens"],
            "cache_write_other": row["cache_write_other_tokens"],
            "output": row["output_tokens"],
            "reasoning": row["reasoning_tokens"],
            "total_input": row["total_input_tokens"],
        },
    }
    for name in ("model_call_id", "message_id", "stop_reason", "status_code", "latency_ms", "ttft_ms"):
        value = row[name]
        if value is not None:
            entry[name] = value
    return entry


def tool_entry(row: Row) -> Row:
    """A tool call as the record shows it."""
    entry: Row = {
        "tool_name": row["tool_name"],
        "origin": row["origin"],
        "status": row["status"],
        "pairing": row["pairing"],
    }
    value = row["call_id"]
    if value is not None:
        entry["tool_call_id"] = value
    value = row["error_message"]
    if value is not None:
        entry["error"] = value
    for name in ("server_name", "requested_by", "consumed_by", "duration_ms"):
        value = row[name]
        if value is not None:
            entry[name] = value
    return entry


def context_of(rows: Sequence[Row], scan: Scan) -> Row | None:
    """How full the context was: gauges, the greatest counts (contract 8). Peak input stands in where nobody told the context's size."""
    tokens = peak = window = None
    for row in rows:
        value = row["context_tokens"]
        if value is not None and (tokens is None or value > tokens):
            tokens = value
        value = row["peak_input_tokens"]
        if value is not None and (peak is None or value > peak):
            peak = value
        value = row["context_window"]
        if value is not None and (window is None or value > window):
            window = value
    for _, event in scan.tool_events:
        if "context_tokens" in event.payload:
            tokens = _greater(tokens, integer(event, "context_tokens", scan.wrong))
    for _, event in scan.call_events:
        if event.type == "usage.reported":  # running totals and sums of others are in no call's row
            payload = event.payload
            if "peak_input" in payload:
                peak = _greater(peak, integer(event, "peak_input", scan.wrong))
            if "context_window" in payload:
                window = _greater(window, integer(event, "context_window", scan.wrong))
    if tokens is None:
        tokens = peak
    if tokens is None and window is None:
        return None
    context: Row = {}
    if tokens is not None:
        context["tokens"] = tokens
    if window is not None:
        context["window"] = window
        if tokens is not None and window > 0:
            context["used_ppm"] = tokens * 1_000_000 // window
    return context


def _greater(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def user_input(started: Event | None, scan: Scan) -> str | None:
    """The beginning of what the user asked."""
    if started is not None and "input_preview" in started.payload:
        preview = text(started, "input_preview", scan.wrong)
        if preview is not None:
            return preview[:PREVIEW]
    message = scan.first_user
    if message is None:
        return None
    said = message.payload.get("text")
    if type(said) is not str or not said:
        said = _content_text(message.payload.get("content"))
    return said[:PREVIEW] or None


def _content_text(content: Any) -> str:
    """The text of a message's content: a text, or items of type text."""
    if type(content) is str:
        return content
    if type(content) is not list:
        return ""
    texts = [
        item["text"]
        for item in content
        if type(item) is dict and type(item.get("text")) is str and item["text"]
    ]
    return "\n".join(texts)


_FREE: Final = frozenset(("limit.reached", "slot.written", "transition.decided", "state.observed"))


def canonical(record: Row, scan: Scan) -> bytes:
    """The record's canonical JSON. Only what an event says freely (a slot, a candidate, an error) may hold a float."""
    if (
        "errors" in record
        or not _FREE.isdisjoint(scan.notes)
        or ("answer" in record and "value" in record["answer"])
    ):
        return dumps(record)
    return dumps_whole(record)


def add_notes(record: Row, completed: Event | None, scan: Scan) -> None:
    """Add to the record what the rarer events say; each field only when some event says it."""
    notes = scan.notes
    wrong = scan.wrong
    errors: list[Row] = []
    for event in scan.failures:
        error: Row = {"source": "model_call"}
        if event.model_call_id is not None:
            error["model_call_id"] = event.model_call_id
        for name in ("error_class", "message"):
            said = text(event, name, wrong)
            if said is not None:
                error[name] = said
        code = status_code(event, wrong)
        if code is not None:
            error["status_code"] = code
        errors.append(error)
    if completed is not None and completed.payload.get("error") is not None:
        errors.append({"source": "turn", "error": completed.payload["error"]})
    if errors:
        record["errors"] = errors
    if not notes:
        return
    if "answer.finalized" in notes:
        record["answer"] = _answer(notes["answer.finalized"][-1][1], wrong)
    if "limit.reached" in notes:
        record["limits"] = [
            _present(event, ("limit", "value", "threshold")) for _, event in notes["limit.reached"]
        ]
    if "context.compacted" in notes:
        record["compactions"] = [_compaction(event, wrong) for _, event in notes["context.compacted"]]
    truncated: Row = {}
    if "guard.evaluated" in notes:
        guards = notes["guard.evaluated"]
        record["guards_evaluated"] = [
            _present(event, ("guard", "outcome", "reason")) for _, event in guards[:CAP]
        ]
        truncated["guards"] = len(guards) > CAP
    if "transition.decided" in notes:
        event = notes["transition.decided"][-1][1]
        verdict = _present(event, ("state", "verdict"))
        candidates = listed(event, "candidates", wrong)
        if candidates is not None:
            verdict["candidates"] = candidates[:CAP]
        record["verdict"] = verdict
        truncated["candidates"] = candidates is not None and len(candidates) > CAP
    if truncated:
        record["truncated"] = {
            "guards": truncated.get("guards", False),
            "candidates": truncated.get("candidates", False),
        }
    _add_slots(record, notes, wrong)


def _answer(event: Event, wrong: list[Row]) -> Row:
    answer: Row = {}
    payload = event.payload
    if payload.get("value") is not None:
        answer["value"] = payload["value"]
    elif type(payload.get("text")) is str:
        answer["text"] = payload["text"]
    exact = flag(event, "exact", wrong)
    if exact is not None:
        answer["exact"] = exact
    return answer


def _compaction(event: Event, wrong: list[Row]) -> Row:
    entry: Row = {}
    for name in ("tokens_before", "tokens_after"):
        tokens = integer(event, name, wrong)
        if tokens is not None:
            entry[name] = tokens
    strategy = text(event, "strategy", wrong)
    if strategy is not None:
        entry["strategy"] = strategy
    return entry


def _present(event: Event, names: Sequence[str]) -> Row:
    """Payload fields as they are, where they are and their type is right."""
    odd = wrong_fields(event)
    return {
        name: event.payload[name] for name in names if event.payload.get(name) is not None and name not in odd
    }


def _add_slots(record: Row, notes: Mapping[str, Sequence[tuple[int, Event]]], wrong: list[Row]) -> None:
    """Slot changes that events explain, those that none explains, and what the state still requires (contract 10)."""
    written = [event for _, event in notes.get("slot.written", ()) if text(event, "slot", wrong) is not None]
    if written:
        record["slot_diff"] = [
            {
                "slot": event.payload["slot"],
                "old": event.payload.get("old"),
                "new": event.payload.get("new"),
            }
            for event in written
        ]
    before: Event | None = None
    after: Event | None = None
    for _, event in notes.get("state.observed", ()):
        if choice(event, "when", ("before", "after"), wrong) == "before":
            before = before or event
        else:
            after = event
    if after is None:
        return
    now = mapping(after, "slots", wrong) or {}
    if before is not None:
        was = mapping(before, "slots", wrong) or {}
        record["unattributed_diff"] = _unexplained(was, now, written)
    required = listed(after, "required", wrong)
    if required is not None:
        record["required_slots_in_state"] = required
        record["missing_required_slots"] = [
            slot for slot in required if type(slot) is str and now.get(slot) is None
        ]


def _unexplained(was: Mapping[str, Any], now: Mapping[str, Any], written: Sequence[Event]) -> list[Row]:
    """Changes of the snapshot that no event explains, or that came after the last event that does. Absent and null are the same."""
    last: dict[str, Any] = {event.payload["slot"]: event.payload.get("new") for event in written}
    found: list[Row] = []
    for slot in sorted({*was, *now}, key=str.encode):
        old, new = was.get(slot), now.get(slot)
        if _same(old, new):
            continue
        if slot not in last:
            found.append({"slot": slot, "old": old, "new": new})
        elif not _same(last[slot], new):
            found.append({"slot": slot, "old": last[slot], "new": new})
    return found


def _same(one: Any, other: Any) -> bool:
    return dumps(one) == dumps(other)  # as JSON: true is not 1, 1.0 is


def duration_of(started_at: int | None, completed: Event | None, wrong: list[Row]) -> tuple[int, str] | None:
    """(ms, ``reported`` or ``derived``). Instants that run backwards give none."""
    if completed is None:
        return None
    reported = integer(completed, "duration_ms", wrong) if "duration_ms" in completed.payload else None
    if reported is not None:
        return reported, "reported"
    if started_at is None or completed.at is None or completed.at < started_at:
        return None
    return (completed.at - started_at) // 1000, "derived"
