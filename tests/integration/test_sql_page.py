"""docs/sql.md, run: every query by heart gives the answer that the page prints, every question over the fleet stands under its index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.bench import sql_plans
from tests.integration.ingesting import environment, until_applied, until_projected
from tests.stack import databases, servers
from tests.stack.commands import Running, run
from tests.stack.topics import create_topic
from turnledger.demo.show import SANDBOX
from turnledger.store.roles import Login, create, drop

_ANSWERED = re.compile(r"```sql\n(?P<query>[^`]*?)```\n\n(?P<table>(?:\|.*\n)+)")


def queries() -> list[Any]:
    """(query, names, rows as text) of the page, by the line that they stand at."""
    text = sql_plans.PAGE.read_text(encoding="utf-8")
    found = []
    for one in _ANSWERED.finditer(text):
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in one["table"].splitlines()]
        line = text[: one.start()].count("\n") + 1
        found.append(pytest.param(one["query"], lines[0], lines[2:], id=f"line {line}"))
    return found


@pytest.fixture(scope="module")
def link(
    stack: servers.Servers, database_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[psycopg.Connection[Any]]:
    """A reader's connection to a database into which the example went by broker, worker and rollup worker."""
    url = databases.create(stack.database_url, template=database_template)
    topic = create_topic(stack.kafka_bootstrap, 1)
    settings = environment(topic, url)
    assert run("publish", str(SANDBOX), environment=settings).returncode == 0
    worker = Running(("worker",), settings, tmp_path_factory.mktemp("sql") / "worker.log")
    try:
        until_applied(url, topic, len(SANDBOX.read_text().splitlines()), worker)
        until_projected(url, topic)
    finally:
        worker.stop()
    assert run("rollup", "--once", environment=settings).returncode == 0
    name = f"page_{urlsplit(url).path[-8:]}"
    with psycopg.connect(url, autocommit=True) as owner:
        create(owner, Login(name, ("sandbox",), password="p"))
        with psycopg.connect(databases.as_role(url, name), autocommit=True) as reader:
            yield reader
        drop(owner, name)
    databases.drop(stack.database_url, url)


def shown(value: Any) -> str:
    """As psql shows it."""
    return "" if value is None else f"{value:f}" if isinstance(value, Decimal) else str(value)


@pytest.mark.parametrize(("query", "names", "rows"), queries())
def test_a_query_of_the_page_gives_the_answer_that_it_prints(
    link: psycopg.Connection[Any], query: str, names: list[str], rows: list[list[str]]
) -> None:
    cursor = link.execute(query)  # type: ignore[arg-type]
    assert [column.name for column in cursor.description or []] == names
    assert [[shown(value) for value in row] for row in cursor] == rows


def test_every_query_of_the_page_is_run() -> None:
    assert len(queries()) + len(sql_plans.questions()) == sql_plans.PAGE.read_text().count("```sql") > 20


def test_every_question_over_the_fleet_stands_under_its_index(
    stack: servers.Servers, database_template: str
) -> None:
    url = databases.create(stack.database_url, template=database_template)
    with psycopg.connect(url, autocommit=True) as owner, sql_plans.reader(url) as reader:
        sql_plans.fill(owner, 150_000)
        wrong = {
            one.statement: found
            for one in sql_plans.questions()
            if (found := sql_plans.faults(one, *sql_plans.executed(reader, one.statement)))
        }
    databases.drop(stack.database_url, url)
    assert wrong == {}
