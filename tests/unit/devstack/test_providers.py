"""Which broker and database a run uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnledger.devstack import Addresses, ComposeStack, Stack, choose, stack_for
from turnledger.errors import TurnledgerError

BOTH = {"TURNLEDGER_KAFKA_BOOTSTRAP": "broker:9092", "TURNLEDGER_DATABASE_URL": "postgresql://db/x"}


def engine(answers: bool):  # type: ignore[no-untyped-def]
    return lambda: answers


def test_addresses_in_the_environment_beat_a_container_engine() -> None:
    choice = choose(BOTH, engine_answers=engine(True))
    assert choice.kind == "environment"
    assert choice.addresses == Addresses("broker:9092", "postgresql://db/x")


def test_a_container_engine_beats_the_embedded_servers() -> None:
    assert choose({}, engine_answers=engine(True)).kind == "containers"


def test_without_either_the_embedded_servers_are_used_and_the_choice_says_why() -> None:
    choice = choose({}, engine_answers=engine(False))
    assert choice.kind == "embedded"
    assert str(choice) == (
        "no addresses are set and no container engine answers: using the embedded Apache Kafka and Postgres"
    )


def test_the_person_may_ask_for_the_embedded_ones_beside_an_engine() -> None:
    asked = {"TURNLEDGER_PROVIDER": "embedded"}
    assert choose(asked, engine_answers=engine(True)).kind == "embedded"


def test_containers_that_were_asked_for_are_never_replaced_in_silence() -> None:
    with pytest.raises(TurnledgerError, match="no container engine answers"):
        choose({"TURNLEDGER_PROVIDER": "containers"}, engine_answers=engine(False))


@pytest.mark.parametrize("given", sorted(BOTH))
def test_one_address_alone_is_a_mistake_and_both_names_are_said(given: str) -> None:
    with pytest.raises(TurnledgerError) as raised:
        choose({given: BOTH[given]}, engine_answers=engine(False))
    assert all(name in str(raised.value) for name in BOTH)


def test_an_unknown_provider_is_named() -> None:
    with pytest.raises(TurnledgerError, match="'podman'"):
        choose({"TURNLEDGER_PROVIDER": "podman"}, engine_answers=engine(True))


def test_a_folder_keeps_the_kind_of_stack_that_it_was_made_with(tmp_path: Path) -> None:
    embedded, containers = choose({}, engine_answers=engine(False)), choose({}, engine_answers=engine(True))
    assert isinstance(stack_for(embedded, tmp_path), Stack)
    assert isinstance(stack_for(containers, tmp_path), ComposeStack)
    (tmp_path / "state.json").write_text('{"version": 1, "kafka": {}, "postgres": {}}')
    with pytest.raises(TurnledgerError, match="was made as embedded"):
        stack_for(containers, tmp_path)
