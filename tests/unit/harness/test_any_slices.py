"""Any slices, in any order, any number of times: the figures of the whole, no conflict, one digest for one set of slices."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.harness import claude
from tests.fixtures.harness.folded import catalogue
from turnledger.fold.document import document
from turnledger.harness import claude_code
from turnledger.harness.facts import Notes
from turnledger.pricing import price_call

FAILED = {"model": "<synthetic>", "isApiErrorMessage": True}
RETRY = {"error": {"status": 529}, "maxRetries": 2, "retryInMs": 5}
LINES = [
    *claude.conversation(),
    claude.prompt("u3", "s2", 100, "third"),
    claude.answer("b1", "u3", 101, "msg_5", claude.text("hm"), claude.usage(1)),
    claude.answer("b2", "b1", 102, "msg_5", claude.text("done"), claude.usage(6)),
    claude.line("progress", "p1", "b2", 102.1, data={"type": "hook_progress"}),
    claude.system("h1", "p1", 102.2, "stop_hook_summary"),
    claude.system("d1", "h1", 102.3, "turn_duration", durationMs=2300),
    claude.prompt("u4", "d1", 110, "fourth"),
    claude.system("e1", "u4", 111, "api_error", retryAttempt=1, **RETRY),
    claude.system("e2", "e1", 112, "api_error", retryAttempt=2, **RETRY),
    claude.answer("f1", "e2", 113, "x-1", claude.text("API Error: 529"), claude.usage(0), **FAILED),
    claude.system("d2", "f1", 113.1, "turn_duration", durationMs=3100),
    claude.prompt("u5", "d2", 120, "fifth"),
    claude.answer("g1", "u5", 121, "msg_6", claude.tool("toolu_5"), claude.usage(4)),
    claude.prompt("i1", "g1", 122, "[Request interrupted by user]"),
    claude.prompt("u6", "i1", 130, "sixth"),
    claude.answer("k1", "u6", 131, "msg_7", claude.text("bye"), claude.usage(3), stop="end_turn"),
]


def told(lines: list[dict[str, Any]]) -> list[bytes]:
    """The events of one file."""
    return [orjson.dumps(event) for event in claude_code.envelopes(lines, Notes())]


def fold(records: list[bytes]) -> dict[str, Any]:
    return document(records, lambda *a, **k: price_call(catalogue(), *a, **k))


@cache
def whole() -> dict[str, Any]:
    return fold(told(LINES))


FIGURES = (
    "turn_count", "message_count", "model_call_count", "total_tool_calls", "tool_errors", "usage_reported", "usage_total", "input_uncached_tokens",
    "cache_read_tokens", "cache_write_5m_tokens", "output_tokens", "cost_micro_usd",
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_slices_that_cover_the_file_have_the_figures_of_the_whole(data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(LINES) - 1), max_size=4)))
    edges = [0, *cuts, len(LINES)]
    slices = [LINES[start:end] for start, end in pairwise(edges)]
    extra = data.draw(
        st.lists(st.tuples(st.integers(0, len(LINES) - 1), st.integers(1, len(LINES))), max_size=2)
    )
    slices += [LINES[start : start + size] for start, size in extra]
    first = fold([record for part in slices for record in told(part)])
    shuffled = data.draw(st.permutations([*slices, data.draw(st.sampled_from(slices))]))
    again = fold([record for part in shuffled for record in told(list(data.draw(st.permutations(part))))])
    assert again["digest"] == first["digest"]
    assert first["records"]["conflicts"] == again["records"]["conflicts"] == 0
    (ours,), (theirs,) = first["sessions"], whole()["sessions"]
    assert {name: ours[name] for name in FIGURES} == {name: theirs[name] for name in FIGURES}
    assert [turn["turn_key"] for turn in first["turns"]] == ["u1", "u2", "u3", "u4", "u5", "u6"]


def test_an_end_without_its_prompt_says_the_same_with_and_without_the_failure_before_it() -> None:
    first, second, third = (
        LINES[:20],
        LINES[20:],
        LINES[22:],
    )  # between them: `u4` `e1` | `e2` `f1` | `d2` and the rest
    assert [part[0]["uuid"] for part in (second, third)] == ["e2", "d2"]
    found = fold([record for part in (first, second, third) for record in told(part)])
    assert [turn["turn_key"] for turn in found["turns"]] == ["u1", "u2", "u3", "u4", "u5", "u6"]


def test_the_whole_is_what_was_written_down() -> None:
    shown = [(turn["turn_key"], turn["status"], turn["round_trips"]) for turn in whole()["turns"]]
    assert shown == [
        ("u1", "completed", 2),
        ("u2", "completed", 2),
        ("u3", "completed", 1),
        ("u4", "failed", 1),
        ("u5", "interrupted", 1),
        ("u6", "completed", 1),
    ]
    (session,) = whole()["sessions"]
    assert (session["model_call_count"], session["failed_model_calls"], session["output_tokens"]) == (
        8,
        1,
        113,
    )
