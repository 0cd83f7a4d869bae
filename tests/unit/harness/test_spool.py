"""The durable spool: one number, one event, whatever happens; bounds that say what they dropped; one process at a time."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.stack.servers import ROOT
from turnledger.errors import TurnledgerError
from turnledger.harness import AsyncLedger, Ledger, LedgerError, SpoolBroken, SpoolFull, SpoolHeld
from turnledger.harness.outlets import FileOutlet, OutletAway, Row, parse

AWAY = "kafka://127.0.0.1:9"
"""A broker that is not there."""


def lines(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    assert not data or data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def told(events: Sequence[dict[str, Any]]) -> list[Any]:
    """Numbers with what they carry: the text of an event, the range of a declaration."""
    return [
        (e["seq"], e["payload"]["from_seq"], e["payload"]["to_seq"], e["payload"]["reason"])
        if e["type"] == "stream.lost"
        else (e["seq"], e["payload"].get("n"))
        for e in events
    ]


def spooled(path: Path) -> list[dict[str, Any]]:
    db = sqlite3.connect(path)
    try:
        return [json.loads(row[0]) for row in db.execute("SELECT record FROM events ORDER BY position")]
    finally:
        db.close()


def test_an_event_is_in_the_spool_when_emit_returns(tmp_path: Path) -> None:
    ledger = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool")
    for n in range(3):
        assert ledger.emit("x.y", {"n": n}) == n
        assert told(spooled(tmp_path / "spool"))[-1] == (n, n)
    ledger.close(seconds=0)


def test_a_sink_gets_all_in_order_and_the_spool_is_empty_then(tmp_path: Path) -> None:
    with Ledger(
        session_id="s", tenant="acme", sink=f"file:{tmp_path}/events", spool=tmp_path / "spool"
    ) as ledger:
        for n in range(1200):
            ledger.emit("x.y", {"n": n})
        ledger.flush()
        assert told(lines(tmp_path / "events")) == [(n, n) for n in range(1200)]
        assert spooled(tmp_path / "spool") == []


async def test_the_async_form_does_the_same(tmp_path: Path) -> None:
    async with AsyncLedger(
        session_id="s", sink=f"file:{tmp_path}/events", spool=tmp_path / "spool"
    ) as ledger:
        assert await asyncio.gather(*(ledger.emit("x.y", {"n": n}) for n in range(50))) == list(range(50))
        await ledger.flush()
        assert told(lines(tmp_path / "events")) == [(n, n) for n in range(50)]
    await ledger.close()


def test_threads_share_one_sequence_and_the_file_has_its_order(tmp_path: Path) -> None:
    with Ledger(session_id="s", sink=f"file:{tmp_path}/events", spool=tmp_path / "spool") as ledger:
        threads = [
            threading.Thread(target=lambda: [ledger.emit("x.y") for _ in range(100)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [e["seq"] for e in lines(tmp_path / "events")] == list(range(400))


def test_with_the_spool_the_numbering_goes_on_and_what_waited_arrives(tmp_path: Path) -> None:
    epochs = []
    for start in (0, 2, 4):
        ledger = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool")
        epochs.append(ledger.epoch)
        assert [ledger.emit("x.y", {"n": start + k}) for k in (0, 1)] == [start, start + 1]
        ledger.close(seconds=0)
    assert len(set(epochs)) == 1
    with Ledger(session_id="s", sink=f"file:{tmp_path}/events", spool=tmp_path / "spool"):
        pass
    assert told(lines(tmp_path / "events")) == [(n, n) for n in range(6)]


def test_an_empty_spool_continues_too(tmp_path: Path) -> None:
    for n in range(3):
        with Ledger(session_id="s", sink=f"file:{tmp_path}/events", spool=tmp_path / "spool") as ledger:
            assert ledger.emit("x.y", {"n": n}) == n
    assert told(lines(tmp_path / "events")) == [(0, 0), (1, 1), (2, 2)]


def test_without_the_spool_a_later_epoch_begins(tmp_path: Path) -> None:
    epochs = []
    for name in ("one", "two"):
        with Ledger(session_id="s", sink=f"file:{tmp_path}/events", spool=tmp_path / name) as ledger:
            assert ledger.emit("x.y") == 0
            epochs.append(ledger.epoch)
    assert epochs[0] < epochs[1]


def test_a_given_epoch_has_numbers_of_its_own(tmp_path: Path) -> None:
    for epoch, first in ((7, 0), (8, 0), (7, 1), (None, 1)):
        ledger = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool", epoch=epoch)
        assert (ledger.epoch, ledger.emit("x.y")) == (8 if epoch is None else epoch, first)
        ledger.close(seconds=0)


def test_a_spool_keeps_streams_apart_and_sends_those_of_others(tmp_path: Path) -> None:
    for session in ("a", "b"):
        ledger = Ledger(session_id=session, sink=AWAY, spool=tmp_path / "spool")
        assert ledger.emit("x.y") == 0
        ledger.close(seconds=0)
    with Ledger(session_id="c", sink=f"file:{tmp_path}/events", spool=tmp_path / "spool"):
        pass
    assert [(e["session_id"], e["seq"]) for e in lines(tmp_path / "events")] == [("a", 0), ("b", 0)]


def test_an_event_that_the_ledger_would_refuse_costs_no_number(tmp_path: Path) -> None:
    ledger = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool")
    with pytest.raises(LedgerError, match="not JSON"):
        ledger.emit("x.y", {"bad": object()})
    assert ledger.emit("x.y") == 0
    ledger.close(seconds=0)


def test_every_sink_gets_everything_and_the_slowest_one_keeps_the_rows(tmp_path: Path) -> None:
    sinks = [f"file:{tmp_path}/one", f"file:{tmp_path}/no/two"]
    ledger = Ledger(session_id="s", sink=sinks, spool=tmp_path / "spool")
    ledger.emit("x.y", {"n": 1})
    with pytest.raises(LedgerError, match=r"1 events have not arrived.*/no/two does not take events"):
        ledger.flush(seconds=0.5)
    assert told(lines(tmp_path / "one")) == [(0, 1)]
    assert told(spooled(tmp_path / "spool")) == [(0, 1)]
    (tmp_path / "no").mkdir()
    ledger.flush(seconds=20)
    ledger.close()
    assert told(lines(tmp_path / "one")) == told(lines(tmp_path / "no" / "two")) == [(0, 1)]
    assert spooled(tmp_path / "spool") == []


# -- bounds


def size_of_one(tmp_path: Path) -> int:
    ledger = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "measure")
    ledger.emit("x.y", {"n": 0})
    ledger.close(seconds=0)
    db = sqlite3.connect(tmp_path / "measure")
    (size,) = db.execute("SELECT length(record) FROM events").fetchone()
    db.close()
    return int(size)


def test_what_a_full_spool_drops_is_declared_exactly(tmp_path: Path) -> None:
    bound = 5 * size_of_one(tmp_path)
    ledger = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool", spool_bytes=bound)
    assert [ledger.emit("x.y", {"n": n}) for n in range(8)] == list(range(8))
    ledger.close(seconds=0)
    kept = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (8, 5, 7, "spool_full")]
    assert told(spooled(tmp_path / "spool")) == kept
    with Ledger(session_id="s", sink=f"file:{tmp_path}/events", spool=tmp_path / "spool") as ledger:
        ledger.flush()
        assert ledger.emit("x.y", {"n": 9}) == 9
    assert told(lines(tmp_path / "events")) == [*kept, (9, 9)]


def test_a_declaration_comes_before_the_first_event_that_fits_again(tmp_path: Path) -> None:
    bound = 5 * size_of_one(tmp_path)
    sink = tmp_path / "no" / "events"
    ledger = Ledger(session_id="s", sink=f"file:{sink}", spool=tmp_path / "spool", spool_bytes=bound)
    for n in range(7):
        ledger.emit("x.y", {"n": n})
    sink.parent.mkdir()
    with ledger._spooled._spool.confirmed:  # type: ignore[union-attr]
        assert ledger._spooled._spool.confirmed.wait(20)  # type: ignore[union-attr]
    ledger.emit("x.y", {"n": "after"})
    ledger.close()
    assert told(lines(sink)) == [*((n, n) for n in range(5)), (7, 5, 6, "spool_full"), (8, "after")]


def test_a_kill_between_a_drop_and_its_declaration_loses_no_word_of_it(tmp_path: Path) -> None:
    bound = 3 * size_of_one(tmp_path)
    program = (
        "import os, signal, sys\nfrom turnledger.harness import Ledger\n"
        "ledger = Ledger(session_id='s', sink=sys.argv[1], spool=sys.argv[2], spool_bytes=int(sys.argv[3]))\n"
        "for n in range(5): ledger.emit('x.y', {'n': n})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, AWAY, tmp_path / "spool", str(bound)], check=False)
    assert done.returncode == -9
    ledger = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool")
    ledger.close(seconds=0)
    assert told(spooled(tmp_path / "spool")) == [(0, 0), (1, 1), (2, 2), (5, 3, 4, "spool_full")]


def test_a_full_spool_raises_when_told_to_and_spends_no_number(tmp_path: Path) -> None:
    bound = 2 * size_of_one(tmp_path)
    ledger = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool", spool_bytes=bound, on_full="raise")
    assert [ledger.emit("x.y", {"n": n}) for n in range(2)] == [0, 1]
    with pytest.raises(SpoolFull, match="its bound is"):
        ledger.emit("x.y", {"n": 2})
    ledger.close(seconds=0)
    with Ledger(session_id="s", sink=f"file:{tmp_path}/events", spool=tmp_path / "spool") as ledger:
        assert ledger.emit("x.y", {"n": "after"}) == 2
    assert told(lines(tmp_path / "events")) == [(0, 0), (1, 1), (2, "after")]


async def test_what_is_too_old_is_dropped_and_declared_but_no_declaration_is(tmp_path: Path) -> None:
    bound = 3 * size_of_one(tmp_path)
    ledger = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool", spool_bytes=bound)
    for n in range(4):
        ledger.emit("x.y", {"n": n})
    ledger.close(seconds=0)
    old = sqlite3.connect(tmp_path / "spool")
    with old:
        old.execute("UPDATE events SET at = at - 1000")
    old.close()
    unstarted = AsyncLedger(
        session_id="s", sink=AWAY, spool=tmp_path / "spool"
    )  # no sender that looks by itself
    await unstarted.emit("x.y", {"n": "young"})
    assert unstarted._spooled is not None and unstarted._spooled._spool.expire(900) == 3
    await unstarted.close(seconds=0)
    assert told(spooled(tmp_path / "spool")) == [
        (4, 3, 3, "spool_full"),
        (5, "young"),
        (6, 0, 2, "spool_age"),
    ]


def test_the_sender_looks_for_what_is_too_old_while_a_sink_is_away(tmp_path: Path) -> None:
    ledger = Ledger(
        session_id="s", sink=f"file:{tmp_path}/no/x", spool=tmp_path / "spool", spool_age_seconds=0.2
    )
    ledger.emit("x.y", {"n": 0})
    until = time.monotonic() + 20
    while told(spooled(tmp_path / "spool")) != [(1, 0, 0, "spool_age")]:
        assert time.monotonic() < until
        time.sleep(0.1)
    ledger.close(seconds=0)


# -- a disk without room


def fill(ledger: Ledger) -> sqlite3.Connection:
    """Let the spool's database grow no more, as SQLite says it of a full disk."""
    db = ledger._spooled._spool._db  # type: ignore[union-attr]
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {pages}")
    return db


