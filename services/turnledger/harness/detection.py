"""Owns the question whose file it is: by what only one harness writes, never by the file's name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from turnledger.harness.documents import Held
from turnledger.harness.format import Format
from turnledger.harness.formats import FORMATS
from turnledger.harness.sources import DAMAGE, HEAD, Container, Source, tables_of


def detect(source: Source, formats: Sequence[Format] = FORMATS) -> tuple[Format, Container] | None:
    """The harness and the kind of file; None where it is nobody's."""
    if source.is_database():
        return _of_database(source, formats)
    head = source.head()
    may_be_document = _may_be_document(head)
    found = None
    if may_be_document or (_is_object(head) and len(head) >= HEAD and source.is_one_line()):
        found = _of_document(source, formats)
    found = found or _of_lines(source, formats)
    if found is None and may_be_document:
        found = _of_broken_document(source, head, formats)
    if found is not None:
        return found
    said = head.decode("utf-8", errors="replace")
    for each in formats:
        if each.text is not None and each.is_text(said):
            return each, "text"
    return None


def forced(source: Source, chosen: Format) -> tuple[Format, Container]:
    """How a file is read that somebody says is this harness's."""
    found = detect(source, [chosen])
    if found is not None:
        return found
    if source.is_database():
        return chosen, "database"
    kinds: tuple[Container, ...] = ("lines", "document", "text", "database")
    if _may_be_document(source.head()):
        kinds = ("document", "lines", "text", "database")
    return chosen, next(kind for kind in kinds if chosen.reader(kind) is not None)


def of_records(records: Iterable[Mapping[str, Any]], formats: Sequence[Format] = FORMATS) -> Format | None:
    """The first record that can be only one harness's decides."""
    told = [each for each in formats if each.lines is not None]
    for record in records:
        for each in told:
            if each.recognises(record):
                return each
    return None


def _may_be_document(head: bytes) -> bool:
    """An array, or an object that does not end on its first line."""
    begun = _begun(head)
    if begun.startswith(b"["):
        return True
    if not begun.startswith(b"{"):
        return False
    first, end, _rest = begun.partition(b"\n")
    if not end:
        return False  # one long line: a record like any other
    try:
        orjson.loads(first)
    except orjson.JSONDecodeError:
        return True
    return False


def _begun(head: bytes) -> bytes:
    return head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")


def _is_object(head: bytes) -> bool:
    """Whether it begins with one, on a line that does not end in it."""
    begun = _begun(head)
    return begun.startswith(b"{") and b"\n" not in begun


def _of_database(source: Source, formats: Sequence[Format]) -> tuple[Format, Container] | None:
    try:
        with source.database() as connection:
            tables = tables_of(connection)
    except DAMAGE:
        return None
    for each in formats:
        if each.database is not None and each.is_database(tables):
            return each, "database"
    return None


def _of_document(source: Source, formats: Sequence[Format]) -> tuple[Format, Container] | None:
    document = source.document()
    if document is None:
        return None
    for each in formats:
        if each.document is not None and each.is_document(document):
            return each, "document"
    return None


def _of_broken_document(
    source: Source, head: bytes, formats: Sequence[Format]
) -> tuple[Format, Container] | None:
    """Whose a document was that can no longer be read: so that what is lost is counted and named."""
    if source.document() is not None:
        return None
    for each in formats:
        if each.document is not None and any(all(word in head for word in words) for words in each.hints):
            return each, "document"
    return None


def _of_lines(source: Source, formats: Sequence[Format]) -> tuple[Format, Container] | None:
    lines = [each for each in formats if each.lines is not None]
    documents = [each for each in formats if each.document is not None]
    for record in source.records(whole=True):
        for each in lines:
            if each.recognises(record.value):
                return each, "lines"
        if record.number == 0:
            for each in documents:
                if each.is_document(Held(record.value)):
                    return each, "document"
    return None
