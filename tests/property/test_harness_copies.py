"""Every format: earlier copies, later copies and slices of one file, in any order and any number, tell what the whole tells, and contradict it nowhere."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.harness import goldens
from tests.fixtures.harness.folded import catalogue
from tests.property.budget import share
from turnledger.fold.document import document
from turnledger.pricing import price_call

Piece = Callable[[str, int, int], bytes]
"""A file that holds what stands between two places of the whole."""

FIGURES = (
    "turn_count", "model_call_count", "failed_model_calls", "total_tool_calls", "tool_errors", "usage_reported", "usage_total",
    "input_uncached_tokens", "cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens", "cache_write_other_tokens",
    "output_tokens", "reasoning_tokens", "total_input_tokens", "cost_micro_usd", "exec_count", "total_requests", "total_file_events",
)  # fmt: skip


def of_lines(name: str, start: int, end: int) -> bytes:
    """Lines of a file."""
    return b"".join(goldens.content(name).splitlines(keepends=True)[start:end])


def of_messages(*path: str) -> Piece:
    """A document whose list of records holds some of them."""

    def piece(name: str, start: int, end: int) -> bytes:
        whole = json.loads(goldens.content(name))
        holder: dict[Any, Any] = {"": whole}
        for key in ("", *path)[:-1]:
            holder = holder[key]
        last = path[-1] if path else ""
        holder[last] = holder[last][start:end]
        return json.dumps(whole if path else holder[""]).encode()

    return piece


def of_rows(name: str, start: int, end: int) -> bytes:
    """A database with some of the rows; rows keep their numbers."""
    script = (goldens.FOLDER / name).read_text().splitlines()
    rows = [line for line in script if line.startswith("INSERT")]
    connection = sqlite3.connect(":memory:")
    connection.executescript("\n".join([line for line in script if line.startswith("CREATE")]))
    connection.executescript("\n".join(rows[:end]))
    assert start == 0
    connection.commit()
    return connection.serialize()


def size(name: str, piece: Piece) -> int:
    """How many places the whole has."""
    if piece is of_rows:
        return (goldens.FOLDER / name).read_text().count("INSERT")
    if piece is of_lines:
        return len(goldens.content(name).splitlines())
    whole = json.loads(goldens.content(name))
    if isinstance(whole, list):
        return len(whole)
    return max(len(each) for each in whole.values() if isinstance(each, list))


GROWING: dict[str, tuple[Piece, int]] = {
    "claude_code/conversation.jsonl": (of_lines, 1),
    "codex/rollout.jsonl": (of_lines, 1),
    "gemini_cli/rewrite-3.json": (of_messages("messages"), 0),
    "gemini_cli/journal.jsonl": (of_lines, 1),
    "qwen_code/chat.jsonl": (of_lines, 1),
    "opencode/export.json": (of_messages("messages"), 0),
    "opencode/database.sql": (of_rows, 0),
    "copilot_cli/events.jsonl": (of_lines, 1),
    "copilot_cli/stream.jsonl": (of_lines, 1),
    "openhands/conv-4/events.jsonl": (of_lines, 1),
    "openhands/trajectory-9.json": (of_messages(), 1),
    "swe_agent/run.traj": (of_messages("trajectory"), 1),
    "swe_agent/mini.traj.json": (of_messages("messages"), 4),
    "pi/session.jsonl": (of_lines, 1),
    "cline/1772000000000/ui_messages.json": (of_messages(), 1),
    "aider/history.md": (of_lines, 2),
    "aider/analytics.jsonl": (of_lines, 1),
    "deepseek_harness/session.v3.jsonl": (of_lines, 1),
    "deepseek_harness/fork.v3.jsonl": (of_lines, 1),
    "sidecar/run-17.jsonl": (of_lines, 1),
    "capsem/vm-6/session.sql": (of_rows, 0),
    "capsem/vm-7/session.sql": (of_rows, 0),
}
"""How an earlier copy of each file looks, and the least that one holds."""

SLICED = (
    "claude_code/conversation.jsonl",
    "qwen_code/chat.jsonl",
    "copilot_cli/events.jsonl",
    "openhands/conv-4/events.jsonl",
    "pi/session.jsonl",
)
"""Formats whose records have ids of their own: any slices that cover the file will do."""


def told(name: str, content: bytes, session: str | None = None) -> list[bytes]:
    """The events of one file."""
    return [orjson.dumps(event) for event in goldens.read(name, content, session=session).events]


def fold(records: list[bytes]) -> dict[str, Any]:
    return document(records, partial(price_call, catalogue()))


@cache
def whole(name: str) -> dict[str, Any]:
    return fold(told(name, goldens.content(name)))


def figures(found: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What nobody may count differently, by session."""
    return [(row["session_id"], *(row[name] for name in FIGURES)) for row in found["sessions"]]


