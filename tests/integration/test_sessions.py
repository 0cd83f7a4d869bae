"""`turnledger sessions list · show`, `topics create`: what a person and a script get, and the sentences for what is not there."""

from __future__ import annotations

import asyncio
import csv
import json
import secrets
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.stack import databases, servers
from tests.stack.commands import run
from turnledger.doctor.listing import Wanted, list_sessions
from turnledger.doctor.naming import NoSuchSession, WhichSession, find_session, letters_of
from turnledger.doctor.sessions import show_session

FIGURES = {
    "turn_count": 2,
    "model_call_count": 3,
    "failed_model_calls": 1,
    "total_tool_calls": 4,
    "tool_errors": 0,
    "total_input_tokens": 12345,
    "output_tokens": 678,
    "usage_reported": 2,
    "usage_total": 3,
    "cost_micro_usd": 1234500,
    "unpriced_calls": 1,
    "open_gaps": 1,
}


def insert(link: psycopg.Connection[Any], table: str, **values: Any) -> Any:
    names, marks = ", ".join(f'"{name}"' for name in values), ", ".join(["%s"] * len(values))
    key = {"ledger.sessions": "session_no", "ledger.streams": "stream_no"}.get(table)
    row = link.execute(
        f"insert into {table} ({names}) values ({marks})" + (f" returning {key}" if key else ""),  # type: ignore[arg-type]
        list(values.values()),
    )
    return row.fetchone()[0] if key else None  # type: ignore[index]


def session(link: psycopg.Connection[Any], session_id: str, tenant: str = "default", **rollup: Any) -> int:
    number = insert(
        link, "ledger.sessions", tenant=tenant, session_id=session_id, home_topic="t", home_partition=0
    )
    if rollup:
        insert(link, "projection_a.sessions", session_no=number, **rollup)
    return int(number)


@pytest.fixture(scope="module")
def url(stack: servers.Servers, database_template: str) -> Iterator[str]:
    """A database with five sessions."""
    address = databases.create(stack.database_url, template=database_template)
    with psycopg.connect(address) as link:
        number = session(
            link,
            "alpha",
            agent="coder",
            status="ended",
            last_activity_at="2026-03-01T10:00:05Z",
            grade="gaps",
            models='["m-1"]',
            **FIGURES,
        )
        stream = insert(
            link, "ledger.streams", session_no=number, producer="harness", epoch=0, stream="ledger"
        )
        # Written in another order than that of the contract: the key of the order decides.
        for turn_no, key, order in ((1, "second", b"\x02"), (2, "first", b"\x01")):
            insert(
                link,
                "projection_a.turns",
                session_no=number,
                turn_no=turn_no,
                turn_key=key,
                digest="d",
                order_key=order,
                status="completed",
                grade="gaps",
            )
            insert(
                link,
                "projection_a.turn_records",
                session_no=number,
                turn_no=turn_no,
                revision=1,
                digest="d",
                record=b'{"status":"completed"}',
            )
        insert(link, "ledger.gaps", stream_no=stream, from_seq=3, to_seq=4, state="open", missing=2)
        insert(
            link,
            "ledger.conflicts",
            session_no=number,
            stream_no=stream,
            seq=2,
            kept_sha256=b"\xaa" * 32,
            lost_sha256=b"\xbb" * 32,
            topic="t",
            first_partition=0,
            first_offset=8,
            last_partition=0,
            last_offset=9,
            count=2,
        )
        insert(
            link,
            "ledger.dead_letters",
            topic="t",
            partition=0,
            kafka_offset=11,
            reason="wrong_type",
            field="seq",
            detail="seq is a text",
            tenant="default",
            session_id="alpha",
        )
        insert(
            link,
            "projection_a.findings",
            session_no=number,
            source="fold",
            check="open_gap",
            severity="error",
            count=1,
            rows="[]",
        )
        session(link, "beta", last_activity_at="2026-03-01T10:00:09Z", grade="complete")
        session(link, "bad\x1b]0;title\x07\nname", last_activity_at="0044-03-15T12:00:00Z BC")
        session(link, "alpha", tenant="other", last_activity_at="2026-03-01T10:00:01Z")
        session(link, "unsummed")
        for twin, provider, model in (
            ("twin-a", "anthropic", "claude-sonnet-4-5"),
            ("twin-b", "openai", "gpt-4o"),
        ):
            number = session(
                link, twin, tenant="twins", name="twins", models=f'["{model}"]', model_call_count=1
            )
            insert(link, "projection_a.session_facts", session_no=number, name="twins", models=f'["{model}"]')
            insert(
                link, "projection_a.ai_usage", session_no=number, provider=provider, model=model, call_count=1
            )
    yield address
    databases.drop(stack.database_url, address)


