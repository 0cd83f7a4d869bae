"""Prices of one's own: a document that lies above the packaged list, read strictly (docs/pricing.md).

A price that cannot be read as it was meant is refused with the place it stands at: a typing error must not become a bill.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Any

from turnledger.contract.times import parse_instant
from turnledger.errors import TurnledgerError
from turnledger.pricing.rates import Rate, Rates

KINDS = ("input", "output", "reasoning", "cache_read", "cache_write_5m", "cache_write_1h")
"""Prices of tokens, USD for a million of them: the same number as µUSD for one."""
_PRICE = frozenset({*KINDS, "from", "per_request", "above"})
_MODEL = frozenset({"provider", "model", "also", "prices"})
MOST_DIGITS = 18
"""Of a price, before and after its point together: exact arithmetic has room for any count of tokens at it (``cost._EXACT``)."""
MICRO_USD = 1_000_000

CLAUDE_WRITE_5M = Decimal("1.25")
CLAUDE_WRITE_1H = Decimal(2)
"""Anthropic's published multiples of the input price for cache writes: used where a list has no price of its own for a Claude model."""


class NotAPriceList(TurnledgerError):
    """The document cannot be read as prices. The message names the place."""


@dataclass(frozen=True, slots=True)
class OwnPrice:
    """Rates from an instant on."""

    start: int | None
    """First instant (µs since 1970 UTC); None: from the beginning."""
    rates: Rates


