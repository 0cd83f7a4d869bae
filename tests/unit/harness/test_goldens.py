"""Every format's fixtures against figures counted by hand: turns, calls, failed calls, tools, tool errors, tokens by bucket."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import orjson
import pytest

from tests.fixtures.harness import goldens
from tests.fixtures.harness.folded import catalogue
from turnledger.fold.document import document
from turnledger.pricing import price_call

NO = None


@dataclass(frozen=True)
class Golden:
    """What one session of some files holds, counted by hand."""

    files: tuple[str, ...]
    session: str
    turns: str
    """Turn statuses in order, by their first letters; ``-`` for none."""
    calls: int
    failed: int
    tools: int
    tool_errors: int
    tokens: tuple[int | None, ...]
    """input_uncached, cache_read, writes of 5 minutes, 1 hour, unknown life, output, reasoning, total_input."""
    reported: str
    """Parts that reported, of all."""
    denied: int = 0


PI = "0d000000-0000-4000-8000-00000000000"
DSH = "de000000-0000-4000-8000-00000000000"
USER = "11111111-2222-4333-8444-555555555555"
GEMINI = "5c1d0000-0000-4000-8000-000000000001"
STORED = ("opencode/stored-session.json", "opencode/stored-part.json", "opencode/stored-message.json")
GOLDENS = [
    Golden(("claude_code/conversation.jsonl",), "5e551011-0000-4000-8000-000000000001", "c c", 4, 0, 2, 1, (40, 750, 7, 0, 0, 100, NO, 797), "4/4"),
    Golden(("codex/rollout.jsonl",), "019c0de0-0000-7000-8000-000000000001", "c i", 3, 0, 2, 1, (150, 300, NO, NO, NO, 37, 6, 450), "2/2"),
    Golden(("gemini_cli/rewrite-3.json",), GEMINI, "c f o", 4, 1, 3, 1, (417, 190, NO, NO, NO, 75, 15, 607), "3/4", denied=1),
    Golden(("gemini_cli/journal.jsonl",), GEMINI, "o", 3, 0, 2, 1, (127, 290, NO, NO, NO, 39, 5, 417), "3/3"),
    Golden(("qwen_code/chat.jsonl",), "7a000000-0000-4000-8000-000000000002", "c c", 3, 1, 2, 1, (90, 160, NO, NO, NO, 32, 9, 250), "2/3"),
    Golden(("opencode/export.json",), "ses_1f00Aa", "c i", 3, 1, 3, 2, (105, 1400, NO, NO, 1200, 160, 30, 2705), "3/3"),
    Golden(("opencode/database.sql",), "ses_1f00Aa", "c i", 3, 1, 3, 2, (105, 1400, NO, NO, 1200, 160, 30, 2705), "3/3"),
    Golden(STORED, "ses_1f00Aa", "o", 1, 0, 1, 1, (2, 0, NO, NO, 1000, 50, 0, 1002), "1/1"),
    Golden(("copilot_cli/events.jsonl",), "c0000000-0000-4000-8000-000000000003", "c c", 3, 1, 2, 1, (350, 850, NO, NO, 0, 57, NO, 1200), "4/4"),
    Golden(("copilot_cli/stream.jsonl",), "c0000000-0000-4000-8000-000000000004", "c", 1, 0, 0, 0, (30, 50, NO, NO, 0, 6, NO, 80), "1/1"),
    Golden(("openhands/conv-4/events.jsonl",), "conv-4", "c", 3, 0, 2, 1, (230, 90, NO, NO, 0, 39, 4, 320), "2/2"),
    Golden(("openhands/conv-4/events/event-00004-e5.json",), "conv-4", "-", 1, 0, 1, 0, (NO, NO, NO, NO, NO, NO, NO, NO), "0/1"),
    Golden(("openhands/trajectory-9.json",), "trajectory-9", "c", 2, 0, 2, 1, (200, 200, NO, NO, 0, 40, NO, 400), "1/1"),
    Golden(("swe_agent/run.traj",), "shop__shop-12-…", "c", 3, 0, 3, 0, (NO, NO, NO, NO, NO, 60, NO, 900), "1/1"),
    Golden(("swe_agent/mini.traj.json",), "shop__shop-13-…", "f", 2, 0, 2, 1, (160, 140, NO, NO, NO, 30, NO, 300), "2/2"),
    Golden(("pi/session.jsonl",), PI + "5", "c i c", 3, 1, 2, 1, (36, 1040, NO, NO, 540, 150, NO, 1616), "3/3"),
    Golden(("pi/session.jsonl", "pi/branch.jsonl"), PI + "5", "c i c", 3, 1, 2, 1, (36, 1040, NO, NO, 540, 150, NO, 1616), "3/3"),
    Golden(("pi/branch.jsonl", "pi/session.jsonl"), PI + "6", "c", 1, 0, 0, 0, (15, 540, NO, NO, 0, 25, NO, 555), "1/1"),
    Golden(("cline/1772000000000/ui_messages.json",), "1772000000000", "c i", 3, 1, 3, 0, (36, 1700, NO, NO, 900, 90, NO, 2636), "3/3"),
    Golden(("cline/earlier/ui_messages.json",), "earlier", "o", 2, 0, 1, 0, (10, 0, NO, NO, 800, 40, NO, 810), "1/2"),
    Golden(("aider/history.md",), "aider/2026-03-04 10:00:00", "c c", 2, 0, 0, 0, (700, 500, NO, NO, NO, 1044, NO, 11000), "2/2"),
    Golden(("aider/history.md",), "aider/2026-03-04 11:00:00", "o", 1, 0, 0, 0, (NO, NO, NO, NO, NO, 20, NO, 2000), "1/1"),
    Golden(("aider/analytics.jsonl",), USER + "/1772618400", "-", 2, 1, 0, 0, (NO, NO, NO, NO, NO, 1044, NO, 11012), "2/2"),
    Golden(("aider/analytics.jsonl",), USER + "/1772622000", "-", 1, 0, 0, 0, (NO, NO, NO, NO, NO, 20, NO, 2000), "1/1"),
    Golden(("deepseek_harness/session.v3.jsonl",), DSH + "7", "c", 2, 1, 2, 1, (150, 33, NO, NO, 7, 33, 10, 190), "3/3"),
    Golden(("deepseek_harness/session.jsonl",), DSH + "7", "i", 1, 0, 0, 0, (100, 30, NO, NO, 5, 20, 8, 135), "1/1"),
    Golden(("deepseek_harness/session.jsonl", "deepseek_harness/session.v3.jsonl"), DSH + "7", "c", 2, 1, 2, 1, (150, 33, NO, NO, 7, 33, 10, 190), "3/3"),
    Golden(("deepseek_harness/fork.v3.jsonl", "deepseek_harness/session.v3.jsonl"), DSH + "8", "c", 1, 0, 0, 0, (50, 140, NO, NO, NO, 7, NO, 190), "1/1"),
    Golden(("sidecar/run-17.jsonl",), "run-17", "o", 2, 0, 2, 1, (NO, NO, NO, NO, NO, NO, NO, NO), "0/2"),
    Golden(("capsem/vm-6/session.sql",), "vm-6", "c o", 2, 1, 4, 1, (260, 40, NO, NO, NO, 35, 5, 300), "2/2"),
    Golden(("capsem/vm-7/session.sql",), "vm-7", "c c", 3, 1, 2, 0, (40, 300, NO, NO, NO, 25, 0, 340), "2/3"),
]  # fmt: skip
BUCKETS = (
    "input_uncached", "cache_read", "cache_write_5m", "cache_write_1h", "cache_write_other", "output", "reasoning", "total_input",
)  # fmt: skip


@cache
def folded(files: tuple[str, ...]) -> dict[str, Any]:
    """The files folded together."""
    records = [orjson.dumps(event) for name in files for event in goldens.read(name).events]
    return document(records, partial(price_call, catalogue()))


def of_session(found: dict[str, Any], table: str, session: str) -> list[dict[str, Any]]:
    """Rows of one session; a name that ends with ``…`` is the beginning of one."""
    start = session.removesuffix("…")
    return [
        row
        for row in found[table]
        if row["session_id"] == session or (start != session and row["session_id"].startswith(start))
    ]


@pytest.mark.parametrize(
    "golden", GOLDENS, ids=lambda golden: f"{'+'.join(golden.files)}@{golden.session[:12]}"
)
def test_a_fixture_holds_what_was_counted_by_hand(golden: Golden) -> None:
    found = folded(golden.files)
    assert found["records"]["dead"] == found["records"]["conflicts"] == 0
    (session,) = of_session(found, "sessions", golden.session)
    calls = [row for row in of_session(found, "model_calls", golden.session) if not row["inherited"]]
    failed = sum(row["status"] == "failed" for row in calls)
    told = [
        turn
        for turn in of_session(found, "turns", golden.session)
        if turn["round_trips"] or turn.get("user_input")
    ]
    inherited = session["turn_count"] != len(told)
    turns = (
        " ".join(turn["status"][0] for turn in (told[-session["turn_count"] :] if inherited else told)) or "-"
    )
    tools = of_session(found, "tool_calls", golden.session)
    assert (turns, len(calls) - failed, failed) == (golden.turns, golden.calls, golden.failed)
    assert (
        session["total_tool_calls"] or 0,
        session["tool_errors"] or 0,
        sum(row["pairing"] == "denied" for row in tools),
    ) == (
        golden.tools,
        golden.tool_errors,
        golden.denied,
    )
    assert tuple(session[f"{name}_tokens"] for name in BUCKETS) == golden.tokens
    assert f"{session['usage_reported']}/{session['usage_total']}" == golden.reported


@pytest.mark.parametrize("name", goldens.FILES)
def test_a_fixture_is_recognised_by_its_content(name: str) -> None:
    assert goldens.read(name).harness == goldens.HARNESS_OF[name]
