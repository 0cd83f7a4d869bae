"""`turnledger prices`: what calls cost, seen, changed under review, and set anew for hours that are gone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnledger.cli.output import print_json
from turnledger.cli.who import person
from turnledger.errors import TurnledgerError

if TYPE_CHECKING:
    import psycopg

    from turnledger.doctor.prices import Review
    from turnledger.pricing.catalogue import PackagedCatalogue

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
By = Annotated[str | None, typer.Option(help="Who says so; you, unless said.", show_default=False)]
Why = Annotated[str | None, typer.Option(help="The reason. It is kept with the change.", show_default=False)]
Version = Annotated[
    int | None,
    typer.Option(min=1, help="A version of the catalogue; the latest, unless said.", show_default=False),
]
Packaged = Annotated[
    bool, typer.Option("--packaged", help="Take the list of the installed genai-prices package beneath it.")
]


def register(app: typer.Typer) -> None:
    """Add ``prices show``, ``prices update``, ``prices diff`` and ``prices reprice``."""
    prices = typer.Typer(help="What calls cost: versions, updates, reprices.", no_args_is_help=True)
    prices.command("show")(show)
    prices.command("update")(update)
    prices.command("diff")(diff)
    prices.command("reprice")(reprice)
    app.add_typer(prices, name="prices")


def show(
    model: Annotated[
        str | None,
        typer.Argument(help="A model, as events say it: what it costs, and why.", show_default=False),
    ] = None,
    provider: Annotated[str | None, typer.Option(help="Of this provider.", show_default=False)] = None,
    version: Version = None,
    at: Annotated[
        str | None,
        typer.Option(help="At this time (2026-12-01T00:00:00Z); now, unless said.", show_default=False),
    ] = None,
    own: Annotated[
        bool, typer.Option("--own", help="Your own list of that version, as a file for `prices update`.")
    ] = False,
    as_json: Json = False,
) -> None:
    """The versions of the catalogue and the reprices; or what one model costs, in any spelling."""
    from turnledger.doctor import prices as pages
    from turnledger.pricing.kept import source
    from turnledger.store import prices as stored

    with _connection() as connection:
        versions = stored.catalogues(connection)
        runs = stored.reprices(connection)
        catalogue = _chosen(connection, version)
        seen = [] if model is not None else stored.seen(connection, _slot(connection))
    if own:
        print_json(catalogue.own.document, indent=2)
        return
    instant = _now() if at is None else _instant(at, "--at")
    asked = [(provider, model)] if model is not None else [(row["provider"], row["model"]) for row in seen]
    found = [
        (provider, name, catalogue.find(provider, name, instant))
        for provider, name in asked
        if name is not None
    ]
    if as_json:
        print_json(
            {
                "catalogues": [_listed(row) for row in versions],
                "reprices": [_run(row) for row in runs],
                "version": catalogue.version,
                "installed": source(),
                "models": [
                    {"provider": provider, "model": name, "price": pages.rates_row(rates)}
                    for provider, name, rates in found
                ],
            }
        )
        return
    out = typer.get_text_stream("stdout")
    if model is None:
        if not versions:
            out.write(
                f"no version is kept yet: prices are those of {source()}, and the first roll-up makes it version 1\n\n"
            )
        pages.catalogues_page(out, versions, runs)
    pages.rates_page(out, catalogue.version, found)


def update(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Your own list, whole: what it does not name costs what the packaged list says.",
            show_default=False,
        ),
    ] = None,
    packaged: Packaged = False,
    why: Why = None,
    by: By = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would change, and publish nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, on a terminal.")] = False,
    as_json: Json = False,
) -> None:
    """Publish a new version of the catalogue, after saying what changes for the models seen in the ledger.

    Calls of hours before it keep their prices: `prices reprice` sets those anew.
    """
    from turnledger.pricing.kept import source
    from turnledger.rollup import prices as book
    from turnledger.store import prices as stored

    with _connection() as connection:
        if not dry_run:
            book.begin(connection, by or person())
        old = _chosen(connection, None)
        new, listed = _candidate(connection, old, file, packaged)
        found = _reviewed(connection, old, new)
        unchanged = new.own.document == old.own.document and listed == _source(connection, old.version)
        told: dict[str, Any] = {**_review_json(found), "version": old.version, "published": False}
        if not as_json:
            _review_text(found)
        if not unchanged and not dry_run:
            if not (yes or as_json) and sys.stdin.isatty() and not typer.confirm("publish this?"):
                raise typer.Exit(1)
            kept = book.kept_now() if listed == source() else None
            ran = stored.publish(
                connection,
                source=listed,
                content=kept,
                own=new.own.document,
                by=by or person(),
                why=why,
            )
            told |= {"version": ran.number, "published": True, "sessions": ran.sessions}
    if as_json:
        print_json(told)
    elif unchanged:
        typer.echo(f"version {old.version} says the same: nothing was published")
    elif dry_run:
        typer.echo("nothing was published")
    else:
        typer.echo(
            f"version {told['version']} is published: calls of hours that begin from now on cost what it says; "
            "those before it keep their prices until `turnledger prices reprice`"
        )


def diff(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Your own list as it would be; without it, two versions are compared.", show_default=False
        ),
    ] = None,
    packaged: Packaged = False,
    before: Annotated[
        int | None,
        typer.Option(
            "--from",
            min=1,
            help="The version that is changed; the latest for a file, else the one before.",
            show_default=False,
        ),
    ] = None,
    after: Annotated[
        int | None, typer.Option("--to", min=1, help="The version that it became.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """What changes between two versions, or between the latest and a file, for the models seen in the ledger."""
    if after is not None and (file is not None or packaged):
        raise TurnledgerError("--to names a version, and a file is none: give one of the two.")
    with _connection() as connection:
        if file is None and not packaged:
            new = _chosen(connection, after)
            old = _chosen(connection, before or max(1, new.version - 1))
        else:
            old = _chosen(connection, before)
            new, _ = _candidate(connection, old, file, packaged)
        found = _reviewed(connection, old, new)
    if as_json:
        print_json(_review_json(found))
    else:
        _review_text(found)


def reprice(
    name: Annotated[str, typer.Option(help="What the run is called; every run has a name of its own.")],
    since: Annotated[
        str | None,
        typer.Option(
            help="From the hour of this time on (2026-12-01T00:00:00Z, or 7d ago); all calls, unless said.",
            show_default=False,
        ),
    ] = None,
    version: Version = None,
    why: Why = None,
    by: By = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what the calls would cost, and change nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Price the calls of past hours anew with a version of the catalogue. Their former prices are kept beside the new ones."""
    from turnledger.doctor import prices as pages
    from turnledger.fold.rollup import HOUR
    from turnledger.pricing import Reprice
    from turnledger.rollup import prices as book
    from turnledger.rollup.prices import PriceBook
    from turnledger.store import prices as stored

    if not name.strip():
        raise TurnledgerError("--name is empty: a run is known by its name, so give it one.")
    start = None if since is None else _instant(since, "--since")
    start = None if start is None else start - start % HOUR
    with _connection() as connection:
        if not dry_run:
            book.begin(connection, by or person())
        chosen = _chosen(connection, version).version
        if any(run["name"] == name for run in stored.reprices(connection)):
            raise TurnledgerError(
                f"a reprice named {name!r} was run before: `turnledger prices show` tells when; give this one a name of its own."
            )
        told: dict[str, Any] = {"name": name, "version": chosen, "dry_run": dry_run, "since": _text(start)}
        if dry_run:
            now = PriceBook().now(connection)
            then = now.with_run(Reprice(len(now.reprices) + 1, chosen, start, _now()))
            found = pages.costs(connection, _slot(connection), start, now, then)
            told |= {
                "total": pages.total(found).row(),
                "models": [
                    {"provider": provider, "model": model, **cost.row()}
                    for (provider, model), cost in sorted(found.items(), key=lambda item: str(item[0]))
                ],
            }
            if not as_json:
                pages.costs_page(typer.get_text_stream("stdout"), found)
                typer.echo("nothing was changed")
        else:
            ran = stored.reprice(
                connection, name=name, version=chosen, since=start, by=by or person(), why=why
            )
            told |= {"run": ran.number, "until": _text(ran.at), "sessions": ran.sessions}
            if not as_json:
                typer.echo(
                    f"run {ran.number} ({name}) sets the calls of {ran.sessions} sessions to version {chosen}: "
                    "the rollup workers write them now, and their former prices stay in turnledger.call_prices"
                )
    if as_json:
        print_json(told)


