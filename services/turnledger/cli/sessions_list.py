"""`turnledger sessions list`: the latest sessions, by what they did, cost and left behind."""

from __future__ import annotations

from typing import Annotated

import typer

from turnledger.errors import TurnledgerError


def register(sessions: typer.Typer) -> None:
    """Add ``list`` to the commands of ``sessions``."""
    sessions.command("list")(list_)


def list_(
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=100_000, help="How many.")] = 20,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.", show_default=False)] = None,
    status: Annotated[
        str | None, typer.Option(help="Only this status: running, stopped, crashed …", show_default=False)
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Only this agent.", show_default=False)] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only those active since then: a time with its offset, or how long ago (90s, 30m, 24h, 7d).",
            show_default=False,
        ),
    ] = None,
    min_cost: Annotated[
        str | None,
        typer.Option(
            "--min-cost", metavar="DOLLARS", help="Only those that cost at least so much.", show_default=False
        ),
    ] = None,
    with_model: Annotated[bool, typer.Option("--with-model", help="Only those with tokens.")] = False,
    with_net: Annotated[bool, typer.Option("--with-net", help="Only those with requests.")] = False,
    with_tools: Annotated[bool, typer.Option("--with-tools", help="Only those with tool calls.")] = False,
    with_mcp: Annotated[bool, typer.Option("--with-mcp", help="Only those with calls of MCP tools.")] = False,
    with_detail: Annotated[
        bool, typer.Option("--with-detail", help="Only those whose events are still there (marked *).")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Those as well whose detail was vacuumed.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values with a header.")] = False,
) -> None:
    """The sessions with the latest activity. All conditions hold at once; the count is that of what is left."""
    from turnledger.cli.addresses import database_url
    from turnledger.cli.output import print_json
    from turnledger.doctor import listing
    from turnledger.doctor.scope import parse_since
    from turnledger.store.connect import connect
    from turnledger.store.migrate import require

    if as_json and as_csv:
        raise TurnledgerError("--json and --csv do not go together: choose one.")
    wanted = listing.Wanted(
        count=count,
        tenant=tenant,
        status=status,
        agent=agent,
        since=None if since is None else parse_since(since),
        min_cost=None if min_cost is None else listing.dollars_of(min_cost),
        with_model=with_model,
        with_net=with_net,
        with_tools=with_tools,
        with_mcp=with_mcp,
        with_detail=with_detail,
        vacuumed_too=everything,
    )
    url = database_url()
    require(url)
    with connect(url, "sessions") as connection:
        rows = listing.list_sessions(connection, wanted)
    out = typer.get_text_stream("stdout")
    if as_json:
        print_json({"sessions": rows})
    elif as_csv:
        listing.write_csv(out, rows)
    else:
        listing.page(out, rows)
