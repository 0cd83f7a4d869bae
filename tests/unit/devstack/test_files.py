"""Ports and files of the devstack."""

from __future__ import annotations

import socket
from pathlib import Path

from turnledger.devstack.files import free_port, keep_or_change, port_taken, tail, write_whole


def listening() -> socket.socket:
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    return server


def test_a_port_that_is_free_is_kept() -> None:
    port = free_port()
    said: list[str] = []
    assert keep_or_change(port, "the broker", said.append) == port
    assert said == []


def test_a_port_that_another_program_took_is_changed_and_that_is_said() -> None:
    with listening() as server:
        port = server.getsockname()[1]
        assert port_taken(port)
        said: list[str] = []
        assert keep_or_change(port, "the broker", said.append) != port
    assert said == [f"port {port} is taken by another program now; the broker gets another one"]


def test_a_file_with_a_secret_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_whole(path, "one", mode=0o600)
    write_whole(path, "two", mode=0o600)
    assert path.read_text() == "two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.json"]


def test_the_end_of_a_log_is_one_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail(log) == "no log was written"
    log.write_bytes(b"")
    assert tail(log) == "the log is empty"
    log.write_bytes(b"a\nb\n\n c \xff\n")
    assert tail(log, lines=2) == "b | c �"
