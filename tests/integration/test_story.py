"""`turnledger sessions timeline` on a real ledger: the order of contract 5, in memory that does not grow with the session."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.integration.projected import call, lengthen, lines, plain
from tests.integration.test_rollup import drain, project
from tests.stack import databases, servers
from tests.stack.ledger_rows import put_events
from tests.stack.servers import environment_without_addresses
from turnledger.cli import build
from turnledger.contract.event import Event
from turnledger.doctor.sessions import NoSuchSession
from turnledger.doctor.showing import NoSuchPart
from turnledger.fold.order import ordered
from turnledger.fold.turns import superseded_streams
from turnledger.store.connect import connect
from turnledger.store.read import active_slot
from turnledger.store.story import emitted, story


@pytest.fixture(scope="module")
def url(stack: servers.Servers, database_template: str) -> Iterator[str]:
    address = databases.create(stack.database_url, template=database_template)
    yield address
    databases.drop(stack.database_url, address)


@pytest.fixture
def link(url: str) -> Iterator[psycopg.Connection[Any]]:
    with connect(url, "test", autocommit=True) as connection:
        yield connection


def place(event: Event) -> tuple[Any, ...]:
    return event.producer, event.stream, event.epoch, event.seq, event.receipt_key


def drawn(chance: random.Random) -> list[dict[str, Any]]:
    """Streams of several epochs and producers, clocks that go back, stand still or are not known, events without numbers, a superseded stream."""
    envelopes: dict[Any, dict[str, Any]] = {}
    for _ in range(chance.randrange(60)):
        lane = {
            "producer": chance.choice(["harness", "Harness", "écouteur", "a b"]),
            "epoch": chance.randrange(3),
            "stream": chance.choice(["ledger", "ledger2", "名"]),
        }
        identity = chance.choice(
            [
                {"seq": chance.randrange(12)},
                {"seq": chance.randrange(12)},
                {"receipt_key": chance.choice(["a", "B", "é", "ab"])},
            ]
        )
        known = chance.random() < 0.7
        at = (
            {"occurred_at": f"2026-03-01T12:00:0{chance.randrange(6)}.{chance.randrange(3)}Z"}
            if known
            else {}
        )
        envelopes[(*lane.values(), *identity.items())] = {"type": "note", **lane, **identity, **at}
    if chance.random() < 0.3:
        named = {"producer": "harness", "epoch": 1, "stream": "ledger", "reason": "read again"}
        envelopes["said"] = {"type": "stream.superseded", "stream": "other", "seq": 0, "payload": named}
    return chance.sample(list(envelopes.values()), len(envelopes))


def test_the_database_orders_as_the_fold_does(link: psycopg.Connection[Any]) -> None:
    for seed in range(30):
        found, events = put_events(link, f"order-{seed}", drawn(random.Random(seed)))
        left_out = superseded_streams(events)
        kept = [one for one in events if (one.producer, one.epoch, one.stream) not in left_out]
        told = [one for page in story(link, found.session_no) for one in page]
        expected = ordered(kept)
        assert [place(one) for one in told] == [place(one) for one in expected], seed
        assert [one.running for one in told] == [one.running for one in expected], seed


def test_pages_follow_each_other_and_types_narrow_them(
    link: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnledger.store.story.PAGE", 7)
    found, _ = put_events(link, "paged", ({"type": f"t{n % 2}", "seq": n} for n in range(50)))
    pages = list(story(link, found.session_no))
    assert [len(page) for page in pages] == [7, 7, 7, 7, 7, 7, 7, 1]
    assert [one.seq for page in pages for one in page] == list(range(50))
    assert [one.seq for page in story(link, found.session_no, types=["t1"]) for one in page] == list(
        range(1, 50, 2)
    )


def test_a_page_asks_for_the_tools_of_its_own_turns(link: psycopg.Connection[Any]) -> None:
    """Ids of calls begin from 1 in every turn: asked by id alone, each page would bring those of the whole session."""
    turns = [{"turn_id": "a"}, {"turn_id": "b"}, {"turn_index": 2}]
    kinds = ["turn.started", "model_call.completed", "tool_call.requested"]
    envelopes = [
        {"type": kind, "seq": 3 * n + at, **turn}
        | ({"model_call_id": "1"} if at else {})
        | ({"tool_call_id": "t", "payload": {"tool_name": "bash"}} if at == 2 else {})
        for n, turn in enumerate(turns)
        for at, kind in enumerate(kinds)
    ]
    found, _ = put_events(link, "numbered-anew", envelopes)
    project(link, [json.dumps({"session_id": "numbered-anew", **one}).encode() for one in envelopes])
    spoken = {
        (one.turn_id, one.turn_index): one
        for page in story(link, found.session_no, types=["model_call.completed"])
        for one in page
    }
    slot = active_slot(link)

    def asked(*named: Any) -> list[Any]:
        return sorted(emitted(link, slot, found.session_no, [spoken[one] for one in named]), key=str)

    b, third = ("b", None, "1", 1), (None, 2, "1", 1)
    assert asked(("b", None)) == [b]
    assert asked((None, 2)) == [third]
    assert asked(("b", None), (None, 2)) == [b, third]


def test_nobody_is_kept_waiting_while_a_person_reads(link: psycopg.Connection[Any], url: str) -> None:
    found, _ = put_events(link, "read", ({"type": "note", "seq": n} for n in range(3)))
    pages = story(link, found.session_no)
    next(pages)
    with psycopg.connect(url, autocommit=True) as other:
        snapshots = other.execute(
            "select count(*) from pg_stat_activity where application_name = 'turnledger test' and datname = current_database() "
            "and (backend_xmin is not null or state <> 'idle')"
        ).fetchone()
    assert snapshots == (0,)
    pages.close()


def command(url: str, *arguments: str, of: str = "timeline", columns: int = 120) -> Result:
    environment = {"TURNLEDGER_DATABASE_URL": url, "COLUMNS": str(columns)}
    return CliRunner().invoke(build(), ["sessions", of, *arguments], env=environment)


def test_a_timeline_is_lines_for_people_and_one_object_for_scripts(
    link: psycopg.Connection[Any], url: str
) -> None:
    put_events(
        link,
        "told",
        [
            {"type": "turn.started", "seq": 0, "turn_id": "t"},
            {"type": "message.recorded", "seq": 1, "turn_id": "t", "payload": {"role": "user", "text": "Go \x1b[2J"}},
            {"type": "tool_call.requested", "seq": 2, "tool_call_id": "1", "payload": {"tool_name": "bash", "arguments": {"c": "ls"}}},
            {"type": "tool_call.completed", "seq": 3, "tool_call_id": "1", "payload": {"status": "ok", "preview": "a.txt\nb.txt"}},
            {"type": "message.recorded", "seq": 4, "turn_id": "t", "payload": {"role": "assistant", "text": "Two files.", "tool_calls": 0}},
            {"type": "fs.changed", "seq": 5, "payload": {"action": "read", "path": "a.txt"}},
        ],
    )  # fmt: skip
    assert command(url, "told").stdout.splitlines() == [
        '[0] USER "Go \\x1b[2J"',
        '[1] TOOL bash {"c":"ls"}',
        "[2] RES bash a.txt b.txt",
        '[3] ASST tool_calls=0 "Two files."',
    ]
    assert command(url, "told", "--from", "1", "-n", "2").stdout.splitlines() == [
        '[1] TOOL bash {"c":"ls"}',
        "[2] RES bash a.txt b.txt",
    ]
    assert command(url, "told", "--last", "1").stdout == '[3] ASST tool_calls=0 "Two files."\n'
    assert command(url, "told", "--all").stdout.splitlines()[-1] == "[5] fs.changed read a.txt"
    object_ = json.loads(command(url, "told", "--all", "--json").stdout)
    assert (object_["tenant"], object_["session_id"]) == ("default", "told")
    assert [(line["n"], line["code"], line["seq"]) for line in object_["lines"]] == [
        (0, "turn.started", 0),
        (1, "USER", 1),
        (2, "TOOL", 2),
        (3, "RES", 3),
        (4, "ASST", 4),
        (5, "fs.changed", 5),
    ]
    assert object_["lines"][5]["payload"] == {"action": "read", "path": "a.txt"}
    assert isinstance(command(url, "nobody").exception, NoSuchSession)


def exchange() -> list[dict[str, Any]]:
    """Two turns whose calls and tools count from 1 again, work of a stream that knows no turns, a body."""
    body = b'{"said":"hi \\u001b[2J"}'
    recorded = {
        "for_event_id": "e2", "source": "model_call", "direction": "request", "content_type": "application/json",
        "original_bytes": len(body), "truncated": False, "sha256": hashlib.sha256(body).hexdigest(), "data": base64.b64encode(body).decode(),
    }  # fmt: skip
    events = []
    for turn, trace in (("a", "T"), ("b", "U")):
        done = {"provider": "anthropic", "model": "claude-sonnet-4-5", "message_id": f"m-{turn}", "text": f"In {turn}.",
                "usage": {"input": 100, "cache_read": 0, "output": 10}, "stop_reason": "tool_use"}  # fmt: skip
        named = {"turn_id": turn, "trace_id": trace}
        events += [
            {"type": "turn.started", **named, "payload": {"input_preview": f"Do {turn}"}},
            {
                "type": "model_call.completed",
                **named,
                "model_call_id": "1",
                "event_id": "e2" if turn == "a" else "e3",
                "payload": done,
            },
            {
                "type": "tool_call.requested",
                **named,
                "model_call_id": "1",
                "tool_call_id": "1",
                "payload": {"tool_name": "bash"},
            },
            {
                "type": "tool_call.completed",
                **named,
                "tool_call_id": "1",
                "payload": {"status": "error", "error_message": "no \x1b[2J"},
            },
            {
                "type": "fs.changed",
                "stream": "recorder",
                "payload": {"action": "created", "path": f"{turn}.txt"},
            },
            {"type": "turn.completed", **named, "payload": {"status": "completed"}},
        ]
    events.append({"type": "body.recorded", "turn_id": "a", "payload": recorded})
    following: Counter[str] = Counter()
    for second, event in enumerate(events):
        stream = event.setdefault("stream", "ledger")
        event.update(seq=following[stream], occurred_at=f"2026-03-01T12:00:{second:02d}Z")
        following[stream] += 1
    return events


@pytest.fixture(scope="module")
def told(url: str) -> str:
    """A session in the ledger, its projections and its roll-up."""
    with connect(url, "test", autocommit=True) as link:
        put_events(link, "told-whole", exchange())
        project(link, [json.dumps({"session_id": "told-whole", **event}).encode() for event in exchange()])
        link.execute(
            """
            insert into projection_a.event_bodies (session_no, stream_no, seq, occurred_at, turn_id, kind, for_event_id, source, direction,
                                                   content_type, original_bytes, truncated, sha256, stored_bytes, verified)
            select st.session_no, e.stream_no, e.seq, e.occurred_at, 'a', 'live', 'e2', 'model_call', 'request', 'application/json', 24, false,
                   ledger.as_jsonb(e.raw) -> 'payload' ->> 'sha256', 24, true
            from ledger.events e join ledger.streams st using (stream_no) where e.type = 'body.recorded'
            """
        )
    drain(url)
    return "told-whole"


def test_a_session_is_shown_as_a_tree(url: str, told: str) -> None:
    page = command(url, told, of="show", columns=140).stdout
    tree = page[page.index("session told-whole") :].splitlines()
    assert tree[:6] == [
        "session told-whole  running · 2026-03-01 12:00:00Z → 2026-03-01 12:00:12Z · 200 in 20 out · cost $0.0009 · complete",
        "├─ trace T",
        "│  └─ turn a  completed · 12:00:00 · 5.0 s · 100 in 10 out · cost $0.00045 · complete · stop: unknown · 7 events",
        "│     └─ call 1  claude-sonnet-4-5 · completed · 12:00:01 · 100 in 10 out · $0.00045 · tool_use",
        "│        └─ tool bash  error · 12:00:03 · 1 · no \\x1b[2J",
        "└─ trace U",
    ]


def test_a_part_of_a_session_is_shown_with_its_events(url: str, told: str) -> None:
    graph = json.loads(command(url, told, "--turn", "b", "--json", of="show").stdout)["graph"]
    ((trace,),) = [graph]
    assert (trace["trace_id"], [turn["turn_key"] for turn in trace["turns"]]) == ("U", ["b"])
    (turn,) = trace["turns"]
    assert [event["type"] for event in turn["events"]] == ["turn.started", "fs.changed", "turn.completed"]
    assert [event["type"] for event in turn["model_calls"][0]["events"]] == ["model_call.completed"]
    assert [event["seq"] for event in turn["model_calls"][0]["tool_calls"][0]["events"]] == [7, 8]
    one = command(url, told, "--event", "harness/0/recorder/1", of="show").stdout
    assert '"path": "b.txt"' in one
    assert "turn b" in one and "call 1" not in one
    assert isinstance(command(url, told, "--call", "nothing", of="show").exception, NoSuchPart)


def test_a_body_is_shown_safely_and_given_whole_to_scripts(url: str, told: str) -> None:
    page = command(url, told, "--bodies", of="show").stdout
    assert "body request  model_call · application/json · 24 of 24 bytes · its hash holds" in page
    assert '{"said":"hi \\u001b[2J"}' in page
    graph = json.loads(command(url, told, "--event", "e2", "--bodies", "--json", of="show").stdout)["graph"]
    (body,) = graph[0]["turns"][0]["model_calls"][0]["events"][0]["bodies"]
    assert base64.b64decode(body["data"]) == b'{"said":"hi \\u001b[2J"}'


def test_json_of_a_whole_session_adds_the_graph_to_what_it_was(url: str, told: str) -> None:
    shown = json.loads(command(url, told, "--json", of="show").stdout)
    assert list(shown) == [
        "session",
        "streams",
        "turns",
        "gaps",
        "conflicts",
        "dead_letters",
        "findings",
        "graph",
    ]
    assert shown["graph"][0]["turns"][0]["events"] is None


MEASURED = """
import resource, runpy, sys
from turnledger.cli import main
sys.argv = ["turnledger", "sessions", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


def long_session(link: psycopg.Connection[Any], session_id: str, events: int) -> None:
    found, _ = put_events(link, session_id, [{"type": "note", "seq": 0}])
    link.execute(
        """
        insert into ledger.events (batch_no, stream_no, seq, kafka_offset, occurred_at, day, type, raw)
        select 1, st.stream_no, n, n, now() + n * interval '1 ms', ledger.today(), 'message.recorded',
               convert_to(format('{"session_id":"%%s","seq":%%s,"type":"message.recorded","payload":{"role":"user","text":"word word"}}',
                                 %(id)s::text, n), 'UTF8')
        from ledger.streams st, generate_series(1, %(last)s) n where st.session_no = %(session_no)s
        """,
        {"id": session_id, "last": events - 1, "session_no": found.session_no},
    )


def test_memory_does_not_grow_with_the_session(link: psycopg.Connection[Any], url: str) -> None:
    peaks = {}
    for events in (5_000, 200_000):
        long_session(link, f"long-{events}", events)
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, "timeline", f"long-{events}", "--all"],
            env=environment_without_addresses() | {"TURNLEDGER_DATABASE_URL": url},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert len(lines) == events
        assert lines[-1] == f'[{events - 1}] USER "word word"'
        peaks[events] = int(done.stderr)
    assert peaks[200_000] < 1.15 * peaks[5_000], peaks