@pytest.fixture
def link(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url) as connection:
        yield connection


def command(url: str, *arguments: str) -> Any:
    return run("sessions", *arguments, environment={"TURNLEDGER_DATABASE_URL": url})


def test_the_latest_activity_comes_first(link: psycopg.Connection[Any]) -> None:
    rows = list_sessions(link)
    assert [(row["tenant"], row["session_id"]) for row in rows[:3]] == [
        ("default", "beta"),
        ("default", "alpha"),
        ("other", "alpha"),
    ]


def test_count_and_tenant_narrow_the_list(link: psycopg.Connection[Any]) -> None:
    assert [row["session_id"] for row in list_sessions(link, Wanted(count=1))] == ["beta"]
    assert [row["session_id"] for row in list_sessions(link, Wanted(tenant="other"))] == ["alpha"]


CHOICES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["rich", "plain", "empty"]),
    ({"vacuumed_too": True}, ["rich", "plain", "empty", "gone"]),
    ({"status": "crashed"}, ["plain"]),
    ({"agent": "coder"}, ["rich"]),
    ({"since": 1_767_225_602_500_000}, ["rich"]),  # 2026-01-01T00:00:02.5Z
    ({"min_cost": Decimal("0.5")}, ["rich"]),
    ({"min_cost": Decimal("0.500001")}, []),
    ({"with_model": True}, ["rich", "plain"]),
    ({"with_net": True}, ["rich"]),
    ({"with_tools": True}, ["rich", "plain"]),
    ({"with_mcp": True}, ["rich"]),
    ({"with_detail": True, "vacuumed_too": True}, ["rich", "plain"]),
    ({"with_tools": True, "count": 1}, ["rich"]),
    ({"with_tools": True, "status": "crashed", "count": 1}, ["plain"]),
]


@pytest.mark.parametrize(("wanted", "found"), CHOICES, ids=lambda value: " ".join(value) or "none")
def test_a_list_is_narrowed_before_it_is_counted(
    link: psycopg.Connection[Any], wanted: dict[str, Any], found: list[str]
) -> None:
    """Four sessions of a tenant: one that did everything, one with tokens and tools alone, an empty one, and one that was vacuumed."""
    rich = session(
        link, "rich", tenant="n", agent="coder", status="stopped", detail="full", last_activity_at="2026-01-01T00:00:03Z",
        total_input_tokens=10, output_tokens=None, total_requests=2, total_tool_calls=3, cost_micro_usd=500_000,
    )  # fmt: skip
    insert(link, "projection_a.mcp_usage", session_no=rich, server_name="srv", tool_name="x", call_count=2)
    session(
        link, "plain", tenant="n", status="crashed", detail="full", last_activity_at="2026-01-01T00:00:02Z", total_tool_calls=1, output_tokens=5,
    )  # fmt: skip
    session(link, "empty", tenant="n", last_activity_at="2026-01-01T00:00:01Z")
    session(link, "gone", tenant="n", detail="vacuumed", last_activity_at="2026-01-01T00:00:00Z")
    rows = list_sessions(link, Wanted(tenant="n", **wanted))
    assert [row["session_id"] for row in rows] == found
    assert [row["total_mcp_calls"] for row in rows if row["session_id"] in ("rich", "plain")] in (
        [2, 0],
        [2],
        [0],
        [],
    )
    link.rollback()


def test_csv_has_every_column_under_its_name(url: str) -> None:
    done = command(url, "list", "--tenant", "default", "-n", "2", "--csv")
    first, *rest = csv.DictReader(done.stdout.splitlines())
    assert (first["session_id"], first["cost_micro_usd"], first["grade"]) == ("beta", "", "complete")
    assert (rest[0]["models"], rest[0]["cost_micro_usd"], rest[0]["total_mcp_calls"]) == (
        '["m-1"]',
        "1234500",
        "0",
    )
    assert command(url, "list", "--csv", "--json").returncode == 2


def test_an_amount_that_is_none_is_a_sentence(url: str) -> None:
    done = command(url, "list", "--min-cost", "cheap")
    assert (done.returncode, done.stderr) == (
        2,
        "turnledger: --min-cost 'cheap' is no amount: say dollars, as in 0.50.\n",
    )


def test_an_instant_is_utc_text_with_six_digits_even_before_the_calendar_of_python(
    link: psycopg.Connection[Any],
) -> None:
    instants = {row["session_id"]: row["last_activity_at"] for row in list_sessions(link)}
    assert instants["beta"] == "2026-03-01T10:00:09.000000Z"
    assert "-043-03-15T12:00:00.000000Z" in instants.values()


