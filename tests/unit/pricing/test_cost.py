"""The price of one call (contract 9): arithmetic, fidelity, rounding. Rates are µUSD a token, written down by hand."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import pytest

from turnledger.pricing import Price, Rate, Rates, price_call

BUCKETS = (
    "input_uncached",
    "cache_read",
    "cache_write_5m",
    "cache_write_1h",
    "cache_write_other",
    "output",
    "reasoning",
    "total_input",
)


@dataclass
class Handwritten:
    """A catalogue with one model ``m``."""

    rates: Rates
    version: int = 1

    def find(self, provider: str | None, model: str | None, at: int | None) -> Rates | None:
        return self.rates if model == "m" else None


def flat(price: str) -> Rate:
    return Rate(Decimal(price))


def tiered(base: str, above: int, price: str) -> Rate:
    return Rate(Decimal(base), ((above, Decimal(price)),))


CACHED = Rates(
    price_id="p/m",
    input=flat("5"),
    output=flat("25"),
    cache_read=flat("0.5"),
    cache_write_5m=flat("6.25"),
    cache_write_1h=flat("10"),
)


def usage(**known: int) -> dict[str, int | None]:
    return {name: known.get(name) for name in BUCKETS}


def cost(rates: Rates, convention: str, *, model: str = "m", one_request: bool = True, **known: int) -> Price:
    return price_call(
        Handwritten(rates), "p", model, usage(**known), None, convention, one_request=one_request
    )


def test_every_bucket_has_its_own_price() -> None:
    price = cost(
        CACHED,
        "exclusive",
        input_uncached=1000,
        cache_read=2000,
        cache_write_5m=300,
        cache_write_1h=40,
        output=10,
        total_input=3340,
    )
    # 5000 + 1000 + 1875 + 400 + 250
    assert price == Price(8525, "exact", "p/m", 1)


def test_a_write_of_unknown_lifetime_costs_what_a_5m_write_costs() -> None:
    price = cost(
        CACHED, "exclusive", input_uncached=0, cache_read=0, cache_write_other=100, output=0, total_input=100
    )
    assert price.cost_micro_usd == 625


@pytest.mark.parametrize(("tokens", "expected"), [(1, 1), (2, 1), (3, 2), (5, 3), (7, 4)])
def test_half_a_micro_dollar_is_rounded_away_from_zero(tokens: int, expected: int) -> None:
    rates = Rates(price_id="p/m", input=flat("0.5"), output=flat("0.5"), cache_read=flat("0.5"))
    price = cost(rates, "exclusive", input_uncached=tokens, cache_read=0, output=0, total_input=tokens)
    assert price.cost_micro_usd == expected


def test_it_rounds_once_not_per_bucket() -> None:
    rates = Rates(price_id="p/m", input=flat("0.4"), output=flat("0.4"), cache_read=flat("0.4"))
    price = cost(rates, "exclusive", input_uncached=1, cache_read=1, output=1, total_input=2)
    assert price.cost_micro_usd == 1  # 1.2; bucket by bucket it would be 0


def test_the_greatest_count_is_priced_without_losing_a_digit() -> None:
    rates = Rates(price_id="p/m", input=flat("0.000001"), output=flat("1"), cache_read=flat("1"))
    tokens = 9_223_372_036_854_775_807
    price = cost(rates, "exclusive", input_uncached=tokens, cache_read=3, output=4, total_input=tokens)
    assert (
        price.cost_micro_usd == 9_223_372_036_855 + 3 + 4
    )  # 9,223,372,036,854.775807 rounds up with 7 whole ones


def test_reasoning_is_part_of_output_and_priced_once() -> None:
    price = cost(CACHED, "exclusive", input_uncached=0, cache_read=0, output=10, reasoning=4, total_input=0)
    assert price.cost_micro_usd == 250


def test_reasoning_with_a_price_of_its_own_is_taken_out_of_output() -> None:
    rates = Rates(
        price_id="p/m", input=flat("1"), output=flat("8"), reasoning=flat("3"), cache_read=flat("1")
    )
    price = cost(rates, "exclusive", input_uncached=0, cache_read=0, output=10, reasoning=4, total_input=0)
    assert price.cost_micro_usd == 48 + 12


@pytest.mark.parametrize(
    ("convention", "known", "micro_usd", "fidelity"),
    [
        (
            "exclusive",
            {"input_uncached": 10, "output": 2},
            100,
            "lower_bound",
        ),  # no cache read: most of the input may be missing
        (
            "exclusive",
            {"input_uncached": 10, "cache_read": 4, "total_input": 14},
            52,
            "lower_bound",
        ),  # no output
        ("exclusive", {"input_uncached": 10, "cache_read": 4, "output": 2, "total_input": 14}, 102, "exact"),
        (
            "exclusive",
            {"input_uncached": 10, "cache_read": 4, "output": 2},
            102,
            "lower_bound",
        ),  # contradictory writes: no sum
        ("inclusive", {"total_input": 14, "output": 2}, 120, "upper_bound"),  # cached input may hide in it
        (
            "inclusive",
            {"total_input": 14, "cache_write_5m": 4, "output": 2},
            125,
            "upper_bound",
        ),  # 10 × 5 + 4 × 6.25 + 50
        ("inclusive_thoughts_separate", {"total_input": 14, "output": 2}, 120, "upper_bound"),
        ("inclusive", {"total_input": 14}, 70, "lower_bound"),  # nor is the output known
        (
            "inclusive",
            {"total_input": 3, "cache_read": 4, "output": 2},
            52,
            "lower_bound",
        ),  # read more than there was
        ("unknown", {"output": 2}, 50, "lower_bound"),
    ],
)
def test_what_is_known_is_priced_and_says_which_way_it_is_wrong(
    convention: str, known: dict[str, int], micro_usd: int, fidelity: str
) -> None:
    price = cost(CACHED, convention, **known)
    assert (price.cost_micro_usd, price.cost_fidelity) == (micro_usd, fidelity)


def test_nothing_known_costs_null_and_is_not_unpriced() -> None:
    assert cost(CACHED, "exclusive", model="unheard-of") == Price(None, None, None, None, unpriced=False)


def test_an_unknown_model_costs_null_and_is_unpriced_never_0() -> None:
    price = cost(
        CACHED, "exclusive", model="unheard-of", input_uncached=500, cache_read=0, output=0, total_input=500
    )
    assert price == Price(None, None, None, None, unpriced=True)


def test_a_model_whose_tokens_have_no_price_is_unpriced() -> None:
    price = cost(Rates(price_id="p/m"), "exclusive", input_uncached=5, cache_read=0, output=1, total_input=5)
    assert price == Price(None, None, None, None, unpriced=True)


def test_tokens_without_a_price_beside_priced_ones_make_a_lower_bound() -> None:
    rates = Rates(price_id="p/m", input=flat("2"), cache_read=flat("2"))
    price = cost(rates, "exclusive", input_uncached=5, cache_read=0, output=1, total_input=5)
    assert (price.cost_micro_usd, price.cost_fidelity) == (10, "lower_bound")


def test_a_free_model_costs_0() -> None:
    rates = Rates(price_id="p/m", input=flat("0"), output=flat("0"), cache_read=flat("0"))
    assert cost(rates, "exclusive", input_uncached=5, cache_read=0, output=1, total_input=5) == Price(
        0, "exact", "p/m", 1
    )


LONG = Rates(
    price_id="p/m",
    input=tiered("1", 200_000, "2"),
    output=tiered("10", 200_000, "15"),
    cache_read=tiered("0.1", 200_000, "0.2"),
)


@pytest.mark.parametrize(
    ("uncached", "read", "micro_usd", "price_id"),
    [
        (200_000, 0, 200_000 + 10, "p/m"),
        (200_001, 0, 400_002 + 15, "p/m+200000"),  # the tier holds for all tokens
        (1, 200_000, 2 + 40_000 + 15, "p/m+200000"),  # cached input counts towards it
    ],
)
def test_a_tier_begins_above_its_number_of_input_tokens(
    uncached: int, read: int, micro_usd: int, price_id: str
) -> None:
    price = cost(
        LONG, "exclusive", input_uncached=uncached, cache_read=read, output=1, total_input=uncached + read
    )
    assert (price.cost_micro_usd, price.price_id, price.cost_fidelity) == (micro_usd, price_id, "exact")


def test_a_contribution_is_many_requests_so_it_takes_base_prices_as_a_lower_bound() -> None:
    price = cost(
        LONG,
        "exclusive",
        one_request=False,
        input_uncached=200_001,
        cache_read=0,
        output=1,
        total_input=200_001,
    )
    assert (price.cost_micro_usd, price.price_id, price.cost_fidelity) == (200_011, "p/m", "lower_bound")


def test_a_contribution_too_small_for_any_tier_is_exact() -> None:
    price = cost(
        LONG,
        "exclusive",
        one_request=False,
        input_uncached=200_000,
        cache_read=0,
        output=1,
        total_input=200_000,
    )
    assert (price.cost_micro_usd, price.cost_fidelity) == (200_010, "exact")


def test_a_price_for_the_request_itself_is_added_once() -> None:
    rates = Rates(
        price_id="p/m", input=flat("1"), output=flat("1"), cache_read=flat("1"), request=Decimal(5000)
    )
    assert (
        cost(rates, "exclusive", input_uncached=1, cache_read=0, output=1, total_input=1).cost_micro_usd
        == 5002
    )


def test_c10_a_later_catalogue_is_another_price_and_the_first_stays_what_it_was() -> None:
    first = Handwritten(
        Rates(price_id="p/m", input=flat("2"), output=flat("0"), cache_read=flat("0")), version=1
    )
    second = Handwritten(
        Rates(price_id="p/m", input=flat("4"), output=flat("0"), cache_read=flat("0")), version=2
    )
    tokens = usage(input_uncached=1000, cache_read=0, output=0, total_input=1000)
    before = price_call(first, "p", "m", tokens, None, "exclusive")
    after = price_call(second, "p", "m", tokens, None, "exclusive")
    assert before == Price(2000, "exact", "p/m", 1)
    assert after == Price(4000, "exact", "p/m", 2)
    assert price_call(first, "p", "m", tokens, None, "exclusive") == before
    unknown = price_call(first, "p", "unheard-of", usage(input_uncached=500), None, "exclusive")
    assert (unknown.cost_micro_usd, unknown.unpriced) == (None, True)
