"""Owns how one JSON document is read without being held: what stands at its top, and one by one the records of the lists there.

A short document is parsed whole. A longer one is walked over, to know that all of it can be read, since half a document is none, and read again each time
that somebody asks for its records. The walk finds where a record ends; what it says, the parsers of a whole document decide, so that both ways give the
same values. Decision 23 says why no streaming parser does this.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple, Protocol

import orjson

from turnledger.errors import TurnledgerError
from turnledger.harness.reading import Condition, Quarantined, quarantine

WHOLE = 4 * 1024 * 1024
"""Bytes up to which a document is parsed whole: some 20 MiB of memory, in half the time of two walks."""
HELD_LIMIT = 512 * 1024 * 1024
"""Greatest record of a document, or rest of it beside its lists, in bytes: these are held, at some five times their size."""

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\n\r"
_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BRACKET = re.compile(rb'[^"\[\]{}]*+(?:' + _TEXT + rb'[^"\[\]{}]*+)*+[\[\]{}]', re.DOTALL)
_BREAK = re.compile(rb'[^",\[\]{}]*+(?:' + _TEXT + rb'[^",\[\]{}]*+)*+[,\[\]{}]', re.DOTALL)
"""Up to the next bracket, or bracket or comma, that stands in no text."""
_END = -1
"""What is found behind the last byte."""
_COMMA, _LIST, _OBJECT = b",[{"
_OWN = -1
"""Stands for a list where a piece is of none."""

Chunks = Callable[[Condition], Iterator[bytes]]
"""The plain bytes of a file, from its beginning at each call."""
Parse = Callable[[bytes], Any]


class Document(Protocol):
    """One JSON value. The lists that it has at its top, or that it is, stand apart: they are what grows."""

    @property
    def top(self) -> Any:
        """The value, with those lists empty."""

    def items(self, name: str | None = None) -> Iterator[Any]:
        """The items of the list of that name, or of a document that is a list; of anything else none. Anew at each call."""

    def whole(self) -> Any:
        """The value with its lists, held."""


class Held:
    """A document that is there as a whole."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self.top = _without_items(value)

    def items(self, name: str | None = None) -> Iterator[Any]:
        value = self._value
        if name is not None:
            value = value.get(name) if isinstance(value, dict) else None
        return iter(value if isinstance(value, list) else ())

    def whole(self) -> Any:
        return self._value


class Walked:
    """A document of which one record is held. ``numbered``: its value, of each list only its number; ``ends``: of each list where its items end."""

    def __init__(
        self, name: str, chunks: Chunks, parse: Parse, numbered: Any, ends: Mapping[int, array[int]]
    ) -> None:
        self._name, self._chunks, self._parse = name, chunks, parse
        members = numbered.items() if isinstance(numbered, dict) else [(None, numbered)]
        self._lists: dict[str | None, array[int]] = {
            key: ends.get(value[0], array("q")) for key, value in members if isinstance(value, list)
        }
        self.top = _without_items(numbered)

    def items(self, name: str | None = None) -> Iterator[Any]:
        ends = self._lists.get(name)
        if ends is None:
            return
        try:
            for raw in _between(_without_bom(self._chunks(Condition())), ends):
                yield self._parse(raw)
        except (ValueError, RecursionError):
            raise TurnledgerError(
                f"{self._name} was written while it was read: read it again when its harness rests"
            ) from None

    def whole(self) -> Any:
        if isinstance(self.top, list):
            return list(self.items())
        if isinstance(self.top, dict):
            return {
                key: list(self.items(key)) if key in self._lists else value for key, value in self.top.items()
            }
        return self.top


def _without_items(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: [] if isinstance(each, list) else each for key, each in value.items()}
    return [] if isinstance(value, list) else value


def read_document(name: str, chunks: Chunks, condition: Condition) -> Document | None:
    """The JSON value of a file; None where it is ``null``, or holds none, which ``condition`` then says. ``name``: of the file, for a sentence."""
    raw = _short(chunks, condition)
    if raw is not None:
        value = parsed(raw, condition)
        return None if value is None else Held(value)
    lenient, reason = _Lenient(), ""
    parse: Parse
    for parse in (orjson.loads, lenient):
        seen = Condition()
        try:
            numbered, ends = _validated(chunks(seen), parse)
        except (ValueError, RecursionError, _TooLarge) as error:
            reason = _reason(error)
            continue
        _take(seen, condition)
        condition.invalid_utf8 += lenient.replaced
        return None if numbered is None else Walked(name, chunks, parse, numbered, ends)
    _broken(chunks, condition, reason)
    return None