# --- what they share --------------------------------------------------------------------------------------------------------------


def _chosen(connection: psycopg.Connection[Any], version: int | None) -> PackagedCatalogue:
    """A published version; the latest, unless said. Before anything is published there is version 1."""
    from turnledger.pricing import packaged
    from turnledger.rollup.prices import made
    from turnledger.store.prices import catalogues

    rows = catalogues(connection)
    if not rows and version in (None, 1):
        return packaged()
    for row in rows:
        if row["version"] == version or (version is None and row is rows[-1]):
            return made(connection, row["version"], row["source"], row["own"])
    raise TurnledgerError(
        f"version {version} of the catalogue was never published: `turnledger prices show` lists those that were."
    )


def _candidate(
    connection: psycopg.Connection[Any], old: PackagedCatalogue, file: Path | None, packaged: bool
) -> tuple[PackagedCatalogue, str]:
    """(what an update would publish, the packaged list beneath it)."""
    from turnledger.pricing import packaged as installed
    from turnledger.pricing.kept import source
    from turnledger.pricing.own import NotAPriceList, parse

    if file is None and not packaged:
        raise TurnledgerError("say what changes: a file with your own list, or --packaged.")
    own = old.own
    if file is not None:
        try:
            own = parse(sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes())
        except OSError as error:
            raise TurnledgerError(
                f"cannot read {file} ({error.strerror or error}): give a file with your own list."
            ) from None
        except NotAPriceList as error:
            raise TurnledgerError(f"{file} is no price list: {error}") from None
    number = old.version + 1
    if packaged:
        return installed().with_own(number, own), source()
    return old.with_own(number, own), _source(connection, old.version)


