"""`turnledger sessions`: what the ledger knows of sessions, as tables or as one JSON object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import psycopg

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Tenant = Annotated[str | None, typer.Option(help="Only this tenant.")]


def register(app: typer.Typer) -> None:
    """Add ``sessions list``, what :mod:`turnledger.cli.story` tells of one session, what the doctor says of it, and ``sessions vacuum``."""
    from turnledger.cli import sessions_check, sessions_list, story
    from turnledger.cli.retention import vacuum

    sessions = typer.Typer(help="What happened, what it cost, and is this all of it?", no_args_is_help=True)
    sessions_list.register(sessions)
    sessions.command("show")(show)
    story.register(sessions)
    sessions_check.register(sessions)
    sessions.command("vacuum")(vacuum)
    app.add_typer(sessions, name="sessions")


def show(
    session_id: Annotated[
        str, typer.Argument(metavar="SESSION", help="Its id, tenant/session_id, or its name.")
    ],
    tenant: Tenant = None,
    as_json: Json = False,
) -> None:
    """One session: its sums, turns, gaps, conflicts and dead letters."""
    from turnledger.doctor import sessions

    with _connection() as connection:
        found = sessions.show_session(connection, session_id, tenant)
    if as_json:
        _print_json(found)
        return
    from turnledger.doctor.pages import session_page

    session_page(typer.get_text_stream("stdout"), session_id, found)


def _connection() -> psycopg.Connection[Any]:
    from turnledger.cli.addresses import database_url
    from turnledger.store.connect import connect
    from turnledger.store.migrate import require

    url = database_url()
    require(url)
    return connect(url, "sessions")


def _print_json(value: Any) -> None:
    import json

    typer.echo(json.dumps(value, ensure_ascii=False, default=str))
