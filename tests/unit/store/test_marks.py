"""Marks of the ingest transaction name the turns that moved, so that a long session is not read whole for one of them."""

from __future__ import annotations

import struct

from turnledger.store.write import int4_array, mark_rows
from turnledger.store.write_binary import NULL, field_count, int8, text
from turnledger.store.write_rows import Unit

SLOT = "projection_b"


def unit(session_no: int, turn: int | None = None, *, wipe: bool = False) -> Unit:
    made = Unit(session_no=session_no, tenant="t", session_id="s", partition=0, offset=0, wipe=wipe)
    if turn is not None:
        made.turn = (session_no, turn)
    return made


def row(session_no: int, turns: bytes) -> bytes:
    return field_count(3) + int8(session_no) + turns + text(SLOT)


def test_a_mark_names_the_turns_that_were_written_or_taken_back() -> None:
    assert mark_rows([7, 7], [unit(7, 3), unit(7, 1), unit(7, 3), unit(7)], SLOT) == [
        row(7, int4_array([1, 3]))
    ]


def test_a_session_whose_own_rows_alone_moved_names_no_turn() -> None:
    assert mark_rows([7], [], SLOT) == [row(7, int4_array([]))]


def test_a_session_that_is_written_whole_may_have_moved_everywhere() -> None:
    assert mark_rows([7, 8], [unit(7, 3), unit(7, wipe=True), unit(7, 4), unit(8, 2)], SLOT) == [
        row(7, NULL),
        row(8, int4_array([2])),
    ]


def test_rows_that_were_written_are_marked_whether_the_round_says_so_or_not() -> None:
    assert mark_rows([], [unit(9, 5)], SLOT) == [row(9, int4_array([5]))]


def test_an_array_is_in_postgres_binary_form() -> None:
    assert int4_array([5, -1]) == struct.pack(
        ">iiiiii ii ii".replace(" ", ""), 36, 1, 0, 23, 2, 1, 4, 5, 4, -1
    )
    assert int4_array([]) == struct.pack(">iiii", 12, 0, 0, 23)
