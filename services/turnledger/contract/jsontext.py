"""The strict reading of JSON text: RFC 8259, UTF-8, and nothing that a ledger could not give back (contract 15).

What Python reads that the contract refuses: NaN, Infinity, floats beyond a double, lone surrogates, NUL, unbounded depth.
What Python refuses that the contract reads: integers of any length.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any, NoReturn

MAX_DEPTH = 200
"""Deepest nesting that is read; the outermost object counts as 1."""

_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', re.DOTALL)
# One escape of a JSON string: a surrogate pair, what is refused (NUL, a lone surrogate), or any other escape.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<nul>u0000)|(?P<lone>u[dD][89a-fA-F])|.)",
    re.DOTALL,
)
_SUSPECT_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


class JsonError(ValueError):
    """Text that is no JSON value turnledger can keep. ``reason`` is a reason code of contract 15; the message shows no content."""

    def __init__(self, reason: str, detail: str, value: Any = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.value = value
        """What could be read nevertheless, where the text is JSON."""


def _integer(literal: str) -> int | Decimal:
    try:
        return int(literal)
    except (
        ValueError
    ):  # longer than Python converts (sys.get_int_max_str_digits); exact and linear as a Decimal
        return Decimal(literal)


class _Overflow(Exception):
    """A float literal beyond a double."""


def _float(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise _Overflow
    return value


def _constant(literal: str) -> NoReturn:
    raise JsonError("json", f"{literal} is not JSON")


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_constant)
_LENIENT_DECODER = json.JSONDecoder(parse_int=_integer, parse_constant=_constant)


def too_deep(raw: bytes, limit: int = MAX_DEPTH) -> bool:
    """Whether brackets outside strings nest deeper than ``limit``. Reads no further than it must."""
    if raw.count(b"[") + raw.count(b"{") <= limit:
        return False
    depth = 0
    for match in _BRACKETS.finditer(raw):
        mark = raw[match.start()]
        if mark in b"[{":
            depth += 1
            if depth > limit:
                return True
        elif mark in b"]}":
            depth -= 1
    return False


def refused_escape(raw: bytes) -> str | None:
    r"""``nul`` or ``encoding`` when JSON text spells NUL or a lone surrogate with ``\u``, else None."""
    if _SUSPECT_ESCAPE.search(raw) is None:
        return None
    for match in _ESCAPE.finditer(raw):
        if match["nul"] is not None:
            return "nul"
        if match["lone"] is not None:
            return "encoding"
    return None


def parse(raw: bytes) -> Any:
    """The value of JSON text. Of duplicate keys the last counts; an integer too long for Python's ``int`` is a ``Decimal``.

    Raises ``JsonError`` with the reason ``encoding``, ``nul``, ``too_deep``, ``json`` or ``out_of_range``.
    """
    if raw.startswith(b"\xef\xbb\xbf"):
        raise JsonError("encoding", "it begins with a byte order mark")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise JsonError("encoding", f"it is not UTF-8 at byte {error.start}") from None
    if b"\x00" in raw:
        raise JsonError("nul", f"there is a NUL at byte {raw.index(0)}")
    if too_deep(raw):
        raise JsonError("too_deep", f"it is nested deeper than {MAX_DEPTH}")
    try:
        # Not `decode`, which takes white space by a pattern of its own; the leading white space of RFC 8259 is stripped here.
        start = len(text) - len(text.lstrip(" \t\n\r"))
        try:
            value, end = _DECODER.raw_decode(text, start)
        except _Overflow:
            value, _ = _LENIENT_DECODER.raw_decode(text, start)
            raise JsonError("out_of_range", "a number overflows a double", value) from None
    except json.JSONDecodeError as error:
        raise JsonError("json", f"it is not JSON at character {error.pos}") from None
    if text[end:].strip(" \t\n\r"):
        raise JsonError("json", f"something follows the JSON value at character {end}")
    refused = refused_escape(raw)
    if refused == "nul":
        raise JsonError("nul", "a text holds NUL", value)
    if refused is not None:
        raise JsonError("encoding", "a text holds a lone surrogate", value)
    return value
