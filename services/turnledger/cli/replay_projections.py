"""`turnledger replay projections · status · diff · switch · drop`: projections rebuilt from the ledger, compared, and switched to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnledger.cli.output import print_json

if TYPE_CHECKING:
    from turnledger.replay.rebuild import Progress
    from turnledger.replay.switch import Switched

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
By = Annotated[str | None, typer.Option(help="Who says so; you, unless said.")]
Workers = Annotated[
    int | None, typer.Option(min=1, max=64, help="Processes that fold; one a core, unless said.")
]
Settle = Annotated[
    float,
    typer.Option(
        min=0, help="Seconds to wait for workers to write what is on its way, before it is compared."
    ),
]


def register(group: typer.Typer) -> None:
    """Add the commands to the group."""
    group.command("projections")(projections)
    group.command("status")(status)
    group.command("diff")(diff)
    group.command("switch")(switch)
    group.command("drop")(drop)
    group.command("sample")(sample)
    group.command("work", hidden=True)(work)


@contextmanager
def _database() -> Iterator[str]:
    """The address of a database of our schema. What psycopg raises becomes a sentence."""
    import psycopg

    from turnledger.cli.addresses import database_url
    from turnledger.settings import Settings
    from turnledger.store.connect import away
    from turnledger.store.migrate import require

    url = database_url(Settings())
    require(url)
    try:
        yield url
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise away(url, error) from None


def projections(
    tenant: Annotated[
        str | None, typer.Option(help="Fold only sessions of this tenant anew; the rest is carried over.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Fold only sessions of which something came in since then anew: 2026-01-31T12:00:00Z, or 30m, 12h, 7d ago.",
            metavar="TIME",
        ),
    ] = None,
    workers: Workers = None,
    rate: Annotated[
        float, typer.Option(min=0, help="At most so many events a second; 0 is without limit.")
    ] = 0,
    settle: Settle = 30.0,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Fill the other generation from the ledger, beside live work, and compare it with the one that readers see.

    Goes on where it was left. Exit status 1 when sessions differ: `replay diff` shows them. `replay switch` shows the new generation to readers.
    """
    from turnledger.replay.hands import Processes, polite

    # Before the rest is loaded, which takes a second of a processor.
    polite()
    from turnledger.cli.who import person
    from turnledger.doctor.scope import parse_since, what_came_since
    from turnledger.replay import compare
    from turnledger.replay.pieces import collect_seldom
    from turnledger.replay.rebuild import Rebuilder, begin, open_connection

    collect_seldom()
    instant = None if since is None else parse_since(since)
    with _database() as url, open_connection(url) as connection:
        chosen = None
        if instant is not None:
            with connection.transaction():
                numbers = what_came_since(connection, instant).sessions
                chosen = numbers.after(-(2**62), 2**62) if numbers is not None else None
        rebuild = begin(connection, by=by or person(), tenant=tenant, since=instant, since_sessions=chosen)
        with Processes(workers or os.cpu_count() or 1, url, rebuild, rate=rate) as hands, _told() as told:
            rebuilder = Rebuilder(connection, rebuild, hands, told, settle)
            rebuilder.run()
        found = compare.diff(connection)
        waiting = compare.in_doubt(connection)
    if as_json:
        print_json(
            {"generation": rebuild.generation, "differences": len(found.sessions), "unsettled": waiting}
        )
    else:
        typer.echo(
            f"generation {rebuild.generation} is whole and follows what comes in once it is switched to"
        )
        if waiting:
            typer.echo(f"{waiting} sessions could not be compared yet: workers have still to write them")
        if found.sessions:
            typer.echo(f"{len(found.sessions)} sessions differ: `turnledger replay diff` shows what and why")
        else:
            typer.echo("nothing differs: `turnledger replay switch` shows it to readers")
    if found.sessions:
        raise typer.Exit(1)


