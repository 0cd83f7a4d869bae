"""A catalogue: our own list above the one packaged with ``genai-prices``, read as exact decimals (contract 9).

It never asks the network and never looks at the clock: the same call has the same price on every machine with the same lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import cache, lru_cache

from genai_prices import types as genai
from genai_prices.data_snapshot import find_provider_by_id

from turnledger.pricing.own import NOTHING_OF_OUR_OWN, OwnList, complete
from turnledger.pricing.rates import Rate, Rates

DAY = 86_400_000_000
"""µs."""
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
    """A list of ``genai-prices`` under a version number, with our own prices above it where there are any."""

    def __init__(
        self, providers: list[genai.Provider], version: int = 1, own: OwnList = NOTHING_OF_OUR_OWN
    ) -> None:
        self._providers = providers
        self._version = version
        self._own = own
        self._lookup = lru_cache(maxsize=4096)(self._look_up)

    @property
    def version(self) -> int:
        """Its number, from 1."""
        return self._version

    @property
    def own(self) -> OwnList:
        """The list above the packaged one."""
        return self._own

    def with_own(self, version: int, own: OwnList) -> PackagedCatalogue:
        """Another version over the same packaged list."""
        return PackagedCatalogue(self._providers, version, own)

    def find(self, provider: str | None, model: str | None, at: int | None) -> Rates | None:
        """Rates of a model at an instant (µs since 1970 UTC; None: the earliest price known), None when the model is unknown.

        Ours before theirs at each place where the model may stand, best place first. Of several prices of theirs the last one whose
        condition holds counts, else the first: the package's own rule.
        """
        if not model:
            return None
        owners, prices = self._lookup((provider or "").strip().lower(), model.strip().lower())
        for named in owners:
            rates = self._own.find(*named, at)
            if rates is not None:
                return rates
        if not prices:
            return None
        if at is not None:
            for price in reversed(prices):
                if price.holds(at):
                    return price.rates
        return prices[0].rates

    def _look_up(self, provider: str, model: str) -> tuple[tuple[tuple[str, str], ...], tuple[_Dated, ...]]:
        """(names under which our own list may know the model, best first; the packaged prices that hold where it knows none).

        A place with packaged prices is the last one: further ones are worse for both lists.
        """
        names: dict[tuple[str, str], None] = {}
        if provider not in NO_PROVIDER:
            names[provider, model] = None
            prefix, slash, rest = model.partition("/")
            if slash and prefix == provider:
                names[provider, rest] = None
        for owner, spelling in self._places(provider, model):
            names[owner.id, spelling] = None
            found = owner.find_model(spelling, all_providers=self._providers)
            if found is not None:
                # A price of ours for a model holds for every spelling that the packaged list knows of it.
                names[owner.id, found.id.lower()] = None
                return tuple(names), tuple(_dated(owner, found))
        prefix, slash, rest = model.partition("/")
        if slash and prefix:
            names[prefix, rest] = None
        return tuple(names), ()

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
    requests = _rate(price.requests_kcount)
    return complete(
        price_id,
        model_id,
        input=_rate(price.input_mtok),
        output=_rate(price.output_mtok),
        reasoning=_rate(price.output_reasoning_mtok),
        cache_read=_rate(price.cache_read_mtok),
        cache_write_5m=_rate(price.cache_write_5m_mtok) or _rate(price.cache_write_mtok),
        cache_write_1h=_rate(price.cache_write_1h_mtok),
        request=requests.base * 1000 if requests is not None else Decimal(0),  # USD a thousand -> µUSD each
    )


def _rate(price: Decimal | genai.TieredPrices | None) -> Rate | None:
    if price is None:
        return None
    if isinstance(price, genai.TieredPrices):
        return Rate(price.base, tuple((tier.start, tier.price) for tier in price.tiers))
    return Rate(price)


@cache
def packaged() -> PackagedCatalogue:
    """Version 1, loaded once: the data are 1.6 MB of Python."""
    from genai_prices.data import providers

    return PackagedCatalogue(providers)
