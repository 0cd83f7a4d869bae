"""`turnledger archive`: accepted events of closed days in files that outlive Kafka and Postgres."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnledger.cli.output import print_json
from turnledger.errors import TurnledgerError

if TYPE_CHECKING:
    from datetime import date

    from turnledger.archive.place import Place
    from turnledger.archive.write import Plan, Written


def register(app: typer.Typer) -> None:
    """Add ``archive``."""
    app.command()(archive)


def archive(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="Where to: a path, or a URL such as s3://bucket/folder.")
    ],
    day: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DAY",
            help="Only this day (2026-03-01, UTC, of ingest); may be said several times.",
            show_default=False,
        ),
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.", show_default=False)] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be written, and write nothing.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Read what is there, and hold it against its manifests.")
    ] = False,
    by: Annotated[str | None, typer.Option(help="Who says so; you, unless said.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Write the accepted events of closed days, a folder for each tenant and day; what is there whole already is left alone.

    With --check: exit status 1 when an archive is damaged.
    """
    from turnledger.archive.place import place

    where = place(path)
    if check:
        _check(where, as_json)
        return
    import psycopg

    from turnledger.archive.write import closed_days, plans, write
    from turnledger.cli.addresses import database_url
    from turnledger.cli.progress import counting
    from turnledger.cli.who import person
    from turnledger.store.connect import connect
    from turnledger.store.migrate import require

    url = database_url()
    require(url)
    wanted = None if not day else [day_of(one, "--day") for one in day]
    done: list[Written] = []
    with connect(url, "archive", autocommit=True, statement_seconds=0) as connection:
        try:
            days = closed_days(connection, wanted)
            found = list(plans(connection, days, tenant))
            if not dry_run:
                with counting("archived", "events") as told:
                    for one in found:
                        written = write(
                            connection, where, one.tenant, one.day, by=by or person(), progress=told
                        )
                        if written is not None:
                            done.append(written)
        except psycopg.Error as error:
            raise TurnledgerError(
                f"the database failed in the middle ({type(error).__name__}): run it again when it answers; archives with a manifest are whole."
            ) from None
    if as_json:
        print_json(
            {
                "dry_run": dry_run,
                "archives": [_plan(one) for one in found] if dry_run else [_written(one) for one in done],
            }
        )
    else:
        _page(found, done, dry_run)


def day_of(given: str, option: str) -> date:
    """A day as it is typed."""
    from datetime import date

    try:
        return date.fromisoformat(given)
    except ValueError:
        raise TurnledgerError(f"{option} {given!r} is no day: say 2026-03-01.") from None


def _plan(one: Plan) -> dict[str, Any]:
    return {
        "tenant": one.tenant,
        "day": one.day.isoformat(),
        "events": one.events,
        "sessions": len(one.sessions),
    }


def _written(one: Written) -> dict[str, Any]:
    manifest = one.manifest
    return {
        "tenant": manifest.tenant,
        "day": manifest.day,
        "url": one.url,
        "events": manifest.events,
        "sessions": manifest.sessions,
        "conflicts": manifest.conflicts,
        "vacuumed": manifest.vacuumed,
        "bytes": manifest.size,
        "digest": manifest.digest,
        "before": one.before,
    }


def _page(found: list[Plan], done: list[Written], dry: bool) -> None:
    from turnledger.doctor.tables import count, show

    out = typer.get_text_stream("stdout")
    if dry:
        rows = [
            [one.tenant, one.day.isoformat(), count(one.events), count(len(one.sessions))] for one in found
        ]
        show(out, "what would be written", ["tenant", "day", "events>", "sessions>"], rows)
        out.write("nothing was written\n")
        return
    show(
        out,
        "archives",
        ["tenant", "day", "events>", "sessions>", "bytes>", "gone before>", "digest", "state"],
        [
            [
                one.manifest.tenant, one.manifest.day, count(one.manifest.events), count(one.manifest.sessions), count(one.manifest.size),
                count(one.manifest.vacuumed), one.manifest.digest[:16], "was there" if one.before else "written",
            ]
            for one in done
        ],
    )  # fmt: skip
    if not done:
        out.write("no closed day has events: a day is closed some minutes after its end (UTC)\n")


def _check(where: Place, as_json: bool) -> None:
    from turnledger.archive.manifest import Damaged
    from turnledger.archive.read import find, unfinished
    from turnledger.doctor.tables import safe

    archives, broken = find(where)
    damaged = [str(error) for error in broken]
    for one in archives:
        try:
            one.check()
        except Damaged as error:
            damaged.append(str(error))
    cut = unfinished(where)
    if as_json:
        print_json({"archives": len(archives), "damaged": damaged, "unfinished": cut})
    else:
        for sentence in damaged:
            typer.echo(safe(sentence))
        for folder in cut:
            typer.echo(
                safe(
                    f"{folder} has no manifest: whoever wrote it was cut short; the next `turnledger archive` writes it anew"
                )
            )
        typer.echo(f"{len(archives)} archives, {len(damaged)} damaged")
    if damaged:
        raise typer.Exit(1)
