"""`cli`: the command line, one thin command a file.

A command's module offers ``register(app)``. Heavy imports stand inside the commands: ``turnledger --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

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
    "ship",
    "harnesses",
    "fold",
    "verify",
    "sessions",
    "reconcile",
    "dead",
    "replay",
    "outbox",
    "prices",
    "retention",
    "archive",
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
        import_module(f"turnledger.cli.{name}").register(app)
    return app


def main() -> None:
    """Entry point of the console script. A :class:`TurnledgerError` is one sentence on standard error and exit status 2; so is an
    output that takes no more, and a database that failed on the way.
    (A reader that went away, as ``| head`` does, is typer's to handle: silently.)"""
    try:
        build()()
    except TurnledgerError as error:
        print(f"turnledger: {_safe(error)}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        _silence()
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
        print(f"turnledger: a file or an output could not be used ({what}).", file=sys.stderr)
        raise SystemExit(2) from None
    except Exception as error:
        told = _of_the_database(error)
        if told is None:
            raise
        print(f"turnledger: {_safe(told)}", file=sys.stderr)
        raise SystemExit(2) from None


def _of_the_database(error: Exception) -> TurnledgerError | None:
    """The sentence for a database that went away or refused under a command; None for any other error, a wrong query of ours too.
    Whoever never loaded the driver has no such error."""
    driver = sys.modules.get("psycopg")
    error = getattr(error, "orig", None) or error  # where SQLAlchemy wrapped it
    if driver is None or not isinstance(error, driver.Error):
        return None
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    said = first.rstrip(".")
    if isinstance(error, driver.OperationalError | driver.InterfaceError):
        return TurnledgerError(
            f"the database failed in the middle of it ({said}): run the command again when it answers."
        )
    if isinstance(error, driver.errors.InsufficientPrivilege):
        return TurnledgerError(
            f"the database refuses ({said}): name a role with that right in TURNLEDGER_DATABASE_URL (a reader asks the views with SQL)."
        )
    return None


def _safe(error: TurnledgerError) -> str:
    """Its sentence without what a terminal would obey: it may name what a ledger holds."""
    from turnledger.doctor.tables import safe

    return "\n".join(map(safe, str(error).split("\n")))


def _silence() -> None:
    """What is left in the buffer of standard output has nowhere to go: the interpreter must not try again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