def test_a_report_takes_no_more_memory_of_many_turns(link: psycopg.Connection[Any], url: str) -> None:
    """Every turn fails with words of its own and leaves a tool without a result, so that each has rows in all that a report reads."""
    peaks = {}
    for turns in (500, 15_000):
        name = f"turns-{turns}"
        long_session(link, name, 2 * turns)
        project(
            link,
            lines(
                {
                    name: [
                        plain(name, 0, "turn.started", turn_id="t", payload={"input_preview": "go " * 300}),
                        call(name, 1, "m", 12, payload={"latency_ms": 4}),
                        plain(name, 2, "tool_call.requested", {"tool_name": "bash"}, turn_id="t", tool_call_id="x"),
                        plain(name, 3, "turn.completed", {"status": "failed", "error": "no " * 300}, turn_id="t"),
                    ]
                }
            ),
        )  # fmt: skip
        number = lengthen(link, name, turns)
        link.execute(
            "insert into projection_a.findings select f.session_no, n, f.source, f.check, f.severity, f.count, f.rows "
            "from projection_a.findings f, generate_series(2, %s) n where f.session_no = %s and f.turn_no = 1",
            (turns, number),
        )
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, "report", name],
            env=environment_without_addresses() | {"TURNLEDGER_DATABASE_URL": url},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert f"- {turns} of {turns} model calls were answered" in done.stdout
        assert f"- … and {turns - 20:,} more turns" in done.stdout
        assert f"- … and {turns - 50:,} more; `turnledger sessions check` has all" in done.stdout.replace(
            "\\", ""
        )
        peaks[turns] = int(done.stderr)
    assert peaks[15_000] < 1.15 * peaks[500], peaks


