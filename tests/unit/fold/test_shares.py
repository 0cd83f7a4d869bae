"""Shares of a session's sums: however its turns are grouped, and whatever was kept as text between, all of them together are the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnledger.fold.dedupe import dedupe
from turnledger.fold.document import session_rows
from turnledger.fold.rollup import SessionRollup, SessionRows, part_of, roll_up, whole
from turnledger.fold.session import fold_session
from turnledger.fold.shares import SECTIONS, Share, load, merged
from turnledger.pricing import packaged, price_call

PRICE = partial(price_call, packaged())
GREAT = 2**63 - 1

known = st.one_of(st.none(), st.integers(0, GREAT))
texts = st.one_of(st.none(), st.text(max_size=4))


@st.composite
def shares(draw: Callable[[Any], Any]) -> Share:
    share = Share()
    for section, nothing in SECTIONS.items():
        for _ in range(draw(st.integers(0, 3))):
            key = draw(st.tuples(st.one_of(st.none(), st.integers(-5, 5)), texts, texts))
            vector = [draw(known) if zero is None else draw(st.integers(0, GREAT)) for zero in nothing]
            share.add(section, key, vector)
    return share


@settings(max_examples=25)
@given(st.lists(shares(), min_size=1, max_size=4), st.integers(0, 3))
def test_grouping_order_and_text_between_change_nothing(members: list[Share], cut: int) -> None:
    straight = merged(members).dump()
    assert merged(reversed(members)).dump() == straight
    assert merged([merged(members[:cut]), merged(members[cut:])]).dump() == straight
    assert merged(load(member.dump()) for member in members).dump() == straight


def test_what_nobody_told_stays_unknown_and_zero_is_something() -> None:
    share = Share()
    share.add("ai", ("p", "m"), [1, 0, None, 0])
    share.add("ai", ("p", "m"), [1, 1, None, None])
    assert share.sums["ai"]["p", "m"][:4] == [2, 1, None, 0]


def test_no_digit_is_lost_beyond_eight_bytes_until_the_end() -> None:
    one, other = Share(), Share()
    for share in (one, other):
        share.add("session", (), [GREAT])
    assert load(merged([one, other]).dump()).whole()[0] == 2 * GREAT


def session(turns: int) -> SessionRows:
    """A session of so many turns, and calls and tools outside of them; some fail, some are copies, some have no price or no time."""
    records: list[dict[str, Any]] = []

    def add(kind: str, turn: int | None, **payload: Any) -> None:
        record = {"session_id": "s", "seq": len(records), "type": kind, "payload": payload}
        if turn is not None:
            record["turn_id"] = f"t{turn}"
            record["occurred_at"] = f"2026-05-01T{turn % 24:02d}:00:00Z"
        for name in ("tool_call_id", "model_call_id", "provenance"):
            if name in payload:
                record[name] = payload.pop(name)
        records.append(record)

    for turn in (*range(turns), None):
        if turn is not None:
            add("turn.started", turn)
        usage = {"input": 10 + (turn or 0), "cache_read": turn, "output": 3}
        model = ("claude-opus-4-5", "unheard-of")[(turn or 0) % 2]
        add("model_call.completed", turn, provider="anthropic", model=model, usage=usage, latency_ms=5)
        add("model_call.failed", turn, provider="anthropic", error_class="timeout", model_call_id=f"f{turn}")
        add(
            "tool_call.requested",
            turn,
            tool_name=f"tool{(turn or 0) % 3}",
            server_name="srv",
            tool_call_id=f"x{turn}",
        )
        if (turn or 0) % 4 == 0:
            add(
                "model_call.completed",
                turn,
                provider="anthropic",
                message_id=f"c{turn}",
                usage=usage,
                provenance="inherited",
            )
        if turn is not None and turn % 3:
            add("turn.completed", turn, status="completed")
    ((_, events),) = dedupe(enumerate((json.dumps(one).encode() for one in records), 1)).sessions.items()
    return session_rows(fold_session("default", "s", events), [], 0)


def same(one: SessionRollup, other: SessionRollup) -> None:
    for name in ("session", "ai_usage", "tool_usage", "mcp_usage", "hour_parts", "turns", "findings"):
        assert getattr(one, name) == getattr(other, name), name
    for name in ("calls", "parts"):
        texts = [sorted(map(str, getattr(rollup, name))) for rollup in (one, other)]
        assert texts[0] == texts[1], name


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_a_session_by_blocks_of_turns_is_the_session_as_one(size: int) -> None:
    rows = session(12)

    copied = {call["call_key"] for call in rows.calls if call["message_id"] in ("c4", "cNone")}

    def owner(call_key: str) -> str:
        return "elsewhere" if call_key in copied else "s"

    keys = [turn["turn_key"] for turn in rows.turns]
    blocks = [set(keys[at : at + size]) for at in range(0, len(keys), size)]
    parts = [
        part_of(
            replace(
                rows,
                turns=[turn for turn in rows.turns if turn["turn_key"] in block],
                calls=[call for call in rows.calls if call["turn_key"] in block],
                tools=[tool for tool in rows.tools if tool["turn_key"] in block],
                contributions=[part for part in rows.contributions if part["turn_key"] in block],
            ),
            owner,
            PRICE,
        )
        for block in (*blocks, {None})
    ]
    expected = roll_up(rows, owner, PRICE)
    same(whole(rows, merged(load(part.share.dump()) for part in parts), parts), expected)
    assert expected.session["inherited_usage"] is not None
    assert expected.session["unpriced_calls"] > 0
    assert len(expected.hour_parts) > 10