@contextmanager
def _told() -> Iterator[Any]:
    """A bar for the pieces, a line for the rest, while a terminal watches."""
    import sys

    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    with Bar(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"), TimeElapsedColumn(), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    ) as bar:  # fmt: skip
        task = bar.add_task("folding", total=None, said="")

        def told(progress: Progress) -> None:
            done, total = progress.events_done, progress.events
            if progress.compared:
                done, total = progress.compared_done, progress.compared
            said = f"{done:,} of {total:,} events, {progress.marks:,} roll-ups wait"
            bar.update(
                task,
                description=progress.phase,
                total=total,
                completed=done,
                said=said,
            )

        yield told


def work(number: Annotated[int, typer.Argument()], rate: float = 0.0) -> None:
    """For the processes that `replay projections` starts by itself."""
    from turnledger.replay.hands import polite, tied

    idle = polite()
    from turnledger.replay.generation import NotNow, open_rebuild
    from turnledger.replay.pieces import run_pieces
    from turnledger.rollup.prices import PriceBook
    from turnledger.store.connect import connect

    ended = tied()
    with _database() as url:
        with connect(url, "replay projector") as connection:
            rebuild = open_rebuild(connection)
        if rebuild is None or rebuild.rebuild_no != number:
            raise NotNow(
                "that rebuild is not open (any more): this command is for the processes of `turnledger replay projections`."
            )
        run_pieces(url, rebuild, PriceBook(), ended, rate=rate, rests=idle)


def status(as_json: Json = False) -> None:
    """What stands in the two generations, how far a rebuild is, what differs, and how large they are."""
    from turnledger.replay.report import told
    from turnledger.store.connect import connect

    with _database() as url, connect(url, "replay status", autocommit=True) as connection:
        found = told(connection)
    if as_json:
        print_json(found)
        return
    for one in found["generations"]:
        behind = "" if one["behind_events"] is None else f", {one['behind_events']} events behind"
        typer.echo(
            f"generation {one['generation']}  {one['state']:<8}  fold {one['fold_version']}  {one['bytes'] / 1e6:.1f} MB"
            f"  since {one['changed_at']}{behind}"
        )
    rebuild = found["rebuild"]
    if rebuild is not None:
        scope = "".join(
            f", {name} {rebuild[name]}" for name in ("tenant", "since") if rebuild[name] is not None
        )
        typer.echo(
            f"rebuild {rebuild['rebuild_no']} of generation {rebuild['generation']}: {rebuild['phase']}{scope}, begun by {rebuild['started_by']} "
            f"at {rebuild['started_at']}, {'at work' if rebuild['at_work'] else 'nobody works on it'}"
        )
        typer.echo(
            f"  pieces {rebuild['pieces_done']} of {rebuild['pieces']}, events folded {rebuild['events_done']} of {rebuild['events']}, "
            f"compared {rebuild['compared_done']} of {rebuild['compared']}, "
            f"roll-ups that wait {rebuild['marks']}, differ {rebuild['differences']}, to be compared {rebuild['in_doubt']}, "
            f"refused {rebuild['refused']}"
        )
    for one in found["positions"]:
        typer.echo(
            f"  {one['topic']} {one['partition']}: generation {one['generation']} at batch {one['batch_no']} of {one['last_batch']}"
        )
    for one in found["switches"]:
        why = "" if one["why"] is None else f", {one['differences']} differences accepted: {one['why']}"
        typer.echo(
            f"switched {one['from_generation']} to {one['to_generation']}{' (back)' if one['back'] else ''} at {one['switched_at']} by "
            f"{one['switched_by']}{why}"
        )


def diff(
    count: Annotated[
        int, typer.Option("-n", "--count", min=1, help="Sessions shown with their fields.")
    ] = 20,
    session: Annotated[str | None, typer.Option(help="Only this session: tenant/session_id.")] = None,
    as_json: Json = False,
) -> None:
    """Which sessions differ between the two generations, in which fields, and the events behind them. Exit status 1 when one does."""
    from turnledger.replay.differences import Differences
    from turnledger.replay.generation import open_rebuild
    from turnledger.store.connect import connect

    with _database() as url, connect(url, "replay diff", autocommit=True, statement_seconds=0) as connection:
        found = Differences(connection, open_rebuild(connection)).told(count, session)
    if as_json:
        print_json(found)
    else:
        typer.echo(
            f"{found['sessions']} sessions differ"
            + (f" (digest {found['digest']})" if found["digest"] else "")
        )
        for one in found["differences"]:
            typer.echo(f"{one['tenant']}/{one['session_id']}  {', '.join(one['tables'])}")
            for field in one["fields"]:
                typer.echo(
                    f"  {field['table']} {field['key']}  {field['field']}: {field['live']!s} -> {field['rebuilt']!s}"
                )
                if field["events"]:
                    places = ", ".join(
                        f"{event['producer']}/{event['epoch']}/{event['stream']}/"
                        f"{event['seq'] if event['seq'] is not None else 'r:' + str(event['receipt_key'])} {event['type']}"
                        for event in field["events"]
                    )
                    more = field["event_count"] - len(field["events"])
                    typer.echo(f"    events: {places}{f' and {more} more' if more else ''}")
    if found["sessions"]:
        raise typer.Exit(1)


def switch(
    back: Annotated[
        bool, typer.Option("--back", help="Return to the generation that was left at the last switch.")
    ] = False,
    accept: Annotated[
        str | None, typer.Option(help="Switch although sessions differ: the reason, which is kept.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Give all partitions to this consumer group: that of workers started with --standby."
        ),
    ] = None,
    workers: Workers = None,
    settle: Settle = 10.0,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Show the other generation to readers: what came in meanwhile is folded and compared first.

    Exit status 2 with a sentence when something differs and nobody accepts it, or when nothing is there to switch to.
    """
    from turnledger.cli.who import person
    from turnledger.replay.generation import NotNow, open_rebuild
    from turnledger.replay.hands import Processes
    from turnledger.replay.pieces import collect_seldom
    from turnledger.replay.rebuild import Rebuilder, go_back, open_connection
    from turnledger.replay.switch import Switch, whole

    collect_seldom()
    with _database() as url, open_connection(url) as connection:
        rebuild = go_back(connection, by=by or person()) if back else open_rebuild(connection)
        if rebuild is None:
            raise NotNow(
                "there is nothing to switch to: fill the other generation with `turnledger replay projections`, or return to the one before with "
                "`turnledger replay switch --back`."
            )
        if not back:
            whole(rebuild)
        with Processes(workers or os.cpu_count() or 1, url, rebuild) as hands, _told() as told:
            rebuilder = Rebuilder(connection, rebuild, hands, told, settle)
            if back and rebuild.phase != "ready":
                rebuilder.run()
            done = Switch(rebuilder, by or person(), accept, group, back).run(settle)
    if as_json:
        print_json(_as_row(done))
        return
    typer.echo(
        f"readers see generation {done.shown} now; partitions stood still for {done.held_ms} ms, {done.tail_events} events were folded meanwhile"
    )
    if done.uncompared:
        typer.echo(f"{done.uncompared} sessions moved in that very moment and could not be compared")
    if done.differences:
        typer.echo(f"{done.differences} differences were accepted: {accept}")
    typer.echo(
        f"generation {done.left} is kept: `turnledger replay switch --back` returns to it, `turnledger replay drop` gives it up"
    )
    if done.held_ms >= 1000:
        typer.echo(
            f"partitions stood still for {done.held_ms} ms, longer than a second: what was in their way stands in docs/replay.md"
        )


def _as_row(done: Switched) -> dict[str, Any]:
    return {
        "switch_no": done.switch_no,
        "from_generation": done.left,
        "to_generation": done.shown,
        "differences": done.differences,
        "diff_sha256": None if done.digest is None else done.digest.hex(),
        "uncompared": done.uncompared,
        "tail_events": done.tail_events,
        "held_ms": done.held_ms,
    }


def drop(
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for readers of it.")] = 30.0,
    as_json: Json = False,
) -> None:
    """Give up the generation that readers do not see: the one left at a switch, or one that is being built."""
    from turnledger.replay.drop import drop as empty
    from turnledger.replay.rebuild import open_connection

    with _database() as url, open_connection(url) as connection:
        gone = empty(connection, wait)
    if as_json:
        print_json({"dropped": None if gone is None else gone.generation})
    elif gone is None:
        typer.echo("the other generation is empty: there is nothing to give up")
    else:
        typer.echo(f"generation {gone.generation} is empty")


def sample(
    rate: Annotated[str, typer.Option(help="Share of the sessions: 0.1%, or 0.001. One at least.")] = "0.1%",
    settle: Settle = 10.0,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Fold random sessions anew and hold them against what readers see. Exit status 1 when one differs: it has a finding then."""
    from turnledger.cli.who import person
    from turnledger.replay.sample import audit, parse_rate
    from turnledger.store.connect import connect

    share = parse_rate(rate)
    with (
        _database() as url,
        connect(url, "replay sample", autocommit=True, statement_seconds=0) as connection,
    ):
        found = audit(connection, share, by=by or person(), settle_seconds=settle)
    if as_json:
        print_json(
            {
                "sessions": found.sessions,
                "events": found.events,
                "unsettled": found.unsettled,
                "differing": [
                    {"tenant": ref.tenant, "session_id": ref.session_id, "rows": count}
                    for ref, count in found.differing
                ],
            }
        )
    else:
        typer.echo(
            f"{found.sessions} sessions, {found.events} events folded anew: {len(found.differing)} differ"
        )
        for ref, count in found.differing:
            typer.echo(f"  {ref.tenant}/{ref.session_id}: {count} rows are not what its events say")
        if found.unsettled:
            typer.echo(f"{found.unsettled} of them a worker has still to write")
    if found.differing:
        raise typer.Exit(1)
