"""`turnledger archive` and `replay archive`: history outlives Kafka and Postgres, comes back to the same numbers, and damage is named (issue 7)."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.integration.ingesting import one, rows
from tests.integration.letting_go import (
    apply,
    moved_back,
    numbers,
    rolled_up,
    shuffled,
    verified,
)
from tests.integration.test_requeue import Here, here
from tests.integration.test_vacuum import event, worked
from tests.property.budget import times
from tests.property.fleets import _sown, build, plain
from tests.stack import databases, servers
from turnledger.archive.place import place
from turnledger.archive.write import write
from turnledger.fold.document import document
from turnledger.pricing import packaged, price_call
from turnledger.store.connect import connect

__all__ = ["here"]

SAME = {
    "turns": "select tenant, session_id, turn_key, digest, grade from turnledger.turns order by 1, 2, 3",
    "sessions": "select to_jsonb(s) - 'dead_letters' from turnledger.sessions s order by tenant, session_id",
    "gaps": "select tenant, session_id, producer, epoch, stream, from_seq, to_seq, state from turnledger.gaps "
    "where state not in ('filled_late', 'withdrawn') order by 1, 2, 3, 4, 5, 6",
    "conflicts": "select tenant, session_id, producer, epoch, stream, seq, receipt_key, kept_sha256, lost_sha256 from turnledger.conflicts "
    "order by 1, 2, 3, 4, 5, 6, 7, 9",
    "findings": 'select tenant, session_id, "check", severity, count, rows from turnledger.findings where "check" not in '
    "('dead_letter', 'key_mismatch', 'unpriced_model') order by 1, 2, 3",
    "usage_hourly": "select to_jsonb(u) from turnledger.usage_hourly u order by tenant, hour, provider, model",
    "redactions": "select tenant, session_id, producer, epoch, stream, seq, receipt_key, redactions from turnledger.redactions order by 1, 2, 3, 4, 5, 6, 7",
}
"""What the digest of a ledger covers (contract 17), as its views show it, and what was redacted."""


def told(database: str) -> dict[str, list[tuple[Any, ...]]]:
    return {name: rows(database, statement) for name, statement in SAME.items()}


@pytest.fixture
def empty(stack: servers.Servers, database_template: str) -> Iterator[str]:
    """Another installation, with nothing in it."""
    url = databases.create(stack.database_url, template=database_template)
    yield url
    databases.drop(stack.database_url, url)


def command(here: Here, database: str, *arguments: str, status: int = 0) -> dict[str, Any]:
    """The object that a command prints with --json."""
    found, out, err = here.run({"TURNLEDGER_DATABASE_URL": database}, *arguments, "--json")
    assert found == status, (found, out, err)
    return dict(json.loads(out))


def lines(folder: Path, kind: str = "events") -> list[bytes]:
    """The lines of an archive's files of one kind."""
    found: list[bytes] = []
    for file in sorted(folder.rglob(f"{kind}-*.ndjson.zst")):
        with file.open("rb") as source:
            found += zstandard.ZstdDecompressor().stream_reader(source).read().splitlines()
    return found


def every_kind() -> list[bytes]:
    """Events of two tenants that an archive could lose something of: contradictions, receipts, a delta's text, a secret, breaks between tokens."""
    secret = "sk-ant-" + "a1b2c3d4" * 4
    return [
        *worked("s"),
        event("s", 3, "note", payload={"text": "another word for 3"}),
        event(
            "s",
            12,
            "model_call.delta",
            turn_id="t",
            model_call_id="c",
            payload={"ordinal": 0, "text": "half an ans"},
        ),
        event("s", 13, "note", payload={"text": f"the key is {secret}"}),
        *[event("s", None, "note", receipt_key=f"r{n}", payload={"n": n}) for n in (3, 1, 2)],
        event("s", None, "note", receipt_key="r1", payload={"n": 7}),
        b'{"session_id": "s",\r\n  "seq": 14,\n  "type": "note"}',
        *[raw.replace(b"{", b'{"tenant": "ac/me", ', 1) for raw in worked("s")],
    ]


def test_a_round_trip_into_an_empty_installation_gives_the_same_ledger(
    database: str, empty: str, here: Here, tmp_path: Path
) -> None:
    sent = every_kind()
    apply(database, "log", sent, rounds=2)
    day = moved_back(database, 3)
    verified(database)
    done = command(here, database, "archive", str(tmp_path))["archives"]
    assert [
        (row["tenant"], row["day"], row["events"], row["sessions"], row["conflicts"], row["before"])
        for row in done
    ] == [
        ("ac/me", day.isoformat(), 10, 1, 0, False),
        ("default", day.isoformat(), 16, 1, 2, False),
    ]
    assert (tmp_path / "tenant=ac%2Fme" / f"day={day.isoformat()}" / "manifest.json").exists()
    # Its lines are envelopes: the fold reads them as they are.
    price = partial(price_call, packaged())
    whole, archived = document(sent, price), document(lines(tmp_path), price)
    assert archived["records"]["accepted"] == 26
    assert [turn["digest"] for turn in archived["turns"]] == [turn["digest"] for turn in whole["turns"]]
    assert len(lines(tmp_path, "notes")) == 2  # the delta and the secret

    plan = command(here, empty, "replay", "archive", str(tmp_path), "--dry-run")["archives"]
    assert [(row["accepted"], row["duplicates"]) for row in plan] == [(10, 0), (16, 0)]
    assert rows(empty, "select 1 from turnledger.events") == []
    back = command(here, empty, "replay", "archive", str(tmp_path))["archives"]
    assert [(row["accepted"], row["dead"], row["contradictions"]) for row in back] == [(10, 0, 0), (16, 0, 2)]
    verified(empty)
    assert told(empty) == told(database)
    # Again: nothing is left of it. And what the first ledger has is known there.
    again = command(here, empty, "replay", "archive", str(tmp_path))["archives"]
    assert [(row["before"], row["accepted"], row["duplicates"]) for row in again] == [(10, 0, 0), (16, 0, 0)]
    known = command(here, database, "replay", "archive", str(tmp_path))["archives"]
    assert [(row["accepted"], row["duplicates"], row["unverified"], row["conflicts"]) for row in known] == [
        (0, 10, 0, 0),
        (0, 16, 0, 0),
    ]
    verified(database)


