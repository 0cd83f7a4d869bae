"""`turnledger verify`: prove the invariants on the database, and name the first rows that break one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from turnledger.doctor.faults import Report


def register(app: typer.Typer) -> None:
    """Add ``verify``."""
    app.command()(verify)


def verify(
    settle: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for workers to write what is on its way.")
    ] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Prove that every number can be trusted: nothing lost, nothing twice, every row what its events say.

    Exit status 1 when an invariant is broken, or could not be judged because a worker has still to write.
    """
    import json
    import sys
    from functools import partial

    from turnledger.cli.addresses import database_url
    from turnledger.doctor.verify import verify as run
    from turnledger.pricing import packaged, price_call
    from turnledger.store.migrate import require

    url = database_url()
    require(url)
    shown = sys.stderr.isatty() and not as_json

    def progress(sessions: int) -> None:
        if shown and sessions % 10 == 0:
            print(f"\rverify: {sessions} sessions", end="", file=sys.stderr, flush=True)

    report = run(url, partial(price_call, packaged()), settle_seconds=settle, progress=progress)
    if shown:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if as_json:
        typer.echo(json.dumps(report.as_json(), ensure_ascii=False, default=str))
    else:
        _print(report)
    if not report.holds:
        raise typer.Exit(1)


def _print(report: Report) -> None:
    from turnledger.doctor.faults import INVARIANTS
    from turnledger.doctor.tables import safe

    for name, says in INVARIANTS.items():
        count = report.counts[name]
        if not count:
            typer.echo(f"{name}  holds   {says}")
            continue
        typer.echo(f"{name}  BROKEN  {says}")
        for fault in report.faults[name]:
            row = "  ".join(f"{key}={safe(value)}" for key, value in fault.row.items())
            typer.echo(f"      {fault.what}: {row}")
        if count > len(report.faults[name]):
            typer.echo(f"      … and {count - len(report.faults[name])} more")
    typer.echo(f"{report.sessions} sessions, {report.turns} turns, {report.events} events")
    for note in report.notes:
        typer.echo(f"note: {note}")
    broken = [name for name in INVARIANTS if report.counts[name]]
    if broken:
        typer.echo(f"verify: {', '.join(broken)} {'does' if len(broken) == 1 else 'do'} not hold")
    elif report.unsettled:
        some = ", ".join(safe(name) for name in report.unsettled[:5])
        more = f" and {len(report.unsettled) - 5} more" if len(report.unsettled) > 5 else ""
        typer.echo(
            f"verify: nothing is wrong, but a worker has still to write {some}{more}: "
            "let `turnledger worker` and `turnledger rollup` catch up, or wait longer with --settle"
        )
    else:
        typer.echo("verify: all invariants hold")
