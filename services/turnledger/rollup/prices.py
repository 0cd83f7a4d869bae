"""The prices that the ledger says there are: versions and runs from the database, as the price function of ``fold.rollup``."""

from __future__ import annotations

from typing import Any

import psycopg

from turnledger.errors import TurnledgerError
from turnledger.fold.rollup import PriceFunction
from turnledger.pricing import Prices, Published, Reprice, packaged
from turnledger.pricing.catalogue import PackagedCatalogue
from turnledger.pricing.kept import keep, source, unkeep
from turnledger.pricing.own import NotAPriceList, OwnList
from turnledger.store import prices as stored
from turnledger.store.prices import State

Connection = psycopg.Connection[Any]


class PricesUnreadable(TurnledgerError):
    """What the ledger keeps of its prices cannot be read."""


class PriceBook:
    """Prices as of a state, read once and kept until the state moves."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._prices: Prices | None = None

    def as_of(self, connection: Connection, state: State) -> Prices:
        """All that is visible to ``connection``, which has seen ``state``. Raises :class:`PricesUnreadable`."""
        if self._prices is None or self._state != state:
            self._prices = read(connection)
            self._state = state
        return self._prices

    def now(self, connection: Connection) -> Prices:
        """As of what ``connection`` sees now."""
        return self.as_of(connection, stored.state(connection))


PriceSource = PriceFunction | PriceBook
"""Prices of one's own, or those of the ledger."""


def prices_of(given: PriceSource, connection: Connection, state: State | None = None) -> PriceFunction:
    """The price function that holds for what ``connection`` sees, which has seen ``state``."""
    if not isinstance(given, PriceBook):
        return given
    return given.now(connection) if state is None else given.as_of(connection, state)


def begin(connection: Connection, by: str) -> None:
    """Make the installed package's list version 1, where the ledger has none. Commits."""
    if stored.state(connection).version == 0:
        stored.keep_first(connection, source(), kept_now(), by)


def kept_now() -> bytes:
    """The installed package's list as bytes."""
    from genai_prices.data import providers

    return keep(providers)


def read(connection: Connection) -> Prices:
    """Every version and run. Where the ledger has none yet: the installed package's list alone. Raises :class:`PricesUnreadable`."""
    versions = []
    for row in stored.catalogues(connection):
        catalogue = made(connection, row["version"], row["source"], row["own"])
        versions.append(Published(catalogue, row["published_at"]))
    if not versions:
        return Prices([Published(packaged(), None)])
    runs = [
        Reprice(row["run_no"], row["version"], row["since"], row["until"])
        for row in stored.reprices(connection)
    ]
    return Prices(versions, runs)


def made(connection: Connection, version: int, listed: str, own: dict[str, Any]) -> PackagedCatalogue:
    """One version: a packaged list, the installed one or one that was kept, and the own list above it."""
    try:
        ours = OwnList(own)
    except NotAPriceList as error:
        raise PricesUnreadable(
            f"version {version} of the price catalogue cannot be read: {error} It was published by another version of turnledger: run that one."
        ) from None
    if listed == source():
        return packaged().with_own(version, ours)
    try:
        providers = unkeep(stored.price_list(connection, listed))
    except (LookupError, ValueError) as error:
        raise PricesUnreadable(
            f"the price list {listed} beneath version {version} of the catalogue cannot be read ({error}): restore ledger.price_lists from a backup."
        ) from None
    return PackagedCatalogue(providers, version, ours)
