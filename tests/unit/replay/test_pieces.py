"""How a process of a rebuild shares its time between pieces."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from turnledger.replay import pieces
from turnledger.rollup.worker import Tick

SECONDS = 0.05


@pytest.mark.parametrize(
    ("kind", "rests", "rested"), [("compare", True, True), ("compare", False, False), ("fold", True, False)]
)
def test_after_a_comparison_the_database_is_left_alone_for_as_long(
    monkeypatch: pytest.MonkeyPatch, kind: str, rests: bool, rested: bool
) -> None:
    left = [kind, kind]

    def step(self: pieces.Pieces) -> bool:
        if not left:
            return False
        time.sleep(SECONDS)
        self.on_piece(left.pop())
        return True

    monkeypatch.setattr(pieces.Pieces, "step", step)
    monkeypatch.setattr(pieces.Pieces, "roll_up", lambda self: Tick())
    monkeypatch.setattr(pieces.Pieces, "connection", lambda self: None)
    monkeypatch.setattr(pieces, "load_as_microseconds", lambda connection: None)
    waits: list[float] = []

    def ended(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) == 4

    nothing: Any = SimpleNamespace()
    pieces.run_pieces("", nothing, nothing, ended, rests=rests)

    first, *after, idle = waits
    assert (first, idle) == (0.0, 0.2)
    assert [wait > SECONDS / 2 for wait in after] == [rested, rested]
