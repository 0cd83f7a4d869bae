"""`turnledger demo`: watch turnledger do what it is for, or see what one's own sessions cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add ``turnledger demo``."""
    app.command("demo")(demo)


def demo(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE…]",
            help="Session files of a harness that `turnledger harnesses` lists (Claude Code, Codex, Gemini CLI …) to import instead.",
            show_default=False,
        ),
    ] = None,
    short: Annotated[bool, typer.Option("--short", help="A fleet of 15 s, for pipelines.")] = False,
    down: Annotated[
        bool, typer.Option("--down", help="Stop the demo's servers and delete their data.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Another fleet.")] = 7,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            envvar="TURNLEDGER_STATE",
            help="State folder of the stack.  [default: .turnledger]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Start everything, stream a small fleet with faults, kill a worker, and prove that nothing was lost."""
    from turnledger.demo import show
    from turnledger.settings import Settings

    if down:
        show.tear_down(state)
    elif files:
        show.run_import(state, Settings().topic, files)
    else:
        show.run_demo(state, Settings().topic, short=short, seed=seed)
