"""Rows as the bytes of Postgres' binary COPY: built with `struct`, without an adapter a value (design 3, point 8).

A field is its length in 4 bytes and its bytes; null is the length -1. A row is the number of its fields in 2 bytes and the fields.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from operator import itemgetter
from typing import Any

import orjson

from turnledger.contract.canonical import dumps
from turnledger.fold.columns import Column

SIGNATURE = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
"""Begins a binary COPY: no flags, no header extension."""
TRAILER = b"\xff\xff"
NULL = b"\xff\xff\xff\xff"

EPOCH_MICROSECONDS = 946_684_800_000_000
"""2000-01-01, where Postgres counts from, in µs since 1970."""
_EPOCH_DAY = date(2000, 1, 1).toordinal()

field_count: Callable[[int], bytes] = struct.Struct(">h").pack
length: Callable[[int], bytes] = struct.Struct(">i").pack
_int4 = struct.Struct(">ii").pack
_int8 = struct.Struct(">iq").pack
_TRUE = b"\x00\x00\x00\x01\x01"
_FALSE = b"\x00\x00\x00\x01\x00"

_CACHED_TEXTS = 8192
"""Words such as a status, a model, a tool's name come again and again; a longer list than this is data, not words."""


class Refused(Exception):
    """A value that its column cannot hold. Carries no value: it may be secret."""


def int4(value: int) -> bytes:
    return _int4(4, value)


def int8(value: int) -> bytes:
    return _int8(8, value)


def timestamptz(microseconds: int) -> bytes:
    """An instant given in µs since 1970 UTC."""
    return _int8(8, microseconds - EPOCH_MICROSECONDS)


def day(value: date) -> bytes:
    return _int4(4, value.toordinal() - _EPOCH_DAY)


def text(value: str) -> bytes:
    data = value.encode()
    return length(len(data)) + data


def bytea(value: bytes) -> bytes:
    return length(len(value)) + value


def boolean(value: bool) -> bytes:
    return _TRUE if value else _FALSE


def jsonb(value: Any) -> bytes:
    try:
        data = orjson.dumps(value)
    except TypeError:
        # An integer beyond 64 bits: JSON has no bound, orjson has.
        data = dumps(value)
    return length(len(data) + 1) + b"\x01" + data


