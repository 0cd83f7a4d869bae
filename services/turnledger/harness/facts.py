"""Owns the making of an envelope out of what a harness file says: tolerant field readers, the cut of long texts, identity by content.

What is cut is redacted first (contract 14), so that no half of a secret is left, which nobody would know for one; what stays whole is redacted as an event.

Readers answer None for a value of the wrong type: unknown, never zero and never a guess (contract 8).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from turnledger.contract.redact import NOTE, Redactor
from turnledger.contract.shapes import hide
from turnledger.contract.times import civil_from_days, instant

Envelope = dict[str, Any]
"""One event as it goes to Kafka (contract 2), defaults left out."""

TEXT_LIMIT = 64 * 1024
"""Bytes of text that stay in an event (contract 6)."""
PREVIEW_LIMIT = 4096
"""Bytes of a text of which the beginning is enough: a summary, a command line, the output of a command."""
PLAIN_TEXT, JSON_TEXT = "text/plain; charset=utf-8", "application/json"
"""What a long text is, and a long value of any other kind."""
ID_LIMIT = 512
SESSION_LIMIT = 256
DEPTH_LIMIT = 64
"""Levels of a value taken over from a file; the contract refuses records deeper than 200."""
GREATEST = 2**63 - 1
PLAIN_TIME = re.compile(
    r"[12]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?Z",
    re.ASCII,
).fullmatch
"""Times as most harnesses write them, on a day that every month has: they are times, whatever else there is to know of calendars."""
ZONELESS = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?", re.ASCII)
UNITS = ((10**11, 1_000_000), (10**14, 1_000), (10**17, 1))
"""(below, µs of one unit): a count of seconds, ms or µs since 1970, told apart by its size (all are unambiguous from 1973 to 5138)."""


@dataclass(slots=True)
class Notes:
    """What an adapter met in one file beside its events."""

    untold: Counter[str] = field(default_factory=Counter)
    """Records that are known and become no event, by type."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Records of types that the adapter does not know, by type; each is kept as an event."""
    traits: Counter[str] = field(default_factory=Counter)
    """Everything else worth saying, by name: replayed history, records without a session, unresolved turns."""


