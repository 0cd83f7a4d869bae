"""What a reader holds of the records that it has passed: who follows whom, in few bytes, whatever their number."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from tests.bench import adapters
from turnledger.contract import times
from turnledger.harness import keys, reading
from turnledger.harness.chains import Chains
from turnledger.harness.importer import FileReading, told
from turnledger.harness.keys import Keys, Texts
from turnledger.harness.sources import Source


def name(number: int) -> str:
    return str(UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128))


def held(make: Callable[[], object]) -> int:
    """Bytes that are still held when something was made."""
    tracemalloc.start()
    try:
        made = make()
        return tracemalloc.get_traced_memory()[0] if made is not None else 0
    finally:
        tracemalloc.stop()


def test_keys_are_numbered_in_the_order_in_which_they_came() -> None:
    numbered = Keys()
    count = 5 * keys.SLOTS
    assert [numbered.add(name(each)) for each in range(count)] == list(range(1, count + 1))
    assert [numbered.add(name(each)) for each in reversed(range(count))] == list(range(count, 0, -1))
    assert numbered.get(name(count)) == 0 and numbered.get(name(7)) == 8 and numbered.get("") == 0


def test_keys_of_one_hash_are_told_apart_by_their_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        keys, "hash", lambda key: int(key[1:]) if key.startswith(keys.OTHER) else 7, raising=False
    )
    numbered = Keys()
    assert [numbered.add(each) for each in ("12", "34", "12", "56", "34")] == [1, 2, 1, 3, 2]
    assert [numbered.get(each) for each in ("34", "56", "78", "12")] == [2, 3, 0, 1]


def test_texts_come_back_as_they_were() -> None:
    texts = Texts()
    said = ["", "a", "größer", "\U0001f600", "", "b" * 1000]
    assert [texts.add(each) for each in said] == [1, 2, 3, 4, 5, 6]
    assert [texts[number] for number in (3, 3, 1, 6, 5, 4, 2)] == [said[at] for at in (2, 2, 0, 5, 4, 3, 1)]


def test_a_circle_leads_nowhere_and_a_later_record_may_open_it() -> None:
    chains = Chains()
    for key, parent in (("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"), ("e", "e")):
        chains.add(key, parent)
    assert [chains.linked(each) for each in "abcde?"] == [None] * 6
    chains.add("c", "a", turn="t")
    assert [chains.linked(each) for each in "abcde?"] == ["t"] * 4 + [None] * 2


def test_of_turns_that_were_opened_at_once_the_nearest_is_the_one_that_sorts_last() -> None:
    chains = Chains()
    for turn, second in (("m", 5), ("z", 5), ("a", 5), ("y", 3), ("b", 9)):
        chains.add(turn, None, turn=turn, at=f"2026-01-01T00:00:0{second}Z")
    nearest = [chains.nearest(f"2026-01-01T00:00:0{second}Z") for second in (2, 3, 4, 5, 8, 9)]
    assert nearest == [None, "y", "y", "z", "z", "b"]
    assert chains.nearest(None) is None


def test_a_record_takes_fewer_than_50_bytes_however_long_its_ids_are() -> None:
    names = [f"{number:0100}" for number in range(5000)]

    def chains() -> Chains:
        made = Chains()
        for number, key in enumerate(names):
            made.add(key, names[number - 1], turn="t" if number == 0 else None)
        assert made.linked(names[-1]) == "t"
        return made

    assert held(chains) < 50 * len(names)


@pytest.mark.parametrize(
    "harness", ["claude-code", "qwen-code", "copilot-cli", "pi", "openhands", "deepseek-harness"]
)
def test_of_a_record_that_was_passed_a_reader_holds_few_bytes(
    harness: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "CHUNK", 16 * 1024)
    monkeypatch.setattr(times, "_SECONDS_KEPT", 64)  # so that it is full at once

    def peak(size: int) -> tuple[int, int]:
        path = adapters.written(harness, tmp_path, size)
        tracemalloc.start()
        try:
            found = FileReading(path, None)
            assert sum(1 for _ in told(Source(path), found)) > size // 10_000 and found.harness == harness
            return tracemalloc.get_traced_memory()[1], path.read_bytes().count(b"\n")
        finally:
            tracemalloc.stop()

    peak(100_000)  # what is made once
    (small, few), (large, many) = peak(300_000), peak(3_000_000)
    assert large - small < 75 * (many - few)  # with Python objects: 78 to 290
