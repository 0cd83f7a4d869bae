"""An output that takes no more ends a command with a sentence, one whose reader went away without a word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from turnledger.cli import main; main()", "fold", "--json"]


@pytest.fixture
def envelopes(tmp_path: Path) -> Path:
    path = tmp_path / "envelopes.ndjson"
    path.write_text(
        "".join(
            f'{{"session_id":"s","seq":{n},"type":"turn.started","turn_id":"t{n}"}}\n' for n in range(2000)
        )
    )
    return path


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full to write to")
def test_a_full_output_is_one_sentence_and_exit_status_2(envelopes: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [*COMMAND, str(envelopes)], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert result.returncode == 2
    assert result.stderr == "turnledger: a file or an output could not be used (No space left on device).\n"


def test_a_reader_that_went_away_ends_the_command_silently(envelopes: Path) -> None:
    process = subprocess.Popen([*COMMAND, str(envelopes)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.read(10) == b'{"ai_usage'
    process.stdout.close()
    process.wait(timeout=60)
    assert process.stderr.read() == b""
    process.stderr.close()