def _source(connection: psycopg.Connection[Any], version: int) -> str:
    """The packaged list beneath a version."""
    from turnledger.pricing.kept import source
    from turnledger.store.prices import catalogues

    return next((row["source"] for row in catalogues(connection) if row["version"] == version), source())


def _reviewed(connection: psycopg.Connection[Any], old: PackagedCatalogue, new: PackagedCatalogue) -> Review:
    from turnledger.doctor.prices import review
    from turnledger.store.prices import seen

    return review(seen(connection, _slot(connection)), old, new, _now())


def _review_json(found: Review) -> dict[str, Any]:
    return {
        "changes": [one.row() for one in found.changes],
        "models_seen": found.seen,
        "changed_unseen": found.unseen,
    }


def _review_text(found: Review) -> None:
    from turnledger.doctor.prices import review_page

    review_page(typer.get_text_stream("stdout"), found)


def _listed(row: dict[str, Any]) -> dict[str, Any]:
    own = row["own"].get("models", [])
    shown = {name: row[name] for name in ("version", "source", "by", "why")}
    return {**shown, "published_at": _text(row["published_at"]), "own_models": len(own), "at": row["at"]}


def _run(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "since": _text(row["since"]), "until": _text(row["until"])}


def _text(at: int | None) -> str | None:
    from turnledger.contract.times import utc_text

    return None if at is None else utc_text(at)


def _instant(given: str, option: str) -> int:
    """µs since 1970 of a time with its offset, of a day in UTC, or of so long ago."""
    from turnledger.contract.times import parse_instant
    from turnledger.doctor.scope import NotAScope, parse_since

    day = parse_instant(f"{given}T00:00:00Z")
    if day is not None:
        return day
    try:
        return parse_since(given)
    except NotAScope:
        raise TurnledgerError(
            f"{option} {given!r} is no time: give a day (2026-12-01), a time with its offset (2026-12-01T08:00:00Z), "
            "or how long ago (90s, 30m, 24h, 7d)."
        ) from None


def _now() -> int:
    import time

    return time.time_ns() // 1000


def _slot(connection: psycopg.Connection[Any]) -> str:
    from turnledger.store.read import active_slot

    return active_slot(connection)


def _connection() -> psycopg.Connection[Any]:
    """Every statement by itself, and none too long: all calls of a ledger may be read."""
    from turnledger.cli.addresses import database_url
    from turnledger.store.connect import connect
    from turnledger.store.migrate import require

    url = database_url()
    require(url)
    return connect(url, "prices", autocommit=True, statement_seconds=0, idle_seconds=0)
