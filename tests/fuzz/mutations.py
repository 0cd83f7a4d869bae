"""Owns the damage: what may happen to a harness file between its writer and its reader, made from a seed."""

from __future__ import annotations

import json
import random
import sqlite3
from dataclasses import dataclass
from typing import Any

from tests.fixtures.harness import goldens

ODD: tuple[Any, ...] = (
    None, True, False, -1, 12.5, 10**30, -(10**30), "", "[REDACTED]", "7", "nul\x00 and \ud800", "x" * 700, "\U0001f600" * 140,
    [], [1], [[]], {}, {"a": {"b": 1}}, [{"type": "text"}], 1e300, 2**63, 0.1,
)  # fmt: skip
ODD_CELLS: tuple[Any, ...] = (
    None,
    -1,
    12.5,
    "",
    "[REDACTED]",
    "x" * 700,
    b"\xff\x00\xfe",
    2**62,
    "{",
    '{"cache_read":"x"}',
)

KINDS = ("cut", "flip", "shuffle", "duplicate", "remove", "type", "drop_key", "glue", "insert")


@dataclass(frozen=True)
class Mutation:
    """One damaged file."""

    name: str
    kind: str
    content: bytes
    replaced: Any = None
    """What a value was replaced by, where one was."""


def mutate(name: str, rng: random.Random) -> Mutation:
    """A fixture with one kind of damage."""
    content, kind = goldens.content(name), rng.choice(KINDS)
    if kind == "cut":
        return Mutation(name, kind, content[: rng.randrange(len(content))])
    if kind == "flip":
        return Mutation(name, kind, _flipped(content, rng))
    if kind == "insert":
        place = rng.randrange(len(content))
        return Mutation(
            name, kind, content[:place] + bytes(rng.randrange(256) for _ in range(4)) + content[place:]
        )
    if name.endswith(".sql"):
        return _database(name, kind, content, rng)
    if _is_lines(name):
        return _lines(name, kind, content, rng)
    return _document(name, kind, content, rng)


def _is_lines(name: str) -> bool:
    return name.endswith((".jsonl", ".md"))


def _flipped(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _arranged(parts: list[Any], kind: str, rng: random.Random) -> list[Any]:
    place = rng.randrange(len(parts))
    if kind == "shuffle":
        parts = rng.sample(parts, len(parts))
    elif kind == "duplicate":
        parts = [*parts[: place + 1], parts[place], *parts[place + 1 :]]
    elif kind == "remove":
        parts = parts[:place] + parts[place + 1 :]
    return parts


def _lines(name: str, kind: str, content: bytes, rng: random.Random) -> Mutation:
    lines = content.splitlines(keepends=True)
    if kind in ("shuffle", "duplicate", "remove"):
        return Mutation(name, kind, b"".join(_arranged(lines, kind, rng)))
    place = rng.randrange(len(lines))
    if kind == "glue":
        lines[place] = lines[place].rstrip(b"\n")
        return Mutation(name, kind, b"".join(lines))
    try:
        value = json.loads(lines[place])
    except ValueError:
        return Mutation(name, "flip", _flipped(content, rng))
    value, odd = _replaced(value, kind, rng)
    lines[place] = json.dumps(value).encode() + b"\n"
    return Mutation(name, kind, b"".join(lines), odd)


def _document(name: str, kind: str, content: bytes, rng: random.Random) -> Mutation:
    value = json.loads(content)
    odd = None
    if kind in ("shuffle", "duplicate", "remove"):
        lists = [each for each in _lists(value) if each]
        if lists:
            chosen = rng.choice(lists)
            chosen[:] = _arranged(chosen, kind, rng)
    elif kind == "glue":
        return Mutation(name, kind, content + content)
    else:
        value, odd = _replaced(value, kind, rng)
    return Mutation(name, kind, json.dumps(value, indent=1).encode(), odd)


def _lists(value: Any) -> list[list[Any]]:
    found = [value] if isinstance(value, list) else []
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in children:
        found += _lists(each)
    return found


def _places(value: Any) -> list[tuple[Any, Any]]:
    """(holder, key) of every value inside."""
    found: list[tuple[Any, Any]] = []
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in pairs:
        found += [(value, key), *_places(each)]
    return found


def _replaced(value: Any, kind: str, rng: random.Random) -> tuple[Any, Any]:
    places = _places(value)
    if not places:
        return value, None
    holder, key = rng.choice(places)
    if kind == "drop_key":
        del holder[key]
        return value, None
    odd = rng.choice(ODD)
    holder[key] = odd
    return value, odd


def _database(name: str, kind: str, content: bytes, rng: random.Random) -> Mutation:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(content)
    tables = [
        row[0]
        for row in connection.execute(
            "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite%'"
        )
    ]
    filled = [each for each in tables if connection.execute(f"SELECT count(*) FROM {each}").fetchone()[0]]
    table, odd = rng.choice(filled), None
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    rowid = rng.choice([row[0] for row in connection.execute(f"SELECT rowid FROM {table}")])
    if kind == "remove":
        connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))
    elif kind == "drop_key":
        connection.execute(f"ALTER TABLE {table} RENAME COLUMN {rng.choice(columns)} TO gone")
    elif kind == "glue":
        connection.execute(f"DROP TABLE {table}")
    else:
        odd = rng.choice(ODD_CELLS)
        column = rng.choice([each for each in columns if each != "id"] or columns)
        connection.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?", (odd, rowid))
    connection.commit()
    image = connection.serialize()
    connection.close()
    return Mutation(name, kind, image, odd)
