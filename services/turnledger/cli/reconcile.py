"""`turnledger reconcile`: a session's counts in the ledger beside those that a Prometheus server scraped."""

from __future__ import annotations

from typing import Annotated

import typer

from turnledger.cli.output import print_json
from turnledger.errors import TurnledgerError


def register(app: typer.Typer) -> None:
    """Add ``turnledger reconcile``."""
    app.command()(reconcile)


def reconcile(
    session_id: Annotated[
        str, typer.Argument(help="The session: its id, tenant/id, or its name.", metavar="SESSION")
    ],
    prometheus: Annotated[
        str,
        typer.Option(
            "--prometheus", envvar="TURNLEDGER_PROMETHEUS_URL", metavar="URL", help="The server's address."
        ),
    ],
    tenant: Annotated[str | None, typer.Option(help="Of this tenant.")] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Ask as of this moment: 2026-01-31T12:00:00Z. A session that ended long ago has its samples there.",
        ),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL",
            help="One more breakdown of every metric, by these labels; guard.reason and guard_reason are one.",
        ),
    ] = None,
    label: Annotated[str, typer.Option(help="The label that names the session.")] = "session_id",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Lay a session's counts beside Prometheus's: what matches, what does not, and why that may be.

    Exit status 1 when something differs. Never a total over both; no data is not 0.
    """
    from dataclasses import replace

    from turnledger.cli.addresses import database_url
    from turnledger.contract.times import parse_instant
    from turnledger.doctor import reconcile as laying
    from turnledger.doctor.naming import NoSuchSession, WhichSession, find_session
    from turnledger.doctor.prometheus import METRICS, Prometheus
    from turnledger.store.connect import connect
    from turnledger.store.migrate import require

    moment = None if at is None else parse_instant(at)
    if at is not None and moment is None:
        raise TurnledgerError(f"--at {at!r} is no instant: write it like 2026-01-31T12:00:00Z.")
    server = Prometheus(prometheus, at=None if moment is None else moment / 1e6, label=label)
    url = database_url()
    require(url)
    with connect(url, "reconcile", autocommit=True) as connection:
        missing = None
        try:
            found = find_session(connection, session_id, tenant)
        except WhichSession:
            raise
        except NoSuchSession as error:
            found, missing = None, str(error)
        ledger = None if found is None else laying.counted(connection, found)
    name = session_id if found is None else found.session_id
    answer = laying.reconcile(ledger, server.session(name), laying.Evidence.of(server, name))
    if by:
        answer = replace(answer, extra={one.name: server.breakdown(one, name, by) for one in METRICS})
    if as_json:
        print_json(laying.as_json(answer, found, name, server.place))
    else:
        laying.write_page(typer.get_text_stream("stdout"), answer, name, server.place, missing)
    if answer.differs or missing is not None:
        raise typer.Exit(1)
