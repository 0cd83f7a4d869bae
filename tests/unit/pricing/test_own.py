"""A list of one's own above the packaged one: which entry is meant, what it says, and what is refused with its place."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from turnledger.contract.times import parse_instant
from turnledger.pricing import packaged, price_call
from turnledger.pricing.own import NotAPriceList, OwnList, parse

DEC_1 = parse_instant("2026-12-01T00:00:00Z")


def own(*models: dict[str, Any]) -> OwnList:
    return parse(json.dumps({"models": models}).encode())


def entry(**more: Any) -> dict[str, Any]:
    return {"provider": "anthropic", "model": "claude-opus-4-5", "prices": [{"input": "1"}], **more}


def base(provider: str | None, model: str, *, at: int | None = DEC_1, above: OwnList | None = None) -> Any:
    catalogue = packaged().with_own(2, above if above is not None else own(entry()))
    rates = catalogue.find(provider, model, at)
    return None if rates is None or rates.input is None else rates.input.base


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("anthropic", "claude-opus-4-5"),
        ("anthropic", "claude-opus-4-5-20251101"),  # a spelling that the packaged list knows
        ("Anthropic", " Claude-Opus-4-5 "),
        ("anthropic", "anthropic/claude-opus-4-5"),
        (None, "anthropic/claude-opus-4-5"),
        (None, "claude-opus-4-5"),
        ("litellm", "anthropic/claude-opus-4-5"),
    ],
)
def test_a_price_of_ours_holds_for_every_spelling_of_its_model(provider: str | None, model: str) -> None:
    assert base(provider, model) == Decimal(1)


def test_what_the_list_does_not_name_costs_what_the_packaged_list_says() -> None:
    assert base("anthropic", "claude-haiku-4-5") == Decimal(1)  # its packaged price
    assert base("openai", "gpt-4o") == Decimal("2.5")


def test_a_provider_that_only_our_list_knows_has_its_models_from_there() -> None:
    ours = own({"provider": "house", "model": "gw/large", "also": ["large"], "prices": [{"input": 3}]})
    assert base("house", "gw/large", above=ours) == Decimal(3)
    assert base("house", "large", above=ours) == Decimal(3)
    assert base("house", "house/large", above=ours) == Decimal(3)
    assert base(None, "house/large", above=ours) == Decimal(3)
    assert base("house", "small", above=ours) is None
    assert base("elsewhere", "large", above=ours) is None


def test_a_resellers_own_entry_is_not_replaced_by_a_price_of_the_maker() -> None:
    reseller = packaged().find("openrouter", "anthropic/claude-opus-4.5", DEC_1)
    assert reseller is not None
    assert base("openrouter", "anthropic/claude-opus-4.5") == Decimal(5)


def test_dated_prices_hold_from_their_day_on_and_before_the_first_the_packaged_list_does() -> None:
    ours = own(
        entry(
            prices=[{"from": "2026-12-01", "input": "4"}, {"from": "2027-01-01T08:00:00+01:00", "input": "3"}]
        )
    )
    assert (
        base("anthropic", "claude-opus-4-5", above=ours, at=parse_instant("2026-11-30T23:59:59.999999Z")) == 5
    )
    assert base("anthropic", "claude-opus-4-5", above=ours, at=DEC_1) == 4
    assert base("anthropic", "claude-opus-4-5", above=ours, at=parse_instant("2027-01-01T07:00:00Z")) == 3
    assert base("anthropic", "claude-opus-4-5", above=ours, at=None) == 4
    rates = packaged().with_own(2, ours).find("anthropic", "claude-opus-4-5", DEC_1)
    assert rates is not None
    assert rates.price_id == "anthropic/claude-opus-4-5@2026-12-01"


def test_every_kind_of_token_and_tiers_are_read() -> None:
    ours = own(
        entry(
            model="m",
            prices=[
                {
                    "input": "2",
                    "output": "10",
                    "reasoning": "12",
                    "cache_read": "0.2",
                    "cache_write_5m": "2.5",
                    "cache_write_1h": "4",
                    "per_request": "0.000007",
                    "above": {"1000": {"input": "3", "output": "15"}},
                }
            ],
        )
    )
    usage = {
        "input_uncached": 100, "cache_read": 10, "cache_write_5m": 20, "cache_write_1h": 30, "output": 50, "reasoning": 20, "total_input": 160,
    }  # fmt: skip
    # 100×2 + 10×0.2 + 20×2.5 + 30×4 + 30×10 + 20×12 + 7 for the request
    assert (
        price_call(packaged().with_own(2, ours), "anthropic", "m", usage, DEC_1, "exclusive").cost_micro_usd
        == 919
    )
    long = {"input_uncached": 2000, "cache_read": 0, "output": 10, "total_input": 2000}
    price = price_call(packaged().with_own(2, ours), "anthropic", "m", long, DEC_1, "exclusive")
    assert (price.cost_micro_usd, price.price_id) == (2000 * 3 + 10 * 15 + 7, "anthropic/m+1000")


def test_tokens_without_a_price_cost_what_the_next_wider_kind_costs() -> None:
    rates = own({"provider": "p", "model": "m", "prices": [{"input": 2}]}).find("p", "m", None)
    assert rates is not None
    assert rates.cache_read == rates.cache_write_5m == rates.cache_write_1h == rates.input
    assert rates.output is None
    claude = own({"provider": "p", "model": "claude-x", "prices": [{"input": 2}]}).find("p", "claude-x", None)
    assert claude is not None and claude.cache_write_5m is not None and claude.cache_write_1h is not None
    assert (claude.cache_write_5m.base, claude.cache_write_1h.base) == (Decimal("2.5"), Decimal(4))


def test_no_digit_of_a_number_is_lost() -> None:
    rates = parse(b'{"models":[{"provider":"p","model":"m","prices":[{"input":0.1234567890123456}]}]}').find(
        "p", "m", None
    )
    assert rates is not None and rates.input is not None
    assert rates.input.base == Decimal("0.1234567890123456")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is no JSON"),
        ("[]", "no object"),
        ("{}", '"models"'),
        ('{"models":[],"models":[]}', "'models' stands twice"),
        ('{"models":[],"modles":[]}', "'modles' is no word"),
        ('{"currency":"EUR","models":[]}', "in USD"),
        ('{"models":[{"provider":"p","model":"","prices":[{"input":1}]}]}', "models[0].model"),
        ('{"models":[{"provider":"p","model":"m","prices":[]}]}', "models[0].prices"),
        ('{"models":[{"provider":"p","model":"m","prices":[{"imput":1}]}]}', "'imput' is no word"),
        ('{"models":[{"provider":"p","model":"m","prices":[{"cache_read":1}]}]}', "at least one"),
        ('{"models":[{"provider":"p","model":"m","prices":[{"input":-1}]}]}', "no price"),
        ('{"models":[{"provider":"p","model":"m","prices":[{"input":NaN}]}]}', "NaN"),
        ('{"models":[{"provider":"p","model":"m","prices":[{"input":"1,5"}]}]}', "no price"),
        ('{"models":[{"provider":"p","model":"m","prices":[{"input":1e99}]}]}', "digits"),
        ('{"models":[{"provider":"p","model":"m","prices":[{"input":true}]}]}', "no price"),
        ('{"models":[{"provider":"p","model":"m","prices":[{"input":1},{"input":2}]}]}', '"from"'),
        ('{"models":[{"provider":"p","model":"m","prices":[{"from":"soon","input":2}]}]}', "neither a day"),
        ('{"models":[{"provider":"p","model":"m","prices":[{"input":1,"above":{"x":{}}}]}]}', "number of input tokens"),
        ('{"models":[{"provider":"p","model":"m","prices":[{"input":1,"above":{"9":{"output":1}}}]}]}', "no price below"),
        (
            '{"models":[{"provider":"p","model":"m","prices":[{"input":1}]},{"provider":"P","model":"M","prices":[{"input":1}]}]}',
            "p/m stands in the document twice",
        ),
        (
            '{"models":[{"provider":"p","model":"m","also":["M"],"prices":[{"input":1}]}]}',
            "p/m stands in the document twice",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_read_as_it_was_meant_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(NotAPriceList) as refused:
        parse(text.encode())
    assert said in str(refused.value)
