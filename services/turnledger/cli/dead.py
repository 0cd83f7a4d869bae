"""`turnledger dead`: records that are no events, seen, repaired and sent through again; partitions that they stopped."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnledger.cli.output import print_json
from turnledger.cli.who import person
from turnledger.errors import TurnledgerError

if TYPE_CHECKING:
    from datetime import datetime

    import psycopg

    from turnledger.ingest.requeue import Became
    from turnledger.store.dead import Chosen

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
By = Annotated[str | None, typer.Option(help="Who says so; you, unless said.")]
Tenant = Annotated[str | None, typer.Option(help="Only letters of this tenant.")]
Session = Annotated[
    str | None, typer.Option(help="Only letters of this session: its id, tenant/session_id, or its name.")
]
Reason = Annotated[str | None, typer.Option(help="Only letters of this reason.")]
Topic = Annotated[str | None, typer.Option(help="Only letters of this topic.")]
Partition = Annotated[int | None, typer.Option(min=0, help="Only letters of this partition.")]
Since = Annotated[
    str | None,
    typer.Option(
        help="Only letters recorded since: 2026-01-31T12:00:00Z, or 30m, 12h, 7d ago.",
        metavar="TIME",
    ),
]

REASONS = (
    "encoding", "json", "not_an_object", "empty", "too_deep", "too_large", "nul", "missing_field", "wrong_type", "out_of_range",
    "refused_by_database",
)  # fmt: skip
"""Of contract 15."""
SHOWN = 50
"""Letters of a requeue that a person is shown one by one."""


def register(app: typer.Typer) -> None:
    """Add ``dead list``, ``dead show``, ``dead requeue`` and ``dead resume``."""
    dead = typer.Typer(help="Records that are no events: look, repair, go on.", no_args_is_help=True)
    dead.command("list")(list_)
    dead.command("show")(show)
    dead.command("requeue")(requeue)
    dead.command("resume")(resume)
    app.add_typer(dead, name="dead")


def list_(
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=100_000, help="How many.")] = 20,
    tenant: Tenant = None,
    session: Session = None,
    reason: Reason = None,
    topic: Topic = None,
    partition: Partition = None,
    since: Since = None,
    only_open: Annotated[
        bool, typer.Option("--open/--all", help="Only those that are dead, or those that were requeued too.")
    ] = True,
    as_json: Json = False,
) -> None:
    """The latest dead letters, how many there are of each reason, and partitions that stand still."""
    from turnledger.doctor import dead
    from turnledger.store.dead import Chosen

    chosen = Chosen(tenant, session, _reason(reason), topic, partition, _since(since), only_open)
    with _connection() as connection:
        chosen = _meant(connection, chosen)
        found = dead.list_letters(connection, chosen, count=count)
    if as_json:
        print_json(found)
    else:
        dead.list_page(typer.get_text_stream("stdout"), found, chosen)


def show(
    number: Annotated[int, typer.Argument(metavar="ID", help="The letter's id, as `dead list` shows it.")],
    raw: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the bytes that are kept to this file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """One dead letter: why it is one, where it stands, and its bytes with secrets hidden."""
    from turnledger.doctor import dead

    with _connection() as connection:
        found = dead.show_letter(connection, number)
    if raw is not None:
        _write(raw, found)
    if as_json:
        kept = found.pop("raw")
        print_json({**found, "key": dead.preview(found["key"]), "record": dead.preview(kept)})
    else:
        dead.letter_page(typer.get_text_stream("stdout"), found)


def _write(file: Path, found: dict[str, Any]) -> None:
    kept = found["raw"]
    if kept is None:
        raise TurnledgerError(
            f"of letter {found['id']} there are no bytes to write to {file}: `turnledger dead show {found['id']}` says why."
        )
    file.write_bytes(kept)
    if len(kept) != found["raw_bytes"]:
        print(
            f"turnledger: {file} holds the {len(kept)} bytes that are kept; the record had {found['raw_bytes']}.",
            file=sys.stderr,
        )


def requeue(
    ids: Annotated[list[int] | None, typer.Argument(metavar="ID…", help="Letters by id.")] = None,
    reason: Reason = None,
    session: Session = None,
    tenant: Tenant = None,
    topic: Topic = None,
    partition: Partition = None,
    since: Since = None,
    fix: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A corrected record for the one letter that is named; - is standard input."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what each would become now, and change nothing.")
    ] = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Send dead letters through again: by id, or all that a reason, a session … choose. Each keeps its position; twice is once.

    Exit status 1 when some of them stay dead.
    """
    import psycopg

    from turnledger.cli.addresses import database_url
    from turnledger.contract.redact import Redactor
    from turnledger.ingest.decide import Decider
    from turnledger.ingest.requeue import Requeue, summary
    from turnledger.ingest.settings import WorkerSettings
    from turnledger.store.connect import connect
    from turnledger.store.dead import Chosen, choose
    from turnledger.store.migrate import require

    chosen = Chosen(tenant, session, _reason(reason), topic, partition, _since(since))
    if bool(ids) == (chosen != Chosen()):
        raise TurnledgerError(
            "say which letters: their ids, or what chooses them (--reason, --session, --tenant, --topic, --partition, --since), one of both."
        )
    if fix is not None and len(ids or ()) != 1:
        raise TurnledgerError("a corrected record is for one letter: name exactly one id with --fix.")
    correction = None if fix is None else _correction(fix)
    settings = WorkerSettings()
    url = database_url(settings)
    require(url)
    with connect(url, "requeue", autocommit=True, lock_seconds=10) as connection:
        chosen = _meant(connection, chosen)
        decider = Decider(
            settings.record_limit_bytes, settings.dead_letter_bytes, Redactor(slot_key=settings.slot_key())
        )
        work = Requeue(
            connection, decider, by=by or person(), dead_letter_bytes=settings.dead_letter_bytes, dry=dry_run
        )
        try:
            became = list(work.run(ids or choose(connection, chosen), fix=correction))
        except psycopg.Error as error:
            raise TurnledgerError(
                f"the database failed in the middle ({type(error).__name__}): letters are requeued whole or not at all, so run it again when "
                "it answers; those that went through stay as they are."
            ) from None
    if as_json:
        print_json({"dry_run": dry_run, "letters": [one.row() for one in became], "summary": summary(became)})
    else:
        _requeued(became, dry_run)
    if any(one.outcome == "dead" for one in became):
        raise typer.Exit(1)


