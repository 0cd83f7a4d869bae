"""Which broker and database a run uses: addresses in the environment beat a container engine beats the embedded ones.

The choice is a sentence that whoever makes it says aloud. There is no falling back: what was chosen works, or the run ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from turnledger.devstack.compose import ComposeStack
from turnledger.devstack.stack import Addresses, Stack, say_to_stderr, state_folder
from turnledger.errors import TurnledgerError

KAFKA, DATABASE, PROVIDER = "TURNLEDGER_KAFKA_BOOTSTRAP", "TURNLEDGER_DATABASE_URL", "TURNLEDGER_PROVIDER"

Kind = Literal["environment", "containers", "embedded"]


@dataclass(frozen=True)
class Choice:
    """What was chosen and why. ``addresses`` are known beforehand only for ``environment``."""

    kind: Kind
    reason: str
    addresses: Addresses | None = None

    def __str__(self) -> str:
        return self.reason


def choose(
    environment: Mapping[str, str] | None = None, *, engine_answers: Callable[[], bool] | None = None
) -> Choice:
    """The provider of this run.

    ``TURNLEDGER_PROVIDER`` (``containers`` or ``embedded``) decides between the last two for those who know better.
    """
    env = os.environ if environment is None else environment
    kafka, database, wanted = env.get(KAFKA), env.get(DATABASE), env.get(PROVIDER)
    if kafka and database:
        return Choice(
            "environment",
            f"using the broker and the database named by {KAFKA} and {DATABASE}",
            Addresses(kafka, database),
        )
    if kafka or database:
        given, absent = (KAFKA, DATABASE) if kafka else (DATABASE, KAFKA)
        raise TurnledgerError(
            f"{given} is set and {absent} is not: set both to use servers of your own, or neither"
        )
    if wanted not in (None, "", "containers", "embedded"):
        raise TurnledgerError(f"{PROVIDER} is {wanted!r}: it can be `containers` or `embedded`")
    if wanted == "embedded":
        return Choice("embedded", f"using the embedded Apache Kafka and Postgres, as {PROVIDER} asks")
    answers = (engine_answers or container_engine_answers)()
    if wanted == "containers" and not answers:
        raise TurnledgerError(
            f"{PROVIDER} asks for containers and no container engine answers: start it, or set {PROVIDER}=embedded"
        )
    if answers:
        return Choice(
            "containers", "a container engine answers: using containers of Apache Kafka and Postgres"
        )
    return Choice(
        "embedded",
        "no addresses are set and no container engine answers: using the embedded Apache Kafka and Postgres",
    )


def stack_for(
    choice: Choice, state_dir: Path | None = None, *, say: Callable[[str], None] = say_to_stderr
) -> Stack | ComposeStack:
    """The stack of this folder that ``choice`` means. A folder keeps the kind that it was made with."""
    folder = state_folder(state_dir)
    made = of_folder(folder)
    kind = "containers" if choice.kind == "containers" else "embedded"
    if made is not None and isinstance(made, ComposeStack) != (kind == "containers"):
        was = "containers" if isinstance(made, ComposeStack) else "embedded"
        raise TurnledgerError(
            f"the stack in {folder} was made as {was} and this run would use {kind}: set {PROVIDER}={was}, "
            "or remove it with `turnledger dev down --remove`"
        )
    return ComposeStack(folder) if kind == "containers" else Stack(folder, say=say)


def of_folder(folder: Path) -> Stack | ComposeStack | None:
    """The stack that was made in this folder, running or not."""
    compose = ComposeStack(folder)
    if compose.made():
        return compose
    return Stack(folder) if (folder / "state.json").exists() else None


def current(state_dir: Path | None = None) -> Addresses | None:
    """The addresses of the stack of this folder, when both its servers run."""
    made = of_folder(state_folder(state_dir))
    return None if made is None else made.addresses()


def container_engine_answers() -> bool:
    """Whether a Docker-compatible engine answers a ping within two seconds."""
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env(timeout=2)
    except DockerException:  # no socket, no answer
        return False
    try:
        return bool(client.ping())
    except (DockerException, OSError):
        return False
    finally:
        client.close()
