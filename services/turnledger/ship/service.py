"""Owns ship as a process: its signals, its server, its end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from turnledger.contract.redact import Redactor
from turnledger.errors import TurnledgerError
from turnledger.harness.outlets import Outlet
from turnledger.ship.follower import Follower
from turnledger.ship.probes import Server
from turnledger.ship.reading import Choices
from turnledger.ship.settings import ShipSettings
from turnledger.ship.state import State

log = logging.getLogger("turnledger.ship")


def state_folder(settings: ShipSettings) -> Path:
    """Where the checkpoints are: as the settings say, else where a user's programs keep such things."""
    if settings.ship_state:
        return Path(settings.ship_state).absolute()
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "turnledger" / "ship"


def folders_of(paths: Sequence[Path]) -> list[Path]:
    """The folders to follow, each once. One that is not there yet may come; a file is no folder."""
    for path in paths:
        if path.exists() and not path.is_dir():
            raise TurnledgerError(
                f"{path} is a file: ship follows folders, so name the one that it is in, or read it once with `turnledger import {path}`"
            )
    return list(dict.fromkeys(path.absolute() for path in paths))


def run(
    folders: Sequence[Path],
    make_outlet: Callable[[], Outlet],
    sink: str,
    *,
    settings: ShipSettings,
    redactor: Redactor,
    choices: Choices,
    told_by_system: bool,
) -> None:
    """Ship until SIGTERM or SIGINT. Raises :class:`TurnledgerError` sentences."""
    state = State(state_folder(settings))
    try:
        asyncio.run(
            _run(
                folders,
                make_outlet,
                sink,
                state=state,
                settings=settings,
                redactor=redactor,
                choices=choices,
                told_by_system=told_by_system,
            )
        )
    finally:
        state.close()


async def _run(
    folders: Sequence[Path],
    make_outlet: Callable[[], Outlet],
    sink: str,
    *,
    state: State,
    settings: ShipSettings,
    redactor: Redactor,
    choices: Choices,
    told_by_system: bool,
) -> None:
    follower = Follower(
        folders,
        state,
        make_outlet,
        settings=settings,
        redactor=redactor,
        choices=choices,
        told_by_system=told_by_system,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, follower.stop.set)
    server = Server(follower, sink, settings.ship_health_host, settings.ship_health_port)
    await server.start()
    address = f"http://{server.host}:{server.port}"
    state.listen(address)
    names = ", ".join(map(str, folders))
    log.info("follows %s, sends to %s; health at %s/healthz, state in %s", names, sink, address, state.folder)
    try:
        await follower.run()
    finally:
        await server.stop()
    log.info("ended; %s events were sent, what was not is read again next time", f"{follower.events:,}")
