"""Owns what some of a session's rows add to its sums (contract 12), in a form that adds up in any order and any grouping.

A long session is many shares: when a turn moves, its share is made again and added to those of the others, which stand as they are. Nothing is ever
subtracted. Numbers have any size here; what eight bytes cannot hold is unknown only in the end (``fold.rollup``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from turnledger.fold.columns import BUCKETS

Key = tuple[int | str | None, ...]
Vector = list[int | None]
"""Sums in a fixed order (below); None: nobody told one. Counts are never None."""

FIGURES: tuple[str, ...] = (
    *(f"{name}_tokens" for name in BUCKETS),
    "usage_reported",
    "usage_total",
    "cost_micro_usd",
    "unpriced_calls",
)
NO_FIGURES: Vector = [*(None for _ in BUCKETS), 0, 0, None, 0]

COUNTS: tuple[str, ...] = (
    "turn_count",
    "model_call_count",
    "failed_model_calls",
    "total_tool_calls",
    "tool_errors",
    "turns_with_gaps",
    "partial",
)
"""Of the session itself; the last two count reasons for a grade: turns with gaps, and turns or rows outside of turns that are partial."""
AI = ("call_count", "failed_count", *FIGURES, "total_duration_ms")
TOOL = ("call_count", "error_count", "denied_count", "total_bytes", "total_duration_ms")
HOURLY = ("calls", *FIGURES)

SECTIONS: Mapping[str, Vector] = {
    "session": [*(0 for _ in COUNTS), *NO_FIGURES],  # ()
    "inherited": list(NO_FIGURES),  # (): there only where something is inherited
    "ai": [0, 0, *NO_FIGURES, None],  # (provider, model)
    "tool": [0, 0, 0, None, None],  # (tool_name, origin)
    "mcp": [0, 0, 0, None, None],  # (server_name, tool_name)
    "hour": [0, *NO_FIGURES],  # (hour, provider, model)
    "unpriced": [0],  # (provider, model), as events said them
    "sole": [
        0
    ],  # (order_key as hex, call_key, turn_key, model_call_id, message_id) of inherited calls whose source nobody has
}
"""What is summed, by section: the vector that nothing adds up to. Behind it the keys."""


@dataclass(slots=True)
class Share:
    """Vectors by section and key."""

    sums: dict[str, dict[Key, Vector]] = field(default_factory=lambda: {section: {} for section in SECTIONS})

    def add(self, section: str, key: Key, values: Sequence[int | None], at: int = 0) -> None:
        """Add ``values`` to a vector, from its place ``at`` on."""
        vectors = self.sums[section]
        vector = vectors.get(key)
        if vector is None:
            vector = vectors[key] = list(SECTIONS[section])
        for place, value in enumerate(values, at):
            if value is not None:
                known = vector[place]
                vector[place] = value if known is None else known + value

    def whole(self) -> Vector:
        """The session's own vector."""
        return self.sums["session"].get((), SECTIONS["session"])

    def dump(self) -> str:
        """As JSON, of which ``load`` makes it again. Equal shares have equal texts."""
        listed = {
            section: [
                [*key, vector] for key, vector in sorted(vectors.items(), key=lambda item: _order(item[0]))
            ]
            for section, vectors in self.sums.items()
            if vectors
        }
        return json.dumps(listed, ensure_ascii=False, separators=(",", ":"))


def load(text: str) -> Share:
    """The share that was dumped."""
    share = Share()
    for section, rows in json.loads(text).items():
        share.sums[section] = {tuple(row[:-1]): row[-1] for row in rows}
    return share


def merged(shares: Iterable[Share]) -> Share:
    """All of them together."""
    whole = Share()
    for share in shares:
        for section, vectors in share.sums.items():
            for key, vector in vectors.items():
                whole.add(section, key, vector)
    return whole


def _order(key: Key) -> tuple[tuple[bool, bool, int | str], ...]:
    return tuple((part is not None, isinstance(part, str), 0 if part is None else part) for part in key)
