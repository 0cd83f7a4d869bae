"""`turnledger dev`: the broker and the database of this folder, up and down."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        envvar="TURNLEDGER_STATE",
        help="State folder of the stack.  [default: .turnledger]",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add ``turnledger dev``."""
    dev = typer.Typer(
        no_args_is_help=True, help="The broker and the database of this folder, for a laptop and for tests."
    )
    dev.command()(up)
    dev.command()(status)
    dev.command()(env)
    dev.command()(down)
    dev.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(psql)
    app.add_typer(dev, name="dev")


def up(state: State = None) -> None:
    """Start both and wait until they answer. What runs already is left alone."""
    from turnledger.devstack import choose, stack_for

    choice = choose()
    say(str(choice))
    if choice.addresses is not None:
        say("nothing to start")
        addresses = choice.addresses
    else:
        addresses = stack_for(choice, state).up()
    print(f"broker    {addresses.kafka_bootstrap}\ndatabase  {addresses.database_url}")


def status(
    state: State = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Say what runs and where. Exit status 0 when both run, else 1."""
    import json

    from turnledger.devstack import Stack, of_folder, state_folder

    folder = state_folder(state)
    made = of_folder(folder)
    addresses = made.addresses() if made is not None else None
    if as_json:
        servers = made.status() if isinstance(made, Stack) else None
        print(json.dumps({"state": str(folder), "running": addresses is not None, "servers": servers}))
    elif made is None:
        print(f"no stack in {folder}: start one with `turnledger dev up`")
    elif isinstance(made, Stack):
        for name, server in made.status().items():
            state_of = f"running, process {server['pid']}" if server["running"] else "stopped"
            print(f"{name:<9} {state_of:<24} {server['address'] or ''}\n{'':<9} log {server['log'] or '-'}")
    else:
        print("containers run" if addresses else f"containers of {folder} are stopped")
    raise typer.Exit(0 if addresses is not None else 1)


def env(state: State = None) -> None:
    """Print the addresses for a shell: eval "$(turnledger dev env)"."""
    from turnledger.devstack import of_folder, state_folder
    from turnledger.errors import TurnledgerError

    folder = state_folder(state)
    made = of_folder(folder)
    if made is None:
        raise TurnledgerError(f"no stack was made in {folder}: start one with `turnledger dev up`.")
    answering = made.answering()
    addresses = answering.both()
    if addresses is None:
        away = [
            what
            for what, address in (
                ("the broker", answering.kafka_bootstrap),
                ("the database", answering.database_url),
            )
            if address is None
        ]
        verb = "does" if len(away) == 1 else "do"
        raise TurnledgerError(
            f"{' and '.join(away)} of the stack in {folder} {verb} not run: start again with `turnledger dev up`."
        )
    for name, value in addresses.environment().items():
        print(f"export {name}={shlex.quote(value)}")


def down(
    state: State = None,
    remove: Annotated[bool, typer.Option("--remove", help="Delete the data too.")] = False,
) -> None:
    """Stop what this folder started, and nothing else. The data stay."""
    from turnledger.devstack import of_folder, state_folder

    folder = state_folder(state)
    made = of_folder(folder)
    if made is None:
        say(f"no stack in {folder}: nothing to stop")
        return
    made.down(remove=remove)
    say(f"stopped the stack in {folder}{' and deleted its data' if remove else ', its data stay'}")


def psql(context: typer.Context, state: State = None) -> None:
    """Open psql on the ledger: the packaged one, on the address in the environment or this folder's stack."""
    from turnledger.cli.addresses import database_url
    from turnledger.devstack.postgres import packaged_binaries

    if state is not None:
        os.environ["TURNLEDGER_STATE"] = str(state)
    program = str(packaged_binaries() / "psql")
    os.execv(program, [program, database_url(), *context.args])


def say(sentence: str) -> None:
    """Print for the person; standard output is for answers."""
    print(f"turnledger dev: {sentence}", file=sys.stderr, flush=True)
