"""`turnledger fold` as a person runs it: files in order as one partition, standard input, exit status and one object on standard output."""

from __future__ import annotations

import json
from pathlib import Path

from tests.stack.commands import run

FIRST = b'{"session_id":"s","seq":0,"type":"session.started","payload":{"name":"demo"}}'
SECOND = b'{"session_id":"s","seq":1,"type":"turn.started","turn_id":"t"}'


def test_files_in_the_order_given_are_one_partition(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(FIRST)
    two.write_bytes(SECOND + b"\nno json\n" + FIRST + b"\n")
    done = run("fold", str(one), str(two), "--json", environment={})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["records"] == {"read": 4, "accepted": 2, "duplicates": 1, "conflicts": 0, "dead": 1}
    assert [letter["position"] for letter in found["dead_letters"]] == [3]


def test_a_dash_is_standard_input() -> None:
    done = run("fold", "-", "--json", environment={}, stdin=FIRST)
    assert json.loads(done.stdout)["sessions"][0]["name"] == "demo"
    assert done.stderr == ""


def test_what_cannot_be_read_is_a_sentence_and_status_2(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        done = run("fold", str(path), "--json", environment={})
        assert done.returncode == 2
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"turnledger: cannot read {path}")


def test_without_json_a_person_reads_a_summary(tmp_path: Path) -> None:
    file = tmp_path / "events"
    file.write_bytes(FIRST + b"\n" + SECOND + b"\nno json\n")
    done = run("fold", str(file), environment={})
    assert done.returncode == 0
    assert "3 records: 2 accepted, 0 duplicates, 0 conflicts, 1 dead" in done.stdout
    assert "dead letters" in done.stdout