class OwnList:
    """The models of one document by provider and spelling, lower case."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        """Raises :class:`NotAPriceList`."""
        _only(document, {"models", "currency", "note"}, "the document")
        if document.get("currency", "USD") != "USD":
            raise NotAPriceList("currency: prices are in USD; convert them first.")
        models = document.get("models")
        if not isinstance(models, list):
            raise NotAPriceList('the document needs "models", a list (docs/pricing.md shows one).')
        self.document: dict[str, Any] = {"models": models}
        """What was given, as it is kept: numbers are decimals as text."""
        self._prices: dict[tuple[str, str], tuple[OwnPrice, ...]] = {}
        self._spelt: dict[tuple[str, str], str] = {}
        for at, model in enumerate(models):
            self._add(model, f"models[{at}]")

    def __len__(self) -> int:
        return len(self._prices)

    def models(self) -> Iterator[tuple[str, str]]:
        """(provider, model) of each entry, without its other spellings."""
        return iter(self._prices)

    def prices(self, provider: str, model: str) -> tuple[OwnPrice, ...]:
        """Those of an entry, by their beginning; empty for none."""
        return self._prices.get((provider, model), ())

    def starts(self) -> set[int]:
        """Every instant at which a price begins."""
        return {one.start for prices in self._prices.values() for one in prices if one.start is not None}

    def find(self, provider: str, model: str, at: int | None) -> Rates | None:
        """Rates at an instant; None where the list has none for it: unknown, or before its first price. Names are lower case."""
        prices = self._prices.get((provider, self._spelt.get((provider, model), model)))
        if not prices:
            return None
        if at is None:
            return prices[0].rates
        held = [price for price in prices if price.start is None or price.start <= at]
        return held[-1].rates if held else None

    def _add(self, model: Any, place: str) -> None:
        if not isinstance(model, dict):
            raise NotAPriceList(f"{place}: a model is an object.")
        _only(model, _MODEL, place)
        provider, name = (_name(model.get(key), f"{place}.{key}") for key in ("provider", "model"))
        prices = model.get("prices")
        if not isinstance(prices, list) or not prices:
            raise NotAPriceList(f"{place}.prices: a list of at least one price.")
        if (provider, name) in self._prices or (provider, name) in self._spelt:
            raise NotAPriceList(f"{place}: {provider}/{name} stands in the document twice.")
        read = [
            _price(price, f"{place}.prices[{number}]", provider, name) for number, price in enumerate(prices)
        ]
        for before, after in pairwise(read):
            if after.start is None or (before.start is not None and after.start <= before.start):
                raise NotAPriceList(
                    f'{place}.prices: each price after the first needs a "from" later than the one before.'
                )
        self._prices[provider, name] = tuple(read)
        also = model.get("also", [])
        if not isinstance(also, list):
            raise NotAPriceList(f"{place}.also: a list of other spellings of the model.")
        for number, spelling in enumerate(also):
            spelt = _name(spelling, f"{place}.also[{number}]")
            if (provider, spelt) in self._prices or (provider, spelt) in self._spelt:
                raise NotAPriceList(
                    f"{place}.also[{number}]: {provider}/{spelt} stands in the document twice."
                )
            self._spelt[provider, spelt] = name


def parse(text: bytes) -> OwnList:
    """A document as it stands in a file. Raises :class:`NotAPriceList`."""
    try:
        document = json.loads(
            text, parse_float=str, parse_int=str, parse_constant=_refused, object_pairs_hook=_unique
        )
    except (ValueError, RecursionError) as error:
        raise NotAPriceList(f"it is no JSON ({error}).") from None
    if not isinstance(document, dict):
        raise NotAPriceList('it is no object with "models" (docs/pricing.md shows one).')
    return OwnList(document)


def complete(
    price_id: str,
    model: str,
    *,
    input: Rate | None,
    output: Rate | None,
    reasoning: Rate | None,
    cache_read: Rate | None,
    cache_write_5m: Rate | None,
    cache_write_1h: Rate | None,
    request: Decimal,
) -> Rates:
    """Tokens without a price of their own cost what the next wider kind costs: 1h writes as writes, cached tokens as input."""
    write, long_write = cache_write_5m, cache_write_1h
    if "claude" in model and input is not None:
        write = write or _times(input, CLAUDE_WRITE_5M)
        long_write = long_write or _times(input, CLAUDE_WRITE_1H)
    return Rates(
        price_id=price_id,
        input=input,
        output=output,
        reasoning=reasoning,
        cache_read=cache_read or input,
        cache_write_5m=write or input,
        cache_write_1h=long_write or write or input,
        request=request,
    )


def _times(rate: Rate, factor: Decimal) -> Rate:
    return Rate(rate.base * factor, tuple((start, price * factor) for start, price in rate.tiers))


def _price(price: Any, place: str, provider: str, model: str) -> OwnPrice:
    if not isinstance(price, dict):
        raise NotAPriceList(f"{place}: a price is an object.")
    _only(price, _PRICE, place)
    if "input" not in price and "output" not in price:
        raise NotAPriceList(f'{place}: at least one of "input" and "output", in USD for a million tokens.')
    tiers = _tiers(price.get("above", {}), f"{place}.above")
    start, day = _start(price.get("from"), f"{place}.from")
    rates = {kind: _rate(kind, price, tiers, place) for kind in KINDS}
    per_request = price.get("per_request")
    return OwnPrice(
        start,
        complete(
            f"{provider}/{model}@{day}" if day else f"{provider}/{model}",
            model,
            **rates,
            request=Decimal(0)
            if per_request is None
            else _decimal(per_request, f"{place}.per_request") * MICRO_USD,
        ),
    )


def _rate(
    kind: str, price: Mapping[str, Any], tiers: Sequence[tuple[int, Mapping[str, Any]]], place: str
) -> Rate | None:
    given = [
        (start, _decimal(tier[kind], f'{place}.above["{start}"].{kind}'))
        for start, tier in tiers
        if kind in tier
    ]
    if kind not in price:
        if given:
            raise NotAPriceList(f'{place}: "above" raises {kind}, which has no price below it.')
        return None
    return Rate(_decimal(price[kind], f"{place}.{kind}"), tuple(given))


def _tiers(above: Any, place: str) -> list[tuple[int, Mapping[str, Any]]]:
    if not isinstance(above, dict):
        raise NotAPriceList(f"{place}: an object of input tokens and the prices of a request that has more.")
    tiers = []
    for start, tier in above.items():
        if not (start.isascii() and start.isdigit() and len(start) <= MOST_DIGITS and int(start) > 0):
            raise NotAPriceList(f"{place}: {start!r} is no number of input tokens.")
        if not isinstance(tier, dict):
            raise NotAPriceList(f'{place}["{start}"]: an object of prices.')
        _only(tier, set(KINDS), f'{place}["{start}"]')
        tiers.append((int(start), tier))
    return sorted(tiers, key=lambda tier: tier[0])


def _start(given: Any, place: str) -> tuple[int | None, str | None]:
    """(µs since 1970, as a ``price_id`` says it) of a day or an instant with its offset."""
    if given is None:
        return None, None
    if isinstance(given, str):
        try:
            day = date.fromisoformat(given)
            return round(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * MICRO_USD, given
        except ValueError:
            at = parse_instant(given)
            if at is not None:
                return at, given
    raise NotAPriceList(
        f"{place}: {given!r} is neither a day (2026-12-01) nor a time with its offset (2026-12-01T08:00:00Z)."
    )


def _decimal(given: Any, place: str) -> Decimal:
    """Numbers come as their text, so that no digit is lost."""
    try:
        value = Decimal(given) if isinstance(given, str) else None
    except InvalidOperation:
        value = None
    if value is None or not value.is_finite() or value < 0:
        raise NotAPriceList(f"{place}: {given!r} is no price: a decimal in USD, 0 or more.")
    if len(value.as_tuple().digits) > MOST_DIGITS or not -MOST_DIGITS <= value.adjusted() <= MOST_DIGITS:
        raise NotAPriceList(f"{place}: {given} has more than {MOST_DIGITS} digits.")
    return value


def _name(given: Any, place: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise NotAPriceList(f"{place}: a name, as events say it.")
    return given.strip().lower()


def _only(given: Mapping[str, Any], known: set[str] | frozenset[str], place: str) -> None:
    strange = sorted(given.keys() - known)
    if strange:
        raise NotAPriceList(
            f"{place}: {strange[0]!r} is no word of a price list (known: {', '.join(sorted(known))})."
        )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for at, (key, _) in enumerate(pairs) if key in {other for other, _ in pairs[:at]})
        raise NotAPriceList(f"{twice!r} stands twice in one object.")
    return found


def _refused(word: str) -> Any:
    raise NotAPriceList(f"{word} is no price.")


NOTHING_OF_OUR_OWN = OwnList({"models": []})