def parsed(raw: bytes, condition: Condition) -> Any:
    """The value of a whole document; None where it is none, which ``condition`` then says."""
    raw = raw.removeprefix(_BOM)
    lenient, reason = _Lenient(), ""
    parse: Parse
    for parse in (orjson.loads, lenient):
        try:
            value = parse(raw)
        except (ValueError, RecursionError) as error:
            reason = _reason(error)
            continue
        condition.invalid_utf8 += lenient.replaced
        return value
    condition.invalid_utf8 += lenient.replaced
    condition.quarantined.append(quarantine(0, 0, raw, reason))
    return None


class _Lenient:
    """Takes what the strict parser does not: bytes that are no UTF-8 (replaced), NaN (unknown), a lone surrogate."""

    def __init__(self) -> None:
        self.replaced = False

    def __call__(self, raw: bytes) -> Any:
        try:
            said = raw.decode("utf-8")
        except UnicodeDecodeError:
            self.replaced = True
            said = raw.decode("utf-8", errors="replace")
        return json.loads(said, parse_constant=lambda _literal: None)


class _TooLarge(Exception):
    """A piece that is longer than what is held."""


def _reason(error: Exception) -> str:
    if isinstance(error, _TooLarge):
        return "too_large"
    return "too_deep" if isinstance(error, RecursionError) else "json"


def _take(seen: Condition, condition: Condition) -> None:
    condition.compression = seen.compression
    condition.quarantined += seen.quarantined


def _short(chunks: Chunks, condition: Condition) -> bytes | None:
    """All of a file that is short; None of a longer one."""
    seen, parts, size = Condition(), [], 0
    for chunk in chunks(seen):
        parts.append(chunk)
        size += len(chunk)
        if size > WHOLE:
            return None
    _take(seen, condition)
    return b"".join(parts)


def _broken(chunks: Chunks, condition: Condition, reason: str) -> None:
    """Count a document that cannot be read, with its hash."""
    seen, whole, size, is_text = Condition(), hashlib.sha256(), 0, True
    decoder = codecs.getincrementaldecoder("utf-8")()
    for chunk in chain(_without_bom(chunks(seen)), (b"",)):
        whole.update(chunk)
        size += len(chunk)
        try:
            is_text = is_text and decoder.decode(chunk, final=not chunk) is not None
        except UnicodeDecodeError:
            is_text = False
    _take(seen, condition)
    condition.invalid_utf8 += not is_text
    condition.quarantined.append(Quarantined(0, 0, size, whole.hexdigest(), reason))


def _validated(chunks: Iterator[bytes], parse: Parse) -> tuple[Any, dict[int, array[int]]]:
    """The value with numbers for its lists, once each piece was parsed: then the whole is JSON. Of lists with items their place, and where items end."""
    own: list[bytes] = []
    ends: dict[int, array[int]] = {}
    for piece in _pieces(chunks):
        if piece.list == _OWN:
            own.append(piece.raw)
            continue
        parse(piece.raw)
        if piece.list not in ends:
            ends[piece.list] = array("q", [piece.end - len(piece.raw)])
        ends[piece.list].append(piece.end)
    return parse(b"".join(own)), ends


def _between(chunks: Iterator[bytes], ends: array[int]) -> Iterator[bytes]:
    """The items of a list: from its place to the first end, from behind the comma there to the next."""
    held, base = b"", 0
    for at in range(1, len(ends)):
        start, end = ends[at - 1] + (at > 1), ends[at]
        parts = []
        while base + len(held) < end:
            parts.append(held[max(start - base, 0) :])
            base += len(held)
            following = next(chunks, None)
            if following is None:
                raise ValueError("it ends before its list")
            held = following
        yield b"".join([*parts, held[max(start - base, 0) : end - base]])


