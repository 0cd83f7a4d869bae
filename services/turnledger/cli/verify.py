"""`turnledger verify`: prove the invariants on the database, and name the first rows that break one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from turnledger.cli.output import print_json

if TYPE_CHECKING:
    from turnledger.doctor.faults import Report


def register(app: typer.Typer) -> None:
    """Add ``verify``."""
    app.command()(verify)


def verify(
    session: Annotated[
        str | None,
        typer.Option(help="Only this session: its id, tenant/session_id, or its name.", show_default=False),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="With --session: of this tenant.", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only what came in since then: a time with its offset, or how long ago (90s, 30m, 24h, 7d).",
            show_default=False,
        ),
    ] = None,
    topics: Annotated[
        bool, typer.Option("--topics", help="Read the topics again and prove I1 against Kafka's records.")
    ] = False,
    settle: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for workers to write what is on its way.")
    ] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Prove that every number can be trusted: nothing lost, nothing twice, every row what its events say.

    Exit status 1 when an invariant is broken, or could not be judged because a worker has still to write.
    """
    from dataclasses import replace

    from turnledger.cli.addresses import database_url, kafka_bootstrap
    from turnledger.cli.progress import counting
    from turnledger.doctor.scope import NotAScope, parse_since
    from turnledger.doctor.verify import Topics
    from turnledger.doctor.verify import verify as run
    from turnledger.kafka import connect
    from turnledger.rollup.prices import PriceBook
    from turnledger.settings import Settings
    from turnledger.store.migrate import require

    if session is not None and since is not None:
        raise NotAScope("--session and --since do not go together: a session is looked at whole.")
    if tenant is not None and session is None:
        raise NotAScope("--tenant says whose session is meant: give it with --session.")
    began = None if since is None else parse_since(since)
    connect.quiet()
    settings = Settings()
    url = database_url(settings)
    require(url)
    again = Topics(kafka_bootstrap(settings), settings.record_limit_bytes) if topics else None
    with counting("verified", "sessions") as told:
        if again is not None:
            again = replace(again, progress=lambda count: told(count, "records of Kafka"))
        report = run(
            url,
            PriceBook(),
            session=session,
            tenant=tenant,
            since=began,
            topics=again,
            settle_seconds=settle,
            progress=told,
        )
    if as_json:
        print_json(report.as_json())
    else:
        _print(report)
    if not report.holds:
        raise typer.Exit(1)


def _print(report: Report) -> None:
    from turnledger.doctor.faults import INVARIANTS
    from turnledger.doctor.tables import safe

    for name, says in INVARIANTS.items():
        count = report.counts[name]
        if name in report.skipped:
            typer.echo(f"{name}  -       not looked at")
            continue
        if not count:
            typer.echo(f"{name}  holds   {says}")
            continue
        typer.echo(f"{name}  BROKEN  {says}")
        for fault in report.faults[name]:
            row = "  ".join(f"{key}={safe(value)}" for key, value in fault.row.items())
            typer.echo(f"      {fault.what}: {row}")
        if count > len(report.faults[name]):
            typer.echo(f"      … and {count - len(report.faults[name])} more")
    read = "" if report.records is None else f", {report.records} records of Kafka"
    typer.echo(f"{report.sessions} sessions, {report.turns} turns, {report.events} events{read}")
    for note in report.notes:
        typer.echo(f"note: {note}")
    for left_out in report.not_checked:
        typer.echo(f"not checked: {safe(left_out)}")
    typer.echo(_verdict(report))


def _verdict(report: Report) -> str:
    from turnledger.doctor.faults import INVARIANTS
    from turnledger.doctor.tables import safe

    broken = [name for name in INVARIANTS if report.counts[name]]
    if broken:
        return f"verify: {', '.join(broken)} {'does' if len(broken) == 1 else 'do'} not hold"
    if report.unsettled:
        some = ", ".join(safe(name) for name in report.unsettled[:5])
        more = f" and {len(report.unsettled) - 5} more" if len(report.unsettled) > 5 else ""
        return (
            f"verify: nothing is wrong, but a worker has still to write {some}{more}: "
            "let `turnledger worker` and `turnledger rollup` catch up, or wait longer with --settle"
        )
    if report.partly:
        return "verify: what was looked at holds"
    return "verify: all invariants hold"
