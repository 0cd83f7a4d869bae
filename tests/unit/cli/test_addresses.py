"""Where a command finds its servers: each judged by itself, and the sentence names what is away."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from turnledger.cli.addresses import database_url, kafka_bootstrap
from turnledger.devstack.process import Process
from turnledger.errors import TurnledgerError


def stack_of(folder: Path, *running: str) -> None:
    """A stack that was made there, of which only ``running`` runs: this very process stands for a server."""
    process = Process.of(os.getpid())
    assert process is not None
    me = process.to_json()
    state = {
        "version": 1,
        "kafka": {"port": 9999} | ({"process": me} if "kafka" in running else {}),
        "postgres": {"port": 5555, "password": "p"} | ({"process": me} if "postgres" in running else {}),
    }
    (folder / "state.json").write_text(json.dumps(state))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KAFKA_BOOTSTRAP", "DATABASE_URL"):
        monkeypatch.delenv(f"TURNLEDGER_{name}", raising=False)
    monkeypatch.setenv("TURNLEDGER_STATE", str(tmp_path))


def test_a_broker_is_found_while_the_database_is_down_and_the_sentence_names_the_database(
    tmp_path: Path,
) -> None:
    stack_of(tmp_path, "kafka")
    assert kafka_bootstrap() == "127.0.0.1:9999"
    with pytest.raises(TurnledgerError) as told:
        database_url()
    assert str(told.value) == (
        f"the database of the stack in {tmp_path} does not run: start it again with `turnledger dev up`, or set TURNLEDGER_DATABASE_URL."
    )


def test_a_database_is_found_while_the_broker_is_down_and_the_sentence_names_the_broker(
    tmp_path: Path,
) -> None:
    stack_of(tmp_path, "postgres")
    assert database_url() == "postgresql://turnledger:p@127.0.0.1:5555/turnledger"
    with pytest.raises(TurnledgerError, match=r"the broker of the stack in .* does not run: start it again"):
        kafka_bootstrap()


def test_without_a_stack_the_sentence_says_so(tmp_path: Path) -> None:
    with pytest.raises(TurnledgerError) as told:
        database_url()
    assert str(told.value) == (
        f"TURNLEDGER_DATABASE_URL is not set and no stack was made in {tmp_path}: set it, or start one with `turnledger dev up`."
    )
