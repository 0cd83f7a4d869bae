"""What a connection is opened with, and the sentences for one that could not be."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from turnledger.store.connect import DatabaseAway, away, connect, conninfo, place


def test_a_connection_names_its_application_and_limits_every_wait() -> None:
    parts = conninfo_to_dict(
        conninfo("postgresql://u@h:5433/d", "ingest", statement_seconds=1.5, idle_seconds=0, lock_seconds=2)
    )
    assert parts["application_name"] == "turnledger ingest"
    assert parts["connect_timeout"] == "5"
    assert parts["tcp_user_timeout"] == "15000"
    assert "-c statement_timeout=1500 " in parts["options"]
    assert "-c idle_in_transaction_session_timeout=0 " in parts["options"]
    assert "-c lock_timeout=2000 " in parts["options"]


def test_what_the_address_says_itself_wins() -> None:
    parts = conninfo_to_dict(
        conninfo("postgresql://u@h/d?connect_timeout=1&options=-c%20lock_timeout%3D7", "ingest")
    )
    assert parts["connect_timeout"] == "1"
    # The server takes the last of two settings.
    assert parts["options"].endswith(" -c lock_timeout=7")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@db.example:5433/ledger", "db.example:5433/ledger"),
        ("postgresql://me@db.example/ledger", "db.example:5432/ledger"),
        ("postgresql:///ledger", "localhost:5432/ledger"),
    ],
)
def test_a_place_shows_no_password(url: str, shown: str) -> None:
    assert place(url) == shown


def test_a_refused_port_is_one_sentence_that_names_place_and_way_out() -> None:
    with pytest.raises(DatabaseAway) as raised:
        connect("postgresql://me:secret@127.0.0.1:1/ledger", "test")
    sentence = str(raised.value)
    assert sentence.startswith("the database at 127.0.0.1:1/ledger does not answer (Connection refused): ")
    assert "turnledger dev up" in sentence
    assert "secret" not in sentence
    assert "\n" not in sentence


def test_an_address_that_is_none_is_a_sentence() -> None:
    with pytest.raises(DatabaseAway, match="the database address is not one"):
        connect("somewhere", "test")


def test_a_refusal_is_told_apart_from_silence() -> None:
    error = psycopg.OperationalError(
        'connection failed: connection to server at "127.0.0.1", port 5432 failed: FATAL:  database "x" does not exist'
    )
    assert str(away("postgresql://me@127.0.0.1/x", error)) == (
        'the database at 127.0.0.1:5432/x refuses the connection (database "x" does not exist): check TURNLEDGER_DATABASE_URL.'
    )
