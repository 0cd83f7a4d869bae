"""A document that is walked over says what one that is held says: its top, its records, what is odd about it, and the same hash of what cannot be read."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench import adapters
from tests.fixtures.harness import goldens
from tests.fuzz.mutations import mutate
from turnledger.errors import TurnledgerError
from turnledger.harness import documents, reading
from turnledger.harness.documents import read_document
from turnledger.harness.importer import FileReading, told
from turnledger.harness.reading import Condition
from turnledger.harness.sources import Source

DOCUMENTS = [name for name in goldens.FILES if name.endswith((".json", ".traj"))]
PIECES = (
    b"[", b"]", b"{", b"}", b",", b":", b'"a"', b'"', b"\\", b" ", b"\n", b"1", b"null", b"\xff", b'"\\u0061"', b"NaN", b'"x\\"]"',
    b"\xef\xbb\xbf", b"1e999", b"1" * 30, b'"\\ud800"', b'{"a":[', b'{"a":1}', b"[[", b"]}",
)  # fmt: skip


def shown(raw: bytes, chunk: int, whole: int) -> tuple[Any, ...]:
    """All that can be asked of a document; texts, since NaN differs from itself and 1 does not from 1.0."""

    def chunks(_: Condition) -> Iterator[bytes]:
        return (raw[at : at + chunk] for at in range(0, len(raw), chunk))

    condition = Condition()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "WHOLE", whole)
        document = read_document("x", chunks, condition)
    if document is None:
        return None, repr(condition)
    names = [None, *(document.top if isinstance(document.top, dict) else ())]
    lists = [repr(list(document.items(name))) for name in names]
    return repr(document.top), lists, repr(document.whole()), repr(condition)


def same(raw: bytes, chunk: int) -> None:
    assert shown(raw, chunk, -1) == shown(raw, chunk, len(raw))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(DOCUMENTS), st.integers(0, 10**6), st.sampled_from((3, 17, 500)))
def test_a_damaged_fixture_is_the_same_either_way(name: str, seed: int, chunk: int) -> None:
    same(mutate(name, random.Random(seed)).content, chunk)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join), st.sampled_from((1, 2, 7)))
def test_whatever_the_bytes_are_they_are_the_same_either_way(raw: bytes, chunk: int) -> None:
    same(raw, chunk)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"m":[1,2],"m":[3]}',
        b'{"m":[1,2],"m":4}',
        b'{"m":[],"\\u006d":[{"a":[1]}]} \n',
        b'[{"a":"]"} , [1,[2]], "x,y" ]',
        b'\xef\xbb\xbf[1,"\\ud800",NaN,"\xff"]',
        b'{"n":[12345678901234567890123],"x":NaN}',
        b"",
        b" ",
        b"7",
        b'"[1]"',
    ],
)
def test_lists_that_stand_twice_odd_values_and_no_lists_at_all(raw: bytes) -> None:
    for chunk in (1, 2, 3, 100):
        same(raw, chunk)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_reader_tells_the_same_of_a_document_that_it_does_not_hold(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = goldens.read(name)
    monkeypatch.setattr(documents, "WHOLE", -1)
    walked = goldens.read(name)
    assert (walked.events, walked.row()) == (held.events, held.row())


def test_a_long_document_on_one_line_is_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gemini_cli/rewrite-3.json", "opencode/export.json", "swe_agent/run.traj"):
        flat = orjson.loads(goldens.content(name))
        flat["filler"] = "x" * 70_000
        monkeypatch.setattr(documents, "WHOLE", 50_000)
        found = goldens.read(name, orjson.dumps(flat))
        assert (found.container, found.events) == ("document", goldens.read(name).events)


def test_a_document_that_is_written_while_it_is_read_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "WHOLE", -1)
    content = [b'{"a":[1,2,3]}']
    document = read_document("x.json", lambda _: iter(content), Condition())
    assert document is not None
    for later in (b'{"a":[1,2', b'{"a":', b"[]", b'{"a":[1,}'):
        content[:] = [later]
        with pytest.raises(TurnledgerError, match=r"x\.json was written while it was read"):
            list(document.items("a"))


@pytest.mark.parametrize("harness", adapters.DOCUMENTS)
def test_memory_does_not_grow_with_a_document(
    harness: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CHUNK", 16 * 1024)

    def peak(size: int, whole: int) -> int:
        monkeypatch.setattr(documents, "WHOLE", whole)
        path = adapters.written(harness, tmp_path, size)
        tracemalloc.start()
        try:
            found = FileReading(path, None)
            assert sum(1 for _ in told(Source(path), found)) > size // 10_000 and found.harness == harness
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(100_000, 0)  # what is made once
    small, large, held = peak(200_000, 0), peak(1_200_000, 0), peak(1_200_000, 10**9)
    assert large - small < 100_000 < 1_200_000 < held - small
