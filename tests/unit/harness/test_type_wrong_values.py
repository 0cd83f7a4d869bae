"""Whatever type a field of a session file has, the file goes on and every event is one that the ledger accepts."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from tests.fixtures.harness import claude, codex
from turnledger.contract.reader import Rejected, read
from turnledger.harness import claude_code
from turnledger.harness import codex as codex_reader
from turnledger.harness.facts import Notes
from turnledger.harness.reading import Record

ODD: tuple[Any, ...] = (
    None, True, -1, 12.5, 10**30, "", "[REDACTED]", "nul\x00 and \ud800", "x" * 600, "\U0001f600" * 120, [], [1], {}, {"a": {"b": 1}}, [[{"type": "text"}]],
)  # fmt: skip


def deep(levels: int) -> Any:
    """A value nested so deep that a record that took it over would be refused."""
    value: Any = 1
    for _ in range(levels):
        value = {"d": [value]}
    return value


EMBEDDED = claude.answer("x", None, 74, "msg_x", claude.tool("toolu_x"), claude.usage(1))
FAILED = {"model": "<synthetic>", "isApiErrorMessage": True}
CLAUDE = [
    *claude.conversation(),
    claude.system(
        "e1", "s2", 70, "api_error", error={"status": 529}, retryAttempt=1, maxRetries=3, retryInMs=5
    ),
    claude.system(
        "c1", None, 71, "compact_boundary", logicalParentUuid="s2", compactMetadata={"preTokens": 9}
    ),
    claude.answer("a9", "e1", 72, "id", claude.text("API Error: 500"), claude.usage(0), **FAILED),
    claude.result("r9", "a9", 73, "toolu_9", "done", toolUseResult={"agentId": "aa", "totalDurationMs": 5}),
    claude.line(
        "progress",
        "p1",
        "a9",
        74,
        parentToolUseID="toolu_9",
        data={"type": "agent_progress", "agentId": "aa", "message": EMBEDDED},
    ),
]
MCP = {
    "call_id": "c",
    "invocation": {"server": "s", "tool": "t"},
    "duration": {"secs": 1, "nanos": 2},
    "result": {"Ok": {"is_error": True}},
}
CODEX = [
    *codex.rollout(),
    codex.line("compacted", 30, message="short", replacement_history=[]),
    codex.line("token_usage_record", 31, turn_id="turn-b", response_id="resp_1", usage=codex.used(1, 2)),
    codex.event("mcp_tool_call_end", 32, **MCP),
    codex.item("web_search_call", 33, status="completed", action={"query": "q"}),
    codex.event("item_completed", 34, item={"type": "AgentMessage", "text": "x"}),
    codex.event("token_count", 35, info=None, rate_limits={"primary": {"used_percent": 100}}),
    codex.event("collab_agent_spawn_end", 36, call_id="c", new_thread_id="n", new_agent_role="r"),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside a record."""
    if path:
        yield path
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for name, each in children:
        yield from places(each, (*path, name))


def changed(record: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy of the record with one value replaced."""
    result = copy.deepcopy(record)
    at: Any = result
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    return result


def refused(events: Iterator[dict[str, Any]]) -> list[tuple[Any, str]]:
    """Events that the ledger would make dead letters of."""
    return [
        (answer, event["type"])
        for event in events
        if isinstance(answer := read(orjson.dumps(event)), Rejected)
    ]


@pytest.mark.parametrize("number", range(len(CLAUDE)))
def test_claude_code_stays_readable_whatever_a_field_holds(number: int) -> None:
    for path in places(CLAUDE[number]):
        for value in (*ODD, deep(150)):
            lines = [*CLAUDE[:number], changed(CLAUDE[number], path, value), *CLAUDE[number + 1 :]]
            near = lines[max(0, number - 2) : number + 3]  # its neighbours see it through the chain
            assert refused(claude_code.envelopes(near, Notes())) == [], (path, value)


@pytest.mark.parametrize("number", range(len(CODEX)))
def test_codex_stays_readable_whatever_a_field_holds(number: int) -> None:
    for path in places(CODEX[number]):
        for value in (*ODD, deep(150)):
            lines = [CODEX[0], *CODEX[max(1, number - 2) : number + 3]]
            place = lines.index(CODEX[number])
            lines[place] = changed(CODEX[number], path, value)
            records = [Record(at, 0, line) for at, line in enumerate(lines)]
            assert refused(codex_reader.envelopes(records, Notes())) == [], (path, value)
