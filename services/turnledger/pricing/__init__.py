"""`pricing`: the price catalogue and the price of one call (contract 9). Pure: no clock, no network, no database."""

from __future__ import annotations

from turnledger.pricing.catalogue import packaged
from turnledger.pricing.cost import Price, price_call
from turnledger.pricing.history import Prices, Published, Reprice
from turnledger.pricing.rates import Catalogue, Rate, Rates

__all__ = [
    "Catalogue",
    "Price",
    "Prices",
    "Published",
    "Rate",
    "Rates",
    "Reprice",
    "packaged",
    "price_call",
]