def clean(text: str) -> str:
    """The text without what no record may carry (contract 15): NUL and lone surrogates become U+FFFD."""
    if "\x00" in text:
        text = text.replace("\x00", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", errors="replace")
    return text


def text(value: Any) -> str | None:
    """A non-empty text."""
    return clean(value) if isinstance(value, str) and value else None


def identifier(value: Any, limit: int = ID_LIMIT) -> str | None:
    """A text that fits a correlation field; a longer one is no identifier of any known format."""
    if type(value) is str and value.isascii() and "\x00" not in value:  # as all but a few are
        return value if 0 < len(value) <= limit else None
    if not isinstance(value, str) or not value:
        return None
    name = clean(value)
    return name if len(name.encode()) <= limit else None


def count(value: Any) -> int | None:
    """A count as the contract reads integers: at least 0, within int64, ``12.0`` is 12."""
    if isinstance(value, float) and value.is_integer() and value < 2**53:
        value = int(value)
    return value if type(value) is int and 0 <= value <= GREATEST else None


def whole(value: Any) -> int | None:
    """A duration or delay in ms, rounded: harnesses write fractions where they computed them."""
    if isinstance(value, float) and 0 <= value < 2**53:
        return round(value)
    return count(value)


def moment(value: Any) -> str | None:
    """An RFC 3339 time, as the source wrote it."""
    if type(value) is str and PLAIN_TIME(value) is not None:
        return value
    return value if isinstance(value, str) and value and instant(value) is not None else None


def moment_of(value: Any, notes: Notes) -> str | None:
    """A time however harnesses write it: RFC 3339, without a zone (read as UTC, and noted), or a count of s, ms, µs or ns since 1970.

    Zero and negative counts are placeholders: no time.
    """
    if isinstance(value, str):
        if PLAIN_TIME(value) is not None:
            return value
        if ZONELESS.fullmatch(value):
            value = value.replace(" ", "T") + "Z"
            if instant(value) is None:
                return None
            notes.traits["time_without_zone"] += 1
            return str(value)
        return moment(value)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 10**8 <= value < 10**20:
        return None
    for below, unit in UNITS:
        if value < below:
            return instant_text(round(value * unit))
    return instant_text(round(value / 1_000))


def instant_text(micros: int) -> str | None:
    """RFC 3339 of µs since 1970 UTC; None outside the years 1 to 9999."""
    days, rest = divmod(micros, 86_400_000_000)
    year, month, day = civil_from_days(days)
    if not 1 <= year <= 9999:
        return None
    seconds, fraction = divmod(rest, 1_000_000)
    tail = f".{fraction:06d}".rstrip("0") if fraction else ""
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{year:04d}-{month:02d}-{day:02d}T{clock}{tail}Z"


def money(value: Any) -> int | float | None:
    """A cost in USD above zero; harnesses write 0 where they do not know it or where a subscription pays."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if 0 < value < 10**9 else None


def identified(*parts: Any) -> str | None:
    """One identifier out of several, or None where one of them is unknown or the whole is too long."""
    if any(part is None for part in parts):
        return None
    return identifier(":".join(str(part) for part in parts))


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def named(*choices: str | None, limit: int = SESSION_LIMIT) -> str:
    """The first name that is one, safe and cut: what the caller says, what a folder or a file is called."""
    return cut(clean(next(filter(None, choices), "?")), limit)[0]


class Cut(str):
    """The beginning of a text that does not stay in its event, with all of it: what reads the file moves it behind the event (contract 6)."""

    __slots__ = ("content_type", "whole")

    whole: str
    content_type: str

    @classmethod
    def of(cls, short: str, whole: str, content_type: str) -> Cut:
        """``short`` is what the event holds."""
        made = cls(short)
        made.whole, made.content_type = whole, content_type
        return made


def cut(value: str, limit: int = TEXT_LIMIT) -> tuple[str, int | None]:
    """The text cut at a character boundary, and its full size in bytes where it was cut. Secrets by shape are references in one that is too long."""
    if not _too_long(value, limit):
        return value, None
    raw = hide(value).encode()
    if len(raw) <= limit:
        return raw.decode(), None
    return raw[:limit].decode("utf-8", errors="ignore"), len(raw)


def _too_long(value: str, limit: int) -> bool:
    return len(value) > limit or (not value.isascii() and len(value.encode()) > limit)


def put_text(payload: dict[str, Any], name: str, value: str | None, limit: int = TEXT_LIMIT) -> None:
    """Set a text field; a cut one says its full size and ``truncated`` (contract 6), and what was redacted in all of it."""
    if value is None:
        return
    if _too_long(value, limit):
        value = _redacted(payload, name, value)
    _put_cut(payload, name, value, limit)


def _put_cut(
    payload: dict[str, Any], name: str, value: str, limit: int = TEXT_LIMIT, content_type: str = PLAIN_TEXT
) -> None:
    short, size = cut(value, limit)
    payload[name] = short
    if size is not None:
        payload[f"{name}_bytes"] = size
        payload["truncated"] = True
        if size > TEXT_LIMIT:
            payload[name] = Cut.of(short, hide(value), content_type)


def _redacted(payload: dict[str, Any], name: str, value: Any) -> Any:
    """What stands for a value that is to be cut; ``payload`` notes it."""
    said = Redactor().clean({"payload": {name: value}})["payload"]
    if NOTE in said:
        payload[NOTE] = [*payload.get(NOTE, ()), *said[NOTE]]
    return said[name]


def taken_over(value: Any, depth: int = 0) -> Any:
    """A JSON value that is safe inside a record: clean texts, numbers in range, no endless nesting."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, bytes):  # a cell of a database
        return clean(value.decode("utf-8", errors="replace"))
    if isinstance(value, dict):
        if depth >= DEPTH_LIMIT:
            return "…"
        return {clean(str(name)): taken_over(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list):
        return "…" if depth >= DEPTH_LIMIT else [taken_over(each, depth + 1) for each in value]
    if type(value) is int and not -GREATEST - 1 <= value <= GREATEST:
        return str(value)
    return value


def put_value(payload: dict[str, Any], name: str, value: Any) -> None:
    """Set a field of any JSON type; one above the limit is given as its cut JSON text."""
    if value is None:
        return
    safe = taken_over(value)
    if isinstance(safe, str):
        put_text(payload, name, safe)
        return
    written = orjson.dumps(safe)
    if len(written) <= TEXT_LIMIT:
        payload[name] = safe
    else:
        _put_cut(payload, name, orjson.dumps(_redacted(payload, name, safe)).decode(), content_type=JSON_TEXT)


def listed(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list."""
    return list(each_object(listed(value)))


def each_object(values: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Those of the values that are objects."""
    return (each for each in values if isinstance(each, dict))


def parsed(value: Any) -> Any:
    """What a text holds as JSON, if that is an object or a list; else the value as it is."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        found = orjson.loads(value)
    except (orjson.JSONDecodeError, RecursionError):
        return value
    return found if isinstance(found, (dict, list)) else value


def known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are known."""
    if None in fields.values():
        return {name: value for name, value in fields.items() if value is not None}
    return dict(fields)


def digest(value: Any) -> str:
    """16 hex digits of the SHA-256 of a JSON value with sorted keys."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def joined(blocks: Any, kinds: Iterable[str] = ("text",)) -> str | None:
    """The text of a content that is a text, or a list of blocks of which some are."""
    if isinstance(blocks, str):
        return text(blocks)
    if not isinstance(blocks, list):
        return None
    allowed = tuple(kinds)
    parts = [
        block["text"]
        for block in blocks
        if isinstance(block, dict) and block.get("type") in allowed and isinstance(block.get("text"), str)
    ]
    return text("\n".join(parts)) if parts else None
