"""`turnledger retention` and `turnledger sessions vacuum`: history that may go, goes; every number stays and can be proven."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnledger.cli.output import print_json
from turnledger.errors import TurnledgerError

if TYPE_CHECKING:
    import psycopg

    from turnledger.retention.rules import Choice, Chosen
    from turnledger.retention.run import Done
    from turnledger.retention.vacuum import Went

Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
By = Annotated[str | None, typer.Option(help="Who says so; you, unless said.")]
Tenant = Annotated[str | None, typer.Option(help="Only this tenant's sessions.")]
Archived = Annotated[
    bool, typer.Option("--archived", help="Only what an archive holds (`turnledger archive`).")
]

_AGE = re.compile(r"([0-9]{1,6})(h|d)")
_SIZE = re.compile(r"([0-9]{1,15})(|kB|MB|GB|TB)")
_BYTES = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
SHOWN = 50
"""Sessions that a person is shown one by one."""


def register(app: typer.Typer) -> None:
    """Add ``retention run`` and ``retention runs``."""
    retention = typer.Typer(help="Events that may go; every number stays.", no_args_is_help=True)
    retention.command("run")(run)
    retention.command("runs")(runs)
    app.add_typer(retention, name="retention")


def run(
    why: Annotated[
        str, typer.Option(help="Why. It is kept with the run and with each session.")
    ] = "retention",
    age: Annotated[
        str | None, typer.Option(metavar="30d", help="Sessions of which nothing came for so long.")
    ] = None,
    max_sessions: Annotated[
        int | None,
        typer.Option(min=0, help="So many sessions keep their events: the empty go first, then the oldest."),
    ] = None,
    max_bytes: Annotated[
        str | None, typer.Option(metavar="100GB", help="So many bytes of events stay: the oldest go first.")
    ] = None,
    keep_content: Annotated[
        int,
        typer.Option(
            min=0, help="The newest sessions with tokens or tool calls stay, whatever a limit says."
        ),
    ] = 25,
    tenant: Tenant = None,
    archived: Archived = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would go, and change nothing.")
    ] = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Let go of events and detail of old sessions; rollups, ranges and digests stay. Running and persistent sessions never go.

    Exit status 1 when something that was chosen had to be left alone.
    """
    import psycopg

    from turnledger.cli.progress import counting
    from turnledger.cli.who import person
    from turnledger.retention import run as retention
    from turnledger.retention.rules import Rules

    rules = Rules(
        age=None if age is None else _age(age),
        max_sessions=max_sessions,
        max_bytes=None if max_bytes is None else _size(max_bytes),
        keep_content=keep_content,
        archived=archived,
        tenant=tenant,
    )
    with _connection("retention") as connection:
        if dry_run:
            choice = retention.plan(connection, rules)
            done = retention.Done(None, choice)
            done.days.days = retention.days_of(connection, choice)
        else:
            try:
                with counting("let go of", "sessions") as told:
                    done = retention.run(connection, rules, by=by or person(), why=why, progress=told)
            except psycopg.Error as error:
                raise _failed(error) from None
    if as_json:
        print_json(_told(done))
    else:
        _page(done)
    if done.stays:
        raise typer.Exit(1)


def runs(
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=100_000, help="How many.")] = 20,
    as_json: Json = False,
) -> None:
    """The latest retention runs: who, when, why, and what went."""
    from turnledger.doctor.rows import told
    from turnledger.doctor.tables import count as figure
    from turnledger.doctor.tables import second, show
    from turnledger.store.named import query

    with _connection("retention") as connection:
        found = told(connection, query("retention/runs"), {"count": count})
    if as_json:
        print_json({"runs": [{**one, "days": [day.isoformat() for day in one["days"]]} for one in found]})
        return
    show(
        typer.get_text_stream("stdout"),
        "retention runs",
        ["run>", "began", "state", "by", "why", "chosen>", "went>", "left alone>", "events>", "days>"],
        [
            [
                one["run"], second(one["started_at"]), one["state"], one["run_by"], one["why"], figure(one["chosen"]),
                figure(one["vacuumed"]), figure(one["left_alone"]), figure(one["events"]), len(one["days"]),
            ]
            for one in found
        ],
    )  # fmt: skip
    if not found:
        typer.echo("nothing was ever let go of by a run")


def vacuum(
    sessions: Annotated[
        list[str],
        typer.Argument(
            metavar="SESSION…", help="A session's id, tenant/session_id, or its name. Several may be given."
        ),
    ],
    why: Annotated[
        str | None,
        typer.Option(help="Why. It is kept with the session; only a dry run needs none.", show_default=False),
    ] = None,
    tenant: Tenant = None,
    archived: Archived = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go and what would stay, and change nothing.")
    ] = False,
    by: By = None,
    as_json: Json = False,
) -> None:
    """Let go of the events and detail of sessions; their rollups, ranges and digests stay. Twice is once.

    Exit status 1 when one was left alone (or would be): it runs, is persistent, or is not proven. With --json and --dry-run, ``vacuumed`` is what would be.
    """
    import psycopg

    from turnledger.cli.who import person
    from turnledger.doctor.scope import one_session
    from turnledger.retention.vacuum import Order, Stays, foresee
    from turnledger.retention.vacuum import vacuum as let_go

    if why is None and not dry_run:
        raise TurnledgerError('say why with --why "…": it is kept with the session.')
    order = Order(by or person(), why or "", archived=archived)
    told: list[dict[str, Any]] = []
    with _connection("vacuum") as connection:
        found = [one_session(connection, name, tenant).session for name in sessions]
        for ref in found:
            assert ref is not None
            try:
                became = (foresee if dry_run else let_go)(connection, ref, order)
            except psycopg.Error as error:
                raise _failed(error) from None
            named = {"tenant": ref.tenant, "session_id": ref.session_id}
            told.append({**named, **(_stays(became.why) if isinstance(became, Stays) else _went(became))})
    if as_json:
        print_json({"dry_run": dry_run, "sessions": told})
    else:
        from turnledger.doctor.tables import safe

        gone, alone = ("would go", "would be left alone") if dry_run else ("are gone", "is left alone")
        for one in told:
            name = safe(f"{one['tenant']}/{one['session_id']}")
            if one["vacuumed"]:
                typer.echo(
                    f"{name}: {one['events']} events ({one['bytes']:,} bytes) {gone}; what they gave stays"
                )
            else:
                typer.echo(f"{name} {alone}: {one['why']}")
    if not all(one["vacuumed"] for one in told):
        raise typer.Exit(1)


