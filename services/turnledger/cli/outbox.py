"""`turnledger outbox`: turn records for other systems, on topic turnledger.turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import psycopg


def register(app: typer.Typer) -> None:
    """Add ``outbox on``, ``off``, ``status`` and ``run``."""
    group = typer.Typer(help="Turn records for other systems, on a topic of their own.", no_args_is_help=True)
    group.command("on")(on)
    group.command("off")(off)
    group.command("status")(status)
    group.command("run")(run)
    app.add_typer(group, name="outbox")


def on(
    fill: Annotated[
        bool, typer.Option("--fill", help="Send every turn that has ended until now, too.")
    ] = False,
) -> None:
    """From now on every turn that ends, and every revision of one, waits to be sent. Start a sender: `turnledger outbox run`."""
    from turnledger.store import outbox

    with _connection() as connection:
        outbox.switch(connection, on=True)
        filled = outbox.fill(connection) if fill else 0
    typer.echo(f"the outbox is on{f'; {filled} turns that have ended wait to be sent' if fill else ''}")


def off(
    clear: Annotated[bool, typer.Option("--clear", help="Forget what still waits, too.")] = False,
) -> None:
    """Turns that end are not sent any more; what waits still is."""
    from turnledger.store import outbox

    with _connection() as connection:
        outbox.switch(connection, on=False)
        cleared = outbox.clear(connection) if clear else 0
        left = outbox.state(connection).rows
    told = f"; {cleared} turns that waited are forgotten" if clear else f"; {left} turns wait" if left else ""
    typer.echo(f"the outbox is off{told}")


def status(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Whether it is on, how many turns wait, and for how long."""
    import json

    from turnledger.store import outbox

    with _connection() as connection:
        state = outbox.state(connection)
    if as_json:
        typer.echo(json.dumps(state._asdict()))
        return
    waits = (
        f"{state.rows} turns wait, the oldest for {state.oldest_seconds:.1f} s"
        if state.rows
        else "nothing waits"
    )
    typer.echo(f"the outbox is {'on' if state.on else 'off'}; {waits}")


def run(
    once: Annotated[
        bool, typer.Option("--once", help="End when nothing waits, instead of waiting for more.")
    ] = False,
    topic: Annotated[str | None, typer.Option(help="The topic.", show_default="turnledger.turns")] = None,
    health_host: Annotated[str | None, typer.Option(help="Where /healthz and /metrics listen.")] = None,
    health_port: Annotated[
        int | None, typer.Option(help="Their port; 0: a free one, named in the log.")
    ] = None,
) -> None:
    """Send what waits. One sender is at it at a time; others that run stand by."""
    from turnledger.cli.addresses import addresses
    from turnledger.ingest.logs import configure_logging, warnings_only
    from turnledger.outbox.sender import run_sender
    from turnledger.outbox.settings import OutboxSettings

    given = {"outbox_topic": topic, "outbox_health_host": health_host, "outbox_health_port": health_port}
    settings = OutboxSettings().model_copy(
        update={name: value for name, value in given.items() if value is not None}
    )
    (warnings_only if once else configure_logging)()
    found = addresses(settings)
    assert found.kafka_bootstrap is not None and found.database_url is not None
    sent = run_sender(settings, found.database_url, found.kafka_bootstrap, once=once)
    if once:
        typer.echo(f"{sent} rows of the outbox were sent; nothing waits")


def _connection() -> psycopg.Connection[Any]:
    from turnledger.cli.addresses import database_url
    from turnledger.store.connect import connect
    from turnledger.store.migrate import require

    url = database_url()
    require(url)
    return connect(url, "outbox", autocommit=True, lock_seconds=10)
