"""`python -m turnledger.harness.samples DIR`: what each harness file below DIR holds, through the real fold, beside the sum of a reader who adds every line.

With a ``reference.json`` in DIR (figures by relative path that somebody counted independently) it says for each file whether they are equal.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from turnledger.errors import TurnledgerError
from turnledger.fold.document import document
from turnledger.harness.facts import count
from turnledger.harness.importer import FileReading, files_in, read_file
from turnledger.harness.sources import Source
from turnledger.pricing import packaged, price_call

Names = tuple[tuple[tuple[str, ...], str], ...]
"""(our buckets, their counters joined by ``+``): whose sums must be equal."""

CLAUDE: Names = (
    (("input_uncached",), "input_tokens"),
    (("cache_read",), "cache_read_input_tokens"),
    (("cache_write",), "cache_creation_input_tokens"),
    (("output",), "output_tokens"),
)
CODEX: Names = (
    (("total_input",), "input_tokens"),
    (("cache_read",), "cached_input_tokens"),
    (("output",), "output_tokens"),
    (("reasoning",), "reasoning_output_tokens"),
)
OTHERS: tuple[tuple[str, Names], ...] = (
    (
        "sum",
        (
            (("total_input",), "input"),
            (("cache_read",), "cached"),
            (("output",), "output+thoughts"),
            (("reasoning",), "thoughts"),
        ),
    ),
    (
        "sum_message_tokens",
        (
            (("input_uncached",), "input"),
            (("cache_read",), "cache_read"),
            (("cache_write",), "cache_write"),
            (("output",), "output+reasoning"),
        ),
    ),
    (
        "usage_sum",
        (
            (("input_uncached",), "input"),
            (("cache_read",), "cacheRead"),
            (("cache_write",), "cacheWrite"),
            (("output",), "output"),
        ),
    ),
    (
        "assistant_usage_sum",
        (
            (("total_input",), "promptTokenCount"),
            (("cache_read",), "cachedContentTokenCount"),
            (("output",), "candidatesTokenCount"),
            (("reasoning",), "thoughtsTokenCount"),
        ),
    ),
    ("model_stats", ((("total_input",), "tokens_sent"), (("output",), "tokens_received"))),
)
NAIVE = {
    "input": frozenset(
        {
            "input",
            "input_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
            "promptTokenCount",
            "input_token_count",
            "prompt_tokens",
            "inputTokens",
            "tokensIn",
            "tokens_sent",
            "read",
            "write",
            "cacheRead",
        }
    ),
    "output": frozenset(
        {
            "output",
            "output_tokens",
            "candidatesTokenCount",
            "output_token_count",
            "completion_tokens",
            "outputTokens",
            "tokensOut",
            "tokens_received",
        }
    ),
}
TOTALS = frozenset({"total_token_usage", "thread_token_usage", "turn_token_usage", "iterations"})
"""Running totals, and what a message says once more in parts: not even a naive reader adds those."""
WRITES = ("cache_write_5m", "cache_write_1h", "cache_write_other")
SHOWN = (
    "calls",
    "failed",
    "tools",
    "total_input",
    "input_uncached",
    "cache_read",
    "cache_write",
    "output",
    "reasoning",
)
HEADS = (
    "file",
    "calls",
    "failed",
    "tools",
    "all input",
    "uncached",
    "read",
    "written",
    "output",
    "reasoning",
    "naive in",
    "naive out",
    "reference",
)


def figures(reading: FileReading) -> dict[str, int | None]:
    """Calls that did not fail, failed ones, tool calls, and the sums by bucket over all sessions of one file; None where nothing was reported."""
    found = document((orjson.dumps(event) for event in reading.events), partial(price_call, packaged()))
    calls, sessions = found["model_calls"], found["sessions"]
    failed = sum(call["status"] == "failed" for call in calls)

    def total(name: str) -> int | None:
        known = [row[f"{name}_tokens"] for row in sessions if row[f"{name}_tokens"] is not None]
        return sum(known) if known else None

    names = ("input_uncached", "cache_read", *WRITES, "output", "reasoning", "total_input")
    sums = {name: total(name) for name in names}
    written = [sums[name] for name in WRITES if sums[name] is not None]
    return {
        "calls": len(calls) - failed,
        "failed": failed,
        "tools": sum(row["total_tool_calls"] or 0 for row in sessions),
        **sums,
        "cache_write": sum(filter(None, written)) if written else None,
    }


def naive(path: Path) -> tuple[int, int] | None:
    """(input, output) of a reader who adds whatever looks like usage, wherever it stands: what turnledger must not say. None for a database."""
    source = Source(path)
    if source.is_database():
        return None
    total: Counter[str] = Counter()
    values: list[Any] = [record.value for record in source.records()]
    document = source.document() if not values else None
    for value in values or ([document.whole()] if document is not None else []):
        _add(value, total)
    return total["input"], total["output"]


def _add(value: Any, total: Counter[str]) -> None:
    if isinstance(value, list):
        for each in value:
            _add(each, total)
    elif isinstance(value, dict):
        for name, each in value.items():
            for side, names in NAIVE.items():
                if name in names:
                    total[side] += count(each) or 0
            if name not in TOTALS:
                _add(each, total)


def differences(found: dict[str, int | None], expected: dict[str, Any]) -> list[str]:
    """What differs from the reference, as ``name ours≠theirs``."""
    pairs: list[tuple[str, int | None, int | None]] = []
    for label, names in (("delta_sum", CODEX), ("final_total", CODEX), ("dedup_sum", CLAUDE), *OTHERS):
        sums = expected.get(label)
        if isinstance(sums, dict) and sums:
            pairs += [
                (
                    f"{label} {theirs}",
                    sum(found[name] or 0 for name in ours),
                    sum(sums.get(one) or 0 for one in theirs.split("+")),
                )
                for ours, theirs in names
            ]
    if "dedup_sum" in expected:
        pairs += [
            (name, found[name], expected.get(f"dedup_{name}"))
            for name in ("cache_write_5m", "cache_write_1h")
        ]
        pairs.append(("api_error_lines", found["failed"], expected.get("api_error_lines")))
    for label in ("model_calls", "assistant_messages", "steps"):
        if label in expected:
            failed = found["failed"] if "stop_reasons" in expected else 0
            pairs.append((label, (found["calls"] or 0) + (failed or 0), expected[label]))
    if "tool_calls" in expected:
        pairs.append(("tool_calls", found["tools"], expected["tool_calls"]))
    return [f"{name} {ours}≠{theirs}" for name, ours, theirs in pairs if (ours or 0) != (theirs or 0)]


def table(folder: Path) -> tuple[list[tuple[str, ...]], int]:
    """Rows under ``HEADS``, and how many of them differ from the reference."""
    reference: dict[str, Any] = {}
    if (folder / "reference.json").is_file():
        reference = orjson.loads((folder / "reference.json").read_bytes())
    rows, wrong = [], 0
    for path in files_in([folder]):
        reading = read_file(path)
        if reading.harness is None:
            continue
        name = path.relative_to(folder).as_posix() if folder in path.parents else path.name
        found = figures(reading)
        added = naive(path)
        verdict = "–"
        if name in reference:
            differing = differences(found, reference[name])
            wrong += bool(differing)
            verdict = f"DIFFERENT: {', '.join(differing)}" if differing else "equal"
        shown = [found[key] for key in SHOWN]
        cells = ["–" if value is None else f"{value:,}" for value in (*shown, *(added or (None, None)))]
        rows.append((name, *cells, verdict))
    return rows, wrong


def main(arguments: list[str]) -> int:
    """Print the table; 1 when a file differs from the reference, 2 when the folder cannot be read."""
    if len(arguments) != 1:
        print("usage: python -m turnledger.harness.samples DIR", file=sys.stderr)
        return 2
    try:
        rows, wrong = table(Path(arguments[0]))
    except TurnledgerError as error:
        print(f"turnledger: {error}", file=sys.stderr)
        return 2
    widths = [max(len(row[at]) for row in (HEADS, *rows)) for at in range(len(HEADS))]
    for row in (HEADS, *rows):
        cells = [
            cell.ljust(width) if at in (0, len(HEADS) - 1) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    print(f"{len(rows)} files of known harnesses, {wrong} different from the reference")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
