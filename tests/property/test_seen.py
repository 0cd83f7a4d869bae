"""Ranges of seen numbers equal a plain set, however they are filled, saved and loaded."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.property.budget import share
from turnledger.fold.seen import StreamSeen

NUMBERS = st.one_of(
    st.integers(0, 40), st.integers(8180, 8200), st.integers(0, 60_000), st.integers(0, 2**63 - 1)
)
STEPS = st.lists(st.one_of(NUMBERS, st.just("next"), st.just("save")), max_size=60)


@share(200)
@given(STEPS)
def test_the_ranges_equal_a_set(steps: list[int | str]) -> None:
    seen = StreamSeen()
    plain: set[int] = set()
    stored: dict[int, bytes] = {}
    for step in steps:
        if step == "save":
            for chunk in seen.gone:
                stored.pop(chunk, None)
            stored.update((chunk, seen.chunk_bytes(chunk)) for chunk in seen.dirty)
            seen.saved()
            assert stored == seen.chunks()
            seen = StreamSeen(seen.hi, stored)
            continue
        number = max(plain, default=-1) + 1 if step == "next" else step
        assert isinstance(number, int)
        if number >= 2**63:
            continue
        assert (number in seen) == (number in plain)
        assert seen.add(number) == (number not in plain)
        plain.add(number)
    ascending = sorted(plain)
    holes = [
        (before + 1, after - 1)
        for before, after in zip([-1, *ascending], ascending, strict=False)
        if after > before + 1
    ]
    assert list(seen.holes()) == holes
    assert seen.missing == sum(last - first + 1 for first, last in holes)
    assert seen.hi == max(plain, default=-1)
    assert seen.low == (holes[0][0] if holes else seen.hi + 1)


@share(100)
@given(
    st.lists(st.one_of(st.integers(0, 40), st.integers(8180, 24_600)), max_size=40),
    NUMBERS,
    st.integers(0, 20_000),
)
def test_a_stretch_is_told_in_runs_of_what_was_seen_and_what_was_not(
    numbers: list[int], first: int, length: int
) -> None:
    seen = StreamSeen()
    for number in numbers:
        seen.add(number)
    first = first % 30_000
    told = list(seen.within(first, first + length))
    assert [number for start, end, came in told for number in range(start, end + 1) if came] == sorted(
        number for number in set(numbers) if first <= number <= first + length
    )
    assert [start for start, _, _ in told] == [first, *(end + 1 for _, end, _ in told[:-1])]
    assert told[-1][1] == first + length
    assert all(one[2] != other[2] or one[1] % 8192 == 8191 for one, other in pairwise(told))
