"""Fresh databases, copied from one template that was migrated once."""

from __future__ import annotations

import secrets
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
from psycopg import sql

from turnledger.store.migrate import migrate


def named(url: str, database: str) -> str:
    """``url`` with another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


def as_role(url: str, role: str, password: str = "p") -> str:
    """``url`` with another login."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{quote(role)}:{password}@{parts.hostname}:{parts.port}"))


def create(server_url: str, *, template: str | None = None, prefix: str = "test") -> str:
    """A new database beside that of ``server_url``; the answer is its URL."""
    name = f"{prefix}_{secrets.token_hex(6)}"
    with psycopg.connect(server_url, autocommit=True) as link:
        link.execute(
            sql.SQL("create database {} template {}").format(
                sql.Identifier(name), sql.Identifier(template or "template0")
            )
        )
    return named(server_url, name)


def migrated_template(server_url: str) -> str:
    """The name of a new database with every migration applied."""
    url = create(server_url, prefix="template")
    migrate(url)
    return urlsplit(url).path.removeprefix("/")


def drop(server_url: str, url: str) -> None:
    """Drop the database of ``url``, its connections too."""
    name = urlsplit(url).path.removeprefix("/")
    with psycopg.connect(server_url, autocommit=True) as link:
        link.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
