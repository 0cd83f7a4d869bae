"""Every column of a point table is read as the payload's model says: numbers as numbers, text as text."""

from __future__ import annotations

import pytest

from turnledger.contract.types import field_kind
from turnledger.fold.columns import EXEC_EVENTS, POINTS

NUMBERS = [
    (type_, name) for type_, columns in POINTS.values() for name, kind in columns if kind == "int8"
] + [("process.exited", name) for name, kind in EXEC_EVENTS if kind == "int8"]


@pytest.mark.parametrize(("type_", "name"), NUMBERS)
def test_a_numeric_column_is_read_as_a_number(type_: str, name: str) -> None:
    assert field_kind(type_, name) in ("count", "integer")


def test_a_kind_inside_an_optional_field_is_found() -> None:
    assert field_kind("net.requested", "status_code") == "integer"
    assert field_kind("net.requested", "bytes_sent") == "count"
    assert field_kind("net.requested", "domain") is None
