"""`turnledger dead`: letters listed, shown, corrected and sent through again, beside live workers and through a kill (contract 15)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.integration.here import Here
from tests.integration.ingesting import (
    environment,
    event,
    one,
    outcomes,
    rows,
    until_applied,
    until_projected,
)
from tests.stack.commands import Running, eventually
from tests.stack.topics import Record, Topic, produce
from turnledger.doctor.verify import verify
from turnledger.pricing import packaged, price_call
from turnledger.rollup.settings import RollupSettings
from turnledger.rollup.worker import Rollup

Start = Callable[..., Running]


def lapsed(session: str, seq: int, **fields: Any) -> Record:
    """A record of 2 KB: dead while the limit is 1,500 bytes, and an event once it is the usual one."""
    return event(session, seq, "note", payload={"text": "x" * 2000}, **fields)


STRICT = {"TURNLEDGER_RECORD_LIMIT_BYTES": "1500"}


def letters(database: str) -> dict[int, tuple[int, str | None, str]]:
    """(position, outcome, reason) by id."""
    found = rows(database, "select id, position, outcome, reason from turnledger.dead_letters order by id")
    return {row[0]: row[1:] for row in found}


class Requeuing(Here):
    """Here, with the command that this file is about."""

    def requeue(
        self, settings: dict[str, str], *arguments: str, stdin: bytes = b"", fails: bool = False
    ) -> dict[str, Any]:
        """The object that `dead requeue --json` prints. ``fails``: some stay dead."""
        status, out, err = self.run(settings, "dead", "requeue", *arguments, "--json", stdin=stdin)
        assert status == (1 if fails else 0), err
        return dict(json.loads(out))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Requeuing:
    return Requeuing(monkeypatch, capsys)


def told(answer: dict[str, Any]) -> list[tuple[int, str]]:
    """(position, outcome) of each letter of the answer."""
    return [(letter["position"], letter["outcome"]) for letter in answer["letters"]]


def account(database: str) -> dict[str, int]:
    """How the records of the only partition have ended by now."""
    found = one(
        rows(
            database,
            "select records, accepted, duplicates, conflicts, dead, requeued from turnledger.accounts",
        )
    )
    return dict(
        zip(("records", "accepted", "duplicates", "conflicts", "dead", "requeued"), found, strict=True)
    )


def rolled_up(database: str) -> None:
    """Every rollup that is marked is set."""
    rollup = Rollup(RollupSettings(), database, partial(price_call, packaged()))
    rollup.drain()
    rollup.close()


def verified(database: str) -> None:
    """Rollups are set, and all that `verify` proves holds."""
    rolled_up(database)
    report = verify(database, partial(price_call, packaged()), settle_seconds=30)
    assert report.holds, report.as_json()


@pytest.mark.partitions(1)
def test_letters_that_are_events_now_are_accepted_once_and_the_sums_hold(
    topic: Topic, database: str, start: Start, here: Requeuing
) -> None:
    settings = environment(topic, database)
    # Positions 0 to 6: of the five that are too large, one comes again as it is, and one as another record.
    sent = [
        event("s", 0),
        lapsed("s", 1),
        event("s", 2),
        lapsed("s", 3),
        Record(b"garbage", key=b"default/s"),
    ]
    again = [lapsed("s", 3), lapsed("s", 3, event_id="other")]
    produce(topic, [*sent, *again])
    worker = start("worker", environment=settings | STRICT)
    until_applied(database, topic, 7, worker)
    until_projected(database, topic)
    assert outcomes(database, topic) == {
        "records": 7,
        "accepted": 2,
        "duplicates": 0,
        "conflicts": 0,
        "dead": 5,
    }
    gaps = "select from_seq, to_seq, state from turnledger.gaps order by from_seq"
    assert rows(database, gaps) == [(1, 1, "open")]
    rolled = "select dead_letters, open_gaps, conflicts, grade from turnledger.sessions"
    # `garbage` names no session, and neither does a record that is too large to be read.
    rolled_up(database)
    assert rows(database, rolled) == [(0, 1, 0, "gaps")]

    dry = here.requeue(settings, "--topic", topic.name, "--dry-run", fails=True)
    expected = [(1, "accepted"), (3, "accepted"), (4, "dead"), (5, "duplicate"), (6, "conflict")]
    assert told(dry) == expected
    assert (dry["dry_run"], account(database)["dead"]) == (True, 5)
    assert told(here.requeue(settings, "--topic", topic.name, "--by", "ada", fails=True)) == expected

    assert account(database) == {
        "records": 7, "accepted": 4, "duplicates": 1, "conflicts": 1, "dead": 1, "requeued": 4,
    }  # fmt: skip
    # What was read is told as it was read: the audit rows are not touched.
    assert outcomes(database, topic)["dead"] == 5
    assert rows(
        database,
        "select letters, accepted, duplicates, conflicts, requeued_by from turnledger.requeue_batches",
    ) == [(4, 2, 1, 1, "ada")]
    assert rows(database, "select seq, position, partition, topic from turnledger.events order by seq") == [
        (0, 0, 0, topic.name),
        (1, 1, 0, topic.name),
        (2, 2, 0, topic.name),
        (3, 3, 0, topic.name),
    ]
    assert rows(database, gaps) == [(1, 1, "filled_late")]
    assert rows(database, "select kept_position, first_position, count from turnledger.conflicts") == [
        (3, 6, 1)
    ]
    rolled_up(database)
    assert rows(database, rolled) == [(0, 0, 1, "disputed")]

    # Twice is once.
    before = letters(database)
    ids = [str(number) for number in before]
    twice = here.requeue(settings, *ids, fails=True)
    assert told(twice) == expected
    assert twice["summary"]["before"] == 4
    assert letters(database) == before
    assert account(database)["accepted"] == 4

    # The worker that ran beside it goes on where the stream is now.
    produce(topic, [event("s", 4), event("s", 1)])
    until_applied(database, topic, 9, worker)
    # 1 came by the requeue: another record at its position contradicts it.
    assert outcomes(database, topic) == {
        "records": 9,
        "accepted": 3,
        "duplicates": 0,
        "conflicts": 1,
        "dead": 5,
    }
    verified(database)
    assert worker.running()


@pytest.mark.partitions(1)
def test_a_corrected_record_takes_the_place_of_the_one_that_came(
    topic: Topic, database: str, start: Start, here: Requeuing, tmp_path: Path
) -> None:
    settings = environment(topic, database)
    turn = {"turn_id": "t"}
    spoilt = b'{"session_id":"s","seq":1,"type":"tool_call.requested","turn_id":"t","tool_call_id":"c","payload":{"tool_name":"bash",}}'
    produce(
        topic,
        [
            event("s", 0, "turn.started", **turn),
            Record(spoilt, key=b"default/s"),
            event("s", 2, "tool_call.completed", tool_call_id="c", payload={"status": "ok"}, **turn),
            event("s", 3, "turn.completed", payload={"status": "completed"}, **turn),
        ],
    )
    worker = start("worker", environment=settings)
    until_applied(database, topic, 4, worker)
    until_projected(database, topic)
    pairing = "select tool_name, pairing from turnledger.tool_calls"
    assert rows(database, pairing) == [(None, "orphan_result")]
    (number,) = letters(database)

    still = here.requeue(
        settings, str(number), "--fix", "-", stdin=b'{"session_id":"s","seq":1}\n', fails=True
    )
    assert [(one["reason"], one["field"]) for one in still["letters"]] == [("missing_field", "type")]
    # A correction that is refused says nothing about the letter.
    assert letters(database) == {number: (1, None, "json")}

    mended = tmp_path / "mended.json"
    mended.write_bytes(spoilt.replace(b",}}", b"}}") + b"\n")
    assert told(here.requeue(settings, str(number), "--fix", str(mended), "--by", "ada")) == [(1, "accepted")]
    assert rows(database, pairing) == [("bash", "paired")]
    assert rows(database, "select revision from turnledger.turns") == [(2,)]
    assert rows(database, "select position, raw from turnledger.events where seq = 1") == [
        (1, spoilt.replace(b",}}", b"}}"))
    ]
    page = here.run(settings, "dead", "show", str(number))[1]
    assert "accepted, corrected: requeued " in page
    assert " by ada\n" in page
    # The bytes that came are kept.
    assert here.run(settings, "dead", "show", str(number), "--raw", str(tmp_path / "came"))[0] == 0
    assert (tmp_path / "came").read_bytes() == spoilt
    # Once more, and again without the correction: it is settled.
    assert here.requeue(settings, str(number), "--fix", str(mended))["summary"]["before"] == 1
    assert here.requeue(settings, str(number))["summary"]["before"] == 1
    verified(database)


@pytest.mark.partitions(2)
def test_a_session_that_nobody_has_seen_begins_with_its_requeued_record_and_its_worker_goes_on_from_there(
    topic: Topic, database: str, start: Start, here: Requeuing
) -> None:
    settings = environment(topic, database)
    produce(topic, [Record(lapsed("new", 0).value, b"default/new", 1), event("other", 0)])
    worker = start("worker", environment=settings | STRICT)
    until_applied(database, topic, 2, worker)
    assert here.requeue(settings, "--reason", "too_large")["summary"]["accepted"] == 1
    assert rows(database, "select home_partition from ledger.sessions where session_id = 'new'") == [(1,)]
    # From both partitions, in one round: 0 is a duplicate, 1 new, 2 new.
    produce(
        topic,
        [
            Record(event("new", 1).value, b"default/new", 1),
            Record(event("new", 2).value, b"default/new", 0),
        ],
    )
    until_applied(database, topic, 4, worker)
    until_projected(database, topic)
    assert rows(database, "select seq from turnledger.events where session_id = 'new' order by seq") == [
        (0,),
        (1,),
        (2,),
    ]
    verified(database)


@pytest.mark.partitions(2)
def test_requeues_beside_a_worker_that_writes_the_same_sessions_lose_and_double_nothing(
    topic: Topic, database: str, start: Start, here: Requeuing
) -> None:
    settings = environment(topic, database)
    sessions = [f"s{number}" for number in range(8)]
    # Every third number is too large for the first worker: 8 sessions of 30 numbers, 10 of each dead.
    first = [(lapsed if seq % 3 == 0 else event)(session, seq) for seq in range(30) for session in sessions]
    produce(topic, first)
    worker = start("worker", environment=settings | STRICT)
    until_applied(database, topic, 240, worker)
    assert outcomes(database, topic)["dead"] == 80
    # A stream of further events, and two people who requeue the same letters, at once.
    people = [
        start("dead", "requeue", "--reason", "too_large", "--by", name, environment=settings)
        for name in ("ada", "bob")
    ]
    for begin in range(30, 90, 3):
        produce(topic, [event(session, seq) for seq in range(begin, begin + 3) for session in sessions])
    for person in people:
        assert person.wait() == 0, person.output()
    until_applied(database, topic, 240 + 480, worker)
    until_projected(database, topic)
    assert rows(
        database,
        "select sum(records), sum(accepted), sum(duplicates), sum(conflicts), sum(dead), sum(requeued) from turnledger.accounts",
    ) == [(720, 720, 0, 0, 0, 80)]
    assert rows(
        database, "select session_id, count(*), max(seq) from turnledger.events group by 1 order by 1"
    ) == [(session, 90, 89) for session in sessions]
    assert rows(database, "select count(*) from ledger.gaps where closed_at is null") == [(0,)]
    assert rows(database, "select count(*) from ledger.dead_letters where outcome = 'accepted'") == [(80,)]
    verified(database)
    assert worker.running()


@pytest.mark.partitions(1)
def test_a_requeue_that_is_killed_in_the_middle_did_nothing_and_the_next_one_does_all(
    topic: Topic, database: str, start: Start, here: Requeuing
) -> None:
    settings = environment(topic, database)
    produce(topic, [event("s", 0), *(lapsed("s", seq) for seq in range(1, 6))])
    worker = start("worker", environment=settings | STRICT)
    until_applied(database, topic, 6, worker)
    until_projected(database, topic)
    before = letters(database)
    with psycopg.connect(database) as holder:
        # Its events, turns and marks are written when it comes to its account.
        holder.execute("lock table ledger.requeue_batches in access exclusive mode")
        killed = start("dead", "requeue", "--reason", "too_large", environment=settings)
        waiting = "select 1 from pg_stat_activity where application_name = 'turnledger requeue' and wait_event_type = 'Lock' and datname = current_database()"
        eventually(lambda: rows(database, waiting), what="the requeue is in the middle")
        killed.kill9()
    eventually(
        lambda: (
            not rows(
                database,
                "select 1 from pg_stat_activity where application_name = 'turnledger requeue' and datname = current_database()",
            )
        ),
        what="its database process is gone",
    )
    assert letters(database) == before
    assert rows(database, "select count(*) from ledger.requeue_batches") == [(0,)]
    assert rows(database, "select count(*) from turnledger.events") == [(1,)]
    # The worker was held up, not harmed.
    produce(topic, [event("s", 6)])
    until_applied(database, topic, 7, worker)
    assert here.requeue(settings, "--reason", "too_large")["summary"]["accepted"] == 5
    verified(database)
    assert account(database) == {
        "records": 7,
        "accepted": 7,
        "duplicates": 0,
        "conflicts": 0,
        "dead": 0,
        "requeued": 5,
    }


@pytest.mark.partitions(1)
def test_what_is_no_event_now_either_stays_dead_with_the_reason_that_it_has_now(
    topic: Topic, database: str, start: Start, here: Requeuing
) -> None:
    settings = environment(topic, database)
    nameless = b'{"session_id":"s","seq":1,"type":7,"payload":{"text":"' + b"x" * 2000 + b'"}}'
    whole = lapsed("s", 2).value
    assert whole is not None
    produce(
        topic,
        [
            event("s", 0),
            Record(nameless, b"default/s"),
            Record(whole, b"default/s"),
            Record(None, b"default/s"),
        ],
    )
    worker = start("worker", environment=settings | STRICT)
    until_applied(database, topic, 4, worker)
    assert [reason for _, _, reason in letters(database).values()] == ["too_large", "too_large", "empty"]
    answer = here.requeue(settings, "--topic", topic.name, "--since", "1h", fails=True)
    assert [(one["position"], one["outcome"], one["reason"], one["field"]) for one in answer["letters"]] == [
        (1, "dead", "wrong_type", "type"),
        (2, "accepted", None, None),
        (3, "dead", "empty", None),
    ]
    assert [(outcome, reason) for _, outcome, reason in letters(database).values()] == [
        (None, "wrong_type"),
        ("accepted", "too_large"),
        (None, "empty"),
    ]
    # It names its session now, whose rollup counts it.
    rolled = "select dead_letters from turnledger.sessions where session_id = 's'"
    rolled_up(database)
    assert rows(database, rolled) == [(1,)]
    verified(database)


@pytest.mark.partitions(1)
def test_a_letter_with_a_secret_is_requeued_as_what_came_and_not_as_what_is_left_of_it(
    topic: Topic, database: str, start: Start, here: Requeuing
) -> None:
    settings = environment(topic, database)
    secret = "sk-ant-" + "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z"
    long = {"payload": {"text": f"{secret} " + "x" * 2000}}
    numbered, keyed, late = (
        event("s", 0, **long),
        event("s", None, receipt_key="r", **long),
        event("s", 2, **long),
    )
    produce(topic, [numbered, keyed, late])
    strict = start("worker", environment=settings | STRICT)
    until_applied(database, topic, 3, strict)
    assert strict.stop() == 0
    first, second, third = letters(database)
    assert told(here.requeue(settings, str(first), str(second))) == [(0, "accepted"), (1, "accepted")]

    # A worker with the usual limit: copies of both, another record at the first's number, and the third before its letter.
    other = event("s", 0, payload={"text": f"{secret}5 " + "x" * 2000})
    produce(topic, [numbered, keyed, other, late])
    worker = start("worker", environment=settings)
    until_applied(database, topic, 7, worker)
    until_projected(database, topic)
    assert told(here.requeue(settings, str(third))) == [(2, "duplicate")]
    assert account(database) == {
        "records": 7, "accepted": 3, "duplicates": 3, "conflicts": 1, "dead": 0, "requeued": 3,
    }  # fmt: skip
    assert rows(database, "select seq, first_position, count from turnledger.conflicts") == [(0, 5, 1)]

    stored = rows(
        database, "select position, payload, received_sha256 from turnledger.events order by position"
    )
    assert [(position, payload["redactions"]) for position, payload, _ in stored] == [
        (0, [{"what": "anthropic", "where": "(dead letter)", "count": 1}]),
        (1, [{"what": "anthropic", "where": "(dead letter)", "count": 1}]),
        (6, [{"what": "anthropic", "where": "payload.text", "count": 1}]),
    ]
    assert all(payload["text"].startswith("credential:anthropic:") for _, payload, _ in stored)
    of_letters = rows(database, "select received_sha256 from turnledger.dead_letters order by position")
    assert [(one,) for _, _, one in stored] == of_letters
    assert rows(database, "select count(*) from turnledger.redactions") == [(3,)]
    verified(database)
    status, out, err = here.run(settings, "verify", "--topics")
    assert status == 0, out + err


@pytest.mark.partitions(1)
def test_a_record_of_which_only_the_beginning_is_kept_waits_for_the_whole_one(
    topic: Topic, database: str, start: Start, here: Requeuing
) -> None:
    settings = environment(topic, database)
    record = lapsed("s", 0).value
    assert record is not None
    produce(topic, [Record(record, b"default/s")])
    worker = start("worker", environment=settings | STRICT | {"TURNLEDGER_DEAD_LETTER_BYTES": "100"})
    until_applied(database, topic, 1, worker)
    (number,) = letters(database)
    (letter,) = here.requeue(settings, str(number), fails=True)["letters"]
    assert (letter["outcome"], letter["reason"]) == ("dead", "too_large")
    assert (
        letter["detail"]
        == f"only the first 100 of its {len(record)} bytes are kept: give the whole record with --fix"
    )
    assert told(here.requeue(settings, str(number), "--fix", "-", stdin=record)) == [(0, "accepted")]
    assert rows(database, "select raw from turnledger.events") == [(record,)]


@pytest.mark.partitions(1)
def test_a_projection_that_was_refused_is_made_again(
    topic: Topic, database: str, start: Start, here: Requeuing
) -> None:
    settings = environment(topic, database)
    # A number of more digits than Postgres' numeric holds.
    rule = (
        b'{"session_id":"s","seq":1,"type":"security.rule_matched","turn_id":"t","payload":{"rule_id":"r","rule":{"n":1'
        + b"0" * 150_000
        + b"}}}"
    )
    produce(
        topic,
        [
            event("s", 0, "turn.started", turn_id="t"),
            Record(rule, key=b"default/s"),
            event("s", 2, "turn.completed", turn_id="t", payload={"status": "completed"}),
        ],
    )
    worker = start("worker", environment=settings)
    until_applied(database, topic, 3, worker)
    until_projected(database, topic)
    (number,) = letters(database)
    again = here.requeue(settings, str(number), fails=True)
    assert [(one["outcome"], one["reason"]) for one in again["letters"]] == [("dead", "refused_by_database")]
    assert len(letters(database)) == 1
    # Its event is taken back by hand: what is left can be projected.
    with psycopg.connect(database) as link:
        link.execute(
            "update ledger.events set raw = replace(convert_from(raw, 'UTF8'), repeat('0', 150000), '0')::bytea where seq = 1"
        )
    assert told(here.requeue(settings, str(number))) == [(letters(database)[number][0], "projected")]
    assert rows(database, "select rule_id from turnledger.security_rule_events") == [("r",)]
    assert account(database) == {
        "records": 3,
        "accepted": 3,
        "duplicates": 0,
        "conflicts": 0,
        "dead": 0,
        "requeued": 0,
    }


@pytest.mark.partitions(1)
def test_letters_are_listed_by_what_chooses_them_and_shown_without_their_secrets(
    topic: Topic, database: str, start: Start, here: Requeuing
) -> None:
    settings = environment(topic, database)
    secret = "sk-" + "a1B2c3D4e5F6g7H8" * 2
    told_off = f'{{"session_id":"s","seq":1,"type":7,"payload":{{"key":"{secret}","bell":"\\u0007"}}}}\x1b[2J'.encode()
    produce(
        topic,
        [
            event("s", 0),
            Record(b"garbage", b"k"),
            Record(told_off.removesuffix(b"\x1b[2J"), f"Bearer {secret}".encode()),
            Record(told_off, b"k"),
        ],
    )
    worker = start("worker", environment=settings)
    until_applied(database, topic, 4, worker)
    listed = json.loads(here.run(settings, "dead", "list", "--json")[1])
    assert [(row["position"], row["reason"], row["session_id"]) for row in listed["dead_letters"]] == [
        (3, "json", None),
        (2, "wrong_type", "s"),
        (1, "json", None),
    ]
    assert listed["counts"] == [
        {"reason": "json", "open": 2, "letters": 2},
        {"reason": "wrong_type", "open": 1, "letters": 1},
    ]
    page = here.run(settings, "dead", "list", "--session", "s")[1]
    assert "wrong_type" in page and "garbage" not in page and "json" not in page
    for chosen in (
        ["--reason", "nul"],
        ["--tenant", "other"],
        ["--partition", "3"],
        ["--topic", "other"],
        ["--since", "2090-01-01T00:00:00Z"],
    ):
        assert json.loads(here.run(settings, "dead", "list", *chosen, "--json")[1])["dead_letters"] == []
    for row in listed["dead_letters"]:
        for arguments in ([], ["--json"]):
            shown = here.run(settings, "dead", "show", str(row["id"]), *arguments)[1]
            assert secret not in shown and secret[3:] not in shown
            assert "\x1b" not in shown and "\x07" not in shown
    wanted = next(row["id"] for row in listed["dead_letters"] if row["position"] == 2)
    shown = here.run(settings, "dead", "show", str(wanted))[1]
    assert "reason       wrong_type\nfield        type\n" in shown
    assert '"session_id":"s","seq":1,"type":7' in shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "7"], "there is no dead letter 7"),
        (["requeue", "7"], "there is no dead letter 7"),
        (["requeue"], "say which letters"),
        (["requeue", "7", "--reason", "json"], "say which letters"),
        (["requeue", "--reason", "silly"], "'silly' is no reason of a dead letter"),
        (["requeue", "7", "8", "--fix", "-"], "name exactly one id with --fix"),
        (
            ["requeue", "7", "--fix", "/nowhere/at/all"],
            "cannot read /nowhere/at/all (No such file or directory)",
        ),
        (["list", "--since", "yesterday"], "--since 'yesterday' is no time"),
        (["list", "--since", "2026-01-01T00:00:00"], "is no time"),
        (["resume", "--why", "x"], "say which partition goes on"),
        (["resume", "--all", "--why", "x"], "no partition of turnledger.events stands still"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    database: str, here: Requeuing, arguments: list[str], says: str
) -> None:
    status, out, err = here.run({"TURNLEDGER_DATABASE_URL": database}, "dead", *arguments)
    assert (status, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1
