"""Catalogue version 1: finding a model under its spellings, dated prices, prices that the package leaves to a rule.

A small list of our own stands in for the package where the rule is tested, so that its next release breaks no test; that the installed package is read right
is compared with the package's own calculation.
"""

from __future__ import annotations

import datetime
from decimal import Decimal

import genai_prices
import pytest
from genai_prices import types as genai

from turnledger.pricing import Rate, packaged, price_call
from turnledger.pricing.catalogue import PackagedCatalogue


def model(name: str, prices: genai.ModelPrice | list[genai.ConditionalPrice]) -> genai.ModelInfo:
    return genai.ModelInfo(id=name, match=genai.ClauseEquals(equals=name), prices=prices)


def mtok(price: str) -> genai.ModelPrice:
    return genai.ModelPrice(input_mtok=Decimal(price), output_mtok=Decimal(price))


CATALOGUE = PackagedCatalogue(
    [
        genai.Provider(
            id="acme",
            name="Acme",
            api_pattern="-",
            model_match=genai.ClauseStartsWith(starts_with="acme-"),
            models=[
                model("acme-1", mtok("1")),
                model(
                    "acme-dated",
                    [
                        genai.ConditionalPrice(prices=mtok("1")),
                        genai.ConditionalPrice(
                            constraint=genai.StartDateConstraint(start_date=datetime.date(2026, 3, 13)),
                            prices=mtok("2"),
                        ),
                    ],
                ),
                model(
                    "acme-night",
                    [
                        genai.ConditionalPrice(prices=mtok("4")),
                        genai.ConditionalPrice(
                            constraint=genai.TimeOfDateConstraint(
                                start_time=datetime.time(16, 30), end_time=datetime.time(0, 30)
                            ),
                            prices=mtok("3"),
                        ),
                    ],
                ),
                model("acme-claude", mtok("8")),
                model(
                    "acme-claude-own",
                    genai.ModelPrice(input_mtok=Decimal("8"), cache_write_mtok=Decimal("9")),
                ),
                model(
                    "acme-writes",
                    genai.ModelPrice(
                        input_mtok=Decimal("8"), cache_write_mtok=Decimal("9"), requests_kcount=Decimal("5")
                    ),
                ),
            ],
        ),
        genai.Provider(
            id="reseller",
            name="Reseller",
            api_pattern="-",
            models=[model("acme/acme-1", mtok("7"))],
        ),
    ]
)


def at(text: str) -> int:
    return round(datetime.datetime.fromisoformat(text).timestamp() * 1_000_000)


@pytest.mark.parametrize(
    ("provider", "name", "price_id"),
    [
        ("acme", "acme-1", "acme/acme-1"),
        ("Acme", "ACME-1", "acme/acme-1"),
        ("acme", "acme/acme-1", "acme/acme-1"),
        (None, "acme-1", "acme/acme-1"),
        (None, "acme/acme-1", "acme/acme-1"),
        ("litellm", "acme/acme-1", "acme/acme-1"),
        ("unknown", "acme-1", "acme/acme-1"),
        ("reseller", "acme/acme-1", "reseller/acme/acme-1"),
        (None, "reseller/acme/acme-1", "reseller/acme/acme-1"),
        ("house-gateway", "acme/acme-1", "acme/acme-1"),
    ],
)
def test_a_model_is_found_under_its_spellings(provider: str | None, name: str, price_id: str) -> None:
    found = CATALOGUE.find(provider, name, None)
    assert found is not None
    assert found.price_id == price_id


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        ("acme", "acme-9"),
        ("acme", None),
        (None, None),
        ("acme", ""),
        (None, "no/such/model"),
        ("house-gateway", "acme-1"),
    ],
)
def test_what_nobody_lists_is_unknown_and_a_foreign_provider_is_not_guessed(
    provider: str | None, name: str | None
) -> None:
    assert CATALOGUE.find(provider, name, None) is None


