"""Every command explains itself: `--help` of each renders, also where its text holds brackets."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
import typer
from typer.testing import CliRunner

from turnledger.cli import build


def _paths(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from _paths(below, (*path, name))


PATHS = list(_paths(typer.main.get_command(build())))


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_the_help_of_a_command_renders(path: tuple[str, ...]) -> None:
    told = CliRunner().invoke(build(), [*path, "--help"])
    assert told.exit_code == 0, told.exception
    assert "Usage:" in told.output


def test_no_command_was_left_out() -> None:
    assert len(PATHS) > 50
