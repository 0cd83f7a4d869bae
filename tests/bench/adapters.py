"""`python -m tests.bench.adapters [FORMAT…] [--size MB] [--profile]`: how fast each reader is on a file made by repetition, and what it holds.

Each file repeats its format's fixture with new ids and times moved on, its texts as long as real ones (the lines of the two big formats are
1.7 KB on average, as in the sample files). The reader streams it; what is measured is reading alone: bytes in, events out, nothing folded
or written. Each file is read in a process of its own, so that peak memory is that file's.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import platform
import pstats
import re
import resource
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
    "gemini-cli": ("gemini_cli/rewrite-3.json", "messages"),
    "opencode": ("opencode/export.json", "messages"),
    "swe-agent": ("swe_agent/run.traj", "trajectory"),
    "cline": ("cline/1772000000000/ui_messages.json", ""),
}
DATABASES = {"capsem": "capsem/vm-7/session.sql"}
SIZES = {"claude-code": 200, "codex": 200}
"""MB; the rest are measured on less."""
LESS = 40
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
}
"""Characters that a text field gets beside its own, so that records are as long as real ones."""
IDS = frozenset(
    {
        "uuid", "parentUuid", "id", "parentId", "turn_id", "call_id", "callID", "tool_use_id", "toolCallId", "messageID", "parentID",
        "interactionId", "messageId", "apiCallId", "tool_call_id", "action_id", "llm_response_id", "response_id", "callId", "responseId",
    }
)  # fmt: skip
FILLER = "the quick brown fox jumps over the lazy dog; "
_DAY = re.compile(r"^2026-\d\d-\d\dT")


def renewed(value: Any, round_: int, key: str = "") -> Any:
    """A record of the next round: new ids, a later day, longer texts."""
    if isinstance(value, dict):
        return {name: renewed(each, round_, name) for name, each in value.items()}
    if isinstance(value, list):
        return [renewed(each, round_, key) for each in value]
    if isinstance(value, str):
        if key in IDS:
            return f"{value}-{round_}"
        if _DAY.match(value):
            day = round_ % 27 + 1
            return f"2026-{3 + round_ // 27 % 9:02d}-{day:02d}T{value[11:]}"
        if key in PADDED:
            return value + (FILLER * (PADDED[key] // len(FILLER)))
    return value


def lines_of(name: str, size: int) -> Iterator[bytes]:
    """Lines until there are ``size`` bytes."""
    kept = goldens.content(name).splitlines()
    records = [json.loads(line) for line in kept if line.startswith(b"{") and line.endswith(b"}")]
    head, rest = (
        ([records[0]], records[1:])
        if name.startswith(("codex", "pi", "deepseek", "copilot"))
        else ([], records)
    )
    written = seq = round_ = 0
    for record in head:
        yield json.dumps(record).encode() + b"\n"
    totals: dict[str, int] = {}
    while written < size:
        for record in rest:
            value = renewed(record, round_)
            if "seq" in value:
                value["seq"] = seq
                seq += 1
            _count_on(value, record, totals, round_)
            line = json.dumps(value).encode() + b"\n"
            written += len(line)
            yield line
        round_ += 1


def _count_on(value: Any, record: Any, totals: dict[str, int], round_: int) -> None:
    """Running totals go on rising."""
    info = record.get("payload", {}).get("info") if isinstance(record.get("payload"), dict) else None
    if isinstance(info, dict) and "total_token_usage" in info:
        usage = value["payload"]["info"]["total_token_usage"]
        for name in usage:
            usage[name] += round_ * 1000
    totals["rounds"] = round_


def written(harness: str, folder: Path, size: int) -> Path:
    """The file that is read."""
    if harness in LINES:
        path = folder / "session.jsonl"
        with path.open("wb") as file:
            file.writelines(lines_of(LINES[harness], size))
        return path
    if harness in DATABASES:
        return _database(DATABASES[harness], folder / "session.db", size)
    name, key = DOCUMENTS[harness]
    whole = json.loads(goldens.content(name))
    items = whole[key] if key else whole
    found: list[Any] = []
    total = round_ = 0
    while total < size:
        fresh = [renewed(each, round_) for each in items]
        total += len(json.dumps(fresh))
        found += fresh
        round_ += 1
    path = folder / "session.json"
    path.write_text(json.dumps({**whole, key: found} if key else found))
    return path


def _database(name: str, path: Path, size: int) -> Path:
    script = (goldens.FOLDER / name).read_text().splitlines()
    connection = sqlite3.connect(path)
    connection.executescript("\n".join(line for line in script if line.startswith("CREATE")))
    rows = [line for line in script if line.startswith("INSERT") and "model_call_id" not in line]
    while True:
        with connection:
            for _ in range(500):
                for row in rows:
                    connection.execute(row)
        if path.stat().st_size >= size:
            break
    connection.close()
    return path


def measure(harness: str, path: Path) -> dict[str, Any]:
    """Read the file once, keep nothing."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reading = FileReading(path, None)
    began = time.process_time()
    events = sum(1 for _ in told(Source(path), reading))
    seconds = time.process_time() - began
    size = path.stat().st_size
    lines = sum(chunk.count(b"\n") for chunk in iter_chunks(path)) if harness in LINES else None
    return {
        "harness": reading.harness,
        "mb": size / 1e6,
        "mb_s": size / 1e6 / seconds,
        "lines_s": lines / seconds if lines else None,
        "events_s": events / seconds,
        "bytes_line": size / lines if lines else None,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "before_mib": before / 1024,
    }


