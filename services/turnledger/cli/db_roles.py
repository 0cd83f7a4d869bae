"""`turnledger db roles`: logins for people, one tenant or several each, and for workers."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import psycopg

Name = Annotated[str, typer.Argument(help="Name of the login.")]
Tenants = Annotated[
    list[str] | None, typer.Option("--tenant", help="A tenant that it sees; may be given several times.")
]
AllTenants = Annotated[bool, typer.Option("--all-tenants", help="It sees every tenant, those to come too.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def register(db: typer.Typer) -> None:
    """Add ``db roles``."""
    roles = typer.Typer(help="Logins: who sees which tenants, and who writes.", no_args_is_help=True)
    roles.command("create")(create)
    roles.command("list")(list_roles)
    roles.command("grant")(grant)
    roles.command("revoke")(revoke)
    roles.command("drop")(drop)
    db.add_typer(roles, name="roles")


def create(
    name: Name,
    tenant: Tenants = None,
    all_tenants: AllTenants = False,
    worker: Annotated[
        bool, typer.Option("--worker", help="A login for workers: it writes, every tenant, no schema.")
    ] = False,
    password_file: Annotated[
        Path | None, typer.Option(help="The password is the first line of this file (- is standard input).")
    ] = None,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="It comes in by other means (certificate, peer).")
    ] = False,
    statement_seconds: Annotated[
        float, typer.Option(min=0.001, help="How long a reader's statement may take.")
    ] = 30.0,
    connections: Annotated[int, typer.Option(min=1, help="How many connections a reader may have.")] = 20,
    as_json: Json = False,
) -> None:
    """Make a login. Its address, with the password that was made for it, is printed once and kept nowhere."""
    from psycopg.conninfo import conninfo_to_dict

    from turnledger.cli.addresses import database_url
    from turnledger.errors import TurnledgerError
    from turnledger.store.roles import Login
    from turnledger.store.roles import create as make

    if sum((bool(tenant), all_tenants, worker)) > 1:
        raise TurnledgerError("--tenant, --all-tenants and --worker exclude each other: say one.")
    if no_password and password_file is not None:
        raise TurnledgerError("--no-password and --password-file exclude each other: say one.")
    made = None if no_password or password_file is not None else secrets.token_urlsafe(18)
    given = _read(password_file) if password_file is not None else None
    with _connected() as connection:
        make(
            connection,
            Login(
                name,
                tuple(tenant or ()),
                all_tenants,
                worker,
                given if given is not None else made,
                statement_seconds,
                connections,
            ),
        )
    parts: dict[str, Any] = conninfo_to_dict(database_url())
    address = _address(parts, name, made)
    if as_json:
        typer.echo(json.dumps({"role": name, "kind": "worker" if worker else "reader", "url": address}))
        return
    sees = "all tenants" if all_tenants or worker else ", ".join(tenant or ())
    typer.echo(f"{name}: a {'worker' if worker else 'reader'} of {sees}")
    typer.echo(address)


def list_roles(as_json: Json = False) -> None:
    """Who reads, writes and owns here, and which tenants each sees."""
    from turnledger.store.roles import listed

    with _connected() as connection:
        found = listed(connection)
    if as_json:
        rows = [
            {
                "role": one.name,
                "kind": one.kind,
                "tenants": None if one.tenants is None else list(one.tenants),
                "login": one.login,
                "statement_timeout": one.statement_timeout,
                "connections": None if one.connections < 0 else one.connections,
            }
            for one in found
        ]
        typer.echo(json.dumps({"roles": rows}))
        return
    width = max((len(one.name) for one in found), default=4)
    for one in found:
        sees = "all tenants" if one.tenants is None else ", ".join(one.tenants) or "nothing"
        timeout = f"  (a statement: {one.statement_timeout})" if one.statement_timeout else ""
        typer.echo(f"{one.name:<{width}}  {one.kind:<6}  {sees}{timeout}")


def grant(name: Name, tenant: Tenants = None, all_tenants: AllTenants = False) -> None:
    """Let a reader see more tenants."""
    from turnledger.store.roles import grant as give

    wanted = _wanted(tenant, all_tenants)
    with _connected() as connection:
        give(connection, name, wanted)
    typer.echo(f"{name} sees {_told(wanted)} from now on")


def revoke(name: Name, tenant: Tenants = None, all_tenants: AllTenants = False) -> None:
    """Take tenants away from a reader, from its next statement on."""
    from turnledger.store.roles import revoke as take

    wanted = _wanted(tenant, all_tenants)
    with _connected() as connection:
        take(connection, name, wanted)
    typer.echo(f"{name} is no longer granted {_told(wanted)}")


def drop(name: Name) -> None:
    """Drop a login that was made here."""
    from turnledger.store.roles import drop as remove

    with _connected() as connection:
        remove(connection, name)
    typer.echo(f"{name} is gone")


def _wanted(tenants: list[str] | None, everything: bool) -> list[str | None]:
    from turnledger.errors import TurnledgerError

    if bool(tenants) == everything:
        raise TurnledgerError("say which tenants: --tenant NAME, or --all-tenants.")
    return [None] if everything else list(tenants or ())


def _told(wanted: list[str | None]) -> str:
    return "all tenants" if wanted == [None] else ", ".join(str(one) for one in wanted)


def _read(path: Path) -> str:
    from turnledger.errors import TurnledgerError

    if str(path) == "-":
        line = sys.stdin.readline()
    else:
        with path.open(encoding="utf-8") as file:
            line = file.readline()
    password = line.rstrip("\r\n")
    if not password:
        raise TurnledgerError(f"the first line of {path} is empty: write the password there.")
    return password


def _address(parts: dict[str, Any], name: str, password: str | None) -> str:
    from urllib.parse import quote

    secret = f":{quote(password, safe='')}" if password else ""
    host, port = parts.get("host") or "localhost", parts.get("port") or 5432
    return f"postgresql://{quote(name, safe='')}{secret}@{host}:{port}/{quote(str(parts.get('dbname') or ''), safe='')}"


@contextmanager
def _connected() -> Iterator[psycopg.Connection[Any]]:
    from turnledger.cli.addresses import database_url
    from turnledger.store import migrate as runner
    from turnledger.store.connect import connect

    url = database_url()
    runner.require(url)
    with connect(url, "roles", autocommit=True) as connection:
        yield connection
