"""Where the broker and the database of a command are: the environment, else the running stack of this folder, else a sentence."""

from __future__ import annotations

from typing import NoReturn

from turnledger.devstack import Addresses, of_folder, state_folder
from turnledger.errors import TurnledgerError
from turnledger.settings import Settings


def addresses(settings: Settings | None = None) -> Addresses:
    """Both addresses, for a command that needs both."""
    return Addresses(kafka_bootstrap(settings), database_url(settings))


def kafka_bootstrap(settings: Settings | None = None) -> str:
    """``host:port[,host:port…]`` of the broker. Needs no database to run."""
    said = (settings or Settings()).kafka_bootstrap
    if said:
        return said
    stack = of_folder(state_folder())
    found = None if stack is None else stack.answering().kafka_bootstrap
    return found or _away("the broker", "KAFKA_BOOTSTRAP", made=stack is not None)


def database_url(settings: Settings | None = None) -> str:
    """``postgresql://…`` of the database. Needs no broker to run."""
    said = (settings or Settings()).database_url
    if said:
        return said
    stack = of_folder(state_folder())
    found = None if stack is None else stack.answering().database_url
    return found or _away("the database", "DATABASE_URL", made=stack is not None)


def _away(what: str, variable: str, *, made: bool) -> NoReturn:
    folder = state_folder()
    if made:
        raise TurnledgerError(
            f"{what} of the stack in {folder} does not run: start it again with `turnledger dev up`, or set TURNLEDGER_{variable}."
        )
    raise TurnledgerError(
        f"TURNLEDGER_{variable} is not set and no stack was made in {folder}: set it, or start one with `turnledger dev up`."
    )
