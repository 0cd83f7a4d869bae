"""What a change of prices would do, before it is made: for the models that the ledger has seen, and for the costs that it has summed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TextIO

import psycopg

from turnledger.contract.times import utc_text
from turnledger.doctor.tables import UNKNOWN, count, dollars, sentence, show
from turnledger.fold.columns import BUCKETS
from turnledger.fold.model import Row
from turnledger.fold.rollup import PriceFunction, add
from turnledger.pricing import Rate, Rates
from turnledger.pricing.catalogue import PackagedCatalogue
from turnledger.pricing.own import KINDS
from turnledger.store import prices as stored

Connection = psycopg.Connection[Any]
Model = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class Change:
    """What another catalogue says of one model that the ledger has seen."""

    provider: str | None
    model: str
    calls: int
    change: str
    """``priced`` (it had no price), ``changed``, ``unpriced`` (it has none any more)."""
    at: int
    """From when on (µs since 1970 UTC): now, or a day that is still to come."""
    before: Rates | None
    after: Rates | None

    def row(self) -> Row:
        """As one object of ``--json``: prices in USD for a million tokens, as text."""
        return {
            "provider": self.provider,
            "model": self.model,
            "calls": self.calls,
            "change": self.change,
            "from": utc_text(self.at),
            "before": rates_row(self.before),
            "after": rates_row(self.after),
        }


@dataclass(slots=True)
class Cost:
    """What the calls of one model cost before and after."""

    calls: int = 0
    before: int | None = None
    after: int | None = None
    unpriced_before: int = 0
    unpriced_after: int = 0
    moved: int = 0
    """Calls whose cost differs."""

    def row(self) -> Row:
        return {
            "calls": self.calls,
            "calls_moved": self.moved,
            "cost_micro_usd_before": self.before,
            "cost_micro_usd_after": self.after,
            "unpriced_calls_before": self.unpriced_before,
            "unpriced_calls_after": self.unpriced_after,
        }


@dataclass(slots=True)
class Review:
    """What an update would do."""

    changes: list[Change] = field(default_factory=list)
    unseen: int = 0
    """Entries of either own list that differ and that no call has asked for."""
    seen: int = 0
    """Models that the ledger has seen."""


def review(seen: Iterable[Row], old: PackagedCatalogue, new: PackagedCatalogue, now: int) -> Review:
    """Compare two catalogues for the models seen, at ``now`` and at every later day on which a price of either own list begins."""
    found = Review()
    later = sorted({start for one in (old, new) for start in one.own.starts() if start > now})
    for row in seen:
        found.seen += 1
        told: tuple[object, object] | None = None
        for at in (now, *later):
            before, after = (one.find(row["provider"], row["model"], at) for one in (old, new))
            said, told = told, (_figures(before), _figures(after))
            if told[0] != told[1] and told != said:
                change = "priced" if before is None else "unpriced" if after is None else "changed"
                found.changes.append(
                    Change(row["provider"], row["model"], row["calls"], change, at, before, after)
                )
    changed = {(one.provider, one.model) for one in found.changes}
    for named in {*old.own.models(), *new.own.models()}:
        ours = [one.own.prices(*named) for one in (old, new)]
        found.unseen += named not in changed and ours[0] != ours[1]
    return found


def costs(
    connection: Connection, slot: str, since: int | None, before: PriceFunction, after: PriceFunction
) -> dict[Model, Cost]:
    """What usage_hourly sums from an hour on, by model, at the prices of before and of after. Reads every call once, holds none."""
    found: dict[Model, Cost] = {}
    for row in stored.priced(connection, slot, since):
        usage = {name: row[f"{name}_tokens"] for name in BUCKETS}
        asked = (row["provider"], row["model"], usage, row["hour_at"], row["token_convention"])
        old, new = (price(*asked, one_request=row["one_request"]) for price in (before, after))
        cost = found.setdefault((row["provider"], row["model"]), Cost())
        cost.calls += 1
        cost.before, cost.after = (
            add([cost.before, old.cost_micro_usd]),
            add([cost.after, new.cost_micro_usd]),
        )
        cost.unpriced_before += old.unpriced
        cost.unpriced_after += new.unpriced
        cost.moved += (old.cost_micro_usd, old.unpriced) != (new.cost_micro_usd, new.unpriced)
    return found


def rates_row(rates: Rates | None) -> Row | None:
    """Rates as ``--json`` shows them: USD for a million tokens, as text; tiers by the input above which they hold."""
    if rates is None:
        return None
    row: Row = {"price_id": rates.price_id}
    for kind in KINDS:
        rate: Rate | None = getattr(rates, kind)
        row[kind] = None if rate is None else _plain(rate.base)
        if rate is not None and rate.tiers:
            row[f"{kind}_above"] = {str(start): _plain(price) for start, price in rate.tiers}
    if rates.request:
        row["per_request"] = _plain(rates.request / 1_000_000)
    return row


# --- pages ------------------------------------------------------------------------------------------------------------------------


def review_page(out: TextIO, found: Review) -> None:
    """For a person, before an update."""
    show(
        out,
        "models seen in the ledger whose price changes",
        ["provider", "model", "calls>", "change", "from", "price, USD a million tokens"],
        [
            [one.provider, one.model, count(one.calls), one.change, _day(one.at), _difference(one)]
            for one in found.changes
        ],
    )
    moved = len({(one.provider, one.model) for one in found.changes})
    same = found.seen - moved
    sentence(
        out,
        f"{count(moved)} of {count(found.seen)} models seen change, {count(same)} cost what they did; "
        f"{count(found.unseen)} changed entries are of models that no call has asked for",
    )


def costs_page(out: TextIO, found: dict[Model, Cost]) -> None:
    """For a person, before a reprice: the models whose sums move, and the whole."""
    moved = sorted(
        ((model, cost) for model, cost in found.items() if cost.moved),
        key=lambda item: (-abs((item[1].after or 0) - (item[1].before or 0)), str(item[0])),
    )
    show(
        out,
        "what the calls of these hours cost",
        ["provider", "model", "calls>", "of them moved>", "before>", "after>", "unpriced before>", "after>"],
        [
            [
                *model,
                count(cost.calls),
                count(cost.moved),
                dollars(cost.before),
                dollars(cost.after),
                count(cost.unpriced_before),
                count(cost.unpriced_after),
            ]
            for model, cost in moved
        ],
    )
    whole = total(found)
    sentence(
        out,
        f"{count(whole.calls)} calls of these hours, {count(whole.moved)} of them move: {dollars(whole.before)} before, "
        f"{dollars(whole.after)} after; {count(whole.unpriced_before)} unpriced before, {count(whole.unpriced_after)} after",
    )


def total(found: dict[Model, Cost]) -> Cost:
    """Of all models."""
    whole = Cost()
    for cost in found.values():
        whole.calls += cost.calls
        whole.moved += cost.moved
        whole.before, whole.after = add([whole.before, cost.before]), add([whole.after, cost.after])
        whole.unpriced_before += cost.unpriced_before
        whole.unpriced_after += cost.unpriced_after
    return whole


def catalogues_page(out: TextIO, versions: Sequence[Row], runs: Sequence[Row]) -> None:
    """The versions and the runs that there are."""
    show(
        out,
        "versions of the catalogue",
        ["version>", "holds from", "packaged list", "own models>", "by", "why"],
        [
            [
                row["version"],
                "always" if row["published_at"] is None else _second(row["published_at"]),
                row["source"],
                count(len(row["own"].get("models", []))),
                row["by"],
                row["why"],
            ]
            for row in versions
        ],
    )
    show(
        out,
        "reprices",
        ["run>", "name", "version>", "hours from", "to", "sessions>", "by", "why"],
        [
            [
                row["run_no"],
                row["name"],
                row["version"],
                "all" if row["since"] is None else _second(row["since"]),
                _second(row["until"]),
                count(row["sessions"]),
                row["by"],
                row["why"],
            ]
            for row in runs
        ],
    )


def rates_page(out: TextIO, version: int, found: Sequence[tuple[str | None, str, Rates | None]]) -> None:
    """What models cost in one version."""
    show(
        out,
        f"prices of version {version}, USD a million tokens",
        ["provider", "model", *(f"{kind}>" for kind in KINDS), "price_id"],
        [
            [
                provider,
                model,
                *(_rate(None if rates is None else getattr(rates, kind)) for kind in KINDS),
                "no price" if rates is None else rates.price_id,
            ]
            for provider, model, rates in found
        ],
    )


def _difference(change: Change) -> str:
    if change.after is None or change.before is None:
        rates = change.before or change.after
        assert rates is not None
        all_of_it = ", ".join(
            f"{kind} {_rate(getattr(rates, kind))}" for kind in KINDS if getattr(rates, kind) is not None
        )
        return f"{'was ' if change.after is None else ''}{all_of_it}"
    told = [
        f"{kind} {_rate(getattr(change.before, kind))} → {_rate(getattr(change.after, kind))}"
        for kind in KINDS
        if getattr(change.before, kind) != getattr(change.after, kind)
    ]
    if change.before.request != change.after.request:
        told.append(
            f"a request {_plain(change.before.request / 1_000_000)} → {_plain(change.after.request / 1_000_000)}"
        )
    return ", ".join(told)


def _rate(rate: Rate | None) -> str:
    if rate is None:
        return UNKNOWN
    tiers = "".join(f" (>{start:,}: {_plain(price)})" for start, price in rate.tiers)
    return f"{_plain(rate.base)}{tiers}"


def _plain(price: Decimal) -> str:
    """Without an exponent and without zeros at its end."""
    text = f"{price:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"


def _figures(rates: Rates | None) -> tuple[Any, ...] | None:
    return None if rates is None else (*(getattr(rates, kind) for kind in KINDS), rates.request)


def _day(at: int) -> str:
    return utc_text(at).partition("T")[0]


def _second(at: int) -> str:
    return utc_text(at).partition(".")[0].replace("T", " ") + "Z"
