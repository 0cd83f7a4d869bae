"""Owns the list of the harnesses whose files are read, in the order in which a file is offered to them."""

from __future__ import annotations

from typing import Final

from turnledger.errors import TurnledgerError
from turnledger.harness import (
    aider,
    capsem,
    claude_code,
    cline,
    codex,
    copilot_cli,
    deepseek_harness,
    gemini_cli,
    opencode,
    openhands,
    pi,
    qwen_code,
    sidecar,
    swe_agent,
)
from turnledger.harness.format import Format

FORMATS: Final[tuple[Format, ...]] = (
    claude_code.FORMAT,
    codex.FORMAT,
    gemini_cli.FORMAT,
    qwen_code.FORMAT,
    opencode.FORMAT,
    copilot_cli.FORMAT,
    openhands.FORMAT,
    swe_agent.FORMAT,
    pi.FORMAT,
    cline.FORMAT,
    aider.FORMAT,
    deepseek_harness.FORMAT,
    sidecar.FORMAT,
    capsem.FORMAT,
)

NAMES: Final = tuple(each.name for each in FORMATS)


def named(name: str) -> Format:
    """The format of this name, as ``--harness`` gives it."""
    for each in FORMATS:
        if each.name == name:
            return each
    raise TurnledgerError(f"--harness {name} is not known: it can be {', '.join(NAMES[:-1])} or {NAMES[-1]}")
