"""Where the broker and the database of a command are: the environment, else the running stack of this folder, else a sentence."""

from __future__ import annotations

from turnledger.devstack import Addresses, current, state_folder
from turnledger.errors import TurnledgerError
from turnledger.settings import Settings


def addresses(settings: Settings | None = None) -> Addresses:
    """Both addresses, for a command that needs both."""
    return Addresses(kafka_bootstrap(settings), database_url(settings))


def kafka_bootstrap(settings: Settings | None = None) -> str:
    """``host:port[,host:port…]`` of the broker."""
    return (settings or Settings()).kafka_bootstrap or _of_the_stack("KAFKA_BOOTSTRAP").kafka_bootstrap


def database_url(settings: Settings | None = None) -> str:
    """``postgresql://…`` of the database."""
    return (settings or Settings()).database_url or _of_the_stack("DATABASE_URL").database_url


def _of_the_stack(variable: str) -> Addresses:
    found = current()
    if found is None:
        raise TurnledgerError(
            f"TURNLEDGER_{variable} is not set and no stack runs in {state_folder()}: "
            "set it, or start one with `turnledger dev up`"
        )
    return found
