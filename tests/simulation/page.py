"""The page of a campaign (`tests/bench/results/simulation.md`): its figures from counts, what people wrote below them left alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BELOW = "## Mistakes made on purpose"
TRAFFIC = {
    "run: records": "records in the logs",
    "traffic: events": "events generated (distinct)",
    "traffic: duplicates": "sent again",
    "traffic: conflicts": "contradicting",
    "traffic: late": "late",
    "traffic: garbage": "garbage",
    "traffic: two_partitions": "sessions on two partitions",
    "run: workers": "workers started",
    "run: commits": "committed transactions that wrote",
    "run: batches under an older lease": "batches delivered under a lease that was over",
}
ALWAYS = (
    "At every commit as well: offsets, epochs and `flushed_batch` never fall, no batch under an older epoch, no two transactions at one row,"
    " nothing acknowledged before its commit. At the end of every run: no lag, nothing that waits to be",
    "projected or rolled up, all fetched bytes given back, every worker ends.",
)


def renew(page: Path, counted: Mapping[str, Any], beside: str) -> None:
    """Put the figures of ``counted`` (the file of ``--json``) into a page. ``beside``: what else the machine did."""
    below = page.read_text(encoding="utf-8").partition(BELOW)[2]
    page.write_text(head(counted, beside) + BELOW + below, encoding="utf-8")


def head(counted: Mapping[str, Any], beside: str) -> str:
    counts: Mapping[str, int] = counted["counts"]
    seeds, broken = counted["seeds"], counted["broken"]
    verdict = f"These break something: {broken}." if broken else "**Every seed keeps every invariant.**"
    ran = [("seeds", f"{seeds:,}")]
    ran += [(said, f"{counts.get(name, 0):,}") for name, said in TRAFFIC.items()]
    ran.append(("virtual time", f"{counts['run: virtual seconds'] / 3600:.1f} h"))
    faults = _named(counts, "fault: ")
    checked = _named(counts, "checked: ")
    when = time.strftime("%Y-%m-%d")
    lines = [
        "# The simulator: a campaign",
        "",
        f"`make simulate SEEDS={seeds}`, seeds 0 to {seeds - 1}, {when}, {beside} ({counted['seconds']:,} s). {verdict}",
        "",
        *_table(("what ran", "count"), ran),
        f"## Faults that struck, by kind ({sum(faults.values()):,})",
        "",
        *_table(("fault", "times"), [(name, f"{count:,}") for name, count in _most(faults)]),
        "## What was checked",
        "",
        *_table(
            ("invariant: on what", "times"), [(name, f"{count:,}") for name, count in sorted(checked.items())]
        ),
        *ALWAYS,
        "",
        "",
    ]
    return "\n".join(lines[:-1])


def _named(counts: Mapping[str, int], group: str) -> dict[str, int]:
    return {name.removeprefix(group): count for name, count in counts.items() if name.startswith(group)}


def _most(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _table(names: tuple[str, str], rows: list[tuple[str, str]]) -> list[str]:
    return [f"| {names[0]} | {names[1]} |", "|---|---|", *(f"| {name} | {said} |" for name, said in rows), ""]
