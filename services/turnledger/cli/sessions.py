"""`turnledger sessions`: what the ledger knows of sessions. Each command is in a module of its own."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add ``sessions list``, what :mod:`turnledger.cli.story` tells of one session, what the doctor says of it, and ``sessions vacuum``."""
    from turnledger.cli import sessions_check, sessions_list, story
    from turnledger.cli.retention import vacuum

    sessions = typer.Typer(help="What happened, what it cost, and is this all of it?", no_args_is_help=True)
    sessions_list.register(sessions)
    story.register(sessions)
    sessions_check.register(sessions)
    sessions.command("vacuum")(vacuum)
    app.add_typer(sessions, name="sessions")
