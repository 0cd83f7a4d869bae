"""Identity on a plain list of records (contract 3)."""

from __future__ import annotations

import json
from typing import Any

from turnledger.fold.dedupe import dedupe


def record(seq: int = 0, text: str = "x", **given: Any) -> bytes:
    return json.dumps(
        {"session_id": "S", "seq": seq, "type": "odd", "payload": {"text": text}, **given}
    ).encode()


def judged(*records: bytes) -> dict[str, int]:
    return dedupe(enumerate(records)).records


def counts(accepted: int, duplicates: int = 0, conflicts: int = 0, dead: int = 0) -> dict[str, int]:
    return {
        "read": accepted + duplicates + conflicts + dead,
        "accepted": accepted,
        "duplicates": duplicates,
        "conflicts": conflicts,
        "dead": dead,
    }


def test_each_part_of_the_key_makes_another_event() -> None:
    others = (
        {"tenant": "t"},
        {"session_id": "R"},
        {"producer": "p"},
        {"epoch": 1},
        {"stream": "s"},
        {"seq": 1},
    )
    assert judged(record(), *(record(**other) for other in others)) == counts(7)


def test_a_receipt_key_is_an_identity_only_where_there_is_no_number() -> None:
    assert judged(record(), record(receipt_key="r")) == counts(1, conflicts=1)
    assert judged(record(seq=None, receipt_key="a"), record(seq=None, receipt_key="b")) == counts(2)


def test_the_time_of_the_first_collector_is_not_content() -> None:
    assert judged(record(), record(observed_at="2026-05-04T10:00:00Z")) == counts(1, duplicates=1)


def test_every_record_ends_as_exactly_one_of_four() -> None:
    assert judged(record(), record(), record(text="y"), b"{", record(1)) == counts(2, 1, 1, 1)


def test_one_receipt_per_distinct_losing_hash() -> None:
    found = dedupe(enumerate([record(), record(text="y"), record(text="z"), record(text="y"), record()]))
    assert [(row["count"], row["first_position"], row["last_position"]) for row in found.conflicts] == [
        (2, 1, 3),
        (1, 2, 2),
    ]
    assert len({row["lost_sha256"] for row in found.conflicts}) == 2
    assert len({row["kept_sha256"] for row in found.conflicts}) == 1


def test_a_dead_record_takes_no_position() -> None:
    bad = record(text="y", kind="eval")  # without run_id
    assert judged(bad, record()) == counts(1, dead=1)
