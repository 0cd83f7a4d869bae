"""Origins are read once for each spelling: what is kept must never decide for another record."""

from __future__ import annotations

import pytest

from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.contract.reader import Rejected


def record(origin: str) -> bytes:
    return f'{{"session_id":"s","seq":0,"type":"x","origin":{origin}}}'.encode()


@pytest.mark.parametrize(
    ("origin", "read"),
    [
        ('{"host":"vm-1","pid":4242}', {"host": "vm-1", "pid": "4242"}),
        ('{"pid":4242.0,"up":true,"gone":null}', {"pid": "4242", "up": "true"}),
        ("{}", {}),
        ("null", None),
        ('{"pid":123456789012345678901234567890}', {"pid": "123456789012345678901234567890"}),
    ],
)
def test_the_same_spelling_reads_the_same_each_time(origin: str, read: dict[str, str] | None) -> None:
    reader = FastReader()
    for _ in range(2):
        event = reader.read(record(origin))
        assert isinstance(event, Event)
        assert event.origin == read


@pytest.mark.parametrize(
    "origin", ['{"host":["vm-1"]}', '{"a":{}}', "[]", '"vm-1"', "7", '{"pid":1e999}', '{"h":"\\ud800"}']
)
def test_an_origin_that_is_none_is_dead_each_time(origin: str) -> None:
    reader = FastReader()
    assert all(isinstance(reader.read(record(origin)), Rejected) for _ in range(2))


def test_a_big_integer_beside_an_unknown_field() -> None:
    raw = b'{"session_id":"s","seq":0,"type":"x","later":1,"origin":{"pid":123456789012345678901234567890}}'
    event = FastReader().read(raw)
    assert isinstance(event, Event)
    assert event.origin == {"pid": "123456789012345678901234567890"}
