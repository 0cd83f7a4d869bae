"""Contract 15: whatever integer within int64 a payload holds, the rows made of it fit their columns, so that no turn is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.contract_cases.envelopes import Envelope, done, ev, numbered, turn
from turnledger.fold.dedupe import dedupe
from turnledger.fold.model import Row
from turnledger.fold.session import fold_session
from turnledger.store.write import MODEL_CALLS, POINTS, TOOL_CALLS

BIG = 2**63 - 1
USAGE = {"input": BIG, "output": BIG, "cache_read": BIG, "cache_write": BIG, "reasoning": BIG}

CASES: dict[str, list[Envelope]] = {
    "a started call": [
        ev(
            "model_call.started",
            call="1",
            **dict.fromkeys(("context_tokens", "messages_count", "tools_count"), BIG),
        )
    ],
    "a completed call": [
        done(
            USAGE,
            call="1",
            **dict.fromkeys(("latency_ms", "ttft_ms", "request_bytes", "response_bytes"), BIG),
        )
    ],
    "a completed call's status code": [done({"output": 1}, call="1", status_code=BIG)],
    "a call's attempts": [ev("model_call.retried", call="1", attempt=BIG), done(USAGE, call="1")],
    "gauges": [done(USAGE, call="1", peak_input=BIG, context_window=BIG)],
    "a failed call": [ev("model_call.failed", call="1", error_class="other", status_code=BIG, usage=USAGE)],
    "thoughts beside the output": [done(USAGE, call="1", provider="google")],
    "a tool call": [
        ev("tool_call.requested", tool="x", call_index=BIG),
        ev(
            "tool_call.completed",
            tool="x",
            **dict.fromkeys(("duration_ms", "bytes_sent", "bytes_received"), BIG),
        ),
    ],
    "a request": [
        ev(
            "net.requested",
            **dict.fromkeys(("port", "status_code", "bytes_sent", "bytes_received", "duration_ms"), BIG),
        )
    ],
    "a name looked up": [
        ev("dns.queried", **dict.fromkeys(("qtype", "qclass", "rcode", "resolver_ms"), BIG))
    ],
    "a file": [ev("fs.changed", action="created", path="/a", size=BIG)],
    "a process": [
        ev("process.started", exec_id=BIG),
        ev(
            "process.exited",
            exec_id=BIG,
            **dict.fromkeys(("exit_code", "duration_ms", "stdout_bytes", "stderr_bytes"), BIG),
        ),
    ],
    "an audited process": [ev("process.audited", **dict.fromkeys(("pid", "ppid", "uid"), BIG))],
}


@pytest.mark.parametrize("events", CASES.values(), ids=CASES.keys())
def test_the_greatest_integers_fit(events: list[Envelope]) -> None:
    lines = [json.dumps(event).encode() for event in numbered(turn("t", *events))]
    ((key, accepted),) = dedupe(enumerate(lines, 1)).sessions.items()
    fold = fold_session(*key, accepted)
    rows: list[tuple[Any, Row, int]] = [(MODEL_CALLS, row, 2) for one in fold.turns for row in one.calls]
    rows += [(TOOL_CALLS, row, 2) for one in fold.turns for row in one.tools]
    rows += [(POINTS[table], row, 3) for table, found in fold.points.items() for row in found]
    assert rows
    for encoder, row, keys in rows:
        assert encoder.encode(*range(keys), row)
