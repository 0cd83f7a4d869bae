"""Each room imports only what the architecture allows it (docs/architecture.md)."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import turnledger

PACKAGE = Path(turnledger.__file__).parent

ALLOWED = {
    "contract": set(),
    "fold": {"contract"},
    "pricing": {"contract", "fold"},
    "store": {"contract", "fold"},
    "health": set(),
    "kafka": set(),
    "ingest": {"contract", "fold", "store", "health", "kafka"},
    "rollup": {"contract", "fold", "store", "pricing", "ingest", "health"},
    "harness": {"contract", "fold", "pricing", "kafka"},
    "ship": {"contract", "harness", "health"},
    "doctor": {"contract", "fold", "store", "pricing", "rollup", "kafka"},
    "outbox": {"contract", "store", "health", "kafka"},
    "archive": {"contract", "store"},
    "retention": {"contract", "fold", "store", "ingest", "doctor"},
    "replay": {"contract", "fold", "store", "pricing", "ingest", "rollup", "doctor", "archive", "kafka"},
    "devstack": set(),
}
"""Rooms that a room may import; ``errors`` are everybody's, ``settings`` too, except ``devstack``'s, which knows no address before it made one."""

EFFECTS = {"faust", "mode", "aiokafka", "psycopg", "asyncpg", "sqlalchemy", "alembic", "socket", "asyncio"}


def imports(path: Path) -> set[str]:
    """Dotted names of the modules that a file imports, at any depth of it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def files(room: str) -> list[Path]:
    """Every module of a room; a room without modules is a mistake of this test."""
    found = sorted((PACKAGE / room).rglob("*.py"))
    assert found, room
    return found


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_a_room_imports_only_the_rooms_below_it(room: str) -> None:
    everybody = {"errors"} if room == "devstack" else {"errors", "settings"}
    for path in files(room):
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "turnledger" and len(parts) > 1:
                assert parts[1] in ALLOWED[room] | everybody | {room}, f"{path.name} imports {name}"


@pytest.mark.parametrize("room", ["contract", "fold", "pricing"])
def test_pure_rooms_import_nothing_that_touches_the_world(room: str) -> None:
    for path in files(room):
        for name in imports(path):
            assert name.split(".")[0] not in EFFECTS, f"{path.name} imports {name}"


def test_contract_and_fold_load_without_faust_aiokafka_or_psycopg() -> None:
    program = (
        "import sys, pkgutil, importlib, turnledger.contract, turnledger.fold\n"
        "for room in (turnledger.contract, turnledger.fold):\n"
        "    for module in pkgutil.walk_packages(room.__path__, room.__name__ + '.'):\n"
        "        importlib.import_module(module.name)\n"
        "print(sorted({'faust', 'aiokafka', 'psycopg'} & set(sys.modules)))\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
