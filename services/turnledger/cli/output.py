"""What a command prints for scripts: one JSON object, in which nothing is left that a terminal would obey."""

from __future__ import annotations

import json
import re
from typing import Any

import typer

UNPRINTED = re.compile("[\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""What JSON leaves as it is and a terminal does not: the second set of controls, marks of direction, invisible marks, line separators."""


def json_text(value: Any, *, indent: int | None = None) -> str:
    """One object as JSON text: readable, and with every control character as its escape. Whoever parses it gets the same value."""
    text = json.dumps(value, ensure_ascii=False, default=str, indent=indent)
    return UNPRINTED.sub(lambda one: f"\\u{ord(one[0]):04x}", text)


def print_json(value: Any, *, indent: int | None = None) -> None:
    """Print it."""
    typer.echo(json_text(value, indent=indent))
