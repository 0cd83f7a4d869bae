"""Contract 4: which numbers of a stream are missing, and what was said of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.contract_cases.cases import Event, checks, ev, fold, gaps, mark

DECLARED_LOST, ELIDED = "declared_lost", "declared_elided"
Rows = list[tuple[str, int, int, int, str]]


def at(*seqs: int, **envelope: Any) -> list[Event]:
    return [ev(seq, "counter.reported", **envelope) for seq in seqs]


def declared(seq: int, **payload: Any) -> Event:
    return ev(seq, "stream.declared", payload)


def said(seq: int, what: str, first: object = None, last: object = None, /, **more: Any) -> Event:
    payload = {name: value for name, value in (("from_seq", first), ("to_seq", last)) if value is not None}
    return ev(seq, f"stream.{what}", {**payload, "reason": "test", **more})


def closed(seq: int, last_seq: object, /, **more: Any) -> Event:
    return ev(seq, "stream.closed", {"last_seq": last_seq, **more})


def hole(
    first: int, last: int, state: str = "open", stream: str = "ledger", epoch: int = 0
) -> tuple[str, int, int, int, str]:
    return (stream, epoch, first, last, state)


CASES: dict[str, tuple[list[Event], Rows]] = {
    "a hole between two numbers": (at(0, 1, 4), [hole(2, 3)]),
    "a dense stream begins at 0": (at(3), [hole(0, 2)]),
    "arrival order does not matter": (at(4, 1, 0), [hole(2, 3)]),
    "no numbers, no gaps": ([ev(None, "x", receipt_key="r"), ev(None, "x", receipt_key="9")], []),
    "receipts fill nothing": ([*at(0, 2), ev(None, "x", receipt_key="1")], [hole(1, 1)]),
    "every hole of its own": (at(0, 2, 4), [hole(1, 1), hole(3, 3)]),
    "a hole as wide as int64": (at(0, 2**63 - 1), [hole(1, 2**63 - 2)]),
    "each epoch begins at 0": (at(0, epoch=0) + at(1, epoch=1), [hole(0, 0, epoch=1)]),
    "a declared first number": ([declared(3, density="dense", first_seq=3), *at(5)], [hole(4, 4)]),
    "a number below the first is no hole and makes none": (
        [declared(5, density="dense", first_seq=3), *at(1, 3)],
        [hole(4, 4)],
    ),
    "a first number without a density": ([declared(3, first_seq=3), *at(5)], [hole(4, 4)]),
    "a sparse stream has none": ([declared(0, density="sparse"), *at(5)], []),
    "an unknown stream has none": ([declared(0, density="unknown"), *at(5)], []),
    "the declaration counts wherever it stands in its epoch": (
        [*at(0, 5), declared(9, density="sparse")],
        [],
    ),
    "a redeclaration wins: dense": (
        [declared(0, density="sparse"), declared(2, density="dense")],
        [hole(1, 1)],
    ),
    "a redeclaration wins: sparse": ([declared(0, density="dense"), declared(2, density="sparse")], []),
    "the last in order wins, not the last to arrive": (
        [declared(4, density="sparse"), declared(0, density="dense")],
        [],
    ),
    "a declaration holds for later epochs": (
        [declared(0, density="sparse"), *at(5, epoch=0), *at(7, epoch=2)],
        [],
    ),
    "a later epoch says otherwise for itself": (
        [declared(0, density="sparse"), *at(5), ev(1, "stream.declared", {"density": "dense"}, epoch=1)],
        [hole(0, 0, epoch=1)],
    ),
    "a declaration does not hold for earlier epochs": (
        [*at(2), ev(1, "stream.declared", {"density": "sparse"}, epoch=1)],
        [hole(0, 1)],
    ),
    "a declaration concerns its own stream alone": (
        [declared(0, density="sparse"), *at(3), *at(1, stream="bus")],
        [hole(0, 0, stream="bus")],
    ),
    "a declaration that names a stream": (
        [declared(0, density="sparse", stream="bus"), *at(2), *at(3, stream="bus")],
        [hole(1, 1)],
    ),
    "a declaration that names a producer": (
        [declared(0, density="sparse", producer="p"), *at(2), *at(3, producer="p")],
        [hole(1, 1)],
    ),
    "a declaration that names an epoch holds from there": (
        [declared(0, density="sparse", epoch=1), *at(2), *at(3, epoch=1), *at(3, epoch=2)],
        [hole(1, 1)],
    ),
    "a redeclaration replaces the first number too": (
        [declared(4, density="dense", first_seq=4), declared(5, density="dense")],
        [hole(0, 3)],
    ),
    "a redeclaration without a density is dense": (
        [declared(0, density="sparse"), declared(1, first_seq=2), *at(4)],
        [hole(2, 3)],
    ),
    "a close tells the last number": ([*at(0), closed(1, 3)], [hole(2, 3)]),
    "a close counts itself": ([*at(0), closed(1, 1)], []),
    "a close below what came takes nothing away": ([*at(0, 4), closed(1, 2)], [hole(2, 3)]),
    "the greatest of several closes": ([closed(0, 1), closed(1, 3)], [hole(2, 3)]),
    "a close that names a stream nobody saw": ([closed(0, 2, stream="bus")], [hole(0, 2, stream="bus")]),
    "a close that names an epoch": ([closed(0, 1, epoch=1), *at(0, epoch=1)], [hole(1, 1, epoch=1)]),
    "a close of a sparse stream": ([declared(0, density="sparse"), closed(1, 9)], []),
    "what is declared lost": ([*at(0, 4), said(1, "lost", 2, 3)], [hole(2, 3, DECLARED_LOST)]),
    "what is declared elided": ([*at(0, 4), said(1, "elided", 2, 3)], [hole(2, 3, ELIDED)]),
    "one state a run": (
        [*at(0, 9), said(10, "lost", 2, 4), said(11, "elided", 3, 6)],
        [hole(1, 1), hole(2, 4, DECLARED_LOST), hole(5, 6, ELIDED), hole(7, 8)],
    ),
    "lost beats elided inside": (
        [*at(0, 7), said(8, "elided", 1, 6), said(9, "lost", 3, 4)],
        [hole(1, 2, ELIDED), hole(3, 4, DECLARED_LOST), hole(5, 6, ELIDED)],
    ),
    "two losses that touch are one run": (
        [*at(0, 5), said(6, "lost", 1, 2), said(7, "lost", 3, 4)],
        [hole(1, 4, DECLARED_LOST)],
    ),
    "two losses that overlap are one run": (
        [*at(0, 5), said(6, "lost", 1, 3), said(7, "lost", 2, 4)],
        [hole(1, 4, DECLARED_LOST)],
    ),
    "an arrived number is no hole": (
        [*at(0, 3, 5), said(1, "lost", 2, 4)],
        [hole(2, 2, DECLARED_LOST), hole(4, 4, DECLARED_LOST)],
    ),
    "a loss extends the expected range": (
        [*at(0), said(1, "lost", 4, 5)],
        [hole(2, 3), hole(4, 5, DECLARED_LOST)],
    ),
    "what is elided extends the expected range": (
        [*at(0), said(1, "elided", 4, 5)],
        [hole(2, 3), hole(4, 5, ELIDED)],
    ),
    "a loss below the first number says nothing": (
        [declared(5, density="dense", first_seq=5), said(6, "lost", 1, 3)],
        [],
    ),
    "a loss before the first number that overlaps it": (
        [declared(7, density="dense", first_seq=5), said(8, "lost", 3, 6)],
        [hole(5, 6, DECLARED_LOST)],
    ),
    "a loss in a sparse stream": ([declared(0, density="sparse"), said(1, "lost", 2, 3)], []),
    "a loss that names a stream": (
        [said(0, "lost", 1, 1, stream="bus"), *at(0, 2, stream="bus")],
        [hole(1, 1, DECLARED_LOST, stream="bus")],
    ),
    "a loss that names an epoch": (
        [said(0, "lost", 1, 1, epoch=3), *at(0, 2, epoch=3), *at(2)],
        [hole(1, 1), hole(1, 1, DECLARED_LOST, epoch=3)],
    ),
    "a loss that names a stream nobody saw": (
        [said(0, "lost", 1, 2, stream="bus")],
        [hole(0, 0, stream="bus"), hole(1, 2, DECLARED_LOST, stream="bus")],
    ),
    "a loss to the end of int64": (
        [*at(0), said(1, "lost", 2, 2**63 - 1)],
        [hole(2, 2**63 - 1, DECLARED_LOST)],
    ),
    "a duplicate of a loss": (
        [*at(0, 2), said(3, "lost", 1, 1), said(3, "lost", 1, 1)],
        [hole(1, 1, DECLARED_LOST)],
    ),
    "a superseded stream has none": (
        [
            *at(5, stream="bus"),
            ev(0, "stream.superseded", {"producer": "harness", "epoch": 0, "stream": "bus", "reason": "x"}),
        ],
        [],
    ),
}

NOTHING_SAID: dict[str, tuple[Event, Rows]] = {
    "a loss without its end": (said(3, "lost", 1), [hole(1, 2)]),
    "a loss without its start": (said(3, "lost", None, 1), [hole(1, 2)]),
    "a reversed loss": (said(3, "lost", 2, 1), [hole(1, 2)]),
    "a reversed loss beyond what came": (said(3, "lost", 9, 5), [hole(1, 2)]),
    "a loss of text": (said(3, "lost", "1", 2), [hole(1, 2)]),
    "a loss below 0": (said(3, "lost", -1, 2), [hole(1, 2)]),
    "a loss beyond int64": (said(3, "lost", 1, 2**63), [hole(1, 2)]),
    "something elided without its end": (said(3, "elided", 1), [hole(1, 2)]),
    "something elided reversed": (said(3, "elided", 2, 1), [hole(1, 2)]),
    "a close without its last number": (ev(3, "stream.closed", {}), [hole(1, 2)]),
    "a close of text": (closed(3, "5"), [hole(1, 2)]),
    "a close below 0": (closed(3, -1), [hole(1, 2)]),
    "a close at 5.5": (closed(3, 5.5), [hole(1, 2)]),
}


@pytest.mark.parametrize(("events", "rows"), CASES.values(), ids=CASES.keys())
def test_gaps(events: list[Event], rows: Rows) -> None:
    found = fold(*events)
    assert gaps(found) == rows
    assert found["sessions"][0]["open_gaps"] == sum(row[4] == "open" for row in rows)
    assert gaps(fold(*events[::-1])) == rows


@pytest.mark.parametrize(("event", "rows"), NOTHING_SAID.values(), ids=NOTHING_SAID.keys())
def test_an_incomplete_or_reversed_range_does_nothing_and_is_a_finding(event: Event, rows: Rows) -> None:
    found = fold(*at(0), event)
    assert gaps(found) == rows
    assert checks(found) == {"open_gap": 1, "wrong_type_in_payload": 1}


def test_a_gap_has_these_fields() -> None:
    (row,) = fold(*at(1, tenant="t"))["gaps"]
    assert row == {
        "tenant": "t",
        "session_id": "s",
        "producer": "harness",
        "epoch": 0,
        "stream": "ledger",
        "from_seq": 0,
        "to_seq": 0,
        "state": "open",
    }


def test_gaps_are_sorted_by_stream_then_number() -> None:
    found = fold(*at(1, 3, producer="b"), *at(1, stream="z", producer="a"), *at(1, epoch=10), *at(1, epoch=9))
    assert [(g["producer"], g["stream"], g["epoch"], g["from_seq"]) for g in found["gaps"]] == [
        ("a", "z", 0, 0),
        ("b", "ledger", 0, 0),
        ("b", "ledger", 0, 2),
        ("harness", "ledger", 9, 0),
        ("harness", "ledger", 10, 0),
    ]


def test_a_dead_record_does_not_fill_its_position_and_a_conflict_does() -> None:
    found = fold(*at(0), ev(1, ""), *at(2, 3), ev(3, "counter.reported", {}, event_id="y"))
    assert gaps(found) == [hole(1, 1)]


def test_an_event_above_the_last_number_is_a_finding() -> None:
    found = fold(*at(0, 3, 5), closed(1, 2))
    assert checks(found) == {"event_after_close": 2, "open_gap": 2}
    assert gaps(found) == [hole(2, 2), hole(4, 4)]


def test_the_close_of_another_stream_judges_that_stream() -> None:
    found = fold(*at(1, 2), closed(0, 0, stream="bus"), *at(0, 1, stream="bus"))
    assert checks(found) == {"event_after_close": 1}


def test_a_receipt_is_never_above_a_last_number() -> None:
    assert checks(fold(closed(0, 0), ev(None, "counter.reported", receipt_key="r"))) == {}


def test_an_event_above_the_last_number_of_a_sparse_stream_is_a_finding() -> None:
    assert checks(fold(declared(0, density="sparse"), closed(1, 1), mark(2, "a"))) == {"event_after_close": 1}


def test_a_loss_is_shown_and_what_is_elided_is_not() -> None:
    found = fold(mark(0, "a"), said(1, "lost", 3, 4), said(2, "elided", 5, 6), mark(7, "b"))
    assert checks(found) == {"declared_loss": 1}
    assert found["sessions"][0]["grade"] == "complete"


GRADES: dict[str, tuple[list[Event], str]] = {
    "dense and whole": (at(0, 1), "complete"),
    "dense with an open gap": (at(0, 2), "gaps"),
    "dense with a declared loss": ([*at(0), said(1, "lost", 2, 3)], "complete"),
    "sparse": ([declared(0, density="sparse"), *at(7)], "complete"),
    "unknown": ([declared(0, density="unknown"), *at(7)], "unknown"),
    "one unknown, one dense": ([declared(0, density="unknown"), *at(7), *at(0, stream="bus")], "complete"),
    "receipts alone": ([ev(None, "x", receipt_key="r")], "unknown"),
    "partial beats unknown": (
        [declared(0, density="unknown"), ev(1, "turn.completed", turn_id="a")],
        "partial",
    ),
    "gaps beat partial": ([ev(1, "turn.completed", turn_id="a")], "gaps"),
    "a conflict beats gaps": ([*at(1), ev(1, "y")], "disputed"),
}


@pytest.mark.parametrize(("events", "grade"), GRADES.values(), ids=GRADES.keys())
def test_the_worst_grade_wins(events: list[Event], grade: str) -> None:
    assert fold(*events)["sessions"][0]["grade"] == grade


def test_a_gap_belongs_to_the_turns_whose_span_in_that_stream_encloses_it() -> None:
    found = fold(
        *(ev(0, "turn.started", turn_id="a"), ev(2, "turn.completed", turn_id="a")),
        *(ev(3, "turn.started", turn_id="b"), ev(4, "turn.completed", turn_id="b")),
        *(ev(6, "turn.started", turn_id="c"), ev(7, "turn.completed", turn_id="c")),
    )
    assert [(turn["turn_key"], turn["grade"], len(turn["gaps"])) for turn in found["turns"]] == [
        ("a", "gaps", 1),
        ("b", "complete", 0),
        ("c", "complete", 0),
    ]
    assert found["sessions"][0]["grade"] == "gaps"
