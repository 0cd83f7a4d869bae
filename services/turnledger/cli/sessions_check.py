"""`turnledger sessions check`: what is odd about a session, how grave it is, why it may be so, and what to look at next."""

from __future__ import annotations

from typing import Annotated

import typer

from turnledger.errors import TurnledgerError


def register(sessions: typer.Typer) -> None:
    """Add ``check`` to the commands of ``sessions``."""
    sessions.command("check")(check)


def check(
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="[SESSION]",
            help="Its id, tenant/session_id, or its name; the one with the latest activity unless said.",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[
        int,
        typer.Option(
            "--rows", "-n", min=0, max=100_000, help="Rows of each finding, and latest rows of each table."
        ),
    ] = 5,
    everything: Annotated[bool, typer.Option("--all", help="Every session.")] = False,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.", show_default=False)] = None,
    settle: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for workers to write what is on its way.")
    ] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Look for everything that is missing, doubled, contradicted or unread, and say why it may be so. Exit status 1 on a red finding."""
    import psycopg

    from turnledger.cli.addresses import database_url
    from turnledger.cli.output import print_json
    from turnledger.cli.progress import counting
    from turnledger.doctor import check as doctor
    from turnledger.rollup.prices import PriceBook
    from turnledger.store.connect import connect
    from turnledger.store.migrate import require

    if everything and session is not None:
        raise TurnledgerError("--all looks at every session: name none with it.")
    url = database_url()
    require(url)
    price = PriceBook()
    with (
        counting("checked", "sessions") as told,
        connect(url, "check", statement_seconds=0, idle_seconds=0, lock_seconds=5) as connection,
    ):
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        if everything:
            found = doctor.check_all(connection, price, tenant=tenant, settle_seconds=settle, progress=told)
        else:
            found = doctor.check_one(
                connection, price, session, tenant=tenant, rows=rows, settle_seconds=settle
            )
    if as_json:
        print_json(found.as_json(rows))
    else:
        from turnledger.doctor.check_page import checkup_page

        checkup_page(typer.get_text_stream("stdout"), found, rows=rows, everything=everything)
    if found.red:
        raise typer.Exit(1)