def _failed(error: Exception) -> TurnledgerError:
    return TurnledgerError(
        f"the database failed in the middle ({type(error).__name__}): every session is whole or gone; run it again when it answers."
    )


def _stays(why: str) -> dict[str, Any]:
    return {"vacuumed": False, "why": why, "events": 0, "bytes": 0, "late": False}


def _went(went: Went) -> dict[str, Any]:
    return {"vacuumed": True, "why": None, "events": went.events, "bytes": went.bytes, "late": went.late}


def _told(done: Done) -> dict[str, Any]:
    choice = done.choice
    return {
        "dry_run": done.run_no is None,
        "run_no": done.run_no,
        "sessions": choice.sessions,
        "running": choice.running,
        "persistent": choice.persistent,
        "protected": choice.protected,
        "chosen": [_chosen(one) for one in choice.chosen],
        "unmet": choice.unmet,
        "vacuumed": done.sessions,
        "events": done.events,
        "bytes": done.bytes,
        "left_alone": [{**_chosen(one), "why": why} for one, why in done.stays],
        "days": [day.isoformat() for day in done.days.days],
        "days_forbidden": [day.isoformat() for day in done.days.forbidden],
        "days_waiting": [day.isoformat() for day in done.days.waiting],
    }


def _chosen(one: Chosen) -> dict[str, Any]:
    found = one.candidate
    return {
        "tenant": found.tenant,
        "session_id": found.session_id,
        "rule": one.rule,
        "status": found.status,
        "last_arrival": found.last_arrival.isoformat(),
        "content": found.content,
        "bytes": found.bytes or None,
    }


def _page(done: Done) -> None:
    from turnledger.doctor.tables import count, safe, sentence, show

    out = typer.get_text_stream("stdout")
    choice: Choice = done.choice
    show(
        out,
        "what would go" if done.run_no is None else "chosen",
        ["session", "rule", "status", "last came", "content", "bytes>"],
        [
            [
                one.candidate.name, one.rule, one.candidate.status, f"{one.candidate.last_arrival:%Y-%m-%d %H:%M:%S}Z",
                "yes" if one.candidate.content else "no", count(one.candidate.bytes or None),
            ]
            for one in choice.chosen[:SHOWN]
        ],
    )  # fmt: skip
    if len(choice.chosen) > SHOWN:
        out.write(f"… and {len(choice.chosen) - SHOWN} more (--json lists them)\n\n")
    for chosen, why in done.stays[:SHOWN]:
        sentence(out, f"{safe(chosen.candidate.name)} is left alone: {why}")
    days = ", ".join(day.isoformat() for day in done.days.days)
    if done.run_no is None:
        sentence(
            out,
            f"{len(choice.chosen)} of {choice.sessions} sessions would go; left alone: {choice.running} running, {choice.persistent} "
            f"persistent, {choice.protected} protected; nothing was changed",
        )
        if days:
            sentence(out, f"days that would be dropped: {days}")
    else:
        sentence(
            out,
            f"run {done.run_no}: {done.sessions} sessions with {done.events} events ({done.bytes} bytes) are gone, {len(done.stays)} of the "
            f"chosen were left alone; {choice.running} run, {choice.persistent} are persistent, {choice.protected} protected",
        )
        if days:
            sentence(out, f"days dropped: {days}")
    for unmet in choice.unmet:
        sentence(out, unmet)
    for day in done.days.forbidden:
        sentence(
            out,
            f"{day.isoformat()} is empty, and this role may not drop it: run it as the owner of the schema",
        )
    for day in done.days.waiting:
        sentence(
            out, f"{day.isoformat()} is empty and is dropped with the next run: somebody reads the events"
        )


def _age(given: str) -> timedelta:
    found = _AGE.fullmatch(given)
    if found is None:
        raise TurnledgerError(f"--age {given!r} is no age: say 30d or 12h.")
    return timedelta(hours=int(found[1])) if found[2] == "h" else timedelta(days=int(found[1]))


def _size(given: str) -> int:
    found = _SIZE.fullmatch(given)
    if found is None:
        raise TurnledgerError(f"--max-bytes {given!r} is no size: say 500MB, 100GB, or so many bytes.")
    return int(found[1]) * _BYTES[found[2]]


def _connection(name: str) -> psycopg.Connection[Any]:
    from turnledger.cli.addresses import database_url
    from turnledger.store.connect import connect
    from turnledger.store.migrate import require

    url = database_url()
    require(url)
    # Long statements are its own: each holds locks of one session, and a worker's lock is waited for briefly.
    return connect(url, name, autocommit=True, statement_seconds=0, lock_seconds=10)
