"""`turnledger dead`: records that are no events, seen, repaired and sent through again; partitions that they stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnledger.errors import TurnledgerError

if TYPE_CHECKING:
    import psycopg

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
By = Annotated[str | None, typer.Option(help="Who says so; you, unless said.")]


def register(app: typer.Typer) -> None:
    """Add ``dead resume``."""
    dead = typer.Typer(help="Records that are no events: look, repair, go on.", no_args_is_help=True)
    dead.command("resume")(resume)
    app.add_typer(dead, name="dead")


def resume(
    why: Annotated[str, typer.Option(help="What was repaired. It is kept with the stop.")],
    topic: Annotated[str | None, typer.Option(help="Topic; that of the settings unless said.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="The partition that stands still.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of the topic's that stand still.")] = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Let a partition go on that too many dead letters stopped. A running worker does so within seconds."""
    from turnledger.settings import Settings
    from turnledger.store import fence

    if (partition is None) != everything:
        raise TurnledgerError(
            "say which partition goes on: --partition N, or --all for every one that stands still."
        )
    name = topic or Settings().topic
    with _connection() as connection:
        places = fence.resume(connection, name, partition, by=by or _person(), why=why)
    if not places:
        which = "no partition" if partition is None else f"partition {partition}"
        stands = "stands still" if partition is None else "does not stand still"
        raise TurnledgerError(
            f"{which} of {name} {stands} for dead letters: `turnledger dead list` shows those that do."
        )
    resumed = [{"topic": name, "partition": number, "at_offset": at} for number, at in sorted(places.items())]
    if as_json:
        _print_json({"resumed": resumed})
        return
    for one in resumed:
        typer.echo(f"partition {one['partition']} of {name} goes on at {one['at_offset']}")


def _person() -> str:
    """Who runs this: user and host."""
    import getpass
    import os
    import socket

    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _connection() -> psycopg.Connection[Any]:
    from turnledger.cli.addresses import database_url
    from turnledger.store.connect import connect
    from turnledger.store.migrate import require

    url = database_url()
    require(url)
    return connect(url, "dead")


def _print_json(value: Any) -> None:
    import json

    typer.echo(json.dumps(value, ensure_ascii=False, default=str))
