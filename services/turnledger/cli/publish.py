"""`turnledger publish`: send NDJSON envelopes to Kafka, each as the bytes that came, but for what must not leave (contract 14)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from turnledger.errors import TurnledgerError

CHUNK = 1 << 20
"""Bytes read at a time."""


def register(app: typer.Typer) -> None:
    """Add ``publish``."""
    app.command("publish")(publish)


def publish(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="NDJSON envelopes; - is standard input.")
    ],
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at a line that is no envelope with a session_id.")
    ] = False,
) -> None:
    """Send envelopes to Kafka, secrets replaced by references. A line that is none is sent without a key, so that the ledger counts it as a dead letter."""
    import asyncio

    from turnledger.cli.addresses import kafka_bootstrap
    from turnledger.cli.progress import counting
    from turnledger.contract.redact import Redactor
    from turnledger.harness import publishing
    from turnledger.harness.kafka import Sink
    from turnledger.kafka import connect
    from turnledger.settings import Settings

    connect.quiet()
    settings = Settings()
    sink = Sink(kafka_bootstrap(settings), settings.topic)
    # The bodies are the producer's to decide about: these envelopes have one already.
    redactor = Redactor(slot_key=settings.slot_key())
    with counting("published", "records") as told:
        sent = asyncio.run(
            publishing.publish(sink, _records(files), redactor=redactor, strict=strict, progress=told)
        )
    typer.echo(
        f"published {sent.records:,} records ({sent.bytes:,} bytes) to {sink} in {sent.seconds:.1f} s ({sent.rate:,.0f}/s)"
    )
    if sent.redacted:
        typer.echo(
            f"{sent.redacted:,} of them held secrets, headers or slot values, which went as references (docs/redaction.md)"
        )
    if sent.without_key:
        typer.echo(
            f"{sent.without_key:,} of them name no session: they went without a key and will be dead letters"
        )


def _records(files: Iterable[str]) -> Iterator[tuple[int, bytes]]:
    """(line number through all files, line); lines of JSON white space are no records (contract 17)."""
    from turnledger.fold.document import lines

    number = 0
    for name in files:
        for line in lines(_chunks(name)):
            number += 1
            if line.strip(b" \t\r"):
                yield number, line


def _chunks(name: str) -> Iterator[bytes]:
    try:
        if name == "-":
            if sys.stdin is None:
                raise ValueError("standard input is closed")
            while chunk := os.read(sys.stdin.fileno(), CHUNK):
                yield chunk
            return
        with Path(name).open("rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise TurnledgerError(
            f"cannot read {name} ({reason}): give NDJSON files that exist and may be read, or - for standard input."
        ) from None
