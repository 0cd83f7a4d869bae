"""How often sessions that move all the time are rolled up: seldom enough that together they leave the machine to others."""

from __future__ import annotations

import math

LEAST_SECONDS = 1.0
MOST_SECONDS = 10.0
SHARE = 0.1
"""Of a worker's time, for sessions that move all the time."""
REMEMBERED_SECONDS = 5.0
"""Over about so long the worker's time is averaged."""


class Pace:
    """How long a session is left alone after a roll-up (design 5: a second at least). With few that move it is that second. With many, a round of all of them
    takes longer than ``SHARE`` of it; then it grows, up to ``MOST_SECONDS``: they share the processors with those who tell them."""

    def __init__(self, now: float) -> None:
        self.pause = LEAST_SECONDS
        """Seconds."""
        self._load = 0.0
        """Seconds that all take who move, once each."""
        self._at = now

    def worked(self, seconds: float, now: float) -> None:
        """So long was rolled up until ``now``, since this was last said."""
        passed = now - self._at
        if passed <= 0:
            return
        self._at = now
        # Of all who move each comes once in a pause.
        load = min(seconds / passed * self.pause, MOST_SECONDS * SHARE)
        self._load += (load - self._load) * -math.expm1(-passed / REMEMBERED_SECONDS)
        self.pause = max(LEAST_SECONDS, self._load / SHARE)