def test_a_session_is_shown_whole(url: str) -> None:
    with psycopg.connect(url) as link:
        found = show_session(link, "alpha", "default")
    assert list(found) == ["session", "streams", "turns", "gaps", "conflicts", "dead_letters", "findings"]
    assert found["session"]["cost_micro_usd"] == 1234500
    assert found["session"]["models"] == ["m-1"]
    assert [turn["turn_key"] for turn in found["turns"]] == ["first", "second"]
    assert found["turns"][0]["record"] == {"status": "completed", "revision": 1, "digest": "d"}
    assert [(gap["from_seq"], gap["to_seq"], gap["missing"]) for gap in found["gaps"]] == [(3, 4, 2)]
    assert [(row["seq"], row["count"], row["first_position"]) for row in found["conflicts"]] == [(2, 2, 8)]
    assert [(row["position"], row["reason"]) for row in found["dead_letters"]] == [(11, "wrong_type")]
    assert [row["check"] for row in found["findings"]] == ["open_gap"]


def test_a_session_without_sums_yet_is_shown_without_them(url: str) -> None:
    with psycopg.connect(url) as link:
        found = show_session(link, "unsummed")
    assert (found["session"], found["turns"]) == (None, [])
    assert "its sums are not there yet" in command(url, "show", "unsummed").stdout


def test_an_id_of_several_tenants_asks_which(link: psycopg.Connection[Any]) -> None:
    with pytest.raises(WhichSession) as told:
        find_session(link, "alpha")
    assert str(told.value) == (
        "which session is 'alpha': 'alpha' of tenant 'default', 'alpha' of tenant 'other'? "
        "Name one as tenant/session_id, or its tenant with --tenant."
    )
    assert find_session(link, "alpha", "other").tenant == "other"
    assert find_session(link, "other/alpha").tenant == "other"


def test_two_sessions_named_alike_with_different_providers_are_a_question_and_never_each_other(
    url: str, link: psycopg.Connection[Any]
) -> None:
    for number, (session_id, model) in enumerate((("vm-1", "claude-sonnet-4-5"), ("vm-2", "gpt-4o"))):
        _named(link, session_id, "nightly", model, f"2026-03-0{number + 1}T00:00:00Z")
    with pytest.raises(WhichSession) as told:
        find_session(link, "nightly")
    assert str(told.value) == (
        "which session is 'nightly': 'vm-2' of tenant 'default' (gpt-4o), 'vm-1' of tenant 'default' (claude-sonnet-4-5)? "
        "2 sessions have that name: say one by its id."
    )
    assert find_session(link, "default/vm-1").session_id == "vm-1"
    assert find_session(link, "vm-2").session_id == "vm-2"
    link.rollback()


def test_under_a_name_of_two_sessions_neither_is_shown_and_under_their_ids_each_shows_its_own_provider(
    url: str,
) -> None:
    for words in (
        ("show", "twins"),
        ("check", "twins"),
        ("show", "twins/twins"),
        ("show", "twins", "--json"),
    ):
        done = command(url, *words)
        assert (done.returncode, done.stdout) == (2, ""), done.stdout
        assert (
            "'twin-a' of tenant 'twins' (claude-sonnet-4-5), 'twin-b' of tenant 'twins' (gpt-4o)? 2 sessions"
            in done.stderr
        )
    shown = {
        one: json.loads(command(url, "show", one, "--json").stdout)["session"]["models"]
        for one in ("twin-a", "twins/twin-b")
    }
    assert shown == {"twin-a": ["claude-sonnet-4-5"], "twins/twin-b": ["gpt-4o"]}


def test_a_name_that_one_session_has_is_resolved_to_its_id(link: psycopg.Connection[Any]) -> None:
    _named(link, "vm-3", "the/only one", "gpt-4o", "2026-03-01T00:00:00Z")
    assert find_session(link, "the/only one").session_id == "vm-3"
    assert find_session(link, "default/the/only one").session_id == "vm-3"
    with pytest.raises(NoSuchSession):
        find_session(link, "the/only one", "other")
    link.rollback()


def test_letters_are_chosen_by_an_id_of_every_tenant_and_else_by_what_is_meant(
    link: psycopg.Connection[Any],
) -> None:
    assert letters_of(link, "alpha") == ("alpha", None)
    assert letters_of(link, "other/alpha") == ("alpha", "other")
    assert letters_of(link, "never/seen") == ("never/seen", None)


def test_a_session_takes_no_id_of_another_by_calling_itself_so(link: psycopg.Connection[Any]) -> None:
    _named(link, "vm-4", "beta", "gpt-4o", "2026-03-01T00:00:00Z")
    assert find_session(link, "beta").session_id == "beta"
    link.rollback()


