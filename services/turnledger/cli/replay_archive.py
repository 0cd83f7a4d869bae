"""`turnledger replay archive`: archived events back into a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnledger.cli.output import print_json
from turnledger.errors import TurnledgerError

if TYPE_CHECKING:
    from turnledger.replay.archive import Loaded, Replayed


def register(group: typer.Typer) -> None:
    """Add ``replay archive``."""
    group.command("archive")(archive)


def archive(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="A folder with archives: a path, or a URL such as s3://bucket/folder."
        ),
    ],
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.", show_default=False)] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="DAY", help="Only days from then on (2026-03-01).", show_default=False),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="DAY", help="Only days up to then, that one too.", show_default=False),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would add, and change nothing.")
    ] = False,
    by: Annotated[str | None, typer.Option(help="Who says so; you, unless said.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Read archives back: what the ledger has is a duplicate, what it lacks is filled in. Twice is once; a run that was cut short is gone on with.

    Each archive is proven whole first. Exit status 1 when one is damaged: it is named, and nothing of it is loaded.
    """
    import psycopg

    from turnledger.archive.place import place
    from turnledger.cli.addresses import database_url
    from turnledger.cli.archive import day_of
    from turnledger.cli.progress import counting
    from turnledger.cli.who import person
    from turnledger.contract.redact import Redactor
    from turnledger.ingest.settings import WorkerSettings
    from turnledger.replay.archive import ArchiveDecider, replay
    from turnledger.store.connect import connect
    from turnledger.store.migrate import require

    settings = WorkerSettings()
    url = database_url(settings)
    require(url)
    for name, day in (("--since", since), ("--until", until)):
        if day is not None:
            day_of(day, name)
    where = place(path)
    decider = ArchiveDecider(settings.dead_letter_bytes, Redactor(slot_key=settings.slot_key()))
    with connect(url, "replay archive", autocommit=True, lock_seconds=10) as connection:
        try:
            with counting("read", "events") as told:
                done = replay(
                    connection, where, decider, by=by or person(), tenant=tenant, since=since, until=until, dry=dry_run, progress=told
                )  # fmt: skip
        except psycopg.Error as error:
            raise TurnledgerError(
                f"the database failed in the middle ({type(error).__name__}): run it again when it answers, it goes on from where it was."
            ) from None
    if as_json:
        print_json(_answer(done, dry_run))
    else:
        _page(done, dry_run)
    if not done.whole:
        raise typer.Exit(1)


def _told(one: Loaded) -> dict[str, Any]:
    counts = one.counts
    return {
        "tenant": one.archive.manifest.tenant,
        "day": one.archive.manifest.day,
        "url": one.archive.url,
        "log": one.name,
        "events": one.archive.manifest.events,
        "before": one.before,
        "accepted": counts.accepted,
        "duplicates": counts.duplicates,
        "unverified": counts.unverified,
        "conflicts": counts.conflicts,
        "dead": counts.dead,
        "contradictions": one.conflicts,
        "damaged": one.damaged,
    }


def _answer(done: Replayed, dry: bool) -> dict[str, Any]:
    return {
        "dry_run": dry,
        "archives": [_told(one) for one in done.archives],
        "damaged": done.damaged,
        "unfinished": done.unfinished,
    }


def _page(done: Replayed, dry: bool) -> None:
    from turnledger.doctor.tables import count, safe, show

    show(
        typer.get_text_stream("stdout"),
        "what would come back" if dry else "what came back",
        ["tenant", "day", "events>", "before>", "accepted>", "duplicates>", "conflicts>", "dead>"],
        [
            [
                one.archive.manifest.tenant, one.archive.manifest.day, count(one.archive.manifest.events), count(one.before),
                count(one.counts.accepted), count(one.counts.duplicates), count(one.counts.conflicts), count(one.counts.dead),
            ]
            for one in done.archives
            if one.damaged is None
        ],
    )  # fmt: skip
    for sentence in [*done.damaged, *(one.damaged for one in done.archives if one.damaged is not None)]:
        typer.echo(safe(sentence))
    for folder in done.unfinished:
        typer.echo(safe(f"{folder} has no manifest: whoever wrote it was cut short, and it is no archive"))
    if dry:
        typer.echo("nothing was changed")
