"""Loads the named queries: `store/sql/<name>.sql`, one statement a file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def query(name: str) -> bytes:
    """The statement ``name`` (for example ``fence/apply``), as psycopg takes it. FileNotFoundError for a name that is none."""
    return files("turnledger.store").joinpath("sql", f"{name}.sql").read_bytes()
