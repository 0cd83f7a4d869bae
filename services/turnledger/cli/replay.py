"""`turnledger replay`: history read again. Each of its commands stands in a module of its own, named here."""

from __future__ import annotations

from importlib import import_module

import typer

COMMANDS = ("replay_topics", "replay_projections", "replay_archive")
"""Modules of this package with commands of the group, in the order of ``--help``."""


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="History read again: rebuild, compare, switch.", no_args_is_help=True)
    for name in COMMANDS:
        import_module(f"turnledger.cli.{name}").register(group)
    app.add_typer(group, name="replay")
