"""`turnledger replay topics`: read a topic again, or for the first time, between fixed ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from turnledger.replay.topics import Outcome


def register(group: typer.Typer) -> None:
    """Add ``replay topics``."""
    group.command("topics")(topics)


def topics(
    topic: Annotated[
        str | None, typer.Option(help="The topic; that of the settings unless said.", show_default=False)
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="beginning, an offset, a time with its offset, or 90s, 30m, 24h, 7d ago.",
        ),
    ] = "beginning",
    end: Annotated[
        str, typer.Option("--to", metavar="WHERE", help="now, an offset, or a time; exclusive.")
    ] = "now",
    partition: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Only this partition; may be said several times.", show_default=False),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Only records of this tenant.", show_default=False)
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(help="Only records of this session id, or tenant/session_id.", show_default=False),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0, help="At most so many records a second; 0 is without limit.")
    ] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would add, and change nothing.")
    ] = False,
    anew: Annotated[
        bool, typer.Option("--anew", help="Do not go on with the same command's replay that was cut short.")
    ] = False,
    by: Annotated[str | None, typer.Option(help="Who says so; you, unless said.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Read a topic again: what the ledger has is left alone, what it lacks is filled in, dead letters that are events now are accepted.

    Records that no worker has read are applied as a worker would. Exit status 1 when something of the range is left.
    """
    from turnledger.cli.addresses import addresses
    from turnledger.cli.output import print_json
    from turnledger.cli.progress import barred
    from turnledger.cli.who import person
    from turnledger.ingest.logs import warnings_only
    from turnledger.ingest.settings import WorkerSettings
    from turnledger.replay.topics import Wish, replay
    from turnledger.store.migrate import require
    from turnledger.store.replays import Asked

    warnings_only()
    settings = WorkerSettings()
    owner, session_id = _session(session, tenant)
    asked = Asked(topic or settings.topic, start, end, tuple(sorted(set(partition or ()))), owner, session_id)
    wish = Wish(asked, by or person(), dry=dry_run, anew=anew, rate=rate)
    found = addresses(settings)
    assert found.kafka_bootstrap is not None and found.database_url is not None
    require(found.database_url)

    def planned(outcome: Outcome) -> None:
        if not as_json:
            _plan(asked.topic, outcome, dry_run)

    with barred("records") as told:
        outcome = replay(
            found.database_url, found.kafka_bootstrap, settings, wish, planned=planned, progress=told
        )
    if as_json:
        print_json({"dry_run": dry_run, **outcome.as_json()})
    else:
        _tell(outcome, dry_run)
    if not outcome.whole:
        raise typer.Exit(1)


def _session(typed: str | None, tenant: str | None) -> tuple[str | None, str | None]:
    """(tenant, session id): the session need not be in the ledger, so that only ids are understood."""
    if typed is None:
        return tenant, None
    owner, slash, rest = typed.partition("/")
    if tenant is None and slash:
        return owner, rest
    return tenant, typed


def _plan(topic: str, outcome: Outcome, dry: bool) -> None:
    from turnledger.doctor.tables import safe, show

    out = typer.get_text_stream("stdout")
    plans, begun = outcome.plans, outcome.begun
    if outcome.resumed and begun is not None:
        out.write(
            f"going on with replay {begun.replay_no}, which {safe(begun.started_by)} began at {begun.started_at:%Y-%m-%d %H:%M:%S} UTC\n\n"
        )
    show(
        out,
        f"{safe(topic)}: what {'would be' if dry else 'is'} read",
        ["partition>", "asked for", "read before", "never read", "by whom"],
        [
            [
                one.partition,
                _span((one.asked_from, one.asked_to)),
                _span(one.again),
                _span(one.unread),
                "-"
                if one.unread[0] >= one.unread[1]
                else "nobody"
                if one.refused
                else safe(one.owner or "this replay"),
            ]
            for one in plans
        ],
    )
    if outcome.compacted:
        out.write(
            f"{safe(topic)} is compacted: of the records of a session Kafka keeps the last one alone, whatever was written before; the offsets of "
            "those that are gone are counted below\n"
        )
    elif outcome.compacted is None:
        out.write(f"the broker does not say whether {safe(topic)} is compacted\n")
    for one in plans:
        if one.gone:
            out.write(
                f"partition {one.partition}: {one.gone:,} records of what was asked for have left Kafka; the log begins at "
                f"{one.asked_from + one.gone}\n"
            )
        elif one.cut:
            out.write(
                f"partition {one.partition}: the log begins at {one.asked_from}; records of that time that stood before it have left Kafka\n"
            )
        if one.refused is not None:
            out.write(f"partition {one.partition}: {one.refused}\n")
        elif one.owner is not None:
            out.write(
                f"partition {one.partition}: a worker reads {_span(one.unread)} by itself; the replay leaves it alone\n"
            )


def _span(span: tuple[int, int]) -> str:
    return f"{span[0]:,} to {span[1] - 1:,}" if span[0] < span[1] else "-"


def _offsets(span: tuple[int, int]) -> str:
    return f"{span[0]:,}" if span[0] + 1 == span[1] else _span(span)


def _tell(outcome: Outcome, dry: bool) -> None:
    from turnledger.doctor.tables import safe

    again, unread = outcome.again, outcome.unread
    would = "would be " if dry else ""
    lines = [f"{again.records:,} records read again: {again.known:,} known"]
    for number, what in (
        (again.filled, f"{would}filled in"),
        (again.requeued, f"dead letters {'that ' + would + 'accepted' if dry else 'accepted now'}"),
        (again.dead, "still dead"),
        (again.unverified, "seen once and gone from the ledger by retention: they stay out"),
        (
            again.contradictions,
            "contradict their event without a receipt: `turnledger verify --topics` names them",
        ),
        (again.unaccounted, "are neither events nor dead letters: `turnledger verify --topics` names them"),
        (again.others, "of others"),
    ):
        if number:
            lines.append(f"{number:,} {what}")
    typer.echo(", ".join(lines))
    if unread.records:
        dead = f", {unread.dead:,} of them no events" if unread.dead else ""
        typer.echo(f"{unread.records:,} records {would}read for the first time{dead}")
    for number, missing in sorted(outcome.missing.items()):
        if missing.offsets:
            more = missing.ranges - len(missing.named)
            typer.echo(
                f"partition {number}: {missing.offsets:,} offsets have no record (compacted away, or markers of transactions): "
                f"{', '.join(map(_offsets, missing.named))}{f' and {more:,} ranges more' if more else ''}"
            )
    for number, why in sorted(unread.stopped.items()):
        typer.echo(f"partition {number} stands still: {safe(why)}")
    if unread.taken:
        typer.echo("a worker took the rest over, and goes on by itself")
    if dry:
        typer.echo("nothing was changed")
    else:
        typer.echo("replayed" if outcome.whole else "replayed, but for what is said above")
