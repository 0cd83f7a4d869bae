"""`turnledger retention run`: what may go goes, in any order of kills; who did it and why is written down; days that nobody needs are dropped."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests.integration.ingesting import one, rows
from tests.integration.letting_go import apply, execute, moved_back, numbers, rolled_up, shuffled, verified
from tests.integration.test_requeue import Here, here
from tests.integration.test_vacuum import event, worked
from tests.property.budget import times

__all__ = ["here"]


def retention(here: Here, database: str, *arguments: str, status: int = 0) -> dict[str, Any]:
    """The object that `retention run --json` prints."""
    settings = {"TURNLEDGER_DATABASE_URL": database}
    found, out, err = here.run(settings, "retention", "run", *arguments, "--json")
    assert found == status, err
    return dict(json.loads(out))


def aged(database: str, session: str, days: int) -> None:
    """Nothing of the session came for so many days."""
    execute(
        database,
        "update ledger.streams st set updated_at = now() - make_interval(days => %s) from ledger.sessions s "
        "where s.session_no = st.session_no and s.session_id = %s",
        days,
        session,
    )


def test_a_dry_run_lists_and_a_run_does_it_says_who_and_why_and_twice_is_once(
    database: str, here: Here
) -> None:
    apply(
        database,
        "log",
        [*worked("old"), *worked("older", persistent=True), *worked("young"), *worked("alive")[:-1]],
    )
    rolled_up(database)
    day = moved_back(database, 40)
    for name in ("old", "older", "alive"):
        aged(database, name, 40)
    aged(database, "young", 3)
    before = numbers(database)
    rules = ("--age", "30d", "--keep-content", "0")
    plan = retention(here, database, *rules, "--dry-run")
    assert [(row["session_id"], row["rule"]) for row in plan["chosen"]] == [("old", "age")]
    assert (plan["sessions"], plan["running"], plan["persistent"], plan["days"]) == (4, 1, 1, [])
    assert rows(database, "select 1 from turnledger.retention_runs") == []

    done = retention(here, database, *rules, "--why", "a month is enough", "--by", "ada")
    assert (done["vacuumed"], done["events"], done["left_alone"], done["days"]) == (1, 10, [], [])
    found = one(
        rows(
            database,
            "select state, run_by, why, rules ->> 'age', chosen, vacuumed, left_alone, events from turnledger.retention_runs",
        )
    )
    assert found == ("ended", "ada", "a month is enough", "2592000s", 1, 1, 0, 10)
    assert one(rows(database, "select run, vacuumed_by, why from turnledger.vacuums")) == (
        done["run_no"],
        "ada",
        "a month is enough",
    )
    again = retention(here, database, *rules)
    assert (again["chosen"], again["vacuumed"], again["sessions"]) == ([], 0, 3)
    verified(database)
    assert numbers(database) == before

    # Of the last three, two may go: then nothing but the running one holds the day.
    execute(
        database,
        "update ledger.events set raw = replace(convert_from(raw, 'UTF8'), 'true', 'false')::bytea where type = 'session.started'",
    )
    aged(database, "young", 40)
    apply(database, "end", [event("alive", 9, "session.ended", payload={"status": "lost"})])
    rolled_up(database)
    aged(database, "alive", 40)
    plan = retention(here, database, *rules, "--dry-run")
    assert {row["session_id"] for row in plan["chosen"]} == {"older", "young", "alive"}
    assert plan["days"] == [day.isoformat()]
    done = retention(here, database, *rules)
    assert done["days"] == [day.isoformat()]
    partition = f"events_{day:%Y%m%d}"
    assert rows(database, "select 1 from pg_class where relname = %s", partition) == []
    verified(database)
    assert apply(database, "again", worked("young")).unverified == 10
    verified(database)


def test_a_session_that_is_not_archived_is_left_alone_where_that_is_asked_for(
    database: str, here: Here
) -> None:
    apply(database, "log", worked("s"))
    rolled_up(database)
    aged(database, "s", 40)
    done = retention(here, database, "--age", "30d", "--keep-content", "0", "--archived", status=1)
    (left,) = done["left_alone"]
    assert left["why"].startswith("no archive holds what came on ")
    assert one(rows(database, "select count(*) from turnledger.events")) == (10,)


@pytest.mark.parametrize("seed", range(max(1, round(times()))))
def test_a_run_that_is_killed_leaves_every_session_whole_or_gone_and_the_next_one_ends_it(
    database: str, here: Here, seed: int
) -> None:
    chance = random.Random(seed)
    sent = [raw for number in range(30) for raw in worked(f"s{number:02d}")]
    apply(database, "log", sent, rounds=5)
    rolled_up(database)
    execute(database, "update ledger.streams set updated_at = now() - interval '40 days'")
    before = numbers(database)
    command = [sys.executable, "-m", "turnledger", "retention", "run", "--age", "30d", "--keep-content", "0"]
    environment = {"TURNLEDGER_DATABASE_URL": database, "PATH": ""}
    running = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wanted = chance.randint(1, 8)
    until = time.monotonic() + 60
    while running.poll() is None and time.monotonic() < until:
        if one(rows(database, "select count(*) from ledger.vacuums"))[0] >= wanted:
            break
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    gone = one(rows(database, "select count(*) from ledger.vacuums"))[0]
    assert gone
    verified(database)
    assert numbers(database) == before
    done = retention(here, database, "--age", "30d", "--keep-content", "0")
    assert done["vacuumed"] == 30 - gone
    states = rows(database, "select state, vacuumed, events from turnledger.retention_runs order by run")
    assert states == [("interrupted", gone, 10 * gone), ("ended", 30 - gone, 300 - 10 * gone)]
    again = apply(database, "again", shuffled(sent, seed), rounds=3)
    assert (again.duplicates, again.unverified) == (300, 300)
    verified(database)
    assert numbers(database) == before


def test_two_runs_at_once_are_one(database: str, here: Here) -> None:
    import psycopg

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("select pg_advisory_lock(hashtextextended('turnledger.retention', 0))")
        settings = {"TURNLEDGER_DATABASE_URL": database}
        status, _, err = here.run(settings, "retention", "run", "--age", "30d")
    assert status == 2
    assert "another retention run is under way" in err
