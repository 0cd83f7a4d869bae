"""`turnledger publish` against a real broker: bytes as they are, keys from the envelopes, refusals as sentences."""

from __future__ import annotations

from pathlib import Path

from tests.fixtures.harness.consumed import consumed
from tests.stack.commands import run
from tests.stack.topics import Topic

ENVELOPES = [
    b'{"session_id":"s1","seq":0,"type":"session.started","odd":  [1.0, "\\u00e9"]}',
    b'{"tenant":"acme","session_id":"s2","seq":0,"type":"x"}',
    b'{"seq":7,"session_id":"s1","type":"y"}',
]


def test_records_arrive_as_the_bytes_that_came_keyed_by_their_envelope(topic: Topic, tmp_path: Path) -> None:
    file = tmp_path / "events.ndjson"
    file.write_bytes(ENVELOPES[0] + b"\r\n\n" + ENVELOPES[1] + b"\n" + ENVELOPES[2])
    done = run("publish", str(file), environment=topic.environment())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("published 3 records (")
    found = consumed(topic)
    assert sorted((each.key, each.value) for each in found) == sorted(
        [(b"default/s1", ENVELOPES[0]), (b"acme/s2", ENVELOPES[1]), (b"default/s1", ENVELOPES[2])]
    )
    assert len({each.partition for each in found if each.key == b"default/s1"}) == 1


def test_standard_input_is_a_file_named_minus(topic: Topic) -> None:
    done = run("publish", "-", environment=topic.environment(), stdin=ENVELOPES[1])
    assert done.returncode == 0, done.stderr
    assert [each.value for each in consumed(topic)] == [ENVELOPES[1]]


def test_a_line_that_is_no_envelope_goes_without_a_key_and_is_counted(topic: Topic) -> None:
    done = run(
        "publish",
        "-",
        environment=topic.environment(),
        stdin=b'{"type":"x"}\nnot json\n' + ENVELOPES[0] + b"\n",
    )
    assert done.returncode == 0, done.stderr
    assert "2 of them name no session" in done.stdout
    assert sorted((each.key or b"", each.value) for each in consumed(topic)) == [
        (b"", b"not json"),
        (b"", b'{"type":"x"}'),
        (b"default/s1", ENVELOPES[0]),
    ]


def test_strict_stops_at_the_first_such_line_and_says_what_has_arrived(topic: Topic) -> None:
    done = run(
        "publish",
        "--strict",
        "-",
        environment=topic.environment(),
        stdin=ENVELOPES[0] + b"\nnot json\n" + ENVELOPES[1],
    )
    assert done.returncode == 2
    assert done.stderr.startswith(
        "turnledger: line 2 is no envelope with a session_id; 1 records before it have arrived"
    )
    assert [each.value for each in consumed(topic)] == [ENVELOPES[0]]


def test_many_records_keep_their_order_within_a_session(topic: Topic) -> None:
    lines = [b'{"session_id":"s%d","seq":%d,"type":"x"}' % (n % 3, n) for n in range(12_000)]
    done = run("publish", "-", environment=topic.environment(), stdin=b"\n".join(lines))
    assert done.returncode == 0, done.stderr
    found = consumed(topic)
    assert len(found) == 12_000
    for session in range(3):
        ours = [each.value for each in found if each.key == b"default/s%d" % session]
        assert ours == [line for n, line in enumerate(lines) if n % 3 == session]


def test_a_broker_that_is_away_is_one_sentence(tmp_path: Path) -> None:
    environment = {"TURNLEDGER_KAFKA_BOOTSTRAP": "127.0.0.1:9", "TURNLEDGER_TOPIC": "t"}
    done = run("publish", "-", environment=environment, stdin=ENVELOPES[0])
    assert done.returncode == 2
    assert done.stderr.startswith("turnledger: the broker at 127.0.0.1:9 does not answer for t")
    assert "Traceback" not in done.stderr


def test_a_file_that_does_not_exist_is_one_sentence(topic: Topic, tmp_path: Path) -> None:
    done = run("publish", str(tmp_path / "none"), environment=topic.environment())
    assert done.returncode == 2
    assert "cannot read" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_record_that_the_broker_refuses_is_named_by_its_line(topic: Topic) -> None:
    large = (
        b'{"session_id":"s1","seq":1,"type":"x","payload":{"t":"'
        + b"".join(b"%07x" % (n * 2654435761 % 2**28) for n in range(900_000))
        + b'"}}'
    )
    done = run("publish", "-", environment=topic.environment(), stdin=ENVELOPES[0] + b"\n" + large)
    if done.returncode != 0:  # a broker that takes it leaves the judgement to the ledger (contract 15)
        assert done.stderr.startswith("turnledger: line 2: ")
        assert "Traceback" not in done.stderr
    assert ENVELOPES[0] in [each.value for each in consumed(topic)]
