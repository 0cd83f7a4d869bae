"""The fast reader gives the strict reader's answer on every input, generated or hostile (contract 15, design 3)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.property.budget import share
from turnledger.contract.canonical import canonical_record, same_content
from turnledger.contract.event import Event
from turnledger.contract.fast import FastReader
from turnledger.contract.reader import Rejected, read

LIMIT = 4096
FAST = FastReader(limit=LIMIT)


def told(value: Any) -> Any:
    """A value with its types, so that 1, 1.0 and True differ, and -0.0 and 0.0."""
    if isinstance(value, dict):
        return [(key, told(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [told(item) for item in value]
    return (type(value).__name__, repr(value))


def answer(found: Event | Rejected) -> Any:
    if isinstance(found, Rejected):
        return found
    assert type(found) is Event
    return {name: told(getattr(found, name)) for name in found.__struct_fields__}


def same(raw: bytes | None, limit: int = LIMIT) -> Event | Rejected:
    fast = FAST if limit == LIMIT else FastReader(limit=limit)
    strict = read(raw, limit=limit)
    assert answer(fast.read(raw)) == answer(strict)
    return strict


# --- JSON text, spelt in every way that a producer may choose ---

INTEGERS = st.one_of(
    st.integers(-2, 300),
    st.integers(),
    st.sampled_from([2**53, 2**63 - 1, 2**63, -(2**63), 2**64, 10**60, 10**700]),
).map(str)
FLOATS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        [
            "-0",
            "-0.0",
            "1.0",
            "1e3",
            "1E+2",
            "12.50",
            "0e9",
            "1e22",
            "9007199254740993.0",
            "1152921504606846976.0",
            "9223372036854775807.0",
            "1e999",
            "-1e999",
            "1e-999",
            "NaN",
            "Infinity",
            "01",
            "1.",
            ".5",
            "+1",
            "9" * 5000,
        ]
    ),
)
TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["", "live", "eval", "import", "observed", "claimed", "é" * 64, "é" * 65, "x" * 128, "x" * 129]
    ),
    st.sampled_from(["😀" * 128, "😀" * 129, "x" * 257, "x" * 513, "\x7fat", "\\u0000", "a\\b", "\x1b[0m"]),
)


@st.composite
def quoted(draw: st.DrawFn) -> str:
    text = draw(TEXTS)
    spelling = draw(st.integers(0, 9))
    if spelling < 6:
        return json.dumps(text, ensure_ascii=spelling < 3)
    if spelling < 8:
        return '"' + "".join(f"\\u{ord(char):04X}" for char in text if ord(char) < 0x10000) + '"'
    return draw(
        st.sampled_from(
            [r'"\ud800"', r'"\ud83d\ude00"', r'"\ude00"', r'"\u0000"', '"\x01"', r'"\q"', '"\x00"']
        )
    )


TIMES = st.one_of(
    st.datetimes().map(lambda at: at.isoformat() + "Z"),
    st.builds(
        "{:04d}-{:02d}-{:02d}{}{:02d}:{:02d}:{:02d}{}{}".format,
        st.sampled_from([0, 1, 1900, 1969, 2000, 2024, 2026, 9999]),
        st.integers(0, 13),
        st.sampled_from([0, 1, 28, 29, 30, 31, 32]),
        st.sampled_from("TTTt "),
        st.integers(0, 24),
        st.sampled_from([0, 59, 60]),
        st.sampled_from([0, 5, 59, 60, 61]),
        st.sampled_from(["", ".", ".5", ".123", ".123456", ".1234567", ".12345x", ".+12345", ".١٢٣"]),
        st.sampled_from(
            ["Z", "Z", "z", "", "+00:00", "-00:00", "+23:59", "-24:00", "+01:60", "+0100", "Z\n"]
        ),
    ),
).map(json.dumps)
SCALARS = st.one_of(INTEGERS, FLOATS, quoted(), st.sampled_from(["null", "true", "false"]))


def containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]"),
        st.lists(st.tuples(quoted(), inner), max_size=3).map(
            lambda items: "{" + ", ".join(f"{key}:{item}" for key, item in items) + "}"
        ),
    )


VALUES = st.recursive(SCALARS, containers, max_leaves=8)
OBJECTS = containers(VALUES).filter(lambda text: text[0] == "{")

RIGHT: dict[str, st.SearchStrategy[str]] = {
    "schema_version": st.sampled_from(["1", "1.0", "2", "0"]),
    "tenant": quoted(),
    "session_id": quoted(),
    "producer": quoted(),
    "epoch": INTEGERS,
    "stream": quoted(),
    "seq": INTEGERS,
    "receipt_key": quoted(),
    "type": quoted(),
    "occurred_at": TIMES,
    "observed_at": TIMES,
    "kind": st.sampled_from(['"live"', '"eval"', '"import"', '"Live"']),
    "run_id": quoted(),
    "provenance": st.sampled_from(['"observed"', '"derived"', '"inherited"', '"claimed"', '"seen"']),
    "event_id": quoted(),
    "trace_id": quoted(),
    "turn_id": quoted(),
    "model_call_id": quoted(),
    "tool_call_id": quoted(),
    "parent_session_id": quoted(),
    "turn_index": INTEGERS,
    "origin": st.lists(st.tuples(quoted(), SCALARS), max_size=3).map(
        lambda items: "{" + ",".join(f"{key}:{item}" for key, item in items) + "}"
    ),
    "payload": OBJECTS,
}
GOOD = ('"session_id":"s"', '"seq":7', '"type":"x"')


@st.composite
def fields(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from([*RIGHT, *RIGHT, "unknown", "at", "\\u007fat", "\x7fposition", "s\\u0065q"]))
    wrong = draw(st.integers(0, 9)) == 0
    value = draw(VALUES if wrong or name not in RIGHT else RIGHT[name])
    return f'"{name}":{value}'


@st.composite
def records(draw: st.DrawFn) -> bytes:
    drawn = draw(st.lists(fields(), max_size=8))
    good = [field for field in GOOD if draw(st.integers(0, 19))]
    # Before or after: of duplicate keys the last counts.
    order = [*drawn, *good] if draw(st.booleans()) else draw(st.permutations([*good, *drawn]))
    space = draw(st.sampled_from(["", "", " ", "\n"]))
    return (space + "{" + f",{space}".join(order) + "}" + space).encode("utf-8", "surrogatepass")


@share(800)
@given(records())
@example(b'{"session_id":"s","seq":1.0,"type":"x","epoch":1e0}')
@example(b'{"session_id":"s","seq":1,"type":"x","\\u007fat":5}')
@example(b'{"session_id":"s","seq":1,"type":"x","origin":{"a":1,"b":null}}')
def test_both_readers_agree_on_every_spelling_of_a_record(raw: bytes) -> None:
    same(raw)


@share(400)
@given(
    records(), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 2), st.integers(0, 255)), max_size=4)
)
def test_both_readers_agree_on_damaged_records(raw: bytes, damage: list[tuple[int, int, int]]) -> None:
    damaged = bytearray(raw)
    for place, how, byte in damage:
        place %= len(damaged) + 1
        if how == 0:
            damaged[place : place + 1] = bytes([byte])
        elif how == 1:
            damaged.insert(place, byte)
        else:
            del damaged[place : place + 1 + byte // 32]
    same(bytes(damaged))


@share(300)
@given(st.one_of(st.binary(max_size=40), VALUES.map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_both_readers_agree_on_what_is_no_record(raw: bytes) -> None:
    same(raw)


@share(200)
@given(
    st.lists(
        st.sampled_from(["[", '{"":', "[[[[[[[[", '{"a":{"b":[{"c":', "]", "}", "1,", '"[{",']), max_size=200
    )
)
def test_both_readers_agree_on_depth(parts: list[str]) -> None:
    closing: list[str] = []
    text = ""
    for part in parts:
        if part in ("]", "}"):
            if closing and text[-1] not in ":,":
                text += closing.pop()
        elif part[-1] == ",":
            if closing and closing[-1] == "]" and (text[-1] in "[,"):
                text += part
        else:
            if text and text[-1] in "]}":
                text += "," if closing and closing[-1] == "]" else ',"":' if closing else ""
                if not closing:
                    break
            text += part
            closing += ["]" if mark == "[" else "}" for mark in part if mark in "[{"]
    text += "1" + "".join(reversed(closing))
    same(f'{{"session_id":"s","seq":7,"type":"x","payload":{{"a":{text}}}}}'.encode())


@pytest.mark.parametrize("size", [0, 1, 36, 37, 38])
def test_both_readers_agree_on_the_size_limit(size: int) -> None:
    same(b'{"session_id":"s","seq":7,"type":"x"}', limit=size)


@pytest.mark.parametrize(
    "levels", [150, 195, 196, 197, 198, 199, 200, 201, 202, 253, 254, 255, 256, 999, 1000, 1001, 1100]
)
@pytest.mark.parametrize("opening", ["[", '{"":', '[{"a":', "[1,"])
def test_both_readers_agree_around_every_depth_limit(levels: int, opening: str) -> None:
    closing = {"[": "]", '{"":': "}", '[{"a":': "}]", "[1,": "]"}[opening]
    text = opening * levels + "1" + closing * levels
    same(f'{{"session_id":"s","seq":7,"type":"x","payload":{{"a":{text}}}}}'.encode(), limit=1 << 20)
    same(f'{{"session_id":"s","seq":7,"type":"x","unknown":{text}}}'.encode(), limit=1 << 20)


@share(200)
@given(records())
def test_a_record_that_is_read_says_the_same_when_it_comes_again(raw: bytes) -> None:
    if isinstance(read(raw, limit=LIMIT), Event):
        canonical = canonical_record(raw)
        assert canonical_record(canonical) == canonical
        assert same_content(raw, canonical)
        assert isinstance(same(canonical, limit=1 << 20), Event)