def fill_to_the_brim(ledger: Ledger) -> tuple[sqlite3.Connection, int]:
    """And emit until nothing fits; the connection and the last number that did."""
    db, (before, seq) = fill(ledger), (-1, -1)
    while True:
        before, seq = seq, ledger.emit("x.y", {"pad": "p" * 3000})
        if told(spooled(ledger._spooled._spool.path))[-1][0] != seq:  # type: ignore[union-attr]
            return db, before


def test_a_full_disk_raises_when_told_to_and_spends_no_number(tmp_path: Path) -> None:
    ledger = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool", on_full="raise")
    db = fill(ledger)
    numbers = []
    with pytest.raises(SpoolFull, match="disk of the spool"):
        for _ in range(100):
            numbers.append(ledger.emit("x.y", {"pad": "p" * 3000}))
    db.execute("PRAGMA max_page_count = 100000")
    assert ledger.emit("x.y") == len(numbers)
    ledger.close(seconds=0)
    assert [e["seq"] for e in spooled(tmp_path / "spool")] == list(range(len(numbers) + 1))


def test_what_a_full_disk_drops_is_declared_when_there_is_room(tmp_path: Path) -> None:
    ledger = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool")
    db, last = fill_to_the_brim(ledger)
    ledger.emit("x.y", {"pad": "p" * 3000})
    db.execute("PRAGMA max_page_count = 100000")
    assert ledger.emit("x.y", {"n": "after"}) == last + 4
    ledger.close(seconds=0)
    assert told(spooled(tmp_path / "spool"))[-3:] == [
        (last, None),
        (last + 3, last + 1, last + 2, "spool_full"),
        (last + 4, "after"),
    ]


