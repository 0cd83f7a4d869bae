"""What the cache lets go of when it is over its limit."""

from __future__ import annotations

from turnledger.ingest import cache as caching
from turnledger.ingest.cache import SessionCache, SessionEntry
from turnledger.ingest.load import new_entry


def filled(count: int) -> tuple[SessionCache, list[SessionEntry]]:
    entries = [new_entry(("acme", f"s{number}"), number, ("events", 0)) for number in range(count)]
    cache = SessionCache(0)
    for entry in entries:
        cache.put(entry)
    return cache, entries


def test_what_was_used_least_goes_until_the_limit_holds() -> None:
    cache, entries = filled(10)
    cache.limit_bytes = cache.bytes * 6 // 10
    cache.touch(entries[0].key)
    cache.shrink(0)
    assert [entry.session_no for entry in cache] == [5, 6, 7, 8, 9, 0]
    assert cache.bytes <= cache.limit_bytes
    assert cache.evicted == 4


def test_all_that_may_go_goes_at_once_however_many_they_are() -> None:
    cache, _ = filled(3 * caching.LOOKED_AT)
    cache.shrink(0)
    assert (len(cache), cache.bytes) == (0, 0)


def test_what_is_not_written_stays_and_does_not_hide_what_may_go() -> None:
    cache, entries = filled(2 * caching.LOOKED_AT)
    for entry in entries[: caching.LOOKED_AT]:
        entry.dirty_since = 1
    for entry in entries[caching.LOOKED_AT :]:
        entry.round_no = 5
    cache.shrink(5)
    assert len(cache) == len(entries), "so many are looked at, and none of those may go"
    cache.shrink(4)
    assert len(cache) == len(entries), "a round that is not committed holds the others"
    cache.shrink(5)
    cache.shrink(5)
    assert {entry.session_no for entry in cache} == {
        entry.session_no for entry in entries[: caching.LOOKED_AT]
    }
    for entry in entries:
        entry.dirty_since = None
    cache.shrink(5)
    assert (len(cache), cache.bytes) == (0, 0)
