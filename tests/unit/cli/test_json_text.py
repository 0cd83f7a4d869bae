"""JSON for scripts is the same value to whoever parses it, and harmless to a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import turnledger
from turnledger.cli.output import json_text

HOSTILE = "\x1b[2J\x07\x7f\x9b31m\u202e\u2066\u200b\u2028\ufeff名é"


def test_no_control_character_is_left_and_the_value_is_the_same() -> None:
    text = json_text({"a": HOSTILE, HOSTILE: [1, None]})
    assert text.isprintable()
    assert "名é" in text
    assert json.loads(text) == {"a": HOSTILE, HOSTILE: [1, None]}


def test_one_place_prints_json_for_scripts() -> None:
    cli = Path(turnledger.__file__).parent / "cli"
    elsewhere = [path.name for path in cli.glob("*.py") if "ensure_ascii=False" in path.read_text()]
    assert elsewhere == ["output.py"]
