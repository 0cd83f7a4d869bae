"""`turnledger import`: read the session files of harnesses once, show what they cost, and publish them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnledger.errors import TurnledgerError

if TYPE_CHECKING:
    from turnledger.contract.redact import Redactor
    from turnledger.harness.importer import FileReading
    from turnledger.harness.kafka import Sink
    from turnledger.harness.spilling import Spilled


def register(app: typer.Typer) -> None:
    """Add ``import``."""
    app.command("import")(import_files)


def import_files(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH…", help="Session files, or folders that hold them.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the files hold; publish nothing.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --dry-run: one JSON object on standard output.")
    ] = False,
    harness: Annotated[
        str | None,
        typer.Option(
            help="Whose files they are (`turnledger harnesses` lists them). Seen by content unless said."
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            help="Session of a file that does not name its own; else the name of its folder is taken."
        ),
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Tenant of every event.")] = None,
) -> None:
    """Import the session files of agent harnesses. Twice, in slices or as copies: the result is the same."""
    from turnledger.contract.redact import Redactor
    from turnledger.harness import formats, importer
    from turnledger.harness.spilling import Spilled
    from turnledger.settings import Settings

    if harness is not None:
        formats.named(harness)
    if session is not None and not 0 < len(session.encode()) <= 256:
        raise TurnledgerError("--session must be 1 to 256 bytes long")
    if as_json and not dry_run:
        raise TurnledgerError("--json shows what would be imported: use it with --dry-run")
    if tenant is not None and not 0 < len(tenant.encode()) <= 128:
        raise TurnledgerError("--tenant must be 1 to 128 bytes long")
    sink = None if dry_run else _sink()  # before the reading: a missing address is said at once
    files = importer.files_in(paths)
    if not files:
        raise TurnledgerError(
            f"no session files below {', '.join(map(str, paths))}: they end in "
            f"{', '.join((*importer.SUFFIXES, *importer.OTHERS))}; name others one by one"
        )
    settings = Settings()
    redactor = Redactor(
        slot_key=settings.slot_key(), bodies=settings.bodies(), body_limit=settings.body_limit_bytes
    )
    with Spilled() as events:
        readings = [
            reading
            for reading in _read(files, events, redactor, harness=harness, tenant=tenant, session=session)
            if not importer.passed_over(reading, paths)
        ]
        if as_json:
            _print_json(readings, events)
            return
        _summary(readings, events)
        if sink is None:
            sys.stdout.write(f"{events.events:,} events; nothing was published (--dry-run)\n")
        else:
            _publish(sink, events, redactor)


def _read(
    files: Sequence[Path],
    events: Spilled,
    redactor: Redactor,
    *,
    harness: str | None,
    tenant: str | None,
    session: str | None,
) -> Iterator[FileReading]:
    """Each file, its events kept in ``events``."""
    from turnledger.cli.progress import counting
    from turnledger.harness import importer
    from turnledger.harness.sources import Source

    with counting("read", "events") as progress:
        for number, file in enumerate(files, 1):
            reading = importer.FileReading(file, None)
            for event in importer.told(
                Source(file, session), reading, harness=harness, tenant=tenant, redactor=redactor
            ):
                events.add(event)
                reading.told += 1
                if events.events % 1000 == 0:
                    progress(events.events, f"events, file {number:,} of {len(files):,}")
            progress(events.events, f"events, file {number:,} of {len(files):,}")
            yield reading


def _print_json(readings: Sequence[FileReading], events: Spilled) -> None:
    """The object of contract 17, list by list: of its rows only those of one session are held."""
    from functools import partial

    from turnledger.contract.canonical import dumps
    from turnledger.fold.apiece import described
    from turnledger.fold.document import NOT_DIGESTED, digested, key_order
    from turnledger.harness.spilling import Parts
    from turnledger.pricing import packaged, price_call
    from turnledger.settings import Settings

    price, limit = partial(price_call, packaged()), Settings().record_limit_bytes
    values: dict[str, Any] = {"files": [reading.row() for reading in readings]}
    names: set[str] = set()
    with Parts() as shown, Parts() as covered:
        for place, found in described(events.sessions, events.numbered, price, limit=limit):
            values["records"] = found.pop("records", None)
            for name, rows in found.items():
                names.add(name)
                shown.put(name, place, dumps(rows)[1:-1])
                if name not in NOT_DIGESTED:
                    covered.put(name, place, dumps(digested(name, rows))[1:-1])
        digest = sha256()
        for piece in _object({name: covered.of(name, key_order) for name in names - NOT_DIGESTED}):
            digest.update(piece)
        values["digest"] = digest.hexdigest()
        lists = {name: shown.of(name, key_order) for name in names}
        sys.stdout.buffer.writelines(
            _object({**lists, **{name: dumps(each) for name, each in values.items()}})
        )
    sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


def _object(members: Mapping[str, bytes | Iterator[bytes]]) -> Iterator[bytes]:
    """Canonical JSON of an object: of each member its JSON, or the pieces of a list."""
    before = b"{"
    for name, value in sorted(members.items()):
        yield before + b'"' + name.encode() + b'":'
        before = b","
        if isinstance(value, bytes):
            yield value
            continue
        between = b"["
        for piece in value:
            yield between + piece
            between = b","
        yield b"[]" if between == b"[" else b"]"
    yield b"}"


def _sink() -> Sink:
    from turnledger.cli.addresses import kafka_bootstrap
    from turnledger.harness.kafka import Sink
    from turnledger.settings import Settings

    settings = Settings()
    return Sink(kafka_bootstrap(settings), settings.topic)


def _publish(sink: Sink, events: Spilled, redactor: Redactor) -> None:
    import asyncio

    from turnledger.cli.progress import counting
    from turnledger.harness import publishing
    from turnledger.kafka import connect

    connect.quiet()
    with counting("published", "events") as told:
        sent = asyncio.run(
            publishing.publish(sink, enumerate(events.all(), 1), redactor=redactor, progress=told)
        )
    sys.stdout.write(
        f"published {sent.records:,} events to {sink} in {sent.seconds:.1f} s ({sent.rate:,.0f}/s); "
        "what the ledger has already, it counts as duplicates\n"
    )


def _summary(readings: Sequence[FileReading], events: Spilled) -> None:
    """What each session cost, and what could not be read."""
    from functools import partial

    from turnledger.doctor.tables import count, dollars, show
    from turnledger.fold.apiece import apiece
    from turnledger.pricing import packaged, price_call
    from turnledger.settings import Settings

    found = apiece(
        events.sessions,
        events.of_session,
        partial(price_call, packaged()),
        limit=Settings().record_limit_bytes,
    )

    out = sys.stdout
    heads = [
        "session",
        "agent",
        "turns>",
        "calls>",
        "failed>",
        "tools>",
        "uncached>",
        "read>",
        "write 5m>",
        "write 1h>",
    ]
    heads += ["write ?>", "out>", "cost>", "known>", "grade"]
    buckets = (
        "input_uncached",
        "cache_read",
        "cache_write_5m",
        "cache_write_1h",
        "cache_write_other",
        "output",
    )
    show(
        out,
        "sessions (tokens by bucket)",
        heads,
        [
            [
                row["session_id"],
                row["agent"],
                *(
                    count(row[name])
                    for name in ("turn_count", "model_call_count", "failed_model_calls", "total_tool_calls")
                ),
                *(count(row[f"{name}_tokens"]) for name in buckets),
                dollars(row["cost_micro_usd"]) + (" + ?" if row["unpriced_calls"] else ""),
                f"{row['usage_reported']} of {row['usage_total']}",
                row["grade"],
            ]
            for row in found.sessions
        ],
    )
    show(
        out,
        "not read",
        ["file", "what", "count>", "where"],
        [
            [reading.path, finding["check"], finding["count"], _where(finding)]
            for reading in readings
            for finding in reading.findings
            if finding["severity"] != "info" or reading.told == 0  # a file that told nothing says why
        ],
    )
    show(
        out,
        "findings",
        ["session", "check", "severity", "count>"],
        [[row[name] for name in ("session_id", "check", "severity", "count")] for row in found.findings],
    )


def _where(finding: dict[str, Any]) -> str:
    rows = finding["rows"]
    if finding["check"] == "unreadable_line":
        return ", ".join(f"byte {row['offset']} ({row['reason']})" for row in rows[:3])
    return ", ".join(f"{row['type']} × {row['count']}" for row in rows[:3] if "type" in row)
