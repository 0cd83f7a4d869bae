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
from turnledger.harness.facts import count, mapping
from turnledger.harness.importer import files_in, harness_of, read_file
from turnledger.harness.reading import Condition, records_of
from turnledger.pricing import packaged, price_call

CLAUDE = {
    "input_tokens": "input_uncached",
    "cache_read_input_tokens": "cache_read",
    "cache_creation_input_tokens": "cache_write",
    "output_tokens": "output",
}
CODEX = {
    "input_tokens": "total_input",
    "cached_input_tokens": "cache_read",
    "output_tokens": "output",
    "reasoning_output_tokens": "reasoning",
}
WRITES = ("cache_write_5m", "cache_write_1h", "cache_write_other")
HEADS = (
    "file",
    "calls",
    "failed",
    "input",
    "read",
    "written",
    "output",
    "reasoning",
    "naive in",
    "naive out",
    "reference",
)


def figures(path: Path) -> dict[str, int | None]:
    """Calls that did not fail, failed ones, and the sums by bucket over all sessions of one file; None where nothing was reported."""
    reading = read_file(path)
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
        **sums,
        "cache_write": sum(filter(None, written)) if written else None,
    }


def naive(path: Path) -> tuple[int, int]:
    """(input, output) of a reader who adds the usage of every line: what turnledger must not say."""
    total: Counter[str] = Counter()
    for record in records_of(path, Condition()):
        usage = mapping(mapping(record.value.get("message")).get("usage"))
        if record.value.get("type") == "event_msg":
            info = mapping(mapping(record.value.get("payload")).get("info"))
            usage = mapping(info.get("last_token_usage"))
        for name in (
            "input_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
            "output_tokens",
        ):
            total[name] += count(usage.get(name)) or 0
    output = total.pop("output_tokens", 0)
    return sum(total.values()), output


def differences(found: dict[str, int | None], expected: dict[str, Any]) -> list[str]:
    """What differs from the reference, as ``name ours≠theirs``."""
    pairs: list[tuple[str, int | None, int | None]] = []
    if "dedup_sum" in expected:
        pairs += [(name, found[ours], expected["dedup_sum"].get(name)) for name, ours in CLAUDE.items()]
        pairs += [
            (name, found[name], expected.get(f"dedup_{name}"))
            for name in ("cache_write_5m", "cache_write_1h")
        ]
        pairs.append(("model_calls", found["calls"], expected.get("model_calls")))
        pairs.append(("api_error_lines", found["failed"], expected.get("api_error_lines")))
    elif "delta_sum" in expected:
        for label in ("delta_sum", "final_total"):
            sums = expected.get(label)
            if sums is not None:
                pairs += [(f"{label} {name}", found[ours], sums.get(name)) for name, ours in CODEX.items()]
    return [f"{name} {ours}≠{theirs}" for name, ours, theirs in pairs if (ours or 0) != (theirs or 0)]


def table(folder: Path) -> tuple[list[tuple[str, ...]], int]:
    """Rows under ``HEADS``, and how many of them differ from the reference."""
    reference: dict[str, Any] = {}
    if (folder / "reference.json").is_file():
        reference = orjson.loads((folder / "reference.json").read_bytes())
    rows, wrong = [], 0
    for path in files_in([folder]):
        if harness_of(record.value for record in records_of(path, Condition())) is None:
            continue
        name = path.relative_to(folder).as_posix() if folder in path.parents else path.name
        found = figures(path)
        added = naive(path)
        verdict = "–"
        if name in reference:
            differing = differences(found, reference[name])
            wrong += bool(differing)
            verdict = f"DIFFERENT: {', '.join(differing)}" if differing else "equal"
        shown = [
            found[key]
            for key in (
                "calls",
                "failed",
                "input_uncached",
                "cache_read",
                "cache_write",
                "output",
                "reasoning",
            )
        ]
        cells = ["–" if value is None else f"{value:,}" for value in (*shown, *added)]
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
