"""The reading rules for growing and broken files, one test each."""

from __future__ import annotations

import gzip
import hashlib
import io

import pytest
import zstandard

from turnledger.errors import TurnledgerError
from turnledger.harness.reading import Condition, read_records, records_of


def read(raw: bytes, **limits: int) -> tuple[list[tuple[int, object]], Condition]:
    condition = Condition()
    records = [(each.number, each.value) for each in read_records(io.BytesIO(raw), condition, **limits)]
    return records, condition


def reasons(condition: Condition) -> list[tuple[int, str]]:
    return [(each.number, each.reason) for each in condition.quarantined]


def test_lines_end_at_0x0a_alone() -> None:
    records, condition = read(
        '{"a":"one\u2028two\u2029three\u0085four\x0bfive"}\n{"b":2}\n'.replace("\x0b", "\\u000b").encode()
    )
    assert records == [(0, {"a": "one\u2028two\u2029three\u0085four\x0bfive"}), (1, {"b": 2})]
    assert condition.quarantined == []


def test_one_trailing_cr_and_a_bom_are_dropped() -> None:
    records, condition = read(b'\xef\xbb\xbf{"a":1}\r\n{"b":2}\r\n')
    assert records == [(0, {"a": 1}), (1, {"b": 2})]
    assert condition.quarantined == []


def test_invalid_utf8_is_replaced_and_the_record_kept() -> None:
    records, condition = read(b'{"a":"x\xff\xfey"}\n{"b":2}\n')
    assert records == [(0, {"a": "x\ufffd\ufffdy"}), (1, {"b": 2})]
    assert condition.invalid_utf8 == 1


def test_an_unterminated_last_line_that_parses_is_a_record_and_is_flagged() -> None:
    records, condition = read(b'{"a":1}\n{"b":2}')
    assert records == [(0, {"a": 1}), (1, {"b": 2})]
    assert condition.unterminated


def test_an_unterminated_last_line_that_is_torn_is_quarantined() -> None:
    records, condition = read(b'{"a":1}\n{"b":')
    assert records == [(0, {"a": 1})]
    assert reasons(condition) == [(1, "unterminated")]


def test_objects_glued_on_one_line_are_records_of_their_own() -> None:
    records, condition = read(b'{"a":1}{"b":2} {"c":3}\n{"d":4}\n')
    assert records == [(0, {"a": 1}), (1, {"b": 2}), (2, {"c": 3}), (3, {"d": 4})]
    assert condition.glued == 1


def test_what_follows_a_glued_object_and_is_none_is_quarantined_alone() -> None:
    records, condition = read(b'{"a":1}{"b":\n{"c":3}\n')
    assert records == [(0, {"a": 1}), (2, {"c": 3})]
    assert reasons(condition) == [(1, "json")]


def test_a_malformed_line_is_quarantined_with_offset_size_and_hash_and_keeps_its_number() -> None:
    records, condition = read(b'{"a":1}\nnot json\n{"b":2}\n')
    assert records == [(0, {"a": 1}), (2, {"b": 2})]
    (bad,) = condition.quarantined
    assert (bad.number, bad.offset, bad.size, bad.reason) == (1, 8, 8, "json")
    assert bad.sha256 == hashlib.sha256(b"not json").hexdigest()


def test_a_value_that_is_no_object_is_quarantined() -> None:
    records, condition = read(b'[1,2]\n{"a":1}\n"text"\n')
    assert records == [(1, {"a": 1})]
    assert reasons(condition) == [(0, "not_an_object"), (2, "not_an_object")]


def test_blank_lines_are_no_records() -> None:
    records, condition = read(b'\n  \t\r\n{"a":1}\n\n')
    assert records == [(0, {"a": 1})]
    assert condition.quarantined == []


def test_nan_is_an_unknown_value_and_a_lone_surrogate_stays_readable() -> None:
    records, _ = read(b'{"a":NaN,"b":1}\n{"c":"\\ud800"}\n')
    assert records == [(0, {"a": None, "b": 1}), (1, {"c": "\ud800"})]


def test_endless_nesting_stops_its_line_alone() -> None:
    records, condition = read(b'{"a":' + b"[" * 200_000 + b"\n" + b'{"b":2}\n')
    assert records == [(1, {"b": 2})]
    assert reasons(condition) in ([(0, "too_deep")], [(0, "json")])


def test_a_line_of_20_mb_is_read() -> None:
    records, condition = read(b'{"a":"' + b"x" * 20_000_000 + b'"}\n')
    assert len(records) == 1
    assert condition.quarantined == []


def test_a_line_above_the_limit_is_passed_over_and_the_next_is_read() -> None:
    long = b'{"a":"' + b"x" * 3_000_000 + b'"}'
    records, condition = read(b'{"b":1}\n' + long + b'\n{"c":2}\n', line_limit=2_000_000)
    assert records == [(0, {"b": 1}), (2, {"c": 2})]
    (bad,) = condition.quarantined
    assert (bad.offset, bad.size, bad.reason) == (8, len(long), "too_long")
    assert bad.sha256 == hashlib.sha256(long).hexdigest()


@pytest.mark.parametrize(
    ("packed", "name"),
    [
        (gzip.compress(b'{"a":1}\n{"b":2}\n'), "gzip"),
        (zstandard.compress(b'{"a":1}\n{"b":2}\n'), "zstd"),
        (zstandard.compress(b'{"a":1}\n') + zstandard.compress(b'{"b":2}\n'), "zstd"),
    ],
    ids=["gzip", "zstd", "zstd in two frames"],
)
def test_compression_is_recognised_by_its_magic(packed: bytes, name: str) -> None:
    records, condition = read(packed)
    assert records == [(0, {"a": 1}), (1, {"b": 2})]
    assert condition.compression == name


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_file_that_unpacks_beyond_the_bound_stops_there_and_says_so(pack: object) -> None:
    packed = pack(b'{"a":1}\n' * 1_000_000)  # type: ignore[operator]
    records, condition = read(packed, plain_limit=2_000_000)
    assert 0 < len(records) < 1_000_000
    assert reasons(condition)[-1][1] == "too_large"


def test_a_broken_archive_gives_what_could_be_unpacked_and_says_so() -> None:
    packed = gzip.compress(b'{"a":1}\n')
    records, condition = read(packed[:-6])
    assert records in ([], [(0, {"a": 1})])
    assert reasons(condition)[-1][1] == "compression"


def test_an_empty_file_has_no_records() -> None:
    assert read(b"")[0] == []


def test_a_file_that_cannot_be_opened_is_a_sentence(tmp_path: object) -> None:
    with pytest.raises(TurnledgerError, match="cannot be read"):
        list(records_of(tmp_path, Condition()))  # type: ignore[arg-type]
