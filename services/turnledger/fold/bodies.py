"""Owns how the parts of a body become one again (contract 6, ``body.recorded``). The SQL view ``event_bodies`` says the same.

Parts belong together when they name the same event, source, direction and hash. Of several that say the same part the longest counts, then the
first by its position's names: both are the same for every order of arrival.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from turnledger.fold import columns
from turnledger.fold.model import Row
from turnledger.fold.points import in_one_part, judged, was_cut

BODY: tuple[columns.Column, ...] = (
    ("producer", "text"),
    ("epoch", "int8"),
    ("stream", "text"),
    ("seq", "int8"),
    ("receipt_key", "text"),
    *columns.POINT_COMMON,
    *columns.POINTS["event_bodies"][1],
    ("parts_present", "int8"),
    ("complete", "bool"),
    *columns.BODY_PART,
    ("data", "text"),
)
"""Columns of a whole body. It stands at the place of its first part; ``part`` is the number of that."""


def put_together(rows: Iterable[Row]) -> list[Row]:
    """Bodies from rows of parts, in the order of their first parts' rows.

    ``truncated``: it was cut, by what it says or by what is there. ``data``: base64 of the bytes, where every part is there.
    """
    bodies: dict[Any, dict[int, Row]] = {}
    places: dict[int, int] = {}
    for place, row in enumerate(rows):
        places[id(row)] = place
        parts = bodies.setdefault(_body(row), {})
        number = row["part"] or 0
        known = parts.get(number)
        if known is None or _rank(row) < _rank(known):
            parts[number] = row
    whole = [[parts[number] for number in sorted(parts)] for parts in bodies.values()]
    whole.sort(key=lambda parts: places[id(parts[0])])
    return [_whole(parts) for parts in whole]


def _body(row: Row) -> tuple[Any, ...]:
    named = (row["for_event_id"], row["source"], row["direction"], row["sha256"])
    if row["for_event_id"] is not None:
        return named
    return *named, *(row[name] for name in _POSITION)


_POSITION = ("producer", "epoch", "stream", "seq", "receipt_key")


def _rank(row: Row) -> tuple[Any, ...]:
    stored = row["stored_bytes"]
    return (
        -1 if stored is None else -stored - 2,
        row["producer"].encode(),
        row["epoch"],
        row["stream"].encode(),
        (row["seq"] is None, row["seq"] or 0),
        (row["receipt_key"] or "").encode(),
    )


def _whole(parts: list[Row]) -> Row:
    first = parts[0]
    numbers = [part["part"] or 0 for part in parts]
    stored = [part["stored_bytes"] for part in parts]
    complete = (
        len(parts) == (first["parts"] or 1)
        and numbers[-1] - numbers[0] + 1 == len(parts)
        and None not in stored
    )
    there = sum(size for size in stored if size is not None)
    body: Row = {
        **first,
        "parts_present": len(parts),
        "complete": complete,
        "stored_bytes": there,
        "verified": None,
        "data": None,
    }
    if not complete:
        return body
    if len(parts) == 1:
        body["data"] = first["data"]
        body["verified"] = first["verified"]
    else:
        data = b"".join(b64decode(part["data"]) for part in parts)
        body["data"] = b64encode(data).decode()
    body["truncated"] = was_cut(there, first)
    if first["sha256"] is not None and not in_one_part(first):
        body["verified"] = judged(sha256(b64decode(body["data"])).hexdigest(), there, first)
    return body
