"""What the sender makes of waiting rows: each turn once, where it was written last; one partition a session."""

from __future__ import annotations

from turnledger.outbox.probes import Health
from turnledger.outbox.sender import key_of, latest, partition_of
from turnledger.store.outbox import Waiting


def row(number: int, session: str, turn: str, record: bytes | None = b"{}") -> Waiting:
    return Waiting(number, "acme", session, turn, 1 if record else None, "d" if record else None, record)


def test_a_turn_that_waits_twice_is_sent_once_where_it_was_written_last() -> None:
    rows = [row(1, "s", "#a"), row(2, "s", "#b"), row(3, "s", "#a"), row(4, "r", "#a")]
    assert [one.outbox_no for one in latest(rows)] == [2, 3, 4]


def test_a_turn_that_is_open_again_or_is_no_more_is_not_sent() -> None:
    assert latest([row(1, "s", "#a", None), row(2, "s", "#b")]) == [row(2, "s", "#b")]


def test_turns_of_one_session_stand_in_the_partition_of_its_name_as_the_default_partitioner_has_it() -> None:
    assert key_of(row(1, "s", "#a")) == b"acme/s/#a"
    assert {partition_of(row(1, "s", turn), 12) for turn in ("#a", "#b", "#c")} == {
        partition_of(row(9, "s", "#z"), 12)
    }
    assert len({partition_of(row(1, f"s{number}", "#a"), 12) for number in range(200)}) == 12


def test_health_is_red_only_while_turns_wait_and_nothing_moves() -> None:
    now = 0.0
    health = Health(20.0, lambda: now)
    assert health.reasons() == []
    now, health.waiting = 21.0, 4
    assert health.reasons() == ["nothing was sent for 21 s, and 4 turns wait"]
    health.progress()
    assert health.reasons() == []
    health.failed("the broker is away")
    now = 30.0
    assert health.reasons() == ["nothing can be sent for 9 s: the broker is away"]