def test_a_report_is_written_to_a_file_and_needs_no_prometheus(url: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "report.md"
    done = command(url, told, "-o", str(file), "--prometheus", "http://127.0.0.1:1", of="report")
    assert (done.exit_code, done.stdout) == (0, "")
    text = file.read_text()
    assert "- Session: default/told-whole" in text
    assert "- Log: harness/0/ledger: 0–10; harness/0/recorder: 0–1" in text
    assert "- Total events: 13; grade: complete" in text
    assert "N/A: the Prometheus server at http://127.0.0.1:1 does not answer" in text
    assert "- tool bash failed: “no \\\\x1b\\[2J” (turn a, 2026-03-01T12:00:03Z)" in text
    assert "| tool errors | 2 |" in text
    assert "\x1b" not in text
    made = json.loads(command(url, told, "--json", of="report").stdout)
    assert list(made) == [
        "header", "timeline", "prometheus", "reconciliation", "diagnosis", "validation", "recommendations", "verdict",
    ]  # fmt: skip
    assert [line["type"] for line in made["timeline"]["shown"]] == ["USER", "ASST", "TOOL", "RES"] * 2


def test_a_report_needs_no_records_of_turns_as_a_vacuum_takes_them(
    link: psycopg.Connection[Any], url: str
) -> None:
    events = [{"type": "turn.started", "turn_id": "t", "seq": 0, "payload": {"input_preview": "Go"}}]
    found, _ = put_events(link, "without-records", events)
    project(link, [json.dumps({"session_id": "without-records", **one}).encode() for one in events])
    link.execute("delete from projection_a.turn_records where session_no = %s", [found.session_no])
    done = command(url, "without-records", of="report")
    assert done.exit_code == 0, done.exception
    assert "| instruction-following issues | N/A |" in done.stdout
