"""Fields of a payload: their types, and tolerant reading (contract 15: a wrong type is null and a finding, never an error).

An integer is a number whose canonical text is one (12.0 is 12), within int64. Null and absent are the same.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema

from turnledger.contract.canonical import integral
from turnledger.contract.envelope import INT64_MAX, INT64_MIN, json_type, scalar_text, whole

Fields = dict[str, Any]


def integer(payload: Fields, name: str) -> int | None:
    """An integer within int64, else None."""
    value = payload.get(name)
    if type(value) is not int:
        value = integral(value)
        if value is None:
            return None
    return value if INT64_MIN <= value <= INT64_MAX else None


def count(payload: Fields, name: str) -> int | None:
    """An integer from 0 to the end of int64, else None: tokens, bytes, positions, ms."""
    value = payload.get(name)
    if type(value) is not int:
        value = integral(value)
        if value is None:
            return None
    return value if 0 <= value <= INT64_MAX else None


def number(payload: Fields, name: str) -> int | float | None:
    """A number that is no boolean, else None. An integer of any length that Python holds stays exact."""
    value = payload.get(name)
    return value if type(value) is int or type(value) is float else None


def text(payload: Fields, name: str) -> str | None:
    """A text, also an empty one, else None."""
    value = payload.get(name)
    return value if type(value) is str else None


def identifier(payload: Fields, name: str) -> str | None:
    """A text, or an integer as its digits (ids are compared as text: JSON-RPC numbers its requests), else None."""
    value = payload.get(name)
    if type(value) is str:
        return value
    if type(value) is int or (type(value) is float and value.is_integer()):
        return scalar_text(value)
    return None


def boolean(payload: Fields, name: str) -> bool | None:
    """``true`` or ``false``, else None."""
    value = payload.get(name)
    return value if type(value) is bool else None


def choice(payload: Fields, name: str, words: Collection[str]) -> str | None:
    """One of the listed words, else None."""
    value = payload.get(name)
    return value if type(value) is str and value in words else None


def items(payload: Fields, name: str) -> list[Any] | None:
    """An array, else None."""
    value = payload.get(name)
    return value if type(value) is list else None


def mapping(payload: Fields, name: str) -> Fields | None:
    """An object, else None."""
    value = payload.get(name)
    return value if type(value) is dict else None


# --- types of model fields; `Kind` tells contract.types how to check one cheaply ---


class Kind:
    """What a payload field holds, beside its pydantic type."""

    __slots__ = ("name",)

    def __init__(self, name: Literal["integer", "count", "number", "identifier"]) -> None:
        self.name = name


def _number(value: Any) -> int | float:
    if type(value) is int or type(value) is float:
        return value
    raise ValueError(f"must be a number, not {json_type(value)}")


def _identifier(value: Any) -> str:
    found = identifier({"": value}, "")
    if found is None:
        raise ValueError(f"must be a text or an integer, not {json_type(value)}")
    return found


Integer = Annotated[
    int,
    BeforeValidator(whole(INT64_MIN)),
    WithJsonSchema({"type": "integer", "minimum": INT64_MIN, "maximum": INT64_MAX}),
    Kind("integer"),
]
Count = Annotated[
    int,
    BeforeValidator(whole(0)),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": INT64_MAX}),
    Kind("count"),
]
Number = Annotated[int | float, BeforeValidator(_number), WithJsonSchema({"type": "number"}), Kind("number")]
Identifier = Annotated[
    str, BeforeValidator(_identifier), WithJsonSchema({"type": ["string", "integer"]}), Kind("identifier")
]
