"""Stock Faust: one agent, one event at a time, no work at all. What a stream processor written the usual way starts from."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time

import faust

BOOTSTRAP, TOPIC, TOTAL = (
    os.environ["BENCH_BOOTSTRAP"],
    os.environ["BENCH_TOPIC"],
    int(os.environ["BENCH_TOTAL"]),
)

app = faust.App(
    f"bench-stock-{os.getpid()}",
    broker=f"kafka://{BOOTSTRAP}",
    value_serializer="raw",
    key_serializer="raw",
    topic_disable_leader=True,
    topic_allow_declare=False,
    web_enabled=False,
    consumer_auto_offset_reset="earliest",
    datadir=tempfile.mkdtemp(),
    stream_wait_empty=False,
)
topic = app.topic(TOPIC, value_type=bytes, value_serializer="raw", key_serializer="raw")
state = {"n": 0, "start": 0.0}


@app.agent(topic)
async def nothing(stream):  # type: ignore[no-untyped-def]
    """Count, and say when the last has come."""
    async for _ in stream:
        if state["n"] == 0:
            state["start"] = time.perf_counter()
        state["n"] += 1
        if state["n"] == TOTAL:
            seconds = time.perf_counter() - state["start"]
            os.write(
                1, json.dumps({"events": TOTAL, "seconds": seconds}).encode() + b"\n"
            )  # Faust redirects stdout
            os._exit(0)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    app.main()