def _named(link: psycopg.Connection[Any], session_id: str, name: str, model: str, created: str) -> None:
    number = session(link, session_id)
    insert(
        link,
        "projection_a.session_facts",
        session_no=number,
        name=name,
        models=f'["{model}"]',
        created_at=created,
    )


def test_an_unknown_session_is_one_sentence_and_status_2(url: str) -> None:
    done = command(url, "show", "gamma")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == "turnledger: the ledger has no session 'gamma': `turnledger sessions list` shows those it has.\n"
    )


def test_json_is_one_object_and_nothing_else(url: str) -> None:
    listed = json.loads(command(url, "list", "--json").stdout)
    assert [row["session_id"] for row in listed["sessions"]][:2] == ["beta", "alpha"]
    shown = json.loads(command(url, "show", "default/alpha", "--json").stdout)
    assert shown["session"]["output_tokens"] == 678


def test_plain_output_has_a_line_a_session_and_says_what_is_not_known(url: str) -> None:
    done = command(url, "list", "--tenant", "default", "-n", "2")
    lines = done.stdout.splitlines()
    heads = "session name agent status created dur cost known net tokens tool mcp fs turns calls gaps grade last activity"
    assert lines[0].split() == heads.split()
    assert lines[2].split() == [
        *("alpha", "–", "coder", "ended", "–", "?", "$1.2345", "+1?", "2/3", "–", "13,023", "4", "0", "–", "2", "3", "1", "gaps"),
        *("2026-03-01", "10:00:05Z"),
    ]  # fmt: skip
    assert lines[1].split()[4:] == [*"–?–––––0––––", "complete", "2026-03-01", "10:00:09Z"]


def test_text_from_outside_moves_no_cursor(url: str) -> None:
    done = command(url, "list")
    assert "\x1b" not in done.stdout
    assert "bad\\x1b]0;title\\x07\\nname" in done.stdout


def test_a_page_names_gaps_conflicts_and_dead_letters(url: str) -> None:
    page = command(url, "show", "alpha", "--tenant", "default").stdout
    assert "known         2 of 3 reported" in page
    assert "cost          $1.2345 +1?" in page
    assert "harness/ledger     3   4        2  open" in page
    assert "aaaaaaaaaaaa  bbbbbbbbbbbb      2" in page
    assert "wrong_type  seq    seq is a text" in page


def test_topics_are_created_once_and_never_changed(stack: servers.Servers) -> None:
    name = f"made-{secrets.token_hex(4)}"
    environment = {"TURNLEDGER_KAFKA_BOOTSTRAP": stack.kafka_bootstrap, "TURNLEDGER_TOPIC": name}
    made = run("topics", "create", "--partitions", "3", environment=environment)
    assert (made.returncode, f"{name} at {stack.kafka_bootstrap}: created, 3 partitions" in made.stdout) == (
        0,
        True,
    )
    again = run("topics", "create", environment=environment)
    assert f"{name} at {stack.kafka_bootstrap}: is there already, 3 partitions" in again.stdout
    other = run("topics", "create", "--partitions", "5", environment=environment)
    assert other.returncode == 2
    assert other.stderr.startswith(
        f"turnledger: {name} at {stack.kafka_bootstrap} is there with 3 partitions, not 5: "
    )


def test_a_topic_takes_records_of_the_greatest_size_and_keeps_them_a_week(stack: servers.Servers) -> None:
    name = f"made-{secrets.token_hex(4)}"
    environment = {"TURNLEDGER_KAFKA_BOOTSTRAP": stack.kafka_bootstrap, "TURNLEDGER_TOPIC": name}
    assert (
        f"{name} at {stack.kafka_bootstrap}: created, 24 partitions"
        in run("topics", "create", environment=environment).stdout
    )

    async def settings() -> dict[str, str]:
        admin = AIOKafkaAdminClient(bootstrap_servers=stack.kafka_bootstrap)
        await admin.start()
        try:
            (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
            return {entry[0]: entry[1] for entry in answer.resources[0][4]}
        finally:
            await admin.close()

    found = asyncio.run(settings())
    assert (found["cleanup.policy"], found["retention.ms"], found["max.message.bytes"]) == (
        "delete",
        "604800000",
        "1114112",
    )


def test_a_broker_that_is_away_is_one_sentence() -> None:
    done = run("topics", "create", environment={"TURNLEDGER_KAFKA_BOOTSTRAP": "127.0.0.1:1"})
    assert done.returncode == 2
    assert done.stderr == (
        "turnledger: the broker at 127.0.0.1:1 does not answer (no connection): start it (`turnledger dev up` runs one here) or set "
        "TURNLEDGER_KAFKA_BOOTSTRAP.\n"
    )
