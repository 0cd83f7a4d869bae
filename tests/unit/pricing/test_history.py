"""Which version prices a call (contract 9): that of its hour, the first that has the model where it has none, a reprice's from then on."""

from __future__ import annotations

from decimal import Decimal

import pytest

from turnledger.contract.times import parse_instant
from turnledger.pricing import Prices, Published, Rate, Rates, Reprice
from turnledger.pricing.catalogue import PackagedCatalogue
from turnledger.pricing.kept import keep, unkeep

USAGE = {"input_uncached": 1000, "cache_read": 0, "output": 0, "total_input": 1000}


def instant(text: str) -> int:
    at = parse_instant(text)
    assert at is not None
    return at


PUBLISHED_2 = instant("2026-06-10T10:15:00Z")
PUBLISHED_3 = instant("2026-06-20T00:00:00Z")


class Flat:
    """Model ``m`` at a price; ``late`` only from version 2 on."""

    def __init__(self, version: int, price: str) -> None:
        self.version = version
        self.price = price

    def find(self, provider: str | None, model: str | None, at: int | None) -> Rates | None:
        if model == "m" or (model == "late" and self.version >= 2):
            rate = Rate(Decimal(self.price))
            return Rates(price_id=f"p/{model}", input=rate, output=rate, cache_read=rate)
        return None


VERSIONS = [
    Published(Flat(1, "2"), None),
    Published(Flat(2, "4"), PUBLISHED_2),
    Published(Flat(3, "7"), PUBLISHED_3),
]


def cost(prices: Prices, at: str | None, model: str = "m") -> tuple[int | None, int | None]:
    price = prices("p", model, USAGE, None if at is None else instant(at), "exclusive")
    return price.cost_micro_usd, price.catalog_version


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2020-01-01T00:00:00Z", (2000, 1)),
        ("2026-06-10T10:14:59Z", (2000, 1)),
        (
            "2026-06-10T10:59:59Z",
            (2000, 1),
        ),  # its hour began before the publication: one hour has one version
        ("2026-06-10T11:00:00Z", (4000, 2)),
        ("2026-06-19T23:59:59Z", (4000, 2)),
        ("2026-06-20T00:00:00Z", (7000, 3)),  # at its hour
        ("2030-01-01T00:00:00Z", (7000, 3)),
        (None, (2000, 1)),
    ],
)
def test_a_call_has_the_latest_version_published_at_or_before_its_hour(
    at: str | None, expected: tuple[int, int]
) -> None:
    assert cost(Prices(VERSIONS), at) == expected


def test_a_model_that_a_later_version_brings_stays_unpriced_in_the_hours_before() -> None:
    prices = Prices(VERSIONS)
    before = prices("p", "late", USAGE, instant("2026-06-01T00:00:00Z"), "exclusive")
    assert (before.cost_micro_usd, before.unpriced) == (None, True)
    assert cost(prices, "2026-06-11T00:00:00Z", "late") == (4000, 2)


def test_a_call_without_an_hour_has_the_first_version_that_has_its_model() -> None:
    assert cost(Prices(VERSIONS), None, "late") == (4000, 2)
    unknown = Prices(VERSIONS)("p", "unheard-of", USAGE, None, "exclusive")
    assert (unknown.cost_micro_usd, unknown.unpriced) == (None, True)


def test_c10_a_reprice_says_the_new_price_and_keeps_the_old_one() -> None:
    at = "2026-06-01T00:00:00Z"
    assert cost(Prices(VERSIONS[:2]), at) == (2000, 1)
    run = Reprice(1, 2, None, instant("2026-06-11T00:00:00Z"))
    prices = Prices(VERSIONS[:2], [run])
    assert cost(prices, at) == (4000, 2)
    every = prices.every("p", "m", USAGE, instant(at), "exclusive")
    assert [(number, price.cost_micro_usd) for number, price in every] == [(0, 2000), (1, 4000)]


def test_a_reprice_is_of_its_hours_alone() -> None:
    run = Reprice(1, 3, instant("2026-06-05T00:00:00Z"), instant("2026-06-25T12:30:00Z"))
    prices = Prices(VERSIONS, [run])
    assert cost(prices, "2026-06-04T23:59:59Z") == (2000, 1)
    assert cost(prices, "2026-06-05T00:00:00Z") == (7000, 3)
    assert cost(prices, "2026-06-25T12:59:59Z") == (7000, 3)
    assert cost(prices, None) == (2000, 1)  # when it was is not known: not since
    assert prices.every("p", "m", USAGE, None, "exclusive") == []


def test_hours_after_a_run_have_the_price_of_their_own_time() -> None:
    back = Reprice(1, 1, None, instant("2026-06-21T00:00:00Z"))
    prices = Prices(VERSIONS, [back])
    assert cost(prices, "2026-06-20T12:00:00Z") == (2000, 1)
    assert cost(prices, "2026-06-21T01:00:00Z") == (7000, 3)


def test_of_several_runs_the_last_counts_and_all_are_kept() -> None:
    runs = [Reprice(2, 2, None, PUBLISHED_3), Reprice(1, 3, None, PUBLISHED_3)]
    prices = Prices(VERSIONS, runs)
    assert cost(prices, "2026-06-01T00:00:00Z") == (4000, 2)
    every = prices.every("p", "m", USAGE, instant("2026-06-01T00:00:00Z"), "exclusive")
    assert [(number, price.catalog_version) for number, price in every] == [(0, 1), (1, 3), (2, 2)]


def test_versions_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="order"):
        Prices([VERSIONS[0], VERSIONS[2], VERSIONS[1]])
    with pytest.raises(ValueError, match="beginning"):
        Prices(VERSIONS[1:])


def test_the_packaged_list_comes_back_from_its_bytes_price_by_price() -> None:
    from genai_prices.data import providers

    content = keep(providers)
    back = unkeep(content)
    assert keep(back) == content
    first, second = PackagedCatalogue(providers), PackagedCatalogue(back)
    late = instant("2029-06-01T17:00:00Z")
    compared = 0
    for provider in providers[::3]:
        for model in provider.models[::5]:
            for at in (None, late):
                assert first.find(provider.id, model.id, at) == second.find(provider.id, model.id, at)
                compared += 1
    assert compared > 100
