"""Owns how the interpreter runs while rounds are applied, by a worker or by a replay: when it looks for cycles, and how often threads take turns."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

COLLECT_SECONDS = 30.0
SWITCH_SECONDS = 0.0005
"""Thread switch interval: with Python's 5 ms, each of the writer's round trips to Postgres waited that long for the interpreter."""


@asynccontextmanager
async def for_rounds() -> AsyncIterator[None]:
    """Set for rounds inside, as it was afterwards. What is there at the beginning stays: the collector of cycles does not look at it. At what is young it
    looks every ``COLLECT_SECONDS``, when nothing else runs in the event loop. (Left alone, it looked at all sessions in memory again and again, which was
    a quarter of the processor time of `replay topics`.)"""
    switch = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    gc.disable()
    collecting = asyncio.create_task(_collect(), name="collect")
    try:
        yield
    finally:
        collecting.cancel()
        gc.enable()
        gc.unfreeze()
        sys.setswitchinterval(switch)


async def _collect() -> None:
    while True:
        await asyncio.sleep(COLLECT_SECONDS)
        gc.collect(1)
