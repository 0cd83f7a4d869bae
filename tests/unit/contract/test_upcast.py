"""Events of older envelope versions are brought up step by step; both readers agree, and what is stored stays as it came."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.contract.reader import read
from turnledger.contract.upcast import CHAIN, Chain
from turnledger.contract.version import ENVELOPE_VERSION


def _renamed(event: Event) -> None:
    """As if version 2 had called `text` `body`."""
    event.payload = {("body" if name == "text" else name): value for name, value in event.payload.items()}


def _marked(event: Event) -> None:
    """As if version 3 had made the producer of imports explicit."""
    event.producer = f"{event.producer}!"


THREE = Chain(3, {1: _renamed, 2: _marked})


def record(version: int | None, **fields: Any) -> bytes:
    body = {"session_id": "s", "type": "note", "seq": 0, "payload": {"text": "x"}} | fields
    return json.dumps(body if version is None else body | {"schema_version": version}).encode()


@pytest.mark.parametrize(
    ("version", "payload", "producer"),
    [
        (None, {"body": "x"}, "harness!"),  # absent means 1
        (1, {"body": "x"}, "harness!"),
        (2, {"text": "x"}, "harness!"),
        (3, {"text": "x"}, "harness"),
        (4, {"text": "x"}, "harness"),  # newer: with the fields that are known here
        (0, {"body": "x"}, "harness!"),  # there never was one: the oldest
    ],
)
@pytest.mark.parametrize("extra", [{}, {"unknown": 1}, {"trace_id": "ü" * 100}])
def test_an_older_event_takes_every_step_from_its_version_on_in_both_readers(
    version: int | None, payload: dict[str, str], producer: str, extra: dict[str, Any]
) -> None:
    raw = record(version, **extra)
    for found in (read(raw, chain=THREE), FastReader(chain=THREE).read(raw)):
        assert isinstance(found, Event)
        assert (found.payload, found.producer) == (payload, producer)
        assert found.schema_version == (1 if version is None else version)


def test_a_version_without_a_step_is_a_mistake_of_whoever_makes_the_chain() -> None:
    with pytest.raises(ValueError, match="version 2 has no step"):
        Chain(4, {1: _renamed, 3: _marked})
    with pytest.raises(ValueError, match="one too many"):
        Chain(2, {1: _renamed, 2: _marked})


def test_the_chain_in_use_leads_to_the_version_that_is_known_here() -> None:
    assert CHAIN.current == ENVELOPE_VERSION
    assert sorted(CHAIN.steps) == list(range(1, ENVELOPE_VERSION))
