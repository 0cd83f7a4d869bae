"""Commands of the tests that run inside this process."""

from __future__ import annotations

import io
import os
import sys
from dataclasses import dataclass

import pytest

from turnledger.cli import main


@dataclass(frozen=True)
class Here:
    """Commands run inside this process: only a process that is killed, or runs beside another, must be one of its own."""

    monkeypatch: pytest.MonkeyPatch
    captured: pytest.CaptureFixture[str]

    def run(self, settings: dict[str, str], *arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """Exit status, output, errors of a command."""
        self.captured.readouterr()
        with self.monkeypatch.context() as patched:
            for name in [name for name in os.environ if name.startswith("TURNLEDGER_")]:
                patched.delenv(name)
            for name, value in settings.items():
                patched.setenv(name, value)
            patched.setattr(sys, "argv", ["turnledger", *arguments])
            patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            with pytest.raises(SystemExit) as ended:
                main()
        said = self.captured.readouterr()
        return int(ended.value.code or 0), said.out, said.err