def test_what_was_dropped_when_not_even_the_drop_could_be_written_is_declared_by_the_next(
    tmp_path: Path,
) -> None:
    ledger = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool")
    ledger.emit("x.y", {"n": 0})
    ledger._spooled._sender.stop()  # type: ignore[union-attr]
    spool = ledger._spooled._spool  # type: ignore[union-attr]

    class Full:
        """A connection whose every write meets a full disk."""

        in_transaction = False

        def execute(self, statement: str, *_: object) -> object:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    whole, spool._db = spool._db, Full()  # type: ignore[assignment]
    assert [ledger.emit("x.y", {"n": n}) for n in (1, 2)] == [1, 2]
    atexit.unregister(ledger._close_at_exit)
    os.close(spool._held)  # the process ends here
    whole.close()
    ledger = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool")
    assert ledger.emit("x.y", {"n": "after"}) == 4
    ledger.close(seconds=0)
    assert told(spooled(tmp_path / "spool")) == [(0, 0), (3, 1, 2, "spool_full"), (4, "after")]


# -- one process, one spool


def test_a_second_process_on_a_spool_is_refused_in_a_sentence(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom turnledger.harness import Ledger, SpoolHeld\n"
        "try: Ledger(session_id='s', sink=sys.argv[1], spool=sys.argv[2])\n"
        "except SpoolHeld as error: print(error)\n"
    )
    with Ledger(session_id="s", sink=f"file:{tmp_path}/events", spool=tmp_path / "spool") as ledger:
        done = subprocess.run(
            [sys.executable, "-c", program, AWAY, tmp_path / "spool"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert ledger.emit("x.y") == 0
    assert re.search(rf"is in use by process {os.getpid()}: end that one", done.stdout), done


def test_a_second_ledger_of_the_process_is_refused_and_a_closed_one_lets_go(tmp_path: Path) -> None:
    first = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool")
    with pytest.raises(SpoolHeld):
        Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool")
    first.close(seconds=0)
    Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool").close(seconds=0)


def test_a_fork_may_not_emit(tmp_path: Path) -> None:
    ledger = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool")
    ledger._spooled._spool._owner += 1  # type: ignore[union-attr]
    with pytest.raises(LedgerError, match="is a fork of it"):
        ledger.emit("x.y")
    ledger._spooled._spool._owner -= 1  # type: ignore[union-attr]
    ledger.close(seconds=0)


def test_a_fork_that_outlives_its_parent_keeps_no_spool_and_ends_nothing_of_it(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, time\nfrom turnledger.harness import Ledger\n"
        "ledger = Ledger(session_id='s', sink=sys.argv[1], spool=sys.argv[2])\n"
        "ledger.turn(turn_id='t').start()\n"
        "if os.fork() == 0:\n"
        "    print(os.getpid(), flush=True); time.sleep(1.0); sys.exit(0)\n"  # atexit runs in it
        "time.sleep(0.3); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.Popen([sys.executable, "-c", program, AWAY, tmp_path / "spool"], stdout=subprocess.PIPE)
    assert done.wait(timeout=60) == -9
    assert done.stdout is not None
    child = int(done.stdout.readline())
    os.kill(child, 0)  # it is still there
    ledger = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool")
    assert done.stdout.read() == b""  # and now it is not
    assert ledger.emit("x.y") == 1
    ledger.close(seconds=0)
    assert [e["type"] for e in spooled(tmp_path / "spool")] == ["turn.started", "x.y"]


def test_emit_after_close_is_a_sentence(tmp_path: Path) -> None:
    ledger = Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool")
    ledger.close(seconds=0)
    ledger.close()
    with pytest.raises(LedgerError, match="is closed"):
        ledger.emit("x.y")


# -- what cannot be


def test_something_else_is_no_spool_and_is_left_alone(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "spool")
    other.execute("CREATE TABLE mine (x)")
    other.close()
    with pytest.raises(SpoolBroken, match="database of something else"):
        Ledger(session_id="s", sink=AWAY, spool=tmp_path / "spool")
    (tmp_path / "text").write_text("this is text, and long enough to be no empty file at all" * 20)
    with pytest.raises(SpoolBroken, match="cannot be read or written"):
        Ledger(session_id="s", sink=AWAY, spool=tmp_path / "text")
    with pytest.raises(SpoolBroken, match="make its folder"):
        Ledger(session_id="s", sink=AWAY, spool=tmp_path / "no" / "spool")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sink": "file:/tmp/x"}, "needs a spool"),
        ({"sink": [AWAY, "kafka://127.0.0.1:10"]}, "needs a spool"),
        ({"sink": AWAY, "on_full": "raise"}, "bound a spool"),
        ({"sink": AWAY, "spool": "x", "on_full": "wait"}, "'drop' or 'raise'"),
        ({"sink": AWAY, "spool": "x", "spool_bytes": 0}, "holds nothing"),
        ({"sink": [], "spool": "x"}, "one sink or more"),
        ({"sink": [AWAY, AWAY], "spool": "x"}, "each once"),
        ({"sink": "file:", "spool": "x"}, "names no file"),
        ({"sink": "file://host/x", "spool": "x"}, "names a host"),
        ({"sink": "https://collector"}, "needs a spool"),
        ({"sink": "ftp://collector", "spool": "x"}, "kafka://host:port"),
        ({"sink": "http://collector.example", "spool": "x"}, "in the clear"),
        ({"sink": "https://me:secret@collector", "spool": "x"}, "set TURNLEDGER_COLLECTOR_TOKEN"),
        ({"sink": "https://", "spool": "x"}, "no address of a collector"),
        ({"sink": "https://collector:port", "spool": "x"}, "no address of a collector"),
    ],
)
def test_what_does_not_go_together_is_a_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(TurnledgerError, match=said):
        Ledger(session_id="s", **given)


# -- the file


def test_a_file_is_an_absolute_path_afterwards() -> None:
    assert str(parse("file:///var/x.ndjson")) == "file:/var/x.ndjson"
    assert str(parse("file:x.ndjson")) == f"file:{Path.cwd()}/x.ndjson"


def rows(*texts: bytes) -> list[Row]:
    return [Row(n + 1, 1, n, b"default/s", text) for n, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("there", "offset", "after"),
    [
        (b"", 0, b"one\ntwo\n"),
        (b"x\n", 2, b"x\none\ntwo\n"),
        (b"x\non", 2, b"x\none\ntwo\n"),
        (b"x\none\ntw", 2, b"x\none\ntwo\n"),
        (b"x\none\ntwo\n", 2, b"x\none\ntwo\n"),
        (b"x\nother", 2, b"x\nother\none\ntwo\n"),
        (b"x\nother\n", 2, b"x\nother\none\ntwo\n"),
        (b"cut", 3, b"cut\none\ntwo\n"),
        (b"x\n", 900, b"x\none\ntwo\n"),
    ],
)
async def test_what_a_crash_left_of_a_batch_is_completed(
    tmp_path: Path, there: bytes, offset: int, after: bytes
) -> None:
    path = tmp_path / "events"
    path.write_bytes(there)
    outlet = FileOutlet(path)
    assert await outlet.open() == len(there)
    assert await outlet.send(rows(b"one", b"two"), offset) == len(after)
    assert await outlet.send(rows(b"three"), len(after)) == len(after) + 6
    await outlet.close()
    assert path.read_bytes() == after + b"three\n"


async def test_a_file_has_one_writer(tmp_path: Path) -> None:
    first, second = FileOutlet(tmp_path / "events"), FileOutlet(tmp_path / "events")
    await first.open()
    with pytest.raises(OutletAway, match="another Ledger"):
        await second.open()
    await first.close()
    await second.open()
    await second.close()


# -- kill -9

POINTS = int(os.environ.get("TURNLEDGER_KILLS", "40"))
"""Seeds; each kills two processes, at points of their own."""


def test_a_kill_at_any_point_loses_nothing_that_emit_returned_for(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.harness.killed", tmp_path, "0", str(POINTS)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
        timeout=60 + 5 * POINTS,
    )
    fates = done.stdout.splitlines()
    assert fates == [f"{seed} {life} killed" for seed in range(POINTS) for life in (0, 1)], done.stderr
    cut_short = 0
    for seed in range(POINTS):
        folder = tmp_path / str(seed)
        with Ledger(session_id="s", sink=f"file:{folder}/events", spool=folder / "spool") as ledger:
            last = ledger.emit("message.recorded", {"role": "user", "text": "end"})
        found = lines(folder / "events")
        # Dense and once: no number twice, none left out, in the order of the numbers, one epoch.
        assert [e["seq"] for e in found] == list(range(last + 1)), seed
        assert {e["epoch"] for e in found} == {ledger.epoch}, seed
        returned = [line.split() for line in (folder / "returned").read_text().splitlines()]
        carried = {(str(e["epoch"]), str(e["seq"])): e["payload"]["text"] for e in found}
        assert [carried[epoch, seq] for epoch, seq, _ in returned] == [what for _, _, what in returned], seed
        # Beside them at most the one event of each life that was stored and not answered for.
        assert 0 <= len(found) - 1 - len(returned) <= 2, seed
        cut_short += len(returned) < 240
    assert cut_short == POINTS
