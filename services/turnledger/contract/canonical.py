"""Canonical JSON and the content hash: when two records say the same (contract 3).

UTF-8, keys by code point, escapes and numbers as RFC 8785, no Unicode normalisation; an integer literal of any length is its digits.
"""

from __future__ import annotations

import hashlib
from decimal import Decimal
from json.encoder import encode_basestring as _quoted
from typing import Any

import orjson

from turnledger.contract.jsontext import parse
from turnledger.contract.times import parse_instant, utc_text

DEFAULTS: dict[str, Any] = {
    "schema_version": 1,
    "tenant": "default",
    "producer": "harness",
    "epoch": 0,
    "stream": "ledger",
    "kind": "live",
    "provenance": "observed",
    "payload": {},
}
"""What an absent envelope field means (contract 2). Not to be changed in place."""

CORRELATION = ("trace_id", "turn_id", "model_call_id", "tool_call_id", "parent_session_id")
"""Fields whose empty text means absent (contract 2)."""

_EXACT = 2**53
_OPTIONS = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)


def number_text(value: float) -> str:
    """A double as canonical text: ECMAScript's ``Number::toString``, which RFC 8785 takes over (1e21 is ``1e+21``)."""
    if value.is_integer() and -_EXACT < value < _EXACT:
        return str(int(value))
    sign = "-" if value < 0 else ""
    mantissa, _, power = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(power or 0)
    digits = whole + fraction
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    digits = stripped.rstrip("0")
    # value = 0.digits × 10^point, the digits being the shortest that give the double back
    if len(digits) <= point <= 21:
        return sign + digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    tail = "." + digits[1:] if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{point - 1:+d}"


def integral(value: Any) -> int | None:
    """The integer that a JSON number stands for, judged on its canonical text; None where it stands for none.

    2^60 spelt ``1152921504606846976.0`` is 1152921504606847000, as its canonical text says. Of a number far beyond int64
    only that it is beyond is right.
    """
    kind = type(value)
    if kind is int:
        return value  # type: ignore[no-any-return]  # its kind is int
    if kind is float:
        if not value.is_integer():
            return None
        return int(number_text(value)) if abs(value) < 1e21 else int(value)
    if kind is Decimal:
        return -(1 << 640) if value < 0 else 1 << 640
    return None


def _plain(value: Any) -> bool:
    """Whether orjson writes the value canonically: nothing in it is a float (longer integers it refuses by itself)."""
    kind = type(value)
    if kind is dict:
        value = value.values()
    elif kind is not list:
        return kind is not float
    for item in value:
        kind = type(item)
        if kind is str or kind is int:
            continue
        if kind is float or ((kind is dict or kind is list) and not _plain(item)):
            return False
    return True


def _write(value: Any, out: list[str]) -> None:
    kind = type(value)
    if kind is str:
        out.append(_quoted(value))
    elif kind is int or kind is Decimal:
        out.append(str(value))
    elif value is None:
        out.append("null")
    elif kind is bool:
        out.append("true" if value else "false")
    elif kind is float:
        if value != value or value in (float("inf"), float("-inf")):
            raise ValueError("NaN and infinities have no canonical JSON")
        out.append(number_text(value))
    elif kind is dict:
        mark = "{"
        for key in sorted(value):
            out.append(mark + _quoted(key) + ":")
            _write(value[key], out)
            mark = ","
        out.append("}" if value else "{}")
    elif kind is list or kind is tuple:
        mark = "["
        for item in value:
            out.append(mark)
            _write(item, out)
            mark = ","
        out.append("]" if value else "[]")
    else:
        raise TypeError(f"{kind.__name__} has no canonical JSON")


def dumps(value: Any) -> bytes:
    """Canonical JSON of plain data (dict with text keys, list, str, int, float, bool, None, integral Decimal).

    Raises ``TypeError`` for any other type, ``ValueError`` for NaN, infinities and lone surrogates.
    """
    if _plain(value):
        try:
            return orjson.dumps(value, option=_OPTIONS)
        except (
            TypeError
        ):  # an integer beyond 64 bits, an integer kept as Decimal, a tuple, depth beyond orjson's 254
            pass
    out: list[str] = []
    _write(value, out)
    return "".join(out).encode("utf-8")


def dumps_whole(value: Any) -> bytes:
    """``dumps`` of data that its caller knows to hold no float: no look at every member first."""
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except TypeError:  # an integer beyond 64 bits
        return dumps(value)


def canonical_record(raw: bytes) -> bytes:
    """The canonical JSON that a record's content hash is taken over. The record must be one that the reader accepts.

    Defaults filled in, null top-level and empty correlation fields dropped, ``occurred_at`` in UTC with six digits,
    ``observed_at`` removed, unknown fields kept. Raises ``JsonError`` (a ``ValueError``) where the text is not JSON.
    """
    record = parse(raw)
    if type(record) is not dict:
        raise ValueError("a record is a JSON object")
    content = DEFAULTS | {name: value for name, value in record.items() if value is not None}
    for name in CORRELATION:
        if content.get(name) == "":
            del content[name]
    content.pop("observed_at", None)
    occurred_at = content.get("occurred_at")
    if occurred_at is not None:
        at = parse_instant(occurred_at) if type(occurred_at) is str else None
        if at is None:
            raise ValueError("occurred_at is no RFC 3339 time")
        content["occurred_at"] = utc_text(at)
    return dumps(content)


def content_hash(raw: bytes) -> bytes:
    """SHA-256 (32 bytes) of ``canonical_record``."""
    return hashlib.sha256(canonical_record(raw)).digest()


def same_content(one: bytes, other: bytes) -> bool:
    """Whether two accepted records have the same content hash. Equal bytes are the usual case and cost nothing."""
    return one == other or canonical_record(one) == canonical_record(other)
