"""`turnledger harnesses`: the harnesses whose files are read, and what their formats can and cannot tell."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add ``harnesses``."""
    app.command("harnesses")(harnesses)


def harnesses(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """List the harnesses whose files `import` reads: versions seen, usage, cost, latency, tools, turns, and what they cannot tell."""
    from turnledger.harness import catalogue

    found = catalogue.rows()
    if as_json:
        import orjson

        sys.stdout.buffer.write(orjson.dumps({"harnesses": found}) + b"\n")
        sys.stdout.buffer.flush()
        return
    from turnledger.doctor.tables import show

    names = catalogue.COLUMNS
    show(sys.stdout, "what is read", list(names), [[row[name] for name in names] for row in found])
    show(
        sys.stdout,
        "where, and what it cannot tell",
        ["name", "files", "cannot tell"],
        [[row["name"], row["files"], row["cannot"]] for row in found],
    )
