"""`turnledger db`: bring the schema of the database to the version of this program, and say where it stands."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add ``db migrate``, ``db status`` and ``db roles``."""
    from turnledger.cli import db_roles

    db = typer.Typer(help="The schema of the database, and who may use it.", no_args_is_help=True)
    db.command("migrate")(migrate)
    db.command("status")(status)
    db_roles.register(db)
    app.add_typer(db, name="db")


def migrate() -> None:
    """Apply what is pending: under a lock, safe beside live workers, nothing when there is nothing to do."""
    from turnledger.cli.addresses import database_url
    from turnledger.store import migrate as runner
    from turnledger.store.connect import place

    url = database_url()
    before = runner.status(url)
    found = runner.migrate(url, say=lambda line: typer.echo(f"db migrate: {line}", err=True))
    if before.pending:
        typer.echo(f"{place(url)}: migrated from {before.current or 'nothing'} to {found.current}")
    else:
        typer.echo(f"{place(url)}: already at {found.current}, nothing to do")


def status(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Say which version the database has and what is pending. Exit status 1 when something is."""
    from turnledger.cli.addresses import database_url
    from turnledger.store import migrate as runner
    from turnledger.store.connect import place

    url = database_url()
    found = runner.status(url)
    if as_json:
        typer.echo(json.dumps({"current": found.current, "head": found.head, "pending": list(found.pending)}))
    elif found.pending:
        typer.echo(
            f"{place(url)}: at {found.current or 'nothing'}, pending: {', '.join(found.pending)} (run `turnledger db migrate`)"
        )
    else:
        typer.echo(f"{place(url)}: at {found.current}, nothing pending")
    if found.pending:
        raise typer.Exit(1)
