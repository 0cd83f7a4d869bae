"""Owns how the fold reads payload fields: a wrong type is null and a finding, never an error (contract 15).

Numbers are judged on their canonical value: ``12.0`` is the integer 12. Every reader takes the list that its finding goes to.
"""

from __future__ import annotations

from collections.abc import Container
from decimal import Decimal
from functools import lru_cache
from typing import Any

from turnledger.contract.canonical import integral
from turnledger.contract.event import Event
from turnledger.fold.model import Row

INT64_MAX = 2**63 - 1
_ESCAPED = str.maketrans({"%": "%25", "/": "%2F"})


@lru_cache(maxsize=4096)
def _stream_part(producer: str, epoch: int, stream: str) -> str:
    return f"@{producer.translate(_ESCAPED).replace(':', '%3A')}/{epoch}/{stream.translate(_ESCAPED)}/"


def place_key(event: Event) -> str:
    """The event's identity as one word, unique in its session: ``@<producer>/<epoch>/<stream>/<seq>`` or ``…/r:<receipt_key>``.

    Spelt as the ``turn_key`` of a turn without id and index (contract 7).
    """
    prefix = _stream_part(event.producer, event.epoch, event.stream)
    if event.seq is not None:
        return f"{prefix}{event.seq}"
    return f"{prefix}r:{(event.receipt_key or '').translate(_ESCAPED)}"


def finding(check: str, severity: str, event: Event | None, **row: Any) -> Row:
    """One finding (contract 13); its row begins with the place of the event that it is about."""
    if event is None:
        return {"check": check, "severity": severity, "row": row}
    place: Row = {"producer": event.producer, "epoch": event.epoch, "stream": event.stream}
    if event.seq is not None:
        place["seq"] = event.seq
    else:
        place["receipt_key"] = event.receipt_key
    place.update(row)
    return {"check": check, "severity": severity, "row": place}


def wrong_type(event: Event, field: str, wrong: list[Row]) -> None:
    """Report that a payload field is read as null because its type is wrong; once a field and event."""
    new = finding("wrong_type_in_payload", "warning", event, type=event.type, field=field)
    if new not in wrong:
        wrong.append(new)


def count_of(value: Any) -> int | None:
    """A count (an integer from 0 to int64's greatest) as its canonical value; None where the value is none."""
    if type(value) is int:
        return value if 0 <= value <= INT64_MAX else None
    whole = integral(value)
    return whole if whole is not None and 0 <= whole <= INT64_MAX else None


def integer(event: Event, name: str, wrong: list[Row]) -> int | None:
    """The count in a payload field (tokens, bytes, ms, a status code)."""
    value = event.payload.get(name)
    if value is None:
        return None
    if type(value) is int and 0 <= value <= INT64_MAX:
        return value
    whole = count_of(value)
    if whole is None:
        wrong_type(event, name, wrong)
    return whole


def text(event: Event, name: str, wrong: list[Row]) -> str | None:
    """The text in a payload field; empty is absent."""
    value = event.payload.get(name)
    if type(value) is str:
        return value or None
    if value is not None:
        wrong_type(event, name, wrong)
    return None


def label(event: Event, name: str, wrong: list[Row]) -> str | None:
    """An id that some protocols spell as a number (JSON-RPC): compared and shown as text."""
    value = event.payload.get(name)
    if type(value) is str:
        return value or None
    if value is None:
        return None
    whole = integral(value)
    if whole is None or type(value) is Decimal:
        wrong_type(event, name, wrong)
        return None
    return str(whole)


def choice(event: Event, name: str, allowed: Container[str], wrong: list[Row]) -> str | None:
    """The listed word in a payload field; an unlisted one is null and a finding."""
    value = event.payload.get(name)
    if value is None:
        return None
    if type(value) is str and value in allowed:
        return value
    wrong_type(event, name, wrong)
    return None


def flag(event: Event, name: str, wrong: list[Row]) -> bool | None:
    """The truth value in a payload field."""
    value = event.payload.get(name)
    if value is None or type(value) is bool:
        return value
    wrong_type(event, name, wrong)
    return None


def listed(event: Event, name: str, wrong: list[Row]) -> list[Any] | None:
    """The array in a payload field."""
    value = event.payload.get(name)
    if value is None or type(value) is list:
        return value
    wrong_type(event, name, wrong)
    return None


def mapping(event: Event, name: str, wrong: list[Row]) -> dict[str, Any] | None:
    """The object in a payload field."""
    value = event.payload.get(name)
    if value is None or type(value) is dict:
        return value
    wrong_type(event, name, wrong)
    return None


def status_code(event: Event, wrong: list[Row]) -> int | None:
    """The status of a protocol. One that no column holds (32 bits) is no status."""
    value = event.payload.get("status_code")
    if value is None:
        return None
    whole = integral(value)
    if whole is None or not -(2**31) <= whole < 2**31:
        wrong_type(event, "status_code", wrong)
        return None
    return whole


def decimal_text(event: Event, name: str, wrong: list[Row]) -> str | None:
    """A number as plain decimal text (``numeric`` columns), exactly as its shortest spelling says."""
    value = event.payload.get(name)
    if value is None:
        return None
    found = decimal_of(value)
    if found is None:
        wrong_type(event, name, wrong)
    return found


def decimal_of(value: Any) -> str | None:
    """A number as plain decimal text; None for anything else."""
    if type(value) is int:
        return str(value)
    return format(Decimal(repr(value)), "f") if type(value) is float else None