@pytest.mark.parametrize("seed", range(max(1, round(2 * times()) - 1)))
def test_any_fleet_comes_back_as_it_was(
    database: str, empty: str, here: Here, tmp_path: Path, seed: int
) -> None:
    raws = [
        plain(envelope)
        for envelope in build(
            (0, _sown(seed * 31 + 7, 36, frozenset()) + _sown(seed * 97 + 3, 36, frozenset()))
        )
    ]
    apply(database, "log", shuffled(raws, seed), rounds=3)
    moved_back(database, 3)
    verified(database)
    command(here, database, "archive", str(tmp_path))
    command(here, empty, "replay", "archive", str(tmp_path))
    verified(empty)
    assert told(empty) == told(database)


def test_what_a_vacuum_took_stands_in_the_archive_and_is_missing_nowhere(
    database: str, empty: str, here: Here, tmp_path: Path
) -> None:
    apply(database, "log", [*worked("s"), *worked("t")])
    moved_back(database, 3)
    rolled_up(database)
    order = ("retention", "run", "--max-sessions", "0", "--keep-content", "0", "--archived")
    left = command(here, database, *order, status=1)
    assert len(left["left_alone"]) == 2
    command(here, database, "archive", str(tmp_path))
    assert command(here, database, *order)["vacuumed"] == 2
    verified(database)
    # Written once, it is never written over by what is left.
    assert command(here, database, "archive", str(tmp_path))["archives"] == []
    back = command(here, database, "replay", "archive", str(tmp_path))["archives"]
    assert [(row["accepted"], row["unverified"]) for row in back] == [(0, 20)]
    verified(database)
    command(here, empty, "replay", "archive", str(tmp_path))
    verified(empty)
    assert numbers(empty) == numbers(database)


@pytest.fixture(scope="module")
def whole(
    stack: servers.Servers, database_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, str]]:
    """An archive of two tenants' day, and another installation for all that is damaged: of that, nothing may ever come into it."""
    first, other = (databases.create(stack.database_url, template=database_template) for _ in range(2))
    apply(first, "log", every_kind())
    day = moved_back(first, 3)
    folder = tmp_path_factory.mktemp("archive")
    with connect(first, "test", autocommit=True) as connection:
        for tenant in ("default", "ac/me"):
            assert write(connection, place(str(folder)), tenant, day, by="test") is not None
    databases.drop(stack.database_url, first)
    yield folder, other
    databases.drop(stack.database_url, other)


def _flipped(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


@pytest.mark.parametrize(
    ("name", "damage"),
    [("events-00000.ndjson.zst", _flipped), ("events-00000.ndjson.zst", _cut), ("events-00000.ndjson.zst", Path.unlink), ("manifest.json", _flipped)],
    ids=["a bit", "its end", "a file", "the manifest"],
)  # fmt: skip
def test_a_damaged_archive_is_named_and_nothing_of_it_is_loaded_while_the_others_are(
    whole: tuple[Path, str], here: Here, tmp_path: Path, name: str, damage: Any
) -> None:
    given, other = whole
    there = tmp_path / "archive"
    shutil.copytree(given, there)
    (folder,) = (there / "tenant=default").iterdir()
    damage(folder / name)
    found = command(here, other, "archive", str(there), "--check", status=1)
    assert [f"{folder / name}" in sentence for sentence in found["damaged"]] == [True]
    back = command(here, other, "replay", "archive", str(there), status=1)
    sentences = [*back["damaged"], *(row["damaged"] for row in back["archives"] if row["damaged"])]
    assert [f"{folder / name}" in sentence for sentence in sentences] == [True]
    assert rows(other, "select tenant, count(*) from turnledger.events group by 1") == [("ac/me", 10)]


def test_a_day_that_is_open_is_not_written_and_a_folder_without_archives_is_said(
    database: str, here: Here, tmp_path: Path
) -> None:
    apply(database, "log", worked("s"))
    today = one(rows(database, "select ledger.today()"))[0].isoformat()
    settings = {"TURNLEDGER_DATABASE_URL": database}
    assert command(here, database, "archive", str(tmp_path))["archives"] == []
    status, _, err = here.run(settings, "archive", str(tmp_path), "--day", today)
    assert (status, "is not closed" in err) == (2, True)
    status, _, err = here.run(settings, "replay", "archive", str(tmp_path))
    assert (status, "holds no archive" in err) == (2, True)
    status, _, err = here.run(settings, "archive", "nowhere://bucket/folder")
    assert (status, "is no address of files" in err) == (2, True)


def test_a_url_of_another_file_system_is_written_and_read(database: str, empty: str, here: Here) -> None:
    apply(database, "log", worked("s"))
    moved_back(database, 3)
    url = f"memory://bucket/{random.randrange(1 << 32)}"
    (written,) = command(here, database, "archive", url)["archives"]
    assert one(rows(database, "select url, events, digest from turnledger.archives")) == (
        written["url"],
        10,
        written["digest"],
    )
    (back,) = command(here, empty, "replay", "archive", url)["archives"]
    assert back["accepted"] == 10
