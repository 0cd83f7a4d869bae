"""Rates: what one model's tokens cost at one time, and the catalogue as the rest of the code sees it. Exact decimals, never floats."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Rate:
    """µUSD for one token (the same number as USD for a million), with the higher tiers of long prompts."""

    base: Decimal
    tiers: tuple[tuple[int, Decimal], ...] = ()
    """(input tokens above which it applies to *all* tokens, price), ascending."""

    def at(self, tier: int) -> Decimal:
        """The price in the tier that begins at ``tier`` input tokens (0: the base price)."""
        price = self.base
        for start, tiered in self.tiers:
            if start <= tier:
                price = tiered
        return price


@dataclass(frozen=True, slots=True)
class Rates:
    """All rates of one model at one time. None: the catalogue gives no price for such tokens."""

    price_id: str
    """Names the catalogue's entry: ``<provider>/<model>``, with ``@<first day>`` where the price is dated."""
    input: Rate | None = None
    output: Rate | None = None
    reasoning: Rate | None = None
    """Only where reasoning costs other than the rest of the output; else None."""
    cache_read: Rate | None = None
    cache_write_5m: Rate | None = None
    """Also for writes whose lifetime nobody reported (contract 9)."""
    cache_write_1h: Rate | None = None
    request: Decimal = Decimal(0)
    """µUSD for one request, beside its tokens."""

    def tier(self, total_input: int) -> int:
        """Start of the highest tier that ``total_input`` tokens of one request lie above; 0 for the base price."""
        return max((start for start in self.tier_starts() if total_input > start), default=0)

    def tier_starts(self) -> set[int]:
        """Where the tiers of any of these rates begin."""
        rates = (
            self.input,
            self.output,
            self.reasoning,
            self.cache_read,
            self.cache_write_5m,
            self.cache_write_1h,
        )
        return {start for rate in rates if rate is not None for start, _ in rate.tiers}


class Catalogue(Protocol):
    """One published version of the price list. Immutable: a change is a new version (contract 9)."""

    @property
    def version(self) -> int:
        """Its number, from 1."""

    def find(self, provider: str | None, model: str | None, at: int | None) -> Rates | None:
        """Rates of a model at an instant (µs since 1970 UTC; None: the earliest price known), None when the model is unknown."""