@pytest.mark.parametrize(
    ("instant", "price_id"),
    [
        ("2026-03-12T23:59:59.999999+00:00", "acme/acme-dated"),
        ("2026-03-13T00:00:00+00:00", "acme/acme-dated@2026-03-13"),
        ("2026-03-13T00:30:00+02:00", "acme/acme-dated"),
        ("1905-01-01T00:00:00+00:00", "acme/acme-dated"),
    ],
)
def test_a_dated_price_begins_on_its_day_in_utc(instant: str, price_id: str) -> None:
    found = CATALOGUE.find("acme", "acme-dated", at(instant))
    assert found is not None
    assert found.price_id == price_id


def test_without_an_hour_the_earliest_price_counts() -> None:
    found = CATALOGUE.find("acme", "acme-dated", None)
    assert found is not None
    assert found.input == Rate(Decimal("1"))


@pytest.mark.parametrize(
    ("instant", "price"),
    [
        ("2026-05-01T16:29:59+00:00", "4"),
        ("2026-05-01T16:30:00+00:00", "3"),
        ("2026-05-02T00:29:59+00:00", "3"),
        ("2026-05-02T00:30:00+00:00", "4"),
    ],
)
def test_a_price_of_the_night_holds_over_midnight(instant: str, price: str) -> None:
    found = CATALOGUE.find("acme", "acme-night", at(instant))
    assert found is not None
    assert found.input == Rate(Decimal(price))


def test_claude_cache_writes_cost_1_25_and_2_times_the_input_where_the_list_is_silent() -> None:
    found = CATALOGUE.find("acme", "acme-claude", None)
    assert found is not None
    assert (found.cache_write_5m, found.cache_write_1h) == (Rate(Decimal("10.00")), Rate(Decimal("16")))


def test_a_listed_claude_write_price_beats_the_multiple() -> None:
    found = CATALOGUE.find("acme", "acme-claude-own", None)
    assert found is not None
    assert (found.cache_write_5m, found.cache_write_1h) == (Rate(Decimal("9")), Rate(Decimal("16")))


def test_other_models_write_at_the_listed_price_and_read_at_the_input_price() -> None:
    found = CATALOGUE.find("acme", "acme-writes", None)
    assert found is not None
    assert (found.cache_write_5m, found.cache_write_1h, found.cache_read) == (
        Rate(Decimal("9")),
        Rate(Decimal("9")),
        Rate(Decimal("8")),
    )
    assert found.request == 5000  # 5 USD for a thousand requests


@pytest.mark.parametrize(
    ("provider", "name", "day"),
    [
        ("anthropic", "claude-opus-4-5", "2026-01-05"),
        ("anthropic", "claude-opus-4-6", "2026-03-01"),
        ("anthropic", "claude-opus-4-6", "2026-04-01"),
        ("anthropic", "claude-sonnet-4-5", "2026-01-05"),
        ("openai", "gpt-5.1", "2026-01-05"),
        ("openai", "gpt-5.2-codex", "2026-01-05"),
        ("google", "gemini-2.5-pro", "2026-01-05"),
        ("openrouter", "anthropic/claude-opus-4.5", "2026-01-05"),
    ],
)
@pytest.mark.parametrize("read", [2_000, 250_000])
def test_the_packaged_list_is_read_as_its_own_package_reads_it(
    provider: str, name: str, day: str, read: int
) -> None:
    instant = datetime.datetime.fromisoformat(day).replace(tzinfo=datetime.UTC)
    theirs = genai_prices.calc_price(
        genai_prices.Usage(
            input_tokens=1_000 + read + 300, cache_read_tokens=read, cache_write_tokens=300, output_tokens=77
        ),
        name,
        provider_id=provider,
        genai_request_timestamp=instant,
    )
    ours = price_call(
        packaged(),
        provider,
        name,
        {
            "input_uncached": 1_000,
            "cache_read": read,
            "cache_write_5m": 300,
            "output": 77,
            "total_input": 1_300 + read,
        },
        at(day + "T00:00:00+00:00"),
        "exclusive",
    )
    assert ours.cost_micro_usd is not None
    assert abs(Decimal(ours.cost_micro_usd) - theirs.total_price * 1_000_000) <= Decimal("0.5")