def numeric(value: str) -> bytes:
    """A decimal given as text. Postgres keeps it in groups of four digits."""
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        raise Refused("a number that is not finite")
    scale = max(0, -exponent)
    whole = "".join(map(str, digits)) + "0" * max(0, exponent)
    whole = whole.rjust(scale + 1, "0")
    before, after = (whole[:-scale], whole[-scale:]) if scale else (whole, "")
    before = before.rjust(-(-len(before) // 4) * 4, "0")
    after = after.ljust(-(-len(after) // 4) * 4, "0")
    groups = [int((before + after)[i : i + 4]) for i in range(0, len(before) + len(after), 4)]
    weight = len(before) // 4 - 1
    while groups and groups[0] == 0:
        groups.pop(0)
        weight -= 1
    while groups and groups[-1] == 0:
        groups.pop()
    if not groups:
        weight, sign = 0, 0
    data = struct.pack(f">hhHH{len(groups)}h", len(groups), weight, 0x4000 if sign else 0, scale, *groups)
    return length(len(data)) + data


def copied(constant: bytes, rows: Sequence[bytes]) -> bytes:
    """The body of a COPY of ``rows`` that all begin with the fields ``constant`` (the field count stands in front of them)."""
    return constant + constant.join(rows)


def whole(parts: Iterable[bytes]) -> bytes:
    """A complete binary COPY."""
    return b"".join((SIGNATURE, *parts, TRAILER))


class RowEncoder:
    """Encodes rows of one table given as dicts: :meth:`encode` is compiled from the column list.

    A loop over columns with a call each costs three times as much for a row of 47 columns.
    """

    def __init__(self, leading: Sequence[Column], columns: Sequence[Column]) -> None:
        """``leading``: columns whose values are passed beside the dict, in this order. They come first."""
        self.names: tuple[str, ...] = tuple(name for name, _ in (*leading, *columns))
        self.encode: Callable[..., bytes] = _compiled(leading, columns, _reads([name for name, _ in columns]))
        self.encode_values: Callable[..., bytes] = _compiled(leading, columns, None)
        """The same of a row that is given as the values of its columns, in order."""


class _Words(dict[str | None, bytes]):
    """Encoded words; one that is not here yet is encoded, and kept while there is room. None is null."""

    def __missing__(self, value: str) -> bytes:
        data = text(value)
        if len(self) < _CACHED_TEXTS and len(value) <= 64:
            self[value] = data
        return data


_WORDS = _Words({None: NULL})

_FIXED = {"int4": ("i", 4), "int8": ("q", 8), "ts": ("q", 8)}
"""Kinds of one width: a format of `struct`, and the width."""
_FORMS = {
    "int4": "I4(4, {0})",
    "int8": "I8(8, {0})",
    "ts": f"I8(8, {{0}} - {EPOCH_MICROSECONDS})",
    "bool": "(YES if {0} else NO)",
    "jsonb": "J({0})",
    "numeric": "D({0})",
}
_SELDOM = frozenset(
    (
        "turn_index", "cache_write_5m_tokens", "cache_write_1h_tokens", "cache_write_other_tokens", "peak_input_tokens", "context_tokens",
        "context_window", "request_bytes", "response_bytes", "bytes_sent", "bytes_received",
    )
)  # fmt: skip
"""Columns that are usually null, which decides speed alone: they are packed apart from neighbours that usually have a value."""
_NAMES_OF_ONE = ("_id", "_key", "_by", "_message", "digest", "sha256")
"""Texts under such names differ from row to row: among the words they would take the place of those that come again."""


def _reads(names: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Takes the values of all ``names`` out of a row by one call."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda row: tuple(row[name] for name in names)


def _compiled(
    leading: Sequence[Column],
    columns: Sequence[Column],
    reads: Callable[[Mapping[str, Any]], tuple[Any, ...]] | None,
) -> Callable[..., bytes]:
    """Statements over local variables. Neighbours of one width are packed by one call where none is null, which is usual."""
    arguments = [f"a{i}" for i in range(len(leading))]
    listed = [(arg, name, kind) for arg, (name, kind) in zip(arguments, leading, strict=True)]
    listed += [(f"v{i}", name, kind) for i, (name, kind) in enumerate(columns)]
    given = "r" if reads is None else "R(r)"
    body = [f"{', '.join(f'v{i}' for i in range(len(columns)))}, = {given}"] if columns else []
    names: dict[str, Any] = {
        "N": NULL, "W": _WORDS, "I4": _int4, "I8": _int8, "YES": _TRUE, "NO": _FALSE, "L": length, "J": jsonb, "D": numeric,
        "HEAD": field_count(len(listed)), "R": reads,
    }  # fmt: skip
    parts: list[str] = []
    for fixed, group in itertools.groupby(listed, key=lambda column: column[2] in _FIXED):
        run = list(group)
        if not fixed:
            for value, name, kind in run:
                if kind == "text" and not name.endswith(_NAMES_OF_ONE):
                    parts.append(f"W[{value}]")
                elif kind in ("text", "bytea"):
                    if kind == "text":
                        body.append(f"if {value} is not None: {value} = {value}.encode()")
                    parts += [f"N if {value} is None else L(len({value}))", f"{value} or b''"]
                else:
                    parts.append(f"N if {value} is None else {_FORMS[kind].format(value)}")
            continue
        for _, pair in itertools.groupby(run, key=lambda column: column[1] in _SELDOM):
            some = list(pair)
            if len(some) == 1:
                value, _, kind = some[0]
                parts.append(f"N if {value} is None else {_FORMS[kind].format(value)}")
                continue
            number = len(names)
            names[f"P{number}"] = struct.Struct(
                ">" + "".join("i" + _FIXED[kind][0] for _, _, kind in some)
            ).pack
            names[f"N{number}"] = NULL * len(some)
            given = ", ".join(
                f"{_FIXED[kind][1]}, {value}" + (f" - {EPOCH_MICROSECONDS}" if kind == "ts" else "")
                for value, _, kind in some
            )
            single = " + ".join(
                f"(N if {value} is None else {_FORMS[kind].format(value)})" for value, _, kind in some
            )
            whole_ = " and ".join(f"{value} is not None" for value, _, _ in some)
            empty = " and ".join(f"{value} is None" for value, _, _ in some)
            parts.append(f"P{number}({given}) if {whole_} else N{number} if {empty} else {single}")
    source = "\n    ".join(
        [
            f"def encode({', '.join([*arguments, 'r'])}):",
            *body,
            f"return b''.join((HEAD, {', '.join(parts)}))\n",
        ]
    )
    exec(compile(source, f"<row encoder of {len(listed)} columns>", "exec"), names)
    encode: Callable[..., bytes] = names["encode"]
    return encode
