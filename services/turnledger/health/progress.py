"""Whether work that waits is done: health watches that, not the process."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable

FAILING_SECONDS = 5.0
"""How long what work needs (a database, a broker) may fail before health is red."""


class Progress(ABC):
    """One line of work. Red when what it needs fails for :data:`FAILING_SECONDS`, or nothing moved for ``red_after`` seconds although something waits."""

    def __init__(self, red_after: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.red_after = red_after
        self.clock = clock
        self.progress_at = clock()
        """When something was done, or nothing was waiting."""
        self.failing: tuple[float, str] | None = None
        """Since when what it needs fails, and how."""

    def progress(self) -> None:
        """Something was done, or nothing is waiting."""
        self.progress_at = self.clock()
        self.failing = None

    def failed(self, reason: str) -> None:
        """What it needs failed again."""
        self.failing = (self.failing[0] if self.failing else self.clock(), reason)

    @abstractmethod
    def fails(self, seconds: float, reason: str) -> str:
        """The sentence for what fails since then."""

    @abstractmethod
    def stands(self, seconds: float) -> str:
        """The sentence for work that does not move since then."""

    def reasons(self) -> list[str]:
        """Why health is red; empty when it is green."""
        now, failing = self.clock(), self.failing  # a server's thread may ask while the work goes on
        if failing is not None and now - failing[0] > FAILING_SECONDS:
            return [self.fails(now - failing[0], failing[1])]
        if now - self.progress_at > self.red_after:
            return [self.stands(now - self.progress_at)]
        return []
