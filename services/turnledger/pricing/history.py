"""Which catalogue prices a call: that of its hour, until a named reprice says another one (contract 9). Pure.

A price is a function of the call, the published versions and the reprice runs, so that a ledger that is rolled up anew gets the prices that it had.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnledger.pricing.cost import Price, price_call
from turnledger.pricing.rates import Catalogue

HOUR = 3_600_000_000
"""µs."""


@dataclass(frozen=True, slots=True)
class Published:
    """One version of the catalogue and since when it holds (µs since 1970 UTC); None: it has always held, as version 1 does."""

    catalogue: Catalogue
    at: int | None


@dataclass(frozen=True, slots=True)
class Reprice:
    """One named run: the calls of these hours cost what ``version`` says. Runs count in the order of their numbers."""

    run_no: int
    """From 1."""
    version: int
    since: int | None
    """The first hour (µs since 1970 UTC); None: from the beginning, with the calls that have no hour."""
    until: int
    """When it was run: later hours have a price of their own time."""

    def covers(self, at: int | None) -> bool:
        """Does it set the price of a call at this instant?"""
        if at is None:
            return self.since is None
        hour = at - at % HOUR
        return hour <= self.until and (self.since is None or hour >= self.since)


class Prices:
    """The price function of ``fold.rollup``, over all versions and runs that there are."""

    def __init__(self, versions: Sequence[Published], reprices: Sequence[Reprice] = ()) -> None:
        """``versions``: version 1 first, each later than the one before. ``reprices``: by number, of these versions."""
        if not versions or versions[0].at is not None:
            raise ValueError("the first version of the catalogue holds from the beginning")
        self._catalogues = [one.catalogue for one in versions]
        self._published = [one.at for one in versions[1:] if one.at is not None]
        if len(self._published) != len(versions) - 1 or self._published != sorted(self._published):
            raise ValueError("versions of the catalogue stand in the order of their publication")
        self._versions = tuple(versions)
        self._by_version = {one.version: one for one in self._catalogues}
        self.reprices = tuple(sorted(reprices, key=lambda run: run.run_no))

    @property
    def latest(self) -> Catalogue:
        """The version that was published last."""
        return self._catalogues[-1]

    def catalogue(self, version: int) -> Catalogue:
        """``KeyError`` for a version that was never published."""
        return self._by_version[version]

    def with_run(self, run: Reprice) -> Prices:
        """The same with one more run."""
        return Prices(self._versions, (*self.reprices, run))

    def __call__(
        self,
        provider: str | None,
        model: str | None,
        usage: Mapping[str, int | None],
        at: int | None,
        convention: str | None,
        *,
        one_request: bool = True,
    ) -> Price:
        """The price that counts now: see ``price_call`` for the arguments."""
        for run in reversed(self.reprices):
            if run.covers(at):
                catalogue = self._by_version[run.version]
                return price_call(catalogue, provider, model, usage, at, convention, one_request=one_request)
        return self._first(provider, model, usage, at, convention, one_request)

    def every(
        self,
        provider: str | None,
        model: str | None,
        usage: Mapping[str, int | None],
        at: int | None,
        convention: str | None,
        *,
        one_request: bool = True,
    ) -> list[tuple[int, Price]]:
        """(run_no, price) of each price that a call ever had, the first one as run 0: empty where no run touched it. The last one counts."""
        runs = [run for run in self.reprices if run.covers(at)]
        if not runs:
            return []
        first = (0, self._first(provider, model, usage, at, convention, one_request))
        return [
            first,
            *(
                (
                    run.run_no,
                    price_call(
                        self._by_version[run.version], provider, model, usage, at, convention, one_request=one_request
                    ),
                )
                for run in runs
            ),
        ]  # fmt: skip

    def _first(
        self,
        provider: str | None,
        model: str | None,
        usage: Mapping[str, int | None],
        at: int | None,
        convention: str | None,
        one_request: bool,
    ) -> Price:
        """With the latest version published at or before its hour; without an hour, with the first version that has the model."""
        if at is not None:
            catalogue = self._catalogues[bisect_right(self._published, at - at % HOUR)]
            return price_call(catalogue, provider, model, usage, at, convention, one_request=one_request)
        has_it = (one for one in self._catalogues if one.find(provider, model, None) is not None)
        catalogue = next(has_it, self._catalogues[0])
        return price_call(catalogue, provider, model, usage, at, convention, one_request=one_request)