@pytest.mark.parametrize("name", GROWING)
@share(8)
@given(data=st.data())
def test_earlier_copies_change_nothing_in_any_order_and_number(name: str, data: st.DataObject) -> None:
    piece, least = GROWING[name]
    ends = data.draw(st.lists(st.integers(least, size(name, piece)), max_size=4))
    copies = [goldens.content(name), *(piece(name, 0, end) for end in ends)]
    first = fold([record for copy in copies for record in told(name, copy)])
    shuffled = data.draw(st.permutations([*copies, data.draw(st.sampled_from(copies))]))
    again = fold([record for copy in shuffled for record in told(name, copy)])
    assert again["digest"] == first["digest"]
    assert first["records"]["conflicts"] == again["records"]["conflicts"] == first["records"]["dead"] == 0
    assert figures(first) == figures(whole(name))


@pytest.mark.parametrize("name", SLICED)
@share(8)
@given(data=st.data())
def test_slices_that_cover_a_file_have_its_figures_in_any_order(name: str, data: st.DataObject) -> None:
    places = size(name, of_lines)
    cuts = sorted(data.draw(st.sets(st.integers(1, places - 1), max_size=3)))
    edges = [0, *cuts, places]
    session = whole(name)["sessions"][0]["session_id"]
    slices = [of_lines(name, start, end) for start, end in pairwise(edges)]
    first = fold([record for part in slices for record in told(name, part, session)])
    shuffled = data.draw(st.permutations([*slices, data.draw(st.sampled_from(slices))]))
    again = fold([record for part in shuffled for record in told(name, part, session)])
    assert again["digest"] == first["digest"]
    assert first["records"]["conflicts"] == again["records"]["conflicts"] == 0
    assert figures(first) == figures(whole(name))


@pytest.mark.parametrize("name", GROWING)
def test_a_file_read_twice_is_told_twice_alike(name: str) -> None:
    content = goldens.content(name)
    assert told(name, content) == told(name, content)
    twice = fold([*told(name, content), *told(name, content)])
    assert twice["records"]["duplicates"] == twice["records"]["accepted"]
    assert twice["digest"] == whole(name)["digest"]


REWRITES = (
    ("gemini_cli/rewrite-1.json", "gemini_cli/rewrite-2.json", "gemini_cli/rewrite-3.json"),
    ("opencode/export-earlier.json", "opencode/export.json"),
    ("opencode/stored-message.json", "opencode/stored-part.json", "opencode/stored-session.json", "opencode/export.json"),
    ("opencode/database.sql", "opencode/export.json"),
    ("openhands/trajectory-9-earlier.json", "openhands/trajectory-9.json"),
    ("openhands/conv-4/events/event-00004-e5.json", "openhands/conv-4/events.jsonl"),
    ("swe_agent/run-earlier.traj", "swe_agent/run.traj"),
    ("deepseek_harness/session.jsonl", "deepseek_harness/session.v3.jsonl"),
)  # fmt: skip
"""What a harness wrote of one session, the last one being the whole."""


@pytest.mark.parametrize("names", REWRITES, ids=lambda names: names[0])
def test_a_file_replaced_under_the_same_name_is_the_same_session(names: tuple[str, ...]) -> None:
    session = "trajectory-9" if "trajectory" in names[0] else None
    parts = [told(name, goldens.content(name), session) for name in names]
    forward = fold([record for part in parts for record in part])
    backward = fold([record for part in reversed(parts) for record in part])
    assert forward["digest"] == backward["digest"]
    assert forward["records"]["conflicts"] == 0
    assert figures(forward) == figures(whole(names[-1]))
