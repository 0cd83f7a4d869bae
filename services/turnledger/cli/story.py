"""`turnledger sessions show · timeline · report`: one session told, as a graph, as lines, as a report."""

from __future__ import annotations

from typing import Annotated

import typer

from turnledger.errors import TurnledgerError

SessionId = Annotated[str, typer.Argument(help="The session's id.", metavar="ID")]
Tenant = Annotated[str | None, typer.Option(help="Of this tenant.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def register(sessions: typer.Typer) -> None:
    """Add the commands to ``turnledger sessions``."""
    sessions.command("timeline")(timeline)


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

    from turnledger.cli.addresses import database_url
    from turnledger.cli.pager import paged, pager
    from turnledger.doctor import timeline as telling
    from turnledger.doctor.line import Page, wants_colours
    from turnledger.doctor.sessions import find_session
    from turnledger.store.connect import connect
    from turnledger.store.migrate import require

    if last is not None and (first or count is not None):
        raise TurnledgerError("--last is counted from the end: leave --from and --count away with it.")
    url = database_url()
    require(url)
    with connect(url, "sessions timeline", autocommit=True) as connection:
        found = find_session(connection, session_id, tenant)
        lines = telling.chosen(
            telling.timeline(connection, found, everything=everything), first=first, count=count, last=last
        )
        if as_json:
            telling.write_json(typer.get_text_stream("stdout"), found, lines, payloads=everything)
            return
        colours = wants_colours(sys.stdout)
        with paged(None if no_pager else pager()) as out:
            if not telling.write_lines(Page(out, colours=colours), lines, times=times):
                out.write(
                    "no lines: nothing was said yet, or the harness does not tell it; --all shows every event.\n"
                    if not everything
                    else "no events.\n"
                )
