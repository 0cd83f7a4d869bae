"""Ranges of seen numbers equal a plain set, however they are filled, saved and loaded."""

from __future__ import annotations

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
