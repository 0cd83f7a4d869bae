"""A price list as bytes that can be kept: what version 1 was must still be known when the package that brought it is another one.

The bytes hold what ``PackagedCatalogue`` reads and no more, so that they can be read with any later version of the package.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from datetime import date, time
from decimal import Decimal
from importlib.metadata import version
from typing import Any, cast

from genai_prices import types as genai

PRICES = (
    "input_mtok",
    "output_mtok",
    "output_reasoning_mtok",
    "cache_read_mtok",
    "cache_write_mtok",
    "cache_write_5m_mtok",
    "cache_write_1h_mtok",
    "requests_kcount",
)
"""The prices of a model that are read (``catalogue._rates``)."""
_WORDS: dict[str, type[Any]] = {
    "equals": genai.ClauseEquals,
    "starts_with": genai.ClauseStartsWith,
    "ends_with": genai.ClauseEndsWith,
    "contains": genai.ClauseContains,
    "regex": genai.ClauseRegex,
}
_LISTS: dict[str, type[Any]] = {"or": genai.ClauseOr, "and": genai.ClauseAnd}


def source() -> str:
    """Names the list of the installed package: its name and version."""
    return f"genai-prices {version('genai-prices')}"


def keep(providers: Iterable[genai.Provider]) -> bytes:
    """A list as compressed JSON. Raises ``ValueError`` for a clause or a condition that this version does not know."""
    listed = [
        {
            "id": one.id,
            "name": one.name,
            "api_pattern": one.api_pattern,
            "model_match": _clause(one.model_match),
            "provider_match": _clause(one.provider_match),
            "fallback_model_providers": one.fallback_model_providers,
            "models": [
                {"id": model.id, "match": _clause(model.match), "prices": _prices(model)}
                for model in one.models
            ],
        }
        for one in providers
    ]
    return zlib.compress(json.dumps(listed, separators=(",", ":"), sort_keys=True).encode(), 9)


def unkeep(content: bytes) -> list[genai.Provider]:
    """The list that :func:`keep` was given, as far as prices read it."""
    return [
        genai.Provider(
            id=one["id"],
            name=one["name"],
            api_pattern=one["api_pattern"],
            model_match=_match(one["model_match"]),
            provider_match=_match(one["provider_match"]),
            fallback_model_providers=one["fallback_model_providers"],
            models=[
                genai.ModelInfo(
                    id=model["id"],
                    match=cast("genai.MatchLogic", _match(model["match"])),
                    prices=_kept_prices(model["prices"]),
                )
                for model in one["models"]
            ],
        )
        for one in json.loads(zlib.decompress(content))
    ]


def _clause(match: Any) -> Any:
    if match is None:
        return None
    for word, kind in _WORDS.items():
        if isinstance(match, kind):
            return {word: getattr(match, word)}
    for word, kind in _LISTS.items():
        if isinstance(match, kind):
            return {word: [_clause(one) for one in getattr(match, f"{word}_")]}
    raise ValueError(f"the price list matches by {type(match).__name__}, which cannot be kept")


def _match(kept: Mapping[str, Any] | None) -> genai.MatchLogic | None:
    if kept is None:
        return None
    ((word, value),) = kept.items()
    made = _WORDS[word](value) if word in _WORDS else _LISTS[word]([_match(one) for one in value])
    return cast("genai.MatchLogic", made)


def _prices(model: genai.ModelInfo) -> Any:
    if isinstance(model.prices, genai.ModelPrice):
        return _price(model.prices)
    listed = []
    for one in model.prices:
        match one.constraint:
            case genai.StartDateConstraint(start_date=day):
                when: Any = {"from": day.isoformat()}
            case genai.TimeOfDateConstraint(start_time=first, end_time=end):
                when = {"between": [first.isoformat(), end.isoformat()]}
            case None:
                when = None
            case other:
                raise ValueError(f"the price list dates by {type(other).__name__}, which cannot be kept")
        listed.append({"when": when, "price": _price(one.prices)})
    return listed


def _price(price: genai.ModelPrice) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name in PRICES:
        value = getattr(price, name)
        if isinstance(value, genai.TieredPrices):
            kept[name] = {
                "base": str(value.base),
                "tiers": [[tier.start, str(tier.price)] for tier in value.tiers],
            }
        elif value is not None:
            kept[name] = str(value)
    return kept


def _kept_prices(kept: Any) -> genai.ModelPrice | list[genai.ConditionalPrice]:
    if isinstance(kept, dict):
        return _model_price(kept)
    return [
        genai.ConditionalPrice(constraint=_constraint(one["when"]), prices=_model_price(one["price"]))
        for one in kept
    ]


def _constraint(
    when: Mapping[str, Any] | None,
) -> genai.StartDateConstraint | genai.TimeOfDateConstraint | None:
    if when is None:
        return None
    if "from" in when:
        return genai.StartDateConstraint(start_date=date.fromisoformat(when["from"]))
    first, end = when["between"]
    return genai.TimeOfDateConstraint(start_time=time.fromisoformat(first), end_time=time.fromisoformat(end))


def _model_price(kept: Mapping[str, Any]) -> genai.ModelPrice:
    given: dict[str, Any] = {}
    for name, value in kept.items():
        if isinstance(value, dict):
            tiers = [genai.Tier(start=start, price=Decimal(price)) for start, price in value["tiers"]]
            given[name] = genai.TieredPrices(base=Decimal(value["base"]), tiers=tiers)
        else:
            given[name] = Decimal(value)
    return genai.ModelPrice(**given)
