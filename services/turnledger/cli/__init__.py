"""`cli`: the command line, one thin command a file.

A command's module offers ``register(app)``. Heavy imports stand inside the commands: ``turnledger --help`` answers at once.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec

import typer

from turnledger.errors import TurnledgerError

COMMANDS = (
    "dev",
    "db",
    "topics",
    "worker",
    "rollup",
    "publish",
    "imports",
    "fold",
    "verify",
    "sessions",
    "demo",
)
"""Modules of this package, in the order of ``--help``."""


def build() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        name="turnledger",
        help="Provable telemetry for fleets of AI-agent harnesses.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    for name in COMMANDS:
        if find_spec(f"turnledger.cli.{name}") is not None:
            import_module(f"turnledger.cli.{name}").register(app)
    return app


def main() -> None:
    """Entry point of the console script. A :class:`TurnledgerError` is one sentence on standard error and exit status 2."""
    try:
        build()()
    except TurnledgerError as error:
        print(f"turnledger: {error}", file=sys.stderr)
        raise SystemExit(2) from None
