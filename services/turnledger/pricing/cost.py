"""The price of one call or one contribution: integer µUSD, one rounding, half away from zero (contract 9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal

from turnledger.pricing.rates import Catalogue, Rate, Rates

_EXACT = Context(prec=80, rounding=ROUND_HALF_UP)
"""Wide enough for any int64 count times any listed price, so the one rounding is the last step. HALF_UP is half away from zero."""
_INCLUSIVE = frozenset({"inclusive", "inclusive_thoughts_separate"})
_WRITES = ("cache_write_5m", "cache_write_1h", "cache_write_other")


@dataclass(frozen=True, slots=True)
class Price:
    """What a call costs, or why that is not known."""

    cost_micro_usd: int | None
    cost_fidelity: str | None
    """``exact`` ``lower_bound`` (a bucket is unknown) ``upper_bound`` (cached input may hide in what was priced as uncached)."""
    price_id: str | None
    catalog_version: int | None
    unpriced: bool = False
    """It has figures and the catalogue has no price for them: counted in ``unpriced_calls``, never 0."""


NOTHING_KNOWN = Price(None, None, None, None)
"""No bucket is known: not unpriced, it shows in ``usage_total − usage_reported``."""
UNPRICED = Price(None, None, None, None, unpriced=True)


def price_call(
    catalogue: Catalogue,
    provider: str | None,
    model: str | None,
    usage: Mapping[str, int | None],
    at: int | None,
    convention: str | None,
    *,
    one_request: bool = True,
) -> Price:
    """Price known buckets of ``usage`` (names of a ``usage`` object, contract 17) at the instant ``at`` (µs since 1970 UTC).

    ``one_request`` false: a contribution of a running total, which sums requests of unknown sizes. Tiers go by the size of one request, so
    it takes the base prices, as a lower bound once its whole is large enough for one of its requests to lie in a higher tier.
    """
    counts, missing, unsplit = _priced_counts(usage, convention)
    if not counts:
        return NOTHING_KNOWN
    rates = catalogue.find(provider, model, at)
    if rates is None:
        return UNPRICED
    total_input = usage.get("total_input")
    if total_input is None:
        total_input = sum(count for name, count in counts.items() if name not in ("output", "reasoning"))
    tier = rates.tier(total_input)
    if not one_request and tier:
        tier, missing = 0, True
    cost, unpriceable = _sum(counts, rates, tier)
    if cost is None:
        return UNPRICED
    if one_request:
        cost = _EXACT.add(cost, rates.request)
    elif rates.request:
        missing = True
    return Price(
        cost_micro_usd=int(cost.to_integral_value(rounding=ROUND_HALF_UP, context=_EXACT)),
        cost_fidelity="lower_bound" if missing or unpriceable else "upper_bound" if unsplit else "exact",
        price_id=f"{rates.price_id}+{tier}" if tier else rates.price_id,
        catalog_version=catalogue.version,
    )


def _priced_counts(
    usage: Mapping[str, int | None], convention: str | None
) -> tuple[dict[str, int], bool, bool]:
    """(tokens by the bucket they are priced as, is a bucket missing, is an unsplit inclusive input priced as uncached).

    Cache writes that nobody reported count as none (contract 8); an exclusive report with all its parts but no sum had a contradictory one.
    """
    uncached, read, output = usage.get("input_uncached"), usage.get("cache_read"), usage.get("output")
    total, reasoning = usage.get("total_input"), usage.get("reasoning")
    counts = {name: count for name in _WRITES if (count := usage.get(name)) is not None}
    missing = unsplit = False
    if uncached is None and read is None and total is not None and convention in _INCLUSIVE:
        rest = total - sum(counts.values())
        if rest >= 0:
            uncached, unsplit = rest, True
    if uncached is not None:
        counts["input_uncached"] = uncached
    if read is not None:
        counts["cache_read"] = read
    if not unsplit:
        missing = uncached is None or read is None or total is None
    if output is None:
        missing = True
    else:
        apart = min(reasoning or 0, output)
        counts["output"], counts["reasoning"] = output - apart, apart
    return counts, missing, unsplit


def _sum(counts: Mapping[str, int], rates: Rates, tier: int) -> tuple[Decimal | None, bool]:
    """(the exact sum, were there tokens without a price); the sum is None when no token that there was has one."""
    by_bucket: dict[str, Rate | None] = {
        "input_uncached": rates.input,
        "cache_read": rates.cache_read,
        "cache_write_5m": rates.cache_write_5m,
        "cache_write_1h": rates.cache_write_1h,
        "cache_write_other": rates.cache_write_5m,
        "output": rates.output,
        "reasoning": rates.reasoning or rates.output,
    }
    cost, priced, unpriceable = Decimal(0), False, False
    for name, count in counts.items():
        rate = by_bucket[name]
        if rate is not None:
            cost, priced = (
                _EXACT.add(cost, _EXACT.multiply(Decimal(count), rate.at(tier))),
                priced or count > 0,
            )
        elif count:
            unpriceable = True
    return (None if unpriceable and not priced else cost), unpriceable
