"""`turnledger ship`: follow the session files of harnesses while they are written, and say how far that is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from turnledger.errors import TurnledgerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnledger.harness.outlets import Outlet
    from turnledger.ship.settings import ShipSettings

MOST = 20
"""Files that the table names; ``--json`` has them all."""
State = Annotated[
    str | None,
    typer.Option(
        help="Folder of the checkpoints, one a process. Else turnledger/ship below $XDG_STATE_HOME or ~/.local/state."
    ),
]


class Folders(TyperGroup):
    """``ship DIR…`` follows, ``ship status`` tells; a folder of the name ``status`` is ``./status``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            args = ["follow", *(args or ["--help"])]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add ``ship``."""
    group = typer.Typer(cls=Folders, help="Follow session files while they are written.")
    group.command("follow")(follow)
    group.command("status")(status)
    app.add_typer(group, name="ship")


def follow(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR…", help="Folders below which harnesses write.")
    ],
    state: State = None,
    harness: Annotated[
        str | None,
        typer.Option(help="Whose files they are (`turnledger harnesses`). Seen by content unless said."),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            help="Session of files that do not name their own; else the name of their folder is taken."
        ),
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Tenant of every event.")] = None,
    sink: Annotated[
        str | None,
        typer.Option(
            help="kafka://host:port or kafka://host:port/topic, or https://host for a collector. Else TURNLEDGER_KAFKA_BOOTSTRAP."
        ),
    ] = None,
    poll: Annotated[
        bool,
        typer.Option(
            "--poll",
            help="Look at all files every few seconds: for network folders, of whose changes nobody tells.",
        ),
    ] = False,
    health_host: Annotated[
        str | None, typer.Option(help="Where /healthz, /metrics and /status listen.")
    ] = None,
    health_port: Annotated[
        int | None, typer.Option(help="Their port; 0: a free one, named in the log.")
    ] = None,
) -> None:
    """Follow folders for as long as it runs, and publish what harnesses write there. `turnledger ship status` says how far it is.

    What it sends is what `turnledger import` sends: both, twice, in slices, the result is the same.
    """

    from turnledger.contract.redact import Redactor
    from turnledger.harness import formats
    from turnledger.ingest.logs import configure_logging
    from turnledger.kafka import connect
    from turnledger.ship import service
    from turnledger.ship.reading import Choices

    if harness is not None:
        formats.named(harness)
    for name, value, most in (("session", session, 256), ("tenant", tenant, 128)):
        if value is not None and not 0 < len(value.encode()) <= most:
            raise TurnledgerError(f"--{name} must be 1 to {most} bytes long")
    settings = _settings(ship_state=state, ship_health_host=health_host, ship_health_port=health_port)
    there = service.folders_of(folders)
    make, name = _outlet(settings, sink)
    configure_logging()
    connect.quiet()
    service.run(
        there,
        make,
        name,
        settings=settings,
        redactor=Redactor(
            slot_key=settings.slot_key(), bodies=settings.bodies(), body_limit=settings.body_limit_bytes
        ),
        choices=Choices(harness, session, tenant, settings.record_limit_bytes),
        told_by_system=not poll,
    )


def _settings(**given: Any) -> ShipSettings:
    from turnledger.ship.settings import ShipSettings

    return ShipSettings().model_copy(
        update={name: value for name, value in given.items() if value is not None}
    )


def _outlet(settings: ShipSettings, given: str | None) -> tuple[Callable[[], Outlet], str]:
    from turnledger.cli.addresses import kafka_bootstrap
    from turnledger.harness.kafka import Sink
    from turnledger.harness.outlets import FileSink, outlet, parse

    sink = Sink(kafka_bootstrap(settings), settings.topic) if given is None else parse(given)
    if isinstance(sink, FileSink):
        raise TurnledgerError(
            f"ship does not write files ({given}): send to kafka:// or https://, or look at what is there with `turnledger import --dry-run`"
        )
    return lambda: outlet(sink), str(sink)


def status(
    state: State = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, with every file.")] = False,
) -> None:
    """Say how far ship is: files told, behind and in trouble, lag in bytes and seconds. Exit status 1 when something is wrong."""
    from turnledger.ship import service, standing
    from turnledger.ship.state import look

    stands = look(service.state_folder(_settings(ship_state=state)))
    shown = _asked(stands.address) if stands.address is not None else None
    if shown is None:
        shown = standing.of_state(stands)
        if stands.pid is not None:
            shown.update(running=True, reasons=[f"process {stands.pid} does not answer at {stands.address}"])
    shown["pid"] = stands.pid
    if as_json:
        from turnledger.contract.canonical import dumps

        sys.stdout.buffer.write(dumps(shown) + b"\n")
        sys.stdout.buffer.flush()
    else:
        _show(shown)
    if shown["reasons"] or shown["files"]["unreadable"]:
        raise typer.Exit(1)


def _asked(address: str) -> dict[str, Any] | None:
    """What a running ship says of itself; None where it does not answer."""
    import json
    from urllib.request import urlopen

    try:
        with urlopen(f"{address}/status", timeout=5) as answer:
            found = json.load(answer)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _show(shown: dict[str, Any]) -> None:
    from turnledger.doctor.tables import count, show

    out = sys.stdout
    files, lag = shown["files"], shown["lag"]
    who = f"process {shown['pid']} ships to {shown['sink']}" if shown["running"] else "nothing ships"
    parts = ", ".join(f"{count(number)} {name}" for name, number in files.items() if number)
    out.write(f"{who}; files: {parts or 'none'}; {count(shown['events'])} events sent\n")
    if shown["refused"]:
        out.write(f"refused by the sink for good: {count(shown['refused'])} events\n")
    out.write(f"lag: {count(lag['bytes'])} bytes")
    out.write(f", {lag['seconds']:.1f} s\n" if shown["running"] else "\n")
    for reason in shown["reasons"]:
        out.write(f"wrong: {reason}\n")
    for folder in shown["folders"]:
        if not folder["there"]:
            out.write(f"not there: {folder['path']}\n")
    worth = [
        each
        for each in shown["list"]
        if each["state"] in ("behind", "held", "unreadable") or each["quarantined"]
    ]
    worth.sort(key=lambda each: (each["trouble"] is None, -(each["lag_seconds"] or 0), -each["lag_bytes"]))
    show(
        out,
        f"files that wait or are odd ({min(len(worth), MOST)} of {len(worth)})",
        ["file", "harness", "state", "bytes behind>", "seconds>", "not read>", "why"],
        [
            [
                each["path"],
                each["harness"],
                each["state"],
                count(each["lag_bytes"]),
                "" if each["lag_seconds"] is None else f"{each['lag_seconds']:.1f}",
                count(each["quarantined"]),
                each["trouble"] or "",
            ]
            for each in worth[:MOST]
        ],
    )
