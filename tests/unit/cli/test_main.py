"""No traceback reaches a terminal: what fails under a command is one sentence on standard error, and exit status 2."""

from __future__ import annotations

import psycopg
import pytest

from turnledger import cli
from turnledger.errors import TurnledgerError


def ends(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str]:
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "build", lambda: fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code, capsys.readouterr().err


def test_a_database_that_fails_on_the_way_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = psycopg.OperationalError("server closed the connection unexpectedly\n\tThis probably means …")
    assert ends(error, monkeypatch, capsys) == (
        2,
        "turnledger: the database failed in the middle of it (server closed the connection unexpectedly): run the command again when it answers.\n",
    )


def test_a_sentence_that_quotes_a_ledger_moves_no_cursor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends(TurnledgerError("no session \x1b[2J\x9b\u202e"), monkeypatch, capsys) == (
        2,
        "turnledger: no session \\x1b[2J\\x9b\\u202e\n",
    )


def test_a_right_that_is_missing_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = psycopg.errors.InsufficientPrivilege("permission denied for table events")
    assert ends(error, monkeypatch, capsys) == (
        2,
        "turnledger: the database refuses (permission denied for table events): name a role with that right in "
        "TURNLEDGER_DATABASE_URL (a reader asks the views with SQL).\n",
    )


@pytest.mark.parametrize("mistake", [ZeroDivisionError, psycopg.errors.UndefinedColumn])
def test_a_mistake_of_ours_is_not_hidden(mistake: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise mistake

    monkeypatch.setattr(cli, "build", lambda: fail)
    with pytest.raises(mistake):
        cli.main()
