"""`python -m tests.bench.adapters [FORMAT…] [--size MB] [--profile]`: how fast each reader is on a file made by repetition, and whether it holds it.

Each file repeats its format's fixtures with new ids and later days, its texts as long as real ones (the lines of the two big formats are
1.7 KB on average, as in the sample files). The reader streams it; what is measured is reading alone: bytes in, events out, nothing folded
or written. Each file is read in a process of its own, so that peak memory is that file's: once at full size and once at a part of it, and a
reader is flat where the two peaks are equal but for noise. Without arguments it measures all formats at 200 MB and writes the table of
``results/adapters.md``; what stands there in words it leaves alone.
"""

from __future__ import annotations

import argparse
import cProfile
import datetime
import json
import os
import platform
import pstats
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fixtures.harness import goldens
from turnledger.harness.importer import FileReading, told
from turnledger.harness.sources import Source

LINES = {
    "claude-code": "claude_code/conversation.jsonl",
    "codex": "codex/rollout.jsonl",
    "qwen-code": "qwen_code/chat.jsonl",
    "copilot-cli": "copilot_cli/events.jsonl",
    "openhands": "openhands/conv-4/events.jsonl",
    "pi": "pi/session.jsonl",
    "deepseek-harness": "deepseek_harness/session.v3.jsonl",
    "sidecar": "sidecar/run-17.jsonl",
    "aider": "aider/analytics.jsonl",
}
DOCUMENTS = {
    "gemini-cli": ("gemini_cli/rewrite-3.json", ("messages",)),
    "opencode": ("opencode/export.json", ("messages",)),
    "swe-agent": ("swe_agent/run.traj", ("trajectory", "history")),
    "cline": ("cline/1772000000000/ui_messages.json", ()),
}
"""Fixture, and the lists of it that are repeated: the document itself where it is one."""
DATABASES = {"capsem": "capsem/vm-7/session.sql"}
SIZE = 200
"""MB of a file."""
PART = 0.15
"""Of that in the file whose peak is laid beside."""
NOISE = 8
"""MiB by which two peaks of a flat reader may differ."""
RESULT = Path(__file__).parent / "results" / "adapters.md"
MEASURED = ("<!-- measured -->", "<!-- /measured -->")
"""Around what this command writes into the page."""
PADDED = {
    "text": 1400,
    "content": 3000,
    "output": 5200,
    "message": 1600,
    "arguments": 1500,
    "input": 1500,
    "observation": 2600,
    "thought": 700,
    "response": 700,
    "summary": 900,
    "text_content": 1400,
    "request_headers": 500,
    "response_headers": 500,
    "content_preview": 1400,
    "command": 200,
    "stdout_preview": 700,
}
"""Characters that a text field gets beside its own, so that records are as long as real ones."""
IDS = frozenset(
    {
        "uuid", "parentUuid", "id", "parentId", "turn_id", "call_id", "callID", "tool_use_id", "toolCallId", "messageID", "parentID",
        "interactionId", "messageId", "apiCallId", "tool_call_id", "action_id", "llm_response_id", "response_id", "callId", "responseId",
    }
)  # fmt: skip
FILLER = "the quick brown fox jumps over the lazy dog; "
ROUND, DAY = "@@round@@", "@@day@@"
"""What stands in a template for the number of the round and for its day."""
_DAY = re.compile(r"^2026-\d\d-\d\dT")
_RISING = re.compile(rb'"@@(\d+)\+(\d+)@@"')


