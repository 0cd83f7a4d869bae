"""The interpreter while rounds are applied: set inside, as it was afterwards, and what holds itself is still found."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref

import pytest

from turnledger.ingest import interpreter


class Cycle:
    """Holds itself."""

    def __init__(self) -> None:
        self.held = self


async def test_inside_the_collector_is_off_and_threads_change_often_and_afterwards_all_is_as_before() -> None:
    switch = sys.getswitchinterval()
    with pytest.raises(ValueError, match="of the work"):
        async with interpreter.for_rounds():
            assert not gc.isenabled()
            assert gc.get_freeze_count() > 0
            assert sys.getswitchinterval() == pytest.approx(0.0005)
            raise ValueError("of the work")
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert sys.getswitchinterval() == switch


async def test_inside_cycles_that_came_since_are_let_go_of_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interpreter, "COLLECT_SECONDS", 0.01)
    async with interpreter.for_rounds():
        held = weakref.ref(Cycle())
        assert held() is not None
        async with asyncio.timeout(5):
            while held() is not None:  # noqa: ASYNC110 - the collector tells nobody
                await asyncio.sleep(0.01)