class _Piece(NamedTuple):
    list: int
    """The number of the list whose item it is, in the order of the file; or of none."""
    raw: bytes
    end: int = 0
    """Where an item ends."""


def _pieces(chunks: Iterator[bytes]) -> Iterator[_Piece]:
    """The pieces of a document: the items of the lists at its top, and what stands beside them, where each list has its own number as its only item.

    What is no JSON is cut somewhere; a piece of it is none either.
    """
    walk = _Walk(_without_bom(chunks))
    number, found = 0, walk.first()
    is_list, begun = found == _LIST, False
    while found != _END:
        if found == _LIST:
            yield _Piece(_OWN, walk.take() + b"%d" % number)
            yield from _items(walk, number)
            if is_list:
                break
            number += 1
        elif found == _OBJECT and begun:
            walk.close()
        elif found != _OBJECT:
            break
        begun, found = True, walk.to(_BRACKET)
    yield _Piece(_OWN, walk.take())
    for rest in walk.rest():
        if rest.strip(_SPACE):
            yield _Piece(_OWN, rest)
            return  # another value behind the first: no document, whatever comes


def _items(walk: _Walk, number: int) -> Iterator[_Piece]:
    """The items of the list whose bracket was passed; then the walk stands behind its last bracket, which is not taken."""
    several = False
    walk.take()
    while True:
        found = walk.to(_BREAK)
        if found in (_LIST, _OBJECT):
            walk.close()
            continue
        raw = walk.take(but=found != _END)
        if several or found == _COMMA or raw.strip(_SPACE):
            yield _Piece(number, raw, walk.start)
        if found != _COMMA:
            return
        several = True
        walk.take()


class _Walk:
    """A place in the bytes of a document, and what of them is held: from the beginning of the piece at hand."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._held = b""
        self._base = self._start = self._at = 0

    @property
    def start(self) -> int:
        """Where in the document the piece at hand begins."""
        return self._base + self._start

    def first(self) -> int:
        """Go behind the first byte that is no space, and say which it is; to the end where that begins no list and no object."""
        while not (begun := self._held.lstrip(_SPACE)) and self._more():
            pass
        if begun[:1] not in (b"[", b"{"):
            while self._more():
                pass
            self._at = len(self._held)
            return _END
        self._at = len(self._held) - len(begun) + 1
        return begun[0]

    def to(self, pattern: re.Pattern[bytes]) -> int:
        """Go behind the next byte of a kind, and say which it is."""
        while (found := pattern.match(self._held, self._at)) is None:
            if not self._more():
                self._at = len(self._held)
                return _END
        self._at = found.end()
        return self._held[self._at - 1]

    def close(self) -> None:
        """Go behind the bracket that closes the one just passed."""
        depth, held, at = 1, self._held, self._at
        while depth:
            found = _BRACKET.match(held, at)
            if found is None:
                self._at = at
                if not self._more():
                    self._at = len(self._held)
                    return
                held, at = self._held, self._at
                continue
            at = found.end()
            depth += 1 if held[at - 1] in b"[{" else -1
        self._at = at

    def take(self, *, but: bool = False) -> bytes:
        """The piece up to here, or up to the byte before, at which the next one begins."""
        end = self._at - but
        taken = self._held[self._start : end]
        self._start = end
        return taken

    def rest(self) -> Iterator[bytes]:
        """What comes behind this place."""
        yield self._held[self._at :]
        yield from self._chunks

    def _more(self) -> bool:
        """Hold as much again, so that a long text is looked through twice at most; False at the end."""
        parts = [self._held[self._start :]]
        wanted = len(parts[0])
        if wanted > HELD_LIMIT:
            raise _TooLarge
        self._at -= self._start
        self._base += self._start
        self._start = 0
        for chunk in self._chunks:
            parts.append(chunk)
            wanted -= len(chunk)
            if wanted <= 0:
                break
        self._held = b"".join(parts)
        return len(parts) > 1


def _without_bom(chunks: Iterator[bytes]) -> Iterator[bytes]:
    begun = b""
    for chunk in chunks:
        begun += chunk
        if len(begun) >= len(_BOM):
            break
    yield begun.removeprefix(_BOM)
    yield from chunks
