"""Fields of a binary COPY, byte by byte as Postgres reads them."""

from __future__ import annotations

import struct
from datetime import date

import pytest

from turnledger.store.write_binary import RowEncoder, day, int8, jsonb, numeric, text, timestamptz, whole


def test_an_integer_is_its_length_and_its_bytes() -> None:
    assert int8(258) == b"\x00\x00\x00\x08" + b"\x00\x00\x00\x00\x00\x00\x01\x02"


def test_text_is_measured_in_bytes() -> None:
    assert text("é") == b"\x00\x00\x00\x02\xc3\xa9"


def test_instants_count_from_the_year_2000() -> None:
    assert timestamptz(946_684_800_000_001) == b"\x00\x00\x00\x08" + struct.pack(">q", 1)


def test_days_count_from_the_year_2000() -> None:
    assert day(date(2000, 2, 1)) == b"\x00\x00\x00\x04\x00\x00\x00\x1f"


@pytest.mark.parametrize(
    ("given", "groups", "weight", "sign", "scale"),
    [
        ("0", [], 0, 0, 0),
        ("0.5", [5000], -1, 0, 1),
        ("12345.678", [1, 2345, 6780], 1, 0, 3),
        ("-0.0001", [1], -1, 0x4000, 4),
        ("1e5", [10], 1, 0, 0),
        ("10000.00", [1], 1, 0, 2),
    ],
)
def test_decimals_are_groups_of_four_digits(
    given: str, groups: list[int], weight: int, sign: int, scale: int
) -> None:
    data = struct.pack(f">hhHH{len(groups)}h", len(groups), weight, sign, scale, *groups)
    assert numeric(given) == struct.pack(">i", len(data)) + data


def test_json_keeps_integers_beyond_64_bits() -> None:
    assert jsonb({"a": 10**30}) == b"\x00\x00\x00\x26\x01" + b'{"a":1000000000000000000000000000000}'


def test_a_row_is_its_field_count_and_its_fields_with_null_as_minus_one() -> None:
    row = RowEncoder((("no", "int8"),), (("a", "text"), ("b", "bool"), ("c", "int4")))
    assert row.names == ("no", "a", "b", "c")
    assert row.encode(1, {"a": "x", "b": True, "c": None}) == (
        b"\x00\x04" + int8(1) + text("x") + b"\x00\x00\x00\x01\x01" + b"\xff\xff\xff\xff"
    )


def test_neighbours_of_one_width_are_the_same_fields_whichever_of_them_is_null() -> None:
    encode = RowEncoder((), (("a", "int4"), ("b", "int8"), ("c", "ts"))).encode
    null = b"\xff\xff\xff\xff"
    four = b"\x00\x00\x00\x04\x00\x00\x00\x07"
    eight = b"\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x09"
    instant = b"\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x01"
    at = 946_684_800_000_001
    assert encode({"a": 7, "b": 9, "c": at}) == b"\x00\x03" + four + eight + instant
    assert encode({"a": None, "b": 9, "c": at}) == b"\x00\x03" + null + eight + instant
    assert encode({"a": 7, "b": None, "c": None}) == b"\x00\x03" + four + null + null
    assert encode({"a": None, "b": None, "c": None}) == b"\x00\x03" + null + null + null


def test_an_empty_text_is_no_null() -> None:
    encode = RowEncoder(
        (("call_id", "text"),), (("word", "text"), ("turn_key", "text"), ("order_key", "bytea"))
    ).encode
    row = {"word": "", "turn_key": None, "order_key": b""}
    assert encode("", row) == b"\x00\x04" + bytes(4) + bytes(4) + b"\xff\xff\xff\xff" + bytes(4)


def test_a_value_beyond_its_column_is_refused_while_the_row_is_made() -> None:
    with pytest.raises(struct.error):
        RowEncoder((), (("c", "int4"),)).encode({"c": 2**31})


def test_a_copy_has_signature_rows_and_trailer() -> None:
    assert whole([b"rows"]) == b"PGCOPY\n\xff\r\n\x00" + bytes(8) + b"rows" + b"\xff\xff"
