"""Chains in arrays equal chains in a plain dict: with circles, copies, missing parents and prompts at one time, in any order, whole and in pieces."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.property.budget import share
from turnledger.harness.chains import Chains


class Link(NamedTuple):
    key: str
    parent: str | None
    turn: str | None
    second: int | None
    tag: int


KEYS = st.integers(0, 30).map(lambda number: f"{number:x}")
LINKS = st.builds(
    Link,
    KEYS,
    st.none() | KEYS,
    st.sampled_from([None, None, None, "t1", "t2", "t3"]),
    st.none() | st.integers(0, 5),
    st.integers(0, 7),
)
PIECES = st.lists(st.lists(LINKS, max_size=40), max_size=4)


def at(second: int | None) -> str | None:
    return None if second is None else f"2026-01-01T00:00:0{second}Z"


def above(links: dict[str, Link], key: str | None) -> list[Link]:
    """A record and those that it follows, up to one that opens a turn, to a missing one, or to where it has been."""
    found: list[Link] = []
    while key in links and links[key] not in found:
        found.append(links[key])
        if links[key].turn is not None:
            break
        key = links[key].parent
    return found


@share(200)
@given(PIECES)
def test_chains_equal_a_plain_dict(pieces: list[list[Link]]) -> None:
    chains = Chains()
    links: dict[str, Link] = {}
    opened: list[tuple[int, str]] = []
    for piece in pieces:
        for link in piece:
            chains.add(link.key, link.parent, turn=link.turn, at=at(link.second), tag=link.tag)
            links[link.key] = link
            if link.turn is not None and link.second is not None:
                opened.append((link.second, link.turn))
        for key in [f"{number:x}" for number in range(32)]:
            walked = above(links, key)
            linked = walked[-1].turn if walked else None
            assert chains.linked(key) == linked
            assert [chains.tags[each] for each in chains.above(key)][: len(walked)] == [
                each.tag for each in walked
            ]
            for second in range(6):
                nearest = max((each for each in opened if each[0] <= second), default=(0, None))[1]
                assert chains.turn_of(key, at(second)) == (linked if linked is not None else nearest)


@share(50)
@given(st.lists(LINKS, unique_by=lambda link: link.key, max_size=40), st.randoms())
def test_the_order_of_links_says_nothing(links: list[Link], random: Random) -> None:
    def turns(ordered: list[Link]) -> list[str | None]:
        chains = Chains()
        for link in ordered:
            chains.add(link.key, link.parent, turn=link.turn, at=at(link.second))
        return [chains.turn_of(link.key, "2026-01-01T00:00:03Z") for link in links]

    shuffled = list(links)
    random.shuffle(shuffled)
    assert turns(shuffled) == turns(links)
