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
    processes: Annotated[
        int | None,
        typer.Option(
            help="Worker processes, 1 to 64: at most one a core and one a partition. Each has the memory and the connections of a worker."
        ),
    ] = None,
    instance_id: Annotated[
        str | None,
        typer.Option(
            help="Static member id: a restart under it takes the partitions back at once. One a worker; "
            "of several processes each has it with its number (x-1, x-2)."
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
    standby: Annotated[
        bool,
        typer.Option(
            "--standby",
            help="Claim no partition of another group: wait until `turnledger replay switch --group` gives it to this one.",
        ),
    ] = False,
    tether: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Apply the events of a topic to the ledger and its projections."""
    from turnledger.cli.addresses import addresses
    from turnledger.ingest.settings import Flags, WorkerSettings
    from turnledger.ingest.tether import Tether

    tied = None if tether is None else Tether.parse(tether)
    if tied is not None:
        tied.hold()
    given = {
        "topic": topic,
        "group_id": group,
        "processes": processes,
        "instance_id": instance_id,
        "health_host": health_host,
        "health_port": health_port,
    }
    settings = WorkerSettings().model_copy(
        update={name: value for name, value in given.items() if value is not None}
    )
    count = settings.process_count()
    where = addresses(settings)
    flags = Flags(take_over, accept_loss, resume_stopped, standby)
    if count > 1:
        # The parent applies nothing: it loads neither Faust nor a driver.
        from turnledger.ingest.processes import run_processes

        raise typer.Exit(run_processes(settings, where.kafka_bootstrap, where.database_url, flags))
    from turnledger.ingest.worker import run_worker

    raise typer.Exit(run_worker(settings, where.kafka_bootstrap, where.database_url, flags, tied))
