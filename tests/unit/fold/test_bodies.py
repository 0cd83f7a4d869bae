"""Bodies (contract 6, ``body.recorded``): parts put together, sizes, what was cut, and the hash that was told."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from typing import Any

from tests.unit.fold.events import Story, checks
from turnledger.contract.event import Event
from turnledger.fold.bodies import put_together
from turnledger.fold.model import Row


def body(story: Story, data: bytes, *, of: bytes | None = None, **given: Any) -> Event:
    """A part ``data`` of the body ``of`` (itself unless said)."""
    whole = data if of is None else of
    told = {
        "for_event_id": "0123456789ab",
        "source": "net",
        "direction": "response",
        "content_type": "text/plain",
        "original_bytes": len(whole),
        "truncated": False,
        "sha256": sha256(whole).hexdigest(),
        "data": b64encode(data).decode(),
    }
    return story("body.recorded", **{**told, **given})


def bodies(story: Story) -> list[Row]:
    return put_together(story.fold().points.get("event_bodies", []))


def facts(row: Row) -> tuple[object, ...]:
    names = ("parts_present", "complete", "original_bytes", "stored_bytes", "truncated", "verified", "data")
    return tuple(row[name] for name in names)


def test_a_body_in_one_part_is_verified_and_its_row_holds_no_bytes() -> None:
    story = Story(turn="t", trace="x")
    body(story, b"hello").event_id = "e1"
    (part,) = story.fold().points["event_bodies"]
    assert (part["stored_bytes"], part["verified"], part["event_id"], part["turn_id"]) == (5, True, "e1", "t")
    (row,) = bodies(story)
    assert facts(row) == (1, True, 5, 5, False, True, "aGVsbG8=")
    assert (row["for_event_id"], row["source"], row["direction"], row["content_type"]) == (
        "0123456789ab",
        "net",
        "response",
        "text/plain",
    )


def test_parts_in_any_order_are_one_body_at_the_place_of_the_first() -> None:
    story = Story()
    whole = b"hello world"
    body(story, b" world", of=whole, part=1, parts=2)
    body(story, b"hello", of=whole, part=0, parts=2)
    (row,) = bodies(story)
    assert facts(row) == (2, True, 11, 11, False, True, "aGVsbG8gd29ybGQ=")
    assert (row["seq"], row["part"], row["parts"]) == (1, 0, 2)


def test_parts_may_be_counted_from_one() -> None:
    story = Story()
    body(story, b"a", of=b"ab", part=1, parts=2)
    body(story, b"b", of=b"ab", part=2, parts=2)
    assert facts(bodies(story)[0]) == (2, True, 2, 2, False, True, "YWI=")


def test_a_body_that_lacks_a_part_shows_no_bytes_and_is_not_judged() -> None:
    story = Story()
    body(story, b"a", of=b"abc", part=0, parts=3)
    body(story, b"c", of=b"abc", part=2, parts=3)
    assert facts(bodies(story)[0]) == (2, False, 3, 2, False, None, None)


def test_a_part_that_comes_twice_counts_once_and_the_longest_is_taken() -> None:
    story = Story()
    body(story, b"a", of=b"abc", part=0, parts=2)
    body(story, b"ab", of=b"abc", part=0, parts=2)
    body(story, b"c", of=b"abc", part=1, parts=2)
    (row,) = bodies(story)
    assert facts(row) == (2, True, 3, 3, False, True, "YWJj")
    assert row["seq"] == 1


def test_a_body_that_was_captured_short_is_truncated_whatever_it_says() -> None:
    story = Story()
    body(story, b"hell", of=b"hello", truncated=False)
    assert facts(bodies(story)[0]) == (1, True, 5, 4, True, None, "aGVsbA==")


def test_the_hash_of_what_was_kept_verifies_a_truncated_body_too() -> None:
    story = Story()
    body(story, b"hell", original_bytes=5, truncated=True)
    assert facts(bodies(story)[0]) == (1, True, 5, 4, True, True, "aGVsbA==")


def test_bytes_that_do_not_hash_to_what_was_told_are_not_verified() -> None:
    story = Story()
    body(story, b"hello", sha256="0" * 64)
    body(story, b"a", of=b"ab", direction="request", part=0, parts=2)
    body(story, b"c", of=b"ab", direction="request", part=1, parts=2)
    assert [row["verified"] for row in bodies(story)] == [False, False]


def test_request_and_response_and_two_hashes_are_bodies_of_their_own() -> None:
    story = Story()
    body(story, b"a", direction="request")
    body(story, b"b", direction="response")
    body(story, b"c", direction="response")
    assert [row["data"] for row in bodies(story)] == ["YQ==", "Yg==", "Yw=="]


def test_what_is_no_base64_is_a_finding_and_has_no_size() -> None:
    story = Story()
    story("body.recorded", for_event_id="e", source="net", direction="request", data="a b!")
    fold = story.fold()
    assert checks(fold) == ["wrong_type_in_payload"]
    assert fold.findings[0]["row"]["field"] == "data"
    assert facts(bodies(story)[0]) == (1, False, None, 0, None, None, None)


def test_bodies_that_name_no_event_are_not_put_together() -> None:
    story = Story()
    body(story, b"a", of=b"ab", for_event_id=None, part=0, parts=2)
    body(story, b"b", of=b"ab", for_event_id=None, part=1, parts=2)
    assert [row["complete"] for row in bodies(story)] == [False, False]