def _requeued(became: list[Became], dry_run: bool) -> None:
    from turnledger.doctor.dead import session_name
    from turnledger.doctor.tables import show as table
    from turnledger.ingest.requeue import summary

    out = typer.get_text_stream("stdout")
    table(
        out,
        "what they would become" if dry_run else "what they became",
        ["id>", "topic", "partition>", "position>", "session", "became", "reason", "field", "detail"],
        [
            [
                one.id,
                one.topic,
                one.partition,
                one.position,
                session_name(one.row()),
                one.outcome + (" (before)" if one.before else " (unverified)" if one.unverified else ""),
                one.reason,
                one.field,
                one.detail,
            ]
            for one in became[:SHOWN]
        ],
    )
    if len(became) > SHOWN:
        out.write(f"… and {len(became) - SHOWN} more\n\n")
    words = {"dead": "still dead", "before": "requeued before"}
    told = ", ".join(
        f"{number} {words.get(name, name)}" for name, number in summary(became).items() if number
    )
    out.write(f"{told or 'no letters are meant by that'}{'; nothing was changed' if dry_run else ''}\n")


def _correction(name: str) -> bytes:
    """The corrected record: a file's content without the end of its only line."""
    try:
        data = typer.get_binary_stream("stdin").read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise TurnledgerError(
            f"cannot read {name} ({error.strerror or error}): give a file that holds the corrected record, or - for standard input."
        ) from None
    return data.removesuffix(b"\n").removesuffix(b"\r")


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
        places = fence.resume(connection, name, partition, by=by or person(), why=why)
    if not places:
        which = "no partition" if partition is None else f"partition {partition}"
        stands = "stands still" if partition is None else "does not stand still"
        raise TurnledgerError(
            f"{which} of {name} {stands} for dead letters: `turnledger dead list` shows those that do."
        )
    resumed = [{"topic": name, "partition": number, "at_offset": at} for number, at in sorted(places.items())]
    if as_json:
        print_json({"resumed": resumed})
        return
    for one in resumed:
        typer.echo(f"partition {one['partition']} of {name} goes on at {one['at_offset']}")


def _meant(connection: psycopg.Connection[Any], chosen: Chosen) -> Chosen:
    """The session as its id, however it was typed."""
    from dataclasses import replace

    from turnledger.doctor.naming import letters_of

    if chosen.session is None:
        return chosen
    session, tenant = letters_of(connection, chosen.session, chosen.tenant)
    return replace(chosen, session=session, tenant=tenant)


def _reason(given: str | None) -> str | None:
    if given is not None and given not in REASONS:
        raise TurnledgerError(f"{given!r} is no reason of a dead letter: they are {', '.join(REASONS)}.")
    return given


def _since(given: str | None) -> datetime | None:
    """The instant that is meant, or the first or last that there is where it lies outside."""
    from datetime import UTC, datetime, timedelta

    from turnledger.doctor.scope import parse_since

    if given is None:
        return None
    at = parse_since(given)
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at)
    except OverflowError:
        return (datetime.min if at < 0 else datetime.max).replace(tzinfo=UTC)


def _connection() -> psycopg.Connection[Any]:
    from turnledger.cli.addresses import database_url
    from turnledger.store.connect import connect
    from turnledger.store.migrate import require

    url = database_url()
    require(url)
    return connect(url, "dead")
