"""Catalogue version 1: the price list packaged with ``genai-prices``, read as exact decimals (contract 9).

It never asks the network and never looks at the clock: the same call has the same price on every machine with the same package.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache, lru_cache

from genai_prices import types as genai
from genai_prices.data_snapshot import find_provider_by_id

from turnledger.pricing.rates import Rate, Rates

DAY = 86_400_000_000
"""µs."""
CLAUDE_WRITE_5M = Decimal("1.25")
CLAUDE_WRITE_1H = Decimal(2)
"""Anthropic's published multiples of the input price for cache writes: used where the package has no price of its own for a Claude model."""
NO_PROVIDER = frozenset({"", "unknown", "litellm"})
"""Words that stand where a provider belongs and name none: the model's own spelling decides."""


@dataclass(frozen=True, slots=True)
class _Dated:
    """Rates with the condition under which they apply."""

    rates: Rates
    start: int | None
    """First instant (µs since 1970 UTC)."""
    hours: tuple[int, int] | None
    """Part of the day (µs since midnight UTC, end excluded); over midnight when the end is before the start."""

    def holds(self, at: int) -> bool:
        if self.start is not None and at < self.start:
            return False
        if self.hours is None:
            return True
        first, end = self.hours
        moment = at % DAY
        return first <= moment < end if first <= end else moment >= first or moment < end


class PackagedCatalogue:
    """The list of the installed ``genai-prices`` package under a version number."""

    def __init__(self, providers: list[genai.Provider], version: int = 1) -> None:
        self._providers = providers
        self._version = version
        self._lookup = lru_cache(maxsize=4096)(self._look_up)

    @property
    def version(self) -> int:
        """Its number, from 1."""
        return self._version

    def find(self, provider: str | None, model: str | None, at: int | None) -> Rates | None:
        """Rates of a model at an instant (µs since 1970 UTC; None: the earliest price known), None when the model is unknown.

        Of several prices the last one whose condition holds counts, else the first: the package's own rule.
        """
        if not model:
            return None
        prices = self._lookup((provider or "").strip().lower(), model.strip().lower())
        if not prices:
            return None
        if at is not None:
            for price in reversed(prices):
                if price.holds(at):
                    return price.rates
        return prices[0].rates

    def _look_up(self, provider: str, model: str) -> tuple[_Dated, ...]:
        for owner, spelling in self._places(provider, model):
            found = owner.find_model(spelling, all_providers=self._providers)
            if found is not None:
                return tuple(_dated(owner, found))
        return ()

    def _places(self, provider: str, model: str) -> Iterator[tuple[genai.Provider, str]]:
        """Where a model may stand, best first: its provider's list, then the provider spelt in ``provider/model``.

        A provider that the catalogue does not know has prices of its own: its models are not looked up elsewhere by their bare names.
        """
        prefix, slash, rest = model.partition("/")
        if provider not in NO_PROVIDER:
            named = find_provider_by_id(self._providers, provider)
            if named is not None:
                yield named, model
                if slash:
                    yield named, rest
        if slash and prefix:
            spelt = find_provider_by_id(self._providers, prefix)
            if spelt is not None:
                yield spelt, rest
        if provider in NO_PROVIDER:
            for candidate in self._providers:
                if candidate.model_match is not None and candidate.model_match.is_match(model):
                    yield candidate, model


def _dated(provider: genai.Provider, model: genai.ModelInfo) -> Iterator[_Dated]:
    name = f"{provider.id}/{model.id}"
    if isinstance(model.prices, genai.ModelPrice):
        yield _Dated(_rates(name, model.id, model.prices), None, None)
        return
    for price in model.prices:
        match price.constraint:
            case genai.StartDateConstraint(start_date=day):
                start = _instant(day)
                yield _Dated(_rates(f"{name}@{day.isoformat()}", model.id, price.prices), start, None)
            case genai.TimeOfDateConstraint(start_time=first, end_time=end):
                hours = (_moment(first), _moment(end))
                spelt = f"{name}@{first:%H:%M}-{end:%H:%M}"
                yield _Dated(_rates(spelt, model.id, price.prices), None, hours)
            case _:
                yield _Dated(_rates(name, model.id, price.prices), None, None)


def _instant(day: date) -> int:
    return (day - date(1970, 1, 1)).days * DAY


def _moment(value: time) -> int:
    """µs since midnight UTC of a time of day; one without a zone is UTC."""
    if value.tzinfo is not None:
        value = datetime.combine(date(1970, 1, 1), value).astimezone(UTC).time()
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def _rates(price_id: str, model_id: str, price: genai.ModelPrice) -> Rates:
    """Tokens without a price of their own cost what the next wider kind costs: 1h writes as writes, cached tokens as input."""
    base = _rate(price.input_mtok)
    write = _rate(price.cache_write_5m_mtok) or _rate(price.cache_write_mtok)
    long_write = _rate(price.cache_write_1h_mtok)
    if "claude" in model_id and base is not None:
        write = write or _times(base, CLAUDE_WRITE_5M)
        long_write = long_write or _times(base, CLAUDE_WRITE_1H)
    requests = _rate(price.requests_kcount)
    return Rates(
        price_id=price_id,
        input=base,
        output=_rate(price.output_mtok),
        reasoning=_rate(price.output_reasoning_mtok),
        cache_read=_rate(price.cache_read_mtok) or base,
        cache_write_5m=write or base,
        cache_write_1h=long_write or write or base,
        request=requests.base * 1000 if requests is not None else Decimal(0),  # USD a thousand -> µUSD each
    )


def _rate(price: Decimal | genai.TieredPrices | None) -> Rate | None:
    if price is None:
        return None
    if isinstance(price, genai.TieredPrices):
        return Rate(price.base, tuple((tier.start, tier.price) for tier in price.tiers))
    return Rate(price)


def _times(rate: Rate, factor: Decimal) -> Rate:
    return Rate(rate.base * factor, tuple((start, price * factor) for start, price in rate.tiers))


@cache
def packaged() -> PackagedCatalogue:
    """Version 1, loaded once: the data are 1.6 MB of Python."""
    from genai_prices.data import providers

    return PackagedCatalogue(providers)
