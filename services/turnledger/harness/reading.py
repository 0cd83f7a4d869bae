"""Owns how bytes of a harness file become records: lines, compression, broken input. It knows no harness and never stops at one bad line.

Bytes are split on 0x0A alone (a text splitter would also break on U+2028 inside a string). A record's number counts every record of the
file, unreadable ones too, so that a longer copy of a file gives the same numbers to what both hold.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import orjson
import zstandard

from turnledger.contract.shapes import matcher, plain
from turnledger.errors import TurnledgerError

LINE_LIMIT = 64 * 1024 * 1024
"""Greatest line in bytes. Lines of 15 MB are known in real files; below 64 MiB nothing is refused."""
PLAIN_LIMIT = 8 * 1024 * 1024 * 1024
"""Greatest size of a decompressed file in bytes: 1 MB of zstd can unpack to more than a disk holds."""
CHUNK = 1024 * 1024

_GZIP, _ZSTD, _BOM = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xef\xbb\xbf"
_SPACE = re.compile(r"[ \t\n\r]*")


class Record(NamedTuple):
    """One JSON object of a file. ``number`` counts from 0, ``offset`` is that of its line in the plain file."""

    number: int
    offset: int
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Quarantined:
    """What could not be read: where it is, how much, its hash, and why.

    ``reason``: ``json`` ``not_an_object`` ``too_deep`` ``too_long`` ``unterminated`` ``compression`` ``too_large`` ``damaged_table``.
    """

    number: int
    offset: int
    size: int
    sha256: str
    reason: str


@dataclass(slots=True)
class Condition:
    """What was odd about a file that could be read all the same. Counts of lines."""

    compression: str | None = None
    records: int = 0
    """Numbers that were given; set at the end of a reading."""
    invalid_utf8: int = 0
    glued: int = 0
    unterminated: bool = False
    quarantined: list[Quarantined] = field(default_factory=list)


def records_of(path: Path, condition: Condition, *, plain_limit: int = PLAIN_LIMIT) -> Iterator[Record]:
    """The records of one closed file. What cannot be read goes to ``condition``; a file that cannot be opened is an error."""
    try:
        with path.open("rb") as file:
            yield from read_records(file, condition, plain_limit=plain_limit)
    except OSError as error:
        reason = error.strerror or str(error)
        raise TurnledgerError(
            f"{path} cannot be read ({reason}): check the path and its permissions"
        ) from error


def read_records(
    file: IO[bytes],
    condition: Condition,
    *,
    line_limit: int = LINE_LIMIT,
    plain_limit: int = PLAIN_LIMIT,
    having: tuple[bytes, ...] = (),
    behind: tuple[int, int] = (0, 0),
) -> Iterator[Record]:
    """The records of an open binary file that can seek, in file order.

    ``behind``: number and offset of the first record, where ``file`` holds what stands behind a place of a longer one. ``having``: only lines
    that hold one of these words are looked into, the others are counted alone; what is then said of the file's condition is about those lines.
    """
    number, base = behind
    looked_into = _looked_into(having) if having else None
    for offset, line, whole in _lines(plain_bytes(file, condition, plain_limit), line_limit, base):
        if isinstance(line, Quarantined):
            condition.quarantined.append(Quarantined(number, offset, line.size, line.sha256, line.reason))
            number += 1
            continue
        if (
            looked_into is not None
            and line[:1] == b"{"
            and line[-1:] == b"}"
            and not looked_into(plain(line))
        ):
            number += 1
            continue
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            value = None
        if type(value) is dict:  # as all lines but a few are
            if not whole:
                condition.unterminated = True
            yield Record(number, offset, value)
            number += 1
            continue
        if not line.strip(b" \t\r"):
            continue
        if not whole:
            condition.unterminated = True
        found, bad = _objects(line, condition)
        if len(found) + (bad is not None) > 1:
            condition.glued += 1
        for value in found:
            if isinstance(value, dict):
                yield Record(number, offset, value)
            else:
                condition.quarantined.append(quarantine(number, offset, line, "not_an_object"))
            number += 1
        if bad is not None:
            reason = "unterminated" if not whole and bad == "json" else bad
            condition.quarantined.append(quarantine(number, offset, line, reason))
            number += 1
    for lost in [each for each in condition.quarantined if each.number < 0]:
        condition.quarantined.remove(lost)
        condition.quarantined.append(Quarantined(number, lost.offset, lost.size, lost.sha256, lost.reason))
    condition.records = number


def _looked_into(having: tuple[bytes, ...]) -> Callable[[str], bool]:
    """Whether a line holds one of the words, or may hold several objects glued together: all in one search."""
    words = "|".join(re.escape(word.decode("ascii")) for word in having)
    return matcher(rf"(?-u:{words}|\}} ?\{{)")


def quarantine(number: int, offset: int, raw: bytes, reason: str) -> Quarantined:
    """What could not be read, with its hash."""
    return Quarantined(number, offset, len(raw), hashlib.sha256(raw).hexdigest(), reason)


def plain_bytes(file: IO[bytes], condition: Condition, limit: int = PLAIN_LIMIT) -> Iterator[bytes]:
    """The plain bytes in chunks; compressed input is recognised by its magic, not by its name."""
    head = file.read(4)
    file.seek(0)
    source: IO[bytes] = file
    if head.startswith(_GZIP):
        condition.compression, source = "gzip", cast(IO[bytes], gzip.GzipFile(fileobj=file, mode="rb"))
    elif head.startswith(_ZSTD):
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False)
        condition.compression, source = "zstd", cast(IO[bytes], reader)
    size = 0
    try:
        while chunk := source.read(CHUNK):
            size += len(chunk)
            if condition.compression is not None and size > limit:
                condition.quarantined.append(quarantine(-1, limit, b"", "too_large"))
                return
            yield chunk
    except (zlib.error, EOFError, gzip.BadGzipFile, zstandard.ZstdError):
        condition.quarantined.append(quarantine(-1, size, b"", "compression"))


def _lines(
    chunks: Iterator[bytes], limit: int, base: int = 0
) -> Iterator[tuple[int, bytes | Quarantined, bool]]:
    """(offset, line without its end, whether it had one); a line above the limit is passed over without being held."""
    held: list[bytes] = []
    offset, size = base, 0
    passed: Any = None
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            if size or passed is not None:  # it began in an earlier chunk
                size += len(piece)
                held, passed = _held(held, piece, size, limit, passed)
                yield _line(offset, b"".join(held), size, passed, True)
                held, passed, length = [], None, size
                size = 0
            else:
                length = len(piece)
                if length > limit or not offset:
                    over = hashlib.sha256(piece) if length > limit else None
                    yield _line(offset, piece, length, over, True)
                else:  # as all lines but a few are
                    yield offset, piece[:-1] if piece[-1:] == b"\r" else piece, True
            offset += length + 1
        size += len(rest)
        held, passed = _held(held, rest, size, limit, passed)
    if size:
        yield _line(offset, b"".join(held), size, passed, False)


def _held(held: list[bytes], piece: bytes, size: int, limit: int, passed: Any) -> tuple[list[bytes], Any]:
    """What is kept of a line that goes on: its pieces, or above the limit only their hash."""
    if passed is None and size <= limit:
        held.append(piece)
        return held, None
    if passed is None:
        passed = hashlib.sha256(b"".join(held))
    passed.update(piece)
    return [], passed


def _line(
    offset: int, line: bytes, size: int, passed: Any, whole: bool
) -> tuple[int, bytes | Quarantined, bool]:
    if passed is not None:
        return offset, Quarantined(0, offset, size, passed.hexdigest(), "too_long"), whole
    if offset == 0 and line.startswith(_BOM):
        line = line[len(_BOM) :]
    return offset, line[:-1] if line.endswith(b"\r") else line, whole


def _objects(line: bytes, condition: Condition) -> tuple[list[Any], str | None]:
    """The JSON values of one line, and why its rest is none: several objects glued together are several records."""
    try:
        return [orjson.loads(line)], None
    except orjson.JSONDecodeError:
        pass  # torn, glued, not UTF-8, a lone surrogate, NaN: the slow way tells them apart
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        condition.invalid_utf8 += 1
        text = line.decode("utf-8", errors="replace")
    decoder = json.JSONDecoder(
        parse_constant=lambda _literal: None
    )  # NaN is no number: that value is unknown
    values: list[Any] = []
    place = 0
    while place < len(text):
        try:
            value, place = decoder.raw_decode(text, place)
        except RecursionError:
            return values, "too_deep"
        except ValueError:
            return values, "json"
        if values and not (isinstance(value, dict) and isinstance(values[-1], dict)):
            return values, "json"  # `1 2` is garbage, not two records
        values.append(value)
        match = _SPACE.match(text, place)
        place = match.end() if match is not None else place
    return values, None