def iter_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file."""
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            yield chunk


def main() -> int:
    """Measure the formats that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.adapters")
    parser.add_argument("formats", nargs="*")
    parser.add_argument("--size", type=float)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument(
        "--keep", type=Path, help="Make the files below this folder, or use those that are there."
    )
    parser.add_argument(
        "--make", action="store_true", help="With --keep: make the files and measure nothing."
    )
    parser.add_argument("--read", type=Path)
    given = parser.parse_args()
    known = [*LINES, *DOCUMENTS, *DATABASES]
    if given.read is not None:
        (harness,) = given.formats
        if given.profile:
            profile = cProfile.Profile()
            profile.enable()
            measure(harness, given.read)
            profile.disable()
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        else:
            print(json.dumps(measure(harness, given.read)))
        return 0
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; CPU time of one process\n"
    )
    print("| format | file MB | bytes a line | MB/s | lines/s | events/s | peak MiB (before) |")
    print("|---|---|---|---|---|---|---|")
    for harness in given.formats or known:
        with tempfile.TemporaryDirectory() as scratch:
            folder = given.keep / harness if given.keep is not None else Path(scratch)
            size = round((given.size or SIZES.get(harness, LESS)) * 1e6)
            path = _kept(folder) or written(harness, folder, size)
            if given.make:
                continue
            command = [sys.executable, "-m", "tests.bench.adapters", harness, "--read", str(path)]
            more = ["--profile"] if given.profile else []
            done = subprocess.run([*command, *more], capture_output=True, text=True, check=True)
        if given.profile:
            print(done.stdout)
            continue
        told_ = json.loads(done.stdout)
        assert told_["harness"] == harness, told_
        print(
            f"| {harness} | {told_['mb']:.0f} | {_whole(told_['bytes_line'])} | {told_['mb_s']:.0f} | {_whole(told_['lines_s'])} "
            f"| {told_['events_s']:,.0f} | {told_['peak_mib']:.0f} ({told_['before_mib']:.0f}) |",
            flush=True,
        )
    return 0


def _kept(folder: Path) -> Path | None:
    """The file that was made there before."""
    folder.mkdir(parents=True, exist_ok=True)
    return next(iter(sorted(folder.iterdir())), None)


def _whole(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


if __name__ == "__main__":
    raise SystemExit(main())
