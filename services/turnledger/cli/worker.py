"""`turnledger worker`: the stream processor, from Kafka into Postgres."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add `worker`."""
    app.command("worker")(worker)


def worker(
    topic: Annotated[str | None, typer.Option(help="Topic to read.")] = None,
    group: Annotated[str | None, typer.Option(help="Consumer group; one group owns a topic.")] = None,
    instance_id: Annotated[
        str | None,
        typer.Option(
            help="Static member id: a restart under it takes the partitions back at once. One a worker."
        ),
    ] = None,
    health_host: Annotated[str | None, typer.Option(help="Where /healthz and /metrics listen.")] = None,
    health_port: Annotated[
        int | None, typer.Option(help="Their port; 0: a free one, named in the log.")
    ] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take partitions from another group that is gone for good.")
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss", help="Go on where events are gone from Kafka; they are counted as holes."
        ),
    ] = False,
    resume_stopped: Annotated[
        bool, typer.Option("--resume-stopped", help="Go on where too many dead letters stopped a partition.")
    ] = False,
) -> None:
    """Apply the events of a topic to the ledger and its projections."""
    from turnledger.cli.addresses import addresses
    from turnledger.ingest.settings import WorkerSettings
    from turnledger.ingest.worker import Flags, run_worker

    given = {
        "topic": topic,
        "group_id": group,
        "instance_id": instance_id,
        "health_host": health_host,
        "health_port": health_port,
    }
    settings = WorkerSettings().model_copy(
        update={name: value for name, value in given.items() if value is not None}
    )
    where = addresses(settings)
    raise typer.Exit(
        run_worker(
            settings, where.kafka_bootstrap, where.database_url, Flags(take_over, accept_loss, resume_stopped)
        )
    )
