"""`turnledger sessions show · timeline · report`: one session told, as a graph, as lines, as a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnledger.cli.output import print_json
from turnledger.errors import TurnledgerError

if TYPE_CHECKING:
    import psycopg

SessionId = Annotated[
    str, typer.Argument(help="The session: its id, tenant/id, or its name.", metavar="SESSION")
]
Tenant = Annotated[str | None, typer.Option(help="Of this tenant.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def register(sessions: typer.Typer) -> None:
    """Add the commands to ``turnledger sessions``."""
    sessions.command("show")(show)
    sessions.command("timeline")(timeline)
    sessions.command("report")(report)


def show(
    session_id: SessionId,
    tenant: Tenant = None,
    turn: Annotated[
        str | None, typer.Option(help="Only this turn: its key, id or index.", metavar="TURN")
    ] = None,
    trace: Annotated[str | None, typer.Option(help="Only this trace.", metavar="ID")] = None,
    call: Annotated[
        str | None, typer.Option(help="Only this model call or tool call, by any of its ids.", metavar="ID")
    ] = None,
    event: Annotated[
        str | None,
        typer.Option(help="One event whole: its id, or producer/epoch/stream/seq.", metavar="EVENT"),
    ] = None,
    bodies: Annotated[bool, typer.Option("--bodies", help="With the bodies that were recorded.")] = False,
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="The latest turns of the tree.")] = 50,
    as_json: Json = False,
) -> None:
    """One session: its sums, its tree of turns, calls and tools, its gaps, conflicts, dead letters and findings."""
    from turnledger.doctor import pages, showing, tree
    from turnledger.doctor.graph import Chosen
    from turnledger.doctor.line import Page
    from turnledger.doctor.sessions import find_session, one_snapshot, session_rows

    chosen = Chosen(turn, trace, call, event)
    with _connection("sessions show") as connection, one_snapshot(connection):
        found = find_session(connection, session_id, tenant)
        shown = session_rows(connection, found)
        traces = showing.session_graph(connection, found, shown["turns"], chosen, bodies=bodies)
    if as_json:
        graph = showing.as_json(traces)
        print_json({"session": shown["session"], "graph": graph} if chosen else {**shown, "graph": graph})
        return
    page = Page(typer.get_text_stream("stdout"))
    latest = None if chosen else {one["turn_key"] for one in shown["turns"][-count:]}
    root = tree.session_node(
        found.session_id, shown["session"], traces, latest=latest, whole=event is not None
    )
    if chosen:
        tree.write_tree(page, root)
        return
    pages.session_facts(page.out, found.session_id, shown)
    tree.write_tree(page, root)
    page.write()
    pages.session_faults(page.out, shown)


def _connection(what: str, *, autocommit: bool = False) -> psycopg.Connection[Any]:
    from turnledger.cli.addresses import database_url
    from turnledger.store.connect import connect
    from turnledger.store.migrate import require

    url = database_url()
    require(url)
    return connect(url, what, autocommit=autocommit)


def timeline(
    session_id: SessionId,
    tenant: Tenant = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every event of every type, not the conversation alone.")
    ] = False,
    first: Annotated[int, typer.Option("--from", min=0, help="Begin with line N.", metavar="N")] = 0,
    count: Annotated[int | None, typer.Option("-n", "--count", min=1, help="How many lines.")] = None,
    last: Annotated[
        int | None, typer.Option("--last", min=1, max=100_000, help="The last few lines.", metavar="N")
    ] = None,
    times: Annotated[bool, typer.Option("--times", help="With the running time of each event.")] = False,
    no_pager: Annotated[bool, typer.Option("--no-pager", help="Print straight to the terminal.")] = False,
    as_json: Json = False,
) -> None:
    """What was said, line by line: USER, TOOL, RES, ASST, numbered from 0."""
    import sys

    from turnledger.cli.pager import paged, pager
    from turnledger.doctor import timeline as telling
    from turnledger.doctor.line import Page, wants_colours
    from turnledger.doctor.sessions import find_session
    from turnledger.store.vacuumed import what_went

    if last is not None and (first or count is not None):
        raise TurnledgerError("--last is counted from the end: leave --from and --count away with it.")
    with _connection("sessions timeline", autocommit=True) as connection:
        found = find_session(connection, session_id, tenant)
        gone = what_went(connection, found.session_no, found.session_id)
        if gone is not None:
            # What came since is there, and told.
            print(f"turnledger: {gone}", file=sys.stderr)
        lines = telling.chosen(
            telling.timeline(connection, found, everything=everything), first=first, count=count, last=last
        )
        if as_json:
            telling.write_json(typer.get_text_stream("stdout"), found, lines, payloads=everything)
            return
        colours = wants_colours(sys.stdout)
        with paged(None if no_pager else pager()) as out:
            if not telling.write_lines(Page(out, colours=colours), lines, times=times):
                out.write(telling.why_nothing(connection, found, everything=everything) + "\n")


def report(
    session_id: SessionId,
    tenant: Tenant = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write it to this file.")
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(
            "--prometheus",
            envvar="TURNLEDGER_PROMETHEUS_URL",
            metavar="URL",
            help="Lay the counts of this Prometheus server beside the ledger's.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """The debug report: timeline, metrics, reconciliation, diagnosis, validation, recommendations, verdict."""
    import sys
    from dataclasses import replace

    from turnledger.cli.output import json_text
    from turnledger.doctor import report as reporting
    from turnledger.doctor.line import Page
    from turnledger.doctor.prometheus import Prometheus, PrometheusAway
    from turnledger.doctor.reconcile import Evidence, reconcile
    from turnledger.doctor.sessions import find_session
    from turnledger.store.vacuumed import what_went

    server = None if prometheus is None else Prometheus(prometheus)
    with _connection("sessions report", autocommit=True) as connection:
        found = find_session(connection, session_id, tenant)
        gone = what_went(connection, found.session_no, found.session_id)
        if gone is not None:
            raise TurnledgerError(gone)
        case = reporting.load_case(connection, found)
    why = None
    if server is not None:
        try:
            told = server.session(found.session_id)
            case = replace(
                case, reconciled=reconcile(case.counts, told, Evidence.of(server, found.session_id))
            )
        except PrometheusAway as error:
            # The rest of the report is true without it, and says what is missing.
            why = str(error)
    made = reporting.report(found, case, why)
    text = f"{json_text(made)}\n" if as_json else reporting.markdown(made)
    if output is None:
        if not as_json and sys.stdout.isatty():
            text = reporting.folded(text, Page(sys.stdout).columns)
        typer.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        print(f"turnledger: {output} holds the report of session {found.session_id!r}.", file=sys.stderr)
