"""Numbers are given before anything is sent, and only to what the ledger accepts."""

from __future__ import annotations

import json
import time

import pytest

from turnledger.harness.numbering import LedgerError, Numbering
from turnledger.harness.publishing import record_key


def test_numbers_follow_each_other_and_a_refused_event_costs_none() -> None:
    numbering = Numbering("s1")
    assert numbering.event("x", {}, {})[0] == 0
    with pytest.raises(LedgerError):
        numbering.event("x" * 200, {}, {})
    with pytest.raises(LedgerError, match="not JSON"):
        numbering.event("x", {"t": "\ud800"}, {})
    assert numbering.event("x", {}, {})[0] == 1


def test_the_default_epoch_is_the_start_in_microseconds() -> None:
    before = time.time_ns() // 1000
    assert before <= Numbering("s1").epoch <= time.time_ns() // 1000


def test_an_eval_needs_its_run() -> None:
    with pytest.raises(LedgerError, match="run_id"):
        Numbering("s1", kind="eval")
    _, (record,) = Numbering("s1", kind="eval", run_id="r1").event("x", {}, {})
    assert json.loads(record)["run_id"] == "r1"


def test_a_given_time_is_kept_and_an_absent_one_is_now() -> None:
    numbering = Numbering("s1")
    _, (given,) = numbering.event("x", {}, {"occurred_at": "2026-01-01T00:00:00Z", "turn_id": None})
    _, (absent,) = numbering.event("x", {}, {})
    assert json.loads(given)["occurred_at"] == "2026-01-01T00:00:00Z"
    assert "turn_id" not in json.loads(given)
    assert json.loads(absent)["occurred_at"].endswith("+00:00")


@pytest.mark.parametrize(
    ("raw", "key"),
    [
        (b'{"session_id":"s"}', b"default/s"),
        (b'{"session_id":"s","tenant":"acme"}', b"acme/s"),
        (b'{"session_id":"s","tenant":null}', b"default/s"),
        (b'{"session_id":"s","tenant":7}', None),
        (b'{"session_id":7}', None),
        (b'{"session_id":""}', None),
        (b"[]", None),
        (b"\xff", None),
    ],
)
def test_the_key_is_that_of_the_envelope_or_none(raw: bytes, key: bytes | None) -> None:
    assert record_key(raw) == key
