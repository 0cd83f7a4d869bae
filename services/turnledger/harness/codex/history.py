"""Owns where a Codex rollout stops being a copy of another thread's history and becomes its own.

A fork or a spawned sub-agent begins its file with the parent's records, written again in one burst with new times, often followed by a count
that repeats the parent's total with a zero ``last``. None of that is the child's work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnledger.contract.times import instant
from turnledger.harness.facts import count, identifier, mapping, moment
from turnledger.harness.reading import Record

BURST_US = 1_000_000
"""Records of one burst follow each other within milliseconds; a model's first answer takes longer than this."""

COUNTERS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cached_input_tokens",
    "cache_write": "cache_write_input_tokens",
    "reasoning": "reasoning_output_tokens",
    "total": "total_tokens",
}


_FIELDS = tuple(COUNTERS.items())


def counters(value: Any) -> dict[str, int]:
    """The known counters of a Codex usage object under the contract's names."""
    usage = mapping(value)
    found: dict[str, int] = {}
    for name, field in _FIELDS:
        said = usage.get(field)
        if said is not None and (known := count(said)) is not None:
            found[name] = known
    return found


def payload_of(record: Record) -> Mapping[str, Any]:
    """The payload of a rollout line."""
    return mapping(record.value.get("payload"))


def kind_of(record: Record) -> str | None:
    """``type`` of the line, with the payload's own type behind a slash where it has one."""
    kind, payload = record.value.get("type"), record.value.get("payload")
    if type(kind) is not str:
        return None
    inner = payload.get("type") if type(payload) is dict else None
    return f"{kind}/{inner}" if type(inner) is str else kind


def parent_of(meta: Mapping[str, Any]) -> str | None:
    """The thread that spawned this one."""
    subagent = mapping(mapping(meta.get("source")).get("subagent"))
    spawn = mapping(subagent.get("thread_spawn"))
    return identifier(spawn.get("parent_thread_id")) or identifier(meta.get("parent_thread_id"))


def is_child(meta: Mapping[str, Any]) -> bool:
    """Whether the header says that the thread began as another one's."""
    return identifier(meta.get("forked_from_id")) is not None or parent_of(meta) is not None


def outlined(record: Record) -> Record:
    """What ``own_from`` looks at of a record, without its texts."""
    kept = {name: record.value.get(name) for name in ("type", "timestamp")}
    payload = payload_of(record)
    kept["payload"] = {name: payload[name] for name in ("type", "id", "turn_id", "info") if name in payload}
    return Record(record.number, record.offset, kept)


def own_from(records: Sequence[Record], meta: Mapping[str, Any]) -> int:
    """Index of the first record behind the copied history; 0 where nothing was copied."""
    thread = meta.get("id")
    foreign = [
        place
        for place, record in enumerate(records)
        if kind_of(record) == "session_meta" and payload_of(record).get("id") not in (None, thread)
    ]
    baseline = _baseline(records) if foreign or is_child(meta) else None
    if not foreign and baseline is None:
        return 0
    marker = max([*foreign[-1:], *([baseline] if baseline is not None else [])])
    end = _burst_end(records, marker)
    open_turns: dict[str, int] = {}
    for place in range(end):
        turn = identifier(payload_of(records[place]).get("turn_id"))
        kind = kind_of(records[place])
        if turn is not None and kind in ("event_msg/task_started", "event_msg/turn_started", "turn_context"):
            open_turns.setdefault(turn, place)
        elif turn is not None and kind in (
            "event_msg/task_complete",
            "event_msg/turn_complete",
            "event_msg/turn_aborted",
        ):
            open_turns.pop(turn, None)
    # A turn that the burst opens and does not close is the child's first: its prompt came with the spawn.
    first = min(open_turns.values(), default=end)
    return first if baseline is None or first > baseline else max(end, baseline + 1)


def _baseline(records: Sequence[Record]) -> int | None:
    """The first count, if it repeats a total without a request of its own."""
    for place, record in enumerate(records):
        info = mapping(payload_of(record).get("info"))
        if kind_of(record) == "event_msg/token_count" and any(
            counters(info.get("total_token_usage")).values()
        ):
            last = counters(info.get("last_token_usage"))
            return place if last and not any(last.values()) else None
    return None


def _burst_end(records: Sequence[Record], marker: int) -> int:
    before: int | None = None
    for place, record in enumerate(records):
        text = moment(record.value.get("timestamp"))
        at = instant(text) if text is not None else None
        if place > marker and before is not None and at is not None and at - before >= BURST_US:
            return place
        before = at if at is not None else before
    return len(records)
