"""What redaction costs at ingest: the look at a whole batch, by kind of traffic, and the work on records that it finds (contract 14).

.venv/bin/python -m tests.bench.redaction [--write]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.generate import records
from turnledger.contract.redact import Redactor

EVENTS = 20_000
BATCH = 2_500
"""Records of one partition in one fetch under load."""
RESULT = Path(__file__).parent / "results" / "redaction.md"


def generated(shape: str) -> list[bytes]:
    return [record.value for _, record in zip(range(EVENTS), records(shape, EVENTS), strict=False)]


def with_text(values: list[bytes], text: str, every: int) -> list[bytes]:
    """Each ``every``-th record with a text added to its payload."""
    out = []
    for number, value in enumerate(values):
        if number % every == 0:
            event = json.loads(value)
            event["payload"]["more"] = text
            value = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()
        out.append(value)
    return out


def with_headers(values: list[bytes], redactor: Redactor) -> list[bytes]:
    """Each net.requested with the headers that a publisher sends."""
    out = []
    for value in values:
        event = json.loads(value)
        if event["type"] == "net.requested":
            event["payload"]["request_headers"] = {
                "host": "packages.example.org", "user-agent": "x/1", "authorization": "Basic x", "accept": "*/*", "x-request-id": "5", "cookie": "a=b",
            }  # fmt: skip
            found = redactor.redact(json.dumps(event, separators=(",", ":")).encode())
            assert found is not None
            value = found.raw
        out.append(value)
    return out


def best(work: Callable[[], object], times: int = 7) -> float:
    """Least seconds."""
    least = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - began)
    return least


def look(values: list[bytes], redactor: Redactor) -> tuple[float, int]:
    """(µs an event for the look at all batches, suspects)."""
    batches = [values[at : at + BATCH] for at in range(0, len(values), BATCH)]
    found = sum(len(redactor.suspects(batch)) for batch in batches)
    return best(lambda: [redactor.suspects(batch) for batch in batches]) / len(values) * 1e6, found


def whole(values: list[bytes], redactor: Redactor) -> float:
    """µs an event for the look and for what it finds."""
    batches = [values[at : at + BATCH] for at in range(0, len(values), BATCH)]

    def work() -> None:
        for batch in batches:
            for index in redactor.suspects(batch):
                redactor.redact(batch[index])

    return best(work, 3) / len(values) * 1e6


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    write = arguments.parse_args().write
    redactor = Redactor()
    keyed = Redactor(slot_key=b"a key of the benchmark, 32 bytes")
    backlog, fanout = generated("backlog"), generated("fanout")
    secret = "sk-ant-" + "aB3dE6gH9" * 8
    traffic = {
        "backlog, as generated": (backlog, redactor),
        "fan-out, as generated": (fanout, redactor),
        "backlog, with a key for slots": (backlog, keyed),
        "backlog, every record with a word that is not ASCII": (with_text(backlog, "größer", 1), redactor),
        "backlog, `net.requested` with headers that the publisher redacted": (
            with_headers(backlog, redactor),
            redactor,
        ),
        "backlog, one record of 1,000 with a secret": (with_text(backlog, f"key {secret}", 1000), redactor),
        "backlog, every record with a secret": (with_text(backlog, f"key {secret}", 1), redactor),
    }
    lines = [
        "# What redaction costs at ingest",
        "",
        f"`python -m tests.bench.redaction`: {EVENTS:,} records of {sum(map(len, backlog)) // len(backlog)} bytes in batches of {BATCH:,}, one core,",
        "the best of several runs.",
        "The look is one pass over a batch, before anything is decoded; the work is parsing, redacting and hashing the records that it finds.",
        "",
        "| traffic | suspects | the look, µs an event | the look and the work, µs an event |",
        "|---|---|---|---|",
    ]
    for name, (values, rules) in traffic.items():
        seconds, found = look(values, rules)
        lines.append(f"| {name} | {found:,} | {seconds:.2f} | {whole(values, rules):.2f} |")
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if write:
        RESULT.write_text(text)


if __name__ == "__main__":
    main()
