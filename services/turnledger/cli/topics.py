"""`turnledger topics`: create the Kafka topics: of events, and of turn records."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add ``topics create``."""
    topics = typer.Typer(help="The topics in Kafka.", no_args_is_help=True)

    # A group of its own, although it has one command: the others come beside it.
    @topics.callback()
    def group() -> None:
        pass

    topics.command("create")(create)
    app.add_typer(topics, name="topics")


def create(
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, max=10_000, help="Partitions of a new topic: the most workers that can share the work."
        ),
    ] = None,
    replicas: Annotated[int, typer.Option(min=1, max=100, help="Copies of each partition.")] = 1,
    turns: Annotated[
        bool,
        typer.Option("--turns", help="The topic of turn records, which `turnledger outbox run` sends to."),
    ] = False,
) -> None:
    """Create the topic of events where it is missing. Running it again changes nothing."""
    import asyncio

    from turnledger.cli.addresses import kafka_bootstrap
    from turnledger.doctor import topics
    from turnledger.kafka import connect
    from turnledger.outbox.settings import OutboxSettings
    from turnledger.settings import Settings

    connect.quiet()
    settings = Settings()
    bootstrap = kafka_bootstrap(settings)
    name, like = (OutboxSettings().outbox_topic, topics.TURNS) if turns else (settings.topic, topics.EVENTS)
    found = asyncio.run(topics.create(bootstrap, name, like=like, partitions=partitions, replicas=replicas))
    verb = "created" if found.created else "is there already"
    typer.echo(f"{found.name} at {bootstrap}: {verb}, {found.partitions} partitions")
