"""Which fold this is. Generations of projections remember it: a worker writes none that another fold has filled (design 6)."""

from __future__ import annotations

from typing import Final

FOLD_VERSION: Final = 1
"""Raised by every change of the fold that gives an old event another meaning, with a note in docs/decisions: a test holds both against the
golden corpus (tests/golden)."""
