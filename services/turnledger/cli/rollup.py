"""`turnledger rollup`: the rollup worker, from marked sessions to their sums."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add ``rollup``."""
    app.command("rollup")(rollup)


def rollup(
    once: Annotated[
        bool, typer.Option("--once", help="End when no mark is left, instead of waiting for more.")
    ] = False,
    interval: Annotated[
        float | None, typer.Option(min=0.01, help="Seconds to wait when no session is due.")
    ] = None,
    health_host: Annotated[str | None, typer.Option(help="Where /healthz and /metrics listen.")] = None,
    health_port: Annotated[
        int | None, typer.Option(help="Their port; 0: a free one, named in the log.")
    ] = None,
) -> None:
    """Keep sessions, usage and cost up to what was ingested. Any number of these may run at once."""
    from turnledger.cli.addresses import database_url
    from turnledger.rollup.prices import PriceBook
    from turnledger.rollup.settings import RollupSettings
    from turnledger.rollup.worker import run_worker

    given = {
        "rollup_interval": interval,
        "rollup_health_host": health_host,
        "rollup_health_port": health_port,
    }
    settings = RollupSettings().model_copy(
        update={name: value for name, value in given.items() if value is not None}
    )
    status = run_worker(settings, database_url(settings), PriceBook(), once=once)
    raise typer.Exit(status)