def template(value: Any, key: str = "") -> Any:
    """A record in which ids and days wait for their round, its texts as long as real ones."""
    if isinstance(value, dict):
        return {name: template(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [template(each, key) for each in value]
    if isinstance(value, str):
        if key in IDS:
            return f"{value}-{ROUND}"
        if _DAY.match(value):
            return f"{DAY}T{value[11:]}"
        if key in PADDED:
            return value + (FILLER * (PADDED[key] // len(FILLER)))
    return value


def rising(start: int, step: int) -> str:
    """A number that rises from round to round."""
    return f"@@{start}+{step}@@"


def rounds(text: bytes, size: int) -> Iterator[bytes]:
    """The template again and again, until there are ``size`` bytes."""
    written = number = 0
    while written < size:
        day = datetime.date(2026, 1, 1) + datetime.timedelta(days=number)
        made = text.replace(ROUND.encode(), b"%d" % number).replace(DAY.encode(), day.isoformat().encode())
        made = _RISING.sub(lambda found, at=number: b"%d" % (int(found[1]) + at * int(found[2])), made)  # type: ignore[misc]  # a lambda has no annotations
        written += len(made)
        number += 1
        yield made


def lines_of(name: str, size: int) -> Iterator[bytes]:
    """Lines until there are ``size`` bytes."""
    kept = goldens.content(name).splitlines()
    records = [json.loads(line) for line in kept if line.startswith(b"{") and line.endswith(b"}")]
    begun = 1 if name.startswith(("codex", "pi", "deepseek", "copilot")) else 0
    for record in records[:begun]:
        yield json.dumps(record).encode() + b"\n"
    numbered = [record for record in records[begun:] if "seq" in record]
    templates = []
    for record in records[begun:]:
        value = template(record)
        if "seq" in record:
            value["seq"] = rising(numbered.index(record), len(numbered))
        payload = value.get("payload")
        info = payload.get("info") if isinstance(payload, dict) else None
        if isinstance(info, dict) and "total_token_usage" in info:  # running totals go on rising
            usage = info["total_token_usage"]
            info["total_token_usage"] = {each: rising(count, 1000) for each, count in usage.items()}
        templates.append(json.dumps(value).encode() + b"\n")
    yield from rounds(b"".join(templates), size)


def document_of(name: str, keys: tuple[str, ...], size: int) -> Iterator[bytes]:
    """The parts of a document whose lists have ``size`` bytes together."""
    whole = json.loads(goldens.content(name))
    lists = [whole[key] for key in whole if key in keys] if keys else [whole]
    frame = json.dumps({**whole, **{key: [ROUND] for key in keys}} if keys else [ROUND], indent=1)
    for part, items in zip(frame.split(f'"{ROUND}"'), [*lists, None], strict=True):
        yield part.encode()
        if items is not None:
            text = b",\n".join(json.dumps(template(each)).encode() for each in items)
            for number, made in enumerate(rounds(text, size // len(lists))):
                yield b",\n" * (number > 0) + made


def written(harness: str, folder: Path, size: int) -> Path:
    """The file that is read."""
    if harness in DATABASES:
        return _database(DATABASES[harness], folder / "session.db", size)
    if harness in LINES:
        path, parts = folder / "session.jsonl", lines_of(LINES[harness], size)
    else:
        path, parts = folder / "session.json", document_of(*DOCUMENTS[harness], size)
    with path.open("wb") as file:
        file.writelines(parts)
    return path


def _database(name: str, path: Path, size: int) -> Path:
    """Rows of all tables of the fixture again and again, with keys of their own."""
    source = goldens.source(name)
    connection = sqlite3.connect(path)
    with source.database() as fixture:
        tables = {
            str(row[0]): [dict(each) for each in fixture.execute(f"SELECT * FROM {row[0]} ORDER BY id")]
            for row in fixture.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%id INTEGER PRIMARY%'")
        }
        for row in fixture.execute("SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"):
            connection.execute(row[0])
    greatest = max(row["id"] for rows in tables.values() for row in rows)
    number = 0
    while number == 0 or path.stat().st_size < size:
        with connection:
            for table, rows in tables.items():
                if not rows:
                    continue
                names = ", ".join(rows[0])
                marks = ", ".join("?" * len(rows[0]))
                made = [
                    [_cell(each, row[each], number + at, greatest) for each in row]
                    for at in range(100)
                    for row in rows
                ]
                connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", made)
        number += 100
    connection.close()
    return path


def _cell(name: str, value: Any, number: int, greatest: int) -> Any:
    if name in ("id", "model_call_id", "mcp_call_id", "exec_id") and isinstance(value, int):
        return value + number * greatest
    if name in ("call_id", "trace_id", "turn_id", "message_id") and value is not None:
        return f"{value}-{number}"
    if name in PADDED and value:
        return value + FILLER * (PADDED[name] // len(FILLER)) if not str(value).startswith("{") else value
    return value


def measure(harness: str, path: Path) -> dict[str, Any]:
    """Read the file once, keep nothing."""
    before = peak()
    reading = FileReading(path, None)
    began = time.process_time()
    events = sum(1 for _ in told(Source(path), reading))
    seconds = time.process_time() - began
    size = path.stat().st_size
    lines = sum(chunk.count(b"\n") for chunk in iter_chunks(path)) if harness in LINES else None
    return {
        "harness": reading.harness,
        "quarantined": reading.quarantined,
        "mb": size / 1e6,
        "mb_s": size / 1e6 / seconds,
        "lines_s": lines / seconds if lines else None,
        "events": events,
        "events_s": events / seconds,
        "bytes_line": size / lines if lines else None,
        "peak_mib": peak(),
        "before_mib": before,
    }


def peak() -> float:
    """MiB that this program held at most; ``ru_maxrss`` would count what its parent held before it began."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def iter_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file."""
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            yield chunk


def main() -> int:
    """Measure the formats that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.adapters")
    parser.add_argument("formats", nargs="*")
    parser.add_argument("--size", type=float, default=SIZE, help="MB of a file.")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument(
        "--keep", type=Path, help="Make the files below this folder, or use those that are there."
    )
    parser.add_argument(
        "--make", action="store_true", help="With --keep: make the files and measure nothing."
    )
    parser.add_argument("--write", action="store_true", help=f"Write the table into {RESULT.name}.")
    parser.add_argument("--read", type=Path)
    given = parser.parse_args()
    known = [*LINES, *DOCUMENTS, *DATABASES]
    if given.read is not None:
        (harness,) = given.formats
        return _read(harness, given.read, profile=given.profile)
    lines = [
        f"{datetime.date.today()}; {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; CPU time of one process.",
        "",
        f"| format | file MB | bytes a line | MB/s | lines/s | events/s | peak MiB (before) | peak at {given.size * PART:.0f} MB | memory |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for harness in given.formats or known:
        with tempfile.TemporaryDirectory() as scratch:
            folder = given.keep / harness if given.keep is not None else Path(scratch)
            small, large = (
                _made(harness, folder / name, size)
                for name, size in (("part", given.size * PART), ("whole", given.size))
            )
            if given.make:
                continue
            if given.profile:
                print(_measured(harness, large, "--profile"))
                continue
            part, whole = (json.loads(_measured(harness, path)) for path in (small, large))
        lines.append(_row(harness, part, whole))
        print(lines[-1], flush=True)
    if (given.write or (not given.formats and given.size == SIZE)) and not (given.make or given.profile):
        page = RESULT.read_text()
        before, behind = page.split(MEASURED[0])[0], page.split(MEASURED[1])[1]
        RESULT.write_text("\n".join([before + MEASURED[0], *lines, MEASURED[1] + behind]))
    return 0


def _read(harness: str, path: Path, *, profile: bool) -> int:
    """Measure one file in this process, and print what was found."""
    if not profile:
        print(json.dumps(measure(harness, path)))
        return 0
    profiling = cProfile.Profile()
    profiling.enable()
    measure(harness, path)
    profiling.disable()
    pstats.Stats(profiling).sort_stats("tottime").print_stats(25)
    return 0


def _measured(harness: str, path: Path, *more: str) -> str:
    command = [sys.executable, "-m", "tests.bench.adapters", harness, "--read", str(path), *more]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _made(harness: str, folder: Path, size: float) -> Path:
    """The file, or the one that was made there before."""
    folder.mkdir(parents=True, exist_ok=True)
    return next(iter(sorted(folder.iterdir())), None) or written(harness, folder, round(size * 1e6))


def _row(harness: str, part: dict[str, Any], whole: dict[str, Any]) -> str:
    for each in (part, whole):
        if each["harness"] != harness or each["quarantined"] or not each["events"]:
            raise SystemExit(f"the file of {harness} was not read as one of its own: {each}")
    grown = whole["peak_mib"] - part["peak_mib"]
    return (
        f"| {harness} | {whole['mb']:.0f} | {_count(whole['bytes_line'])} | {whole['mb_s']:.0f} | {_count(whole['lines_s'])} "
        f"| {whole['events_s']:,.0f} | {whole['peak_mib']:.0f} ({whole['before_mib']:.0f}) | {part['peak_mib']:.0f} "
        f"| {'flat' if grown <= NOISE else f'+{grown:.0f} MiB'} |"
    )


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


if __name__ == "__main__":
    raise SystemExit(main())
